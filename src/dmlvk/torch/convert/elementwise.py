"""Element by element: arithmetic, comparisons, choices, and the functions of one number."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final

import numpy as np

from dmlvk.engine.values import Value
from dmlvk.spec import ops
from dmlvk.spec.enums import RoundingMode
from dmlvk.spec.schema import OperatorDesc, ScaleBias
from dmlvk.torch.conversion import Conversion, Number
from dmlvk.torch.registry import converter

Operand = Value | Number

BOOL: Final = np.dtype(np.bool_)
FLOAT: Final = np.dtype(np.float32)
_SQUARE_BITS: Final = 6
"""Bits of an exponent with which a power of a whole number other than 0, 1 and -1 still fits 64 bits."""


# -- what families share


def wide(node: Conversion, x: Operand) -> Value:
    """A floating-point value in which several steps are computed: FLOAT16 as FLOAT32, as PyTorch does on a CPU."""
    dtype = node.dtype if not isinstance(x, Value) or x.dtype.kind != "f" else x.dtype
    return node.tensor(x, FLOAT if dtype.kind != "f" or dtype == np.float16 else dtype)


def scaled(node: Conversion, x: Value, factor: float, bias: float = 0.0) -> Value:
    """x * factor + bias of a floating-point value."""
    if factor == 1 and bias == 0:
        return x
    return node.elementwise(ops.ElementWiseIdentity, x, scale_bias=ScaleBias(factor, bias))


def plus(node: Conversion, a: Value, b: Value) -> Value:
    """a + b of one type."""
    return node.elementwise(ops.ElementWiseLogicalOr if a.dtype == BOOL else ops.ElementWiseAdd, a, b)


def minus(node: Conversion, a: Value, b: Value) -> Value:
    """a - b of one type."""
    return node.elementwise(ops.ElementWiseSubtract, a, b)


def times(node: Conversion, a: Value, b: Value) -> Value:
    """a * b of one type."""
    return node.elementwise(ops.ElementWiseLogicalAnd if a.dtype == BOOL else ops.ElementWiseMultiply, a, b)


def over(node: Conversion, a: Value, b: Value) -> Value:
    """a / b of one type; of whole numbers toward 0."""
    return node.elementwise(ops.ElementWiseDivide, a, b)


def compared(node: Conversion, row: type[OperatorDesc], a: Value, b: Operand) -> Value:
    """A comparison with a value of the same type, or with a number of it."""
    return node.elementwise(row, a, node.tensor(b, a.dtype), dtype=BOOL)


def negated(node: Conversion, x: Value) -> Value:
    """Whether a truth value is false."""
    return node.elementwise(ops.ElementWiseLogicalNot, x, dtype=BOOL)


def chosen(node: Conversion, condition: Value, a: Operand, b: Operand, dtype: np.dtype[Any]) -> Value:
    """The elements of ``a`` where a condition is true, else those of ``b``."""
    a, b = node.tensor(a, dtype), node.tensor(b, dtype)
    return node.elementwise(ops.ElementWiseIf, condition, a, b, dtype=dtype)


# -- arithmetic


@converter("aten.add.Tensor", "aten.add.Scalar")
def add(node: Conversion, a: Operand, b: Operand, alpha: Number = 1) -> Value:
    return _summed(node, a, b, alpha)


@converter("aten.sub.Tensor", "aten.sub.Scalar")
def sub(node: Conversion, a: Operand, b: Operand, alpha: Number = 1) -> Value:
    return _summed(node, a, b, alpha, ops.ElementWiseSubtract)


@converter("aten.rsub.Tensor", "aten.rsub.Scalar")
def rsub(node: Conversion, a: Operand, b: Operand, alpha: Number = 1) -> Value:
    dtype = node.dtype
    scaled_a = _multiple(node, node.tensor(a, dtype), alpha)
    return minus(node, node.tensor(b, dtype), scaled_a)


def _summed(node: Conversion, a: Operand, b: Operand, alpha: Number, row: type[OperatorDesc] = ops.ElementWiseAdd) -> Value:
    """a + alpha b, or a - alpha b; what a multiple rounds is rounded once."""
    dtype = node.dtype
    if dtype == BOOL:
        both = plus if alpha else (lambda node, a, b: a)
        return both(node, *node.broadcast(node.tensor(a, dtype), node.tensor(b, dtype)))
    if alpha == 1 or dtype.kind != "f":
        return node.elementwise(row, node.tensor(a, dtype), _multiple(node, node.tensor(b, dtype), alpha))
    multiple = _multiple(node, wide(node, node.tensor(b, dtype)), alpha)
    return node.cast(node.elementwise(row, wide(node, node.tensor(a, dtype)), multiple), dtype)


def _multiple(node: Conversion, x: Value, factor: Number) -> Value:
    if factor == 1:
        return x
    return scaled(node, x, float(factor)) if x.dtype.kind == "f" else times(node, x, node.tensor(factor, x.dtype))


@converter("aten.mul.Tensor", "aten.mul.Scalar")
def mul(node: Conversion, a: Operand, b: Operand) -> Value:
    return times(node, node.tensor(a, node.dtype), node.tensor(b, node.dtype))


@converter("aten.div.Tensor", "aten.div.Scalar")
def div(node: Conversion, a: Operand, b: Operand) -> Value:
    return over(node, node.tensor(a, node.dtype), node.tensor(b, node.dtype))


@converter("aten.div.Tensor_mode", "aten.div.Scalar_mode")
def div_rounded(node: Conversion, a: Operand, b: Operand, rounding_mode: str | None = None) -> Value:
    dtype = node.dtype
    a, b = node.tensor(a, dtype), node.tensor(b, dtype)
    if rounding_mode is None:
        return over(node, a, b)
    if rounding_mode == "floor":
        return node.cast(_floored(node, a, b), dtype)
    if dtype.kind != "f":
        return over(node, a, b)
    return node.cast(_toward_zero(node, over(node, wide(node, a), wide(node, b))), dtype)


@converter("aten.floor_divide.default", "aten.floor_divide.Scalar")
def floor_divide(node: Conversion, a: Operand, b: Operand) -> Value:
    return node.cast(_floored(node, node.tensor(a, node.dtype), node.tensor(b, node.dtype)), node.dtype)


def _floored(node: Conversion, a: Value, b: Value) -> Value:
    """The floor of a / b: of floats from the remainder, as the quotient itself may round up to a whole number."""
    if a.dtype.kind == "u":
        return over(node, a, b)
    if a.dtype.kind == "i":
        quotient = over(node, a, b)
        rest = minus(node, a, times(node, quotient, b))
        apart = compared(node, ops.ElementWiseLogicalLessThan, node.elementwise(ops.ElementWiseBitXor, rest, b), 0)
        lowers = node.elementwise(ops.ElementWiseLogicalAnd, apart, _is_not(node, rest, 0), dtype=BOOL)
        return minus(node, quotient, node.cast(lowers, a.dtype))
    a, b = wide(node, a), wide(node, b)
    rest = node.elementwise(ops.ElementWiseModulusFloor, a, b)
    quotient = over(node, minus(node, a, rest), b)
    floor = node.elementwise(ops.ElementWiseFloor, scaled(node, quotient, 1.0, 0.5))
    is_zero = compared(node, ops.ElementWiseLogicalEquals, b, 0.0)
    return chosen(node, is_zero, over(node, a, b), floor, a.dtype)


def _is_not(node: Conversion, a: Value, b: Operand) -> Value:
    return negated(node, compared(node, ops.ElementWiseLogicalEquals, a, b))


@converter("aten.remainder.Tensor", "aten.remainder.Scalar", "aten.remainder.Scalar_Tensor")
def remainder(node: Conversion, a: Operand, b: Operand) -> Value:
    dtype = node.dtype
    return node.elementwise(ops.ElementWiseModulusFloor, node.tensor(a, dtype), node.tensor(b, dtype))


@converter("aten.fmod.Tensor", "aten.fmod.Scalar")
def fmod(node: Conversion, a: Operand, b: Operand) -> Value:
    dtype = node.dtype
    return node.elementwise(ops.ElementWiseModulusTruncate, node.tensor(a, dtype), node.tensor(b, dtype))


@converter("aten.maximum.default")
def maximum(node: Conversion, a: Value, b: Value) -> Value:
    return node.elementwise(ops.ElementWiseMax, node.tensor(a, node.dtype), node.tensor(b, node.dtype))


@converter("aten.minimum.default")
def minimum(node: Conversion, a: Value, b: Value) -> Value:
    return node.elementwise(ops.ElementWiseMin, node.tensor(a, node.dtype), node.tensor(b, node.dtype))


@converter("aten.fmax.default")
def fmax(node: Conversion, a: Value, b: Value) -> Value:
    return _but_nan(node, ops.ElementWiseMax, a, b)


@converter("aten.fmin.default")
def fmin(node: Conversion, a: Value, b: Value) -> Value:
    return _but_nan(node, ops.ElementWiseMin, a, b)


def _but_nan(node: Conversion, row: type[OperatorDesc], a: Value, b: Value) -> Value:
    """What a function gives of two numbers; where one is NaN, the other."""
    dtype = node.dtype
    a, b = node.tensor(a, dtype), node.tensor(b, dtype)
    if dtype.kind != "f":
        return node.elementwise(row, a, b)
    return node.elementwise(row, chosen(node, isnan(node, a), b, a, dtype), chosen(node, isnan(node, b), a, b, dtype))


@converter("aten.clamp.default", "aten.clamp.Tensor")
def clamp(node: Conversion, x: Value, low: Operand | None = None, high: Operand | None = None) -> Value:
    """Where the bounds cross, the upper one counts."""
    x = node.tensor(x, node.dtype)
    for bound, row in ((low, ops.ElementWiseMax), (high, ops.ElementWiseMin)):
        if bound is not None:
            x = node.elementwise(row, x, node.tensor(bound, node.dtype))
    return x


@converter("aten.clamp_min.default", "aten.clamp_min.Tensor")
def clamp_min(node: Conversion, x: Value, low: Operand) -> Value:
    return node.elementwise(ops.ElementWiseMax, node.tensor(x, node.dtype), node.tensor(low, node.dtype))


@converter("aten.clamp_max.default", "aten.clamp_max.Tensor")
def clamp_max(node: Conversion, x: Value, high: Operand) -> Value:
    return node.elementwise(ops.ElementWiseMin, node.tensor(x, node.dtype), node.tensor(high, node.dtype))


@converter("aten.hardtanh.default")
def hardtanh(node: Conversion, x: Value, low: Number = -1, high: Number = 1) -> Value:
    return clamp(node, x, low, high)


@converter("aten.atan2.default")
def atan2(node: Conversion, a: Value, b: Value) -> Value:
    return node.elementwise(ops.ElementWiseAtanYx, node.tensor(a, node.dtype), node.tensor(b, node.dtype))


@converter("aten.pow.Tensor_Tensor")
def power(node: Conversion, x: Value, exponent: Value) -> Value:
    x, exponent = node.tensor(x, node.dtype), node.tensor(exponent, node.dtype)
    if node.dtype.kind == "f":
        return node.elementwise(ops.ElementWisePow, x, exponent)
    return _whole_power(node, x, exponent)


@converter("aten.pow.Scalar")
def power_of(node: Conversion, x: Number, exponent: Value) -> Value:
    return power(node, node.tensor(x, node.dtype), exponent)


@converter("aten.pow.Tensor_Scalar")
def power_by(node: Conversion, x: Value, exponent: Number) -> Value:
    dtype = node.dtype
    x = node.tensor(x, dtype)
    if dtype.kind != "f":
        return _known_power(node, x, int(exponent))
    if exponent == 0:
        return node.fill(x.sizes, dtype.type(1))
    if exponent == 1:
        return x
    if exponent == 0.5:
        return node.elementwise(ops.ElementWiseSqrt, x)
    if exponent in (2, 3):
        y = wide(node, x)
        square = times(node, y, y)
        return node.cast(square if exponent == 2 else times(node, square, y), dtype)
    if exponent == -1:
        return node.elementwise(ops.ElementWiseRecip, x)
    if exponent == -0.5:
        return rsqrt(node, x)
    return node.elementwise(ops.ElementWiseConstantPow, x, exponent=float(exponent))


def _known_power(node: Conversion, x: Value, exponent: int) -> Value:
    """A power of whole numbers by squares, with what overflows left out as in any product of theirs."""
    assert exponent >= 0, "PyTorch refuses others"
    result: Value | None = None
    while exponent:
        if exponent & 1:
            result = x if result is None else times(node, result, x)
        exponent >>= 1
        x = times(node, x, x) if exponent else x
    return node.fill(x.sizes, x.dtype.type(1)) if result is None else result


def _whole_power(node: Conversion, x: Value, exponent: Value) -> Value:
    """Powers of whole numbers by squares. Exponents below 0 leave the whole part of the quotient: of 1 and -1 a power, of
    others 0."""
    dtype = x.dtype
    one = node.tensor(1, dtype)
    result = node.fill(x.sizes, dtype.type(1))
    factor = x
    for bit in range(_SQUARE_BITS if dtype.itemsize == 8 else _SQUARE_BITS - 1):
        mask = node.elementwise(ops.ElementWiseBitAnd, exponent, node.tensor(1 << bit, dtype))
        result = chosen(node, _is_not(node, mask, 0), times(node, result, factor), result, dtype)
        factor = times(node, factor, factor)
    if dtype.kind == "u":
        return result
    is_odd = _is_not(node, node.elementwise(ops.ElementWiseBitAnd, exponent, one), 0)
    sign = chosen(node, is_odd, -1, 1, dtype)
    inverse = chosen(node, compared(node, ops.ElementWiseLogicalEquals, x, -1), sign, 0, dtype)
    inverse = chosen(node, compared(node, ops.ElementWiseLogicalEquals, x, 1), 1, inverse, dtype)
    return chosen(node, compared(node, ops.ElementWiseLogicalLessThan, exponent, 0), inverse, result, dtype)


# -- bits


def _bits(whole: type[OperatorDesc], truth: type[OperatorDesc]) -> Callable[[Conversion, Operand, Operand], Value]:
    """A bit operator, which of truth values is a logical one."""

    def convert(node: Conversion, a: Operand, b: Operand) -> Value:
        return node.elementwise(
            truth if node.dtype == BOOL else whole, node.tensor(a, node.dtype), node.tensor(b, node.dtype)
        )

    return convert


for _name, _whole, _truth in (
    ("and", ops.ElementWiseBitAnd, ops.ElementWiseLogicalAnd),
    ("or", ops.ElementWiseBitOr, ops.ElementWiseLogicalOr),
    ("xor", ops.ElementWiseBitXor, ops.ElementWiseLogicalXor),
):
    converter(f"aten.bitwise_{_name}.Tensor", f"aten.bitwise_{_name}.Scalar")(_bits(_whole, _truth))


@converter("aten.bitwise_not.default")
def bitwise_not(node: Conversion, x: Value) -> Value:
    return negated(node, x) if x.dtype == BOOL else node.elementwise(ops.ElementWiseBitNot, x)


@converter("aten.bitwise_left_shift.Tensor", "aten.bitwise_left_shift.Tensor_Scalar")
def left_shift(node: Conversion, a: Value, b: Operand) -> Value:
    plain = np.dtype(f"u{node.dtype.itemsize}")
    a, b = (node.tensor(item, node.dtype).reinterpret(plain) for item in (a, b))
    return _in_width(node, node.elementwise(ops.ElementWiseBitShiftLeft, a, b), b, 0).reinterpret(node.dtype)


@converter("aten.bitwise_right_shift.Tensor", "aten.bitwise_right_shift.Tensor_Scalar")
def right_shift(node: Conversion, a: Value, b: Operand) -> Value:
    """Of numbers below 0 the complement's, so that the sign comes in from the left."""
    dtype = node.dtype
    plain = np.dtype(f"u{dtype.itemsize}")
    a, b = node.tensor(a, dtype), node.tensor(b, dtype)
    is_negative = compared(node, ops.ElementWiseLogicalLessThan, a, 0)
    bits = chosen(node, is_negative, node.elementwise(ops.ElementWiseBitNot, a), a, dtype).reinterpret(plain)
    moved = node.elementwise(ops.ElementWiseBitShiftRight, bits, b.reinterpret(plain))
    moved = _in_width(node, moved, b.reinterpret(plain), 0).reinterpret(dtype)
    return chosen(node, is_negative, node.elementwise(ops.ElementWiseBitNot, moved), moved, dtype)


