"""Functions of numpy's that take several operators, and the way to all of them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np

from dmlvk.engine.array_functions import (
    broadcast,
    check_result,
    check_writable,
    common_sizes,
    computed,
    converted,
    copied,
    is_operator,
    reshaped,
    together,
    wrong_type,
)
from dmlvk.engine.array_runs import run, written
from dmlvk.engine.numpy_types import data_type_of
from dmlvk.engine.single_operators import Stored
from dmlvk.engine.stored_array import StoredArray
from dmlvk.spec import ops
from dmlvk.spec.enums import ReduceFunction, RoundingMode
from dmlvk.spec.errors import InvalidArgumentError
from dmlvk.spec.schema import OperatorDesc

_FLOAT: Final = np.dtype(np.float32)
_MATRIX_DIMENSIONS: Final = 4
_MOST_PRODUCTS: Final = 2**24
"""Elements of the products that a product of integer matrices keeps at a time."""


def like(array: Stored, value: float) -> Stored:
    """A number as an array of another one's type, without dimensions."""
    return type(array).from_numpy(np.asarray(value, array.dtype), array.device)


def chosen(condition: Stored, a: Stored, b: Stored) -> Stored:
    """The elements of ``a`` where a condition is true, else those of ``b``, which has the same type."""
    sizes = common_sizes("where", condition.shape, a.shape, b.shape)
    tensors = {"condition_tensor": condition, "a_tensor": a, "b_tensor": b}
    return run(ops.ElementWiseIf, {name: broadcast(array, sizes) for name, array in tensors.items()}, a.dtype, sizes)


def of_type(array: Stored, dtype: np.dtype[Any]) -> Stored:
    """The same bits as another type of as many: a view."""
    return type(array)(array.device, array.buffer, data_type_of(dtype), array.shape, array.strides, array.offset)


def _integers(array: Stored, kind: str) -> Stored:
    return of_type(array, np.dtype(f"{kind}{array.dtype.itemsize}"))


def _floats(array: Stored) -> Stored:
    return array if array.dtype.kind == "f" else converted(array, _FLOAT)


def _not_equal(a: Stored, b: Stored) -> Stored:
    return computed(np.logical_not, computed(np.equal, a, b))


def _floor_divide(a: Stored, b: Stored) -> Stored:
    if a.dtype.kind == "f":
        return computed(np.floor, computed(np.true_divide, a, b))
    if a.dtype.kind == "i":  # the operator's quotient goes toward zero, so that of what b divides without rest is the floor
        a = computed(np.subtract, a, computed(np.remainder, a, b))
    sizes = common_sizes("floor_divide", a.shape, b.shape)
    return run(ops.ElementWiseDivide, {"a_tensor": broadcast(a, sizes), "b_tensor": broadcast(b, sizes)}, a.dtype, sizes)


def _negative(array: Stored) -> Stored:
    if array.dtype.kind in "bu":
        return computed(np.subtract, type(array).from_numpy(np.zeros((), array.dtype), array.device), array)
    return run(ops.ElementWiseNegate, {"input_tensor": array}, array.dtype, array.shape)


def _absolute(array: Stored) -> Stored:
    if array.dtype.kind in "bu":
        return copied(array)
    return run(ops.ElementWiseAbs, {"input_tensor": array}, array.dtype, array.shape)


def _invert(array: Stored) -> Stored:
    if array.is_bool:
        return computed(np.logical_not, array)
    if array.dtype.kind == "f":
        raise wrong_type("invert", array.dtype)
    return run(ops.ElementWiseBitNot, {"input_tensor": array}, array.dtype, array.shape)


