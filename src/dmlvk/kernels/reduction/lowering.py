"""Reductions: how the kept and the reduced dimensions become rows, and how rows are shared out."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from dmlvk.devices.capabilities import Capabilities
from dmlvk.kernels.common.dispatch import make_dispatch
from dmlvk.kernels.common.plan import Dispatch, Plan, Range, Source, input_range, output_range
from dmlvk.kernels.common.registry import integer_features, register
from dmlvk.kernels.common.shapes import coalesce, divisors, linear_grid, most_invocations, power_of_two
from dmlvk.kernels.reduction.manifest import FEW_LANES, FEW_TOGETHER, MANY_TOGETHER, RANGE, WORKGROUP
from dmlvk.kernels.reduction.rules import REDUCTION, ReductionProblem
from dmlvk.spec import ops
from dmlvk.spec.enums import AxisDirection, ReduceFunction, TensorDataType
from dmlvk.spec.schema import OperatorDesc
from dmlvk.spec.tensor import TensorDesc, element_bits

_Reduction = ops.Reduce | ops.Argmin | ops.Argmax

_COLUMNS = 16
"""Columns of a workgroup: 256 bytes of neighbours."""
_WORKGROUPS = 8
"""Workgroups for each processor that a split reduction aims at: no more than run at once, as the last ones would run alone.
H200, 16384x8192 float32 by columns: 4085 GB/s, 3640 with 16; all of 2^28 numbers: 4268 against 4013."""
_INDEX_WORDS = {TensorDataType.INT64: 2, TensorDataType.UINT64: 2, TensorDataType.INT32: 1, TensorDataType.UINT32: 1}


def _function(desc: _Reduction) -> tuple[ReduceFunction, AxisDirection]:
    if isinstance(desc, ops.Reduce):
        return desc.function, AxisDirection.INCREASING
    return ReduceFunction.ARGMIN if isinstance(desc, ops.Argmin) else ReduceFunction.ARGMAX, desc.axis_direction


def reduction_problem(
    data_type: TensorDataType,
    sizes: Sequence[int],
    strides: Sequence[int],
    output_strides: Sequence[int],
    axes: Sequence[int],
    *,
    in_order: bool = False,
) -> ReductionProblem:
    """The problem of reducing some axes of a tensor.

    The order of dimensions does not matter to most functions, so that of memory, which makes the longest runs, is taken;
    ``in_order`` keeps the reduced ones as they are.
    """
    memory = sorted(range(len(sizes)), key=lambda axis: strides[axis] or math.inf, reverse=True)
    kept = [axis for axis in memory if axis not in axes]
    row = [axis for axis in (range(len(sizes)) if in_order else memory) if axis in axes]
    return ReductionProblem(
        data_type=data_type,
        kept=coalesce(
            [sizes[axis] for axis in kept], [[steps[axis] for axis in kept] for steps in (strides, output_strides)]
        ),
        row=coalesce([sizes[axis] for axis in row], [[strides[axis] for axis in row]]),
    )


def _problem(desc: _Reduction) -> ReductionProblem:
    x, y = desc.tensor("input_tensor"), desc.tensor("output_tensor")
    arguments = (ReduceFunction.ARGMAX, ReduceFunction.ARGMIN)
    in_order = _function(desc)[0] in arguments
    return reduction_problem(x.data_type, x.sizes, x.effective_strides, y.effective_strides, desc.axes, in_order=in_order)


def _most_invocations(caps: Capabilities) -> int:
    """The largest power of two of invocations in a workgroup, of those that are of use."""
    return min(most_invocations(caps), WORKGROUP)


class _Accumulator(NamedTuple):
    """The arguments of ``include/accumulator.glsl``: FUNCTION, and parameters."""

    function: int
    params: Mapping[str, float]


def _accumulator(desc: _Reduction, problem: ReductionProblem) -> _Accumulator:
    function, direction = _function(desc)
    params = {
        "decreasing": int(direction == AxisDirection.DECREASING),
        "index_words": _INDEX_WORDS.get(desc.tensor("output_tensor").data_type, 0),
        "divisor": problem.row_elements,
    }
    return _Accumulator(int(function), params)


def _in_lanes(sizes: tuple[int, ...], strides: tuple[int, ...], lanes: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Sizes and strides with the innermost dimension counted in groups of lanes."""
    return (*sizes[:-1], -(-sizes[-1] // lanes)), (*strides[:-1], strides[-1] * lanes)


def _chunked(problem: ReductionProblem, units: int, least_units: int, chunks: int) -> tuple[int, int]:
    """Chunks of a row and their units: at most so many of them, none shorter than that, and partial results in no more
    temporary memory than 1 MiB or 1 % of the input."""
    memory = max(2**20, problem.rows * problem.row_elements * element_bits(problem.data_type) // 800)
    most = max(min(chunks, units // least_units, memory // (problem.rows * problem.partial_bytes)), 1)
    chunk_units = -(-units // most)
    chunk_units = -(-chunk_units // least_units) * least_units
    return -(-units // chunk_units), chunk_units


class Reading(NamedTuple):
    """The dispatch that reads the input.

    Attributes:
        dispatch: The dispatch, which writes results, or where rows are split the accumulators of their chunks.
        chunks: The chunks of a row.
        partials: The range of the accumulators, None for results.
    """

    dispatch: Dispatch
    chunks: int
    partials: Range | None


def _reading(
    accumulator: _Accumulator,
    problem: ReductionProblem,
    caps: Capabilities,
    kernel: str,
    lanes: int,
    constants: dict[str, int],
    params: dict[str, int | tuple[int, ...]],
    workgroups: int,
    chunks: int,
    chunk_units: int,
    *,
    split: bool,
) -> Reading:
    """A ``reduce_*`` kernel over the input."""
    written = Range(Source.TEMPORARY, 0, 0, problem.rows * chunks * problem.partial_bytes) if split else output_range()
    dispatch = make_dispatch(
        kernel,
        (input_range(0), written, written),
        linear_grid(workgroups, caps),
        variant={"LANES": lanes, "T": problem.data_type.name},
        constants={"FUNCTION": accumulator.function, **constants, "SPLIT": int(split)},
        **accumulator.params,
        row_elements=problem.row_elements,
        chunks=chunks,
        chunk_units=chunk_units,
        kept_rank=len(problem.kept.sizes),
        row_rank=len(problem.row.sizes),
        **params,
    )
    return Reading(dispatch, chunks, written if split else None)


def _finished(accumulator: _Accumulator, problem: ReductionProblem, caps: Capabilities, reading: Reading) -> Plan:
    """The plan, with a second dispatch that merges where rows are split."""
    if reading.partials is None:
        return Plan((reading.dispatch,))
    chunks = reading.chunks
    team = caps.subgroup_size if chunks <= 8 * caps.subgroup_size else _most_invocations(caps)
    local = _most_invocations(caps)
    merging = make_dispatch(
        "reduce_partials",
        (output_range(), reading.partials),
        linear_grid(-(-problem.rows // (local // team)), caps),
        variant={"LANES": 1, "T": problem.data_type.name},
        constants={"FUNCTION": accumulator.function, "LOCAL_SIZE_X": local, "TEAM": team, "SPLIT": 0},
        **accumulator.params,
        rows=problem.rows,
        chunks=chunks,
        kept_rank=len(problem.kept.sizes),
        kept_sizes=problem.kept.sizes,
        kept_divisors=divisors(problem.kept.sizes),
        kept_output=problem.kept.strides[1],
    )
    return Plan((reading.dispatch, merging), temporary_bytes=reading.partials.nbytes)


# -- rows


def _in_flight(units: int, lanes: int, caps: Capabilities) -> int:
    """The number of units that an invocation loads before it uses the first: a power of two. A CPU's caches need none of it,
    and the code that unrolls them only takes longer to compile."""
    most = 1 if caps.is_cpu else 4 if lanes > 1 else 8
    return min(most, 1 << max(units, 1).bit_length() - 1)


def _team_of(units: int, most: int) -> int:
    """Invocations that share a short row of so many units: 4 units each. H200: 2^20 rows of 128 float32 at 4022 GB/s so,
    2234 with an invocation a unit; 2^24 rows of 8 at 4156 against 3207."""
    return min(max(power_of_two(units) // 4, 1), most)


def _rows(
    accumulator: _Accumulator,
    problem: ReductionProblem,
    caps: Capabilities,
    team: int,
    local: int,
    *,
    split: bool = False,
) -> Reading:
    lanes = problem.row_lanes
    units = problem.row_units
    row_sizes, row_x = _in_lanes(problem.row.sizes, problem.row.strides[0], lanes)
    if len(row_sizes) == 1:
        units = -(-(problem.row_elements + problem.row_shift) // lanes)
    chunks, chunk_units = (
        _chunked(problem, units, team, -(-caps.model.workgroups(_WORKGROUPS) // problem.rows)) if split else (1, units)
    )
    constants = {
        "LOCAL_SIZE_X": local,
        "TEAM": team,
        "UNITS": _in_flight(chunk_units // team, lanes, caps),
        "ROW_RUNS": int(len(row_sizes) > 1),
    }
    params: dict[str, int | tuple[int, ...]] = {
        "rows": problem.rows,
        "row_units": units,
        "kept_sizes": problem.kept.sizes,
        "kept_divisors": divisors(problem.kept.sizes),
        "kept_x": problem.kept.strides[0],
        "kept_output": problem.kept.strides[1],
        "row_sizes": row_sizes,
        "row_divisors": divisors(row_sizes),
        "row_x": row_x,
    }
    workgroups = -(-problem.rows * chunks // (local // team))
    return _reading(
        accumulator, problem, caps, "reduce_rows", lanes, constants, params, workgroups, chunks, chunk_units, split=split
    )


def _subgroup(accumulator: _Accumulator, problem: ReductionProblem, caps: Capabilities) -> Reading:
    if caps.is_cpu:  # its caches want no neighbours, and fewer teams are fewer pipelines
        team = 1 if problem.row_units < 4 * caps.subgroup_size else caps.subgroup_size
    else:
        team = _team_of(problem.row_units, caps.subgroup_size)
    return _rows(accumulator, problem, caps, team, max(team, min(128, _most_invocations(caps))))


def _workgroup(accumulator: _Accumulator, problem: ReductionProblem, caps: Capabilities) -> Reading:
    team = min(max(power_of_two(-(-problem.row_units // 8)), 2 * caps.subgroup_size), _most_invocations(caps))
    return _rows(accumulator, problem, caps, team, max(team, min(128, _most_invocations(caps))))


def _split(accumulator: _Accumulator, problem: ReductionProblem, caps: Capabilities) -> Reading:
    team = caps.subgroup_size if problem.row_units < 4 * _most_invocations(caps) else _most_invocations(caps)
    return _rows(accumulator, problem, caps, team, team, split=True)


# -- columns


def _columns_of(accumulator: _Accumulator, problem: ReductionProblem, caps: Capabilities, *, split: bool) -> Reading:
    lanes = problem.column_lanes
    together = FEW_TOGETHER if lanes > FEW_LANES else MANY_TOGETHER
    kept_sizes, kept_x = _in_lanes(problem.kept.sizes, problem.kept.strides[0], lanes)
    columns = math.prod(kept_sizes)
    units = -(-problem.row_elements // together)
    of_workgroup = min(power_of_two(columns), _COLUMNS)
    members = min(power_of_two(units), _most_invocations(caps) // of_workgroup)
    blocks = -(-columns // of_workgroup)
    chunks, chunk_units = (
        _chunked(problem, units, members, -(-caps.model.workgroups(_WORKGROUPS) // blocks)) if split else (1, units)
    )
    constants = {
        "LOCAL_SIZE_X": of_workgroup * members,
        "COLUMNS": of_workgroup,
        "ROW_RUNS": int(len(problem.row.sizes) > 1),
    }
    params: dict[str, int | tuple[int, ...]] = {
        "columns": columns,
        "inner_size": problem.kept.sizes[-1],
        "output_step": problem.kept.strides[1][-1],
        "kept_sizes": kept_sizes,
        "kept_divisors": divisors(kept_sizes),
        "kept_x": kept_x,
        "kept_output": (*problem.kept.strides[1][:-1], problem.kept.strides[1][-1] * lanes),
        "row_sizes": problem.row.sizes,
        "row_divisors": divisors(problem.row.sizes),
        "row_x": problem.row.strides[0],
    }
    workgroups = blocks * chunks
    return _reading(
        accumulator, problem, caps, "reduce_columns", lanes, constants, params, workgroups, chunks, chunk_units, split=split
    )


def _columns(accumulator: _Accumulator, problem: ReductionProblem, caps: Capabilities) -> Reading:
    return _columns_of(accumulator, problem, caps, split=False)


def _columns_split(accumulator: _Accumulator, problem: ReductionProblem, caps: Capabilities) -> Reading:
    return _columns_of(accumulator, problem, caps, split=True)


# -- what reads the input, for Reduce and for others


def _schedule(
    reading: Callable[[_Accumulator, ReductionProblem, Capabilities], Reading],
) -> Callable[[_Reduction, ReductionProblem, Capabilities], Plan]:
    def schedule(desc: _Reduction, problem: ReductionProblem, caps: Capabilities) -> Plan:
        accumulator = _accumulator(desc, problem)
        return _finished(accumulator, problem, caps, reading(accumulator, problem, caps))

    return schedule


def range_reading(x: TensorDesc, caps: Capabilities) -> Reading:
    """Leaves the range of all elements of input 0, floats, and 0: the accumulators of chunks, to be merged."""
    axes = range(x.dimension_count)
    problem = reduction_problem(x.data_type, x.sizes, x.effective_strides, (0,) * len(axes), axes)
    params = {"decreasing": 0, "index_words": 0, "divisor": 1}
    return _split(_Accumulator(RANGE, params), problem, caps)


def _features(row: type[OperatorDesc], data_type: TensorDataType) -> frozenset[str]:
    return integer_features(row, data_type) | {"subgroup_shuffle"}


register(
    ops.Reduce,
    ops.Argmin,
    ops.Argmax,
    problem=_problem,
    rules=REDUCTION,
    schedules={
        "columns_split": _schedule(_columns_split),
        "columns": _schedule(_columns),
        "split": _schedule(_split),
        "workgroup": _schedule(_workgroup),
        "subgroup": _schedule(_subgroup),
    },
    features=_features,
)
