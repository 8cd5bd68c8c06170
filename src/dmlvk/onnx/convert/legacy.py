"""Two-operand operators as they were before opset 7: the second operand broadcasts only where the node asks for it, from an
axis of the first on, and the first never does."""

from __future__ import annotations

import math

from dmlvk.onnx.conversion import Conversion
from dmlvk.onnx.registry import converts
from dmlvk.onnx.values import Value
from dmlvk.spec import ops
from dmlvk.spec.schema import FLOATS, OperatorDesc


def _register(op_type: str, since: int, row: type[OperatorDesc]) -> None:
    first = row.fields[0]

    @converts(op_type, since, types=first.data_types, doubles=bool(first.beyond))
    def convert(node: Conversion) -> Value:
        return node.elementwise(row, node[0], _aligned(node))


def _aligned(node: Conversion) -> Value:
    """The second operand with a dimension of size 1 for each that the first one has behind it."""
    a, b = node[0], node[1]
    if a.sizes == b.sizes:
        return b
    if not node.attribute("broadcast", 0):
        raise node.invalid("B must have the sizes of A, because the node does not ask for broadcasting", b.sizes, a.sizes)
    if math.prod(b.sizes) == 1:
        return node.reshape(b, ())
    axis = node.axis(node.attribute("axis", a.rank - b.rank), a.rank)
    aligned = (*b.sizes, *(1,) * (a.rank - axis - b.rank))
    b = node.reshape(b, aligned)
    if node.broadcast(a, b)[0].sizes != a.sizes:
        raise node.invalid(f"B, from axis {axis} on, must broadcast to the sizes of A, {a.sizes}", b.sizes)
    return b


_register("Add", 6, ops.ElementWiseAdd)
_register("Div", 6, ops.ElementWiseDivide)
_register("Mul", 6, ops.ElementWiseMultiply)
_register("Pow", 1, ops.ElementWisePow)
_register("Sub", 6, ops.ElementWiseSubtract)


@converts("PRelu", 6, types=FLOATS, doubles=True)
def prelu(node: Conversion) -> Value:
    """A slope for all channels, or one for each."""
    x, slope = node[0], node[1]
    if math.prod(slope.sizes) == 1:
        slope = node.reshape(slope, ())
    elif x.rank > 1 and slope.sizes == (x.sizes[1],):
        slope = node.reshape(slope, (*slope.sizes, *(1,) * (x.rank - 2)))
    elif slope.sizes != x.sizes:
        rule = f"the slope must be one number, one for each channel, or have the input's sizes, {x.sizes}"
        raise node.invalid(rule, slope.sizes)
    return node.elementwise(ops.ActivationParameterizedRelu, x, slope)
