"""Device memory as the caller sees it, and the arena of the kernels' parameter blocks."""

from __future__ import annotations

import enum
import threading
import weakref
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from dmlvk.spec.errors import InvalidArgumentError, StateError

if TYPE_CHECKING:
    from dmlvk.runtime import _native

_CHUNK_BYTES: Final = 65536


class Purpose(enum.Enum):
    """The purpose of a buffer, as ``ComputeDevice.memory`` counts it. The native device knows it by its place here."""

    DATA = "data"
    WEIGHTS = "weights"
    TEMPORARY = "temporary"
    PARAMETERS = "parameters"


PURPOSE_NUMBERS: Final = {purpose: number for number, purpose in enumerate(Purpose)}


class BufferOwner(Protocol):
    """The parts of a device that its buffers need.

    Attributes:
        info: Its description, with a ``name``.
        native: The native device.
    """

    info: Any
    native: _native.Device

    def create_buffer(self, size_in_bytes: int, *, purpose: Purpose = ...) -> Buffer: ...


@dataclass(frozen=True)
class PendingRead:
    """Bytes on their way to the host."""

    _native: _native.PendingDownload
    _out: npt.NDArray[np.uint8]

    def result(self) -> npt.NDArray[np.uint8]:
        """The bytes, once they have come."""
        self._native.finish()
        return self._out


class HostReading:
    """How the host reads what runs leave in a buffer.

    Attributes:
        was_read: Whether it has read any of what the last run left.
        source: The run that brings the bytes to the host by itself, as long as others keep it, and the number of the result
            there; None where none does.
    """

    __slots__ = ("source", "was_read")

    def __init__(self) -> None:
        self.restart()

    def restart(self) -> None:
        """Is for the next run."""
        self.was_read = False
        self.source: tuple[weakref.ref[_native.PreparedRun], int] | None = None

    def take(self, offset: int, out: npt.NDArray[Any]) -> bool:
        """Fills an array from what the run brings, and waits for that. False where none brings anything."""
        if self.source is None:
            return False
        run, index = self.source[0](), self.source[1]
        if run is not None:
            run.take(index, offset, out)
        return run is not None


class Buffer:
    """Device-local bytes: the resource that bindings name. Freed when neither the caller nor a command list needs it.

    Two are equal where they are the same memory.

    Attributes:
        device: The device that it lives on.
        size_in_bytes: Its length.
        is_exported: Whether other interfaces may import it.
    """

    __slots__ = ("__weakref__", "_native", "_reading", "device", "is_exported", "size_in_bytes")

    def __init__(self, device: BufferOwner, native: _native.Buffer, *, is_exported: bool = False) -> None:
        self.device = device
        self.is_exported = is_exported
        self.size_in_bytes = native.size
        self._native = native
        self._reading: HostReading | None = None

    def again(self, reading: HostReading | None = None) -> Buffer:
        """The same memory once more, for a user whose end is to be seen apart from others'.

        Args:
            reading: How the host reads what is in it, until that user gives it to commands.
        """
        made = Buffer.__new__(Buffer)
        made.device = self.device
        made.is_exported = self.is_exported
        made.size_in_bytes = self.size_in_bytes
        made._native = self.native
        made._reading = reading
        return made

    @property
    def native(self) -> _native.Buffer:
        """The native buffer; for ``dmlvk.runtime`` only."""
        self._reading = None  # Whoever has it may write, now or later.
        return self._native

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Buffer) and self._native is other._native

    def __hash__(self) -> int:
        return hash(self._native)

    def __repr__(self) -> str:
        return f"<Buffer of {self.size_in_bytes} bytes on {self.device.info.name}>"

    def write(self, data: npt.NDArray[Any] | bytes | bytearray | memoryview, offset: int = 0) -> None:
        """Copies host bytes into the buffer, after everything submitted before and before everything submitted later.

        Args:
            data: Contiguous bytes; they may be reused as soon as this returns.
            offset: The offset of the first written byte.

        Raises:
            InvalidArgumentError: data that is not contiguous bytes, or a range that leaves the buffer.
        """
        try:
            values = data if isinstance(data, np.ndarray) else np.frombuffer(data, np.uint8)
        except (BufferError, TypeError) as error:
            raise InvalidArgumentError(
                f"must be an array or contiguous bytes ({error})", field="data", value=type(data).__name__
            ) from None
        if not values.flags.c_contiguous or values.dtype.hasobject:
            raise InvalidArgumentError("must be contiguous, of no Python objects", field="data", value=_described(values))
        self._check_range(offset, values.nbytes)
        if values.nbytes:
            self.device.native.upload(self.native, offset, values)

    def read(self, size_in_bytes: int | None = None, offset: int = 0) -> npt.NDArray[np.uint8]:
        """Bytes of the buffer, after everything submitted before. Waits for it.

        Args:
            size_in_bytes: The number of bytes, all from ``offset`` where None.
            offset: The offset of the first byte.

        Raises:
            InvalidArgumentError: a range that leaves the buffer.
        """
        nbytes = self.size_in_bytes - offset if size_in_bytes is None else size_in_bytes
        self._check_range(offset, nbytes)
        out = np.empty(nbytes, np.uint8)
        self._fill(out, offset)
        return out

    def begin_read(self, size_in_bytes: int, offset: int = 0) -> PendingRead:
        """As ``read``, of a few MiB at most, which are asked for now and taken later: the device brings them meanwhile.

        Raises:
            InvalidArgumentError: a range that leaves the buffer, or is empty or too large.
        """
        self._check_range(offset, size_in_bytes)
        most = self.device.native.most_pending_bytes
        if not 0 < size_in_bytes <= most:
            raise InvalidArgumentError(f"must be 1 to {most}", field="size_in_bytes", value=size_in_bytes)
        out = np.empty(size_in_bytes, np.uint8)
        return PendingRead(self.device.native.begin_download(self._native, offset, out), out)

    def read_into(self, out: npt.NDArray[Any], offset: int = 0) -> None:
        """Fills a writable contiguous array with the buffer's bytes from ``offset`` on, as ``read``.

        Raises:
            InvalidArgumentError: an array that is not contiguous and writable, or a range that leaves the buffer.
        """
        if not (out.flags.c_contiguous and out.flags.writeable) or out.dtype.hasobject:
            rule = "must be contiguous and writable, of no Python objects"
            raise InvalidArgumentError(rule, field="out", value=_described(out))
        self._check_range(offset, out.nbytes)
        self._fill(out, offset)

    def _fill(self, out: npt.NDArray[Any], offset: int) -> None:
        if not out.nbytes:
            return
        reading = self._reading  # Another thread may be about to write.
        if reading is None or not reading.take(offset, out):
            self.device.native.download(self._native, offset, out)
        if reading is not None:
            reading.was_read = True

    def export_memory(self) -> tuple[int, int]:
        """A new file descriptor of an exported buffer's allocation, which the caller closes or gives away, and the
        allocation's bytes.

        Raises:
            StateError: the buffer was not created to be exported.
        """
        if not self.is_exported:
            raise StateError("a buffer that was not created with exported=True has no memory for others")
        return self.native.export_memory()

    def _check_range(self, offset: int, nbytes: int) -> None:
        if offset < 0 or nbytes < 0 or offset + nbytes > self.size_in_bytes:
            raise InvalidArgumentError(
                f"offset and size must lie inside the buffer's {self.size_in_bytes} bytes",
                field="range",
                value=(offset, nbytes),
            )


