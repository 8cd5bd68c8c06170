"""Memory that dmlvk and PyTorch's CUDA both have: Vulkan exports it, CUDA's driver imports it, and nothing is copied.

Vulkan allocates it, as PyTorch's allocator makes nothing that another interface could import. Two timelines keep order on
the device itself: the queue of dmlvk sets one that a stream of CUDA's waits for, and a stream sets the other.
"""

from __future__ import annotations

import ctypes
import functools
import os
import threading
import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final, Protocol

import numpy as np
import torch

from dmlvk.engine.default_device import default_device
from dmlvk.engine.numpy_types import data_type_of
from dmlvk.engine.transfer import tensor_bytes
from dmlvk.runtime.device import ComputeDevice
from dmlvk.runtime.memory import Buffer
from dmlvk.spec.errors import InvalidArgumentError, StateError, UnsupportedError
from dmlvk.spec.tensor import packed_strides
from dmlvk.torch.memory import array_of, device_tensor, held, is_on_device
from dmlvk.torch.types import stored_as

_OPAQUE_FD: Final = 1
_TIMELINE_FD: Final = 9
_DEDICATED: Final = 1


# -- CUDA's driver, whose structures are those of its interface (cuda.h)


class _MemoryHandle(ctypes.Structure):
    _fields_ = (
        ("type", ctypes.c_int),
        ("fd", ctypes.c_int64),
        ("name", ctypes.c_void_p),
        ("size", ctypes.c_uint64),
        ("flags", ctypes.c_uint),
        ("reserved", ctypes.c_uint * 16),
    )


class _MappedBuffer(ctypes.Structure):
    _fields_ = (
        ("offset", ctypes.c_uint64),
        ("size", ctypes.c_uint64),
        ("flags", ctypes.c_uint),
        ("reserved", ctypes.c_uint * 16),
    )


class _SemaphoreHandle(ctypes.Structure):
    _fields_ = (
        ("type", ctypes.c_int),
        ("fd", ctypes.c_int64),
        ("name", ctypes.c_void_p),
        ("flags", ctypes.c_uint),
        ("reserved", ctypes.c_uint * 16),
    )


class _Point(ctypes.Structure):
    """What is waited for, and what is set: both have the value first and are as long as one another."""

    _fields_ = (
        ("value", ctypes.c_uint64),
        ("unused", ctypes.c_uint64 * 8),
        ("flags", ctypes.c_uint),
        ("reserved", ctypes.c_uint * 16),
    )


class Cuda(Protocol):
    """A CUDA device as sharing needs it.

    Attributes:
        ordinal: Its number among CUDA's devices.
    """

    ordinal: int

    def import_memory(self, descriptor: int, nbytes: int) -> int: ...
    def mapped(self, memory: int, nbytes: int) -> int: ...
    def release(self, memory: int, address: int) -> None: ...
    def import_timeline(self, descriptor: int) -> int: ...
    def signal(self, timeline: int, value: int, stream: int) -> None: ...
    def wait(self, timeline: int, value: int, stream: int) -> None: ...


