"""Movement, with numpy's own indexing: the values and hence the bits of the inputs."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmlvk.spec.enums import DepthSpaceOrder, PaddingMode
from dmlvk.spec.ops.movement import (
    DepthToSpace,
    DepthToSpace1,
    Join,
    Padding,
    Padding1,
    ReverseSubsequences,
    Slice,
    Slice1,
    SliceGrad,
    SpaceToDepth,
    SpaceToDepth1,
    Split,
    Tile,
)

Array = NDArray[Any]


def _taken(desc: Slice1 | SliceGrad, counts: tuple[int, ...]) -> tuple[Array, ...]:
    """The first so many places of the window in each dimension, to index a tensor with."""
    windows = zip(desc.input_window_offsets, desc.input_window_sizes, desc.input_window_strides, counts, strict=True)
    return np.ix_(*(np.arange(offset, offset + size)[::step][:count] for offset, size, step, count in windows))


def slice1(desc: Slice1, x: Array) -> Array:
    return x[_taken(desc, desc.tensor("output_tensor").sizes)]


def slice_grad(desc: SliceGrad, dy: Array) -> Array:
    dx = np.zeros(desc.tensor("output_gradient_tensor").sizes, dy.dtype)
    dx[_taken(desc, dy.shape)] = dy
    return dx


def slice(desc: Slice, x: Array) -> Array:  # an oracle has its operator's name
    for axis, (offset, size, step) in enumerate(zip(desc.offsets, desc.sizes, desc.strides, strict=True)):
        x = np.take(x, [offset + step * index for index in range(size)], axis)
    return x


def split(desc: Split, x: Array) -> tuple[Array, ...]:
    ends = np.cumsum([tensor.sizes[desc.axis] for tensor in desc.output_tensors])
    return tuple(np.split(x, ends[:-1], desc.axis))


def join(desc: Join, *pieces: Array) -> Array:
    return np.concatenate(pieces, desc.axis)


def padding1(desc: Padding1, x: Array) -> Array:
    for axis, (start, end) in enumerate(zip(desc.start_padding, desc.end_padding, strict=True)):
        size = x.shape[axis]
        places = np.arange(-start, size + end)
        inside = (places >= 0) & (places < size)
        if desc.padding_mode in (PaddingMode.CONSTANT, PaddingMode.EDGE):
            places = np.clip(places, 0, size - 1)
        elif desc.padding_mode == PaddingMode.WRAP:
            places = places % size
        elif desc.padding_mode == PaddingMode.SYMMETRIC:
            places = places % (2 * size)
            places = np.minimum(places, 2 * size - 1 - places)
        else:
            period = max(2 * (size - 1), 1)
            places = places % period
            places = np.minimum(places, period - places) if size > 1 else places
        x = np.take(x, places, axis)
        if desc.padding_mode == PaddingMode.CONSTANT:
            x = np.moveaxis(x, axis, 0)
            with np.errstate(over="ignore"):
                x[~inside] = np.array(desc.padding_value).astype(x.dtype)
            x = np.moveaxis(x, 0, axis)
    return x


def padding(desc: Padding, x: Array) -> Array:
    return padding1(desc.upgrade(), x)


def tile(desc: Tile, x: Array) -> Array:
    return np.tile(x, desc.repeats)


def space_to_depth1(desc: SpaceToDepth1, x: Array) -> Array:
    batch, channels, height, width = x.shape
    block = desc.block_size
    pixels = x.reshape(batch, channels, height // block, block, width // block, block)  # n c h by w bx
    order = (0, 3, 5, 1, 2, 4) if desc.order == DepthSpaceOrder.DEPTH_COLUMN_ROW else (0, 1, 3, 5, 2, 4)
    return pixels.transpose(order).reshape(batch, channels * block**2, height // block, width // block)


def space_to_depth(desc: SpaceToDepth, x: Array) -> Array:
    return space_to_depth1(desc.upgrade(), x)


def depth_to_space1(desc: DepthToSpace1, x: Array) -> Array:
    batch, channels, height, width = x.shape
    block, own = desc.block_size, channels // desc.block_size**2
    if desc.order == DepthSpaceOrder.DEPTH_COLUMN_ROW:
        pixels = x.reshape(batch, block, block, own, height, width).transpose(0, 3, 4, 1, 5, 2)
    else:
        pixels = x.reshape(batch, own, block, block, height, width).transpose(0, 1, 4, 2, 5, 3)
    return pixels.reshape(batch, own, height * block, width * block)


def depth_to_space(desc: DepthToSpace, x: Array) -> Array:
    return depth_to_space1(desc.upgrade(), x)


def reverse_subsequences(desc: ReverseSubsequences, x: Array, lengths: Array) -> Array:
    size = x.shape[desc.axis]
    shape = [1] * x.ndim
    shape[desc.axis] = size
    places = np.arange(size).reshape(shape)
    # Compared as they are: a length may be above what int64 holds.
    limits = np.minimum(lengths, lengths.dtype.type(size)).astype(np.int64)
    places = np.where(places < limits, limits - 1 - places, places)
    return np.take_along_axis(x, np.broadcast_to(places, x.shape), desc.axis)
