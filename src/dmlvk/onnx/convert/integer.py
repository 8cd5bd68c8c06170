"""Products of integer and quantized tensors, ONNX's and ONNX Runtime's."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from dmlvk.graph.views import Sizes, broadcast_sizes
from dmlvk.onnx.conversion import Conversion
from dmlvk.onnx.convert.cast import cast_to
from dmlvk.onnx.convert.convolution import (
    CONVOLUTION,
    channels_first,
    channels_last,
    new_images,
    sliding_window,
    spatial_kernel,
)
from dmlvk.onnx.convert.matmul import as_matrices
from dmlvk.onnx.convert.quantized_linear import quantized
from dmlvk.onnx.registry import MICROSOFT, Declared, converts
from dmlvk.onnx.values import Value
from dmlvk.spec import ops
from dmlvk.spec.enums import TensorDataType
from dmlvk.spec.schema import ScaleBias

_BYTES = ops.MatrixMultiplyInteger.fields[0].data_types
_FLOAT32, _INT32 = np.dtype(np.float32), np.dtype(np.int32)
_MOST_DIMENSIONS = 4

# -- matrix products


class _Matrices(NamedTuple):
    """Two stacks of matrices that numpy's matmul would multiply, as DirectML takes them.

    Attributes:
        a, b: The factors; they have the same leading sizes, at most two.
        sizes: The product's sizes in ONNX's terms.
    """

    a: Value
    b: Value
    sizes: Sizes

    @property
    def product_sizes(self) -> Sizes:
        """The product's sizes in DirectML's terms."""
        return (*self.a.sizes[:-1], self.b.sizes[-1])


def _matrices(node: Conversion, a: Value, b: Value, a_parameters: tuple[Value | None, ...]) -> _Matrices:
    """A vector counts as one row or one column; leading dimensions broadcast."""
    left, right, tail = as_matrices(node, a, b)
    if right.rank == 2 and all(value is None or math.prod(value.sizes) == 1 for value in a_parameters):
        # Every matrix of A meets the same B: one tall matrix, which fills a tile better than many small ones.
        sizes = (*left.sizes[:-2], *tail)
        return _Matrices(node.reshape(left, (math.prod(left.sizes[:-1]), left.sizes[-1])), right, sizes)
    batch = broadcast_sizes(left.sizes[:-2], right.sizes[:-2])
    if batch is None:
        raise node.invalid("the leading sizes of A and B must broadcast", (a.sizes, b.sizes))
    left, right = (value.broadcast_to((*batch, *value.sizes[-2:])) for value in (left, right))
    if len(batch) > _MOST_DIMENSIONS - 2:
        left, right = (node.reshape(value, (math.prod(batch), *value.sizes[-2:])) for value in (left, right))
    return _Matrices(left, right, (*batch, *tail))


def _parameter(node: Conversion, value: Value | None, *, of_columns: bool = False) -> Value | None:
    """A scale or zero point: of one element, a vector with one a row or column, or with dimensions as the product's."""
    if value is None or value.rank > 1:
        return value
    if math.prod(value.sizes) == 1:
        return node.reshape(value, (1,))
    return node.reshape(value, (1, *value.sizes) if of_columns else (*value.sizes, 1))


@converts("MatMulInteger", 10, types=_BYTES)
def matmul_integer(node: Conversion) -> Value:
    a_zero_point = node.get(2)
    parts = _matrices(node, node[0], node[1], (a_zero_point,))
    if 0 in parts.a.sizes:
        return node.fill(parts.sizes, np.int32(0))
    y = node.launch(
        ops.MatrixMultiplyInteger,
        parts.a,
        _parameter(node, a_zero_point),
        parts.b,
        _parameter(node, node.get(3), of_columns=True),
        output_tensor=node.new(parts.product_sizes, _INT32),
    )
    return node.reshape(y, parts.sizes)