def _matmul(a: Stored, b: Stored) -> Stored:
    """numpy's product of matrices: a vector counts as one row or one column, leading dimensions broadcast."""
    if a.dtype.kind not in "iuf":
        raise wrong_type("matmul", a.dtype)
    if not a.shape or not b.shape:
        raise InvalidArgumentError("must have dimensions", operator="matmul", field="shape", value=(a.shape, b.shape))
    left = reshaped(a, (1, *a.shape)) if a.ndim == 1 else a
    right = reshaped(b, (*b.shape, 1)) if b.ndim == 1 else b
    if left.shape[-1] != right.shape[-2]:
        rule = f"of shapes {a.shape} and {b.shape}, the second must have as many rows as the first has columns"
        raise InvalidArgumentError(rule, operator="matmul", value=right.shape[-2], expected=left.shape[-1])
    batch = common_sizes("matmul", left.shape[:-2], right.shape[:-2])
    sizes = (*batch, left.shape[-2], right.shape[-1])
    wanted = batch + left.shape[-2:-1] * (a.ndim > 1) + right.shape[-1:] * (b.ndim > 1)
    if 0 in sizes or left.shape[-1] == 0:
        return type(a).from_numpy(np.zeros(wanted, a.dtype), a.device)
    if a.dtype.kind != "f":
        return reshaped(_integer_product(left, right), wanted)
    left, right = (broadcast(item, (*batch, *item.shape[-2:])) for item in (left, right))
    if len(sizes) > _MATRIX_DIMENSIONS:
        left, right = (reshaped(item, (math.prod(batch), *item.shape[-2:])) for item in (left, right))
        sizes = (left.shape[0], *sizes[-2:])
    product = run(ops.Gemm, {"a_tensor": left, "b_tensor": right}, a.dtype, sizes)
    return reshaped(product, wanted)


