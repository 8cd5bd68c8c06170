"""``OrtValue`` and ``OrtDevice``: tensors on the host or the device, under ONNX Runtime's names."""

from __future__ import annotations

import enum
import itertools
import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from dmlvk.engine.copies import Copy, recorded_copies
from dmlvk.engine.device_array import DeviceArray
from dmlvk.engine.transfer import from_device, packed_bytes, to_bytes, to_device
from dmlvk.onnx.model import TEXT, Array, data_type_of, element_code, element_type
from dmlvk.onnx.model_run import known_data_type
from dmlvk.onnx.providers import device_of
from dmlvk.onnx.refusals import with_refused_methods
from dmlvk.onnx.types import TENSOR_NAMES
from dmlvk.runtime.device import ComputeDevice
from dmlvk.runtime.recorder import BoundRange
from dmlvk.spec.errors import InvalidArgumentError, UnsupportedError


class OrtDeviceVendorId(enum.IntEnum):
    """ONNX Runtime's numbers of vendors."""

    NONE = 0x0000
    AMD = 0x1002
    NVIDIA = 0x10DE
    ARM = 0x13B5
    MICROSOFT = 0x1414
    HUAWEI = 0x19E5
    QUALCOMM = 0x5143
    INTEL = 0x8086


_CPU: Final = "cpu"
_DEVICE_TYPES: Final = {
    _CPU: (0, OrtDeviceVendorId.NONE),
    "cuda": (1, OrtDeviceVendorId.NVIDIA),
    "dml": (1, OrtDeviceVendorId.MICROSOFT),
    "webgpu": (1, OrtDeviceVendorId.NONE),
    "gpu": (1, OrtDeviceVendorId.NONE),
    "vulkan": (1, OrtDeviceVendorId.NONE),
    "npu": (3, OrtDeviceVendorId.NONE),
    "cann": (3, OrtDeviceVendorId.HUAWEI),
}
"""ONNX Runtime's number of the kind of device, and the vendor, by name. All but the host's are the Vulkan device."""


@dataclass(frozen=True)
class OrtDevice:
    """A place for tensors: "cpu" is the host, any other name the Vulkan device of a number.

    Attributes:
        name: ONNX Runtime's name for it.
    """

    name: str
    _id: int
    _vendor: int

    @staticmethod
    def make(ort_device_name: str, device_id: int, vendor_id: int = -1) -> OrtDevice:
        """A place.

        Args:
            ort_device_name: "cpu", "cuda", "dml", "gpu", "webgpu", "vulkan", "npu" or "cann".
            device_id: 0 for the default device, or the place in ``dmlvk.devices()``.
            vendor_id: The number of a vendor, which has no effect.

        Raises:
            InvalidArgumentError: another name.
        """
        name = ort_device_name.lower()
        if name not in _DEVICE_TYPES:
            rule = f"must be one of {', '.join(_DEVICE_TYPES)}"
            raise InvalidArgumentError(rule, field="device_type", value=ort_device_name)
        return OrtDevice(name, device_id, int(_DEVICE_TYPES[name][1] if vendor_id < 0 else vendor_id))

    @property
    def is_host(self) -> bool:
        """Whether tensors there lie in the host's memory."""
        return self.name == _CPU

    def device_id(self) -> int:
        """The number of the device."""
        return self._id

    def device_type(self) -> int:
        """ONNX Runtime's number of the kind of device."""
        return _DEVICE_TYPES[self.name][0]

    def device_vendor_id(self) -> int:
        """The number of the vendor."""
        return self._vendor

    def device_mem_type(self) -> int:
        """0, the kind of memory that everything has."""
        return 0


HOST: Final = OrtDevice.make(_CPU, 0)
Content = Array | DeviceArray | list[Any] | None


