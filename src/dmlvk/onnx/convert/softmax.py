"""Softmax and its relatives. Of FLOAT64, which their kernels do not have, they are made of other operators."""

from __future__ import annotations

from typing import Final

import numpy as np

from dmlvk.onnx.conversion import Conversion
from dmlvk.onnx.registry import converts
from dmlvk.onnx.values import Value
from dmlvk.spec import ops
from dmlvk.spec.enums import ReduceFunction
from dmlvk.spec.schema import FLOATS, OperatorDesc


def softmax(node: Conversion, x: Value, axes: tuple[int, ...], row: type[OperatorDesc] = ops.ActivationSoftmax1) -> Value:
    """The softmax of a value over axes, or a relative of it, by its row or what stands for that."""
    if x.dtype == np.float64 and 0 not in x.sizes:
        return _DOUBLE[row](node, x, axes)
    return node.launch(row, x, output_tensor=node.new(x.sizes, x.dtype), axes=axes)


def _softmax_of_double(node: Conversion, x: Value, axes: tuple[int, ...]) -> Value:
    powers = node.elementwise(ops.ElementWiseExp, _below_largest(node, x, axes))
    return node.elementwise(ops.ElementWiseDivide, powers, _reduced(node, ReduceFunction.SUM, powers, axes))


def _log_softmax_of_double(node: Conversion, x: Value, axes: tuple[int, ...]) -> Value:
    below = _below_largest(node, x, axes)
    return node.elementwise(ops.ElementWiseSubtract, below, _reduced(node, ReduceFunction.LOG_SUM_EXP, below, axes))


def _below_largest(node: Conversion, x: Value, axes: tuple[int, ...]) -> Value:
    return node.elementwise(ops.ElementWiseSubtract, x, _reduced(node, ReduceFunction.MAX, x, axes))


def _reduced(node: Conversion, function: ReduceFunction, x: Value, axes: tuple[int, ...]) -> Value:
    kept = tuple(1 if axis in axes else size for axis, size in enumerate(x.sizes))
    return node.launch(ops.Reduce, x, output_tensor=node.new(kept, x.dtype), function=function, axes=axes)


_DOUBLE: Final = {
    ops.ActivationSoftmax1: _softmax_of_double,
    ops.ActivationLogSoftmax1: _log_softmax_of_double,
}
"""The operators that stand for a row whose kernels have no FLOAT64."""


def _register_softmax(op_type: str, row: type[OperatorDesc]) -> None:
    @converts(op_type, 13, types=FLOATS, doubles=row in _DOUBLE)
    def along_axis(node: Conversion) -> Value:
        """Along one axis, the last by default."""
        axis = node.axis(node.attribute("axis", -1), node[0].rank)
        return softmax(node, node[0], (axis,), row)

    @converts(op_type, 1, 11, types=FLOATS, doubles=row in _DOUBLE)
    def flattened(node: Conversion) -> Value:
        """Over all dimensions from the axis on (1 by default), as if they were one."""
        rank = node[0].rank
        axis = node.attribute("axis", 1)
        axes = tuple(range(rank if axis == rank else node.axis(axis, rank), rank))
        return softmax(node, node[0], axes, row)


_register_softmax("Softmax", ops.ActivationSoftmax1)
_register_softmax("LogSoftmax", ops.ActivationLogSoftmax1)
_register_softmax("Hardmax", ops.ActivationHardmax1)
