"""Functions element by element: the standard's names for numpy's, which ``DeviceArray`` computes."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np

from dmlvk.engine.array_compositions import applied, chosen
from dmlvk.engine.device_array import DeviceArray
from dmlvk.spec.errors import InvalidArgumentError
from dmlvk.xp.creation import zeros_like
from dmlvk.xp.operands import default_type, like, numpys, on_device, together


def _function(name: str, ufunc: np.ufunc) -> Callable[..., DeviceArray]:
    """One of numpy's functions under the standard's name."""
    names = ("x",) if ufunc.nin == 1 else ("x1", "x2")

    def function(*operands: Any) -> DeviceArray:
        if len(operands) != len(names):
            raise TypeError(f"{name}() takes {len(names)} arrays or numbers; got {len(operands)}")
        if not any(isinstance(item, DeviceArray) for item in operands):
            on_device(name, operands[0])
        result = applied(DeviceArray, ufunc, *operands)
        if result is NotImplemented:
            rule = "must be arrays and numbers"
            raise InvalidArgumentError(rule, operator=name, value=[type(item).__name__ for item in operands])
        return result

    function.__name__ = function.__qualname__ = name
    function.__doc__ = (
        f"As ``numpy.{ufunc.__name__}``, on the device; numbers and numpy's arrays may stand beside one there."
    )
    kinds = [inspect.Parameter(item, inspect.Parameter.POSITIONAL_ONLY) for item in names]
    function.__signature__ = inspect.Signature(kinds)  # type: ignore[attr-defined]  # for help()
    return function


abs = _function("abs", np.absolute)
acos = _function("acos", np.arccos)
acosh = _function("acosh", np.arccosh)
add = _function("add", np.add)
asin = _function("asin", np.arcsin)
asinh = _function("asinh", np.arcsinh)
atan = _function("atan", np.arctan)
atan2 = _function("atan2", np.arctan2)
atanh = _function("atanh", np.arctanh)
bitwise_and = _function("bitwise_and", np.bitwise_and)
bitwise_invert = _function("bitwise_invert", np.invert)
bitwise_left_shift = _function("bitwise_left_shift", np.left_shift)
bitwise_or = _function("bitwise_or", np.bitwise_or)
bitwise_right_shift = _function("bitwise_right_shift", np.right_shift)
bitwise_xor = _function("bitwise_xor", np.bitwise_xor)
ceil = _function("ceil", np.ceil)
conj = _function("conj", np.conjugate)
copysign = _function("copysign", np.copysign)
cos = _function("cos", np.cos)
cosh = _function("cosh", np.cosh)
divide = _function("divide", np.true_divide)
equal = _function("equal", np.equal)
exp = _function("exp", np.exp)
expm1 = _function("expm1", np.expm1)
floor = _function("floor", np.floor)
floor_divide = _function("floor_divide", np.floor_divide)
greater = _function("greater", np.greater)
greater_equal = _function("greater_equal", np.greater_equal)
hypot = _function("hypot", np.hypot)
isfinite = _function("isfinite", np.isfinite)
isinf = _function("isinf", np.isinf)
isnan = _function("isnan", np.isnan)
less = _function("less", np.less)
less_equal = _function("less_equal", np.less_equal)
log = _function("log", np.log)
log10 = _function("log10", np.log10)
log1p = _function("log1p", np.log1p)
log2 = _function("log2", np.log2)
logaddexp = _function("logaddexp", np.logaddexp)
logical_and = _function("logical_and", np.logical_and)
logical_not = _function("logical_not", np.logical_not)
logical_or = _function("logical_or", np.logical_or)
logical_xor = _function("logical_xor", np.logical_xor)
matmul = _function("matmul", np.matmul)
maximum = _function("maximum", np.maximum)
minimum = _function("minimum", np.minimum)
multiply = _function("multiply", np.multiply)
negative = _function("negative", np.negative)
nextafter = _function("nextafter", np.nextafter)
not_equal = _function("not_equal", np.not_equal)
positive = _function("positive", np.positive)
pow = _function("pow", np.power)
reciprocal = _function("reciprocal", np.reciprocal)
remainder = _function("remainder", np.remainder)
round = numpys("round")(_function("round", np.rint))
sign = _function("sign", np.sign)
signbit = _function("signbit", np.signbit)
sin = _function("sin", np.sin)
sinh = _function("sinh", np.sinh)
sqrt = _function("sqrt", np.sqrt)
square = _function("square", np.square)
subtract = _function("subtract", np.subtract)
tan = _function("tan", np.tan)
tanh = _function("tanh", np.tanh)
trunc = _function("trunc", np.trunc)


@numpys("real")
def real(x: DeviceArray) -> DeviceArray:
    """A copy: all numbers are real."""
    return on_device("real", x).copy()


@numpys("imag")
def imag(x: DeviceArray) -> DeviceArray:
    """Zeros: all numbers are real."""
    return zeros_like(on_device("imag", x))


@numpys("clip")
def clip(x: DeviceArray, min: Any = None, max: Any = None) -> DeviceArray:
    """The elements, those below the least or above the largest number, or array of numbers, replaced by it."""
    result = on_device("clip", x)
    for ufunc, bound in ((np.maximum, min), (np.minimum, max)):
        if bound is not None:
            result = applied(DeviceArray, ufunc, result, bound)
    return result.copy() if min is None and max is None else result.astype(x.dtype, copy=False)


@numpys("where")
def where(condition: DeviceArray, x1: Any, x2: Any) -> DeviceArray:
    """The elements of one array where a condition is true, else those of another. A number takes the other one's type."""
    numbers = (bool, int, float)
    if isinstance(x1, numbers) and isinstance(x2, numbers):
        kind = default_type(np.asarray([x1, x2])).dtype
        x1, x2 = np.asarray(x1, kind), np.asarray(x2, kind)
    test = condition if isinstance(condition, DeviceArray) else None
    a, b = together("where", (x1, x2), test)
    test = like(a, np.asarray(condition)) if test is None else test
    return chosen(test.astype(bool, copy=False), a, b)
