"""Rotary embedding, as frameworks export it in slices, a negation, a concatenation and arithmetic, becomes one step."""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from dmlvk.graph.passes.copies import Window, windows_of
from dmlvk.graph.passes.match import Operand, computed_by, operand, pairs
from dmlvk.graph.step import Place, Step
from dmlvk.graph.step_graph import StepGraph
from dmlvk.graph.views import same_elements, view_of
from dmlvk.spec import ops
from dmlvk.spec.ops.rotary import RotaryEmbedding
from dmlvk.spec.schema import FLOATS
from dmlvk.spec.tensor import TensorDesc, element_bits

_DEEPEST: Final = 3
"""The most operators between a concatenation and a table: a cosine, a cast, a scale."""


class _Turn(NamedTuple):
    """A tensor whose heads are turned.

    Attributes:
        x: The tensor {batch, heads, rows, head size}, or with heads and rows the other way round.
        cosines, sines: The tables, repeated along the heads, in which each number stands twice.
        interleaved: Whether the two elements of a pair are neighbours.
        last: The step that writes the result.
    """

    x: Operand
    cosines: Operand
    sines: Operand
    interleaved: bool
    last: Step


def recognise_rotary(graph: StepGraph) -> None:
    """x * cosines + (the halves of x or their pairs, the second negated and first) * sines becomes a RotaryEmbedding.

    So does what turns the first elements of each head and joins the others to them.
    """
    for step in graph.steps:
        turn = _turn(graph, step) if step in graph and isinstance(step.desc, ops.ElementWiseAdd) else None
        made = None if turn is None else _made(graph, _with_rest(graph, turn), turn)
        if turn is not None and made is not None:
            graph.replace((_with_rest(graph, turn).last,), made)


def _turn(graph: StepGraph, addition: Step) -> _Turn | None:
    for plain, turned in pairs(addition):
        one, other = computed_by(graph, plain), computed_by(graph, turned)
        if one is None or other is None:
            return None
        if not isinstance(one.desc, ops.ElementWiseMultiply) or not isinstance(other.desc, ops.ElementWiseMultiply):
            return None
        for half, sines in pairs(other):
            for x, cosines in pairs(one):
                interleaved = _interleaved(graph, half, x)
                if interleaved is not None:
                    return _Turn(x, cosines, sines, interleaved, addition)
    return None


