"""Mean-variance and batch normalization."""

from __future__ import annotations

import math
from collections.abc import Sequence

from dmlvk.kernels.caps import Capabilities
from dmlvk.kernels.lowering.fused import fused
from dmlvk.kernels.lowering.registry import register
from dmlvk.kernels.manifest import KERNELS
from dmlvk.kernels.plan import Dispatch, KernelVariant, Plan, Range, Source, input_range, output_range
from dmlvk.kernels.select import (
    BATCH_NORMALIZATION,
    MEAN_VARIANCE_NORMALIZATION,
    BatchNormalizationProblem,
    MeanVarianceProblem,
)
from dmlvk.kernels.shapes import Coalesced, broadcast_strides, coalesce, linear_grid
from dmlvk.ops.normalization import BatchNormalization, MeanVarianceNormalization1
from dmlvk.tensor import TensorDesc, element_bits

_MOST_CHUNKS = 256
"""Chunks of a split row: every chunk's workgroup reads the statistics of all of them."""
_PARTIAL_BYTES = 16


def _power_of_two(least: int) -> int:
    """The smallest power of two that is at least this."""
    return 1 << (least - 1).bit_length()


def _most_invocations(caps: Capabilities) -> int:
    """The largest power of two of invocations in a workgroup."""
    return 1 << (caps.workgroup_invocations.bit_length() - 1)


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


def _mean_variance_problem(desc: MeanVarianceNormalization1) -> MeanVarianceProblem:
    x, y = desc.tensor("input_tensor"), desc.tensor("output_tensor")
    steps = [x.effective_strides, *(_side_steps(t, x.sizes) for t in (desc.scale_tensor, desc.bias_tensor))]
    steps.append(y.effective_strides)
    # Statistics do not depend on the order of dimensions, so memory's order makes the longest runs.
    order = sorted(range(len(x.sizes)), key=lambda axis: (steps[3][axis], steps[0][axis]), reverse=True)
    kept_axes = [axis for axis in order if axis not in desc.axes]
    row_axes = [axis for axis in order if axis in desc.axes]

    def merge(axes: list[int], tensors: tuple[int, ...]) -> Coalesced:
        return coalesce([x.sizes[axis] for axis in axes], [[steps[t][axis] for axis in axes] for t in tensors])

    kept, row, side = merge(kept_axes, (0, 1, 2, 3)), merge(row_axes, (0, 3)), merge(row_axes, (1, 2))
    word = 128 // element_bits(x.data_type)
    contiguous = all(tensor[-1] == 1 for tensor in row.strides)
    around = [(row.sizes[:-1], tensor[:-1]) for tensor in row.strides]
    around += [(kept.sizes, kept.strides[tensor]) for tensor in (0, 3)]
    unit = word if contiguous and _whole_words(around, row.sizes[-1], word) else 1
    return MeanVarianceProblem(
        rows=math.prod(kept.sizes),
        row_units=math.prod(row.sizes) // unit,
        unit_elements=unit,
        side_by_side=unit == 1 and kept.sizes[-1] > 1 and kept.strides[3][-1] < row.strides[1][-1],
        kept=kept,
        row=row,
        side=side,
    )


def _side_steps(tensor: TensorDesc | None, sizes: tuple[int, ...]) -> tuple[int, ...]:
    """Steps of scale or bias over the input's sizes; an absent one stays where it is."""
    return (0,) * len(sizes) if tensor is None else broadcast_strides(tensor, sizes)


def _side_constants(desc: MeanVarianceNormalization1, problem: MeanVarianceProblem) -> dict[str, int]:
    """How scale and bias are read along a row."""
    present = [i for i, tensor in enumerate((desc.scale_tensor, desc.bias_tensor)) if tensor is not None]
    last = [problem.side.strides[i][-1] for i in present]
    unit = problem.unit_elements
    varies = problem.side.sizes != (1,) and any(any(problem.side.strides[i]) for i in present)
    around = [(problem.kept.sizes, problem.kept.strides[1 + i]) for i in present]
    consecutive = len(problem.side.sizes) == 1 and all(step == 1 for step in last)
    whole_words = unit > 1 and consecutive and _whole_words(around, problem.side.sizes[-1], unit)
    shared = unit if not any(last) and problem.side.sizes[-1] % unit == 0 else 1
    return {
        "HAS_SCALE": int(desc.scale_tensor is not None),
        "HAS_BIAS": int(desc.bias_tensor is not None),
        "SIDE_SHARED": shared if varies else 0,
        "SIDE_WORDS": int(varies and whole_words),
    }