def _in_width(node: Conversion, moved: Value, distance: Value, otherwise: int) -> Value:
    """What a shift by less than an element's bits leaves, and a number for any other."""
    is_within = compared(node, ops.ElementWiseLogicalLessThan, distance, moved.dtype.itemsize * 8)
    return chosen(node, is_within, moved, otherwise, moved.dtype)


# -- truth


def _logical(row: type[OperatorDesc]) -> Callable[[Conversion, Value, Value], Value]:
    def convert(node: Conversion, a: Value, b: Value) -> Value:
        return node.elementwise(row, node.cast(a, BOOL), node.cast(b, BOOL), dtype=BOOL)

    return convert


converter("aten.logical_and.default")(_logical(ops.ElementWiseLogicalAnd))
converter("aten.logical_or.default")(_logical(ops.ElementWiseLogicalOr))
converter("aten.logical_xor.default")(_logical(ops.ElementWiseLogicalXor))


@converter("aten.logical_not.default")
def logical_not(node: Conversion, x: Value) -> Value:
    return negated(node, node.cast(x, BOOL))


def _comparison(row: type[OperatorDesc], *, negates: bool = False) -> Callable[[Conversion, Operand, Operand], Value]:
    def convert(node: Conversion, a: Operand, b: Operand) -> Value:
        y = node.elementwise(row, *node.promoted(a, b), dtype=BOOL)
        return negated(node, y) if negates else y

    return convert


