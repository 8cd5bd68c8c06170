"""Mean-variance and batch normalization."""

from __future__ import annotations

import math
from collections.abc import Mapping
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
)
from dmlvk.kernels.elementwise.lowering import pointwise_problem
from dmlvk.kernels.manifest import KERNELS
from dmlvk.kernels.normalization.rules import (
    BATCH_NORMALIZATION,
    MEAN_VARIANCE_COLUMN_UNITS,
    MEAN_VARIANCE_NORMALIZATION,
    BatchNormalizationProblem,
    MeanVarianceProblem,
)
from dmlvk.kernels.normalization.shares import (
    MOST_CHUNKS,
    column_chunks,
    column_invocations,
    column_shares,
    elements_at_once,
    loads_in_flight,
    row_chunks,
    row_shares,
    steps_in_units,
    whole_words,
)
from dmlvk.spec.ops.normalization import (
    BatchNormalization,
    BatchNormalizationTraining,
    MeanVarianceNormalization2,
)
from dmlvk.spec.tensor import TensorDesc, element_bits

_PARTIAL_BYTES = 16
_MERGED = 8
"""Rows side by side whose chunks a workgroup merges: a cache line of their statistics."""
_WORKGROUPS = 16
"""Workgroups of 256 invocations for each processor that occupy it evenly."""


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
    unit = elements_at_once(row.sizes, along, kept.sizes, around, word)
    side_by_side = unit == 1 and kept.sizes[-1] > 1 and kept.strides[4][-1] < row.strides[2][-1]
    return MeanVarianceProblem(
        rows=math.prod(kept.sizes),
        row_units=math.prod(row.sizes) // unit,
        unit_elements=unit,
        side_by_side=side_by_side,
        across=elements_at_once(kept.sizes, around, row.sizes, along, word) if side_by_side else 1,
        kept=kept,
        row=row,
        side=merge(row_axes, scale, bias),
    )


def _steps(tensor: TensorDesc | None, sizes: tuple[int, ...]) -> tuple[int, ...]:
    """Steps of a tensor over the input's sizes; an absent one stays where it is."""
    return (0,) * len(sizes) if tensor is None else broadcast_strides(tensor, sizes)


def _side_constants(form: _Form, problem: MeanVarianceProblem, unit: int) -> dict[str, int]:
    """The constants for reading scale and bias along a row, whose units have so many elements."""
    present = [i for i, tensor in enumerate((form.scale, form.bias)) if tensor is not None]
    last = [problem.side.strides[i][-1] for i in present]
    varies = problem.side.sizes != (1,) and any(any(problem.side.strides[i]) for i in present)
    around = [(problem.kept.sizes, problem.kept.strides[1 + i]) for i in present]
    consecutive = len(problem.side.sizes) == 1 and all(step == 1 for step in last)
    in_words = unit > 1 and consecutive and whole_words(around, problem.side.sizes[-1], unit)
    shared = unit if not any(last) and problem.side.sizes[-1] % unit == 0 else 1
    return {
        "HAS_SCALE": int(form.scale is not None),
        "HAS_BIAS": int(form.bias is not None),
        "SIDE_SHARED": shared if varies else 0,
        "SIDE_WORDS": int(varies and in_words),
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
        **{f"kept_{name}": steps_in_units(kept.strides[i], width, across) for name, i in (("x", 0), ("add", 3), ("y", 4))},
        **{f"kept_{_SIDES[i]}": of_units(kept.strides[i]) for i in _SIDES},
        **{f"neighbour_{_SIDES[i]}": kept.strides[i][-1] if across > 1 else 0 for i in _SIDES},
        **{f"row_{name}": steps_in_units(row.strides[i], width, unit) for i, name in enumerate(("x", "add", "y"))},
        **{f"side_{name}": side.strides[i] for i, name in enumerate(("scale", "bias"))},
        **(extra_params or {}),
    )


_SIDES = {1: "scale", 2: "bias", 5: "mean", 6: "variance"}
"""Tensors of a problem's kept dimensions whose steps are in elements."""


def _rows(desc: _Normalization, problem: MeanVarianceProblem, caps: Capabilities) -> Plan:
    loads, most_units = loads_in_flight(problem, caps), 8 if problem.unit_elements > 1 else 32
    constants, workgroups = row_shares(problem, caps, loads, most_units)
    return Plan((_mean_variance_dispatch("mean_variance_row", desc, problem, workgroups, caps, constants),))


def _columns(desc: _Normalization, problem: MeanVarianceProblem, caps: Capabilities) -> Plan:
    constants, workgroups = column_shares(problem, caps, 8, MEAN_VARIANCE_COLUMN_UNITS)
    return Plan((_mean_variance_dispatch("mean_variance_column", desc, problem, workgroups, caps, constants),))


def _column_split(desc: _Normalization, problem: MeanVarianceProblem, caps: Capabilities) -> Plan:
    units = 1 if caps.is_cpu else 8
    shared = column_chunks(
        problem, caps, units, caps.model.workgroups(_WORKGROUPS), desc.tensor("input_tensor"), _PARTIAL_BYTES
    )
    partials = Range(Source.TEMPORARY, 0, 0, problem.rows * shared.chunks * _PARTIAL_BYTES)

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
            {"tiles": shared.tiles, "chunks": shared.chunks, "blocks": shared.blocks},
            applies=stage == 2,
        )

    workgroups, merging = shared.blocks * shared.chunks, column_invocations(caps) // _MERGED
    stages = (
        dispatch(0, workgroups, shared.columns, shared.lanes, UNITS=units),
        dispatch(1, -(-problem.rows // _MERGED), _MERGED, merging, HAS_STATISTICS=int(_form(desc).mean is not None)),
        dispatch(2, workgroups, shared.columns, shared.lanes, UNITS=units),
    )
    return Plan(stages, temporary_bytes=partials.nbytes)


_SPLIT_WORKGROUP = 128
_CHUNK_BYTES, _LONG_ROW_CHUNKS = 1 << 15, 512
"""The bytes of a chunk of a long row of words, and the most chunks of one. H200 (driver 580, 2026-11-29), us so, and with
256 invocations in place of 128 and no more than 256 chunks: 32 rows of 2^22 FLOAT32 383 and 392, of FLOAT16 204 and 213; one
of 2^23 31.4 and 31.8, 16.5 and 17.0; 192 of 50176 32.6 and 32.9, 19.4 and 20.5; 300 of 100000 92 and 93, 51 and 54; one of
2^21 12.1 and 11.8, 9.9 and 10.1. Rows of single elements took as long so, or longer."""
_NUMBERS = 64
"""Those that an invocation has of a tile of such a row."""


def _chunks(problem: MeanVarianceProblem, caps: Capabilities) -> tuple[dict[str, int], int, int]:
    if caps.is_cpu or problem.unit_elements == 1:
        return row_chunks(problem, caps, 2 * loads_in_flight(problem, caps))
    most = min(max(WORD_BITS // 8 * problem.row_units // _CHUNK_BYTES, MOST_CHUNKS), _LONG_ROW_CHUNKS)
    return row_chunks(problem, caps, _NUMBERS // problem.unit_elements, workgroup=_SPLIT_WORKGROUP, most_chunks=most)


def _split(desc: _Normalization, problem: MeanVarianceProblem, caps: Capabilities) -> Plan:
    constants, tiles, chunks = _chunks(problem, caps)
    partials = Range(Source.TEMPORARY, 0, 0, problem.rows * chunks * _PARTIAL_BYTES)

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
