"""Plans for attention over a cache."""

from __future__ import annotations

import math
from typing import Any

from dmlvk.devices.capabilities import Capabilities
from dmlvk.kernels.attention.lowering import (
    Around,
    Operands,
    Parts,
    Rows,
    Turning,
    last_strides,
    made_rows,
    no_turning,
    parts_together,
    problem_fields,
    schedules,
    shared_params,
)
from dmlvk.kernels.attention.manifest import PastLengths, Turn
from dmlvk.kernels.cached_attention.rules import CACHED_ATTENTION, CachedProblem, StepShape, step_shape
from dmlvk.kernels.common.dispatch import make_dispatch
from dmlvk.kernels.common.limitation import LOOP_ROUNDS
from dmlvk.kernels.common.plan import COUNTERS, Launch, Plan, Range, Source, aligned, counters, input_range, output_range
from dmlvk.kernels.common.registry import register
from dmlvk.kernels.common.shapes import WORD_BITS, check_rounds, power_of_two
from dmlvk.spec.ops.attention import AttentionSizes
from dmlvk.spec.ops.cached_attention import CachedAttention
from dmlvk.spec.tensor import TensorDesc, element_bits

_Q, _K, _V, _LENGTHS, _COSINES, _SINES, _POSITIONS, _PAST_K, _PAST_V, _BIAS, _SINKS = map(input_range, range(11))
_Y, _CACHE_K, _CACHE_V = map(output_range, range(3))


def _rows(where: Range, tensor: TensorDesc) -> Rows:
    """A tensor {batch, rows, heads, size}."""
    entry, row, head, element = tensor.effective_strides
    return Rows(where, 0, (entry, row, head, element))


def _by_head(where: Range, tensor: TensorDesc) -> Rows:
    """A tensor {batch, heads, rows, size}."""
    entry, head, row, element = tensor.effective_strides
    return Rows(where, 0, (entry, row, head, element))


def _sizes(desc: CachedAttention) -> AttentionSizes:
    batch, rows, heads, size = desc.tensor("query_tensor").sizes
    past = desc.past_key_tensor
    _, key_heads, capacity, value_size = desc.tensor("cache_value_tensor").sizes
    return AttentionSizes(
        batch=batch,
        query_heads=heads,
        key_heads=key_heads,
        queries=rows,
        new=rows,
        past=0 if past is None else past.sizes[2],
        total=capacity,
        head_size=size,
        value_head_size=value_size,
    )


def _most_past(desc: CachedAttention) -> int:
    """The most rows before the new ones."""
    past = desc.past_key_tensor
    return desc.tensor("cache_key_tensor").sizes[2] if past is None else past.sizes[2]


def _around(desc: CachedAttention) -> Around:
    def bound(tensor: TensorDesc | None, where: Range) -> Range:
        return _Q if tensor is None else where

    bias, sinks, lengths = desc.bias_tensor, desc.sinks_tensor, desc.tensor("lengths_tensor")
    return Around(
        (_Q, _Q, bound(bias, _BIAS), _LENGTHS, bound(sinks, _SINKS)),
        {
            "LENGTHS": PastLengths.INT32,
            "HAS_RELATIVE": int(bias is not None),
            "HAS_SINKS": int(sinks is not None),
            "WINDOWED": int(desc.window != 0),
            "CAPPED": int(desc.softcap != 0.0),
        },
        {
            "mask_strides": (0,) * 4,
            "relative_strides": last_strides(bias, 4),
            "bias_stride": 0,
            "k_bias": 0,
            "v_bias": 0,
            "most_past": _most_past(desc),
            "lengths_stride": last_strides(lengths, 1)[0],
            "sinks_stride": last_strides(sinks, 1)[0],
            "scale": desc.scale,
            "softcap": desc.softcap,
            "window": desc.window,
            "both_ways": int(not desc.causal),
            "mask_filter": 0.0,
        },
    )


def _turning(desc: CachedAttention) -> Turning:
    cosines, sines, positions = desc.cosines_tensor, desc.sines_tensor, desc.positions_tensor
    if cosines is None or sines is None:
        return no_turning(_Q)
    places, pairs = cosines.sizes
    return Turning(
        (_COSINES, _SINES, _Q if positions is None else _POSITIONS),
        {
            "TURN": Turn.NEIGHBOURS if desc.interleaved else Turn.HALVES,
            "POSITION_WORDS": 0 if positions is None else element_bits(positions.data_type) // 32,
        },
        {
            "pairs": pairs,
            "places": places,
            "cosines_strides": cosines.effective_strides,
            "sines_strides": sines.effective_strides,
            "positions_strides": (0, 0) if positions is None else positions.effective_strides,
        },
    )


