"""Elementwise mathematics with numpy's broadcasting, which becomes strides of 0."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np

from dmlvk.onnx.conversion import Conversion
from dmlvk.onnx.model import data_type_of
from dmlvk.onnx.registry import converts
from dmlvk.onnx.values import Value
from dmlvk.spec import ops
from dmlvk.spec.enums import TensorDataType
from dmlvk.spec.schema import FLOATS, NUMERIC, OperatorDesc, ScaleBias


class Elementwise(NamedTuple):
    """An operator that one DirectML row implements, input for input and without attributes.

    Attributes:
        op_type, since: The ONNX operator.
        row: The DirectML operator.
        types: The types of ONNX's first input, if the row allows more than the operator; None for the row's own.
        dtype: The output's type; None for that of the first input.
    """

    op_type: str
    since: tuple[int, ...]
    row: type[OperatorDesc]
    types: tuple[TensorDataType, ...] | None = None
    dtype: np.dtype[Any] | None = None


# fmt: off
_ELEMENTWISE = (
    Elementwise("Abs",        (6, 13),     ops.ElementWiseAbs),
    Elementwise("Acos",       (7, 22),     ops.ElementWiseAcos),
    Elementwise("Acosh",      (9, 22),     ops.ElementWiseAcosh),
    Elementwise("Add",        (7, 13, 14), ops.ElementWiseAdd),
    Elementwise("Asin",       (7, 22),     ops.ElementWiseAsin),
    Elementwise("Asinh",      (9, 22),     ops.ElementWiseAsinh),
    Elementwise("Atan",       (7, 22),     ops.ElementWiseAtan),
    Elementwise("Atanh",      (9, 22),     ops.ElementWiseAtanh),
    Elementwise("Ceil",       (6, 13),     ops.ElementWiseCeil),
    Elementwise("Cos",        (7, 22),     ops.ElementWiseCos),
    Elementwise("Cosh",       (9, 22),     ops.ElementWiseCosh),
    Elementwise("Div",        (7, 13, 14), ops.ElementWiseDivide),
    Elementwise("Erf",        (9, 13),     ops.ElementWiseErf),
    Elementwise("Exp",        (6, 13),     ops.ElementWiseExp),
    Elementwise("Floor",      (6, 13),     ops.ElementWiseFloor),
    Elementwise("Log",        (6, 13),     ops.ElementWiseLog),
    Elementwise("Mul",        (7, 13, 14), ops.ElementWiseMultiply),
    Elementwise("Neg",        (6, 13),     ops.ElementWiseNegate),
    Elementwise("Reciprocal", (6, 13),     ops.ElementWiseRecip),
    Elementwise("Round",      (11, 22),    ops.ElementWiseRound),
    Elementwise("Sign",       (9, 13),     ops.ElementWiseSign),
    Elementwise("Sin",        (7, 22),     ops.ElementWiseSin),
    Elementwise("Sinh",       (9, 22),     ops.ElementWiseSinh),
    Elementwise("Sqrt",       (6, 13),     ops.ElementWiseSqrt),
    Elementwise("Sub",        (7, 13, 14), ops.ElementWiseSubtract),
    Elementwise("Tan",        (7, 22),     ops.ElementWiseTan),
)
# fmt: on


def register(operators: Iterable[Elementwise]) -> None:
    """Registers a table's operators."""
    for operator in operators:
        _register(operator)


def _register(operator: Elementwise) -> None:
    arity = sum(spec.kind.is_input for spec in operator.row.fields)

    first = operator.row.fields[0]
    doubles = bool(first.beyond)

    @converts(operator.op_type, *operator.since, types=operator.types or first.data_types, doubles=doubles)
    def convert(node: Conversion) -> Value:
        return node.elementwise(operator.row, *(node[i] for i in range(arity)), dtype=operator.dtype)


register(_ELEMENTWISE)


@converts("Mod", 10, 13, 28, types=ops.ElementWiseModulusFloor.fields[0].data_types, doubles=True)
def mod(node: Conversion) -> Value:
    """``fmod`` 1 has the sign of the dividend, as C; 0 that of the divisor, as Python, and was for integers only before
    version 28."""
    truncates = bool(node.attribute("fmod", 0))
    if not truncates and node[0].dtype.kind == "f" and node.node.version < 28:
        raise node.invalid("fmod must be 1 for floating-point types before version 28", 0)
    row = ops.ElementWiseModulusTruncate if truncates else ops.ElementWiseModulusFloor
    return node.elementwise(row, node[0], node[1])


@converts("Max", 6, 8, 12, 13, types=NUMERIC, doubles=True)
def maximum(node: Conversion) -> Value:
    return _fold(node, ops.ElementWiseMax)


@converts("Min", 6, 8, 12, 13, types=NUMERIC, doubles=True)
def minimum(node: Conversion) -> Value:
    return _fold(node, ops.ElementWiseMin)


@converts("Sum", 6, 8, 13, types=FLOATS, doubles=True)
def total(node: Conversion) -> Value:
    return _fold(node, ops.ElementWiseAdd)


@converts("Mean", 6, 8, 13, types=FLOATS, doubles=True)
def mean(node: Conversion) -> Value:
    if node.input_count == 2:
        return node.elementwise(ops.ElementWiseMean, node[0], node[1])
    share = ScaleBias(1 / node.input_count, 0.0)
    return node.elementwise(ops.ElementWiseIdentity, _fold(node, ops.ElementWiseAdd), scale_bias=share)


def _fold(node: Conversion, row: type[OperatorDesc]) -> Value:
    """Any number of inputs, two at a time; one alone is the output."""
    return functools.reduce(lambda a, b: node.elementwise(row, a, b), (node[i] for i in range(node.input_count)))


@converts("Clip", 6, types=FLOATS, doubles=True)
def clip_to_attributes(node: Conversion) -> Value:
    low, high = (float(node.attribute(name, default)) for name, default in (("min", -np.inf), ("max", np.inf)))
    return _clip(node, min(low, high), high)


@converts("Clip", 11, 12, 13, types=NUMERIC, doubles=True)
def clip(node: Conversion) -> Value:
    """Bounds known before the run are attributes of one operator; computed ones take a maximum and a minimum."""
    if node.computed(1) or node.computed(2):
        y = node[0]
        for index, row in ((1, ops.ElementWiseMax), (2, ops.ElementWiseMin)):
            if (bound := node.get(index)) is not None:
                y = node.elementwise(row, y, bound)
        return y
    low, high = (_bound(node, index) for index in (1, 2))
    return _clip(node, min(low, high), high)


def _bound(node: Conversion, index: int) -> float | int:
    """A bound of Clip as a number; what it is where absent changes nothing."""
    given, dtype = node.host(index), node[0].dtype
    if given is not None:
        if given.size != 1:
            raise node.invalid(f"input {index} must have one element", given.shape)
        number: float | int = given.item()
        return number
    if dtype.kind == "f":
        return -np.inf if index == 1 else np.inf
    limits = np.iinfo(dtype)
    return int(limits.min if index == 1 else limits.max)


def _clip(node: Conversion, low: float | int, high: float | int) -> Value:
    """If the bounds cross, ONNX gives the upper one everywhere: callers pass it twice."""
    data_type = data_type_of(node[0].dtype)
    return node.elementwise(ops.ElementWiseClip1, node[0], min_max_data_type=data_type, min=low, max=high)
