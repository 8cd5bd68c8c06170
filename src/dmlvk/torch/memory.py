"""PyTorch's tensors on a device of ours: the device "dmlvk" of PyTorch, and copies of CPU tensors that are kept there.

A tensor of PyTorch's device ``dmlvk`` is a plain ``torch.Tensor``: its storage carries the buffer as an attribute, so that
views, ``detach`` and ``Parameter`` share it as PyTorch has it, and it is freed with the last of them.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import torch
from torch.utils import backend_registration

from dmlvk.engine.default_device import default_device
from dmlvk.engine.device_array import DeviceArray
from dmlvk.engine.numpy_types import data_type_of
from dmlvk.engine.single_operators import packed
from dmlvk.graph.views import Sizes, View
from dmlvk.runtime.device import ComputeDevice
from dmlvk.runtime.memory import Buffer
from dmlvk.spec.errors import StateError
from dmlvk.torch.facts import is_packed_in, order_of
from dmlvk.torch.types import stored_as

DEVICE: Final = "dmlvk"
_CPU: Final = torch._C.DispatchKeySet(torch._C.DispatchKey.CPU)
_ATTRIBUTE: Final = "_dmlvk_buffer"
_UNEQUAL: Final = -1
"""A count of changes that no tensor has."""


class _DeviceModule:
    """What PyTorch asks of a device's module, ``torch.dmlvk``."""

    def is_available(self) -> bool:
        return True

    def is_initialized(self) -> bool:
        return True

    def _is_in_bad_fork(self) -> bool:
        return False

    def current_device(self) -> int:
        return 0

    def device_count(self) -> int:
        return 1

    def synchronize(self, device: object = None) -> None:
        default_device().wait_idle()

    def manual_seed_all(self, seed: int) -> None:
        """Random numbers follow from PyTorch's own generator."""

    def get_amp_supported_dtype(self) -> list[torch.dtype]:
        return [torch.float16, torch.bfloat16]


def register() -> None:
    """Makes ``dmlvk`` a device of PyTorch. PyTorch has room for one such device in a process.

    Raises:
        StateError: the process has another.
    """
    name = torch._C._get_privateuse1_backend_name()
    if name == DEVICE:
        return
    if name != "privateuseone":
        raise StateError(f"PyTorch has room for one device of another package; this process has {name!r}")
    backend_registration._setup_privateuseone_for_python_backend(DEVICE, backend_module=_DeviceModule())


class Held(NamedTuple):
    """A buffer that a storage carries.

    Attributes:
        device: Its device.
        buffer: The memory.
    """

    device: ComputeDevice
    buffer: Buffer


def device_tensor(
    device: ComputeDevice, buffer: Buffer, dtype: torch.dtype, sizes: Sequence[int], strides: Sequence[int], nbytes: int
) -> torch.Tensor:
    """A tensor of PyTorch's device ``dmlvk`` over a buffer, of whose bytes so many are the tensor's."""
    storage = torch._C._construct_storage_from_data_pointer(0, torch.device(DEVICE, 0), nbytes)
    setattr(storage, _ATTRIBUTE, Held(device, buffer))
    made: torch.Tensor = torch._C._acc.create_empty_tensor((0,), dtype)
    torch.ops.aten.set_.source_Storage_storage_offset.redispatch(_CPU, made, storage, 0, list(sizes), list(strides))
    return made


def as_strided(
    tensor: torch.Tensor, size: Sequence[int], stride: Sequence[int], storage_offset: int | None = None
) -> torch.Tensor:
    """A view of a tensor of the device: the rule of PyTorch's CPU, which reads no elements."""
    made: torch.Tensor = torch.ops.aten.as_strided.default.redispatch(_CPU, tensor, size, stride, storage_offset)
    return made


