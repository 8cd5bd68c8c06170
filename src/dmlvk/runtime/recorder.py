"""From dispatches of a plan and the byte ranges bound to them to commands of a native list.

Nothing here emits a barrier: the native list does, from the ranges that each dispatch reads and writes.

A storage binding must start at a multiple of the device's alignment, which may be larger than DirectML's 16 bytes. So a
range is bound from the aligned byte below it, and the kernel learns the remainder: push constants hold one byte offset
for each storage buffer, in binding order.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from dmlvk.kernels.manifest import KERNELS
from dmlvk.kernels.plan import Dispatch, KernelVariant, Range, Source
from dmlvk.runtime.memory import Buffer, ParameterBlock

if TYPE_CHECKING:
    from dmlvk.runtime import _native
    from dmlvk.runtime.device import ComputeDevice


class BoundRange(NamedTuple):
    """Bytes [offset, offset + nbytes) of a buffer."""

    buffer: Buffer
    offset: int
    nbytes: int

    @property
    def end(self) -> int:
        """First byte after the range."""
        return self.offset + self.nbytes

    def intersects(self, other: BoundRange) -> bool:
        """Whether the two have a byte in common."""
        return self.buffer is other.buffer and self.offset < other.end and other.offset < self.end


class Resources(NamedTuple):
    """What a plan's ranges refer to.

    Attributes:
        inputs, outputs: A range for each slot, None where nothing is bound.
        temporary, persistent: None where the plan needs none.
    """

    inputs: Sequence[BoundRange | None]
    outputs: Sequence[BoundRange | None]
    temporary: BoundRange | None
    persistent: BoundRange | None

    def locate(self, part: Range) -> BoundRange:
        """The bytes that a plan's range means."""
        if part.source is Source.INPUT:
            whole = self.inputs[part.slot]
        elif part.source is Source.OUTPUT:
            whole = self.outputs[part.slot]
        else:
            whole = self.temporary if part.source is Source.TEMPORARY else self.persistent
        assert whole is not None, f"the plan uses {part}, where nothing is bound"
        nbytes = part.nbytes or whole.nbytes - part.offset
        assert part.offset + nbytes <= whole.nbytes, f"the plan's {part} leaves {whole}"
        return BoundRange(whole.buffer, whole.offset + part.offset, nbytes)


class _Launch(NamedTuple):
    """A dispatch with its pipeline and its parameter block."""

    kernel: _native.Kernel
    bindings: tuple[Range, ...]
    writes: int
    params: ParameterBlock | None
    push: struct.Struct
    grid: tuple[int, int, int]


class NativeDispatch(NamedTuple):
    """The arguments of ``_native.CommandList.dispatch``."""

    kernel: _native.Kernel
    buffers: list[tuple[_native.Buffer, int, int]]
    writes: int
    params: ParameterBlock | None
    push: bytes
    grid: tuple[int, int, int]


class Program:
    """The dispatches of a plan, ready for a device: pipelines created, parameter blocks uploaded.

    Attributes:
        kernels: The variant of each dispatch in order.
    """

    def __init__(self, device: ComputeDevice, dispatches: Sequence[Dispatch]) -> None:
        self.kernels: tuple[KernelVariant, ...] = tuple(dispatch.kernel for dispatch in dispatches)
        self._alignment = device.storage_alignment
        placed = iter(device.parameters.place([dispatch.params for dispatch in dispatches if dispatch.params]))
        self._launches = [
            _Launch(
                device.kernel(dispatch.kernel),
                dispatch.bindings,
                KERNELS[dispatch.kernel.kernel].writes,
                next(placed) if dispatch.params else None,
                struct.Struct(f"<{len(dispatch.bindings)}I"),
                dispatch.grid,
            )
            for dispatch in dispatches
        ]

    def resolve(self, resources: Resources) -> list[NativeDispatch]:
        """The native dispatches over these resources; valid as long as the resources stay where they are."""
        return [self._resolve(launch, resources) for launch in self._launches]

    def _resolve(self, launch: _Launch, resources: Resources) -> NativeDispatch:
        buffers = []
        remainders = []
        for part in launch.bindings:
            bound = resources.locate(part)
            remainder = bound.offset % self._alignment
            buffers.append((bound.buffer.native, bound.offset - remainder, bound.nbytes + remainder))
            remainders.append(remainder)
        push = launch.push.pack(*remainders)
        return NativeDispatch(launch.kernel, buffers, launch.writes, launch.params, push, launch.grid)


class NativeCopy(NamedTuple):
    """The arguments of ``_native.CommandList.copy``."""

    source: _native.Buffer
    source_offset: int
    target: _native.Buffer
    target_offset: int
    nbytes: int


def copy_between(source: BoundRange, target: BoundRange) -> NativeCopy:
    """The copy of one range into another of the same length."""
    assert source.nbytes == target.nbytes, f"{source} and {target} differ in length"
    return NativeCopy(source.buffer.native, source.offset, target.buffer.native, target.offset, source.nbytes)


class Commands(NamedTuple):
    """What one record call emits, copies first.

    Attributes:
        copies: Ranges to copy.
        dispatches: Kernels to run.
        labels: (operator, kernel) of each dispatch.
    """

    copies: list[NativeCopy]
    dispatches: list[NativeDispatch]
    labels: list[tuple[str, str]]


class Recording:
    """A native command list with the labels of its dispatches.

    Attributes:
        labels: (operator, kernel) of each dispatch in order.
    """

    def __init__(self, device: ComputeDevice, *, timestamps: bool) -> None:
        self._native = device.native.command_list(timestamps=timestamps)
        self.labels: list[tuple[str, str]] = []

    def add(self, commands: Commands) -> None:
        """Appends commands."""
        for copy in commands.copies:
            self._native.copy(*copy)
        dispatch = self._native.dispatch
        for arguments in commands.dispatches:
            dispatch(*arguments)
        self.labels += commands.labels

    def submit(self) -> None:
        """Submits; the first call ends recording. Waits for the previous submit of this recording."""
        self._native.submit()

    def wait(self, timeout: float | None = None) -> bool:
        """Whether the last submit finished within ``timeout`` seconds (None: waits as long as it takes)."""
        return self._native.wait(timeout)

    def timings(self) -> list[tuple[float, float]]:
        """(start, end) of each dispatch of the last submit, nanoseconds from the first start."""
        return self._native.timings()