# fmt: off
_COMPARISONS: Final[tuple[tuple[str, type[OperatorDesc], bool], ...]] = (
    ("eq", ops.ElementWiseLogicalEquals,             False),
    ("ne", ops.ElementWiseLogicalEquals,             True),
    ("lt", ops.ElementWiseLogicalLessThan,           False),
    ("le", ops.ElementWiseLogicalLessThanOrEqual,    False),
    ("gt", ops.ElementWiseLogicalGreaterThan,        False),
    ("ge", ops.ElementWiseLogicalGreaterThanOrEqual, False),
)
# fmt: on
for _name, _test_row, _negates in _COMPARISONS:
    converter(f"aten.{_name}.Tensor", f"aten.{_name}.Scalar")(_comparison(_test_row, negates=_negates))


@converter("aten.where.self", "aten.where.ScalarOther", "aten.where.ScalarSelf", "aten.where.Scalar")
def where(node: Conversion, condition: Value, a: Operand, b: Operand) -> Value:
    return chosen(node, node.cast(condition, BOOL), a, b, node.dtype)


@converter("aten.isnan.default")
def isnan(node: Conversion, x: Value) -> Value:
    return _test(node, ops.ElementWiseIsNan, x)


@converter("aten.isinf.default")
def isinf(node: Conversion, x: Value) -> Value:
    return _test(node, ops.ElementWiseIsInfinity, x)


