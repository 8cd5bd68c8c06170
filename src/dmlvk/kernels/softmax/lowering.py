"""Plans for softmax and its relatives, which normalize rows: softmax, its logarithm, hardmax and Lp normalization."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from dmlvk.devices.capabilities import Capabilities
from dmlvk.kernels.common.dispatch import make_dispatch
from dmlvk.kernels.common.parts import placed
from dmlvk.kernels.common.plan import Dispatch, Launch, Plan, Range, Source, input_range, output_range
from dmlvk.kernels.common.registry import register, subgroup_features
from dmlvk.kernels.common.shapes import WORD_BITS, Coalesced, coalesce, divisors, linear_grid, power_of_two
from dmlvk.kernels.softmax.manifest import OrZero
from dmlvk.kernels.softmax.rules import (
    LEAST_ANYWHERE,
    SHORT_WORDS,
    SOFTMAX,
    SOFTMAX_HELD,
    SOFTMAX_HELD_BY_ALL,
    TOGETHER,
    SoftmaxProblem,
    SoftmaxUnit,
)
from dmlvk.spec import ops
from dmlvk.spec.ops.activation import SoftmaxOrZero
from dmlvk.spec.tensor import TensorDesc, element_bits

_Normalizer = ops.ActivationSoftmax1 | ops.ActivationLogSoftmax1 | ops.ActivationHardmax1 | ops.LpNormalization

_PARTIAL_BYTES = 16
_MERGED_BYTES = 4096
"""Shared memory that merging takes at most beside a shelf: 16 bytes for each of up to 256 subgroups."""
_MOST_CHUNKS = 1024
"""Chunks of a split row: every chunk's workgroup reads what is known of all of them."""


class _Shape(NamedTuple):
    """The division of rows among workgroups: ``columns`` neighbouring groups of rows, ``lanes`` invocations for each of
    these groups, ``units`` held by each of them at a time; powers of two, so that many row lengths share a pipeline, but for
    the units of long rows, of which there are none to spare. ``packed``: units are held as they lie in memory. ``shelf``: so
    many of them are held in shared memory."""

    invocations: int
    lanes: int
    columns: int
    units: int
    packed: bool = False
    shelf: int = 0

    @property
    def tile(self) -> int:
        """Units of a row in registers at a time."""
        return self.lanes * self.units