def _mean_variance_dispatch(
    kernel: str,
    desc: MeanVarianceNormalization1,
    problem: MeanVarianceProblem,
    workgroups: int,
    caps: Capabilities,
    constants: dict[str, int],
    extra_variant: tuple[tuple[str, str], ...] = (),
    extra_bindings: tuple[Range, ...] = (),
    extra_params: dict[str, int] | None = None,
) -> Dispatch:
    """A dispatch of one of the mean_variance_* kernels; ``constants`` are those that the schedule chose."""
    activation = fused(desc.fused_activation)
    unit = problem.unit_elements
    kept, row, side = problem.kept, problem.row, problem.side
    constants = {
        **constants,
        "ROW_RUNS": int(len(row.sizes) > 1),
        **_side_constants(desc, problem),
        "NORMALIZE_VARIANCE": int(desc.normalize_variance),
        "ACTIVATION": activation.id,
    }

    def row_steps(steps: tuple[int, ...]) -> tuple[int, ...]:
        return (*_in_units(steps[:-1], unit), steps[-1])  # the last dimension counts units itself

    params = KERNELS[kernel].pack(
        rows=problem.rows,
        row_units=problem.row_units,
        epsilon=desc.epsilon,
        activation_param0=activation.param0,
        activation_param1=activation.param1,
        kept_rank=len(kept.sizes),
        row_rank=len(row.sizes),
        side_rank=len(side.sizes),
        kept_sizes=kept.sizes,
        kept_x=_in_units(kept.strides[0], unit),
        kept_scale=kept.strides[1],
        kept_bias=kept.strides[2],
        kept_y=_in_units(kept.strides[3], unit),
        row_sizes=(*row.sizes[:-1], row.sizes[-1] // unit),
        row_x=row_steps(row.strides[0]),
        row_y=row_steps(row.strides[1]),
        side_sizes=side.sizes,
        side_scale=side.strides[0],
        side_bias=side.strides[1],
        **(extra_params or {}),
    )
    x = input_range(0)
    bindings = (
        x,
        x if desc.scale_tensor is None else input_range(1),
        x if desc.bias_tensor is None else input_range(2),
        output_range(),
    )
    variant = [("T", desc.tensor("input_tensor").data_type.name), ("WORDS", str(int(unit > 1)))]
    return Dispatch(
        KernelVariant(kernel, (*variant, *extra_variant), tuple(constants.items())),
        bindings + extra_bindings,
        params,
        linear_grid(workgroups, caps),
    )


def _loads_in_flight(problem: MeanVarianceProblem, caps: Capabilities) -> int:
    """Units that each invocation loads before it uses the first: enough to hide a GPU's memory; a CPU's caches need
    none of it, and the code that unrolls them only takes longer to compile."""
    if caps.is_cpu:
        return 1
    return 4 if problem.unit_elements > 1 else 8


def _rows(desc: MeanVarianceNormalization1, problem: MeanVarianceProblem, caps: Capabilities) -> Plan:
    words = problem.unit_elements > 1
    most = _most_invocations(caps)
    # A cache line or two at a time first, then several loads in flight in each lane.
    wanted = max(min(problem.row_units, 32), -(-problem.row_units // _loads_in_flight(problem, caps)))
    lanes = min(_power_of_two(wanted), most, 512)
    if -(-problem.row_units // lanes) > (8 if words else 32):
        lanes = min(most, 1024)
    # Many rows fill the device with large workgroups; few rows spread over it better in small ones.
    invocations = max(lanes, min(256 if problem.rows * lanes >= 2**18 else 64, most))
    rows_each = invocations // lanes
    constants = {"LOCAL_SIZE_X": invocations, "UNITS": -(-problem.row_units // lanes), "LANES": lanes}
    workgroups = -(-problem.rows // rows_each)
    return Plan((_mean_variance_dispatch("mean_variance_row", desc, problem, workgroups, caps, constants),))


def _columns(desc: MeanVarianceNormalization1, problem: MeanVarianceProblem, caps: Capabilities) -> Plan:
    most = min(_most_invocations(caps), 256)
    columns = min(_power_of_two(problem.rows), 32)
    lanes = min(_power_of_two(-(-problem.row_units // 8)), most // columns)
    columns = min(_power_of_two(problem.rows), most // lanes)
    each = -(-problem.row_units // lanes)
    whole = each <= 16
    constants = {
        "LOCAL_SIZE_X": columns * lanes,
        "UNITS": each if whole else 8,
        "COLUMNS": columns,
        "WHOLE": int(whole),
    }
    workgroups = -(-problem.rows // columns)
    return Plan((_mean_variance_dispatch("mean_variance_column", desc, problem, workgroups, caps, constants),))


def _split(desc: MeanVarianceNormalization1, problem: MeanVarianceProblem, caps: Capabilities) -> Plan:
    invocations = min(_most_invocations(caps), 256, max(_power_of_two(problem.row_units), 64))
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
            (("APPLY", str(apply)),),
            (partials,),
            {"tiles": tiles, "chunks": chunks},
        )

    return Plan((dispatch(0), dispatch(1)), temporary_bytes=partials.nbytes)


register(
    MeanVarianceNormalization1,
    problem=_mean_variance_problem,
    rules=MEAN_VARIANCE_NORMALIZATION,
    schedules={"columns": _columns, "rows": _rows, "split": _split},
)


# -- batch normalization

_GIVEN = ("mean_tensor", "variance_tensor", "scale_tensor", "bias_tensor")


def _batch_problem(desc: BatchNormalization) -> BatchNormalizationProblem:
    x, y = desc.tensor("input_tensor"), desc.tensor("output_tensor")
    steps = [
        x.effective_strides,
        *(broadcast_strides(desc.tensor(name), x.sizes) for name in _GIVEN),
        y.effective_strides,
    ]
    order = sorted(range(len(x.sizes)), key=lambda axis: (steps[5][axis], steps[0][axis]), reverse=True)
    walk = coalesce([x.sizes[axis] for axis in order], [[tensor[axis] for axis in order] for tensor in steps])
    word = 128 // element_bits(x.data_type)
    data = (walk.strides[0], walk.strides[5])
    around = [(walk.sizes[:-1], tensor[:-1]) for tensor in data]
    whole = all(tensor[-1] == 1 for tensor in data) and _whole_words(around, walk.sizes[-1], word)
    return BatchNormalizationProblem(walk, word if whole else 1)


def _words(desc: BatchNormalization, problem: BatchNormalizationProblem, caps: Capabilities) -> Plan:
    return _batch_plan(desc, problem.walk, problem.unit_elements, caps)


def _elements(desc: BatchNormalization, problem: BatchNormalizationProblem, caps: Capabilities) -> Plan:
    return _batch_plan(desc, problem.walk, 1, caps)


def _batch_plan(desc: BatchNormalization, walk: Coalesced, unit: int, caps: Capabilities) -> Plan:
    activation = fused(desc.fused_activation)
    sizes = (*walk.sizes[:-1], walk.sizes[-1] // unit)
    count = math.prod(sizes)
    x_steps, *given, y_steps = walk.strides
    last = tuple(tensor[-1] for tensor in given)
    invocations = min(_most_invocations(caps), 256)
    units = 4 if count >= 2**20 else 1
    constants = {
        "LOCAL_SIZE_X": invocations,
        "UNITS": units,
        "RANK": len(sizes),
        "SHARED_STATISTICS": int(unit == 1 or not any(last)),
        "ACTIVATION": activation.id,
    }

    def data_steps(steps: tuple[int, ...]) -> tuple[int, ...]:
        return (*_in_units(steps[:-1], unit), steps[-1])

    params = KERNELS["batch_normalization"].pack(
        count=count,
        epsilon=desc.epsilon,
        activation_param0=activation.param0,
        activation_param1=activation.param1,
        sizes=sizes,
        x_steps=data_steps(x_steps),
        **{
            f"{name}_steps": (*steps[:-1], steps[-1] * unit)
            for name, steps in zip(("mean", "variance", "scale", "bias"), given, strict=True)
        },
        y_steps=data_steps(y_steps),
        element_steps=last,
    )
    variant = (("T", desc.tensor("input_tensor").data_type.name), ("WORDS", str(int(unit > 1))))
    dispatch = Dispatch(
        KernelVariant("batch_normalization", variant, tuple(constants.items())),
        (*(input_range(slot) for slot in range(5)), output_range()),
        params,
        linear_grid(-(-count // (invocations * units)), caps),
    )
    return Plan((dispatch,))


register(
    BatchNormalization,
    problem=_batch_problem,
    rules=BATCH_NORMALIZATION,
    schedules={"words": _words, "elements": _elements},
)