def _test(node: Conversion, row: type[OperatorDesc], x: Value) -> Value:
    """A test for numbers that only floats can be."""
    return node.elementwise(row, x, dtype=BOOL) if x.dtype.kind == "f" else node.fill(x.sizes, np.bool_(False))


# -- functions of one number


# fmt: off
_FUNCTIONS: Final[tuple[tuple[str, type[OperatorDesc]], ...]] = (
    ("acos",       ops.ElementWiseAcos),
    ("acosh",      ops.ElementWiseAcosh),
    ("asin",       ops.ElementWiseAsin),
    ("asinh",      ops.ElementWiseAsinh),
    ("atan",       ops.ElementWiseAtan),
    ("atanh",      ops.ElementWiseAtanh),
    ("cos",        ops.ElementWiseCos),
    ("cosh",       ops.ElementWiseCosh),
    ("erf",        ops.ElementWiseErf),
    ("exp",        ops.ElementWiseExp),
    ("log",        ops.ElementWiseLog),
    ("reciprocal", ops.ElementWiseRecip),
    ("sigmoid",    ops.ActivationSigmoid),
    ("sin",        ops.ElementWiseSin),
    ("sinh",       ops.ElementWiseSinh),
    ("sqrt",       ops.ElementWiseSqrt),
    ("tan",        ops.ElementWiseTan),
    ("tanh",       ops.ElementWiseTanh),
)
"""Functions that one operator computes; whole numbers are floats for them."""
# fmt: on


