"""Plans for linear attention."""

from __future__ import annotations

import math

from dmlvk.devices.capabilities import Capabilities
from dmlvk.kernels.common.dispatch import make_dispatch
from dmlvk.kernels.common.plan import Dispatch, Plan, Range, input_range, output_range
from dmlvk.kernels.common.registry import register, subgroup_features
from dmlvk.kernels.common.shapes import linear_grid, most_invocations
from dmlvk.kernels.linear_attention.rules import LINEAR_ATTENTION, LinearAttentionProblem
from dmlvk.spec.ops.linear_attention import LinearAttention
from dmlvk.spec.tensor import TensorDesc

_Q, _K, _V, _PAST, _DECAY, _RATE = map(input_range, range(6))
_Y, _STATE = map(output_range, range(2))
_CPU_ROUNDS = 2**14
"""Rounds of loops of one dispatch on a CPU, whose driver ends them after four times as many."""


def _problem(desc: LinearAttention) -> LinearAttentionProblem:
    batch, rows, heads, size = desc.tensor("key_tensor").sizes
    group = desc.tensor("query_tensor").sizes[2] // heads
    return LinearAttentionProblem(batch * heads, rows, group, size, desc.tensor("value_tensor").sizes[3])


def _columns(desc: LinearAttention, problem: LinearAttentionProblem, caps: Capabilities) -> Plan:
    """On a CPU, rows come in parts, each of which goes on from the state that the one before it left."""
    rounds = (1 + problem.group) * (1 + int(math.log2(problem.lanes(caps))))
    rows = max(_CPU_ROUNDS // rounds, 1) if caps.is_cpu else problem.rows
    parts = range(0, problem.rows, rows)
    return Plan(tuple(_part(desc, problem, caps, first, min(first + rows, problem.rows)) for first in parts))


def _part(desc: LinearAttention, problem: LinearAttentionProblem, caps: Capabilities, first: int, end: int) -> Dispatch:
    lanes = problem.lanes(caps)
    local = max(min(128, most_invocations(caps)), lanes)
    tiles = -(-problem.value_size * lanes // local)
    state = desc.tensor("present_state_tensor")
    past, where = (state, _STATE) if first else (desc.past_state_tensor, _PAST)
    return make_dispatch(
        "linear_attention",
        (
            *(_Q, _K, _V, _Q if past is None else where),
            *(_bound(desc.decay_tensor, _DECAY), _bound(desc.rate_tensor, _RATE), _Y, _STATE),
        ),
        linear_grid(problem.heads * tiles, caps),
        variant={"T": desc.tensor("query_tensor").data_type.name, "U": state.data_type.name},
        constants={
            "LOCAL_SIZE_X": local,
            "LANES": lanes,
            "HELD": -(-problem.size // lanes),
            "HAS_PAST": past is not None,
            "HAS_DECAY": desc.decay_tensor is not None,
            "HAS_RATE": desc.rate_tensor is not None,
        },
        heads=desc.tensor("key_tensor").sizes[2],
        group=problem.group,
        size=problem.size,
        value_size=problem.value_size,
        tiles=tiles,
        workgroups=problem.heads * tiles,
        first_row=first,
        end_row=end,
        q_strides=desc.tensor("query_tensor").effective_strides,
        k_strides=desc.tensor("key_tensor").effective_strides,
        v_strides=desc.tensor("value_tensor").effective_strides,
        past_strides=_strides(past, 4),
        decay_strides=_strides(desc.decay_tensor, 4),
        y_strides=desc.tensor("output_tensor").effective_strides,
        state_strides=state.effective_strides,
        rate_strides=_strides(desc.rate_tensor, 3),
        scale=desc.scale,
    )


def _bound(tensor: TensorDesc | None, where: Range) -> Range:
    """What is bound for an optional input: some other one that is not read, where it is absent."""
    return _Q if tensor is None else where


def _strides(tensor: TensorDesc | None, count: int) -> tuple[int, ...]:
    return (0,) * count if tensor is None else tensor.effective_strides


register(
    LinearAttention,
    problem=_problem,
    rules=LINEAR_ATTENTION,
    schedules={"columns": _columns},
    features=subgroup_features,
)
