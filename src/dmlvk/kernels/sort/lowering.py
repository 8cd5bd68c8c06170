"""Plans for the K largest or smallest elements."""

from __future__ import annotations

import math
from collections.abc import Iterator

from dmlvk.devices.capabilities import Capabilities
from dmlvk.kernels.common.dispatch import make_dispatch
from dmlvk.kernels.common.plan import Dispatch, Plan, Range, Resource, Source, input_range, output_range
from dmlvk.kernels.common.registry import register, subgroup_features
from dmlvk.kernels.common.shapes import (
    WORD_BITS,
    coalesce,
    divisors,
    linear_grid,
    most_invocations,
    part_starts,
    power_of_two,
)
from dmlvk.kernels.sort.manifest import MemoryPhase, SelectPhase
from dmlvk.kernels.sort.rules import TOP_K, TopKProblem
from dmlvk.spec.enums import AxisDirection, TensorDataType
from dmlvk.spec.ops.sort import TopK1
from dmlvk.spec.schema import FLOATS, SIGNED
from dmlvk.spec.tensor import element_bits, packed_strides

_ALL_BITS, _SIGN_BIT = 0xFFFFFFFF, 0x80000000
_WORKGROUPS = 8
"""Workgroups of chunks for each processor, of which it has enough."""
_BATCH_BYTES = 2**26
"""Temporary memory in which ``memory`` sorts as many rows at a time as fit, or one."""


def _problem(desc: TopK1) -> TopKProblem:
    x = desc.tensor("input_tensor")
    outputs = desc.tensor("output_value_tensor"), desc.tensor("output_index_tensor")
    strides = [tensor.effective_strides for tensor in (x, *outputs)]
    others = [axis for axis in range(x.dimension_count) if axis != desc.axis]
    order = sorted(others, key=lambda axis: (strides[0][axis], strides[1][axis]), reverse=True)
    kept = coalesce([x.sizes[axis] for axis in order], [[steps[axis] for axis in order] for steps in strides])
    along = strides[0][desc.axis], strides[1][desc.axis], strides[2][desc.axis]
    length, bits = x.sizes[desc.axis], element_bits(x.data_type)
    word = WORD_BITS // bits
    starts = kept.strides[0] if kept.sizes != (1,) else ()
    whole_words = along[0] == 1 and length % word == 0 and not any(step % word for step in starts)
    return TopKProblem(
        bits=bits,
        rows=math.prod(kept.sizes),
        length=length,
        k=desc.k,
        unit_elements=word if whole_words else 1,
        side_by_side=kept.sizes[-1] > 1 and kept.strides[0][-1] < along[0],
        kept=kept,
        steps=along,
    )


