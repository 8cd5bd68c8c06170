"""Gathers, in the input's own type."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmlvk.spec.ops.gather import Gather, GatherElements, GatherNd, GatherNd1

Array = NDArray[Any]


def _positions(indices: Array, size: int) -> Array:
    """Indices of a dimension as positions in it: negative ones from the end, those out of range clamped."""
    if indices.dtype.kind == "i":
        indices = np.where(indices < 0, indices.astype(np.int64) + size, indices)
    return np.asarray(np.clip(indices, 0, size - 1).astype(np.intp))


def gather(desc: Gather, x: Array, indices: Array) -> Array:
    """``Gather``."""
    meant = indices.reshape(indices.shape[indices.ndim - desc.index_dimensions :])
    return np.take(x, _positions(meant, x.shape[desc.axis]), desc.axis).reshape(desc.tensor("output_tensor").sizes)


def gather_elements(desc: GatherElements, x: Array, indices: Array) -> Array:
    """``GatherElements``."""
    return np.take_along_axis(x, _positions(indices, x.shape[desc.axis]), desc.axis)


def gather_nd1(desc: GatherNd1, x: Array, indices: Array) -> Array:
    """``GatherNd1``, batch by batch."""
    x = x.reshape(x.shape[x.ndim - desc.input_dimension_count :])
    indices = indices.reshape(indices.shape[indices.ndim - desc.indices_dimension_count :])
    batches = x.shape[: desc.batch_dimension_count]
    blocks = []
    for batch in np.ndindex(batches):
        own, tuples = x[batch], indices[batch]
        places = tuple(_positions(tuples[..., at], own.shape[at]) for at in range(tuples.shape[-1]))
        blocks.append(own[places])
    return np.array(blocks, x.dtype).reshape(desc.tensor("output_tensor").sizes)


def gather_nd(desc: GatherNd, x: Array, indices: Array) -> Array:
    """``GatherNd``."""
    return gather_nd1(desc.upgrade(), x, indices)
