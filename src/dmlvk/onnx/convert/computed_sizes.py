"""Operators whose outputs have as many elements as there are of something, each in two halves (see ``registry.COUNTING``):
the first finds and counts them, the second makes the outputs once the host has read the count."""

from __future__ import annotations

import math

import numpy as np

from dmlvk.onnx.conversion import Conversion
from dmlvk.onnx.convert.cast import cast_to
from dmlvk.onnx.convert.gather import taken
from dmlvk.onnx.registry import COUNTING, TAKING, Result, always, converts
from dmlvk.onnx.values import Value
from dmlvk.spec import ops
from dmlvk.spec.enums import AxisDirection, ReduceFunction, TensorDataType
from dmlvk.spec.schema import NUMERIC

_COUNT = (TensorDataType.UINT32,)
_ANY = (TensorDataType.FLOAT64, *NUMERIC)
_BOOL, _UINT32, _INT64 = np.dtype(np.bool_), np.dtype(np.uint32), np.dtype(np.int64)
_MOST_KEYS = 256
"""Elements of a subtensor by which it is sorted, a launch each."""


def _nonzero(node: Conversion, x: Value) -> tuple[Result, Result]:
    """The number of elements that are not zero, and their coordinates in the first rows."""
    if 0 in x.sizes:
        return np.zeros(1, np.uint32), np.zeros((0, x.rank), np.uint32)
    if x.dtype.itemsize == 8:
        x = cast_to(node, x, _BOOL)
    count, coordinates = node.new((1,), _UINT32), node.new((int(math.prod(x.sizes)), x.rank), _UINT32)
    node.launch(ops.NonzeroCoordinates, x, output_count_tensor=count, output_coordinates_tensor=coordinates)
    return count, coordinates


# -- NonZero


@converts("NonZero", 9, 13, types=_ANY, domain=COUNTING, temporaries=1)
def find_nonzero(node: Conversion) -> tuple[Result, Result]:
    x = node[0]
    return _nonzero(node, x if x.rank else node.reshape(x, (1,)))


@converts("NonZero", 9, 13, types=_COUNT, domain=TAKING, host_inputs=(0,))
def take_nonzero(node: Conversion) -> Value:
    """The coordinates of the elements that are not zero: a row for each dimension, a column for each element."""
    return cast_to(node, node[1].shorten(0, node.size(0)).transpose((1, 0)), _INT64)


# -- Compress


@converts("Compress", 9, 11, types=_ANY, domain=COUNTING, moves=always, temporaries=1, handed=(0,))
def find_true(node: Conversion) -> tuple[Result, Result]:
    """The places where the condition is true."""
    known = node.host(1)
    if known is not None:
        places = np.flatnonzero(known).astype(np.uint32)
        return np.array([len(places)], np.uint32), places.reshape(-1, 1)
    return _nonzero(node, node.reshape(node[1], (int(math.prod(node[1].sizes)),)))


@converts("Compress", 9, 11, types=_COUNT, domain=TAKING, moves=always, host_inputs=(0,))
def take_true(node: Conversion) -> Value:
    """The elements at those places along an axis, or of all as one row."""
    places, x, count = node[1], node[2], node.size(0)
    if "axis" in node.node.attributes:
        axis = node.axis(node.attribute("axis", 0), x.rank)
    else:
        x, axis = node.reshape(x, (int(math.prod(x.sizes)),)), 0
    if count > x.sizes[axis]:
        raise node.invalid(f"the condition may choose at most the {x.sizes[axis]} elements there are", count)
    return taken(node, x, node.reshape(places.shorten(0, count), (count,)), axis)


# -- Unique


@converts("Unique", 11, types=NUMERIC, domain=COUNTING, temporaries=4)
def find_unique(node: Conversion) -> tuple[Result, ...]:
    """Sorts the elements, or the subtensors along an axis, and finds where in that order one differs from that before it.

    Returns:
        The count; these places; what is sorted, along its first dimension; where each comes from; which of the different
        ones each is.
    """
    x = node[0]
    if "axis" in node.node.attributes:
        axis = node.axis(node.attribute("axis", 0), x.rank)
        x = x.transpose((axis, *(other for other in range(x.rank) if other != axis)))
    else:
        x = node.reshape(x, (int(math.prod(x.sizes)),))
    size = x.sizes[0]
    if 0 in x.sizes:
        if size:
            raise node.unsupported("subtensors of no elements are not supported")
        none = np.zeros(0, np.int64)
        return np.zeros(1, np.uint32), np.zeros((0, 1), np.uint32), np.zeros(x.sizes, x.dtype), none, none.astype(np.uint32)
    rows = node.reshape(x, (size, int(math.prod(x.sizes[1:]))))
    if rows.sizes[1] > _MOST_KEYS:
        raise node.unsupported(f"subtensors of {rows.sizes[1]} elements are not supported, only of at most {_MOST_KEYS}")
    order = _sorted(node, rows)
    rows = taken(node, rows, order, 0)
    starts = _starts(node, rows)
    count, places = _nonzero(node, starts)
    numbers = node.launch(
        ops.CumulativeSummation, cast_to(node, starts, _UINT32), axis=0, axis_direction=AxisDirection.INCREASING
    )
    groups = node.elementwise(ops.ElementWiseSubtract, numbers, node.upload(np.ones((), np.uint32)))
    return count, places, node.reshape(rows, x.sizes), order, groups