@converts("QLinearMatMul", 10, 21, types=_BYTES)
def quantized_matmul(node: Conversion) -> Value:
    """DirectML's scales are float32: others are made that first."""
    a_scale, a_zero_point, b_scale, b_zero_point, scale, zero_point = (node.get(index) for index in (1, 2, 4, 5, 6, 7))
    if a_scale is None or b_scale is None or scale is None or zero_point is None:
        raise node.invalid("all scales and the output's zero point must be given", None)
    parts = _matrices(node, node[0], node[3], (a_scale, a_zero_point, scale, zero_point))
    if 0 in parts.a.sizes:
        own = _parameter(node, zero_point)
        assert own is not None, "it is given"
        return node.reshape(node.copy(own.broadcast_to(parts.product_sizes)), parts.sizes)
    y = node.launch(
        ops.QuantizedLinearMatrixMultiply,
        parts.a,
        _parameter(node, cast_to(node, a_scale, _FLOAT32)),
        _parameter(node, a_zero_point),
        parts.b,
        _parameter(node, cast_to(node, b_scale, _FLOAT32), of_columns=True),
        _parameter(node, b_zero_point, of_columns=True),
        _parameter(node, cast_to(node, scale, _FLOAT32)),
        _parameter(node, zero_point),
        output_tensor=node.new(parts.product_sizes, zero_point.dtype),
    )
    return node.reshape(y, parts.sizes)


def multiply_to_float(
    node: Conversion,
    a: tuple[Value, Value, Value | None],
    b: tuple[Value, Value, Value | None],
    bias: Value | None,
) -> Value:
    """The product of two tensors, each with its scale and zero point, plus a bias of one number a column."""
    parts = _matrices(node, a[0], b[0], a[1:])
    scales = _parameter(node, a[1]), _parameter(node, b[1], of_columns=True)
    zero_points = _parameter(node, a[2]), _parameter(node, b[2], of_columns=True)
    # DirectML wants scales and zero points of as many dimensions as each other.
    rank = max(value.rank for value in (*scales, *zero_points) if value is not None)
    a_scale, b_scale, a_zero_point, b_zero_point = (
        None if value is None else node.reshape(value, (1,) * (rank - value.rank) + value.sizes)
        for value in (*scales, *zero_points)
    )
    y = node.new(parts.product_sizes, a[1].dtype)
    if 0 in parts.a.sizes:
        zeros = node.fill(y.sizes, y.dtype.type(0))
        return node.reshape(zeros if bias is None else node.elementwise(ops.ElementWiseAdd, zeros, bias), parts.sizes)
    if bias is not None and bias.sizes != y.sizes[-1:]:
        raise node.invalid("the bias must have one element for each column", bias.sizes, y.sizes[-1:])
    y = node.launch(
        ops.MatrixMultiplyIntegerToFloat,
        parts.a,
        a_scale,
        a_zero_point,
        parts.b,
        b_scale,
        b_zero_point,
        None if bias is None else bias.broadcast_to(y.sizes),
        output_tensor=y,
    )
    return node.reshape(y, parts.sizes)


@converts("MatMulIntegerToFloat", 1, types=_BYTES, domain=MICROSOFT, declared=Declared(7, 1))
def matmul_integer_to_float(node: Conversion) -> Value:
    """ONNX Runtime's MatMulIntegerToFloat: inputs A, B, their scales, their zero points, a bias."""
    return multiply_to_float(node, (node[0], node[2], node.get(4)), (node[1], node[3], node.get(5)), node.get(6))


@converts("DynamicQuantizeMatMul", 1, types=(TensorDataType.FLOAT32,), domain=MICROSOFT, declared=Declared(5, 1))
def dynamic_quantize_matmul(node: Conversion) -> Value:
    """ONNX Runtime's operator: A is quantized to UINT8 first."""
    x, kind = node[0], np.dtype(np.uint8)
    quantized, scale, zero_point = node.new(x.sizes, kind), node.new((1,), x.dtype), node.new((1,), kind)
    parameters = {"output_scale_tensor": scale, "output_zero_point_tensor": zero_point}
    node.launch(ops.DynamicQuantizeLinear, x, output_tensor=quantized, **parameters)
    return multiply_to_float(node, (quantized, scale, zero_point), (node[1], node[2], node.get(3)), node.get(4))


_GEMM = Declared(9, 1, ("alpha", "transA", "transB"))