def _interleaved(graph: StepGraph, part: Operand, x: Operand) -> bool | None:
    """Whether an operand is x with the elements of each pair exchanged and the first of them negated, pairs being neighbours
    (True) or as far apart as there are pairs (False); None if it is not."""
    join = graph.writer(part.storage)
    if join is None or not isinstance(join.desc, ops.Join) or len(join.inputs) != 2 or x.tensor.dimension_count != 4:
        return None
    output, size = join.desc.tensor("output_tensor"), x.tensor.sizes[3]
    if join.desc.axis != output.dimension_count - 1 or not same_elements(output, part.tensor):
        return None
    first, second = (Operand(*pair) for pair in zip(join.inputs, join.desc.input_tensors, strict=True))
    negate = graph.writer(first.storage)
    if negate is None or not isinstance(negate.desc, ops.ElementWiseNegate):
        return None
    if not same_elements(negate.desc.tensor("output_tensor"), first.tensor):
        return None
    halves = _windows(graph, second), _windows(graph, operand(negate, "input_tensor"))
    for interleaved, last, width in ((False, size // 2, size // 2), (True, 1, 1)):
        if size % 2 == 0 and first.tensor.sizes[-1] == second.tensor.sizes[-1] == width:
            view = view_of(x.tensor).shortened(3, size // 2)
            step = view.strides[3]
            wanted = TensorDesc(x.tensor.data_type, view.sizes, (*view.strides[:3], step * (2 if interleaved else 1)))
            offsets = (0, last * step * element_bits(x.tensor.data_type) // 8)
            if all(
                any(window.place == (x.storage, offset) and same_elements(window.tensor, wanted) for window in windows)
                for windows, offset in zip(halves, offsets, strict=True)
            ):
                return interleaved
    return None


def _windows(graph: StepGraph, part: Operand) -> list[Window]:
    """An operand as the window that it is of its storage, and as that of another of which it is a copy."""
    assert part.storage is not None, "the caller has it of a step's tensor"
    found = [Window(Place(part.storage, 0), part.tensor)]
    copy = graph.writer(part.storage)
    windows = None if copy is None else windows_of(copy)
    if copy is not None and windows is not None:
        place = copy.outputs.index(part.storage)
        written = copy.desc.output_slots()[place].tensor
        if written is not None and same_elements(written, part.tensor):
            found.append(windows[place])
    return found


def _with_rest(graph: StepGraph, turn: _Turn) -> _Turn:
    """The turn with the elements of each head that are not turned and are only joined to it; the turn itself without."""
    join = graph.only_reader(turn.last.outputs[0])
    if join is None or not isinstance(join.desc, ops.Join) or len(join.inputs) != 2 or join.desc.axis != 3:
        return turn
    turned, rest = (Operand(*pair) for pair in zip(join.inputs, join.desc.input_tensors, strict=True))
    if turned != operand(turn.last, "output_tensor") or rest.tensor.sizes[:3] != turned.tensor.sizes[:3]:
        return turn
    for first in _windows(graph, turn.x):
        strides = first.tensor.effective_strides
        behind = Place(first.place.storage, turned.tensor.sizes[3] * strides[3] * element_bits(turned.tensor.data_type) // 8)
        lies_so = TensorDesc(rest.tensor.data_type, rest.tensor.sizes, strides)
        follows = (second.place == behind and same_elements(second.tensor, lies_so) for second in _windows(graph, rest))
        if first.place.offset == 0 and any(follows):
            whole = TensorDesc(turned.tensor.data_type, join.desc.tensor("output_tensor").sizes, strides)
            return turn._replace(x=Operand(first.place.storage, whole), last=join)
    return turn


def _made(graph: StepGraph, whole: _Turn, turn: _Turn) -> Step | None:
    """The step of a turn, given with and without the rest of each head; None where its tables are no tables of rows."""
    if whole.x.tensor.data_type not in FLOATS:
        return None
    tables = turn.cosines, turn.sines
    heads = next((axis for axis in (1, 2) if all(part.tensor.effective_strides[axis] == 0 for part in tables)), None)
    if heads is None or not all(_each_twice(graph, part, interleaved=turn.interleaved) for part in tables):
        return None
    order = (0, 3 - heads, heads, 3)
    repeats = all(part.tensor.effective_strides[0] == 0 for part in tables)
    cosines, sines = (_table(part.tensor, 3 - heads, turn.interleaved, repeats=repeats) for part in tables)
    x, result = whole.x.tensor, whole.last.desc.tensor("output_tensor")
    desc = RotaryEmbedding(
        input_tensor=view_of(x).transposed(order).desc(x),
        cosines_tensor=cosines,
        sines_tensor=sines,
        output_tensor=view_of(result).transposed(order).desc(result),
        interleaved=turn.interleaved,
    )
    storages = {
        "input_tensor": whole.x.storage,
        "cosines_tensor": turn.cosines.storage,
        "sines_tensor": turn.sines.storage,
        "output_tensor": whole.last.outputs[0],
    }
    return Step.of(turn.last.origin, desc, storages)


def _table(tensor: TensorDesc, rows: int, interleaved: bool, *, repeats: bool) -> TensorDesc:
    """{1 or batch, rows, pairs} of a table that is repeated along the heads, and has each number twice."""
    sizes, strides = tensor.sizes, tensor.effective_strides
    each = 2 if interleaved else 1
    chosen = (1 if repeats else sizes[0], sizes[rows], sizes[3] // 2), (strides[0], strides[rows], strides[3] * each)
    return TensorDesc(tensor.data_type, *chosen)


def _each_twice(graph: StepGraph, part: Operand, *, interleaved: bool, depth: int = _DEEPEST) -> bool:
    """Whether both elements of each pair of a table are the same number: a constant's, or what is computed of a
    concatenation of one tensor with itself, element by element."""
    *sizes, size = part.tensor.sizes
    *strides, last = part.tensor.effective_strides
    once = (*(own if stride else 1 for own, stride in zip(sizes, strides, strict=True)), size)
    values = graph.constant(part.storage, TensorDesc(part.tensor.data_type, once, (*strides, last)))
    if values is not None:
        half = size // 2
        both = (values[..., ::2], values[..., 1::2]) if interleaved else (values[..., :half], values[..., half:])
        return bool(np.array_equal(*both))
    writer = graph.writer(part.storage)
    if writer is None or interleaved or last != 1 or any(stride % size for stride in strides):
        return False
    output = writer.desc.output_slots()[0].tensor
    if output is None or output.sizes[-1] != size or not view_of(output).is_packed:
        return False
    inputs = [
        Operand(storage, slot.tensor)
        for storage, slot in zip(writer.inputs, writer.desc.input_slots(), strict=True)
        if slot.tensor is not None
    ]
    if isinstance(writer.desc, ops.Join):
        return writer.desc.axis == output.dimension_count - 1 and len(inputs) == 2 and inputs[0] == inputs[1]
    return (
        depth > 0
        and writer.desc.traits.pointwise
        and all(
            graph.number(*other) is not None or _each_twice(graph, other, interleaved=interleaved, depth=depth - 1)
            for other in inputs
        )
    )
