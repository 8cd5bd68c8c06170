"""Scatters, one update after the other, in the input's own type."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmlvk.spec.ops.scatter import ScatterElements, ScatterNd

Array = NDArray[Any]


def _position(index: Any, size: int) -> int | None:
    """The position in a dimension that an index means, None where it is out of range."""
    position = int(index) + size if index < 0 else int(index)
    return position if 0 <= position < size else None


def scatter_elements(desc: ScatterElements, x: Array, indices: Array, updates: Array) -> Array:
    """``ScatterElements``."""
    y = x.copy()
    for place in np.ndindex(indices.shape):
        position = _position(indices[place], x.shape[desc.axis])
        if position is not None:
            y[(*place[: desc.axis], position, *place[desc.axis + 1 :])] = updates[place]
    return y


def scatter_nd(desc: ScatterNd, x: Array, indices: Array, updates: Array) -> Array:
    """``ScatterNd``."""
    inputs = x.shape[x.ndim - desc.input_dimension_count :]
    *array, length = indices.shape[indices.ndim - desc.indices_dimension_count :]
    y = x.reshape(inputs).copy()
    blocks = updates.reshape((*array, *inputs[length:]))
    tuples = indices.reshape((*array, length))
    for place in np.ndindex(*array):
        positions = tuple(map(_position, tuples[place], inputs))
        if None not in positions:
            y[positions] = blocks[place]
    return y.reshape(x.shape)
