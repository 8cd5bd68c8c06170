"""Orders, places and sets."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np

from dmlvk import eager
from dmlvk.engine.array_compositions import chosen, of_type
from dmlvk.engine.array_functions import broadcast, common_sizes, reshaped
from dmlvk.engine.array_runs import run
from dmlvk.engine.device_array import DeviceArray
from dmlvk.spec import ops
from dmlvk.spec.enums import AxisDirection, TensorDataType
from dmlvk.spec.errors import InvalidArgumentError
from dmlvk.xp.creation import arange, ones, zeros
from dmlvk.xp.manipulation import concat
from dmlvk.xp.operands import like, numpys, on_device, one_axis, together

_PLACE: Final = np.dtype(np.int64)
_PLACES: Final = TensorDataType.UINT32
_MOST: Final = 2**63 - 1


def _keys(x: DeviceArray) -> DeviceArray:
    """What orders an array's elements; float64, which the operator does not sort, goes by integers of its bits."""
    if x.dtype != np.float64:
        return x
    bits = of_type(x + 0.0, _PLACE)  # -0 as 0
    keys = chosen(bits < 0, bits ^ _MOST, bits)
    return chosen(x != x, like(x, np.asarray(_MOST)), keys)  # NaN last


def _order(name: str, x: DeviceArray, axis: int, descending: bool) -> DeviceArray:
    """The places of the elements along an axis in their order, equal ones as they lie."""
    at = one_axis(name, axis, on_device(name, x).ndim)
    if not x.size:
        return zeros(x.shape, dtype=_PLACE, device=x.device)
    direction = AxisDirection.DECREASING if descending else AxisDirection.INCREASING
    keys = _keys(x)
    types = (keys.data_type, _PLACES)
    _, places = eager.top_k1(keys, axis=at, k=x.shape[at], axis_direction=direction, output_data_types=types)
    found: DeviceArray = places.astype(_PLACE)
    return found


@numpys("argsort")
def argsort(x: DeviceArray, axis: int = -1, *, descending: bool = False, stable: bool = True) -> DeviceArray:
    """The places of the elements along an axis in their order, as int64. NaN is the largest; equal ones stay as they lie."""
    return _order("argsort", x, axis, descending)


@numpys("sort")
def sort(x: DeviceArray, axis: int = -1, *, descending: bool = False, stable: bool = True) -> DeviceArray:
    """The elements along an axis in their order; see ``argsort``."""
    return take_along_axis(x, _order("sort", x, axis, descending), axis)


@numpys("take")
def take(x: DeviceArray, indices: DeviceArray, axis: int | None = None) -> DeviceArray:
    """What is at some places along an axis, or in row-major order; what is out of range is clamped."""
    if axis is None:
        return reshaped(on_device("take", x), (x.size,))[indices]
    return x[(*(slice(None),) * one_axis("take", axis, on_device("take", x).ndim), indices)]


@numpys("take_along_axis")
def take_along_axis(x: DeviceArray, indices: DeviceArray, axis: int = -1) -> DeviceArray:
    """The elements at places along an axis, which are told for each element of the result."""
    at = one_axis("take_along_axis", axis, on_device("take_along_axis", x).ndim)
    places = on_device("take_along_axis", indices)
    if places.dtype.itemsize < 4:
        places = places.astype(np.int32)
    rest = common_sizes("take_along_axis", *((*item.shape[:at], 1, *item.shape[at + 1 :]) for item in (x, places)))
    source, places = (broadcast(item, (*rest[:at], item.shape[at], *rest[at + 1 :])) for item in (x, places))
    return run(ops.GatherElements, {"input_tensor": source, "indices_tensor": places}, x.dtype, places.shape, axis=at)