@converts("QGemm", 1, types=_BYTES, domain=MICROSOFT, declared=_GEMM)
def quantized_gemm(node: Conversion) -> Value:
    """The product of A and B plus C, all integers, times alpha and both scales; quantized if there is a scale for that."""
    a, b = (x.transpose((1, 0)) if node.attribute(name, 0) else x for x, name in ((node[0], "transA"), (node[3], "transB")))
    y = node.launch(
        ops.MatrixMultiplyInteger,
        a,
        _parameter(node, node.get(2)),
        b,
        _parameter(node, node.get(5), of_columns=True),
        output_tensor=node.new((a.sizes[0], b.sizes[1]), _INT32),
    )
    if (c := node.get(6)) is not None:
        y = node.elementwise(ops.ElementWiseAdd, y, c)
    a_scale, b_scale = (_parameter(node, node[index], of_columns=True) for index in (1, 4))
    assert a_scale is not None and b_scale is not None, "both are given"
    scale = node.elementwise(ops.ElementWiseMultiply, b_scale, a_scale)
    scale = node.elementwise(ops.ElementWiseIdentity, scale, scale_bias=ScaleBias(float(node.attribute("alpha", 1.0)), 0.0))
    real = node.elementwise(ops.ElementWiseDequantizeLinear, y, scale, dtype=scale.dtype)
    return real if node.get(7) is None else quantized(node, real, 7, node.dtype(0))


# -- convolutions


def _by_channel(node: Conversion, value: Value | None, rank: int) -> Value | None:
    """The filter's scale or zero point: one element, or one an output channel."""
    if value is None or math.prod(value.sizes) == 1:
        return None if value is None else node.reshape(value, (1,))
    if value.rank != 1:
        raise node.invalid("a scale or zero point of the filter must have at most 1 dimension", value.sizes)
    return node.reshape(value, (1, *value.sizes) + (1,) * (rank - 2))


def _one(node: Conversion, value: Value | None) -> Value | None:
    """A scale or zero point of one element."""
    if value is not None and math.prod(value.sizes) != 1:
        raise node.invalid("a scale or zero point must have one element", value.sizes)
    return None if value is None else node.reshape(value, (1,))


@converts("ConvInteger", 10, types=_BYTES)
def convolution_integer(node: Conversion) -> Value:
    x, w = node[0], node[1]
    window = sliding_window(node, x.sizes[2:], spatial_kernel(node, w))
    if 0 in x.sizes:
        return node.fill((x.sizes[0], w.sizes[0], *window.output), np.int32(0))
    return node.launch(
        ops.ConvolutionInteger,
        x,
        _one(node, node.get(2)),
        w,
        _by_channel(node, node.get(3), w.rank),
        output_tensor=node.new((x.sizes[0], w.sizes[0], *window.output), _INT32),
        group_count=node.attribute("group", 1),
        **window.fields,
    )


_CONVOLUTION = Declared(9, 1, (*CONVOLUTION, "channels_last"))


@converts("QLinearConv", 1, types=_BYTES, domain=MICROSOFT, declared=_CONVOLUTION)
@converts("QLinearConv", 10, types=_BYTES)
def quantized_convolution(node: Conversion) -> Value:
    """ONNX Runtime's may have channels last, those of the filter as ONNX has them."""
    last = bool(node.attribute("channels_last", 0))
    x, w, bias, zero_point = channels_first(node[0]) if last else node[0], node[3], node.get(8), node[7]
    window = sliding_window(node, x.sizes[2:], spatial_kernel(node, w))
    channels = w.sizes[0]
    if bias is not None and bias.sizes != (channels,):
        raise node.invalid("the bias must have one element for each output channel", bias.sizes, (channels,))
    y = new_images(node, (x.sizes[0], channels, *window.output), zero_point.dtype, last)
    node.launch(
        ops.QuantizedLinearConvolution,
        x,
        _one(node, node.get(1)),
        _one(node, node.get(2)),
        w,
        _by_channel(node, node.get(4), w.rank),
        _by_channel(node, node.get(5), w.rank),
        None if bias is None else node.reshape(bias, (1, channels) + (1,) * (x.rank - 2)),
        _one(node, node.get(6)),
        _one(node, zero_point),
        output_tensor=y,
        group_count=node.attribute("group", 1),
        **window.fields,
    )
    return channels_last(y) if last else y
