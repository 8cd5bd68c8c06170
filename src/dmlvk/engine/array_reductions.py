"""What a ``DeviceArray`` computes over some of its axes."""

from __future__ import annotations

import math
import operator
from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from dmlvk.engine.array_compositions import like
from dmlvk.engine.array_functions import computed, converted, copied, reshaped
from dmlvk.engine.array_runs import run
from dmlvk.engine.single_operators import Stored
from dmlvk.spec import ops
from dmlvk.spec.enums import ReduceFunction
from dmlvk.spec.errors import InvalidArgumentError
from dmlvk.spec.schema import OperatorDesc

_BOOL: Final = np.dtype(bool)
_FLOAT: Final = np.dtype(np.float32)

_PLACE: Final = np.dtype(np.int64)
_SUMS: Final = (ReduceFunction.SUM, ReduceFunction.SUM_SQUARE, ReduceFunction.MULTIPLY)
_OF_NOTHING: Final[Mapping[ReduceFunction, float]] = {
    ReduceFunction.SUM: 0,
    ReduceFunction.SUM_SQUARE: 0,
    ReduceFunction.MULTIPLY: 1,
    ReduceFunction.AVERAGE: np.nan,
}
"""What functions of no elements give, where that is defined."""

Axes = int | tuple[int, ...] | None


def reduced(
    array: Stored,
    name: str,
    function: ReduceFunction,
    axis: Axes,
    dtype: npt.DTypeLike | None,
    out: None,
    keepdims: bool,
) -> Stored:
    """A function over some axes; see ``DeviceArray.sum``."""
    check_no_out(name, out)
    axes = axes_of(name, axis, array.ndim)
    wanted = _reduced_type(function, array.dtype) if dtype is None else np.dtype(dtype)
    array = converted(array, _computed_type(wanted) if function in _SUMS else wanted)
    kept = tuple(1 if at in axes else size for at, size in enumerate(array.shape))
    final = kept if keepdims else tuple(size for at, size in enumerate(array.shape) if at not in axes)
    if array.size == 0:
        if 0 not in kept and function not in _OF_NOTHING and wanted != _BOOL:
            raise InvalidArgumentError("must have elements", operator=name, field="shape", value=array.shape)
        nothing = function == ReduceFunction.MIN  # whether all of no truth values are true
        return type(array).from_numpy(np.full(final, _OF_NOTHING.get(function, nothing), wanted), array.device)
    if not axes:
        return converted(copied(array), wanted)
    given = {"input_tensor": reshaped(array, array.shape or (1,))}
    result = run(ops.Reduce, given, array.dtype, kept or (1,), function=function, axes=axes)
    return converted(reshaped(result, final), wanted)


def variance(array: Stored, name: str, axis: Axes, correction: float, keepdims: bool) -> Stored:
    """The mean square of what the elements differ from their mean by; see ``DeviceArray.var``."""
    array = converted(array, _reduced_type(ReduceFunction.AVERAGE, array.dtype))
    axes = axes_of(name, axis, array.ndim)
    mean = reduced(array, name, ReduceFunction.AVERAGE, axes, None, None, True)
    apart = computed(np.subtract, array, mean)
    total = reduced(apart, name, ReduceFunction.SUM_SQUARE, axes, None, None, keepdims)
    count = max(math.prod(array.shape[at] for at in axes) - correction, 0)
    return computed(np.true_divide, total, like(total, count))


def place(array: Stored, name: str, row: type[OperatorDesc], axis: int | None, out: None, keepdims: bool) -> Stored:
    """The place of an element along an axis; see ``DeviceArray.argmax``."""
    check_no_out(name, out)
    axes = axes_of(name, axis, array.ndim)
    kept = tuple(1 if at in axes else size for at, size in enumerate(array.shape))
    if array.size == 0 and 0 not in kept:
        raise InvalidArgumentError("must have elements", operator=name, field="shape", value=array.shape)
    given = {"input_tensor": reshaped(array, array.shape or (1,))}
    result = run(row, given, _PLACE, kept or (1,), axes=axes or (0,))
    return reshaped(result, kept if keepdims else tuple(size for at, size in enumerate(array.shape) if at not in axes))


def cumulated(
    array: Stored, name: str, row: type[OperatorDesc], axis: int | None, dtype: npt.DTypeLike | None, out: None
) -> Stored:
    """The sums or products of all elements up to each along an axis; see ``DeviceArray.cumsum``."""
    check_no_out(name, out)
    if axis is None:
        array, axis = reshaped(array, (array.size,)), 0
    (at,) = axes_of(name, axis, array.ndim)
    wanted = _reduced_type(ReduceFunction.SUM, array.dtype) if dtype is None else np.dtype(dtype)
    kind = _computed_type(wanted)
    return converted(run(row, {"input_tensor": converted(array, kind)}, kind, array.shape, axis=at), wanted)


def check_no_out(name: str, out: object) -> None:
    """Raises InvalidArgumentError for an ``out``, which numpy hands on."""
    if out is not None:
        raise InvalidArgumentError("must be None: a result is a new array", operator=name, field="out", value=type(out))


def _reduced_type(function: ReduceFunction, dtype: np.dtype[Any]) -> np.dtype[Any]:
    """The type that a reduction gives by itself."""
    if function == ReduceFunction.AVERAGE:
        return dtype if dtype.kind == "f" else _FLOAT
    if function in _SUMS and dtype.kind != "f":
        return np.dtype(np.uint64 if dtype.kind == "u" else np.int64)
    return dtype


def _computed_type(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """The type that sums and products of a type are computed in: integers have 32 bits or more."""
    return np.dtype(f"{dtype.kind}4") if dtype.kind in "iu" and dtype.itemsize < 4 else dtype


def axes_of(name: str, axis: Axes, rank: int) -> tuple[int, ...]:
    """Axes as the operators have them: each once, from 0, in order.

    Raises:
        InvalidArgumentError: the array has no such axes.
    """
    if axis is None:
        return tuple(range(rank))
    try:
        given = [operator.index(item) for item in (axis if isinstance(axis, tuple) else (axis,))]
    except TypeError:
        given = [rank]
    axes = sorted(item + rank if item < 0 else item for item in given)
    if len(set(axes)) < len(axes) or not all(0 <= item < rank for item in axes):
        rule = f"must be dimensions of the array, which has {rank}, each once"
        raise InvalidArgumentError(rule, operator=name, field="axis", value=axis)
    return tuple(axes)
