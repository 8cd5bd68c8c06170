"""Functions of many elements."""

from __future__ import annotations

import builtins

import numpy.typing as npt

from dmlvk.engine.array_reductions import Axes
from dmlvk.engine.device_array import DeviceArray
from dmlvk.spec.errors import InvalidArgumentError
from dmlvk.xp.creation import full
from dmlvk.xp.manipulation import concat
from dmlvk.xp.operands import numpys, on_device, one_axis


@numpys("sum")
def sum(
    x: DeviceArray, axis: Axes = None, dtype: npt.DTypeLike | None = None, *, keepdims: builtins.bool = False
) -> DeviceArray:
    """The sum over some axes, or all; see ``DeviceArray.sum``."""
    return on_device("sum", x).sum(axis, dtype, keepdims=keepdims)


@numpys("prod")
def prod(
    x: DeviceArray, axis: Axes = None, dtype: npt.DTypeLike | None = None, *, keepdims: builtins.bool = False
) -> DeviceArray:
    """The product over some axes, or all; see ``DeviceArray.prod``."""
    return on_device("prod", x).prod(axis, dtype, keepdims=keepdims)


@numpys("mean")
def mean(x: DeviceArray, axis: Axes = None, *, keepdims: builtins.bool = False) -> DeviceArray:
    """The mean over some axes, or all; see ``DeviceArray.mean``."""
    return on_device("mean", x).mean(axis, keepdims=keepdims)


@numpys("max", "amax")
def max(x: DeviceArray, axis: Axes = None, *, keepdims: builtins.bool = False) -> DeviceArray:
    """The largest element over some axes, or all; see ``DeviceArray.max``."""
    return on_device("max", x).max(axis, keepdims=keepdims)


@numpys("min", "amin")
def min(x: DeviceArray, axis: Axes = None, *, keepdims: builtins.bool = False) -> DeviceArray:
    """The least element over some axes, or all; see ``DeviceArray.min``."""
    return on_device("min", x).min(axis, keepdims=keepdims)


@numpys("any")
def any(x: DeviceArray, axis: Axes = None, *, keepdims: builtins.bool = False) -> DeviceArray:
    """Whether some element is not 0 over some axes, or all; see ``DeviceArray.any``."""
    return on_device("any", x).any(axis, keepdims=keepdims)


@numpys("all")
def all(x: DeviceArray, axis: Axes = None, *, keepdims: builtins.bool = False) -> DeviceArray:
    """Whether no element is 0 over some axes, or all; see ``DeviceArray.all``."""
    return on_device("all", x).all(axis, keepdims=keepdims)


@numpys("std")
def std(x: DeviceArray, axis: Axes = None, *, correction: float = 0, keepdims: builtins.bool = False) -> DeviceArray:
    """The standard deviation over some axes, or all; see ``DeviceArray.std``."""
    return on_device("std", x).std(axis, correction=correction, keepdims=keepdims)


@numpys("var")
def var(x: DeviceArray, axis: Axes = None, *, correction: float = 0, keepdims: builtins.bool = False) -> DeviceArray:
    """The variance over some axes, or all; see ``DeviceArray.var``."""
    return on_device("var", x).var(axis, correction=correction, keepdims=keepdims)


@numpys("argmax")
def argmax(x: DeviceArray, axis: int | None = None, *, keepdims: builtins.bool = False) -> DeviceArray:
    """The place of the largest element along an axis, or of all; see ``DeviceArray.argmax``."""
    return on_device("argmax", x).argmax(axis, keepdims=keepdims)


@numpys("argmin")
def argmin(x: DeviceArray, axis: int | None = None, *, keepdims: builtins.bool = False) -> DeviceArray:
    """The place of the least element along an axis, or of all; see ``DeviceArray.argmax``."""
    return on_device("argmin", x).argmin(axis, keepdims=keepdims)


@numpys("cumulative_sum", "cumsum")
def cumulative_sum(
    x: DeviceArray, axis: int | None = None, dtype: npt.DTypeLike | None = None, *, include_initial: builtins.bool = False
) -> DeviceArray:
    """The sums of all elements up to each along an axis; see ``DeviceArray.cumsum``.

    Args:
        x: The array.
        axis: The axis; may be left out of a vector, and stands for row-major order as numpy has it.
        dtype: The type to compute in, where not that of the result of ``sum``.
        include_initial: Whether 0 comes first.
    """
    result = on_device("cumulative_sum", x).cumsum(axis, dtype)
    return _after(result, 0, 0 if axis is None else axis) if include_initial else result


@numpys("cumulative_prod", "cumprod")
def cumulative_prod(
    x: DeviceArray, axis: int | None = None, dtype: npt.DTypeLike | None = None, *, include_initial: builtins.bool = False
) -> DeviceArray:
    """The products of all elements up to each along an axis; see ``DeviceArray.cumprod``.

    Args:
        x: The array.
        axis: The axis; may be left out of a vector, and stands for row-major order as numpy has it.
        dtype: The type to compute in, where not that of the result of ``prod``.
        include_initial: Whether 1 comes first.
    """
    result = on_device("cumulative_prod", x).cumprod(axis, dtype)
    return _after(result, 1, 0 if axis is None else axis) if include_initial else result


def _after(x: DeviceArray, value: int, axis: int) -> DeviceArray:
    """An array behind one value along an axis."""
    at = one_axis("include_initial", axis, x.ndim)
    sizes = (*x.shape[:at], 1, *x.shape[at + 1 :])
    return concat([full(sizes, value, dtype=x.dtype, device=x.device), x], axis=at)


@numpys("count_nonzero")
def count_nonzero(x: DeviceArray, axis: Axes = None, *, keepdims: builtins.bool = False) -> DeviceArray:
    """How many elements are not 0 over some axes, or all, as int64."""
    return on_device("count_nonzero", x).astype(bool).sum(axis, keepdims=keepdims)


@numpys("diff")
def diff(
    x: DeviceArray,
    n: int = 1,
    axis: int = -1,
    prepend: DeviceArray | None = None,
    append: DeviceArray | None = None,
) -> DeviceArray:
    """The differences of neighbours along an axis, so many times.

    Raises:
        InvalidArgumentError: less than 0 times.
    """
    parts = [part for part in (prepend, on_device("diff", x), append) if part is not None]
    if n < 0:
        raise InvalidArgumentError("must not be negative", operator="diff", field="n", value=n)
    at = one_axis("diff", axis, x.ndim)
    result = concat(parts, axis=at) if len(parts) > 1 else x
    before = (slice(None),) * at
    for _ in range(n):
        later, earlier = result[(*before, slice(1, None))], result[(*before, slice(None, -1))]
        result = later != earlier if result.is_bool else later - earlier
    return result
