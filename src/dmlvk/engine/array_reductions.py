"""What a ``DeviceArray`` computes over some of its axes."""

from __future__ import annotations

import operator
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from dmlvk.engine.array_functions import converted, copied, reshaped
from dmlvk.engine.array_runs import run
from dmlvk.engine.single_operators import Stored
from dmlvk.spec import ops
from dmlvk.spec.enums import ReduceFunction
from dmlvk.spec.errors import InvalidArgumentError

_FLOAT: Final = np.dtype(np.float32)

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
    if out is not None:
        raise InvalidArgumentError("must be None: a result is a new array", operator=name, field="out", value=type(out))
    axes = axes_of(name, axis, array.ndim)
    array = converted(array, _reduced_type(function, array.dtype) if dtype is None else np.dtype(dtype))
    kept = tuple(1 if at in axes else size for at, size in enumerate(array.shape))
    final = kept if keepdims else tuple(size for at, size in enumerate(array.shape) if at not in axes)
    if array.size == 0:
        empty = {"sum": 0, "prod": 1, "any": False, "all": True}
        if 0 not in kept and name not in empty:
            raise InvalidArgumentError("must have elements", operator=name, field="shape", value=array.shape)
        return type(array).from_numpy(np.full(final, empty.get(name, 0), array.dtype), array.device)
    if not axes:
        return copied(array)
    given = {"input_tensor": reshaped(array, array.shape or (1,))}
    result = run(ops.Reduce, given, array.dtype, kept or (1,), function=function, axes=axes)
    return reshaped(result, final)


def _reduced_type(function: ReduceFunction, dtype: np.dtype[Any]) -> np.dtype[Any]:
    """The type that a reduction computes in by itself."""
    if function == ReduceFunction.AVERAGE:
        return dtype if dtype.kind == "f" else _FLOAT
    if function in (ReduceFunction.SUM, ReduceFunction.MULTIPLY) and dtype.kind != "f":
        return np.dtype(np.uint64 if dtype.kind == "u" else np.int64)
    return dtype


def axes_of(name: str, axis: Axes, rank: int) -> tuple[int, ...]:
    """Axes as the operator has them: each once, from 0, in order."""
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
