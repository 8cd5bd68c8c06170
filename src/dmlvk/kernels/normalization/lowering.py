"""Mean-variance and batch normalization."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from dmlvk.devices.capabilities import Capabilities
from dmlvk.kernels.common.activation import fused
from dmlvk.kernels.common.dispatch import make_dispatch
from dmlvk.kernels.common.plan import Dispatch, Plan, Range, Source, input_range, output_range
from dmlvk.kernels.common.registry import register
from dmlvk.kernels.common.shapes import (
    WORD_BITS,
    Coalesced,
    broadcast_strides,
    coalesce,
    divisors,
    linear_grid,
    most_invocations,
    power_of_two,
)
from dmlvk.kernels.elementwise.lowering import pointwise_problem
from dmlvk.kernels.manifest import KERNELS
from dmlvk.kernels.normalization.rules import (
    BATCH_NORMALIZATION,
    MEAN_VARIANCE_COLUMN_UNITS,
    MEAN_VARIANCE_NORMALIZATION,
    BatchNormalizationProblem,
    MeanVarianceProblem,
    lanes_side_by_side,
)
from dmlvk.spec.ops.normalization import (
    BatchNormalization,
    BatchNormalizationTraining,
    MeanVarianceNormalization2,
)
from dmlvk.spec.tensor import TensorDesc, element_bits

_MOST_CHUNKS = 256
"""Chunks of a split row: every chunk's workgroup reads the statistics of all of them."""
_PARTIAL_BYTES = 16
_MERGED = 8
"""Rows side by side whose chunks a workgroup merges: a cache line of their statistics."""
_WORKGROUPS = 16
"""Workgroups of 256 invocations for each processor that occupy it evenly."""