def _sort_shape(problem: TopKProblem, caps: Capabilities) -> tuple[int, int, int]:
    """Invocations of a workgroup, elements in its shared memory, a pair for each invocation, and those of a row."""
    segment = max(power_of_two(problem.length), 32)
    invocations = min(max(segment // 2, 128), 512, most_invocations(caps))
    return invocations, max(min(2 * invocations, problem.most_sorted(caps)), segment), segment


def _select_shape(problem: TopKProblem, units: int, unit_elements: int, caps: Capabilities) -> tuple[int, int, int]:
    """Invocations of a workgroup for a chunk of so many units, how many of them each has in flight, and most candidates in
    shared memory: twice K and a few of many elements, so that few digits leave so few, but not so many that few workgroups
    have room on the device at once."""
    if caps.is_cpu:
        return 128, 1, min(max(power_of_two(2 * problem.k), 512), problem.most_selected(caps))
    invocations = min(max(power_of_two(-(-units // 8)), 128), 512, most_invocations(caps))
    in_flight = 8 if unit_elements == 1 else max(min(32 // unit_elements, 4), 2)
    share = min(max(power_of_two(units * unit_elements) // 32, 128), 1024)
    return invocations, in_flight, min(max(power_of_two(2 * problem.k), share), problem.most_selected(caps))


def _memory_shape(problem: TopKProblem, caps: Capabilities) -> tuple[int, int]:
    """Invocations of a workgroup, and elements of the blocks that it sorts in shared memory."""
    block = min(problem.most_sorted(caps), 256 if caps.is_cpu else 2048)
    return min(128 if caps.is_cpu else 512, most_invocations(caps)), block


def _dispatch(
    desc: TopK1,
    problem: TopKProblem,
    caps: Capabilities,
    kernel: str,
    constants: dict[str, int],
    params: dict[str, int],
    workgroups: int,
    bindings: tuple[Range, ...] = (),
    *,
    words: bool | None = None,
    rows: int | None = None,
    x_steps: tuple[tuple[int, ...], int] | None = None,
    index_words: int = 0,
) -> Dispatch:
    """A dispatch of one of the top_k_* kernels; the constants and parameters are those of its own.

    Args:
        desc, problem, caps: The desc, its problem and the device's capabilities.
        kernel, constants, params, workgroups: The kernel, and what its schedule chose.
        bindings: The ranges of its buffers; those left out at the end are the outputs.
        words: The value of the variant WORDS, for a kernel that has it.
        rows: Rows to handle, if not all.
        x_steps: Steps of x, along the kept dimensions and along the axis, if not those of the input tensor.
        index_words: 32-bit words of an index, if not those of the index tensor.
    """
    data_type = desc.tensor("input_tensor").data_type
    largest = _ALL_BITS if desc.axis_direction == AxisDirection.DECREASING else 0
    wide_indices = desc.tensor("output_index_tensor").data_type == TensorDataType.UINT64
    kept = problem.kept
    kept_x, x_step = x_steps or (kept.strides[0], problem.steps[0])
    halves = 2 if problem.bits == 64 else 1
    own = (input_range(0), output_range(0), output_range(1))
    return make_dispatch(
        kernel,
        bindings + own[len(bindings) :],
        linear_grid(workgroups, caps),
        variant={"T": f"UINT{problem.bits // halves}", "HALVES": halves, **({} if words is None else {"WORDS": words})},
        constants={**constants, "IS_FLOAT": data_type in FLOATS},
        rows=problem.rows if rows is None else rows,
        k=problem.k,
        flip=(largest ^ (_SIGN_BIT if data_type in SIGNED else 0), largest),
        x_step=x_step,
        value_step=problem.steps[1],
        index_step=problem.steps[2],
        index_words=index_words or 1 + wide_indices,
        kept_rank=len(kept.sizes),
        kept_sizes=kept.sizes,
        kept_divisors=divisors(kept.sizes),
        kept_x=kept_x,
        kept_values=kept.strides[1],
        kept_indices=kept.strides[2],
        **params,
    )


# -- rows sorted in shared memory


def _sort(desc: TopK1, problem: TopKProblem, caps: Capabilities) -> Plan:
    invocations, capacity, segment = _sort_shape(problem, caps)
    constants = {"LOCAL_SIZE_X": invocations, "CAPACITY": capacity, "SEGMENT": segment}
    params = {"row_size": problem.length, "side_by_side": int(problem.side_by_side)}
    workgroups = -(-problem.rows // (capacity // segment))
    return Plan((_dispatch(desc, problem, caps, "top_k_sort", constants, params, workgroups),))


# -- the K-th found by counting


def _select_dispatch(
    desc: TopK1,
    problem: TopKProblem,
    caps: Capabilities,
    phase: int,
    chunks: int,
    length: int,
    bindings: tuple[Range, ...],
    *,
    x_steps: tuple[tuple[int, ...], int] | None = None,
) -> Dispatch:
    unit = 1 if phase == SelectPhase.MERGE else problem.unit_elements
    invocations, in_flight, capacity = _select_shape(problem, length // unit // chunks, unit, caps)
    constants = {"LOCAL_SIZE_X": invocations, "CAPACITY": capacity, "UNITS": in_flight, "PHASE": phase}
    params = {
        "units": length // unit,
        "chunks": chunks,
        "position_shift": 32 - max((length - 1).bit_length(), 1),
    }
    return _dispatch(
        desc,
        problem,
        caps,
        "top_k_select",
        constants,
        params,
        problem.rows * chunks,
        bindings,
        words=unit > 1,
        x_steps=x_steps,
        index_words=1 if phase == SelectPhase.CANDIDATES else 0,
    )


def _select(desc: TopK1, problem: TopKProblem, caps: Capabilities) -> Plan:
    x = input_range(0)
    bindings = (x, output_range(0), output_range(1), x)
    return Plan((_select_dispatch(desc, problem, caps, SelectPhase.WHOLE, 1, problem.length, bindings),))


def _chunks(desc: TopK1, problem: TopKProblem, caps: Capabilities) -> Plan:
    # Their candidates take a hundredth of the row's memory, and a chunk has work enough for its workgroup.
    smallest = max(256 * problem.k, 2048 if caps.is_cpu else 2**15)
    chunks = max(min(problem.length // smallest, -(-caps.model.workgroups(_WORKGROUPS) // problem.rows)), 2)
    candidates = problem.rows * chunks * problem.k
    temporary = Resource(Source.TEMPORARY)
    values = temporary.take(-(-candidates * problem.bits // 32) * 4)
    indices = temporary.take(4 * candidates)
    first = _select_dispatch(
        desc,
        problem,
        caps,
        SelectPhase.CANDIDATES,
        chunks,
        problem.length,
        (input_range(0), values, indices, input_range(0)),
    )
    row_steps = tuple(step * chunks * problem.k for step in packed_strides(problem.kept.sizes))
    second = _select_dispatch(
        desc,
        problem,
        caps,
        SelectPhase.MERGE,
        1,
        chunks * problem.k,
        (values, output_range(0), output_range(1), indices),
        x_steps=(row_steps, 1),
    )
    return Plan((first, second), temporary_bytes=temporary.end)


# -- rows sorted in memory


def _memory_steps(length: int, block: int) -> Iterator[tuple[int, int, int]]:
    """(phase, mirrored, reach) of each dispatch that sorts rows."""
    yield MemoryPhase.BLOCKS, 0, 0
    run = 2 * block
    while run < 2 * length:
        yield MemoryPhase.EXCHANGE, 1, run
        distance = run // 4
        while distance >= block:
            yield MemoryPhase.EXCHANGE, 0, distance
            distance //= 2
        yield MemoryPhase.MERGE, 0, 0
        run *= 2


def _memory(desc: TopK1, problem: TopKProblem, caps: Capabilities) -> Plan:
    invocations, block = _memory_shape(problem, caps)
    key_bytes = problem.length * max(problem.bits, 32) // 8
    batch = max(min(_BATCH_BYTES // (key_bytes + 4 * problem.length), problem.rows), 1)
    temporary = Resource(Source.TEMPORARY)
    keys = temporary.take(batch * key_bytes)
    positions = temporary.take(batch * 4 * problem.length)
    blocks = -(-problem.length // block)
    pairs = power_of_two(problem.length) // 2
    dispatches = []
    for first_row in part_starts(problem.rows, batch):
        rows = min(batch, problem.rows - first_row)
        for phase, mirrored, reach in (*_memory_steps(problem.length, block), (MemoryPhase.OUTPUT, 0, 0)):
            in_blocks = phase in (MemoryPhase.BLOCKS, MemoryPhase.MERGE)
            items = blocks if in_blocks else pairs if phase == MemoryPhase.EXCHANGE else problem.k
            sorts = phase != MemoryPhase.OUTPUT
            constants = {"LOCAL_SIZE_X": invocations, "CAPACITY": block, "PHASE": phase}
            params = {
                "row_size": problem.length,
                "first_row": first_row,
                "items": items,
                "mirrored": mirrored,
                "reach": reach,
            }
            dispatches.append(
                _dispatch(
                    desc,
                    problem,
                    caps,
                    "top_k_memory",
                    constants,
                    params,
                    rows * items if in_blocks else -(-rows * items // invocations),
                    (input_range(0), *((keys, keys) if sorts else (output_range(0), output_range(1))), keys, positions),
                    rows=rows,
                )
            )
    return Plan(tuple(dispatches), temporary_bytes=temporary.end)


register(
    TopK1,
    problem=_problem,
    rules=TOP_K,
    schedules={"sort": _sort, "chunks": _chunks, "select": _select, "memory": _memory},
    features=subgroup_features,
)
