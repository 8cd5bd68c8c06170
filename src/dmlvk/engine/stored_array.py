"""What a ``DeviceArray`` is before it computes: memory on a device, sliced and transposed without moving a byte."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final, Self

import numpy as np
import numpy.typing as npt

from dmlvk.engine.default_device import check_device, default_device
from dmlvk.engine.four_bit import pack_half_bytes, unpack_half_bytes
from dmlvk.engine.numpy_types import HALF_BYTES, array_of, data_type_of, dtype_of, element_strides, memory_span
from dmlvk.graph.views import View, is_order, sizes_of
from dmlvk.html.elements import element, facts, notebook
from dmlvk.html.words import size
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
_BOOL: Final = np.dtype(bool)
_WORD: Final = 4
"""Bytes of the buffer of an array without elements."""

_MOST_SHOWN: Final = 200
"""The most elements that a notebook shows without leaving out those in the middle."""

Index = int | slice | None


class StoredArray:
    """A tensor on a device: a buffer, where in it the first element lies, sizes and strides. ``DeviceArray`` says more.

    Attributes:
        device: The device that it lives on.
        buffer: The memory, shared with the views.
        offset: Bytes from the buffer's start to the first element.
        data_type: The type of the elements.
        is_bool: Whether the elements, of UINT8, are truth values: 0 or 1, and bool for numpy.
        shape: Elements a dimension; () for a single element.
        strides: Elements (not bytes) between neighbours of each dimension.
    """

    __slots__ = ("buffer", "data_type", "device", "is_bool", "offset", "shape", "strides")

    def __init__(
        self,
        device: ComputeDevice,
        buffer: Buffer,
        data_type: TensorDataType,
        shape: tuple[int, ...],
        strides: tuple[int, ...] | None = None,
        offset: int = 0,
        is_bool: bool = False,
    ) -> None:
        self.device = device
        self.buffer = buffer
        self.data_type = data_type
        self.shape = shape
        self.strides = packed_strides(shape) if strides is None else strides
        self.offset = offset
        self.is_bool = is_bool

    @classmethod
    def from_numpy(
        cls, array: npt.ArrayLike, device: ComputeDevice | None = None, data_type: TensorDataType | None = None
    ) -> Self:
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
            return cls._from_half_bytes(values, target, data_type)
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
            return cls(target, target.create_buffer(_WORD), data_type, values.shape, is_bool=values.dtype == bool)
        buffer = target.create_buffer(desc.total_tensor_size_in_bytes)
        buffer.write(memory_span(values, strides))
        return cls(target, buffer, data_type, values.shape, strides, is_bool=values.dtype == bool)

    @classmethod
    def _from_half_bytes(cls, values: npt.NDArray[Any], device: ComputeDevice, data_type: TensorDataType) -> Self:
        """A packed 4-bit array on a device."""
        least, most = (cast_scalar(end, data_type) for end in (-np.inf, np.inf))
        if values.dtype != dtype_of(data_type) or np.any((values < least) | (values > most)):
            rule = f"must hold {dtype_of(data_type)} numbers from {least} to {most}"
            raise InvalidArgumentError(rule, field="array", value=values.dtype)
        desc = tensor_desc(data_type, values.shape or (1,))
        buffer = device.create_buffer(desc.total_tensor_size_in_bytes or _WORD)
        buffer.write(pack_half_bytes(np.ascontiguousarray(values).reshape(-1)))
        return cls(device, buffer, data_type, values.shape)

    @property
    def dtype(self) -> np.dtype[Any]:
        """The numpy type."""
        return _BOOL if self.is_bool else dtype_of(self.data_type)

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
        return self.strides == packed_strides(self.shape) or self.view.is_packed

    @property
    def span_in_bytes(self) -> int:
        """Bytes from the first element to the end of the last."""
        return -(-self.view.span * element_bits(self.data_type) // 8)

    @property
    def desc(self) -> TensorDesc:
        """The tensor desc of this view; a single element has one dimension."""
        return tensor_desc(self.data_type, self.shape or (1,), None if self.is_packed else self.strides)

    @property
    def is_bindable(self) -> bool:
        """Whether it starts where DirectML lets a tensor start, with room for whole 4-byte words."""
        end = self.offset + -(-self.span_in_bytes // 4) * 4
        return self.offset % MINIMUM_BUFFER_TENSOR_ALIGNMENT == 0 and end <= self.buffer.size_in_bytes

    def binding(self) -> BufferBinding:
        """The binding of ``desc``: this view's own bytes or, where they cannot be bound, a copy made on the device."""
        if self.is_bindable:
            return BufferBinding(self.buffer, self.offset)
        nbytes = self.span_in_bytes
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
        is_packed = self.is_packed
        if is_packed and self.data_type not in HALF_BYTES:
            # Nothing is left for after the wait, when the processor's caches have gone to others.
            found = np.empty(self.shape, self.dtype)
            self.buffer.read_into(found, self.offset)
            return found
        if self.data_type in HALF_BYTES:
            data = np.empty(self.span_in_bytes, np.uint8)
            self.buffer.read_into(data, self.offset)
            span = unpack_half_bytes(data, self.data_type)[: self.view.span]
        else:
            span = np.empty(self.view.span, self.dtype)
            self.buffer.read_into(span, self.offset)
        if is_packed:
            return span.reshape(self.shape)
        steps = tuple(step * span.itemsize for step in self.strides)
        return np.lib.stride_tricks.as_strided(span, self.shape, steps).copy()

    def __array__(self, dtype: npt.DTypeLike | None = None, copy: bool | None = None) -> npt.NDArray[Any]:
        """numpy's protocol. The values always travel, so ``copy=False`` raises ``ValueError``."""
        if copy is False:
            raise ValueError("numpy can only get a copy of a DeviceArray: leave copy=False out")
        values = self.numpy()
        return values if dtype is None else values.astype(dtype, copy=False)

    def __dlpack__(
        self,
        *,
        stream: None = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> Any:
        """DLPack's protocol: exports a copy in host memory, so ``copy=False`` raises ``BufferError``."""
        if copy is False:
            raise BufferError("DLPack can only get a copy of a DeviceArray: leave copy=False out")
        return self.numpy().__dlpack__(stream=stream, max_version=max_version, dl_device=dl_device)

    def __dlpack_device__(self) -> tuple[int, int]:
        """The host, where ``__dlpack__`` exports to."""
        return _DLPACK_CPU

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("a DeviceArray without dimensions has no length")
        return self.shape[0]

    def __repr__(self) -> str:
        return f"DeviceArray({self.numpy()!r}, device={self.device.info.name!r})"

    def _repr_html_(self) -> str:
        values = np.array2string(self.numpy(), threshold=_MOST_SHOWN, max_line_width=100)
        known = facts(
            (
                ("shape", str(self.shape)),
                ("type", f"{self.dtype} ({self.data_type.name})"),
                ("strides", "" if self.is_packed else f"{self.strides}, in elements"),
                ("bytes", size(self.span_in_bytes)),
                ("device", self.device.info.name),
            )
        )
        return notebook("DeviceArray", "", known, element("pre", values))

    def viewed(self, items: Sequence[Index]) -> Self:
        """A view.

        Args:
            items: An integer or a slice with a positive step for each dimension, and None for each new one.

        Raises:
            IndexError: out of range.
            InvalidArgumentError: 4-bit elements, and a start within a byte.
        """
        start, axis = 0, 0
        shape: list[int] = []
        strides: list[int] = []
        for item in items:
            if item is None:
                shape.append(1)
                strides.append(0)
                continue
            size, step = self.shape[axis], self.strides[axis]
            if isinstance(item, slice):
                places = range(*item.indices(size))
                shape.append(len(places))
                strides.append(step * places.step)
                start += places.start * step
            else:
                if not -size <= item < size:
                    raise IndexError(f"index {item} is out of range for dimension {axis} of size {size}")
                start += item % size * step
            axis += 1
        if 0 in shape:
            return self.seen(View.packed(shape))
        return self.seen(View(tuple(shape), tuple(strides)), start)

    def transpose(self, *axes: int | tuple[int, ...]) -> Self:
        """A view with the dimensions in another order, reversed where none is given.

        Raises:
            InvalidArgumentError: not every dimension once.
        """
        order = _unpacked(axes) or tuple(reversed(range(self.ndim)))
        if not is_order(order, self.ndim):
            raise InvalidArgumentError(
                f"must name each of the {self.ndim} dimensions once", operator="transpose", field="axes", value=axes
            )
        return self.seen(self.view.transposed(order))

    @property
    def T(self) -> Self:
        """``transpose()``."""
        return self.transpose()

    @property
    def mT(self) -> Self:
        """A view with the last two dimensions swapped.

        Raises:
            InvalidArgumentError: there are less.
        """
        if self.ndim < 2:
            raise InvalidArgumentError("must have two dimensions or more", operator="mT", field="shape", value=self.shape)
        return self.transpose(*range(self.ndim - 2), self.ndim - 1, self.ndim - 2)

    def reshape(self, *shape: int | tuple[int, ...]) -> Self:
        """A view with other sizes, one of which may be -1; only of a packed array.

        Raises:
            StateError: the array is not packed.
            InvalidArgumentError: sizes of another number of elements.
        """
        if not self.is_packed:
            rule = "only a packed DeviceArray can be reshaped without a copy"
            raise StateError(f"{rule}; this one has shape {self.shape} and strides {self.strides}")
        sizes = sizes_of(self.size, _unpacked(shape))
        if sizes is None:
            rule = f"must have the {self.size} elements of shape {self.shape}"
            raise InvalidArgumentError(rule, operator="reshape", field="shape", value=shape)
        return self.seen(View.packed(sizes))

    def seen(self, view: View, start: int = 0) -> Self:
        """A view: the elements of this memory by other sizes and strides, from an element of this view on."""
        nbytes, rest = divmod(start * element_bits(self.data_type), 8)
        if rest:
            raise InvalidArgumentError(
                "a view of 4-bit elements must start on a whole byte, so at an even element", field="index", value=start
            )
        return type(self)(self.device, self.buffer, self.data_type, *view, self.offset + nbytes, self.is_bool)


def _unpacked(numbers: tuple[int | tuple[int, ...], ...]) -> tuple[Any, ...]:
    """Numbers that are given as they are or, as numpy has it too, as one tuple."""
    return numbers[0] if len(numbers) == 1 and isinstance(numbers[0], tuple) else numbers