def _described(array: npt.NDArray[Any]) -> str:
    return f"{array.dtype} {array.shape} with strides of {array.strides} bytes"


class BufferBinding(NamedTuple):
    """``DML_BUFFER_BINDING``.

    Attributes:
        buffer: The resource, None for no binding.
        offset: Bytes from its start: a multiple of 16 for tensors, of 256 for temporary and persistent resources.
        size_in_bytes: Length of the range, all from ``offset`` on where None.
    """

    buffer: Buffer | None
    offset: int = 0
    size_in_bytes: int | None = None


class ParameterBlock(NamedTuple):
    """An immutable uniform range: the native buffer, its offset and its length in bytes."""

    buffer: _native.Buffer
    offset: int
    nbytes: int


class ParameterArena:
    """Packs the small immutable parameter blocks of compiled operators into shared buffers.

    A range is never handed out twice: a command list keeps the chunk that its blocks lie in, so a replay long after its
    operator is gone still reads what was written. A chunk is freed with its last user.

    The arena belongs to a device and does not keep it alive: a device goes, with all its pipelines, when its last user does.
    """

    def __init__(self, alignment: int) -> None:
        self._alignment = alignment
        self._lock = threading.Lock()
        self._chunk: _native.Buffer | None = None
        self._used = 0

    def place(self, device: BufferOwner, blocks: list[bytes]) -> list[ParameterBlock]:
        """Uploads blocks to the arena's device, equal ones once, and says where each went. Blocks are not empty."""
        starts: dict[bytes, int] = {}
        image = bytearray()
        for block in blocks:
            if block not in starts:
                image.extend(bytes(-len(image) % self._alignment))
                starts[block] = len(image)
                image.extend(block)
        if not image:
            return []
        chunk, base = self._reserve(device, len(image))
        device.native.upload(chunk, base, np.frombuffer(image, np.uint8))
        return [ParameterBlock(chunk, base + starts[block], len(block)) for block in blocks]

    def _reserve(self, device: BufferOwner, nbytes: int) -> tuple[_native.Buffer, int]:
        with self._lock:
            base = self._used + -self._used % self._alignment
            if self._chunk is None or base + nbytes > self._chunk.size:
                self._chunk = device.native.allocate(max(nbytes, _CHUNK_BYTES), PURPOSE_NUMBERS[Purpose.PARAMETERS])
                base = 0
            self._used = base + nbytes
            return self._chunk, base
