"""Reductions in float64, or in the exact integer type; from the specification."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmlvk.spec.enums import AxisDirection, ReduceFunction
from dmlvk.spec.ops.reduction import Argmax, Argmin, Reduce
from dmlvk.verify.oracle import Scaled, wide

Array = NDArray[Any]


def _rows(x: Array, axes: tuple[int, ...]) -> Array:
    """The reduced dimensions as one, the last."""
    kept = [axis for axis in range(x.ndim) if axis not in axes]
    sizes = [x.shape[axis] for axis in kept]
    return x.transpose([*kept, *sorted(axes)]).reshape(*sizes, -1)


def _place(x: Array, axes: tuple[int, ...], direction: AxisDirection, *, least: bool) -> Array:
    rows = _rows(x, axes)
    if direction == AxisDirection.DECREASING:
        rows = rows[..., ::-1]
    found = rows.argmin(axis=-1) if least else rows.argmax(axis=-1)  # the first; a NaN first of all
    if direction == AxisDirection.DECREASING:
        found = rows.shape[-1] - 1 - found
    places: Array = found.reshape([1 if axis in axes else size for axis, size in enumerate(x.shape)]).astype(np.int64)
    return places


def argmax(desc: Argmax, x: Array) -> Array:
    """The index of the largest element."""
    return _place(x, desc.axes, desc.axis_direction, least=False)


def argmin(desc: Argmin, x: Array) -> Array:
    """The index of the least element."""
    return _place(x, desc.axes, desc.axis_direction, least=True)


def reduce(desc: Reduce, x: Array) -> Array | Scaled:
    """The function over the axes."""
    function, axes = desc.function, desc.axes
    if function in (ReduceFunction.ARGMAX, ReduceFunction.ARGMIN):
        return _place(x, axes, AxisDirection.INCREASING, least=function == ReduceFunction.ARGMIN)
    if x.dtype.kind == "f":
        # Of a sum that cancels the error is counted at half of the sum of the absolute values; float16 is summed in float32.
        terms = 2.0**-13 if x.dtype == np.float16 else 2.0**-1
        with np.errstate(all="ignore"):
            return _float(function, wide(x), axes, terms)
    if function == ReduceFunction.L1:
        x = np.abs(x)
    if function == ReduceFunction.SUM_SQUARE:
        x = x * x
    over: Any = {ReduceFunction.MAX: np.max, ReduceFunction.MIN: np.min, ReduceFunction.MULTIPLY: np.prod}.get(
        function, np.sum
    )
    result: Array = over(x, axis=axes, keepdims=True).astype(x.dtype)  # the low bits
    return result


_EXTREMES = (ReduceFunction.MAX, ReduceFunction.MIN)


def _float(function: ReduceFunction, x: Array, axes: tuple[int, ...], terms: float) -> Array | Scaled:
    def over(reduction: Any, values: Array) -> Array:
        result: Array = reduction(values, axis=axes, keepdims=True)
        return result

    if function in _EXTREMES:
        return over(np.max if function == ReduceFunction.MAX else np.min, x)
    if function == ReduceFunction.MULTIPLY:
        product = over(np.prod, x)  # every factor rounds
        return Scaled(product, np.nan_to_num(np.abs(product), posinf=0.0) * max(1, terms * x.size / product.size / 3))
    if function == ReduceFunction.LOG_SUM_EXP:
        largest = over(np.max, x)
        shift = np.where(np.isfinite(largest), largest, 0)
        powers = over(np.sum, np.exp(x - shift))
        return np.log(powers) + shift
    count = x.size // max(over(np.sum, x).size, 1)
    magnitude = over(np.sum, np.abs(x))
    if function in (ReduceFunction.L1, ReduceFunction.L2, ReduceFunction.SUM_SQUARE):
        total = magnitude if function == ReduceFunction.L1 else over(np.sum, x * x)
        return np.sqrt(total) if function == ReduceFunction.L2 else total
    total = over(np.sum, x)
    if function == ReduceFunction.LOG_SUM:
        # An error of the sum is the larger in its logarithm, the smaller the sum is.
        return Scaled(np.log(total), np.nan_to_num(terms * magnitude / np.abs(total), nan=0.0, posinf=0.0))
    divisor = count if function == ReduceFunction.AVERAGE else 1
    return Scaled(total / divisor, np.nan_to_num(terms * magnitude / divisor, nan=0.0, posinf=0.0))