def _problem(desc: _Normalizer) -> SoftmaxProblem:
    x, y = desc.tensor("input_tensor"), desc.tensor("output_tensor")
    strides = x.effective_strides, y.effective_strides
    axes = (desc.axis,) if isinstance(desc, ops.LpNormalization) else desc.axes
    # Sums do not depend on the order of dimensions, so memory's order makes the longest runs. Which of equal elements comes
    # first does.
    order = sorted(range(x.dimension_count), key=lambda axis: (strides[1][axis], strides[0][axis]), reverse=True)
    in_row = sorted(axes) if isinstance(desc, ops.ActivationHardmax1) else [axis for axis in order if axis in axes]

    def merge(dimensions: Sequence[int]) -> Coalesced:
        return coalesce([x.sizes[axis] for axis in dimensions], [[steps[axis] for axis in dimensions] for steps in strides])

    kept, row = merge([axis for axis in order if axis not in axes]), merge(in_row)
    word = WORD_BITS // element_bits(x.data_type)
    side_by_side = kept.sizes != (1,) and (row.sizes == (1,) or kept.strides[1][-1] < min(row.strides[1]))
    anywhere = not side_by_side and _words_anywhere(row, kept, word)
    if side_by_side:
        unit = SoftmaxUnit.WORD_OF_ROWS if _whole_words(kept, row, word) else SoftmaxUnit.ELEMENT
    elif _whole_words(row, kept, word):
        unit = SoftmaxUnit.WORD_OF_A_ROW
    else:
        unit = SoftmaxUnit.WORD_ANYWHERE if anywhere else SoftmaxUnit.ELEMENT
    elements = math.prod(row.sizes)
    units = {SoftmaxUnit.WORD_OF_A_ROW: elements // word, SoftmaxUnit.WORD_ANYWHERE: (elements + 2 * word - 2) // word}
    return SoftmaxProblem(
        side_by_side=side_by_side,
        unit=unit,
        unit_elements=1 if unit is SoftmaxUnit.ELEMENT else word,
        groups=math.prod(kept.sizes) // (word if unit is SoftmaxUnit.WORD_OF_ROWS else 1),
        row_units=units.get(unit, elements),
        row_elements=elements,
        kept=kept,
        row=row,
        may_start_anywhere=anywhere,
    )


def _whole_words(inner: Coalesced, outer: Coalesced, word: int) -> bool:
    """Whether the last of the inner dimensions is contiguous and runs of it are whole words at whole words."""
    around = [*inner.sizes[:-1], *outer.sizes]
    steps = [(*ours[:-1], *others) for ours, others in zip(inner.strides, outer.strides, strict=True)]
    return (
        inner.sizes[-1] % word == 0
        and all(ours[-1] == 1 for ours in inner.strides)
        and all(size == 1 or step % word == 0 for tensor in steps for size, step in zip(around, tensor, strict=True))
    )


def _words_anywhere(row: Coalesced, kept: Coalesced, word: int) -> bool:
    """Whether rows are contiguous and long, and each starts at the same place of a word in both tensors."""
    return (
        len(row.sizes) == 1
        and all(steps == (1,) for steps in row.strides)
        and row.sizes[0] >= LEAST_ANYWHERE * word
        and all((x - y) % word == 0 for size, x, y in zip(kept.sizes, *kept.strides, strict=True) if size > 1)
    )


def _shape(problem: SoftmaxProblem, caps: Capabilities, *, whole: bool) -> _Shape:
    """Every number of the schedules: how a group of rows and its neighbours are shared out."""
    most = problem.most_invocations(caps)
    together = _shape_together(problem, caps, most) if whole else None
    if together is not None:
        return together
    if whole and not problem.is_short(caps):
        return _shape_alone(problem, most)
    if caps.is_cpu:
        return _cpu_shape(problem, most, whole=whole)
    units = problem.units_held if whole else max(SOFTMAX_HELD // 2 // problem.unit_elements, 1)
    lanes = power_of_two(-(-problem.row_units // units))
    if not problem.side_by_side:
        # Neighbours read whole lines of 128 bytes before each of them reads more.
        line = min(power_of_two(-(-problem.row_units // 4)), 32)
        if problem.unit is not SoftmaxUnit.ELEMENT:
            line = min(power_of_two(problem.row_units), 8)
        columns = 1
        lanes = min(max(lanes, line), most if whole else min(most, 256))
        invocations = max(lanes, min(most, 128))
    else:
        # Neighbours read 64 bytes: more where that leaves few invocations, fewer where it takes too many. Where rows are
        # walked, whole lines.
        columns = 4 if problem.unit is SoftmaxUnit.WORD_OF_ROWS else 16
        if whole:
            lanes = min(lanes, most // problem.least_columns)
        else:
            columns *= 2
            lanes = min(lanes, max(min(most, 256) // columns, 1))
        columns = min(max(columns, 128 // lanes), most // lanes, power_of_two(problem.groups))
        invocations = lanes * columns
    return _Shape(invocations, lanes, columns, power_of_two(-(-problem.row_units // lanes)) if whole else units)


def _shape_together(problem: SoftmaxProblem, caps: Capabilities, most: int) -> _Shape | None:
    """A workgroup for each of many long rows that leaves room for another on its processor; None where there is none, where
    rows are no more than processors, and for rows that other shapes are as good for."""
    units = problem.row_units
    if caps.is_cpu or not problem.is_in_words or units <= SHORT_WORDS or problem.groups < caps.model.workgroups(2):
        return None
    packed = problem.may_be_packed
    for found in TOGETHER[packed]:
        fits = found.lanes <= most and 16 * found.lanes * found.shelf + _MERGED_BYTES <= caps.shared_memory_bytes
        if fits and units <= found.most and (problem.may_start_anywhere or not found.shelf):
            return _Shape(found.lanes, found.lanes, 1, -(-units // found.lanes), packed=packed, shelf=found.shelf)
    return None


def _shape_alone(problem: SoftmaxProblem, most: int) -> _Shape:
    """A workgroup for each row, which has a processor for itself."""
    packed = problem.may_be_packed
    registers = problem.unit_elements // (2 if packed else 1)
    if -(-problem.row_units // most) * registers > SOFTMAX_HELD_BY_ALL:
        most //= 2
    return _Shape(most, most, 1, -(-problem.row_units // most), packed=packed)


def _cpu_shape(problem: SoftmaxProblem, most: int, *, whole: bool) -> _Shape:
    """Few shapes, and few elements an invocation: CPUs take long to compile what is unrolled over them."""
    columns = problem.least_columns
    units = max(4 // problem.unit_elements, 1)
    lanes = 4
    while lanes * columns < most and lanes * units < problem.row_units:
        lanes = min(lanes * 8, most // columns)
    if whole:
        units = max(units, power_of_two(-(-problem.row_units // lanes)))
    return _Shape(max(lanes * columns, min(64, most)), lanes, columns, units)


def _dispatch(
    desc: _Normalizer,
    problem: SoftmaxProblem,
    caps: Capabilities,
    shape: _Shape,
    kernel: str,
    workgroups: int,
    *,
    variant: Mapping[str, int] | None = None,
    constants: tuple[tuple[str, int], ...] = (),
    bindings: tuple[Range, ...] = (),
    params: dict[str, int] | None = None,
) -> Dispatch:
    """A dispatch of one of the kernels, with what it has beyond the others."""
    kept, row, unit = problem.kept, problem.row, problem.unit_elements
    along_row = problem.unit in (SoftmaxUnit.WORD_OF_A_ROW, SoftmaxUnit.WORD_ANYWHERE)
    across = problem.unit is SoftmaxUnit.WORD_OF_ROWS

    def in_units(sizes: tuple[int, ...], *, inner: bool) -> tuple[int, ...]:
        return (*sizes[:-1], sizes[-1] // unit) if inner else sizes

    def steps(strides: tuple[int, ...], *, inner: bool) -> tuple[int, ...]:
        """The dimension that units are made of counts them itself, and words that start anywhere count in elements."""
        if problem.unit is SoftmaxUnit.WORD_ANYWHERE:
            return strides
        found = tuple(step // unit for step in strides)
        return (*found[:-1], 1) if inner else found

    kept_sizes, row_sizes = in_units(kept.sizes, inner=across), in_units(row.sizes, inner=along_row)
    runs = -(-shape.invocations // max(caps.least_subgroup, shape.columns))
    merged = runs * shape.columns * (unit if across else 1)
    all_constants = {
        "LOCAL_SIZE_X": shape.invocations,
        "OPERATION": int(ops.ActivationSoftmax1.type if isinstance(desc, SoftmaxOrZero) else desc.type),
        "POWER": desc.p if isinstance(desc, ops.LpNormalization) else 2,
        "ROW_RUNS": int(len(row_sizes) > 1),
        "LANES": shape.lanes,
        "COLUMNS": shape.columns,
        "UNITS": shape.units,
        "MERGED": merged if shape.lanes > 1 and shape.lanes * shape.columns > caps.least_subgroup else 1,
        **({"PACKED": 1} if shape.packed else {}),
        **({"SHELF": shape.shelf} if shape.shelf else {}),
        **({"OR_ZERO": _or_zero(desc)} if isinstance(desc, SoftmaxOrZero) else {}),
        **dict(constants),
    }
    return make_dispatch(
        kernel,
        (input_range(0), output_range(), *bindings),
        linear_grid(workgroups, caps),
        variant={"T": desc.tensor("input_tensor").data_type.name, "UNIT": problem.unit, **(variant or {})},
        constants=all_constants,
        groups=problem.groups,
        row_units=problem.row_units,
        row_elements=problem.row_elements,
        epsilon=desc.epsilon if isinstance(desc, ops.LpNormalization) else 0.0,
        kept_rank=len(kept_sizes),
        row_rank=len(row_sizes),
        kept_sizes=kept_sizes,
        kept_divisors=divisors(kept_sizes),
        kept_x=steps(kept.strides[0], inner=across),
        kept_y=steps(kept.strides[1], inner=across),
        row_sizes=row_sizes,
        row_divisors=divisors(row_sizes),
        row_x=steps(row.strides[0], inner=along_row),
        row_y=steps(row.strides[1], inner=along_row),
        **(params or {}),
    )


def _or_zero(desc: SoftmaxOrZero) -> OrZero:
    return OrZero.NOTHING if desc.keeps_nan else OrZero.NAN


def _one_dispatch(desc: _Normalizer, problem: SoftmaxProblem, caps: Capabilities, *, whole: bool) -> Dispatch:
    shape = _shape(problem, caps, whole=whole)
    if shape.shelf:
        # With the branches for words at the ends of rows the compiler keeps units apart, and takes a third fewer registers.
        problem = dataclasses.replace(problem, unit=SoftmaxUnit.WORD_ANYWHERE)
    workgroups = -(-problem.groups // (shape.invocations // shape.lanes))
    return _dispatch(desc, problem, caps, shape, "softmax", workgroups, constants=(("WHOLE", int(whole)),))


def _whole(desc: _Normalizer, problem: SoftmaxProblem, caps: Capabilities) -> Plan:
    return Plan((_one_dispatch(desc, problem, caps, whole=True),))


def _looped(desc: _Normalizer, problem: SoftmaxProblem, caps: Capabilities) -> Plan:
    return Plan((_one_dispatch(desc, problem, caps, whole=False),))


def _split(desc: _Normalizer, problem: SoftmaxProblem, caps: Capabilities) -> Plan:
    shape = _shape(problem, caps, whole=False)
    shape = shape._replace(invocations=shape.lanes * shape.columns)
    blocks = -(-problem.groups // shape.columns)
    chunk_bytes = _PARTIAL_BYTES * math.prod(problem.kept.sizes)
    # Several workgroups for each core, and temporary memory of at most 1 MiB or 1 % of the input.
    wanted = -(-(16 if caps.is_cpu else caps.model.workgroups(16)) // blocks)
    memory = max(2**20, desc.tensor("input_tensor").total_tensor_size_in_bytes // 100) // chunk_bytes
    tiles = -(-problem.row_units // shape.tile)
    each = -(-tiles // max(min(wanted, memory, _MOST_CHUNKS, tiles), 1))
    chunks = -(-tiles // each)
    partials = Range(Source.TEMPORARY, 0, 0, chunks * chunk_bytes)

    def dispatch(apply: int) -> Dispatch:
        return _dispatch(
            desc,
            problem,
            caps,
            shape,
            "softmax_split",
            blocks * chunks,
            variant={"APPLY": apply},
            bindings=(partials,),
            params={"tiles": each, "chunks": chunks},
        )

    return Plan((dispatch(0), dispatch(1)), temporary_bytes=partials.nbytes)


def over_last_dimension(tensor: TensorDesc, where: Range, caps: Capabilities) -> tuple[Launch, ...]:
    """Softmax in place, as the last step of another operator: each element is read before it is written."""
    last = tensor.dimension_count - 1
    desc = ops.ActivationSoftmax1(input_tensor=tensor, output_tensor=tensor, axes=(last,))
    problem = _problem(desc)
    plan = Plan((_one_dispatch(desc, problem, caps, whole=problem.fits_in_registers(caps)),))
    return placed(plan, inputs=(where,), outputs=(where,))


register(
    ops.ActivationSoftmax1,
    SoftmaxOrZero,
    ops.ActivationLogSoftmax1,
    ops.ActivationHardmax1,
    ops.LpNormalization,
    problem=_problem,
    rules=SOFTMAX,
    schedules={"whole": _whole, "looped": _looped, "split": _split},
    features=subgroup_features,
)
