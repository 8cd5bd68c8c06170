"""Pow: base and exponent may be of different types. DirectML's rows have integers of at most 32 bits, so that a base of
64 is raised by multiplications, and an exponent of 64 is narrowed."""

from __future__ import annotations

import numpy as np

from dmlvk.onnx.conversion import Conversion
from dmlvk.onnx.convert.cast import cast_to
from dmlvk.onnx.model import Array, data_type_of
from dmlvk.onnx.registry import converts
from dmlvk.onnx.values import Value
from dmlvk.spec import ops
from dmlvk.spec.enums import TensorDataType
from dmlvk.spec.schema import FLOATS, fits_float32

_BOOL, _INT64, _UINT64 = np.dtype(np.bool_), np.dtype(np.int64), np.dtype(np.uint64)
_FLOAT64, _FLOAT32 = np.dtype(np.float64), np.dtype(np.float32)
_NARROW = {_INT64: np.dtype(np.int32), _UINT64: np.dtype(np.uint32)}


@converts("Pow", 7, 12, 13, 15, types=(*FLOATS, TensorDataType.INT64, TensorDataType.INT32), doubles=True)
def power(node: Conversion) -> Value:
    """A single exponent that is known before the run is a number of the operator instead of a tensor, unless it is an
    integer that rounds to a float of another parity."""
    x, known = node[0], node.host(1)
    if known is not None and known.size == 1 and known.ndim <= x.rank:
        exponent = known.item()
        keeps_parity = known.dtype.kind == "f" or abs(exponent) <= 2**24
        if x.dtype.kind == "f" and keeps_parity and fits_float32(exponent):
            return node.elementwise(ops.ElementWiseConstantPow, x, exponent=float(exponent))
        if x.dtype == _INT64 and exponent >= 0 and float(exponent).is_integer():
            return _whole_power(node, x, int(exponent))
    if x.dtype == _INT64:
        return _power_of_64_bits(node, x, node[1])
    if x.dtype == _FLOAT64:
        return node.elementwise(ops.ElementWisePow, x, cast_to(node, node[1], _FLOAT64))
    exponents = _narrowed(node, node[1]) if known is None else node.upload(_narrowed_array(known))
    return node.elementwise(ops.ElementWisePow, x, exponents)


def _narrowed(node: Conversion, exponents: Value) -> Value:
    """Numbers of 64 bits as 32: integers beyond count as the nearest of their parity, which overflow just so."""
    if exponents.dtype == _FLOAT64:
        return cast_to(node, exponents, _FLOAT32)
    narrow = _NARROW.get(exponents.dtype)
    if narrow is None:
        return exponents
    limits, data_type = np.iinfo(narrow), data_type_of(exponents.dtype)
    low, high = int(limits.min), int(limits.max) - 1
    clipped = node.elementwise(ops.ElementWiseClip1, exponents, min_max_data_type=data_type, min=low, max=high)
    parity = node.elementwise(ops.ElementWiseBitAnd, exponents, _number(node, 1, exponents.dtype))
    return cast_to(node, node.elementwise(ops.ElementWiseBitOr, clipped, parity), narrow)


def _narrowed_array(exponents: Array) -> Array:
    """``_narrowed`` of what is known before the run; of floats too."""
    if exponents.dtype.kind == "f":
        return exponents.astype(_FLOAT32)
    narrow = _NARROW.get(exponents.dtype, exponents.dtype)
    limits = np.iinfo(narrow)
    nearest: Array = exponents.clip(limits.min, limits.max - 1) | (exponents & 1)
    return nearest.astype(narrow)


def _whole_power(node: Conversion, x: Value, exponent: int) -> Value:
    """The low bits of x^exponent, by squaring."""
    if exponent == 0:
        return node.fill(x.sizes, np.int64(1))
    result: Value | None = None
    while exponent:
        if exponent & 1:
            result = x if result is None else node.elementwise(ops.ElementWiseMultiply, result, x)
        exponent >>= 1
        if exponent:
            x = node.elementwise(ops.ElementWiseMultiply, x, x)
    assert result is not None, "the exponent is not 0"
    return result


def _power_of_64_bits(node: Conversion, x: Value, exponents: Value) -> Value:
    """Like ``ElementWisePow``: whole exponents give the power's low bits, others the float32 power, toward zero."""
    if exponents.dtype.kind != "f":
        return _computed_whole_power(node, x, exponents)
    whole = cast_to(node, exponents, _INT64)
    is_whole = node.elementwise(ops.ElementWiseLogicalEquals, cast_to(node, whole, exponents.dtype), exponents, dtype=_BOOL)
    reals = node.elementwise(ops.ElementWisePow, cast_to(node, x, _FLOAT32), _narrowed(node, exponents))
    chosen = (is_whole, _computed_whole_power(node, x, whole), cast_to(node, reals, _INT64))
    return node.elementwise(ops.ElementWiseIf, *chosen, dtype=_INT64)


def _computed_whole_power(node: Conversion, x: Value, exponents: Value) -> Value:
    """Six squares of x, multiplied where the exponent has their bit. An exponent of 64 or more gives 0, 1 or -1, or
    else overflows: any other of its parity does, such as 62 or 63. A negative one is that of 1 / x, a whole number."""
    if exponents.dtype.kind == "u":
        bits = cast_to(node, exponents, _UINT64)
    else:
        exponents = cast_to(node, exponents, _INT64)
        negative = node.elementwise(ops.ElementWiseLogicalLessThan, exponents, _number(node, 0, _INT64), dtype=_BOOL)
        inverse = node.elementwise(ops.ElementWiseDivide, _number(node, 1, _INT64), x)
        x = node.elementwise(ops.ElementWiseIf, negative, inverse, x, dtype=_INT64)
        bits = exponents.reinterpret(_UINT64)
    large = node.elementwise(ops.ElementWiseLogicalGreaterThan, bits, _number(node, 63, _UINT64), dtype=_BOOL)
    same_parity = node.elementwise(ops.ElementWiseBitOr, bits, _number(node, 62, _UINT64))
    bits = node.elementwise(ops.ElementWiseIf, large, same_parity, bits, dtype=_UINT64)
    result = one = _number(node, 1, _INT64)
    for index in range(6):
        mask = _number(node, 1 << index, _UINT64)
        bit = node.elementwise(ops.ElementWiseBitAnd, bits, mask)
        has_bit = node.elementwise(ops.ElementWiseLogicalEquals, bit, mask, dtype=_BOOL)
        factor = node.elementwise(ops.ElementWiseIf, has_bit, x, one, dtype=_INT64)
        result = node.elementwise(ops.ElementWiseMultiply, result, factor)
        x = node.elementwise(ops.ElementWiseMultiply, x, x)
    return result


def _number(node: Conversion, number: int, dtype: np.dtype[np.generic]) -> Value:
    return node.upload(np.array(number, dtype))
