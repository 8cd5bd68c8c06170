"""Indices of arrays, as numpy has them."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from types import EllipsisType
from typing import Any

import numpy as np

from dmlvk.engine.stored_array import Index, StoredArray
from dmlvk.graph.views import Sizes

Chosen = np.ndarray[Any, Any] | StoredArray
"""Integers or truth values that say which elements are taken."""


def expanded(index: object, rank: int) -> list[Index | Chosen]:
    """An index with an item for each dimension, and None for each new one; a mask is one item for all its dimensions.

    Raises:
        IndexError: more items than dimensions.
        TypeError: an item of another kind.
    """
    items: list[Any] = [_item(item) for item in (index if isinstance(index, tuple) else (index,))]
    named = sum(_dimensions(item) for item in items)
    dots = [at for at, item in enumerate(items) if item is Ellipsis]
    if named > rank or len(dots) > 1:
        raise IndexError(f"too many indices: the DeviceArray has {rank} dimensions, and {named} are indexed")
    at = dots[0] if dots else len(items)
    items[at : at + 1] = [slice(None)] * (rank - named)
    return items


def _item(item: object) -> Index | EllipsisType | Chosen:
    if item is None or item is Ellipsis or isinstance(item, slice):
        return item
    if isinstance(item, list):
        item = np.asarray(item) if item else np.empty(0, np.int32)
    if isinstance(item, (np.ndarray, StoredArray)) and item.shape:
        if item.dtype.kind not in "biu":
            raise TypeError(f"an array that is an index must hold integers or truth values; got {item.dtype}")
        return item
    if isinstance(item, bool):
        raise TypeError("a DeviceArray cannot be indexed by one truth value; use integers, slices, arrays, None and ...")
    return operator.index(item)  # type: ignore[arg-type]  # which raises TypeError for what is no integer


def _dimensions(item: Index | EllipsisType | Chosen) -> int:
    """The dimensions that an item speaks of."""
    if item is None or item is Ellipsis:
        return 0
    return len(item.shape) if isinstance(item, (np.ndarray, StoredArray)) and item.dtype == bool else 1


def forward(item: slice, size: int) -> slice:
    """A slice that has the elements of one with a negative step, from the first in memory on."""
    places = range(*item.indices(size))
    return slice(places[-1], places[0] + 1, -places.step) if places else slice(0, 0)


def without_masks(items: Sequence[Index | Chosen], shape: Sizes) -> list[Index | Chosen]:
    """The items with the places of what is true for each mask: an array of integers for each of its dimensions. Waits for
    masks on a device.

    Raises:
        IndexError: a mask of other sizes than its dimensions have.
    """
    found: list[Index | Chosen] = []
    axis = 0
    for item in items:
        count = _dimensions(item)
        if isinstance(item, (np.ndarray, StoredArray)) and item.dtype == bool:
            check_mask(item, shape, axis)
            found += np.nonzero(item if isinstance(item, np.ndarray) else item.numpy())
        else:
            found.append(item)
        axis += count
    return found


def check_mask(mask: Chosen, shape: Sizes, axis: int) -> None:
    """Checks a mask over the dimensions of an array of some shape from an axis on. One without elements takes none.

    Raises:
        IndexError: it has other sizes.
    """
    wanted = shape[axis : axis + len(mask.shape)]
    if any(own not in (size, 0) for own, size in zip(mask.shape, wanted, strict=True)):
        raise IndexError(f"a mask must have the sizes {wanted} of its dimensions; got {tuple(mask.shape)}")


def places(chosen: Sequence[int | Chosen], sizes: Sizes) -> np.ndarray[Any, Any]:
    """Arrays of integers, one for each of some dimensions, as one array of places among their elements in row-major order.
    Waits for arrays on a device.

    Raises:
        IndexError: a place out of range, or arrays that do not broadcast together.
    """
    arrays = [item.numpy() if isinstance(item, StoredArray) else np.asarray(item) for item in chosen]
    for array, size in zip(arrays, sizes, strict=True):
        if array.size and not (-size <= array.min() and array.max() < size):
            raise IndexError(f"an index is out of range for a dimension of size {size}")
    try:
        arrays = list(np.broadcast_arrays(*arrays))
    except ValueError:
        raise IndexError(f"indices of shapes {[array.shape for array in arrays]} do not broadcast together") from None
    total = np.zeros(arrays[0].shape, np.int64)
    for array, size in zip(arrays, sizes, strict=True):
        total = total * size + np.where(array < 0, array + size, array).astype(np.int64)
    return total.astype(np.int32) if total.size and total.max() < 2**31 else total
