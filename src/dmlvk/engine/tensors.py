"""The tensors that the parts of a program hand to each other, on the device, on the host or on both, and the copies on the
device that take tensors apart and put them together."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from dmlvk.engine.copies import Copy, recorded_copies
from dmlvk.engine.device_array import DeviceArray
from dmlvk.engine.single_operators import packed
from dmlvk.engine.transfer import Array, empty, empty_on_device, from_bytes, from_device, packed_bytes, to_device
from dmlvk.graph.views import Sizes
from dmlvk.kernels.common.plan import aligned
from dmlvk.runtime.device import ComputeDevice
from dmlvk.runtime.recorder import BoundRange
from dmlvk.spec.enums import TensorDataType
from dmlvk.spec.errors import UnsupportedError
from dmlvk.spec.tensor import element_bits

_SMALL: Final = 1024
"""Bytes up to which it is cheaper to write a tensor where it is read than to keep a copy on the device."""


class Tensor:
    """A tensor between regions. Where it is wanted and is not, it is brought once.

    Args:
        uploaded: Told the bytes each time that the host writes the tensor to the device.

    Attributes:
        data_type: The type of an element on the device; None where it has none, as text has.
        dtype: numpy's type of an element.
        shape: Elements a dimension.
    """

    __slots__ = ("_array", "_device", "_host", "_uploaded", "data_type", "dtype", "shape")

    def __init__(
        self,
        device: ComputeDevice,
        data_type: TensorDataType | None,
        dtype: np.dtype[Any],
        shape: Sizes,
        value: Array | DeviceArray,
        uploaded: Callable[[int], None] | None = None,
    ) -> None:
        self.data_type = data_type
        self.dtype = dtype
        self.shape = shape
        self._device = device
        self._uploaded = uploaded
        self._array = value if isinstance(value, DeviceArray) else None
        self._host = None if isinstance(value, DeviceArray) else value

    def on_host(self) -> Array:
        """Its elements. Waits for the device where they are only there."""
        if self._host is None:
            assert self._array is not None, "it is somewhere"
            self._host = from_device(self._array, self.dtype)
        return self._host

    def on_device(self) -> DeviceArray:
        """The tensor as a packed array on the device."""
        if self._array is None:
            assert self._host is not None, "it is somewhere"
            assert self.data_type is not None, "nothing on the device reads text"
            self._array = to_device(self._device, self._host, self.data_type)
            self._note_upload(self._host)
        return self._array

    def feed(self) -> Array | DeviceArray:
        """The array to feed a compiled graph with: the host's where it is small, else the device's."""
        if self._array is None and self._host is not None and self._host.nbytes <= _SMALL:
            self._note_upload(self._host)
            return self._host
        return self.on_device()

    def _note_upload(self, array: Array) -> None:
        if self._uploaded is not None:
            self._uploaded(array.nbytes)

    @property
    def is_on_host(self) -> bool:
        """Whether reading it waits for nothing."""
        return self._host is not None

    @classmethod
    def bring_to_host(cls, tensors: Sequence[Tensor]) -> None:
        """Brings tensors of one device, at least one, to the host. Waits for the device once."""
        if len(tensors) == 1:
            tensors[0].on_host()
            return
        ranges = []
        for tensor in tensors:
            array = tensor.on_device()
            ranges.append(BoundRange(array.buffer, array.offset, packed_bytes(array)))
        starts = [*itertools.accumulate((aligned(part.nbytes) for part in ranges), initial=0)]
        device = tensors[0]._device
        together = device.create_buffer(max(starts[-1], 4))
        targets = [BoundRange(together, start, part.nbytes) for start, part in zip(starts, ranges, strict=False)]
        copies = [Copy(*pair) for pair in zip(ranges, targets, strict=True) if pair[0].nbytes]
        recorded_copies(device, copies).submit(defer=True)
        found = together.read()
        for tensor, target in zip(tensors, targets, strict=True):
            assert tensor.data_type is not None, "it is on the device"
            out = empty(tensor.shape, tensor.data_type, tensor.dtype)
            out.reshape(-1).view(np.uint8)[:] = found[target.offset : target.offset + target.nbytes]
            tensor._host = from_bytes(out, tensor.shape, tensor.data_type, tensor.dtype)


@dataclass(frozen=True, eq=False)
class Opaque:
    """A value that is neither a tensor nor a sequence of them, such as a dictionary; only the host can have it.

    Attributes:
        value: The value as the caller of a network gets it.
    """

    value: Any


Item = Tensor | tuple[Tensor, ...] | Opaque | None
"""A value: a tensor, a sequence, one of another kind, or nothing in an optional one."""


class Carrier:
    """Takes tensors apart and puts them together.

    Args:
        device: The device that they are on.
        data_type_of: The type on the device of elements of a numpy type; None for text.

    Attributes:
        dispatches: Kernels that it has launched.
    """

    def __init__(self, device: ComputeDevice, data_type_of: Callable[[np.dtype[Any]], TensorDataType | None]) -> None:
        self._device = device
        self._data_type_of = data_type_of
        self.dispatches = 0

    def tensor(self, value: Array, uploaded: Callable[[int], None] | None = None) -> Tensor:
        """A tensor of what the host has; ``uploaded`` is told the bytes when it goes to the device."""
        return Tensor(self._device, self._data_type_of(value.dtype), value.dtype, value.shape, value, uploaded)

    def _like(self, tensor: Tensor, value: Array | DeviceArray, shape: Sizes) -> Tensor:
        return Tensor(self._device, tensor.data_type, tensor.dtype, shape, value)

    def split(self, tensor: Tensor, axis: int, sizes: Sequence[int], *, keep: bool = True) -> list[Tensor]:
        """Parts of these sizes along an axis, which goes if it is not to be kept: views where they lie in one piece."""
        bounds = [*itertools.accumulate(sizes, initial=0)]
        if tensor.is_on_host:
            parts: list[Array | DeviceArray] = list(np.split(tensor.on_host(), bounds[1:-1], axis)) if sizes else []
        else:
            parts = [self._part(tensor, axis, *ends) for ends in itertools.pairwise(bounds)]
        made = []
        for part in parts:
            shape = part.shape if keep else (*part.shape[:axis], *part.shape[axis + 1 :])
            made.append(self._like(tensor, _shaped(part, shape), shape))
        return made

    def _part(self, tensor: Tensor, axis: int, start: int, end: int) -> DeviceArray:
        array = tensor.on_device()
        shape = (*array.shape[:axis], end - start, *array.shape[axis + 1 :])
        if 0 in shape:
            return empty_on_device(self._device, shape, array.data_type)
        return self._packed(array[(*(slice(None),) * axis, slice(start, end))])

    def stack(self, tensors: Sequence[Tensor], axis: int = 0) -> Tensor:
        """Tensors of one type and shape, at least one, along a new axis."""
        first = tensors[0]
        if first.data_type is None:
            return self.tensor(np.stack([item.on_host() for item in tensors], axis))
        shape = (1, *first.shape)
        rows = [self._like(item, _shaped(item.on_device(), shape), shape) for item in tensors]
        return self._moved(self.concat(rows, 0), axis)

    def concat(self, tensors: Sequence[Tensor], axis: int) -> Tensor:
        """Tensors of one type and, but for the axis, one shape, at least one, one after the other."""
        first = tensors[0]
        if first.data_type is None:
            return self.tensor(np.concatenate([item.on_host() for item in tensors], axis))
        shape = (*first.shape[:axis], sum(item.shape[axis] for item in tensors), *first.shape[axis + 1 :])
        if math.prod(shape[:axis]) != 1 and 0 not in shape:
            order = (axis, *(other for other in range(len(shape)) if other != axis))
            turned = [
                self._like(item, self._turned(item, order), tuple(item.shape[at] for at in order))
                for item in tensors
                if 0 not in item.shape
            ]
            return self._moved(self.concat(turned, 0), axis)
        target = empty_on_device(self._device, shape, first.data_type)
        copies: list[Copy] = []
        offset = 0
        for item in tensors:
            nbytes, rest = divmod(math.prod(item.shape) * element_bits(target.data_type), 8)
            if rest:
                raise UnsupportedError(f"a tensor of {math.prod(item.shape)} 4-bit elements in a sequence")
            if nbytes:
                array = item.on_device()
                source = BoundRange(array.buffer, array.offset, nbytes)
                copies.append(Copy(source, BoundRange(target.buffer, offset, nbytes)))
                offset += nbytes
        recorded_copies(self._device, copies).submit()
        return self._like(first, target, shape)

    def _moved(self, tensor: Tensor, axis: int) -> Tensor:
        """The first axis in another place."""
        if axis == 0:
            return tensor
        rank = len(tensor.shape)
        order = (*range(1, axis + 1), 0, *range(axis + 1, rank))
        shape = tuple(tensor.shape[at] for at in order)
        return self._like(tensor, self._turned(tensor, order), shape)

    def _turned(self, tensor: Tensor, order: tuple[int, ...]) -> DeviceArray:
        array = tensor.on_device()
        if array.size == 0:
            return empty_on_device(self._device, tuple(array.shape[at] for at in order), array.data_type)
        return self._packed(array.transpose(*order))

    def _packed(self, array: DeviceArray) -> DeviceArray:
        if array.is_packed:
            return array
        self.dispatches += 1
        return packed(array)


def _shaped(value: Array | DeviceArray, shape: Sizes) -> Array | DeviceArray:
    """The same packed elements under another shape."""
    if isinstance(value, DeviceArray):
        return DeviceArray(value.device, value.buffer, value.data_type, shape, None, value.offset)
    return value.reshape(shape)
