"""Plans of gathers: each operator says which dimensions of its tensors belong together; the kernel is common."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from dmlvk.devices.capabilities import Capabilities
from dmlvk.kernels.common.limitation import STORAGE_BINDING
from dmlvk.kernels.common.plan import Dispatch, Plan, Range, Source, input_range, output_range
from dmlvk.kernels.common.registry import register
from dmlvk.kernels.common.shapes import WORD_BITS, Coalesced, coalesce, divisors, part_starts
from dmlvk.kernels.copy.lowering import RowUnits, rows_dispatch
from dmlvk.kernels.gather.rules import GATHER, ChosenDimension, GatherProblem
from dmlvk.spec.ops.gather import Gather, GatherElements, GatherNd1
from dmlvk.spec.schema import OperatorDesc
from dmlvk.spec.tensor import TensorDesc, element_bits

_INDEX_BITS = 32
_ALL = (0, 2**32 - 1)
"""The window that is all of an input."""


class _Dimension(NamedTuple):
    """A dimension of the output, with the strides in elements of what lies along it."""

    size: int
    x: int = 0
    indices: int = 0


def _along(tensor: TensorDesc, name: str) -> list[_Dimension]:
    """The dimensions of the input ("x") or of the indices as dimensions of the output."""
    return [_Dimension(size, **{name: step}) for size, step in zip(tensor.sizes, tensor.effective_strides, strict=True)]


def _problem(
    desc: OperatorDesc, dimensions: Sequence[_Dimension], axes: Iterable[int], index_step: int = 0
) -> GatherProblem:
    """The problem of an output whose last dimensions these are; those that it has before them, or that they have before
    its own, are 1. ``axes`` of the input are indexed."""
    x, output = desc.tensor("input_tensor"), desc.tensor("output_tensor")
    kept = list(zip(reversed(dimensions), reversed(output.effective_strides), strict=False))
    kept.sort(key=lambda pair: -pair[1])
    walk = coalesce(
        [own.size for own, _ in kept],
        [[own.x for own, _ in kept], [own.indices for own, _ in kept], [step for _, step in kept]],
    )
    steps = x.effective_strides
    chosen = tuple(ChosenDimension(x.sizes[axis], steps[axis] if x.sizes[axis] > 1 else 0) for axis in axes)
    problem = _with_rows(x, walk, chosen, index_step)
    while problem.bits < WORD_BITS and problem.is_even:
        problem = _rescaled(problem, 2, 1)
    return problem


def _with_rows(tensor: TensorDesc, walk: Coalesced, chosen: tuple[ChosenDimension, ...], index_step: int) -> GatherProblem:
    """The innermost dimension is that of the rows, unless each of its elements has indices of its own."""
    bits, nbytes = element_bits(tensor.data_type), tensor.total_tensor_size_in_bytes
    x, indices, output = walk.strides
    if walk.sizes == (1,):
        return GatherProblem(bits, Coalesced((1,), ((0,),) * 3), 1, (1, 1), chosen, index_step, nbytes)
    if indices[-1] != 0:
        return GatherProblem(bits, walk, 1, (1, 1), chosen, index_step, nbytes)
    rows = Coalesced(walk.sizes[:-1], (x[:-1], indices[:-1], output[:-1]))
    if not rows.sizes:
        rows = Coalesced((1,), ((0,),) * 3)
    return GatherProblem(bits, rows, walk.sizes[-1], (x[-1], output[-1]), chosen, index_step, nbytes)


def _rescaled(problem: GatherProblem, wider: int, narrower: int) -> GatherProblem:
    """The problem in units that are ``wider`` times as large, or ``narrower`` times as small; rows are contiguous."""

    def scaled(number: int) -> int:
        return number * narrower // wider

    x, indices, output = problem.rows.strides
    return dataclasses.replace(
        problem,
        bits=problem.bits * wider // narrower,
        rows=Coalesced(problem.rows.sizes, (tuple(map(scaled, x)), indices, tuple(map(scaled, output)))),
        size=scaled(problem.size),
        chosen=tuple(own._replace(stride=scaled(own.stride)) for own in problem.chosen),
    )


def _gather(desc: Gather) -> GatherProblem:
    inputs = _along(desc.tensor("input_tensor"), "x")
    indices = _along(desc.tensor("indices_tensor"), "indices")
    meant = indices[len(indices) - desc.index_dimensions :]
    return _problem(desc, [*inputs[: desc.axis], *meant, *inputs[desc.axis + 1 :]], [desc.axis])


def _gather_elements(desc: GatherElements) -> GatherProblem:
    inputs = _along(desc.tensor("input_tensor"), "x")
    dimensions = [
        own._replace(x=0 if axis == desc.axis else inputs[axis].x)
        for axis, own in enumerate(_along(desc.tensor("indices_tensor"), "indices"))
    ]
    return _problem(desc, dimensions, [desc.axis])


def _gather_nd1(desc: GatherNd1) -> GatherProblem:
    inputs = _along(desc.tensor("input_tensor"), "x")
    indices = _along(desc.tensor("indices_tensor"), "indices")
    first = len(inputs) - desc.input_dimension_count + desc.batch_dimension_count
    batches = inputs[first - desc.batch_dimension_count : first]
    *array, indexed = indices[len(indices) - desc.indices_dimension_count :]
    last = first + indexed.size
    shared = [own._replace(x=batch.x) for own, batch in zip(array, batches, strict=False)]
    dimensions = [*shared, *array[len(shared) :], *inputs[last:]]
    return _problem(desc, dimensions, range(first, last), indexed.indices)


def _dispatch(
    desc: OperatorDesc,
    problem: GatherProblem,
    caps: Capabilities,
    x_range: Range,
    window: tuple[int, int],
    *,
    in_words: bool,
) -> Dispatch:
    index_type = desc.tensor("indices_tensor").data_type
    words = element_bits(index_type) // _INDEX_BITS
    x, indices, output = problem.rows.strides
    sizes = problem.rows.sizes
    return rows_dispatch(
        "gather",
        RowUnits(problem.bits, math.prod(sizes), problem.size, *problem.steps),
        (x_range, input_range(1), output_range()),
        caps,
        in_words=in_words,
        packed=problem.output_is_packed,
        constants={
            "WINDOWED": int(window != _ALL),
            "RANK": len(sizes),
            "TUPLE": len(problem.chosen),
            "INDEX_WORDS": words,
            "INDEX_SIGNED": int(not index_type.name.startswith("UINT")),
        },
        params={
            "sizes": sizes,
            "divisors": divisors(sizes),
            "x_strides": x,
            "index_strides": tuple(step * words for step in indices),
            "output_strides": output,
            "index_step": problem.index_step * words,
            "chosen_sizes": tuple(own.size for own in problem.chosen),
            "chosen_strides": tuple(own.stride for own in problem.chosen),
            "window": window,
        },
    )


def _rows(desc: OperatorDesc, problem: GatherProblem, caps: Capabilities) -> Plan:
    if problem.bits > 32:
        problem = _rescaled(problem, 1, problem.bits // 32)
    return Plan((_dispatch(desc, problem, caps, input_range(0), _ALL, in_words=True),))


def _units(desc: OperatorDesc, problem: GatherProblem, caps: Capabilities) -> Plan:
    """One dispatch, or one for each window of an input that no binding holds."""
    total = problem.input_bytes
    if total <= caps.storage_buffer_bytes:
        return Plan((_dispatch(desc, problem, caps, input_range(0), _ALL, in_words=False),))
    if total * 8 // problem.bits > 2**32:
        found = f"reads a tensor that reaches over {total * 8 // problem.bits} elements, and kernels count 2**32"
        raise STORAGE_BINDING.error(found, desc.dml_name)
    each = caps.storage_buffer_bytes * 8 // WORD_BITS * WORD_BITS // 8
    dispatches = []
    for first in part_starts(total, each):
        nbytes = min(each, total - first)
        window = (first * 8 // problem.bits, nbytes * 8 // problem.bits)
        x_range = Range(Source.INPUT, 0, first, nbytes)
        dispatches.append(_dispatch(desc, problem, caps, x_range, window, in_words=False))
    return Plan(tuple(dispatches))


_WINDOWED = frozenset({"input_tensor"})
_SCHEDULES = {"rows": _rows, "units": _units}
register(Gather, problem=_gather, rules=GATHER, schedules=_SCHEDULES, any_size=_WINDOWED)
register(GatherElements, problem=_gather_elements, rules=GATHER, schedules=_SCHEDULES, any_size=_WINDOWED)
register(GatherNd1, problem=_gather_nd1, rules=GATHER, schedules=_SCHEDULES, any_size=_WINDOWED)