@with_refused_methods
class OrtValue:
    """A tensor on the host or the device, or on the host a sequence of tensors or nothing. Class methods make them.

    Args:
        content: An array of either kind, a list of arrays, or None.
        dtype: The numpy type of the elements; None for that of the content.
        place: Where it is.
    """

    def __init__(self, content: Content, dtype: np.dtype[Any] | None = None, place: OrtDevice = HOST) -> None:
        self.content = content
        self.place = place
        first = content[0] if isinstance(content, list) and content else content
        self.dtype: np.dtype[Any] = dtype if dtype is not None else getattr(first, "dtype", np.dtype(np.float32))
        self._handle = 0

    # -- constructors

    @classmethod
    def ortvalue_from_numpy(
        cls, numpy_obj: Array, /, device_type: str = _CPU, device_id: int = 0, vendor_id: int = -1
    ) -> OrtValue:
        """A tensor: on the host the array itself where it has no gaps, on the device a copy.

        Args:
            numpy_obj: The array.
            device_type: "cpu", or another name of ``OrtDevice.make`` for the device.
            device_id: See ``OrtDevice.make``.
            vendor_id: No effect.

        Raises:
            InvalidArgumentError: no array, or of a type that ONNX has no number for.
        """
        if not isinstance(numpy_obj, np.ndarray):
            raise InvalidArgumentError("must be a numpy array", field="numpy_obj", value=type(numpy_obj))
        if not element_code(numpy_obj.dtype):
            raise InvalidArgumentError("must have elements of a tensor's type", field="numpy_obj", value=numpy_obj.dtype)
        return cls._of(numpy_obj, OrtDevice.make(device_type, device_id, vendor_id))

    @classmethod
    def ortvalue_from_numpy_with_onnx_type(cls, data: Array, /, onnx_element_type: int) -> OrtValue:
        """A tensor whose bits the array has, for types that numpy lacks: uint16 for bfloat16.

        Args:
            data: The array, which the tensor shares.
            onnx_element_type: ONNX's number of the type.

        Raises:
            InvalidArgumentError: an unknown type, or one of another size.
        """
        dtype = dtype_of_kind(onnx_element_type)
        if data.itemsize != dtype.itemsize:
            rule = f"must have elements of {dtype.itemsize} bytes, those of {TENSOR_NAMES[onnx_element_type]}"
            raise InvalidArgumentError(rule, field="data", value=data.dtype)
        return cls._of(data.view(dtype), HOST)

    @classmethod
    def ortvalue_from_shape_and_type(
        cls,
        shape: Sequence[int],
        element_type: npt.DTypeLike | int,
        device_type: str = _CPU,
        device_id: int = 0,
        vendor_id: int = -1,
        memory_info: None = None,
    ) -> OrtValue:
        """A tensor of zeros.

        Args:
            shape: Its sizes.
            element_type: A numpy type, or ONNX's number of one.
            device_type, device_id, vendor_id: See ``ortvalue_from_numpy``.
            memory_info: Must be None.

        Raises:
            InvalidArgumentError: an unknown type.
            UnsupportedError: ``memory_info`` is given.
        """
        if memory_info is not None:
            raise UnsupportedError("memory_info: dmlvk places the device's memory itself")
        return cls._of(
            np.zeros(tuple(shape), dtype_of_kind(element_type)), OrtDevice.make(device_type, device_id, vendor_id)
        )

    @classmethod
    def from_dlpack(cls, data: Any, /) -> OrtValue:
        """A tensor that shares the memory of an array on the host, by DLPack's protocol."""
        return cls(np.from_dlpack(data))

    @classmethod
    def _of(cls, array: Array, place: OrtDevice, device: ComputeDevice | None = None) -> OrtValue:
        if place.is_host:
            return cls(array if array.flags.c_contiguous else array.copy(order="C"))
        content = to_device(device or device_of(place.device_id()), array, known_data_type(array.dtype))
        return cls(content, array.dtype, place)

    @classmethod
    def zeros_on(cls, device: ComputeDevice, shape: Sequence[int], kind: npt.DTypeLike | int, place: OrtDevice) -> OrtValue:
        """A tensor of zeros on a device that is open, or on the host."""
        return cls._of(np.zeros(tuple(shape), dtype_of_kind(kind)), place, device)

    # -- what it is

    def is_tensor(self) -> bool:
        """Whether it is a tensor."""
        return isinstance(self.content, (np.ndarray, DeviceArray))

    def is_tensor_sequence(self) -> bool:
        """Whether it is a sequence of tensors."""
        return isinstance(self.content, list)

    def is_sparse_tensor(self) -> bool:
        """False: there are no sparse tensors."""
        return False

    def has_value(self) -> bool:
        """Whether it has a value, which an optional one may lack."""
        return self.content is not None

    def shape(self) -> list[int]:
        """The sizes of the tensor, or the length of the sequence."""
        return [len(self.content)] if isinstance(self.content, list) else list(self._tensor().shape)

    def element_type(self) -> int:
        """ONNX's number of the elements' type."""
        return _code(self.dtype)

    def data_type(self) -> str:
        """ONNX's name of the type, such as "tensor(float)"."""
        name = TENSOR_NAMES[self.element_type()]
        return f"seq({name})" if self.is_tensor_sequence() else name

    def device_name(self) -> str:
        """The name of its place, as it was asked for."""
        return self.place.name

    def tensor_size_in_bytes(self) -> int:
        """The bytes of its elements."""
        tensor = self._tensor()
        return tensor.nbytes if isinstance(tensor, np.ndarray) else packed_bytes(tensor)

    def data_ptr(self) -> int:
        """The address of the first element; of one on the device a number that bindings know it by."""
        tensor = self._tensor()
        if isinstance(tensor, np.ndarray):
            return int(tensor.ctypes.data)
        if not self._handle:
            self._handle = next(_handles)
            _on_device[self._handle] = self
        return self._handle

    # -- its elements

    def numpy(self) -> Array:
        """The tensor's elements: its own memory on the host, a copy of what is on the device.

        Raises:
            InvalidArgumentError: no tensor.
        """
        tensor = self._tensor()
        return tensor if isinstance(tensor, np.ndarray) else from_device(tensor, self.dtype)

    def __array__(self, dtype: npt.DTypeLike | None = None, copy: bool | None = None) -> Array:
        if copy is False and self.place is not HOST:
            raise ValueError("numpy can only get a copy of what is on the device: leave copy=False out")
        return np.array(self.numpy(), dtype, copy=copy)

    def __dlpack__(self, **options: Any) -> Any:
        return self._tensor().__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        kind, number = self._tensor().__dlpack_device__()
        return int(kind), int(number)

    def update_inplace(self, data: Array | OrtValue) -> None:
        """Writes other elements into the tensor's memory.

        Args:
            data: As many elements, of the same type.

        Raises:
            TypeError: neither an array nor an ``OrtValue``.
            InvalidArgumentError: of another type, or another number of elements.
        """
        if not isinstance(data, (np.ndarray, OrtValue)):
            raise TypeError(f"data must be a numpy.ndarray or an OrtValue; got {type(data).__name__}")
        target, source = self._tensor(), data._tensor() if isinstance(data, OrtValue) else data
        found, wanted = (data.dtype, source.size), (self.dtype, target.size)
        if found != wanted:
            raise InvalidArgumentError("must have the tensor's type and number of elements", value=found, expected=wanted)
        if isinstance(target, DeviceArray) and isinstance(source, DeviceArray) and source.device is target.device:
            if packed_bytes(source) and source is not target:
                ranges = (BoundRange(item.buffer, item.offset, packed_bytes(item)) for item in (source, target))
                recorded_copies(target.device, [Copy(*ranges)]).submit()
            return
        values = data.numpy() if isinstance(data, OrtValue) else data
        if isinstance(target, DeviceArray):
            target.buffer.write(np.ascontiguousarray(to_bytes(values, target.data_type)), target.offset)
        else:
            target[...] = values.reshape(target.shape)

    def _tensor(self) -> Array | DeviceArray:
        if isinstance(self.content, (np.ndarray, DeviceArray)):
            return self.content
        raise InvalidArgumentError("must hold a tensor for this", field="OrtValue", value=type(self.content))


