"""Updates joined to what stands at their places: added, multiplied or compared.

DirectML's scatters only replace. Where updates are to be joined, those of one place are brought together first: sorted by
their places, then joined by twos, fours and so on as far as they are for one place (a segmented scan of log2(updates)
rounds), so that the last of each place holds all of them. It is joined with what stood there, and replaces it. No atomic
decides an order: the same bits every time. Each round moves the updates about 10 times, which is far more than a kernel with
atomics would move. Places that are known before the run are sorted then, and take no more rounds than they need.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import numpy as np

from dmlvk.engine.launches import Launches
from dmlvk.engine.transfer import Array
from dmlvk.engine.values import Value
from dmlvk.spec import ops
from dmlvk.spec.enums import AxisDirection, PaddingMode
from dmlvk.spec.schema import OperatorDesc

V = TypeVar("V", bound=Value)
_BOOL, _INT = np.dtype(np.bool_), np.dtype(np.int32)


def joined(node: Launches[V], x: V, places: V | Array, updates: V, row: type[OperatorDesc], axis: int) -> V:
    """x with the updates joined to it at their places along an axis. Along the other axes, there may be fewer updates than
    elements, and one place for all of them.

    Args:
        node: What launches it.
        x, updates: Values of one type.
        places: Places along the axis, of int32, from 0 on.
        row: The operator that joins two elements.
        axis: The axis.
    """
    if isinstance(places, np.ndarray):
        ordered, updates, same = _sorted_before(node, places, updates, axis)
    else:
        ordered, updates, same = _sorted(node, places, updates, axis)
    distance = 1
    while distance < updates.sizes[axis] and (follows := same(distance)) is not None:
        total = node.elementwise(row, updates, _moved_on(node, updates, axis, distance, 0))
        updates = node.elementwise(ops.ElementWiseIf, follows, total, updates, dtype=updates.dtype)
        distance *= 2
    ordered = ordered.broadcast_to(updates.sizes)
    part = _corner(x, updates, axis)
    old = node.launch(ops.GatherElements, part, ordered, output_tensor=node.new(updates.sizes, x.dtype), axis=axis)
    return replaced(node, x, ordered, node.elementwise(row, old, updates), axis)


def replaced(node: Launches[V], x: V, places: V, updates: V, axis: int) -> V:
    """x with updates along an axis. Where there are fewer of them along other axes, the rest is copied first. Of several
    updates of one place the last counts."""
    part = _corner(x, updates, axis)
    y = node.new(x.sizes, x.dtype) if part.sizes == x.sizes else node.copy(x)
    node.launch(ops.ScatterElements, part, places, updates, output_tensor=_corner(y, updates, axis), axis=axis)
    return y


def _corner(x: V, updates: V, axis: int) -> V:
    """The part of x that updates along an axis can reach."""
    for at, size in enumerate(updates.sizes):
        x = x if at == axis else x.shorten(at, size)
    return x


def _sorted(node: Launches[V], places: V, updates: V, axis: int) -> tuple[V, V, Callable[[int], V | None]]:
    """Places and updates in the order of the places, and which updates have the place of the one that far before them."""
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

    def same(distance: int) -> V | None:
        before = _moved_on(node, ordered, axis, distance, -1)
        return node.elementwise(ops.ElementWiseLogicalEquals, ordered, before, dtype=_BOOL)

    return ordered, _picked(node, updates, order, axis), same


def _sorted_before(node: Launches[V], places: Array, updates: V, axis: int) -> tuple[V, V, Callable[[int], V | None]]:
    """``_sorted`` for places that are known; None where no update has the place of another that far before it."""
    order = np.argsort(places, axis, kind="stable")
    ordered = np.take_along_axis(places, order, axis)
    count = places.shape[axis]

    def same(distance: int) -> V | None:
        follows = np.zeros(places.shape, np.bool_)
        later, earlier = (np.take(ordered, numbers, axis) for numbers in (range(distance, count), range(count - distance)))
        np.moveaxis(follows, axis, 0)[distance:] = np.moveaxis(later == earlier, axis, 0)
        return node.upload(follows) if follows.any() else None

    if (order == np.arange(count).reshape([-1 if at == axis else 1 for at in range(places.ndim)])).all():
        return node.upload(ordered), updates, same
    return node.upload(ordered), _picked(node, updates, node.upload(order.astype(np.uint32)), axis), same


def _picked(node: Launches[V], updates: V, order: V, axis: int) -> V:
    order = order.broadcast_to(updates.sizes)
    return node.launch(ops.GatherElements, updates, order, output_tensor=node.new(updates.sizes, updates.dtype), axis=axis)


def _moved_on(node: Launches[V], values: V, axis: int, distance: int, first: int) -> V:
    """The values a distance further along an axis, with a number before them."""
    padding = [0] * values.rank
    padding[axis] = distance
    return node.launch(
        ops.Padding1,
        values.shorten(axis, values.sizes[axis] - distance),
        output_tensor=node.new(values.sizes, values.dtype),
        padding_mode=PaddingMode.CONSTANT,
        padding_value_data_type=values.data_type,
        padding_value=first,
        start_padding=tuple(padding),
        end_padding=(0,) * values.rank,
    )
