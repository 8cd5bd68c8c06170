"""Pooling in float64, window by window; the maximum in the tensor's own type, quantized averages in float32 steps."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmlvk.spec.ops.pooling import (
    AveragePooling,
    AveragePooling1,
    LpPooling,
    LpPooling1,
    MaxPooling,
    MaxPooling1,
    MaxPooling2,
    MaxUnpooling,
    QuantizedLinearAveragePooling,
)
from dmlvk.verify.oracle import Scaled
from dmlvk.verify.oracle.quantization import quantized

Array = NDArray[Any]
Index = tuple[Any, ...]
_Pooling = AveragePooling1 | LpPooling1 | MaxPooling2 | QuantizedLinearAveragePooling


def windows(desc: _Pooling, sizes: tuple[int, ...]) -> Iterator[tuple[Index, Index, int, int]]:
    """Of each output: its index, the index of its window, the elements of that, and those of it in the padded input."""
    everything = (slice(None), slice(None))
    for output in itertools.product(*map(range, desc.tensor("output_tensor").sizes[2:])):
        inside: list[list[int]] = []
        padded = 1
        for axis, o in enumerate(output):
            start, end = desc.start_padding[axis], desc.end_padding[axis]
            taps = [o * desc.strides[axis] - start + t * desc.dilations[axis] for t in range(desc.window_size[axis])]
            inside.append([tap for tap in taps if 0 <= tap < sizes[axis]])
            padded *= sum(-start <= tap < sizes[axis] + end for tap in taps)
        yield (*everything, *output), (*everything, *np.ix_(*inside)), math.prod(map(len, inside)), padded


def average_pooling1(desc: AveragePooling1, x: Array) -> Scaled:
    """``AveragePooling1``; the error counts at the mean of the absolute values."""
    result = np.zeros(desc.tensor("output_tensor").sizes)
    magnitude = np.zeros_like(result)
    axes = tuple(range(2, x.ndim))
    for output, window, elements, padded in windows(desc, x.shape[2:]):
        divisor = padded if desc.include_padding else elements
        if divisor:
            values = x[window].astype(np.float64)
            result[output] = values.sum(axes) / divisor
            magnitude[output] = np.abs(values).sum(axes) / divisor
    return Scaled(result, magnitude)


def average_pooling(desc: AveragePooling, x: Array) -> Scaled:
    """``AveragePooling``."""
    return average_pooling1(desc.upgrade(), x)


def max_pooling2(desc: MaxPooling2, x: Array) -> tuple[Array, Array]:
    """``MaxPooling2``: the values and the indices."""
    least = -np.inf if x.dtype.kind == "f" else np.iinfo(x.dtype).min
    result = np.full(desc.tensor("output_tensor").sizes, least, x.dtype)
    indices = np.zeros(result.shape, np.uint64)
    positions = np.arange(x.size, dtype=np.uint64).reshape(x.shape)
    for output, window, elements, _ in windows(desc, x.shape[2:]):
        if elements:
            values = x[window].reshape(*x.shape[:2], -1)
            first = values.argmax(-1)[..., None]  # the first NaN, else the first of the largest
            result[output] = np.take_along_axis(values, first, -1)[..., 0]
            indices[output] = np.take_along_axis(positions[window].reshape(values.shape), first, -1)[..., 0]
    return (result.astype(np.float64) if x.dtype.kind == "f" else result), indices


def max_pooling1(desc: MaxPooling1, x: Array) -> tuple[Array, Array]:
    """``MaxPooling1``."""
    return max_pooling2(desc.upgrade(), x)


def max_pooling(desc: MaxPooling, x: Array) -> Array:
    """``MaxPooling``."""
    return max_pooling1(desc.upgrade(), x)[0]


def lp_pooling1(desc: LpPooling1, x: Array) -> Array:
    """``LpPooling1``, computed as it says, but for what float64 has no room for."""
    result = np.zeros(desc.tensor("output_tensor").sizes)
    axes = tuple(range(2, x.ndim))
    for output, window, elements, _ in windows(desc, x.shape[2:]):
        if elements:
            values = np.abs(x[window].astype(np.float64))
            largest = values.max(axes)
            divisor = np.where(np.isfinite(largest) & (largest > 0), largest, 1.0)
            scaled = values / divisor.reshape(*divisor.shape, *(1,) * len(axes))
            result[output] = divisor * (scaled**desc.p).sum(axes) ** (1 / desc.p)
    return result


def lp_pooling(desc: LpPooling, x: Array) -> Array:
    """``LpPooling``."""
    return lp_pooling1(desc.upgrade(), x)


def quantized_linear_average_pooling(
    desc: QuantizedLinearAveragePooling,
    x: Array,
    scale: Array,
    zero_point: Array | None,
    output_scale: Array,
    output_zero_point: Array | None,
) -> Array:
    """``QuantizedLinearAveragePooling``."""
    target = desc.tensor("output_tensor")
    channels = (1, x.shape[1])
    shift = np.broadcast_to(np.int64(0) if zero_point is None else zero_point.astype(np.int64).reshape(1, -1), channels)
    numerator = np.zeros(target.sizes, np.float32)
    denominator = np.ones(target.sizes, np.float32)
    axes = tuple(range(2, x.ndim))
    for output, window, elements, padded in windows(desc, x.shape[2:]):
        divisor = padded if desc.include_padding else elements
        if divisor:
            total = x[window].astype(np.int64).sum(axes) - elements * shift
            numerator[output] = total.astype(np.float32) * scale.reshape(1, -1)
            denominator[output] = np.float32(divisor) * output_scale.reshape(1, -1)
    side = (1, -1, *(1,) * len(axes))
    return quantized(
        numerator, denominator, None if output_zero_point is None else output_zero_point.reshape(side), target.data_type
    )


def max_unpooling(desc: MaxUnpooling, x: Array, indices: Array) -> Array:
    """``MaxUnpooling``, one element after the other."""
    target = desc.tensor("output_tensor")
    flat = np.zeros(target.element_count, x.dtype)
    for value, index in zip(x.reshape(-1), indices.reshape(-1), strict=True):
        if index < flat.size:
            flat[index] = value
    result = flat.reshape(target.sizes)
    return result.astype(np.float64) if x.dtype.kind == "f" else result
