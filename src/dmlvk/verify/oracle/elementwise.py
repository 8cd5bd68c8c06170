"""Elementwise mathematics in float64, integers exactly."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmlvk.engine.numpy_types import dtype_of
from dmlvk.spec.enums import RoundingMode
from dmlvk.spec.schema import OperatorDesc
from dmlvk.verify.oracle import Scaled
from dmlvk.verify.oracle.activation import activated, error_function

Array = NDArray[Any]


def wide(x: Array) -> Array:
    """Floats in float64, integers as they are."""
    return x.astype(np.float64) if x.dtype.kind == "f" else x


def to_integer(x: Array, kind: np.dtype[Any]) -> Array:
    """float64 values as DirectML casts them to an integer type: toward zero, clamped, NaN to 0."""
    limits = np.iinfo(kind)
    inside = (x > limits.min) & (x < limits.max)
    result = np.where(inside, x, 0).astype(kind)
    result[x >= limits.max] = limits.max
    result[x <= limits.min] = limits.min
    return result


def scaled(desc: Any, x: Array) -> Array:
    """g(x) = x * scale + bias: in float64, or in float32 and cast back for integers."""
    if desc.scale_bias is None:
        return wide(x)
    scale, bias = (np.float32(number) for number in desc.scale_bias)
    if x.dtype.kind == "f":
        return wide(x) * scale + bias
    return to_integer((x.astype(np.float32) * scale + bias).astype(np.float64), x.dtype)


def unary(function: Callable[[Array], Array]) -> Callable[[OperatorDesc, Array], Array]:
    """The oracle of a function of g(x)."""
    return lambda desc, x: function(scaled(desc, x))


element_wise_identity = unary(lambda x: x)
element_wise_abs = unary(np.abs)
element_wise_acos = unary(np.arccos)
element_wise_acosh = unary(np.arccosh)
element_wise_asin = unary(np.arcsin)
element_wise_asinh = unary(np.arcsinh)
element_wise_atan = unary(np.arctan)
element_wise_atanh = unary(np.arctanh)
element_wise_ceil = unary(np.ceil)
element_wise_cos = unary(np.cos)
element_wise_cosh = unary(np.cosh)
element_wise_erf = unary(error_function)
element_wise_exp = unary(np.exp)
element_wise_floor = unary(np.floor)
element_wise_log = unary(np.log)
element_wise_recip = unary(lambda x: 1 / x)
element_wise_sin = unary(np.sin)
element_wise_sinh = unary(np.sinh)
element_wise_sqrt = unary(np.sqrt)
element_wise_tan = unary(np.tan)
element_wise_tanh = unary(np.tanh)


def element_wise_constant_pow(desc: Any, x: Array) -> Array:
    return np.power(scaled(desc, x), float(np.float32(desc.exponent)))


def element_wise_round(desc: Any, x: Array) -> Array:
    match desc.rounding_mode:
        case RoundingMode.HALVES_TO_NEAREST_EVEN:
            return np.rint(wide(x))
        case RoundingMode.TOWARD_ZERO:
            return np.trunc(wide(x))
        case _:
            return np.copysign(np.floor(np.abs(wide(x)) + 0.5), x)


def element_wise_sign(desc: OperatorDesc, x: Array) -> Array:
    return np.where(x > 0, 1, np.where(x < 0, -1, 0)).astype(wide(x).dtype)


def element_wise_threshold(desc: Any, x: Array) -> Array:
    y = scaled(desc, x)
    least = np.array(np.float32(desc.min), np.float64).reshape(1)
    return np.maximum(y, least if y.dtype.kind == "f" else to_integer(least, y.dtype))


def element_wise_atan_yx(desc: OperatorDesc, a: Array, b: Array) -> Array:
    return np.arctan2(wide(a), wide(b))


def element_wise_negate(desc: OperatorDesc, x: Array) -> Array:
    return -wide(x)


def element_wise_clip1(desc: Any, x: Array) -> Array:
    y = scaled(desc, x)
    kind = y.dtype.type if y.dtype.kind != "f" else np.float32
    return np.maximum(kind(desc.min), np.minimum(y, kind(desc.max)))


def element_wise_clip(desc: Any, x: Array) -> Array:
    return element_wise_clip1(desc.upgrade(), x)


def element_wise_add(desc: OperatorDesc, a: Array, b: Array) -> Array:
    return wide(a) + wide(b)


def element_wise_add1(desc: Any, a: Array, b: Array) -> Array | Scaled:
    total = element_wise_add(desc, a, b)
    return total if desc.fused_activation is None else Scaled(activated(desc.fused_activation, total), np.abs(total))


def element_wise_subtract(desc: OperatorDesc, a: Array, b: Array) -> Array:
    return wide(a) - wide(b)


def element_wise_multiply(desc: OperatorDesc, a: Array, b: Array) -> Array:
    return wide(a) * wide(b)


def element_wise_divide(desc: OperatorDesc, a: Array, b: Array) -> Array:
    if a.dtype.kind == "f":
        return wide(a) / wide(b)
    return _by_numbers(a, b, lambda p, q: abs(p) // abs(q) * (1 if (p < 0) == (q < 0) else -1))


def element_wise_max(desc: OperatorDesc, a: Array, b: Array) -> Array:
    return np.maximum(wide(a), wide(b))


def element_wise_min(desc: OperatorDesc, a: Array, b: Array) -> Array:
    return np.minimum(wide(a), wide(b))


def element_wise_modulus_floor(desc: OperatorDesc, a: Array, b: Array) -> Array:
    if a.dtype.kind == "f":
        return np.mod(wide(a), wide(b))
    return _by_numbers(a, b, lambda p, q: p % q)


def element_wise_modulus_truncate(desc: OperatorDesc, a: Array, b: Array) -> Array:
    if a.dtype.kind == "f":
        return np.fmod(wide(a), wide(b))
    return _by_numbers(a, b, lambda p, q: abs(p) % abs(q) * (-1 if p < 0 else 1))


def element_wise_mean(desc: OperatorDesc, a: Array, b: Array) -> Array:
    if a.dtype.kind == "f":
        return (wide(a) + wide(b)) / 2
    return np.trunc((a.astype(np.float64) + b) / 2).astype(a.dtype)  # of 32 bits: exact


def element_wise_difference_square(desc: OperatorDesc, a: Array, b: Array) -> Array:
    return (wide(a) - wide(b)) ** 2


def element_wise_if(desc: OperatorDesc, condition: Array, a: Array, b: Array) -> Array:
    return wide(np.where(condition != 0, a, b))


def cast_to(x: Array, kind: np.dtype[Any]) -> Array:
    """Values of any type in another, rounded once."""
    return to_integer(x.astype(np.float64), kind) if x.dtype.kind == "f" and kind.kind != "f" else x.astype(kind)


def cast(desc: Any, x: Array) -> Array:
    # Rounded here, because on the way through float64 a 64-bit integer would be rounded twice.
    return wide(cast_to(x, dtype_of(desc.output_tensor.data_type)))


def value_scale2d(desc: Any, x: Array) -> Array | Scaled:
    product = wide(x) * np.float32(desc.scale)
    bias = np.array(desc.bias, np.float32).reshape(-1, 1, 1)
    return Scaled(product + bias, np.maximum(np.abs(product), np.abs(bias)))


def element_wise_pow(desc: Any, x: Array, exponent: Array) -> Array:
    base = scaled(desc, x)
    if base.dtype.kind == "f":
        return np.power(base, exponent.astype(np.float64))
    rounded = to_integer(np.power(base.astype(np.float64), exponent.astype(np.float64)), base.dtype)
    whole = np.trunc(exponent) == exponent if exponent.dtype.kind == "f" else np.ones(exponent.shape, bool)
    whole &= np.isfinite(exponent)
    bits = 8 * base.dtype.itemsize
    values = [
        _integer_power(p, int(q)) % 2**bits if is_whole else int(other) % 2**bits
        for p, q, is_whole, other in zip(
            base.ravel().tolist(), exponent.ravel().tolist(), whole.ravel().tolist(), rounded.ravel().tolist(), strict=True
        )
    ]
    return np.array(values, f"u{base.dtype.itemsize}").view(base.dtype).reshape(base.shape)


def _integer_power(base: int, exponent: int) -> int:
    """Modulo 2^64, which keeps the low bits; negative powers as quotients toward zero, 0 for those of 0."""
    if exponent >= 0:
        return pow(base, exponent, 2**64)
    return 0 if abs(base) != 1 else base if exponent % 2 else 1


def _by_numbers(a: Array, b: Array, function: Callable[[int, int], int]) -> Array:
    """A function of Python's unbounded integers, 0 where the divisor is 0, its low bits in the operands' type."""
    bits = 8 * a.dtype.itemsize
    pairs = zip(a.ravel().tolist(), b.ravel().tolist(), strict=True)
    values = [function(p, q) % 2**bits if q else 0 for p, q in pairs]
    return np.array(values, np.dtype(f"u{a.dtype.itemsize}")).view(a.dtype).reshape(a.shape)
