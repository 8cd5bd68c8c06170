"""Turns a plan's launches, and the byte ranges bound to it, into commands of a native list.

Nothing here emits a barrier: the native list does, from the ranges that each dispatch reads and writes.

A storage binding must start at a multiple of the device's alignment, which may be larger than DirectML's 16 bytes. So a
range is bound from the aligned byte below it, and the kernel learns the remainder: push constants hold one byte offset
for each storage buffer, in binding order.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from dmlvk.kernels.common.plan import BlockCopy, Launch, Range, Source
from dmlvk.kernels.manifest import KERNELS
from dmlvk.runtime.memory import Buffer, ParameterBlock

if TYPE_CHECKING:
    from dmlvk.runtime import _native
    from dmlvk.runtime.device import ComputeDevice


class BoundRange(NamedTuple):
    """Bytes [offset, offset + nbytes) of a buffer."""

    buffer: Buffer
    offset: int
    nbytes: int

    def __str__(self) -> str:
        return f"bytes {self.offset} to {self.end - 1}"

    @property
    def end(self) -> int:
        """First byte after the range."""
        return self.offset + self.nbytes

    def intersects(self, other: BoundRange) -> bool:
        """Whether the two have a byte in common."""
        return self.buffer is other.buffer and self.offset < other.end and other.offset < self.end


class Resources(NamedTuple):
    """The ranges that a plan's own ranges refer to.

    Attributes:
        inputs, outputs: A range for each slot, None where nothing is bound.
        temporary, persistent: None where the plan needs none.
        constants: The ranges that the operator brings along.
    """

    inputs: Sequence[BoundRange | None]
    outputs: Sequence[BoundRange | None]
    temporary: BoundRange | None
    persistent: BoundRange | None
    constants: Sequence[BoundRange] = ()

    def locate(self, part: Range) -> BoundRange:
        """The bytes that a plan's range means."""
        if part.source is Source.INPUT:
            whole = self.inputs[part.slot]
        elif part.source is Source.OUTPUT:
            whole = self.outputs[part.slot]
        elif part.source is Source.CONSTANT:
            whole = self.constants[part.slot]
        else:
            whole = self.temporary if part.source is Source.TEMPORARY else self.persistent
        assert whole is not None, f"the plan uses {part}, where nothing is bound"
        nbytes = part.nbytes or whole.nbytes - part.offset
        assert part.offset + nbytes <= whole.nbytes, f"the plan's {part} leaves {whole}"
        return BoundRange(whole.buffer, whole.offset + part.offset, nbytes)


class _Launch(NamedTuple):
    """A dispatch with its pipeline and its parameter block."""

    name: str
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


class NativeCopy(NamedTuple):
    """The arguments of ``_native.CommandList.copy``."""

    source: _native.Buffer
    source_offset: int
    target: _native.Buffer
    target_offset: int
    nbytes: int


class Command(NamedTuple):
    """A call that appends a dispatch or a copy to a native list.

    Attributes:
        operator, kernel: Its name in timings; the kernel of a copy is ``BlockCopy.name``.
        arguments: The arguments of the call.
    """

    operator: str
    kernel: str
    arguments: NativeDispatch | NativeCopy


def copy_between(operator: str, source: BoundRange, target: BoundRange) -> Command:
    """The copy of one range into another of the same length."""
    assert source.nbytes == target.nbytes, f"{source} and {target} differ in length"
    native = NativeCopy(source.buffer.native, source.offset, target.buffer.native, target.offset, source.nbytes)
    return Command(operator, BlockCopy.name, native)


Filling = tuple[bytes | None, tuple[int, int, int] | None, tuple[Range, ...]]
"""What of a launch depends on sizes: its parameter block and its grid, None of a copy, and its ranges."""