def _sorted(node: Conversion, rows: Value) -> Value:
    """The numbers of the rows in ascending order: sorted by the last element first, keeping the order of equals."""
    size, keys = rows.sizes
    columns = tuple(node.new((1, size), rows.dtype) for _ in range(keys))
    if keys > 1:
        node.launch(ops.Split, rows.transpose((1, 0)), output_tensors=columns, axis=0)
    else:
        columns = (node.reshape(rows, (1, size)),)
    order: Value | None = None
    for column in reversed(columns):
        key = node.reshape(column, (size,))
        places = _places(node, key if order is None else taken(node, key, order, 0))
        order = places if order is None else taken(node, order, places, 0)
    assert order is not None, "there are elements"
    return order


def _places(node: Conversion, values: Value) -> Value:
    """The place that each value has before sorting."""
    places = node.new(values.sizes, _INT64)
    node.launch(
        ops.TopK1,
        values,
        output_value_tensor=node.new(values.sizes, values.dtype),
        output_index_tensor=places.reinterpret(np.dtype(np.uint64)),
        axis=0,
        k=values.sizes[0],
        axis_direction=AxisDirection.INCREASING,
    )
    return places


def _starts(node: Conversion, rows: Value) -> Value:
    """Whether each of the sorted rows differs from that before it. A NaN is like another."""
    size, keys = rows.sizes
    first = node.fill((1,), np.True_)
    if size == 1:
        return first
    before, after = _ends(node, rows, size - 1)
    same = node.elementwise(ops.ElementWiseLogicalEquals, before, after, dtype=_BOOL)
    if rows.dtype in (np.float16, np.float32):
        nans = [node.elementwise(ops.ElementWiseIsNan, value, dtype=_BOOL) for value in (before, after)]
        same = node.elementwise(ops.ElementWiseLogicalOr, same, node.elementwise(ops.ElementWiseLogicalAnd, *nans))
    if keys > 1:
        whole = node.new((size - 1, 1), _BOOL)
        same = node.launch(ops.Reduce, same, output_tensor=whole, function=ReduceFunction.MIN, axes=(1,))
    differs = node.elementwise(ops.ElementWiseLogicalNot, node.reshape(same, (size - 1,)))
    return node.launch(ops.Join, input_tensors=(first, differs), output_tensor=node.new((size,), _BOOL), axis=0)


def _ends(node: Conversion, x: Value, count: int) -> tuple[Value, Value]:
    """The first and the last elements along the first dimension."""
    made = []
    for start in (0, x.sizes[0] - count):
        sizes = (start, count, x.sizes[0] - count - start)
        pieces = tuple(node.new((size, *x.sizes[1:]), x.dtype) for size in sizes if size)
        node.launch(ops.Split, x, output_tensors=pieces, axis=0)
        made.append(pieces[-1 if start else 0])
    return made[0], made[1]


@converts("Unique", 11, types=_COUNT, domain=TAKING, host_inputs=(0,))
def take_unique(node: Conversion) -> tuple[Result, ...]:
    """The different ones; where each comes first, which of them each of the input's is, and how often each is there."""
    places, rows, order, groups, count = node[1], node[2], node[3], node[4], node.size(0)
    axis = node.attribute("axis", 0)
    rank = rows.rank
    axis += rank if axis < 0 else 0
    back = (*range(1, axis + 1), 0, *range(axis + 1, rank))
    if count == 0:
        none = np.zeros(0, np.int64)
        return node.new(tuple(rows.sizes[at] for at in back), rows.dtype), none, none, none
    at = node.reshape(places.shorten(0, count), (count,))
    unique, first, size = taken(node, rows, at, 0), taken(node, order, at, 0), order.sizes[0]
    numbers = cast_to(node, groups, _INT64)
    inverse = _scattered(node, order, numbers)
    ends = node.upload(np.array([size], np.uint32))
    if count > 1:
        later = _ends(node, at, count - 1)[1]
        ends = node.launch(ops.Join, input_tensors=(later, ends), output_tensor=node.new((count,), _UINT32), axis=0)
    counts = cast_to(node, node.elementwise(ops.ElementWiseSubtract, ends, at), _INT64)
    if not node.attribute("sorted", 1):
        turn = _places(node, first)
        unique, first, counts = (taken(node, value, turn, 0) for value in (unique, first, counts))
        inverse = taken(node, _scattered(node, turn, node.upload(np.arange(count))), inverse, 0)
    return unique.transpose(back), first, inverse, counts


def _scattered(node: Conversion, places: Value, values: Value) -> Value:
    """Each value at its place; every place has one."""
    zeros = node.fill(places.sizes, np.int64(0))
    return node.launch(ops.ScatterElements, zeros, places, values, axis=0)
