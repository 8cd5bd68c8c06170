"""Quantization with its rounding steps in float32: integers are compared exactly, so halves must be the same halves."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmlvk.engine.numpy_types import dtype_of
from dmlvk.spec.enums import TensorDataType
from dmlvk.spec.schema import OperatorDesc
from dmlvk.spec.tensor import cast_scalar

Array = NDArray[Any]


def quantized(x: Array, scale: Array, zero_point: Array | None, data_type: TensorDataType) -> Array:
    """clamp(rint(x / scale) + zero point), the quotient in float32, NaN as 0."""
    rounded = np.rint(x.astype(np.float32) / scale.astype(np.float32)).astype(np.float64)
    rounded[np.isnan(rounded)] = 0
    least, most = (cast_scalar(end, data_type) for end in (-np.inf, np.inf))
    return np.clip(rounded + _integers(zero_point), least, most).astype(dtype_of(data_type))


def dequantized(x: Array, scale: Array, zero_point: Array | None) -> Array:
    """(x - zero point) * scale in float32, from the exact difference."""
    return (_integers(x) - _integers(zero_point)).astype(np.float32) * scale.astype(np.float32)


def _integers(x: Array | None) -> Array:
    return np.zeros(1, np.int64) if x is None else x.astype(np.int64)


def _spread(blocks: Array | None, sizes: tuple[int, ...]) -> Array | None:
    """One value a block as one an element."""
    if blocks is None:
        return None
    for axis, size in enumerate(sizes):
        blocks = np.repeat(blocks, size // blocks.shape[axis], axis)
    return blocks


def element_wise_quantize_linear(desc: OperatorDesc, x: Array, scale: Array, zero_point: Array | None) -> Array:
    return quantized(x, scale, zero_point, desc.tensor("output_tensor").data_type)


def element_wise_dequantize_linear(desc: OperatorDesc, x: Array, scale: Array, zero_point: Array | None) -> Array:
    return dequantized(x, scale, zero_point).astype(np.float64)


def quantize(desc: OperatorDesc, x: Array, *blocks: Array) -> Array:
    scale, zero_point = (_spread(own, x.shape) for own in (*blocks, None)[:2])
    assert scale is not None
    return quantized(x, scale, zero_point, desc.tensor("output_tensor").data_type)


def dequantize(desc: OperatorDesc, x: Array, *blocks: Array) -> Array:
    scale, zero_point = (_spread(own, x.shape) for own in (*blocks, None)[:2])
    assert scale is not None
    return dequantized(x, scale, zero_point).astype(np.float64)


def element_wise_quantized_linear_add(
    desc: OperatorDesc,
    a: Array,
    a_scale: Array,
    a_zero_point: Array | None,
    b: Array,
    b_scale: Array,
    b_zero_point: Array | None,
    scale: Array,
    zero_point: Array | None,
) -> Array:
    total = dequantized(a, a_scale.ravel(), _flat(a_zero_point)) + dequantized(b, b_scale.ravel(), _flat(b_zero_point))
    return quantized(total, scale.ravel(), _flat(zero_point), desc.tensor("output_tensor").data_type)


def dynamic_quantize_linear(desc: OperatorDesc, x: Array) -> tuple[Array, ...]:
    output, scale_tensor = desc.tensor("output_tensor"), desc.tensor("output_scale_tensor")
    least, largest = (
        np.where(np.abs(end) < np.finfo(np.float32).tiny, np.float32(0), end)
        for end in (np.minimum(x.astype(np.float32).min(), 0), np.maximum(x.astype(np.float32).max(), 0))
    )
    span = largest - least
    scale = np.where(span < 2.0**-118, np.float32(1), span / np.float32(255)).reshape(scale_tensor.sizes)
    lowest = np.array(cast_scalar(-np.inf, output.data_type))
    zero_point = quantized(-least, scale, lowest, output.data_type)
    y = quantized(x, scale.ravel(), zero_point.ravel(), output.data_type)
    return y, scale.astype(np.float64), zero_point.reshape(desc.tensor("output_zero_point_tensor").sizes)


def _flat(x: Array | None) -> Array | None:
    return None if x is None else x.ravel()
