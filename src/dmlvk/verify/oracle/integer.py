"""Integer and quantized products: sums in float64, which holds those of 8-bit integers exactly, and the float32 steps of
requantization one by one, since integers are compared exactly."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmlvk.spec import ops
from dmlvk.spec.enums import TensorDataType
from dmlvk.spec.schema import OperatorDesc
from dmlvk.spec.tensor import TensorDesc, cast_scalar
from dmlvk.verify.oracle import Scaled
from dmlvk.verify.oracle.convolution import convolution

Array = NDArray[Any]


def _real(x: Array, zero_point: Array | None) -> Array:
    """x - zero point, broadcast, in float64: exact."""
    return x.astype(np.float64) - (0 if zero_point is None else _aligned(zero_point, x.ndim))


def _aligned(parameter: Array, rank: int) -> Array:
    """A scale or zero point of fewer or more dimensions than the tensor's, whose leading ones are 1."""
    return parameter.astype(np.float64).reshape(((1,) * rank + parameter.shape)[-rank:])


def _wrapped(total: Array) -> Array:
    return total.astype(np.int64).astype(np.int32)


def _requantized(
    total: Array, left: Array, right: Array, scale: Array, zero_point: Array | None, data_type: TensorDataType
) -> Array:
    """clamp(rint(total * (left * right / scale)) + zero point): each step in float32, NaN as 0."""
    left, right, scale = (_aligned(value, total.ndim).astype(np.float32) for value in (left, right, scale))
    rounded = np.rint(_wrapped(total).astype(np.float32) * (left * right / scale)).astype(np.float64)
    rounded[np.isnan(rounded)] = 0
    least, most = (cast_scalar(end, data_type) for end in (-np.inf, np.inf))
    offset = 0 if zero_point is None else _aligned(zero_point, total.ndim)
    return np.clip(rounded + offset, least, most).astype(np.int64)


def matrix_multiply_integer(
    desc: OperatorDesc, a: Array, a_zero_point: Array | None, b: Array, b_zero_point: Array | None
) -> Array:
    return _wrapped(_real(a, a_zero_point) @ _real(b, b_zero_point))


def quantized_linear_matrix_multiply(
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
    total = _real(a, a_zero_point) @ _real(b, b_zero_point)
    return _requantized(total, a_scale, b_scale, scale, zero_point, desc.tensor("output_tensor").data_type)


def matrix_multiply_integer_to_float(
    desc: OperatorDesc,
    a: Array,
    a_scale: Array,
    a_zero_point: Array | None,
    b: Array,
    b_scale: Array,
    b_zero_point: Array | None,
    bias: Array | None,
) -> Scaled:
    left, right = _real(a, a_zero_point), _real(b, b_zero_point)
    scale = _aligned(a_scale, a.ndim) * _aligned(b_scale, a.ndim)
    offset = np.zeros(1) if bias is None else bias.astype(np.float64)
    total = left @ right
    exact = a.dtype.itemsize == 1 and a.shape[-1] <= 33025
    terms = np.abs(total) if exact else np.abs(left) @ np.abs(right)
    return Scaled(total * scale + offset, np.abs(terms * scale) + np.abs(offset))


def _convolved(desc: OperatorDesc, x: Array, w: Array) -> Array:
    """The convolution of real tensors with the desc's geometry."""
    inputs, filters, output = (
        TensorDesc(TensorDataType.FLOAT64, sizes) for sizes in (x.shape, w.shape, desc.tensor("output_tensor").sizes)
    )
    geometry = {
        name: getattr(desc, name) for name in ("strides", "dilations", "start_padding", "end_padding", "group_count")
    }
    equal = ops.Convolution(
        input_tensor=inputs, filter_tensor=filters, output_tensor=output, output_padding=(0,) * (x.ndim - 2), **geometry
    )
    return convolution(equal, x, w, None).value


def _by_channel(parameter: Array | None, rank: int) -> Array | None:
    """The filter's parameter, one element or {1, OutC, 1, ...}, over the filter."""
    return None if parameter is None else parameter.reshape(-1, *(1,) * (rank - 1))


def convolution_integer(
    desc: OperatorDesc, x: Array, x_zero_point: Array | None, w: Array, w_zero_point: Array | None
) -> Array:
    flat = None if x_zero_point is None else x_zero_point.ravel()
    return _wrapped(_convolved(desc, _real(x, flat), _real(w, _by_channel(w_zero_point, w.ndim))))


def quantized_linear_convolution(
    desc: OperatorDesc,
    x: Array,
    x_scale: Array,
    x_zero_point: Array | None,
    w: Array,
    w_scale: Array,
    w_zero_point: Array | None,
    bias: Array | None,
    scale: Array,
    zero_point: Array | None,
) -> Array:
    total = convolution_integer(desc, x, x_zero_point, w, w_zero_point).astype(np.float64)
    if bias is not None:
        total = total + bias.astype(np.float64)
    filter_scale = w_scale.reshape(1, -1, *(1,) * (w.ndim - 2))
    flat = None if zero_point is None else zero_point.ravel()
    kind = desc.tensor("output_tensor").data_type
    return _requantized(total, x_scale.ravel(), filter_scale, scale.ravel(), flat, kind)