def _in_units(steps: Sequence[int], unit: int) -> tuple[int, ...]:
    return tuple(step // unit for step in steps)


def _whole_words(walks: Sequence[tuple[Sequence[int], Sequence[int]]], run: int, word: int) -> bool:
    """Whether runs of elements, contiguous in a walk's last dimension, are whole words at whole words.

    Args:
        walks: (sizes, steps) of the dimensions around the runs.
        run: Length of the runs.
        word: Elements of a word.
    """
    return run % word == 0 and all(
        size == 1 or step % word == 0 for sizes, steps in walks for size, step in zip(sizes, steps, strict=True)
    )


# -- mean-variance normalization


class _Form(NamedTuple):
    """A desc in the terms of the kernels. Tensors are None where absent.

    Attributes:
        x, scale, bias, add: The inputs, in the order of their binding slots.
        y, mean, variance: The outputs, in the same order.
        axes: The reduced dimensions.
        use_mean, use_variance: Whether to subtract the mean, and to divide by the root of the variance.
    """

    x: TensorDesc
    scale: TensorDesc | None
    bias: TensorDesc | None
    add: TensorDesc | None
    y: TensorDesc
    mean: TensorDesc | None
    variance: TensorDesc | None
    axes: tuple[int, ...]
    use_mean: bool
    use_variance: bool


_Normalization = MeanVarianceNormalization2 | BatchNormalizationTraining


def _form(desc: _Normalization) -> _Form:
    x, y = desc.tensor("input_tensor"), desc.tensor("output_tensor")
    if isinstance(desc, MeanVarianceNormalization2):
        sides = desc.scale_tensor, desc.bias_tensor, None
        return _Form(x, *sides, y, None, None, desc.axes, desc.use_mean, desc.use_variance)
    scale, add = desc.tensor("scale_tensor"), desc.fused_add_tensor
    axes = tuple(axis for axis, size in enumerate(scale.sizes) if size == 1)
    statistics = desc.output_mean_tensor, desc.output_variance_tensor
    return _Form(x, scale, desc.bias_tensor, add, y, *statistics, axes, True, True)


def _mean_variance_problem(desc: _Normalization) -> MeanVarianceProblem:
    form = _form(desc)
    sizes = form.x.sizes
    x, scale, bias, add, y, *statistics = (_steps(tensor, sizes) for tensor in form[:7])
    # Statistics do not depend on the order of dimensions, so memory's order makes the longest runs.
    order = sorted(range(len(sizes)), key=lambda axis: (y[axis], x[axis]), reverse=True)
    kept_axes = [axis for axis in order if axis not in form.axes]
    row_axes = [axis for axis in order if axis in form.axes]

    def merge(axes: list[int], *tensors: tuple[int, ...]) -> Coalesced:
        return coalesce([sizes[axis] for axis in axes], [[steps[axis] for axis in axes] for steps in tensors])

    kept, row = merge(kept_axes, x, scale, bias, add, y, *statistics), merge(row_axes, x, add, y)
    word = WORD_BITS // element_bits(form.x.data_type)
    along = [row.strides[i] for i in ((0, 2) if form.add is None else (0, 1, 2))]
    around = [kept.strides[i] for i in ((0, 4) if form.add is None else (0, 3, 4))]
    unit = _width(row.sizes, along, kept.sizes, around, word)
    side_by_side = unit == 1 and kept.sizes[-1] > 1 and kept.strides[4][-1] < row.strides[2][-1]
    return MeanVarianceProblem(
        rows=math.prod(kept.sizes),
        row_units=math.prod(row.sizes) // unit,
        unit_elements=unit,
        side_by_side=side_by_side,
        across=_width(kept.sizes, around, row.sizes, along, word) if side_by_side else 1,
        kept=kept,
        row=row,
        side=merge(row_axes, scale, bias),
    )


def _steps(tensor: TensorDesc | None, sizes: tuple[int, ...]) -> tuple[int, ...]:
    """Steps of a tensor over the input's sizes; an absent one stays where it is."""
    return (0,) * len(sizes) if tensor is None else broadcast_strides(tensor, sizes)


def _width(
    sizes: Sequence[int],
    steps: Sequence[Sequence[int]],
    other_sizes: Sequence[int],
    other_steps: Sequence[Sequence[int]],
    word: int,
) -> int:
    """The number of elements along the last of these dimensions that move at once, in all tensors: a word, or 1."""
    walks = [(sizes[:-1], tensor[:-1]) for tensor in steps] + [(other_sizes, tensor) for tensor in other_steps]
    whole = all(tensor[-1] == 1 for tensor in steps) and _whole_words(walks, sizes[-1], word)
    return word if whole else 1


def _side_constants(form: _Form, problem: MeanVarianceProblem, unit: int) -> dict[str, int]:
    """The constants for reading scale and bias along a row, whose units have so many elements."""
    present = [i for i, tensor in enumerate((form.scale, form.bias)) if tensor is not None]
    last = [problem.side.strides[i][-1] for i in present]
    varies = problem.side.sizes != (1,) and any(any(problem.side.strides[i]) for i in present)
    around = [(problem.kept.sizes, problem.kept.strides[1 + i]) for i in present]
    consecutive = len(problem.side.sizes) == 1 and all(step == 1 for step in last)
    whole_words = unit > 1 and consecutive and _whole_words(around, problem.side.sizes[-1], unit)
    shared = unit if not any(last) and problem.side.sizes[-1] % unit == 0 else 1
    return {
        "HAS_SCALE": int(form.scale is not None),
        "HAS_BIAS": int(form.bias is not None),
        "SIDE_SHARED": shared if varies else 0,
        "SIDE_WORDS": int(varies and whole_words),
    }


def _mean_variance_dispatch(
    kernel: str,
    desc: _Normalization,
    problem: MeanVarianceProblem,
    workgroups: int,
    caps: Capabilities,
    constants: dict[str, int],
    extra_variant: Mapping[str, int] | None = None,
    extra_bindings: tuple[Range, ...] = (),
    extra_params: dict[str, int] | None = None,
    *,
    applies: bool = True,
) -> Dispatch:
    """A dispatch of one of the mean_variance_* kernels; ``constants`` are those that the schedule chose. One that does not
    apply the statistics has one pipeline whatever is to be made of them."""
    form, activation = _form(desc), fused(desc.fused_activation)
    kept, row, side = problem.kept, problem.row, problem.side
    # A unit has `unit` elements of a row, or one each of `across` rows.
    unit, across = (1, problem.across) if "COLUMNS" in constants else (problem.unit_elements, 1)
    width = unit * across
    constants = {**constants, "ROW_RANK": len(row.sizes), "USE_MEAN": int(form.use_mean)}
    if applies:
        constants |= _side_constants(form, problem, unit)
        constants |= {"HAS_ADD": int(form.add is not None), "HAS_STATISTICS": int(form.mean is not None)}
        constants |= {"USE_VARIANCE": int(form.use_variance), "ACTIVATION": activation.id}
    kept_sizes = (*kept.sizes[:-1], kept.sizes[-1] // across)
    row_sizes = (*row.sizes[:-1], row.sizes[-1] // unit)

    def in_units(steps: tuple[int, ...], own: int) -> tuple[int, ...]:
        # Where the last dimension counts units itself, its step of one element is one of a unit.
        return (*_in_units(steps[:-1], width), steps[-1] if own > 1 else steps[-1] // width)

    def of_units(steps: tuple[int, ...]) -> tuple[int, ...]:
        return (*steps[:-1], steps[-1] * across)

    x, y = input_range(0), output_range(0)
    inputs = (input_range(i) if tensor is not None else x for i, tensor in enumerate(form[:4]))
    outputs = (output_range(i) if tensor is not None else y for i, tensor in enumerate(form[4:7]))
    return make_dispatch(
        kernel,
        (*inputs, *outputs, *extra_bindings),
        linear_grid(workgroups, caps),
        variant={"T": form.x.data_type.name, "WORDS": width > 1, **(extra_variant or {})},
        constants=constants,
        rows=problem.rows // across,
        row_units=problem.row_units,
        epsilon=desc.epsilon,
        activation_param0=activation.param0,
        activation_param1=activation.param1,
        kept_rank=len(kept.sizes),
        side_rank=len(side.sizes),
        kept_sizes=kept_sizes,
        kept_divisors=divisors(kept_sizes),
        row_sizes=row_sizes,
        row_divisors=divisors(row_sizes),
        side_sizes=side.sizes,
        side_divisors=divisors(side.sizes),
        **{f"kept_{name}": in_units(kept.strides[i], across) for name, i in (("x", 0), ("add", 3), ("y", 4))},
        **{f"kept_{_SIDES[i]}": of_units(kept.strides[i]) for i in _SIDES},
        **{f"neighbour_{_SIDES[i]}": kept.strides[i][-1] if across > 1 else 0 for i in _SIDES},
        **{f"row_{name}": in_units(row.strides[i], unit) for i, name in enumerate(("x", "add", "y"))},
        **{f"side_{name}": side.strides[i] for i, name in enumerate(("scale", "bias"))},
        **(extra_params or {}),
    )


_SIDES = {1: "scale", 2: "bias", 5: "mean", 6: "variance"}
"""Tensors of a problem's kept dimensions whose steps are in elements."""


def _loads_in_flight(problem: MeanVarianceProblem, caps: Capabilities) -> int:
    """Units that each invocation loads before it uses the first: enough to hide a GPU's memory; a CPU's caches need
    none of it, and the code that unrolls them only takes longer to compile."""
    if caps.is_cpu:
        return 1
    return 4 if problem.unit_elements > 1 else 8


def _rows(desc: _Normalization, problem: MeanVarianceProblem, caps: Capabilities) -> Plan:
    words = problem.unit_elements > 1
    most = most_invocations(caps)
    # A cache line or two at a time first, then several loads in flight in each lane.
    wanted = max(min(problem.row_units, 32), -(-problem.row_units // _loads_in_flight(problem, caps)))
    lanes = min(power_of_two(wanted), most, 512)
    if -(-problem.row_units // lanes) > (8 if words else 32):
        lanes = min(most, 1024)
    # Many rows fill the device with large workgroups; few rows spread over it better in small ones.
    invocations = max(lanes, min(256 if problem.rows * lanes >= caps.model.invocations(1) else 64, most))
    rows_each = invocations // lanes
    constants = {"LOCAL_SIZE_X": invocations, "UNITS": -(-problem.row_units // lanes), "LANES": lanes}
    workgroups = -(-problem.rows // rows_each)
    return Plan((_mean_variance_dispatch("mean_variance_row", desc, problem, workgroups, caps, constants),))


def _columns(desc: _Normalization, problem: MeanVarianceProblem, caps: Capabilities) -> Plan:
    units, lanes_most = problem.row_units, lanes_side_by_side(caps)
    neighbours, most = problem.rows // problem.across, 4 * lanes_most
    columns = min(power_of_two(neighbours), 16 if problem.across > 1 else 32)
    # 8 units a lane if cache lines allow it, 16 at most.
    lanes = min(power_of_two(-(-units // 8)), most // columns)
    lanes = max(lanes, power_of_two(-(-units // MEAN_VARIANCE_COLUMN_UNITS)))
    columns = min(power_of_two(neighbours), most // lanes)
    constants = {"LOCAL_SIZE_X": columns * lanes, "UNITS": power_of_two(-(-units // lanes)), "COLUMNS": columns}
    workgroups = -(-neighbours // columns)
    return Plan((_mean_variance_dispatch("mean_variance_column", desc, problem, workgroups, caps, constants),))


class ColumnChunks(NamedTuple):
    """The division of rows that lie side by side: ``blocks`` of ``columns`` of them, each in ``chunks`` of ``tiles``
    tiles of ``lanes`` lanes."""

    columns: int
    lanes: int
    tiles: int
    chunks: int
    blocks: int


def column_chunks(
    row_units: int,
    neighbours: int,
    units: int,
    room: int,
    most: int,
    workgroups: int,
    *,
    is_cpu: bool,
    least_lanes: int = 1,
) -> ColumnChunks:
    """The shares of rows of ``row_units`` that are too long for one workgroup.

    Args:
        row_units: Length of a row.
        neighbours: Words of rows side by side.
        units: Loads that a lane has in flight.
        room: Chunks of a row for whose partials there is memory.
        most: Invocations of a workgroup.
        workgroups: The number of workgroups that fill the device.
        is_cpu: Whether the device is one.
        least_lanes: Lanes that a block has at least.
    """
    columns = min(power_of_two(neighbours), 32, most // least_lanes)
    while True:
        lanes = min(most // columns, max(power_of_two(row_units), least_lanes))
        tile, blocks = lanes * units, -(-neighbours // columns)
        most_chunks = max(1, min(room, -(-row_units // tile)))
        # The partials' memory bounds the chunks: narrower blocks make more workgroups of as many, down to a cache line.
        if is_cpu or columns <= 8 or blocks * most_chunks >= workgroups // 2:
            break
        columns //= 2
    wanted = min(-(-workgroups // blocks), most_chunks)
    tiles = -(-row_units // (tile * wanted))
    return ColumnChunks(columns, lanes, tiles, -(-row_units // (tile * tiles)), blocks)


def _column_split(desc: _Normalization, problem: MeanVarianceProblem, caps: Capabilities) -> Plan:
    neighbours, most = problem.rows // problem.across, 4 * lanes_side_by_side(caps)
    units = 1 if caps.is_cpu else 8
    x = desc.tensor("input_tensor")
    room = max(2**20, x.element_count * element_bits(x.data_type) // 8 // 100) // (problem.rows * _PARTIAL_BYTES)
    shared = column_chunks(
        problem.row_units, neighbours, units, room, most, caps.model.workgroups(_WORKGROUPS), is_cpu=caps.is_cpu
    )
    columns, lanes, tiles, chunks, blocks = shared
    partials = Range(Source.TEMPORARY, 0, 0, problem.rows * chunks * _PARTIAL_BYTES)

    def dispatch(stage: int, workgroups: int, columns: int, lanes: int, **more: int) -> Dispatch:
        return _mean_variance_dispatch(
            "mean_variance_column_split",
            desc,
            problem,
            workgroups,
            caps,
            {"LOCAL_SIZE_X": columns * lanes, "COLUMNS": columns, **more},
            {"STAGE": stage},
            (partials,),
            {"tiles": tiles, "chunks": chunks, "blocks": blocks},
            applies=stage == 2,
        )

    stages = (
        dispatch(0, blocks * chunks, columns, lanes, UNITS=units),
        dispatch(1, -(-problem.rows // _MERGED), _MERGED, most // _MERGED, HAS_STATISTICS=int(_form(desc).mean is not None)),
        dispatch(2, blocks * chunks, columns, lanes, UNITS=units),
    )
    return Plan(stages, temporary_bytes=partials.nbytes)


def _split(desc: _Normalization, problem: MeanVarianceProblem, caps: Capabilities) -> Plan:
    invocations = min(most_invocations(caps), 256, max(power_of_two(problem.row_units), 64))
    units = min(2 * _loads_in_flight(problem, caps), -(-problem.row_units // invocations))
    tile = invocations * units
    tiles = -(-problem.row_units // (tile * _MOST_CHUNKS))
    chunks = -(-problem.row_units // (tile * tiles))
    partials = Range(Source.TEMPORARY, 0, 0, problem.rows * chunks * _PARTIAL_BYTES)
    constants = {"LOCAL_SIZE_X": invocations, "UNITS": units}

    def dispatch(apply: int) -> Dispatch:
        return _mean_variance_dispatch(
            "mean_variance_split",
            desc,
            problem,
            problem.rows * chunks,
            caps,
            constants,
            {"APPLY": apply},
            (partials,),
            {"tiles": tiles, "chunks": chunks},
            applies=apply == 1,
        )

    return Plan((dispatch(0), dispatch(1)), temporary_bytes=partials.nbytes)


register(
    MeanVarianceNormalization2,
    BatchNormalizationTraining,
    problem=_mean_variance_problem,
    rules=MEAN_VARIANCE_NORMALIZATION,
    schedules={"columns": _columns, "columns_split": _column_split, "rows": _rows, "split": _split},
)


# -- batch normalization

_GIVEN = ("mean_tensor", "variance_tensor", "scale_tensor", "bias_tensor")


def _batch_problem(desc: BatchNormalization) -> BatchNormalizationProblem:
    x, y = desc.tensor("input_tensor"), desc.tensor("output_tensor")
    given = [broadcast_strides(desc.tensor(name), x.sizes) for name in _GIVEN]
    problem = pointwise_problem(x.data_type, x.data_type, x.sizes, [x.effective_strides, *given, y.effective_strides])
    return BatchNormalizationProblem(x.data_type, x.data_type, problem.walk)


def _groups(desc: BatchNormalization, problem: BatchNormalizationProblem, caps: Capabilities) -> Plan:
    return _batch_plan(desc, problem, problem.group_lanes, caps)


def _runs(desc: BatchNormalization, problem: BatchNormalizationProblem, caps: Capabilities) -> Plan:
    assert problem.in_line is not None, "shown by the rule"
    steps = tuple(own[-2] for own in problem.walk.strides[1:-1])
    return _batch_plan(desc, problem.in_line, problem.group_lanes, caps, problem.walk.sizes[-1], steps)


def _elements(desc: BatchNormalization, problem: BatchNormalizationProblem, caps: Capabilities) -> Plan:
    return _batch_plan(desc, problem, 1, caps)


def _batch_plan(
    desc: BatchNormalization,
    problem: BatchNormalizationProblem,
    lanes: int,
    caps: Capabilities,
    run_size: int = 0,
    run_steps: tuple[int, ...] = (),
) -> Plan:
    activation, spec = fused(desc.fused_activation), KERNELS["batch_normalization"]
    walk, rank = problem.walk, len(problem.walk.sizes)
    sizes = [*walk.sizes[:-1], -(-walk.sizes[-1] // lanes)]
    # Items of an invocation follow each other in the longest dimension in which the given tensors stand still.
    still = [axis for axis in range(rank - bool(run_size)) if not any(steps[axis] for steps in walk.strides[1:-1])]
    repeated = max(still, key=lambda axis: sizes[axis], default=0)
    items = _batch_items(lanes, math.prod(sizes), caps) if still else 1
    repeat_size, sizes[repeated] = sizes[repeated], -(-sizes[repeated] // items)
    count = math.prod(sizes)
    names = ("x", "mean", "variance", "scale", "bias", "output")
    strides = {name: (*own[:-1], own[-1] * lanes % 2**32) for name, own in zip(names, walk.strides, strict=True)}
    modes = {f"{name.upper()}_MODE": int(mode) for name, mode in zip(names, problem.access(lanes), strict=True)}
    constants = {"LOCAL_SIZE_X": 128, "RANK": rank, "ITEMS": items, "RUNS": int(run_size > 0), "ACTIVATION": activation.id}
    data_type = problem.input_type.name
    dispatch = make_dispatch(
        spec.name,
        (*(input_range(slot) for slot in range(5)), output_range()),
        linear_grid(-(-count // 128), caps),
        variant={"LANES": lanes, "T": data_type, "U": data_type},
        constants=constants | modes,
        count=count,
        epsilon=desc.epsilon,
        activation_param0=activation.param0,
        activation_param1=activation.param1,
        sizes=tuple(sizes),
        divisors=divisors(sizes),
        inner_size=walk.sizes[-1],
        repeated=repeated,
        repeat_size=repeat_size,
        repeat_step=sizes[repeated],
        x_repeat=strides["x"][repeated] * sizes[repeated] % 2**32,
        output_repeat=strides["output"][repeated] * sizes[repeated] % 2**32,
        run_size=run_size,
        run_divisor=divisors([max(run_size, 1)]),
        run_steps=run_steps,
        **{f"{name}_strides": own for name, own in strides.items()},
        **{f"{name}_step": own[-1] for name, own in zip(names, walk.strides, strict=True)},
    )
    return Plan((dispatch,))


def _batch_items(lanes: int, count: int, caps: Capabilities) -> int:
    """Items of an invocation, given how many there are in all: several where there are enough to fill the device."""
    if caps.is_cpu or count < caps.model.invocations(1):
        return 1
    return 4 if lanes > 1 else 8


register(
    BatchNormalization,
    problem=_batch_problem,
    rules=BATCH_NORMALIZATION,
    schedules={"groups": _groups, "runs": _runs, "elements": _elements},
)