def _function(row: type[OperatorDesc]) -> Callable[[Conversion, Value], Value]:
    return lambda node, x: node.elementwise(row, node.tensor(x, node.dtype))


for _name, _row in _FUNCTIONS:
    converter(f"aten.{_name}.default")(_function(_row))


def _rounding(row: type[OperatorDesc], **fields: Any) -> Callable[[Conversion, Value], Value]:
    """A function that rounds, and leaves whole numbers as they are."""
    return lambda node, x: node.elementwise(row, x, **fields) if x.dtype.kind == "f" else x


_toward_zero = _rounding(ops.ElementWiseRound, rounding_mode=RoundingMode.TOWARD_ZERO)
converter("aten.trunc.default")(_toward_zero)
converter("aten.ceil.default")(_rounding(ops.ElementWiseCeil))
converter("aten.floor.default")(_rounding(ops.ElementWiseFloor))
converter("aten.round.default")(_rounding(ops.ElementWiseRound))


@converter("aten.round.decimals")
def round_decimals(node: Conversion, x: Value, decimals: int = 0) -> Value:
    if x.dtype.kind != "f":
        return x
    factor = node.tensor(10.0 ** abs(decimals), FLOAT)
    first, last = (times, over) if decimals >= 0 else (over, times)
    y = node.elementwise(ops.ElementWiseRound, first(node, wide(node, x), factor))
    return node.cast(last(node, y, factor), node.dtype)


