"""Elementwise mathematics with PyTorch's promotion of types."""

from __future__ import annotations

import numpy as np

from dmlvk.engine.values import Value
from dmlvk.spec import ops
from dmlvk.spec.schema import OperatorDesc
from dmlvk.torch.conversion import Number
from dmlvk.torch.registry import Conversion, converter


@converter("aten.relu.default")
def relu(node: Conversion, x: Value) -> Value:
    return node.elementwise(ops.ActivationRelu, x)


@converter("aten.add.Tensor", "aten.add.Scalar")
def add(node: Conversion, a: Value | Number, b: Value | Number, *, alpha: Number = 1) -> Value:
    return _sum(node, ops.ElementWiseAdd, a, b, alpha)


@converter("aten.sub.Tensor", "aten.sub.Scalar")
def sub(node: Conversion, a: Value | Number, b: Value | Number, *, alpha: Number = 1) -> Value:
    return _sum(node, ops.ElementWiseSubtract, a, b, alpha)


@converter("aten.mul.Tensor", "aten.mul.Scalar")
def mul(node: Conversion, a: Value | Number, b: Value | Number) -> Value:
    x, y = node.promoted(a, b)
    if node.dtype == np.bool_:
        return node.elementwise(ops.ElementWiseLogicalAnd, x, y)
    return node.elementwise(ops.ElementWiseMultiply, x, y)


def _sum(node: Conversion, row: type[OperatorDesc], a: Value | Number, b: Value | Number, alpha: Number) -> Value:
    x, y = node.promoted(a, b)
    if alpha != 1:
        y = node.elementwise(ops.ElementWiseMultiply, y, node.tensor(alpha, y.dtype))
    return node.elementwise(row, x, y)


@converter("aten._to_copy.default")
def to_copy(node: Conversion, x: Value, **options: object) -> Value:
    return node.cast(x, node.dtype)