@numpys("nonzero")
def nonzero(x: DeviceArray) -> tuple[DeviceArray, ...]:
    """The places of the elements that are not 0, an array of int64 for each dimension. Waits for how many they are.

    Raises:
        InvalidArgumentError: an array without dimensions.
    """
    if not on_device("nonzero", x).ndim:
        raise InvalidArgumentError("must have dimensions", operator="nonzero", field="shape", value=x.shape)
    if not x.size:
        return tuple(zeros((0,), dtype=_PLACE, device=x.device) for _ in x.shape)
    count, places = eager.nonzero_coordinates(x.astype(bool, copy=False))
    rows = reshaped(places, places.shape[-2:])[: int(reshaped(count, ()))]
    return tuple(rows[:, axis].astype(_PLACE) for axis in range(x.ndim))


@numpys("searchsorted")
def searchsorted(x1: DeviceArray, x2: Any, side: str = "left", sorter: DeviceArray | None = None) -> DeviceArray:
    """Where numbers would go into a sorted vector, as int64. Every number is compared with every element.

    Args:
        x1: The vector.
        x2: The numbers.
        side: "left" for the first place that keeps the order, "right" for the last.
        sorter: The places of the vector's elements in their order, where it is not sorted.
    """
    if side not in ("left", "right"):
        raise InvalidArgumentError('must be "left" or "right"', operator="searchsorted", field="side", value=side)
    vector, numbers = together("searchsorted", (x1 if sorter is None else take(x1, sorter), x2))
    numbers = reshaped(numbers, (*numbers.shape, 1))
    return (vector < numbers if side == "left" else vector <= numbers).sum(-1)


class UniqueAll(NamedTuple):
    """What ``unique_all`` gives."""

    values: DeviceArray
    indices: DeviceArray
    inverse_indices: DeviceArray
    counts: DeviceArray


class UniqueCounts(NamedTuple):
    """What ``unique_counts`` gives."""

    values: DeviceArray
    counts: DeviceArray


class UniqueInverse(NamedTuple):
    """What ``unique_inverse`` gives."""

    values: DeviceArray
    inverse_indices: DeviceArray


@numpys("unique_all")
def unique_all(x: DeviceArray) -> UniqueAll:
    """The values that an array has, in order, each with its first place, with how often it is there, and for each element
    the place of its value. Each NaN is a value of its own. Waits for how many values there are."""
    flat = reshaped(on_device("unique_all", x), (x.size,))
    order = argsort(flat)
    ordered = take_along_axis(flat, order)
    is_first = ones((x.size,), dtype=bool, device=x.device)
    if x.size > 1:
        is_first[1:] = ordered[1:] != ordered[:-1]
    (starts,) = nonzero(is_first)
    inverse = zeros((x.size,), dtype=_PLACE, device=x.device)
    if x.size:
        inverse[order] = is_first.cumsum(0) - 1
    ends = concat([starts[1:], arange(x.size, x.size + 1, device=x.device)]) if x.size else starts
    return UniqueAll(ordered[starts], order[starts], reshaped(inverse, x.shape), ends - starts)


@numpys("unique_counts")
def unique_counts(x: DeviceArray) -> UniqueCounts:
    """The values that an array has, in order, and how often it has each; see ``unique_all``."""
    found = unique_all(x)
    return UniqueCounts(found.values, found.counts)


@numpys("unique_inverse")
def unique_inverse(x: DeviceArray) -> UniqueInverse:
    """The values that an array has, in order, and for each element the place of its value; see ``unique_all``."""
    found = unique_all(x)
    return UniqueInverse(found.values, found.inverse_indices)


@numpys("unique_values")
def unique_values(x: DeviceArray) -> DeviceArray:
    """The values that an array has, in order; see ``unique_all``."""
    return unique_all(x).values


@numpys("isin")
def isin(x1: Any, x2: Any, *, invert: bool = False) -> DeviceArray:
    """Whether each element of an array, or a number, is among the elements of another, all of which it is compared with."""
    a, b = together("isin", (x1, x2))
    found = (reshaped(a, (*a.shape, 1)) == reshaped(b, (b.size,))).any(-1)
    return ~found if invert else found
