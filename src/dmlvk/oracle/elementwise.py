"""Elementwise mathematics in float64, integers exactly."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmlvk.oracle import Scaled
from dmlvk.oracle.activation import activated, error_function
from dmlvk.schema import OperatorDesc

Array = NDArray[Any]


def wide(x: Array) -> Array:
    """Floats in float64, integers as they are."""
    return x.astype(np.float64) if x.dtype.kind == "f" else x


def cast(x: Array, kind: np.dtype[Any]) -> Array:
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
    return cast((x.astype(np.float32) * scale + bias).astype(np.float64), x.dtype)


def unary(function: Callable[[Array], Array]) -> Callable[[OperatorDesc, Array], Array]:
    """The oracle of a function of g(x)."""
    return lambda desc, x: function(scaled(desc, x))


element_wise_identity = unary(lambda x: x)
element_wise_abs = unary(np.abs)
element_wise_ceil = unary(np.ceil)
element_wise_erf = unary(error_function)
element_wise_exp = unary(np.exp)
element_wise_floor = unary(np.floor)
element_wise_log = unary(np.log)
element_wise_recip = unary(lambda x: 1 / x)
element_wise_sqrt = unary(np.sqrt)
element_wise_tanh = unary(np.tanh)


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


def _by_numbers(a: Array, b: Array, function: Callable[[int, int], int]) -> Array:
    """A function of Python's unbounded integers, 0 where the divisor is 0, its low bits in the operands' type."""
    bits = 8 * a.dtype.itemsize
    pairs = zip(a.ravel().tolist(), b.ravel().tolist(), strict=True)
    values = [function(p, q) % 2**bits if q else 0 for p, q in pairs]
    return np.array(values, np.dtype(f"u{a.dtype.itemsize}")).view(a.dtype).reshape(a.shape)