class CudaDevice:
    """The device of CUDA's driver that is a device of Vulkan's, in the context that PyTorch uses.

    Args:
        uuid: The device's, as Vulkan has it.

    Raises:
        UnsupportedError: there is no CUDA driver, or it does not have the device.
    """

    def __init__(self, uuid: str) -> None:
        try:
            self._library: Any = ctypes.CDLL("libcuda.so.1")
        except OSError as error:
            raise UnsupportedError(f"memory is shared with CUDA, of which there is no driver: {error}") from error
        self._call("cuInit", 0)
        count = ctypes.c_int()
        self._call("cuDeviceGetCount", ctypes.byref(count))
        for ordinal in range(count.value):
            device, own = ctypes.c_int(), (ctypes.c_ubyte * 16)()
            self._call("cuDeviceGet", ctypes.byref(device), ordinal)
            self._call("cuDeviceGetUuid", ctypes.byref(own), device)
            if bytes(own).hex() == uuid.replace("-", "").lower():
                self.ordinal = ordinal
                self._context = ctypes.c_void_p()
                self._call("cuDevicePrimaryCtxRetain", ctypes.byref(self._context), device)
                return
        raise UnsupportedError(f"none of CUDA's {count.value} devices is {uuid}")

    def _call(self, name: str, *arguments: Any) -> None:
        result = getattr(self._library, name)(*arguments)
        if result:
            raise StateError(f"{name} of CUDA's driver returned {result}")

    @contextmanager
    def _current(self) -> Iterator[None]:
        self._call("cuCtxPushCurrent_v2", self._context)
        try:
            yield
        finally:
            self._call("cuCtxPopCurrent_v2", ctypes.byref(ctypes.c_void_p()))

    def import_memory(self, descriptor: int, nbytes: int) -> int:
        """CUDA's handle of an exported allocation; the descriptor is CUDA's then."""
        memory, asked = ctypes.c_void_p(), _MemoryHandle(type=_OPAQUE_FD, fd=descriptor, size=nbytes, flags=_DEDICATED)
        with self._current():
            self._call("cuImportExternalMemory", ctypes.byref(memory), ctypes.byref(asked))
        return int(memory.value or 0)

    def mapped(self, memory: int, nbytes: int) -> int:
        """The address of its first bytes."""
        address, asked = ctypes.c_uint64(), _MappedBuffer(size=nbytes)
        with self._current():
            self._call(
                "cuExternalMemoryGetMappedBuffer", ctypes.byref(address), ctypes.c_void_p(memory), ctypes.byref(asked)
            )
        return address.value

    def release(self, memory: int, address: int) -> None:
        """Lets go of it, after all work of CUDA's that may use it."""
        with self._current():
            self._call("cuCtxSynchronize")
            if address:
                self._call("cuMemFree_v2", ctypes.c_uint64(address))
            self._call("cuDestroyExternalMemory", ctypes.c_void_p(memory))

    def import_timeline(self, descriptor: int) -> int:
        """CUDA's handle of an exported timeline; the descriptor is CUDA's then."""
        timeline, asked = ctypes.c_void_p(), _SemaphoreHandle(type=_TIMELINE_FD, fd=descriptor)
        with self._current():
            self._call("cuImportExternalSemaphore", ctypes.byref(timeline), ctypes.byref(asked))
        return int(timeline.value or 0)

    def signal(self, timeline: int, value: int, stream: int) -> None:
        """Has a stream set a timeline once it has done what it was told so far."""
        self._at("cuSignalExternalSemaphoresAsync", timeline, value, stream)

    def wait(self, timeline: int, value: int, stream: int) -> None:
        """Has what a stream is told from now on wait for a timeline."""
        self._at("cuWaitExternalSemaphoresAsync", timeline, value, stream)

    def _at(self, name: str, timeline: int, value: int, stream: int) -> None:
        with self._current():
            handle, point = ctypes.c_void_p(timeline), _Point(value=value)
            self._call(name, ctypes.byref(handle), ctypes.byref(point), ctypes.c_uint(1), ctypes.c_void_p(stream))


# -- memory and order


class Imported:
    """A buffer's memory as CUDA has it. Keeps the buffer; CUDA lets go of the memory before the buffer is freed.

    Attributes:
        address: Where its first byte is, for CUDA.
    """

    def __init__(self, cuda: Cuda, buffer: Buffer) -> None:
        descriptor, nbytes = buffer.export_memory()
        memory = _given(cuda.import_memory, descriptor, nbytes)
        try:
            self.address = cuda.mapped(memory, buffer.size_in_bytes)
        except BaseException:
            cuda.release(memory, 0)
            raise
        weakref.finalize(self, _released, cuda, memory, self.address, buffer).atexit = False


def _given(take: Any, descriptor: int, *rest: int) -> int:
    """A handle for a descriptor, which stays ours, and is closed, where the driver does not take it."""
    try:
        handle: int = take(descriptor, *rest)
    except BaseException:
        os.close(descriptor)
        raise
    return handle


def _released(cuda: Cuda, memory: int, address: int, buffer: Buffer) -> None:
    """Lets go of imported memory; the buffer is an argument so that it is freed afterwards."""
    cuda.release(memory, address)


class _Elements:
    """Elements of imported memory, by the interface that PyTorch reads (``__cuda_array_interface__``, version 3)."""

    def __init__(self, imported: Imported, typestr: str, shape: Sequence[int], strides: Sequence[int], offset: int) -> None:
        self._imported = imported
        self.__cuda_array_interface__ = {
            "shape": tuple(shape),
            "typestr": typestr,
            "strides": tuple(strides),
            "data": (imported.address + offset, False),
            "version": 3,
        }