def _integer_product(a: Stored, b: Stored) -> Stored:
    """The product of matrices of integers, for which there is no operator: rows of products, and their sums."""
    sizes = (*common_sizes("matmul", a.shape[:-2], b.shape[:-2]), a.shape[-2], b.shape[-1])
    a, b = (broadcast(item, (*sizes[:-2], *item.shape[-2:])) for item in (a, b))
    wide = a.dtype if a.dtype.itemsize >= 4 else np.dtype(f"{a.dtype.kind}4")
    total = type(a).from_numpy(np.zeros((), wide), a.device)
    step = max(_MOST_PRODUCTS // math.prod(sizes), 1)
    for start in range(0, a.shape[-1], step):
        part = slice(start, start + step)
        rest = (slice(None),) * (len(sizes) - 2)
        columns = converted(a.viewed((*rest, slice(None), part, None)), wide)
        rows = converted(b.viewed((*rest, None, part, slice(None))), wide)
        products = computed(np.multiply, columns, rows)
        axis = products.ndim - 2
        kept = (*products.shape[:axis], 1, products.shape[-1])
        sums = run(ops.Reduce, {"input_tensor": products}, wide, kept, function=ReduceFunction.SUM, axes=(axis,))
        total = computed(np.add, total, reshaped(sums, sizes))
    return converted(total, a.dtype)


def _power(a: Stored, b: Stored) -> Stored:
    """Powers; of 64-bit integers, which the operator does not take, by squares: what overflows is not defined."""
    if a.dtype.kind == "f" or a.dtype.itemsize < 8:
        return computed(np.power, a, b)
    least = computed(
        np.bitwise_or, computed(np.bitwise_and, b, like(b, 1)), like(b, 62)
    )  # with which 0, 1 and -1 stay the same
    b = chosen(computed(np.greater, b, like(b, 63)), least, b)
    result, zero = like(a, 1), like(b, 0)
    for bit in range(6):
        is_set = computed(np.logical_not, computed(np.equal, computed(np.bitwise_and, b, like(b, 1 << bit)), zero))
        result = chosen(is_set, computed(np.multiply, result, a), result)
        a = computed(np.multiply, a, a)
    return result


def _shifted(row: type[OperatorDesc], a: Stored, b: Stored) -> Stored:
    """A shift, which the operators do of unsigned integers; negative numbers go to the right as their complements."""
    if a.dtype.kind not in "iu":
        raise wrong_type(row.type.name.lower(), a.dtype)
    sizes = common_sizes("shift", a.shape, b.shape)
    if a.dtype.kind == "u" or row is ops.ElementWiseBitShiftLeft:
        tensors = {"a_tensor": a, "b_tensor": b}
        inputs = {name: broadcast(_integers(array, "u"), sizes) for name, array in tensors.items()}
        return of_type(run(row, inputs, np.dtype(f"u{a.dtype.itemsize}"), sizes), a.dtype)
    is_negative = computed(np.less, a, like(a, 0))
    plain = chosen(is_negative, _invert(a), a)
    moved = of_type(_shifted(row, _integers(plain, "u"), _integers(b, "u")), a.dtype)
    return chosen(is_negative, _invert(moved), moved)


def _whole(ufunc: np.ufunc) -> Callable[[Any], Any]:
    """A function that rounds floats, and gives integers as they are."""
    return lambda array: computed(ufunc, array) if array.dtype.kind == "f" else copied(array)


def _trunc(array: Stored) -> Stored:
    if array.dtype.kind != "f":
        return copied(array)
    mode = RoundingMode.TOWARD_ZERO
    return run(ops.ElementWiseRound, {"input_tensor": array}, array.dtype, array.shape, rounding_mode=mode)


def _isfinite(array: Stored) -> Stored:
    array = _floats(array)
    return computed(np.less, _absolute(array), like(array, np.inf))


def _signbit(array: Stored) -> Stored:
    bits = _integers(_floats(array), "i")
    return computed(np.less, bits, like(bits, 0))


def _copysign(a: Stored, b: Stored) -> Stored:
    a, b = _floats(a), _floats(b)
    sign = np.iinfo(f"i{a.dtype.itemsize}").min
    magnitude, signs = (_integers(item, "i") for item in (a, b))
    parts = computed(np.bitwise_and, magnitude, like(magnitude, ~sign)), computed(np.bitwise_and, signs, like(signs, sign))
    return of_type(computed(np.bitwise_or, *parts), a.dtype)


def _nextafter(a: Stored, b: Stored) -> Stored:
    bits = _integers(a, "i")
    is_up = computed(np.equal, computed(np.less, a, b), computed(np.less, like(a, 0), a))
    moved = of_type(computed(np.add, bits, chosen(is_up, like(bits, 1), like(bits, -1))), a.dtype)
    least = _copysign(of_type(like(bits, 1), a.dtype), b)
    moved = chosen(computed(np.equal, a, like(a, 0)), least, moved)
    moved = chosen(computed(np.equal, a, b), b, moved)
    moved = chosen(computed(np.isnan, a), a, moved)
    return chosen(computed(np.isnan, b), b, moved)


def _sign(array: Stored) -> Stored:
    """The sign, of a NaN NaN, which the operator gives none of."""
    result = computed(np.sign, array)
    return chosen(computed(np.isnan, array), array, result) if array.dtype.kind == "f" else result


def _arccosh(array: Stored) -> Stored:
    """The operator's value, of 1 without the sign that it gives the zero."""
    return computed(np.add, computed(np.arccosh, _floats(array)), like(_floats(array), 0))


def _expm1(array: Stored) -> Stored:
    """exp(x) - 1 = tanh(x / 2) (exp(x) + 1), which is as good near 0."""
    array = _floats(array)
    half = computed(np.tanh, computed(np.multiply, array, like(array, 0.5)))
    return computed(np.multiply, half, computed(np.add, computed(np.exp, array), like(array, 1)))


def _log1p(array: Stored) -> Stored:
    """log(1 + x), near 0 as 2 atanh(x / (2 + x)), which is as good there."""
    array = _floats(array)
    part = computed(np.true_divide, array, computed(np.add, array, like(array, 2)))
    near = computed(np.multiply, computed(np.arctanh, part), like(array, 2))
    far = computed(np.log, computed(np.add, array, like(array, 1)))
    return chosen(computed(np.less, _absolute(array), like(array, 0.5)), near, far)


def _log_of(base: float) -> Callable[[Any], Any]:
    """The logarithm to a base."""

    def log(array: Stored) -> Stored:
        array = computed(np.log, array)
        return computed(np.multiply, array, like(array, 1 / math.log(base)))

    return log


def _logaddexp(a: Stored, b: Stored) -> Stored:
    a, b = _floats(a), _floats(b)
    apart = computed(np.exp, _negative(_absolute(computed(np.subtract, a, b))))
    result = computed(np.add, computed(np.maximum, a, b), _log1p(apart))
    return chosen(computed(np.equal, a, b), computed(np.add, a, like(a, math.log(2))), result)  # infinities among them


def _hypot(a: Stored, b: Stored) -> Stored:
    a, b = _absolute(_floats(a)), _absolute(_floats(b))
    most, least = computed(np.maximum, a, b), computed(np.minimum, a, b)
    is_same = computed(np.equal, most, least)  # infinities and zeros among them
    part = chosen(is_same, like(a, 1), computed(np.true_divide, least, most))
    root = computed(np.sqrt, computed(np.add, computed(np.multiply, part, part), like(a, 1)))
    infinite = computed(np.logical_or, computed(np.isinf, a), computed(np.isinf, b))
    return chosen(infinite, like(a, np.inf), computed(np.multiply, most, root))


_COMPOSED: Final[Mapping[np.ufunc, Callable[..., Any]]] = {
    np.not_equal: _not_equal,
    np.floor_divide: _floor_divide,
    np.power: _power,
    np.negative: _negative,
    np.positive: copied,
    np.conjugate: copied,
    np.absolute: _absolute,
    np.invert: _invert,
    np.left_shift: lambda a, b: _shifted(ops.ElementWiseBitShiftLeft, a, b),
    np.right_shift: lambda a, b: _shifted(ops.ElementWiseBitShiftRight, a, b),
    np.square: lambda array: computed(np.multiply, array, array),
    np.floor: _whole(np.floor),
    np.ceil: _whole(np.ceil),
    np.rint: _whole(np.rint),
    np.trunc: _trunc,
    np.isfinite: _isfinite,
    np.signbit: _signbit,
    np.copysign: _copysign,
    np.nextafter: _nextafter,
    np.sign: _sign,
    np.arccosh: _arccosh,
    np.expm1: _expm1,
    np.log1p: _log1p,
    np.log2: _log_of(2),
    np.log10: _log_of(10),
    np.logaddexp: _logaddexp,
    np.hypot: _hypot,
    np.matmul: _matmul,
}
"""numpy's functions that take more than one operator, or another one for some types."""


def runs(ufunc: np.ufunc) -> bool:
    """Whether one of numpy's functions runs on a device."""
    return ufunc in _COMPOSED or is_operator(ufunc)


def applied(kind: type[Stored], ufunc: np.ufunc, *operands: Any, into: Stored | None = None) -> Stored:
    """One of numpy's functions that run on a device, of arrays and numbers; NotImplemented for operands of other types.

    Args:
        kind: The type of arrays on a device, of which at least one operand is.
        ufunc: The function.
        operands: Its operands.
        into: An array of the result's type and shape to write it to, None for a new one. It may share memory with operands.

    Raises:
        InvalidArgumentError: types or shapes that do not go together, or that the function is not defined for.
        StateError: arrays of two devices.
    """
    if not all(isinstance(item, (StoredArray, np.ndarray, np.generic, bool, int, float)) for item in operands):
        return NotImplemented  # type: ignore[no-any-return]  # which Python and numpy ask for
    if into is not None:
        check_writable(ufunc.__name__, into)
    arrays = together(kind, ufunc.__name__, operands, into)
    if ufunc not in _COMPOSED:
        return computed(ufunc, *arrays, into=into)
    result: Stored = _COMPOSED[ufunc](*arrays)
    if into is None:
        return result
    check_result(ufunc.__name__, result.dtype, result.shape, into)
    return written(result, into)