@converter("aten.abs.default")
def absolute(node: Conversion, x: Value) -> Value:
    return x if x.dtype.kind in "bu" else node.elementwise(ops.ElementWiseAbs, x)


@converter("aten.neg.default")
def negative(node: Conversion, x: Value) -> Value:
    return minus(node, node.tensor(0, x.dtype), x) if x.dtype.kind == "u" else node.elementwise(ops.ElementWiseNegate, x)


@converter("aten.sign.default")
def sign(node: Conversion, x: Value) -> Value:
    return x if x.dtype == BOOL else node.elementwise(ops.ElementWiseSign, x)


@converter("aten.signbit.default")
def signbit(node: Conversion, x: Value) -> Value:
    """Whether the sign's bit is set, as it is of -0."""
    if x.dtype.kind in "bu":
        return node.fill(x.sizes, np.bool_(False))
    return compared(node, ops.ElementWiseLogicalLessThan, x.reinterpret(np.dtype(f"i{x.dtype.itemsize}")), 0)


@converter("aten.angle.default")
def angle(node: Conversion, x: Value) -> Value:
    """0 or, below 0, pi; of NaN NaN."""
    y = node.tensor(x, node.dtype)
    turned = chosen(node, compared(node, ops.ElementWiseLogicalLessThan, y, 0.0), math.pi, 0.0, y.dtype)
    return chosen(node, isnan(node, y), y, turned, y.dtype)


@converter("aten.exp2.default")
def exp2(node: Conversion, x: Value) -> Value:
    x = node.tensor(x, node.dtype)
    return node.elementwise(ops.ElementWisePow, node.tensor(2.0, x.dtype), x)


@converter("aten.rsqrt.default")
def rsqrt(node: Conversion, x: Value) -> Value:
    y = node.elementwise(ops.ElementWiseSqrt, wide(node, node.tensor(x, node.dtype)))
    return node.cast(node.elementwise(ops.ElementWiseRecip, y), node.dtype)


@converter("aten.expm1.default")
def expm1(node: Conversion, x: Value) -> Value:
    """exp(x) - 1 = tanh(x / 2) (exp(x) + 1), which is as good near 0; far from it the difference itself, which may be
    infinite."""
    x = wide(node, node.tensor(x, node.dtype))
    exponential = node.elementwise(ops.ElementWiseExp, x)
    half = node.elementwise(ops.ElementWiseTanh, x, scale_bias=ScaleBias(0.5, 0.0))
    near = times(node, half, scaled(node, exponential, 1.0, 1.0))
    is_near = compared(node, ops.ElementWiseLogicalLessThan, node.elementwise(ops.ElementWiseAbs, x), 1.0)
    return node.cast(chosen(node, is_near, near, scaled(node, exponential, 1.0, -1.0), x.dtype), node.dtype)