class Sharing:
    """What a device shares with CUDA."""

    def __init__(self, device: ComputeDevice, cuda: Cuda) -> None:
        self.device = device
        self.cuda = cuda
        self._lock = threading.Lock()
        self._imports: weakref.WeakKeyDictionary[Buffer, weakref.ref[Imported]] = weakref.WeakKeyDictionary()
        self._ours: tuple[Any, int] | None = None
        self._theirs: tuple[Any, int] | None = None
        self._told = self._heard = 0

    def elements(self, tensor: torch.Tensor) -> _Elements:
        """A tensor's elements as CUDA has them; bfloat16's as their bits."""
        buffer, array = held(tensor).buffer, array_of(tensor)
        with self._lock:
            known = self._imports.get(buffer)
            imported = known() if known is not None else None
            if imported is None:
                imported = Imported(self.cuda, buffer)
                self._imports[buffer] = weakref.ref(imported)
        dtype = np.dtype(np.int16) if tensor.dtype is torch.bfloat16 else array.dtype
        strides = [step * dtype.itemsize for step in array.strides]
        return _Elements(imported, dtype.str, array.shape, strides, array.offset)

    def cuda_waits(self, stream: int) -> None:
        """Has a stream wait for all that the device has been told."""
        with self._lock:
            self._ours = self._ours or self._timeline()
            timeline, handle = self._ours
            self._told += 1
            timeline.signal(self._told)
            self.cuda.wait(handle, self._told, stream)

    def waits_for_cuda(self, stream: int) -> None:
        """Has the device wait for all that a stream has been told. Streams set the timeline one after another."""
        with self._lock:
            self._theirs = self._theirs or self._timeline()
            timeline, handle = self._theirs
            if self._heard:
                self.cuda.wait(handle, self._heard, stream)
            self._heard += 1
            self.cuda.signal(handle, self._heard, stream)
            timeline.wait(self._heard)

    def _timeline(self) -> tuple[Any, int]:
        timeline = self.device.shared_timeline()
        return timeline, _given(self.cuda.import_timeline, timeline.export_semaphore())


@functools.cache
def _sharing(device: ComputeDevice) -> Sharing:
    return Sharing(device, CudaDevice(device.info.uuid))


def _stream(device: Sharing, stream: Any) -> int:
    chosen = torch.cuda.current_stream(device.cuda.ordinal) if stream is None else stream
    return int(chosen.cuda_stream)


def empty_shared(*size: int, dtype: torch.dtype | None = None) -> torch.Tensor:
    """A tensor of PyTorch's device ``dmlvk`` whose memory CUDA may have, too; its elements are undefined.

    Args:
        size: The shape.
        dtype: The type; PyTorch's default where None.

    Raises:
        UnsupportedError: the device exports no memory (``external_memory``).
    """
    kind = dtype or torch.get_default_dtype()
    nbytes = tensor_bytes(size, data_type_of(stored_as(kind)))
    device = default_device()
    return device_tensor(device, device.create_buffer(nbytes, exported=True), kind, size, packed_strides(size), nbytes)


def cuda_view(tensor: torch.Tensor) -> torch.Tensor:
    """A CUDA tensor over the memory of a tensor made by ``empty_shared``, or of a view of one. Either may be dropped first.

    CUDA and the device do not know of each other's work: see ``cuda_waits`` and ``waits_for_cuda``.

    Raises:
        InvalidArgumentError: the tensor is not on the device ``dmlvk``, or its memory was not made to be shared.
        UnsupportedError: there is no CUDA driver, or the device is none of CUDA's.
    """
    if not is_on_device(tensor):
        raise InvalidArgumentError("must be on the device dmlvk", operator="cuda_view", field="tensor", value=tensor.device)
    owner = held(tensor)
    if not owner.buffer.is_exported:
        raise InvalidArgumentError(
            "must be made by dmlvk.torch.empty_shared", operator="cuda_view", field="tensor", value=tuple(tensor.shape)
        )
    sharing = _sharing(owner.device)
    made = torch.as_tensor(sharing.elements(tensor), device=f"cuda:{sharing.cuda.ordinal}")
    return made.view(tensor.dtype) if made.dtype is not tensor.dtype else made


def cuda_waits(stream: Any = None) -> None:
    """Has what a CUDA stream is told from now on wait, on the device, for all that dmlvk has been told. The host waits for
    nothing.

    Args:
        stream: A ``torch.cuda.Stream``; the current one where None.

    Raises:
        UnsupportedError: there is no CUDA driver, or the device exports no timelines (``external_semaphores``).
    """
    sharing = _sharing(default_device())
    sharing.cuda_waits(_stream(sharing, stream))


def waits_for_cuda(stream: Any = None) -> None:
    """Has what dmlvk is told from now on wait, on the device, for all that a CUDA stream has been told: the other way round
    than ``cuda_waits``."""
    sharing = _sharing(default_device())
    sharing.waits_for_cuda(_stream(sharing, stream))
