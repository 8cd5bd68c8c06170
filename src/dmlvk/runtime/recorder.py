"""Turns a plan's launches, and the byte ranges bound to it, into commands of a native list.

The native list finds the bytes of each range, all launches of an operator in one call, and emits the barriers.

A storage binding must start at a multiple of the device's alignment, which may be larger than DirectML's 16 bytes. So a
range is bound from the aligned byte below it, and the kernel learns the remainder: push constants hold one byte offset
for each storage buffer, in binding order. Where the device's alignment is no larger, and nothing else starts in between, as
the state of one of several sequences does, pipelines that read no offsets serve (``Dispatch.pipeline``).
"""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from dmlvk.kernels.common.plan import COUNTERS, BlockCopy, Dispatch, KernelVariant, Launch, Range, Repetition, Source
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
        return self.buffer == other.buffer and self.offset < other.end and other.offset < self.end


class Resources(NamedTuple):
    """The ranges that a plan's own ranges refer to, in the order of ``Source``'s members.

    Attributes:
        inputs, outputs: A range for each slot, None where nothing is bound.
        temporary, persistent: None where the plan needs none.
        constants: The ranges that the operator brings along.
        counters: The device's counters, which launches add by themselves.
    """

    inputs: Sequence[BoundRange | None]
    outputs: Sequence[BoundRange | None]
    temporary: BoundRange | None
    persistent: BoundRange | None
    constants: Sequence[BoundRange] = ()
    counters: Sequence[BoundRange] = ()


_PLACES: Final = {source: place for place, source in enumerate(Source)}
"""The place of each source in ``Resources``."""


class NativeLaunches(NamedTuple):
    """The arguments of ``_native.CommandList.launch``."""

    launches: _native.Launches
    order: Sequence[int] | None
    values: Sequence[Filling]
    blocks: Sequence[ParameterBlock | None]
    resources: Resources


class NativeCopy(NamedTuple):
    """The arguments of ``_native.CommandList.copy``."""

    source: _native.Buffer
    source_offset: int
    target: _native.Buffer
    target_offset: int
    nbytes: int


class Command(NamedTuple):
    """A call that appends launches or a copy to a native list.

    Attributes:
        labels: The operator and the kernel of each, in timings; the kernel of a copy is ``BlockCopy.name``.
        arguments: The arguments of the call.
    """

    labels: Sequence[tuple[str, str]]
    arguments: NativeLaunches | NativeCopy


def copy_between(operator: str, source: BoundRange, target: BoundRange) -> Command:
    """The copy of one range into another of the same length."""
    assert source.nbytes == target.nbytes, f"{source} and {target} differ in length"
    native = NativeCopy(source.buffer.native, source.offset, target.buffer.native, target.offset, source.nbytes)
    return Command(((operator, BlockCopy.name),), native)


Filling = tuple[bytes | None, tuple[int, int, int] | None, tuple[Range, ...]]
"""What of a launch depends on sizes: its parameter block and its grid, None of a copy, and its ranges."""


