"""What indices take from a ``DeviceArray``, and what is written where they say."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Generic

import numpy as np

from dmlvk.engine.array_functions import broadcast, check_writable, converted, number, reshaped
from dmlvk.engine.array_runs import is_same, run, written
from dmlvk.engine.indices import Chosen, check_mask, expanded, forward, places, without_masks
from dmlvk.engine.numpy_types import array_of
from dmlvk.engine.single_operators import Stored
from dmlvk.engine.stored_array import Index, StoredArray
from dmlvk.graph.views import Sizes, broadcast_sizes
from dmlvk.spec import ops
from dmlvk.spec.errors import InvalidArgumentError, other_device

_INDEX: Final = np.dtype(np.int32)


def indexed(array: Stored, index: object) -> Stored:
    """What an index takes from an array; see ``DeviceArray.__getitem__``."""
    array, index = _with_a_dimension(array, index)
    items = expanded(index, array.ndim)
    if any(isinstance(item, (np.ndarray, StoredArray)) for item in items):
        return _gathered(_Places.of(array, without_masks(items, array.shape)))
    return _turned(*_sliced(array, items))


def _with_a_dimension(array: Stored, index: object) -> tuple[Stored, object]:
    """An array and an index, with a new first dimension for one truth value to choose in, as numpy has it."""
    if isinstance(index, (bool, np.bool_)):
        index = np.asarray(index)
    if not isinstance(index, (np.ndarray, StoredArray)) or index.shape or index.dtype != bool:
        return array, index
    mask = reshaped(index, (1,)) if isinstance(index, StoredArray) else np.reshape(index, 1)
    return array.viewed((None, *(slice(None),) * array.ndim)), mask


def _sliced(array: Stored, items: Sequence[Index | Chosen]) -> tuple[Stored, tuple[int, ...]]:
    """What integers and slices take, with all steps forward, and 1 for each dimension or -1 for one that goes backward."""
    sizes = iter(array.shape)
    plain: list[Index] = []
    steps: list[int] = []
    for item in items:
        assert not isinstance(item, (np.ndarray, StoredArray)), "there are none"
        size = 1 if item is None else next(sizes)
        is_backward = isinstance(item, slice) and item.step is not None and item.step < 0
        plain.append(forward(item, size) if isinstance(item, slice) and is_backward else item)
        steps += [] if isinstance(item, int) else [-1 if is_backward else 1]
    return array.viewed(plain), tuple(steps)


def _turned(array: Stored, steps: tuple[int, ...]) -> Stored:
    """An array with some dimensions backward, the array itself where none is."""
    if -1 not in steps:
        return array
    return run(
        ops.Slice1,
        {"input_tensor": array},
        array.dtype,
        array.shape,
        input_window_offsets=(0,) * array.ndim,
        input_window_sizes=array.shape,
        input_window_strides=steps,
    )


@dataclass(frozen=True)
class _Places(Generic[Stored]):
    """Places that arrays of integers, among other indices, choose in an array, by numpy's rules.

    Attributes:
        view: The array as the other indices leave it, with all steps forward.
        steps: 1 for each of its dimensions, or -1 for one that goes backward.
        at, count: Its dimensions in which places are chosen.
        indices: Places among the elements of those dimensions, row-major.
    """

    view: Stored
    steps: tuple[int, ...]
    at: int
    count: int
    indices: Stored

    @staticmethod
    def of(array: Stored, items: list[Index | Chosen]) -> _Places[Stored]:
        """The places of an index without masks."""
        axes = [at for at, item in enumerate(items) if isinstance(item, (int, np.ndarray, StoredArray))]
        chosen = [item for item in items if isinstance(item, (int, np.ndarray, StoredArray))]
        view, steps = _sliced(array, [slice(None) if at in axes else item for at, item in enumerate(items)])
        at = axes[0]
        if axes != list(range(at, at + len(axes))):  # what indices that stand apart take comes first
            at = 0
            order = (*axes, *(axis for axis in range(view.ndim) if axis not in axes))
            view, steps = view.transpose(*order), tuple(steps[axis] for axis in order)
        indices = chosen[0]
        if len(chosen) > 1 or not isinstance(indices, type(array)):
            numbers = places(chosen, view.shape[at : at + len(axes)])
            indices = type(array).from_numpy(numbers, array.device)
        if indices.dtype.itemsize < _INDEX.itemsize:
            indices = converted(indices, _INDEX)
        return _Places(view, steps, at, len(axes), indices)

    @property
    def before(self) -> Sizes:
        """The sizes of the dimensions before the chosen ones."""
        return self.view.shape[: self.at]

    @property
    def after(self) -> Sizes:
        """The sizes of the dimensions behind the chosen ones."""
        return self.view.shape[self.at + self.count :]

    @property
    def sizes(self) -> Sizes:
        """The sizes of what is taken from there, or written to it."""
        return self.before + self.indices.shape + self.after


def _gathered(where: _Places[Stored]) -> Stored:
    """The elements at some places, by one ``Gather``."""
    view, indices, wanted = _turned(where.view, where.steps), where.indices, where.sizes
    if 0 in wanted:
        return type(view).from_numpy(np.empty(wanted, view.dtype), view.device)
    flat = reshaped(
        view, (math.prod(where.before), math.prod(view.shape[where.at : where.at + where.count]), math.prod(where.after))
    )
    inputs = {"input_tensor": flat, "indices_tensor": reshaped(indices, (1, 1, indices.size))}
    taken = (flat.shape[0], indices.size, flat.shape[2])
    return reshaped(run(ops.Gather, inputs, view.dtype, taken, axis=1, index_dimensions=1), wanted)


# -- assignment


def assigned(array: Stored, index: object, value: Any) -> None:
    """Writes a value where an index says; see ``DeviceArray.__setitem__``."""
    check_writable("assignment", array)
    array, index = _with_a_dimension(array, index)
    given = _assignable(array, value)
    items = expanded(index, array.ndim)
    chosen = [at for at, item in enumerate(items) if isinstance(item, (np.ndarray, StoredArray))]
    if not chosen:
        view, steps = _sliced(array, items)
        given = _turned(_fitted(given, view.shape), steps)
        if not is_same(given, view):
            written(given, view)
        return
    mask, rest = items[chosen[0]], [*items[: chosen[0]], *items[chosen[0] + 1 :]]
    is_whole = all(isinstance(item, slice) and item == slice(None) for item in rest)
    if isinstance(mask, (np.ndarray, StoredArray)) and mask.dtype == bool and is_whole and not given.shape:
        _masked(array, mask, chosen[0], given)
        return
    _scattered(_Places.of(array, without_masks(items, array.shape)), given)


def _assignable(array: Stored, value: Any) -> Stored:
    """A value in the type of an array that it is to be written to, on its device."""
    if isinstance(value, (bool, int, float, list, tuple)):
        return type(array).from_numpy(number("assignment", value, array.dtype), array.device)
    if isinstance(value, type(array)) and value.device is not array.device:
        raise other_device("the value", value.device, "the array", array.device)
    given = value if isinstance(value, type(array)) else array_of(value, lambda: "value")
    if not np.can_cast(given.dtype, array.dtype, "same_kind"):
        rule = "a value must be of the array's kind of type or a lesser one: convert it with astype"
        raise InvalidArgumentError(rule, operator="assignment", field="dtype", value=given.dtype, expected=array.dtype)
    if isinstance(given, np.ndarray):
        return type(array).from_numpy(given.astype(array.dtype), array.device)
    return converted(given, array.dtype)


def _fitted(value: Stored, sizes: Sizes) -> Stored:
    """A value over the sizes that it is to be written to, without the leading dimensions of size 1 that it has too many."""
    extra = max(value.ndim - len(sizes), 0)
    if value.shape[:extra] == (1,) * extra and broadcast_sizes(value.shape[extra:], sizes) == sizes:
        return broadcast(reshaped(value, value.shape[extra:]), sizes)
    rule = "a value must broadcast to the shape that the index takes"
    raise InvalidArgumentError(rule, operator="assignment", field="shape", value=value.shape, expected=sizes)


def _masked(array: Stored, mask: Chosen, before: int, value: Stored) -> None:
    """Writes one element wherever a mask over some dimensions is true. Does not read the mask."""
    check_mask(mask, array.shape, before)
    if 0 in mask.shape:
        return
    given = mask if isinstance(mask, type(array)) else type(array).from_numpy(np.asarray(mask), array.device)
    sizes = (1,) * before + given.shape + (1,) * (array.ndim - before - given.ndim)
    inputs = {"condition_tensor": broadcast(reshaped(given, sizes), array.shape)}
    inputs |= {"a_tensor": broadcast(value, array.shape), "b_tensor": array}
    run(ops.ElementWiseIf, inputs, array.dtype, array.shape, array)


def _scattered(where: _Places[Stored], value: Stored) -> None:
    """Writes a value to some places; of several values for one the last stays."""
    view, at, count, indices = where.view, where.at, where.count, where.indices
    steps = where.steps[:at] + (1,) * indices.ndim + where.steps[at + count :]
    value = _turned(_fitted(value, where.sizes), steps)
    if 0 in value.shape or 0 in view.shape:
        return
    rows, target = _first(value, at, indices.ndim), _first(view, at, count)
    row = math.prod(where.before + where.after)
    inputs = {
        "input_tensor": reshaped(target, (view.size // row, row)),
        "indices_tensor": reshaped(indices, (indices.size, 1)),
        "updates_tensor": reshaped(rows, (indices.size, row)),
    }
    flat = inputs["input_tensor"].shape
    result = run(ops.ScatterNd, inputs, view.dtype, flat, input_dimension_count=2, indices_dimension_count=2)
    written(reshaped(result, target.shape), target)


def _first(array: Stored, at: int, count: int) -> Stored:
    """A view with some neighbouring dimensions before the others."""
    return array.transpose(*range(at, at + count), *range(at), *range(at + count, array.ndim))
