"""``DeviceArray``: a tensor that lives on a device, sliced and transposed without moving a byte."""

from __future__ import annotations

import math
import operator
from types import EllipsisType
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from dmlvk.engine.default_device import check_device, default_device
from dmlvk.engine.four_bit import pack_half_bytes, unpack_half_bytes
from dmlvk.engine.numpy_types import HALF_BYTES, array_of, data_type_of, dtype_of, element_strides, memory_span
from dmlvk.graph.views import View, is_order, sizes_of
from dmlvk.runtime.device import ComputeDevice
from dmlvk.runtime.memory import Buffer, BufferBinding
from dmlvk.runtime.recorder import BoundRange, Recording, copy_between
from dmlvk.spec.enums import TensorDataType, member
from dmlvk.spec.errors import InvalidArgumentError, StateError
from dmlvk.spec.tensor import (
    MINIMUM_BUFFER_TENSOR_ALIGNMENT,
    TensorDesc,
    cast_scalar,
    element_bits,
    packed_strides,
    tensor_desc,
)

_DLPACK_CPU: Final = (1, 0)
_WORD: Final = 4
"""Bytes of the buffer of an array without elements."""

Index = int | slice | EllipsisType | None


def _index_item(item: object) -> Index:
    if item is None or item is Ellipsis or isinstance(item, slice):
        return item
    if isinstance(item, bool):
        raise TypeError("a DeviceArray cannot be indexed by booleans; use integers, slices, None and ...")
    return operator.index(item)  # type: ignore[arg-type]  # which raises TypeError for what is no integer