class PreparedLaunches:
    """A plan's launches, ready for a device: pipelines created, parameter blocks uploaded."""

    def __init__(self, device: ComputeDevice, operator: str, launches: Sequence[Launch]) -> None:
        self._operator = operator
        self._alignment = device.storage_alignment
        params = [None if isinstance(launch, BlockCopy) else launch.params or None for launch in launches]
        self._varies = [not isinstance(block, bytes | None) for block in params]
        placed = iter(device.place_parameters([block for block in params if isinstance(block, bytes)]))
        self._launches = [
            launch
            if isinstance(launch, BlockCopy)
            else _Launch(
                launch.kernel.kernel,
                device.kernel(launch.kernel),
                launch.bindings,
                KERNELS[launch.kernel.kernel].writes,
                next(placed) if isinstance(block, bytes) else None,
                struct.Struct(f"<{len(launch.bindings)}I"),
                launch.grid,
            )
            for launch, block in zip(launches, params, strict=True)
        ]

    def varying(self, filled: Sequence[Filling]) -> list[bytes]:
        """The parameter blocks of ``filled`` that these launches do not have yet."""
        pairs = zip(filled, self._varies, strict=True)
        return [params for (params, _, _), varies in pairs if varies and params is not None]

    def filled(self, filled: Sequence[Filling], placed: Iterator[ParameterBlock]) -> PreparedLaunches:
        """The same launches for certain sizes.

        Args:
            filled: What of each launch depends on sizes.
            placed: The blocks of ``varying`` on the device, as many as this takes.
        """
        made = object.__new__(PreparedLaunches)
        made.__dict__.update(self.__dict__)  # as copy.copy, which takes ten times as long
        made._launches = [
            launch._replace(bindings=bindings, grid=grid or launch.grid, params=next(placed) if varies else launch.params)
            if isinstance(launch, _Launch)
            else BlockCopy(bindings)
            for launch, varies, (_, grid, bindings) in zip(self._launches, self._varies, filled, strict=True)
        ]
        return made

    def resolve(self, resources: Resources) -> list[Command]:
        """The commands over these resources; valid as long as the resources stay where they are."""
        commands = []
        for launch in self._launches:
            if isinstance(launch, _Launch):
                commands.append(self._resolve(launch, resources))
                continue
            source, target = map(resources.locate, launch.bindings)
            if source != target:
                commands.append(copy_between(self._operator, source, target))
        return commands

    def _resolve(self, launch: _Launch, resources: Resources) -> Command:
        buffers = []
        remainders = []
        for part in launch.bindings:
            bound = resources.locate(part)
            remainder = bound.offset % self._alignment
            buffers.append((bound.buffer.native, bound.offset - remainder, bound.nbytes + remainder))
            remainders.append(remainder)
        push = launch.push.pack(*remainders)
        native = NativeDispatch(launch.kernel, buffers, launch.writes, launch.params, push, launch.grid)
        return Command(self._operator, launch.name, native)


class DispatchTiming(NamedTuple):
    """The time span of a dispatch of a list on the device.

    Attributes:
        operator, kernel: The names of what ran.
        start, end: Nanoseconds from the list's first start.
    """

    operator: str
    kernel: str
    start: float
    end: float


class Recording:
    """A native command list with the labels of its commands.

    Attributes:
        labels: (operator, kernel) of each command in order.
    """

    def __init__(self, device: ComputeDevice, *, timestamps: bool) -> None:
        self._native = device.native.command_list(timestamps=timestamps)
        self.labels: list[tuple[str, str]] = []

    def add(self, commands: Sequence[Command]) -> None:
        """Appends commands."""
        dispatch, copy = self._native.dispatch, self._native.copy
        for operator, kernel, arguments in commands:
            if isinstance(arguments, NativeDispatch):
                dispatch(*arguments)
            else:
                copy(*arguments)
            self.labels.append((operator, kernel))

    def submit(self, *, defer: bool = False) -> None:
        """Submits; the first call ends recording. Waits for the previous submit of this recording.

        Args:
            defer: Whether it may wait for the next submit, upload or download of anybody, and go with that.
        """
        self._native.submit(defer=defer)

    def wait(self, timeout: float | None = None) -> bool:
        """Whether the last submit finished within ``timeout`` seconds (None: waits as long as the device's ``wait_timeout``
        allows)."""
        return self._native.wait(timeout)

    def timings(self) -> list[DispatchTiming]:
        """Every command of the last submit, in order, once it is done."""
        return [DispatchTiming(*label, *times) for label, times in zip(self.labels, self._native.timings(), strict=True)]

    def timestamp(self) -> None:
        """Appends the taking of the device's time."""
        self._native.timestamp()

    def timestamps(self) -> list[int]:
        """The times that the last submit's ``timestamp`` took, in ticks: see ``ComputeDevice.nanoseconds``."""
        return self._native.timestamps()