def set_memory(tensor: torch.Tensor, other: torch.Tensor) -> None:
    """Gives a tensor of the device the memory, sizes and strides of another one of its type."""
    sizes, strides = list(other.shape), list(other.stride())
    storage = other.untyped_storage()
    torch.ops.aten.set_.source_Storage_storage_offset.redispatch(
        _CPU, tensor, storage, other.storage_offset(), sizes, strides
    )


def held(tensor: torch.Tensor) -> Held:
    """The buffer of a tensor of the device.

    Raises:
        StateError: the tensor has none: its memory is not ours.
    """
    found: Held | None = getattr(tensor.untyped_storage(), _ATTRIBUTE, None)
    if found is None:
        raise StateError(f"a tensor of {tuple(tensor.shape)} on {tensor.device} has no memory of dmlvk's")
    return found


def buffer_of(tensor: torch.Tensor) -> Buffer | None:
    """The memory of a tensor of the device; None of another."""
    found: Held | None = getattr(tensor.untyped_storage(), _ATTRIBUTE, None)
    return None if found is None else found.buffer


def is_on_device(tensor: torch.Tensor) -> bool:
    """Whether a tensor is on PyTorch's device ``dmlvk``."""
    return bool(tensor.device.type == DEVICE)


def array_of(tensor: torch.Tensor, *, apart: bool = False) -> DeviceArray:
    """A tensor of the device as a device array over the same memory; bfloat16's bits are UINT16.

    With ``apart``, who lent the memory to the tensor does not see that the array has it, too.
    """
    device, buffer = held(tensor)
    buffer = buffer.again() if apart else buffer
    dtype = stored_as(tensor.dtype)
    offset = tensor.storage_offset() * dtype.itemsize
    shape, strides = tuple(tensor.shape), tuple(tensor.stride())
    return DeviceArray(device, buffer, data_type_of(dtype), shape, strides, offset, is_bool=dtype.kind == "b")