def _operands(desc: CachedAttention, caps: Capabilities) -> Operands:
    """Those of the kernels that all attention has: queries are turned before, and the cache has the new rows."""
    sizes, turning = _sizes(desc), _turning(desc)
    query, y = desc.tensor("query_tensor"), desc.tensor("output_tensor")
    lengths = (_LENGTHS, desc.tensor("lengths_tensor"))
    q = _rows(_Q, query)
    before: list[Launch] = []
    temporary_bytes = 0
    if desc.cosines_tensor is not None:
        nbytes = math.prod(query.sizes) * element_bits(query.data_type) // 8
        batch, rows, heads, size = query.sizes
        own = Range(Source.TEMPORARY, 0, 0, -(-nbytes // 4) * 4)
        temporary_bytes = aligned(nbytes)
        made = Rows(own, 0, (rows * heads * size, heads * size, size, 1))
        counts = (batch, heads, rows, size)
        before.append(made_rows(caps, y.data_type, counts, rows, made, new=q, lengths=lengths, turning=turning))
        q = made
    cache: list[Rows] = []
    for name, new, past, where in (("key", _K, _PAST_K, _CACHE_K), ("value", _V, _PAST_V, _CACHE_V)):
        target = desc.tensor(f"cache_{name}_tensor")
        old: TensorDesc | None = getattr(desc, f"past_{name}_tensor")
        cache.append(_by_head(where, target))
        counts = (sizes.batch, sizes.key_heads, sizes.total, target.sizes[3])
        launch = made_rows(
            caps,
            y.data_type,
            counts,
            sizes.new,
            cache[-1],
            new=_rows(new, desc.tensor(f"{name}_tensor")),
            old=None if old is None else _by_head(past, old),
            append=old is None,
            most_past=_most_past(desc),
            lengths=lengths,
            turning=turning if name == "key" else None,
        )
        before.append(launch)
    return Operands(
        data_type=y.data_type,
        sizes=sizes,
        q=q,
        k=cache[0],
        v=cache[1],
        y=_rows(_Y, y),
        keys=sizes.total,
        q_bias=False,
        kv_bias=False,
        before=tuple(before),
        temporary_bytes=temporary_bytes,
        around=_around(desc),
    )


def _problem(desc: CachedAttention) -> CachedProblem:
    operands = _operands(desc, Capabilities())
    elements, sizes = WORD_BITS // element_bits(operands.data_type), operands.sizes
    return CachedProblem(
        **problem_fields(operands),
        in_place=desc.past_key_tensor is None,
        cache_words=sizes.head_size % elements == 0
        and sizes.value_head_size % elements == 0
        and operands.k.in_groups(elements)
        and operands.v.in_groups(elements),
    )


def _parts_together(problem: CachedProblem, shape: StepShape, caps: Capabilities) -> int:
    """The parts that the last workgroup brings together at once: fewer, where each of its invocations has several pairs of
    results, for which it would need more registers."""
    elements = shape.lanes * shape.value_chunks * WORD_BITS // problem.bits
    pairs = -(-problem.rows * elements // (2 * shape.invocations))
    most = min(parts_together(caps) // power_of_two(pairs), caps.least_subgroup, shape.invocations // problem.rows)
    return 1 << (max(most, 1).bit_length() - 1)


def _step(desc: CachedAttention, problem: CachedProblem, caps: Capabilities) -> Plan:
    shape, turning, operands = step_shape(problem, caps), _turning(desc), _operands(desc, caps)
    part_keys = shape.keys * shape.invocations // shape.lanes
    # A workgroup for each processor: on an H100 (2026-11-26) 576 keys of 16 sequences of 8 heads take 37 us in one part, 43
    # in three before they are brought together; 3,000 keys of one sequence 19 in 16 parts, 22 in 65.
    wanted = caps.model.processors // problem.heads if problem.heads <= COUNTERS else 1
    tiles = -(-problem.keys // part_keys)
    number = max(min(wanted, tiles), 1)
    part_tiles = -(-tiles // number)
    check_rounds(part_tiles * 2 * shape.keys, caps, desc.dml_name)
    rows = number * problem.heads * problem.rows
    where = Range(Source.TEMPORARY, 0, 0, 4 * rows * (problem.value_size + 2) if number > 1 else 0)
    parts = Parts(number, part_tiles, where, rows * problem.value_size)
    new_k, new_v = desc.tensor("key_tensor"), desc.tensor("value_tensor")
    constants: dict[str, Any] = {
        **operands.around.constants,
        **turning.constants,
        "GROUP": problem.group,
        "LOCAL_SIZE_X": shape.invocations,
        "LANES": shape.lanes,
        "ROWS": problem.rows,
        "NEW_ROWS": problem.queries,
        "KEYS": shape.keys,
        "TOGETHER": shape.together,
        "HEAD_CHUNKS": shape.head_chunks,
        "VALUE_CHUNKS": shape.value_chunks,
        "SPLIT": int(number > 1),
        "PARTS_TOGETHER": _parts_together(problem, shape, caps),
    }
    dispatch = make_dispatch(
        "attention_step",
        (
            *(_Q, _CACHE_K, _CACHE_V, *operands.around.bindings, _Y, _K, _V, *turning.bindings),
            where if number > 1 else _Y,
            counters(problem.heads) if number > 1 else _Y,
        ),
        (number, problem.heads, 1),
        variant={"T": operands.data_type.name},
        constants=constants,
        **{
            **shared_params(problem, operands),
            "q_start": 0,
            "q_strides": desc.tensor("query_tensor").effective_strides,
        },
        **turning.params,
        new_k_strides=new_k.effective_strides,
        new_v_strides=new_v.effective_strides,
        parts=number,
        part_keys=part_keys,
        summaries=parts.summaries,
    )
    return Plan((dispatch,), temporary_bytes=aligned(where.nbytes))


register(
    CachedAttention,
    problem=_problem,
    rules=CACHED_ATTENTION,
    schedules={"step": _step, **schedules(_operands)},
    limitations=(LOOP_ROUNDS,),
)
