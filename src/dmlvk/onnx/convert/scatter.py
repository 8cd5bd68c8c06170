"""Copies of a tensor in which a tensor of indices says what is replaced, or what something is added to and the like.

Where ONNX leaves the order of updates open, the last one of those for one place counts; an update with an index out of
range, which ONNX forbids, is dropped. DirectML's scatters only replace. Where updates are to be added, multiplied or
compared, those of one place are brought together first: sorted by their places, then joined by twos, fours and so on as
far as they are for one place (a segmented scan of log2(updates) rounds), so that the last of each place holds all of
them. It is joined with what stood there, and replaces it. No atomic decides an order: the same bits every time. Each
round moves the updates about 10 times, which is far more than a kernel with atomics would move; indices that are known
before the run are sorted then, and take no more rounds than their repetitions need.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from dmlvk.onnx.conversion import Conversion
from dmlvk.onnx.convert.cast import cast_to
from dmlvk.onnx.convert.sampling import split
from dmlvk.onnx.model import Array, Node, data_type_of
from dmlvk.onnx.node_facts import NodeFacts
from dmlvk.onnx.registry import converts
from dmlvk.onnx.values import Value
from dmlvk.spec import ops
from dmlvk.spec.enums import AxisDirection, PaddingMode, TensorDataType
from dmlvk.spec.schema import NUMERIC, OperatorDesc

_ANY = (TensorDataType.FLOAT64, *NUMERIC)
_BOOL, _INT = np.dtype(np.bool_), np.dtype(np.int32)

_REDUCTIONS: dict[str, type[OperatorDesc]] = {
    "add": ops.ElementWiseAdd,
    "mul": ops.ElementWiseMultiply,
    "max": ops.ElementWiseMax,
    "min": ops.ElementWiseMin,
}


def _refuse_scatter(node: NodeFacts) -> None:
    reduction = node.attribute("reduction", "none")
    if reduction != "none":
        node.takes(0, NUMERIC, f"reduction {reduction!r} takes")


def _replaces(node: Node) -> bool:
    return bool(node.attributes.get("reduction", "none") == "none")


@converts("Scatter", 9, types=_ANY, moves=_replaces)
@converts("ScatterElements", 11, 13, 16, 18, types=_ANY, check=_refuse_scatter, moves=_replaces)
def scatter_elements(node: Conversion) -> Value:
    """Along the other axes there may be fewer indices than elements."""
    x, indices, updates = node[0], node[1], node[2]
    axis = node.axis(node.attribute("axis", 0), x.rank)
    if indices.rank != x.rank or any(
        own < wanted for at, (own, wanted) in enumerate(zip(x.sizes, indices.sizes, strict=True)) if at != axis
    ):
        rule = f"the sizes of the indices must be at most those of the input, {x.sizes}, except along axis {axis}"
        raise node.invalid(rule, indices.sizes)
    if updates.sizes != indices.sizes:
        raise node.invalid("the updates must have the sizes of the indices", updates.sizes, indices.sizes)
    if 0 in indices.sizes:
        return x
    row = _reduction(node)
    if row is not None:
        places = _places(node, (x.sizes[axis],))
        return _joined(node, x, places, updates, row, axis)
    return _replaced(node, x, indices, updates, axis)


@converts("ScatterND", 11, 13, 16, 18, types=_ANY, check=_refuse_scatter, moves=_replaces)
def scatter_nd(node: Conversion) -> Value:
    """Each tuple along the last dimension of the indices chooses a block."""
    x, indices, updates = node[0], node[1], node[2]
    *array, length = indices.sizes or (0,)
    if not 1 <= length <= x.rank:
        raise node.invalid(f"the last size of the indices must be from 1 to the {x.rank} dimensions of the input", length)
    if updates.sizes != (*array, *x.sizes[length:]):
        rule = f"the updates must fit the input {x.sizes} and the indices {indices.sizes}"
        raise node.invalid(rule, updates.sizes, (*array, *x.sizes[length:]))
    if 0 in updates.sizes:
        return x
    row = _reduction(node)
    if row is not None:
        blocks, block = math.prod(x.sizes[:length]), math.prod(x.sizes[length:])
        places = _places(node, x.sizes[:length])
        shape = (math.prod(array), block)
        y = _joined(node, node.reshape(x, (blocks, block)), places, node.reshape(updates, shape), row, 0)
        return node.reshape(y, x.sizes)
    count = max(x.rank, indices.rank, updates.rank)
    values = [value.broadcast_to((*(1,) * (count - value.rank), *value.sizes)) for value in (x, indices, updates)]
    counts = {"input_dimension_count": x.rank, "indices_dimension_count": indices.rank}
    y = node.launch(ops.ScatterNd, *values, output_tensor=node.new(values[0].sizes, x.dtype), **counts)
    return node.reshape(y, x.sizes)


def _reduction(node: Conversion) -> type[OperatorDesc] | None:
    """The operator that joins an update with the element there; None if the update replaces it."""
    return _REDUCTIONS.get(node.attribute("reduction", "none"))


def _places(node: Conversion, sizes: tuple[int, ...]) -> Value | Array:
    """The indices as int32 from 0 on, those of ScatterND, which are tuples, as numbers of blocks (tuples, 1)."""
    tuples, known = node.node.op_type == "ScatterND", node.host(1)
    if math.prod(sizes) > np.iinfo(_INT).max:
        raise node.unsupported(f"the sizes {tuple(sizes)} have more elements than int32 can number")
    if known is not None:
        columns = [known[..., i].reshape(-1, 1) for i in range(len(sizes))] if tuples else [known]
        if any(((column < -size) | (column >= size)).any() for column, size in zip(columns, sizes, strict=True)):
            rule = f"indices must be inside the sizes {tuple(sizes)}; a negative one counts from the end"
            raise node.invalid(rule, [(column.min(), column.max()) for column in columns])
        columns = [np.where(column < 0, column + size, column) for column, size in zip(columns, sizes, strict=True)]
        numbers = np.ravel_multi_index(columns, sizes) if tuples else columns[0]
        return numbers.astype(_INT)
    indices = cast_to(node, node[1], _INT)
    if tuples:
        indices = node.reshape(indices, (math.prod(indices.sizes[:-1]), len(sizes)))
    total: Value | None = None
    for column, size in zip(split(node, indices, 1) if tuples else (indices,), sizes, strict=True):
        length = node.upload(np.array(size, _INT))
        negative = node.elementwise(ops.ElementWiseLogicalLessThan, column, node.upload(np.array(0, _INT)), dtype=_BOOL)
        from_the_end = node.elementwise(ops.ElementWiseAdd, column, length)
        column = node.elementwise(ops.ElementWiseIf, negative, from_the_end, column, dtype=_INT)
        if total is not None:
            column = node.elementwise(ops.ElementWiseAdd, node.elementwise(ops.ElementWiseMultiply, total, length), column)
        total = column
    assert total is not None, "an index has at least one number"
    return total


def _joined(node: Conversion, x: Value, places: Value | Array, updates: Value, row: type[OperatorDesc], axis: int) -> Value:
    """x with the updates joined to it at their places along an axis. Along the other axes, there may be fewer updates than
    elements, and one place for all of them."""
    if isinstance(places, Value):
        places, updates, same = _sorted(node, places, updates, axis)
    else:
        places, updates, same = _sorted_before(node, places, updates, axis)
    distance = 1
    while distance < updates.sizes[axis] and (follows := same(distance)) is not None:
        total = node.elementwise(row, updates, _moved_on(node, updates, axis, distance, 0))
        updates = node.elementwise(ops.ElementWiseIf, follows, total, updates, dtype=updates.dtype)
        distance *= 2
    places = places.broadcast_to(updates.sizes)
    part = _corner(x, updates, axis)
    old = node.launch(ops.GatherElements, part, places, output_tensor=node.new(updates.sizes, x.dtype), axis=axis)
    return _replaced(node, x, places, node.elementwise(row, old, updates), axis)


def _replaced(node: Conversion, x: Value, indices: Value, updates: Value, axis: int) -> Value:
    """x with updates along an axis. Where there are fewer of them along other axes, the rest is copied first."""
    part = _corner(x, updates, axis)
    y = node.new(x.sizes, x.dtype) if part.sizes == x.sizes else node.copy(x)
    node.launch(ops.ScatterElements, part, indices, updates, output_tensor=_corner(y, updates, axis), axis=axis)
    return y


def _corner(x: Value, updates: Value, axis: int) -> Value:
    """The part of x that updates along an axis can reach."""
    for at, size in enumerate(updates.sizes):
        x = x if at == axis else x.shorten(at, size)
    return x


_Same = Callable[[int], Value | None]
"""Distance -> which updates have the place of the one that far before them; None where none has."""


def _sorted(node: Conversion, places: Value, updates: Value, axis: int) -> tuple[Value, Value, _Same]:
    """Places and updates in the order of the places."""
    ordered, order = node.new(places.sizes, _INT), node.new(places.sizes, np.dtype(np.uint32))
    node.launch(
        ops.TopK1,
        places,
        output_value_tensor=ordered,
        output_index_tensor=order,
        axis=axis,
        k=places.sizes[axis],
        axis_direction=AxisDirection.INCREASING,
    )

    def same(distance: int) -> Value:
        before = _moved_on(node, ordered, axis, distance, -1)
        return node.elementwise(ops.ElementWiseLogicalEquals, ordered, before, dtype=_BOOL)

    return ordered, _picked(node, updates, order, axis), same


def _sorted_before(node: Conversion, places: Array, updates: Value, axis: int) -> tuple[Value, Value, _Same]:
    """``_sorted`` for places that are known."""
    order = np.argsort(places, axis, kind="stable")
    ordered = np.take_along_axis(places, order, axis)
    count = places.shape[axis]

    def same(distance: int) -> Value | None:
        follows = np.zeros(places.shape, np.bool_)
        later, earlier = (np.take(ordered, numbers, axis) for numbers in (range(distance, count), range(count - distance)))
        np.moveaxis(follows, axis, 0)[distance:] = np.moveaxis(later == earlier, axis, 0)
        return node.upload(follows) if follows.any() else None

    if (order == np.arange(count).reshape([-1 if at == axis else 1 for at in range(places.ndim)])).all():
        return node.upload(ordered), updates, same
    return node.upload(ordered), _picked(node, updates, node.upload(order.astype(np.uint32)), axis), same


def _picked(node: Conversion, updates: Value, order: Value, axis: int) -> Value:
    order = order.broadcast_to(updates.sizes)
    return node.launch(ops.GatherElements, updates, order, output_tensor=node.new(updates.sizes, updates.dtype), axis=axis)


def _moved_on(node: Conversion, values: Value, axis: int, distance: int, first: int) -> Value:
    """The values a distance further along an axis, with a number before them."""
    padding = [0] * values.rank
    padding[axis] = distance
    return node.launch(
        ops.Padding1,
        values.shorten(axis, values.sizes[axis] - distance),
        output_tensor=node.new(values.sizes, values.dtype),
        padding_mode=PaddingMode.CONSTANT,
        padding_value_data_type=data_type_of(values.dtype),
        padding_value=first,
        start_padding=tuple(padding),
        end_padding=(0,) * values.rank,
    )