class DeviceArray:
    """A tensor on a device: a buffer, where in it the first element lies, sizes and strides.

    Slicing, ``transpose`` and ``T`` give views of the same buffer. A view may start at any element, while DirectML
    binds tensors at multiples of 16 bytes: ``binding`` copies a view that starts elsewhere into a buffer of its own,
    on the device, and ``is_bindable`` tells beforehand.

    Attributes:
        device: The device that it lives on.
        buffer: The memory, shared with the views.
        offset: Bytes from the buffer's start to the first element.
        data_type: The type of the elements.
        shape: Elements a dimension; () for a single element.
        strides: Elements (not bytes) between neighbours of each dimension.
    """

    __slots__ = ("buffer", "data_type", "device", "offset", "shape", "strides")

    def __init__(
        self,
        device: ComputeDevice,
        buffer: Buffer,
        data_type: TensorDataType,
        shape: tuple[int, ...],
        strides: tuple[int, ...] | None = None,
        offset: int = 0,
    ) -> None:
        self.device = device
        self.buffer = buffer
        self.data_type = data_type
        self.shape = shape
        self.strides = packed_strides(shape) if strides is None else strides
        self.offset = offset

    @staticmethod
    def from_numpy(
        array: npt.ArrayLike, device: ComputeDevice | None = None, data_type: TensorDataType | None = None
    ) -> DeviceArray:
        """Uploads an array, keeping its strides: the bytes between its first and last element travel once, as they are.

        Only an array with negative strides, or strides that are no multiple of its element, is copied first, and one that
        becomes 4-bit.

        Args:
            array: An array of a numpy type that tensors have, at most 8 dimensions.
            device: The device to upload to, ``default_device()`` where None.
            data_type: INT4 for int8 or UINT4 for uint8 numbers that fit; None for the array's own type.

        Raises:
            InvalidArgumentError: another type, numbers that do not fit, or too many dimensions.
        """
        values = array_of(array, lambda: "array")
        if device is not None:
            check_device(device)
        target = default_device() if device is None else device
        if data_type is not None:
            data_type = member(TensorDataType, data_type, "data_type")
        if data_type in HALF_BYTES:
            return _from_half_bytes(values, target, data_type)
        if data_type not in (None, data_type_of(values.dtype)):
            raise InvalidArgumentError(
                "must be the array's own, or INT4 or UINT4",
                field="data_type",
                value=data_type,
                expected=data_type_of(values.dtype),
            )
        data_type = data_type_of(values.dtype)
        strides = element_strides(values)
        if strides is None:
            values = np.ascontiguousarray(values)
            strides = packed_strides(values.shape)
        desc = tensor_desc(data_type, values.shape or (1,), strides or (1,))
        if values.size == 0:
            return DeviceArray(target, target.create_buffer(_WORD), data_type, values.shape)
        buffer = target.create_buffer(desc.total_tensor_size_in_bytes)
        buffer.write(memory_span(values, strides))
        return DeviceArray(target, buffer, data_type, values.shape, strides)

    @property
    def dtype(self) -> np.dtype[Any]:
        """The numpy type."""
        return dtype_of(self.data_type)

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """Number of elements."""
        return int(math.prod(self.shape))

    @property
    def view(self) -> View:
        """The sizes and strides of the elements."""
        return View(self.shape, self.strides)

    @property
    def is_packed(self) -> bool:
        """Whether the elements lie row-major without gaps."""
        return self.view.is_packed

    @property
    def desc(self) -> TensorDesc:
        """The tensor desc of this view; a single element has one dimension."""
        return tensor_desc(self.data_type, self.shape or (1,), None if self.is_packed else self.strides)

    @property
    def is_bindable(self) -> bool:
        """Whether it starts where DirectML lets a tensor start, with room for whole 4-byte words."""
        end = self.offset + -(-self._span_in_bytes() // 4) * 4
        return self.offset % MINIMUM_BUFFER_TENSOR_ALIGNMENT == 0 and end <= self.buffer.size_in_bytes

    def binding(self) -> BufferBinding:
        """The binding of ``desc``: this view's own bytes or, where they cannot be bound, a copy made on the device."""
        if self.is_bindable:
            return BufferBinding(self.buffer, self.offset)
        nbytes = self._span_in_bytes()
        copy = self.device.create_buffer(-(-nbytes // 4) * 4)
        recording = Recording(self.device, timestamps=False)
        source, target = BoundRange(self.buffer, self.offset, nbytes), BoundRange(copy, 0, nbytes)
        recording.add([copy_between("CopyBufferRegion", source, target)])
        recording.submit()
        return BufferBinding(copy)

    def numpy(self) -> npt.NDArray[Any]:
        """The values as a packed numpy array of their own, after everything submitted before. Waits for it. 4-bit numbers
        come as int8 or uint8.

        The bytes between the view's first and last element travel, however few of them it uses.
        """
        if self.data_type in HALF_BYTES:
            data = np.empty(self._span_in_bytes(), np.uint8)
            self.buffer.read_into(data, self.offset)
            span = unpack_half_bytes(data, self.data_type)[: self._span_in_elements()]
        else:
            span = np.empty(self._span_in_elements(), self.dtype)
            self.buffer.read_into(span, self.offset)
        if self.is_packed:
            return span.reshape(self.shape)
        steps = tuple(step * span.itemsize for step in self.strides)
        return np.lib.stride_tricks.as_strided(span, self.shape, steps).copy()

    def __array__(self, dtype: npt.DTypeLike | None = None, copy: bool | None = None) -> npt.NDArray[Any]:
        """numpy's protocol. The values always travel, so ``copy=False`` raises ``ValueError``."""
        if copy is False:
            raise ValueError("numpy can only get a copy of a DeviceArray: leave copy=False out")
        values = self.numpy()
        return values if dtype is None else values.astype(dtype, copy=False)

    def __dlpack__(self, **options: Any) -> Any:
        """DLPack's protocol: exports a copy in host memory, so ``copy=False`` raises ``BufferError``."""
        if options.get("copy") is False:
            raise BufferError("DLPack can only get a copy of a DeviceArray: leave copy=False out")
        return self.numpy().__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        """The host, where ``__dlpack__`` exports to."""
        return _DLPACK_CPU

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("a DeviceArray without dimensions has no length")
        return self.shape[0]

    def __repr__(self) -> str:
        return f"DeviceArray({self.numpy()!r}, device={self.device.info.name!r})"

    def __getitem__(self, index: Index | tuple[Index, ...]) -> DeviceArray:
        """A view: integers, slices with positive steps, ``None`` and ``...``, as in numpy.

        Raises:
            IndexError: out of range, or too many indices.
            TypeError: an index of another kind, such as an array or a list.
            InvalidArgumentError: a step below 1, or no elements left.
        """
        items = [_index_item(item) for item in (index if isinstance(index, tuple) else (index,))]
        named = sum(item is not None and item is not Ellipsis for item in items)
        if named > self.ndim or items.count(Ellipsis) > 1:
            raise IndexError(f"too many indices: the DeviceArray has {self.ndim} dimensions, and {named} are indexed")
        if Ellipsis not in items:
            items.append(Ellipsis)
        at = items.index(Ellipsis)
        items[at : at + 1] = [slice(None)] * (self.ndim - named)

        start, shape, strides = 0, [], []
        axis = 0
        for item in items:
            if item is None:
                shape.append(1)
                strides.append(0)
                continue
            size, step = self.shape[axis], self.strides[axis]
            if isinstance(item, slice):
                first, last, stride = item.indices(size)
                count = len(range(first, last, stride))
                if stride < 1 or count < 1:
                    raise InvalidArgumentError(
                        f"a slice of dimension {axis} of size {size} must have a positive step and leave elements",
                        field="index",
                        value=item,
                    )
                shape.append(count)
                strides.append(step * stride)
                start += first * step
            else:
                assert isinstance(item, int), "the ellipsis has been replaced"
                position = item
                if not -size <= position < size:
                    raise IndexError(f"index {position} is out of range for dimension {axis} of size {size}")
                start += position % size * step
            axis += 1
        return self._view(tuple(shape), tuple(strides), start)

    def transpose(self, *axes: int) -> DeviceArray:
        """A view with the dimensions in another order, reversed where none is given.

        Raises:
            InvalidArgumentError: not every dimension once.
        """
        order = axes or tuple(reversed(range(self.ndim)))
        if not is_order(order, self.ndim):
            raise InvalidArgumentError(
                f"must name each of the {self.ndim} dimensions once", operator="transpose", field="axes", value=axes
            )
        return self._view(*self.view.transposed(order))

    @property
    def T(self) -> DeviceArray:
        """``transpose()``."""
        return self.transpose()

    def reshape(self, *shape: int) -> DeviceArray:
        """A view with other sizes, one of which may be -1; only of a packed array.

        Raises:
            StateError: the array is not packed.
            InvalidArgumentError: sizes of another number of elements.
        """
        if not self.is_packed:
            rule = "only a packed DeviceArray can be reshaped without a copy"
            raise StateError(f"{rule}; this one has shape {self.shape} and strides {self.strides}")
        sizes = sizes_of(self.size, shape)
        if sizes is None:
            rule = f"must have the {self.size} elements of shape {self.shape}"
            raise InvalidArgumentError(rule, operator="reshape", field="shape", value=shape)
        return self._view(sizes, packed_strides(sizes))

    def _view(self, shape: tuple[int, ...], strides: tuple[int, ...], start: int = 0) -> DeviceArray:
        nbytes, rest = divmod(start * element_bits(self.data_type), 8)
        if rest:
            raise InvalidArgumentError(
                "a view of 4-bit elements must start on a whole byte, so at an even element", field="index", value=start
            )
        return DeviceArray(self.device, self.buffer, self.data_type, shape, strides, self.offset + nbytes)

    def _span_in_elements(self) -> int:
        return self.view.span

    def _span_in_bytes(self) -> int:
        return -(-self._span_in_elements() * element_bits(self.data_type) // 8)


def _from_half_bytes(values: npt.NDArray[Any], device: ComputeDevice, data_type: TensorDataType) -> DeviceArray:
    """A packed 4-bit array on a device."""
    least, most = (cast_scalar(end, data_type) for end in (-np.inf, np.inf))
    if values.dtype != dtype_of(data_type) or np.any((values < least) | (values > most)):
        rule = f"must hold {dtype_of(data_type)} numbers from {least} to {most}"
        raise InvalidArgumentError(rule, field="array", value=values.dtype)
    desc = tensor_desc(data_type, values.shape or (1,))
    buffer = device.create_buffer(desc.total_tensor_size_in_bytes or _WORD)
    buffer.write(pack_half_bytes(np.ascontiguousarray(values).reshape(-1)))
    return DeviceArray(device, buffer, data_type, values.shape)
