"""The largest or smallest elements, by stable sorts."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmlvk.spec.enums import AxisDirection
from dmlvk.spec.ops.sort import TopK, TopK1

Array = NDArray[Any]


def _order(x: Array, axis: int, decreasing: bool) -> Array:
    """Positions along the axis in sorted order. NaN is the largest; equal elements keep their order."""
    keys = [-x if decreasing else x] if x.dtype.kind == "f" else [~x if decreasing else x]
    if x.dtype.kind == "f":
        is_nan = np.isnan(x)
        keys = [np.where(is_nan, 0, keys[0]), ~is_nan if decreasing else is_nan]
    result: Array = np.lexsort(keys, axis=axis)
    return result


def top_k1(desc: TopK1, x: Array) -> tuple[Array, Array]:
    order = _order(x, desc.axis, desc.axis_direction == AxisDirection.DECREASING)
    indices = np.take(order, range(desc.k), desc.axis)
    values = np.take_along_axis(x, indices, desc.axis)
    return (values.astype(np.float64) if x.dtype.kind == "f" else values), indices


def top_k(desc: TopK, x: Array) -> tuple[Array, Array]:
    return top_k1(desc.upgrade(), x)