class PreparedLaunches:
    """A plan's launches, ready for a device: pipelines created, parameter blocks uploaded.

    Args:
        device: The device.
        operator: The name of the operator, in timings.
        launches: The launches.
        repetition: Which of them come again, where they are to be filled.
    """

    def __init__(
        self, device: ComputeDevice, operator: str, launches: Sequence[Launch], repetition: Repetition | None = None
    ) -> None:
        self._repetition = repetition
        params = [None if isinstance(launch, BlockCopy) else launch.params or None for launch in launches]
        self._labels = [(operator, launch.name) for launch in launches]
        counts = any(part.source is Source.COUNTERS for launch in launches for part in launch.bindings)
        self._counters = (BoundRange(device.counters(), 0, 4 * COUNTERS),) if counts else ()
        again = range(repetition.first, repetition.end) if repetition else ()
        self._varies = [place for place, block in enumerate(params) if place in again or not isinstance(block, bytes | None)]
        self._order: Sequence[int] | None = None
        pipelines = [device.pipeline(launch) for launch in launches if not isinstance(launch, BlockCopy)]
        self._reads_offsets = all(pipeline.has_byte_offsets for pipeline in pipelines)
        self._alignment = device.storage_alignment
        self._native = _native_launches(device, launches, device.pipeline)
        self._device, self._launches = weakref.ref(device), launches
        self._reading_offsets: list[_native.Launches] = []  # one at most, once it is wanted
        placed = iter(device.place_parameters([block for block in params if isinstance(block, bytes)]))
        self._blocks = [next(placed) if isinstance(block, bytes) else None for block in params]
        self._values: Sequence[Filling] = [
            (None, None if isinstance(launch, BlockCopy) else launch.grid, launch.bindings) for launch in launches
        ]

    @property
    def count(self) -> int:
        """How many launches there are."""
        return len(self._values)

    def varying(self, filled: Sequence[Filling]) -> list[bytes]:
        """The parameter blocks of ``filled`` that these launches do not have yet."""
        places, _ = self._places(len(filled))
        return [params for place in places if (params := filled[place][0]) is not None]

    def _places(self, count: int) -> tuple[Sequence[int], Sequence[int] | None]:
        """Which of so many launches have parameter blocks of their own, and which prepared launch each is made of, None
        where they are these in order."""
        if self._repetition is None:
            return self._varies, None
        prepared = len(self._labels)
        again = count - prepared + self._repetition.end - self._repetition.first
        order = self._repetition.order(prepared, again)
        return [place for place, own in enumerate(order) if own in self._varies], order

    def filled(self, filled: Sequence[Filling], placed: Iterator[ParameterBlock]) -> PreparedLaunches:
        """The same launches for certain sizes.

        Args:
            filled: What of each launch depends on sizes.
            placed: The blocks of ``varying`` on the device, as many as this takes.
        """
        made = object.__new__(PreparedLaunches)
        made.__dict__.update(self.__dict__)  # as copy.copy, which takes ten times as long
        made._values = filled
        places, order = self._places(len(filled))
        if order is not None:
            made._order, made._labels = order, [self._labels[own] for own in order]
        if places:
            made._blocks = self._blocks.copy() if order is None else [self._blocks[own] for own in order]
            for place in places:
                made._blocks[place] = next(placed)
        return made

    def resolve(self, resources: Resources) -> list[Command]:
        """The commands over these resources; valid as long as the resources stay where they are."""
        if not self._labels:
            return []
        if self._counters:
            resources = resources._replace(counters=self._counters)
        native = self._native if self._reads_offsets or self._is_aligned(resources) else self._with_offsets()
        return [Command(self._labels, NativeLaunches(native, self._order, self._values, self._blocks, resources))]

    def _is_aligned(self, resources: Resources) -> bool:
        """Whether all start at what the device binds; temporary and persistent memory always does."""
        tensors = itertools.chain(resources.inputs, resources.outputs, resources.constants)
        return not any(bound is not None and bound.offset % self._alignment for bound in tensors)

    def _with_offsets(self) -> _native.Launches:
        """The launches by pipelines that read byte offsets."""
        if not self._reading_offsets:
            device = self._device()
            assert device is not None, "it has the resources"
            self._reading_offsets.append(_native_launches(device, self._launches, lambda launch: launch.kernel))
        return self._reading_offsets[0]


def _native_launches(
    device: ComputeDevice, launches: Sequence[Launch], pipeline: Callable[[Dispatch], KernelVariant]
) -> _native.Launches:
    """The launches as the native module has them, dispatches by the pipelines that a function names."""

    def kernel(launch: Launch) -> tuple[_native.Kernel | None, int]:
        """The pipeline of a launch, and which of its bindings it writes."""
        if isinstance(launch, BlockCopy):
            return None, 0
        return device.kernel(pipeline(launch)), KERNELS[launch.kernel.kernel].writes

    return device.native.launches(
        device.storage_alignment,
        [
            (
                *kernel(launch),
                [(_PLACES[part.source], part.slot) for part in launch.bindings],
                not isinstance(launch, BlockCopy) and launch.beside_previous,
            )
            for launch in launches
        ],
    )


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
        native: The native list; for ``dmlvk.runtime`` only.
        kept: What others keep with it, as long as there is this recording.
    """

    def __init__(self, device: ComputeDevice, *, timestamps: bool) -> None:
        self.native = device.native.command_list(timestamps=timestamps)
        self.labels: list[tuple[str, str]] = []
        self.kept: dict[Hashable, Any] = {}

    def add(self, commands: Sequence[Command]) -> None:
        """Appends commands."""
        for labels, arguments in commands:
            if isinstance(arguments, NativeCopy):
                self.native.copy(*arguments)
                self.labels += labels
            else:
                left_out = self.native.launch(*arguments)
                self.labels += [label for place, label in enumerate(labels) if place not in left_out] if left_out else labels

    def submit(self, *, defer: bool = False) -> None:
        """Submits; the first call ends recording. Waits for the previous submit of this recording.

        Args:
            defer: Whether it may wait for the next submit, upload or download of anybody, and go with that.
        """
        self.native.submit(defer=defer)

    def wait(self, timeout: float | None = None) -> bool:
        """Whether the last submit finished within ``timeout`` seconds (None: waits as long as the device's ``wait_timeout``
        allows)."""
        return self.native.wait(timeout)

    def timings(self) -> list[DispatchTiming]:
        """Every command of the last submit, in order, once it is done."""
        return [DispatchTiming(*label, *times) for label, times in zip(self.labels, self.native.timings(), strict=True)]

    def timestamp(self) -> None:
        """Appends the taking of the device's time."""
        self.native.timestamp()

    def timestamps(self) -> list[int]:
        """The times that the last submit's ``timestamp`` took, in ticks: see ``ComputeDevice.nanoseconds``."""
        return self.native.timestamps()
