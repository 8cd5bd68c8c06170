"""Running sums and products in float64; integers in their own type, wrapping."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmlvk.spec.enums import AxisDirection
from dmlvk.spec.ops.scan import CumulativeProduct, CumulativeSummation
from dmlvk.verify.oracle import Scaled, wide

Array = NDArray[Any]


def _accumulated(ufunc: np.ufunc, x: Array, axis: int, direction: AxisDirection, exclusive: bool) -> Array:
    rows = np.moveaxis(x, axis, -1)
    if direction == AxisDirection.DECREASING:
        rows = rows[..., ::-1]
    if exclusive:
        first = np.full((*rows.shape[:-1], 1), ufunc.identity, rows.dtype)
        rows = np.concatenate((first, rows[..., :-1]), -1)
    result: Array = ufunc.accumulate(rows, axis=-1, dtype=rows.dtype)
    if direction == AxisDirection.DECREASING:
        result = result[..., ::-1]
    return np.moveaxis(result, -1, axis)


def cumulative_summation(desc: CumulativeSummation, x: Array) -> Array | Scaled:
    """The error of a floating sum is counted at the magnitude of the sum of absolute values, as terms may cancel."""
    how = desc.axis, desc.axis_direction, desc.has_exclusive_sum
    if x.dtype.kind != "f":
        return _accumulated(np.add, x, *how)
    terms = wide(x)
    finite = np.where(np.isfinite(terms), np.abs(terms), 0.0)
    return Scaled(_accumulated(np.add, terms, *how), _accumulated(np.add, finite, *how))


def cumulative_product(desc: CumulativeProduct, x: Array) -> Array:
    factors = wide(x) if x.dtype.kind == "f" else x
    return _accumulated(np.multiply, factors, desc.axis, desc.axis_direction, desc.has_exclusive_product)
