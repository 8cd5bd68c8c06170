"""ONNX Runtime's operators on quantized tensors: what their numbers stand for is computed, and quantized again. Each tensor
comes with a scale, and a zero point that may be left out."""

from __future__ import annotations

from typing import Any

import numpy as np

from dmlvk.onnx.conversion import Conversion
from dmlvk.onnx.convert.movement import joined
from dmlvk.onnx.convert.softmax import softmax
from dmlvk.onnx.registry import MICROSOFT, Declared, converts
from dmlvk.onnx.values import Value
from dmlvk.spec import ops
from dmlvk.spec.enums import TensorDataType

_BYTES = (TensorDataType.INT8, TensorDataType.UINT8)
_BOOL = (TensorDataType.UINT8,)
_FLOAT32 = np.dtype(np.float32)


def real(node: Conversion, index: int) -> Value:
    """What the quantized tensor at an input stands for; its scale and zero point follow it."""
    x, *parameters = node[index], *_parameters(node, index + 1)
    return node.elementwise(ops.ElementWiseDequantizeLinear, x, *parameters, dtype=_FLOAT32)


def quantized(node: Conversion, x: Value, index: int, dtype: np.dtype[Any]) -> Value:
    """Numbers quantized by the scale at an input and the zero point after it."""
    return node.elementwise(ops.ElementWiseQuantizeLinear, x, *_parameters(node, index), dtype=dtype)


def _parameters(node: Conversion, index: int) -> list[Value]:
    """A scale of one number, and its zero point if there is one."""
    given = [value for value in (node[index], node.get(index + 1)) if value is not None]
    if any(value.sizes not in ((), (1,)) for value in given):
        raise node.invalid("a scale or zero point must have one element", [value.sizes for value in given])
    return [node.reshape(value, ()) for value in given]


@converts("QLinearAdd", 1, types=_BYTES, domain=MICROSOFT, declared=Declared(8, 1))
def add(node: Conversion) -> Value:
    return quantized(node, node.elementwise(ops.ElementWiseAdd, real(node, 0), real(node, 3)), 6, node.dtype(0))


@converts("QLinearMul", 1, types=_BYTES, domain=MICROSOFT, declared=Declared(8, 1))
def multiply(node: Conversion) -> Value:
    return quantized(node, node.elementwise(ops.ElementWiseMultiply, real(node, 0), real(node, 3)), 6, node.dtype(0))


@converts("QLinearSigmoid", 1, types=_BYTES, domain=MICROSOFT, declared=Declared(5, 1))
def sigmoid(node: Conversion) -> Value:
    return quantized(node, node.elementwise(ops.ActivationSigmoid, real(node, 0)), 3, node.dtype(0))


@converts("QLinearLeakyRelu", 1, types=_BYTES, domain=MICROSOFT, declared=Declared(5, 1, ("alpha",)))
def leaky_relu(node: Conversion) -> Value:
    y = node.elementwise(ops.ActivationLeakyRelu, real(node, 0), alpha=float(node.attribute("alpha", 0.01)))
    return quantized(node, y, 3, node.dtype(0))


@converts("QLinearSoftmax", 1, types=_BYTES, domain=MICROSOFT, declared=Declared(5, 1, ("axis", "opset")))
def quantized_softmax(node: Conversion) -> Value:
    """Along one axis; before opset 13 over all dimensions from the axis on."""
    x = real(node, 0)
    axis = node.axis(node.attribute("axis", -1), x.rank)
    axes = (axis,) if node.attribute("opset", 13) >= 13 else tuple(range(axis, x.rank))
    return quantized(node, softmax(node, x, axes), 3, node.dtype(0))


@converts("QLinearWhere", 1, types=_BOOL, domain=MICROSOFT, declared=Declared(9, 1))
def where(node: Conversion) -> Value:
    y = node.elementwise(ops.ElementWiseIf, node[0], real(node, 1), real(node, 4), dtype=_FLOAT32)
    return quantized(node, y, 7, node.dtype(1))


@converts("QLinearConcat", 1, types=(TensorDataType.FLOAT32,), domain=MICROSOFT, declared=Declared(None, 1, ("axis",)))
def concat(node: Conversion) -> Value:
    """The output's scale and zero point come first."""
    if node.input_count < 5 or (node.input_count - 2) % 3:
        raise node.invalid("there must be a tensor, a scale and a zero point for each of at least one", node.input_count)
    first = node.dtype(2)
    pieces = [quantized(node, real(node, index), 0, first) for index in range(2, node.input_count, 3)]
    return joined(node, pieces, node.attribute("axis", 0))
