"""Elements moved without a look at them: slices, joins, paddings and reversals. What needs no copy is a view."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from dmlvk.engine.launches import Range
from dmlvk.engine.values import Value
from dmlvk.spec import ops
from dmlvk.spec.enums import PaddingMode
from dmlvk.torch.conversion import Conversion, Number
from dmlvk.torch.registry import converter

_INT: Final = np.dtype(np.int32)


def whole(x: Value) -> list[Range]:
    """The ranges of all elements."""
    return [(0, size, 1) for size in x.sizes]


def _range(size: int, start: int | None, end: int | None, step: int) -> Range:
    """Python's rule for slices with a step forward."""
    first = 0 if start is None else min(max(start + size if start < 0 else start, 0), size)
    last = size if end is None else min(max(end + size if end < 0 else end, 0), size)
    return first, max(-((first - last) // step), 0), step


@converter("aten.slice.Tensor", moves=True)
def slice_(
    node: Conversion, x: Value, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1
) -> Value:
    ranges = whole(x)
    ranges[dim] = _range(x.sizes[dim], start, end, step)
    return node.sliced(x, ranges)


@converter("aten.select.int", moves=True)
def select(node: Conversion, x: Value, dim: int, index: int) -> Value:
    ranges = whole(x)
    ranges[dim] = (index + x.sizes[dim] if index < 0 else index, 1, 1)
    return node.reshape(node.sliced(x, ranges), node.sizes)


@converter("aten.flip.default", moves=True)
def flip(node: Conversion, x: Value, dims: Sequence[int]) -> Value:
    ranges = whole(x)
    for dim in dims if x.rank else ():
        size = x.sizes[dim]
        ranges[dim] = (size - 1, size, -1) if size > 1 else ranges[dim]
    return node.sliced(x, ranges)


@converter("aten.cat.default", moves=True)
def cat(node: Conversion, tensors: Sequence[Value], dim: int = 0) -> Value:
    """Values one after the other along a dimension. One of sizes (0,) goes with all others."""
    pieces = [node.tensor(value, node.dtype) for value in tensors if 0 not in value.sizes]
    return joined(node, pieces, dim) if pieces else node.new(node.sizes, node.dtype)


def joined(node: Conversion, pieces: Sequence[Value], dim: int) -> Value:
    """Values with elements, of one type, one after the other along a dimension."""
    if len(pieces) == 1:
        return pieces[0]
    axis = dim % pieces[0].rank
    sizes = pieces[0].shorten(axis, sum(piece.sizes[axis] for piece in pieces)).sizes
    return node.launch(ops.Join, input_tensors=tuple(pieces), output_tensor=node.new(sizes, pieces[0].dtype), axis=axis)


@converter("aten.split_with_sizes.default", moves=True)
def split_with_sizes(node: Conversion, x: Value, split_sizes: Sequence[int], dim: int = 0) -> tuple[Value, ...]:
    """One launch writes all pieces; a piece that is the whole input is the input."""
    axis = dim % x.rank
    if x.sizes[axis] in split_sizes or 0 in x.sizes:
        return tuple(x if length == x.sizes[axis] else x.shorten(axis, length) for length in split_sizes)
    pieces = tuple(node.new(x.shorten(axis, length).sizes, x.dtype) for length in split_sizes)
    node.launch(ops.Split, x, output_tensors=tuple(piece for piece in pieces if 0 not in piece.sizes), axis=axis)
    return pieces


@converter("aten.slice_scatter.default", moves=True)
def slice_scatter(
    node: Conversion,
    x: Value,
    source: Value,
    dim: int = 0,
    start: int | None = None,
    end: int | None = None,
    step: int = 1,
) -> Value:
    """x with a slice replaced: what lies before, the new elements and what lies behind; with steps, the old elements
    between the new ones."""
    axis = dim % x.rank
    first, count, step = _range(x.sizes[axis], start, end, step)
    source = node.tensor(source, x.dtype).broadcast_to(x.shorten(axis, count).sizes)
    if not count or 0 in x.sizes:
        return x
    if step > 1 and count > 1:
        source = _between(node, x, source, axis, (first, count, step))
    reached = first + source.sizes[axis]
    pieces = [_part(node, x, axis, 0, first), source, _part(node, x, axis, reached, x.sizes[axis] - reached)]
    return joined(node, [piece for piece in pieces if 0 not in piece.sizes], axis)


def _part(node: Conversion, x: Value, axis: int, start: int, count: int) -> Value:
    ranges = whole(x)
    ranges[axis] = (start, count, 1)
    return node.sliced(x, ranges)


def _between(node: Conversion, x: Value, source: Value, axis: int, places: Range) -> Value:
    """The new elements with the old ones between them, up to the last new one."""
    first, count, step = places
    rows = []
    for offset in range(step):
        own = count if offset == 0 else count - 1
        ranges = whole(x)
        ranges[axis] = (first + offset, own, step)
        rows.append(source.shorten(axis, own) if offset == 0 else node.sliced(x, ranges))
    most = [row.shorten(axis, count - 1) for row in rows]
    split = [node.reshape(row, (*row.sizes[: axis + 1], 1, *row.sizes[axis + 1 :])) for row in most]
    woven = joined(node, split, axis + 1)
    woven = node.reshape(woven, (*x.sizes[:axis], (count - 1) * step, *x.sizes[axis + 1 :]))
    return joined(node, [woven, _part(node, source, axis, count - 1, 1)], axis)


@converter("aten.select_scatter.default", moves=True)
def select_scatter(node: Conversion, x: Value, source: Value, dim: int, index: int) -> Value:
    axis = dim % x.rank
    place = index + x.sizes[axis] if index < 0 else index
    row = node.reshape(source, (*x.sizes[:axis], 1, *x.sizes[axis + 1 :]))
    return slice_scatter(node, x, row, axis, place, place + 1)


@converter("aten.repeat.default", moves=True)
def repeat(node: Conversion, x: Value, repeats: Sequence[int]) -> Value:
    """A broadcast view where only dimensions of one element are repeated."""
    sizes = (*(1,) * (len(repeats) - x.rank), *x.sizes)
    x = node.reshape(x, sizes)
    if all(1 in (size, count) for size, count in zip(sizes, repeats, strict=True)):
        return x.broadcast_to(node.sizes)
    y = node.new(node.sizes, x.dtype)
    # DirectML's Tile has no FLOAT64; only an element's size matters.
    plain = np.dtype(np.uint64) if x.dtype == np.float64 else x.dtype
    node.launch(ops.Tile, x.reinterpret(plain), output_tensor=y.reinterpret(plain), repeats=tuple(repeats))
    return y


@converter("aten.diagonal.default", moves=True)
def diagonal(node: Conversion, x: Value, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Value:
    """A view of the elements whose places in two dimensions differ by the offset."""
    first, last = dim1 % x.rank, dim2 % x.rank
    count = node.sizes[-1]
    if count and offset:
        ranges = whole(x)
        axis, start = (last, offset) if offset > 0 else (first, -offset)
        ranges[axis] = (start, x.sizes[axis] - start, 1)
        x = node.sliced(x, ranges)
    rest = [axis for axis in range(x.rank) if axis not in (first, last)]
    strides = (*(x.strides[axis] for axis in rest), x.strides[first] + x.strides[last])
    return replace(x, sizes=node.sizes, strides=strides)


@converter("aten.diagonal_scatter.default", moves=True)
def diagonal_scatter(node: Conversion, x: Value, source: Value, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Value:
    """x with the elements whose places in two dimensions differ by the offset replaced."""
    first, last = dim1 % x.rank, dim2 % x.rank
    before, count = max(-offset, 0), source.sizes[-1]
    behind = x.sizes[first] - before - count
    if not count or 0 in x.sizes:
        return x
    source = node.tensor(source, x.dtype)
    line = (0,) * (source.rank - 1)
    rows = padded(node, source, PaddingMode.CONSTANT, (*line, before), (*line, behind))
    rest = [axis for axis in range(x.rank) if axis not in (first, last)]
    order = [*rest, first]
    rows = rows.transpose([order.index(axis) for axis in sorted(order)])
    rows = node.reshape(rows, tuple(1 if axis == last else size for axis, size in enumerate(x.sizes)))
    mask = np.eye(x.sizes[first], x.sizes[last], offset, dtype=np.bool_)
    mask = mask if first < last else mask.T
    shown = node.upload(mask.reshape([x.sizes[axis] if axis in (first, last) else 1 for axis in range(x.rank)]))
    values = (item.broadcast_to(x.sizes) for item in (shown, rows, x))
    return node.elementwise(ops.ElementWiseIf, *values, dtype=x.dtype)


# -- rows by their places


def taken(node: Conversion, x: Value, indices: Value, axis: int) -> Value:
    """The elements that indices choose along an axis, whose place theirs take. One below 0 counts from the end."""
    sizes = (*x.sizes[:axis], *indices.sizes, *x.sizes[axis + 1 :])
    if 0 in sizes:
        return node.new(sizes, x.dtype)
    flat = node.reshape(x, (math.prod(x.sizes[:axis]), x.sizes[axis], math.prod(x.sizes[axis + 1 :])))
    places = node.reshape(wide_index(node, indices), (1, 1, math.prod(indices.sizes)))
    y = node.new((flat.sizes[0], places.sizes[2], flat.sizes[2]), x.dtype)
    return node.reshape(node.launch(ops.Gather, flat, places, output_tensor=y, axis=1, index_dimensions=1), sizes)


def wide_index(node: Conversion, indices: Value) -> Value:
    """Indices of 32 or 64 bits, as the operators take them."""
    return indices if indices.dtype.itemsize >= _INT.itemsize else node.cast(indices, _INT)


# -- padding


def padded(
    node: Conversion, x: Value, mode: PaddingMode, starts: Sequence[int], ends: Sequence[int], value: Number = 0
) -> Value:
    """x with elements before and after it; negative counts are cut off first."""
    pairs = list(zip(starts, x.sizes, ends, strict=True))
    x = node.sliced(x, [(max(-start, 0), min(start, 0) + size + min(end, 0), 1) for start, size, end in pairs])
    starts, ends = (tuple(max(count, 0) for count in counts) for counts in (starts, ends))
    if not any((*starts, *ends)):
        return x
    sizes = tuple(start + size + end for start, size, end in zip(starts, x.sizes, ends, strict=True))
    if 0 in x.sizes:
        return node.fill(sizes, x.dtype.type(value))
    number = x.dtype.type(value)
    return node.launch(
        ops.Padding1,
        x,
        output_tensor=node.new(sizes, x.dtype),
        padding_mode=mode,
        padding_value_data_type=x.data_type,
        padding_value=int(number) if x.dtype.kind == "b" else number.item(),
        start_padding=starts,
        end_padding=ends,
    )


def _outer(x: Value, pad: Sequence[int]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """PyTorch's list, a pair a dimension from the last one on, as counts for all dimensions."""
    missing = (0,) * (x.rank - len(pad) // 2)
    return (*missing, *reversed(pad[::2])), (*missing, *reversed(pad[1::2]))


@converter("aten.constant_pad_nd.default", moves=True)
def constant_pad(node: Conversion, x: Value, pad: Sequence[int], value: Number = 0) -> Value:
    return padded(node, x, PaddingMode.CONSTANT, *_outer(x, pad), value)


@converter("aten.reflection_pad1d.default", "aten.reflection_pad2d.default", "aten.reflection_pad3d.default", moves=True)
def reflection_pad(node: Conversion, x: Value, padding: Sequence[int]) -> Value:
    return _continued(node, x, PaddingMode.REFLECTION, padding)


@converter("aten.replication_pad1d.default", "aten.replication_pad2d.default", "aten.replication_pad3d.default", moves=True)
def replication_pad(node: Conversion, x: Value, padding: Sequence[int]) -> Value:
    return _continued(node, x, PaddingMode.EDGE, padding)


def _continued(node: Conversion, x: Value, mode: PaddingMode, padding: Sequence[int]) -> Value:
    """x continued by its own elements. Where some are cut off on one side, those on the other may still come from there."""
    starts, ends = _outer(x, padding)
    if min(padding) >= 0:
        return padded(node, x, mode, starts, ends)
    for axis, (start, end) in enumerate(zip(starts, ends, strict=True)):
        last = x.sizes[axis] - 1
        places = np.arange(-start, last + 1 + end)
        if mode == PaddingMode.REFLECTION:
            places = last - abs(last - abs(places))
        if start or end:
            x = taken(node, x, node.upload(np.clip(places, 0, last).astype(np.int32)), axis)
    return x