_handles: Final = itertools.count(1 << 62, 1 << 20)
"""Numbers that are no addresses of a process."""
_on_device: weakref.WeakValueDictionary[int, OrtValue] = weakref.WeakValueDictionary()


def at_handle(handle: int) -> OrtValue | None:
    """The value on the device whose ``data_ptr`` gave this number, if there is one."""
    return _on_device.get(handle)


def copy_tensors(src: Sequence[OrtValue], dst: Sequence[OrtValue], stream: None = None) -> None:
    """Copies tensors into others of the same type and number of elements.

    Raises:
        InvalidArgumentError: not as many of each, or a tensor that does not fit; or a stream.
    """
    if len(src) != len(dst):
        raise InvalidArgumentError("must be as many as src", field="dst", value=len(dst), expected=len(src))
    if stream is not None:
        raise InvalidArgumentError("must be None", field="stream", value=type(stream))
    for source, target in zip(src, dst, strict=True):
        target.update_inplace(source)


def dtype_of_kind(kind: npt.DTypeLike | int | None) -> np.dtype[Any]:
    """The numpy type of a type, or of ONNX's number of one."""
    dtype = element_type(kind)[1] if isinstance(kind, int) else np.dtype(kind)
    if dtype is None or data_type_of(dtype) is None:
        raise InvalidArgumentError("must be a type that a tensor has", field="element_type", value=kind)
    return dtype


def _code(dtype: np.dtype[Any]) -> int:
    """ONNX's number of a numpy type, text included."""
    return _TEXT_CODE if dtype == TEXT else element_code(dtype)


_TEXT_CODE: Final = next(code for code, name in TENSOR_NAMES.items() if name == "tensor(string)")
