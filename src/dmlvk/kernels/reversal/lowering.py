"""Plans of reversed subsequences: rows of the output come from the input, in another order along one axis."""

from __future__ import annotations

import dataclasses
import math

from dmlvk.devices.capabilities import Capabilities
from dmlvk.kernels.common.plan import Plan, input_range, output_range
from dmlvk.kernels.common.registry import register
from dmlvk.kernels.common.shapes import WORD_BITS, Coalesced, coalesce, divisors
from dmlvk.kernels.copy.lowering import RowUnits, rows_dispatch
from dmlvk.kernels.reversal.rules import REVERSAL, ReversalProblem
from dmlvk.spec.ops.movement import ReverseSubsequences
from dmlvk.spec.tensor import element_bits

_INDEX_BITS = 32


def _problem(desc: ReverseSubsequences) -> ReversalProblem:
    x, lengths = desc.tensor("input_tensor"), desc.tensor("sequence_lengths_tensor")
    # The axis has one length for all of it.
    length_steps = tuple(0 if axis == desc.axis else step for axis, step in enumerate(lengths.effective_strides))
    steps = (x.effective_strides, desc.tensor("output_tensor").effective_strides, length_steps)
    order = sorted(range(x.dimension_count), key=lambda axis: -steps[1][axis])
    place = order.index(desc.axis)
    outside, inside = (
        coalesce([x.sizes[axis] for axis in part], [[own[axis] for axis in part] for own in steps])
        for part in (order[:place], order[place + 1 :])
    )
    along = Coalesced((x.sizes[desc.axis],), tuple((own[desc.axis],) for own in steps))
    size, (x_step, output_step, length_step) = inside.sizes[-1], (own[-1] for own in inside.strides)
    rows = size > 1 and length_step == 0
    if rows:
        inside = Coalesced(inside.sizes[:-1], tuple(own[:-1] for own in inside.strides))
    parts = [part for part in (outside, along, inside) if part is along or math.prod(part.sizes) > 1]
    walk = Coalesced(
        tuple(own for part in parts for own in part.sizes),
        tuple(tuple(step for part in parts for step in part.strides[tensor]) for tensor in range(3)),
    )
    problem = ReversalProblem(
        element_bits(x.data_type),
        walk,
        len(outside.sizes) if parts[0] is outside else 0,
        size if rows else 1,
        (x_step, output_step) if rows else (1, 1),
    )
    while problem.bits < WORD_BITS and problem.is_even:
        problem = _rescaled(problem, 2, 1)
    return problem


def _rescaled(problem: ReversalProblem, wider: int, narrower: int) -> ReversalProblem:
    """The problem in units that are ``wider`` times as large, or ``narrower`` times as small; rows are contiguous."""

    def scaled(number: int) -> int:
        return number * narrower // wider

    x, output, lengths = problem.walk.strides
    walk = Coalesced(problem.walk.sizes, (tuple(map(scaled, x)), tuple(map(scaled, output)), lengths))
    return dataclasses.replace(problem, bits=problem.bits * wider // narrower, walk=walk, size=scaled(problem.size))


def _rows(desc: ReverseSubsequences, problem: ReversalProblem, caps: Capabilities) -> Plan:
    if problem.bits > 32:
        problem = _rescaled(problem, 1, problem.bits // 32)
    return _plan(desc, problem, caps, in_words=True)


def _units(desc: ReverseSubsequences, problem: ReversalProblem, caps: Capabilities) -> Plan:
    return _plan(desc, problem, caps, in_words=False)


def _plan(desc: ReverseSubsequences, problem: ReversalProblem, caps: Capabilities, *, in_words: bool) -> Plan:
    words = element_bits(desc.tensor("sequence_lengths_tensor").data_type) // _INDEX_BITS
    sizes = problem.walk.sizes
    x, output, lengths = problem.walk.strides
    dispatch = rows_dispatch(
        "reverse_subsequences",
        RowUnits(problem.bits, math.prod(sizes), problem.size, *problem.steps),
        (input_range(1), input_range(0), output_range()),
        caps,
        in_words=in_words,
        packed=in_words and problem.output_is_packed,
        constants={"RANK": len(sizes), "AXIS": problem.axis, "LENGTH_WORDS": words},
        params={
            "sizes": sizes,
            "divisors": divisors(sizes),
            "x_strides": tuple(step % 2**32 for step in x),
            "output_strides": tuple(step % 2**32 for step in output),
            "length_strides": tuple(step * words for step in lengths),
        },
    )
    return Plan((dispatch,))


register(ReverseSubsequences, problem=_problem, rules=REVERSAL, schedules={"rows": _rows, "units": _units})
