"""Arrays of other shapes and orders."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import numpy as np

from dmlvk import eager
from dmlvk.engine.array_functions import broadcast, common_sizes, reshaped
from dmlvk.engine.array_reductions import axes_of
from dmlvk.engine.device_array import DeviceArray
from dmlvk.graph.views import is_order, sizes_of
from dmlvk.spec.errors import InvalidArgumentError
from dmlvk.xp.operands import like, numpys, on_device, one_axis, together

Axis = int | tuple[int, ...]


@numpys("broadcast_to")
def broadcast_to(x: DeviceArray, shape: tuple[int, ...]) -> DeviceArray:
    """A view over a larger shape."""
    x, sizes = on_device("broadcast_to", x), (shape,) if isinstance(shape, int) else tuple(shape)
    if common_sizes("broadcast_to", x.shape, sizes) != sizes:
        rule = "must be one to which the array's shape broadcasts"
        raise InvalidArgumentError(rule, operator="broadcast_to", field="shape", value=sizes)
    return broadcast(x, sizes)


def broadcast_shapes(*shapes: tuple[int, ...]) -> tuple[int, ...]:
    """The shape that arrays of some shapes have together."""
    return common_sizes("broadcast_shapes", *shapes)


@numpys("broadcast_arrays")
def broadcast_arrays(*arrays: DeviceArray) -> tuple[DeviceArray, ...]:
    """Views of the shape that some arrays have together."""
    sizes = common_sizes("broadcast_arrays", *(on_device("broadcast_arrays", array).shape for array in arrays))
    return tuple(broadcast(array, sizes) for array in arrays)


@numpys("concatenate")
def concat(arrays: Sequence[DeviceArray], axis: int | None = 0) -> DeviceArray:
    """Arrays one after the other along an axis, or all their elements where it is None."""
    items = together("concat", list(arrays))
    if axis is None:
        items, axis = [reshaped(item, (item.size,)) for item in items], 0
    first = items[0]
    at = one_axis("concat", axis, first.ndim)
    for item in items:
        if item.shape[:at] + item.shape[at + 1 :] != first.shape[:at] + first.shape[at + 1 :]:
            rule = f"must be equal but along dimension {at}"
            raise InvalidArgumentError(rule, operator="concat", field="shape", value=item.shape, expected=first.shape)
    joined = eager.join(items, axis=at)
    return DeviceArray(first.device, joined.buffer, joined.data_type, joined.shape, is_bool=first.is_bool)


@numpys("stack")
def stack(arrays: Sequence[DeviceArray], axis: int = 0) -> DeviceArray:
    """Arrays of one shape one after the other along a new axis."""
    items = together("stack", list(arrays))
    return concat([expand_dims(item, axis) for item in items], one_axis("stack", axis, items[0].ndim + 1))


@numpys("unstack")
def unstack(x: DeviceArray, *, axis: int = 0) -> tuple[DeviceArray, ...]:
    """A view for each place along an axis."""
    first = moveaxis(x, axis, 0)
    return tuple(first[place] for place in range(first.shape[0]))


@numpys("expand_dims")
def expand_dims(x: DeviceArray, axis: Axis = 0) -> DeviceArray:
    """A view with new dimensions of size 1, which the axes are in the result.

    Raises:
        IndexError: an axis that the result does not have, or twice.
    """
    count = 1 if isinstance(axis, int) else len(axis)
    rank = on_device("expand_dims", x).ndim + count
    try:
        axes = axes_of("expand_dims", axis, rank)
    except InvalidArgumentError as error:
        raise IndexError(str(error)) from None
    sizes = iter(x.shape)
    return reshaped(x, tuple(1 if at in axes else next(sizes) for at in range(rank)))


@numpys("squeeze")
def squeeze(x: DeviceArray, axis: Axis | None = None) -> DeviceArray:
    """A view without dimensions of size 1: those of the axes, or all of them.

    Raises:
        InvalidArgumentError: a dimension of another size.
    """
    shape = on_device("squeeze", x).shape
    axes = tuple(at for at, size in enumerate(shape) if size == 1) if axis is None else axes_of("squeeze", axis, x.ndim)
    if any(shape[at] != 1 for at in axes):
        raise InvalidArgumentError("must be dimensions of size 1", operator="squeeze", field="axis", value=axis)
    return reshaped(x, tuple(size for at, size in enumerate(shape) if at not in axes))


@numpys("reshape")
def reshape(x: DeviceArray, shape: tuple[int, ...], *, copy: bool | None = None) -> DeviceArray:
    """The elements under another shape, one of whose sizes may be -1: a view where one can be had.

    Args:
        x: The array.
        shape: Sizes of as many elements.
        copy: Whether it is a copy in any case. False raises where a view cannot be had.
    """
    sizes = sizes_of(on_device("reshape", x).size, (shape,) if isinstance(shape, int) else tuple(shape))
    if sizes is None:
        rule = f"must have the {x.size} elements of shape {x.shape}"
        raise InvalidArgumentError(rule, operator="reshape", field="shape", value=shape)
    result = reshaped(x, sizes)
    if copy is False and result.buffer is not x.buffer:
        raise InvalidArgumentError("must not be False: strides need a copy", operator="reshape", field="copy", value=copy)
    return result.copy() if copy and result.buffer is x.buffer else result


@numpys("ravel")
def _flat(x: DeviceArray) -> DeviceArray:
    return reshaped(x, (x.size,))


@numpys("shape")
def _shape(x: DeviceArray) -> tuple[int, ...]:
    return x.shape


@numpys("ndim")
def _rank(x: DeviceArray) -> int:
    return x.ndim


@numpys("size")
def _size(x: DeviceArray, axis: int | None = None) -> int:
    return x.size if axis is None else x.shape[axis]


@numpys("copy")
def _copied(x: DeviceArray) -> DeviceArray:
    return x.copy()


@numpys("array_equal")
def _is_equal(x1: DeviceArray, x2: DeviceArray) -> bool:
    return np.shape(x1) == np.shape(x2) and bool((x1 == x2).all())


@numpys("permute_dims", "transpose")
def permute_dims(x: DeviceArray, axes: tuple[int, ...] | None = None) -> DeviceArray:
    """A view with the dimensions in another order, reversed where none is given."""
    if axes is None:
        return on_device("permute_dims", x).transpose()
    return on_device("permute_dims", x).transpose(*(axis + x.ndim if axis < 0 else axis for axis in axes))


@numpys("matrix_transpose")
def matrix_transpose(x: DeviceArray) -> DeviceArray:
    """A view with the last two dimensions swapped."""
    return on_device("matrix_transpose", x).mT


@numpys("swapaxes")
def _swapped(x: DeviceArray, axis1: int, axis2: int) -> DeviceArray:
    order = list(range(x.ndim))
    order[axis1], order[axis2] = order[axis2], order[axis1]
    return x.transpose(*order)


@numpys("moveaxis")
def moveaxis(x: DeviceArray, source: Axis, destination: Axis) -> DeviceArray:
    """A view with some dimensions in other places; the others keep their order."""
    rank = on_device("moveaxis", x).ndim
    pairs = [tuple(axis) if isinstance(axis, (tuple, list)) else (axis,) for axis in (source, destination)]
    froms, tos = ([one_axis("moveaxis", axis, rank) for axis in axes] for axes in pairs)
    places = dict(zip(tos, froms, strict=True))
    rest = iter([axis for axis in range(rank) if axis not in froms])
    order = [places[at] if at in places else next(rest) for at in range(rank)]
    assert is_order(order, rank), "each dimension has one place"
    return x.transpose(*order)


@numpys("flip")
def flip(x: DeviceArray, axis: Axis | None = None) -> DeviceArray:
    """A copy with the elements along some axes, or all, in the opposite order."""
    axes = axes_of("flip", axis, on_device("flip", x).ndim)
    return x[tuple(slice(None, None, -1) if at in axes else slice(None) for at in range(x.ndim))]


@numpys("roll")
def roll(x: DeviceArray, shift: Axis, axis: Axis | None = None) -> DeviceArray:
    """The elements moved along some axes, or in row-major order; what leaves at one end comes in at the other."""
    if axis is None:
        return reshaped(roll(reshaped(on_device("roll", x), (x.size,)), shift, 0), x.shape)
    axes = axis if isinstance(axis, tuple) else (axis,)
    shifts = shift if isinstance(shift, tuple) else (shift,) * len(axes)
    result = on_device("roll", x)
    for at, step in zip((one_axis("roll", item, x.ndim) for item in axes), shifts, strict=True):
        cut = -step % max(x.shape[at], 1)
        before = (slice(None),) * at
        if cut:
            result = concat([result[(*before, slice(cut, None))], result[(*before, slice(None, cut))]], axis=at)
    return result.copy() if result is x else result


@numpys("repeat")
def repeat(x: DeviceArray, repeats: Any, axis: int | None = None) -> DeviceArray:
    """Each element, or each slice along an axis, so many times. An array of counts on the device is read first."""
    if axis is None:
        x, axis = reshaped(on_device("repeat", x), (x.size,)), 0
    at = one_axis("repeat", axis, on_device("repeat", x).ndim)
    counts = repeats.numpy() if isinstance(repeats, DeviceArray) else np.asarray(repeats)
    places = np.repeat(np.arange(x.shape[at]), counts)
    return x[(*(slice(None),) * at, like(x, places))]


@numpys("tile")
def tile(x: DeviceArray, repetitions: tuple[int, ...]) -> DeviceArray:
    """The array so many times along each dimension."""
    counts = (repetitions,) if isinstance(repetitions, int) else tuple(map(operator.index, repetitions))
    rank = max(on_device("tile", x).ndim, len(counts))
    sizes, counts = (1,) * (rank - x.ndim) + x.shape, (1,) * (rank - len(counts)) + counts
    result = reshaped(x, sizes)
    for axis, count in enumerate(counts):
        result = (
            concat([result] * count, axis=axis)
            if count > 1
            else result[(slice(None),) * axis + (slice(0, None if count else 0),)]
        )
    return result.copy() if result.buffer is x.buffer else result