def tensor_of(array: DeviceArray, dtype: torch.dtype) -> torch.Tensor:
    """A device array as a tensor of the device over the same memory."""
    made = device_tensor(array.device, array.buffer, dtype, (), (), array.buffer.size_in_bytes)
    itemsize = stored_as(dtype).itemsize
    assert array.offset % itemsize == 0, "arrays start at elements"
    return as_strided(made, array.shape, array.strides, array.offset // itemsize)


def on_host(tensor: torch.Tensor) -> np.ndarray[Any, np.dtype[Any]]:
    """The elements of a CPU tensor, over the same memory; bfloat16's bits as uint16."""
    plain = tensor.detach().resolve_conj().resolve_neg()
    if plain.dtype is torch.bfloat16:
        plain = plain.view(torch.int16)
    found: np.ndarray[Any, np.dtype[Any]] = plain.numpy()
    return found.view(np.uint16) if tensor.dtype is torch.bfloat16 else found


def from_host(array: np.ndarray[Any, np.dtype[Any]], dtype: torch.dtype) -> torch.Tensor:
    """A CPU tensor over an array's memory; of bits where the type is bfloat16."""
    if dtype is torch.bfloat16:
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(array)


def to_device(tensor: torch.Tensor, device: ComputeDevice) -> torch.Tensor:
    """A packed copy of a CPU tensor on the device."""
    array = DeviceArray.from_numpy(np.ascontiguousarray(on_host(tensor)), device)
    return tensor_of(array, tensor.dtype)


def to_host(tensor: torch.Tensor) -> torch.Tensor:
    """A packed copy of a tensor of the device in the host's memory. Waits for it."""
    array = array_of(tensor)
    return from_host(array.numpy() if array.size else np.empty(array.shape, array.dtype), tensor.dtype)


def packed_copy(tensor: torch.Tensor) -> torch.Tensor:
    """A packed copy of a tensor of the device, there."""
    return tensor_of(packed(array_of(tensor)), tensor.dtype)


class Lying(NamedTuple):
    """How a tensor lies in memory.

    Attributes:
        order: Its dimensions from the one with the largest steps to the one with the least.
        sizes: Its sizes in that order.
        is_packed: Whether it has no gaps in that order.
    """

    order: tuple[int, ...]
    sizes: Sizes
    is_packed: bool


def lying(tensor: torch.Tensor) -> Lying:
    """How a tensor lies in memory."""
    shape = tuple(tensor.shape)
    if tensor.is_contiguous():
        return Lying(tuple(range(len(shape))), shape, True)
    strides = tensor.stride()
    order = order_of(shape, strides)
    return Lying(order, tuple(shape[axis] for axis in order), is_packed_in(order, shape, strides))


class _Copy(NamedTuple):
    """A copy of a CPU tensor.

    Attributes:
        version: PyTorch's count of the tensor's changes when they were equal; ``_UNEQUAL`` where they need not be.
        address: Where the tensor's elements were.
        view: How they lay.
        buffer: The copy.
    """

    version: int
    address: int
    view: View
    buffer: Buffer


class Copies:
    """Copies of CPU tensors on devices, by the tensor itself: made once, made anew after the tensor has changed, and freed
    with it. PyTorch counts changes, but not those through ``tensor.data`` or numpy.

    Attributes:
        uploads: How many copies have been written.
    """

    def __init__(self) -> None:
        self._copies: dict[tuple[int, ComputeDevice], _Copy] = {}
        self._lock = threading.Lock()
        self.uploads = 0

    def of(self, tensor: torch.Tensor, device: ComputeDevice) -> DeviceArray:
        """The copy of a tensor that lies without gaps, with its dimensions in the order in which they lie."""
        order, sizes, is_packed = lying(tensor)
        assert is_packed, "others are not kept"
        data_type = data_type_of(stored_as(tensor.dtype))
        key = (id(tensor), device)
        view = View(tuple(tensor.shape), tuple(tensor.stride()))
        with self._lock:
            copy = self._copies.get(key)
            if copy is None:
                weakref.finalize(tensor, self._copies.pop, key, None)
            elif (copy.version, copy.address, copy.view) == (tensor._version, tensor.data_ptr(), view):
                return DeviceArray(device, copy.buffer, data_type, sizes)
            else:
                self._copies[key] = copy._replace(version=_UNEQUAL)  # until all of it has been written
            is_same = copy is not None and copy.view == view
            nbytes = max(-(-tensor.numel() * tensor.element_size() // 4) * 4, 4)
            buffer = copy.buffer if copy is not None and is_same else device.create_buffer(nbytes)
            if tensor.numel():
                buffer.write(on_host(tensor.permute(order)))
            self.uploads += 1
            self._copies[key] = _Copy(tensor._version, tensor.data_ptr(), view, buffer)
            return DeviceArray(device, buffer, data_type, sizes)

    def change(self, tensors: Sequence[torch.Tensor], device: ComputeDevice) -> None:
        """Notes that a run is about to change the copies of tensors: until ``changed`` they are written anew before use."""
        for tensor in tensors:
            key = (id(tensor), device)
            self._copies[key] = self._copies[key]._replace(version=_UNEQUAL)

    def changed(self, tensors: Sequence[torch.Tensor], device: ComputeDevice) -> None:
        """Brings tensors to the host whose copies a run has changed: all of them, or none where one cannot be read."""
        if not tensors:
            return
        fresh = [torch.empty_like(tensor) for tensor in tensors]  # of the same strides, as those are packed
        for tensor, read in zip(tensors, fresh, strict=True):
            self._copies[id(tensor), device].buffer.read_into(on_host(read.permute(lying(tensor).order)))
        torch._foreach_copy_([*tensors], fresh)  # one call, so that no interrupt comes in between
        for tensor in tensors:
            key = (id(tensor), device)
            self._copies[key] = self._copies[key]._replace(version=tensor._version)


COPIES: Final = Copies()
"""The copies of this process."""