@converter("aten.log1p.default")
def log1p(node: Conversion, x: Value) -> Value:
    return node.cast(logarithm_of_sum(node, wide(node, node.tensor(x, node.dtype))), node.dtype)


def logarithm_of_sum(node: Conversion, x: Value) -> Value:
    """log(1 + x), near 0 as 2 atanh(x / (2 + x)), which is as good there."""
    part = over(node, x, scaled(node, x, 1.0, 2.0))
    near = scaled(node, node.elementwise(ops.ElementWiseAtanh, part), 2.0)
    far = node.elementwise(ops.ElementWiseLog, x, scale_bias=ScaleBias(1.0, 1.0))
    is_near = compared(node, ops.ElementWiseLogicalLessThan, node.elementwise(ops.ElementWiseAbs, x), 0.5)
    return chosen(node, is_near, near, far, x.dtype)


def _logarithm(base: int) -> Callable[[Conversion, Value], Value]:
    """The logarithm to a base: a quotient, so that of the base's powers near 1 it is exact."""

    def convert(node: Conversion, x: Value) -> Value:
        y = node.elementwise(ops.ElementWiseLog, wide(node, node.tensor(x, node.dtype)))
        return node.cast(over(node, y, node.tensor(math.log(base), y.dtype)), node.dtype)

    return convert


converter("aten.log2.default")(_logarithm(2))
converter("aten.log10.default")(_logarithm(10))


# -- activations


@converter("aten.relu.default")
def relu(node: Conversion, x: Value) -> Value:
    if x.dtype.kind == "f":
        return node.elementwise(ops.ActivationRelu, x)
    return x if x.dtype.kind in "bu" else node.elementwise(ops.ElementWiseMax, x, node.tensor(0, x.dtype))


@converter("aten.leaky_relu.default")
def leaky_relu(node: Conversion, x: Value, slope: Number = 0.01) -> Value:
    return node.elementwise(ops.ActivationLeakyRelu, x, alpha=float(slope))


@converter("aten.elu.default")
def elu(node: Conversion, x: Value, alpha: Number = 1, scale: Number = 1, input_scale: Number = 1) -> Value:
    """scale x from 0 on, and below it alpha scale (exp(input_scale x) - 1)."""
    if scale == 1 and input_scale == 1:
        return node.elementwise(ops.ActivationElu, x, alpha=float(alpha))
    y = wide(node, x)
    below = scaled(node, expm1(node, scaled(node, y, float(input_scale))), float(alpha) * float(scale))
    is_above = compared(node, ops.ElementWiseLogicalGreaterThan, y, 0.0)
    return node.cast(chosen(node, is_above, scaled(node, y, float(scale)), below, y.dtype), node.dtype)


@converter("aten.gelu.default")
def gelu(node: Conversion, x: Value, approximate: str = "none") -> Value:
    """x Phi(x), or with ``tanh`` x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) / 2."""
    if approximate == "none":
        return node.elementwise(ops.ActivationGelu, x)
    y = wide(node, x)
    inner = times(node, y, scaled(node, times(node, y, y), 0.044715, 1.0))
    share = node.elementwise(ops.ElementWiseTanh, inner, scale_bias=ScaleBias(math.sqrt(2 / math.pi), 0.0))
    return node.cast(times(node, y, scaled(node, share, 0.5, 0.5)), node.dtype)


@converter("aten.silu.default")
def silu(node: Conversion, x: Value) -> Value:
    return node.elementwise(ops.ActivationSwish, x, sigmoid_input_scale=1.0)


@converter("prims.fma.default")
def fma(node: Conversion, a: Operand, b: Operand, c: Operand) -> Value:
    """a b + c, of which PyTorch's optimisers give numbers for some; what the product rounds is rounded in float32."""
    dtype = node.dtype
    product = times(node, wide(node, node.tensor(a, dtype)), wide(node, node.tensor(b, dtype)))
    return node.cast(plus(node, product, wide(node, node.tensor(c, dtype))), dtype)
