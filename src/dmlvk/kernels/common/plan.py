"""A compiled operator is data: what to dispatch, over which bytes, with which parameters."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import ClassVar, NamedTuple

from dmlvk.spec.size import is_plain
from dmlvk.spec.tensor import MINIMUM_BUFFER_TENSOR_ALIGNMENT, TEMPORARY_BUFFER_ALIGNMENT

COUNTERS = 1024
"""The words of ``Source.COUNTERS``."""


class Source(enum.Enum):
    """The resource in which a binding's bytes lie.

    COUNTERS are the device's, the same words for every plan: they are 0 before each launch, and a launch that counts in them
    leaves them so.
    """

    INPUT = "input"
    OUTPUT = "output"
    TEMPORARY = "temporary"
    PERSISTENT = "persistent"
    CONSTANT = "constant"
    COUNTERS = "counters"


class Range(NamedTuple):
    """Bytes of a resource of the operator.

    Attributes:
        source: The resource.
        slot: The binding slot of INPUT and OUTPUT; the index among the operator's constants of CONSTANT.
        offset: Bytes from the start of the bound range.
        nbytes: Length; 0 for the whole tensor (INPUT and OUTPUT only).
    """

    source: Source
    slot: int = 0
    offset: int = 0
    nbytes: int = 0


def input_range(slot: int) -> Range:
    """The whole tensor of an input slot."""
    return Range(Source.INPUT, slot)


def output_range(slot: int = 0) -> Range:
    """The whole tensor of an output slot."""
    return Range(Source.OUTPUT, slot)


def counters(count: int) -> Range:
    """The first words of the device's counters."""
    assert count <= COUNTERS, f"there are {COUNTERS} counters, not {count}"
    return Range(Source.COUNTERS, 0, 0, 4 * count)


def aligned(nbytes: int) -> int:
    """Bytes rounded up to where the next range of temporary or persistent memory may start."""
    return -(-nbytes // TEMPORARY_BUFFER_ALIGNMENT) * TEMPORARY_BUFFER_ALIGNMENT


class Resource:
    """A plan's temporary or persistent resource while the plan is made: ranges one after the other.

    Attributes:
        end: The bytes up to the end of the last range.
    """

    def __init__(self, source: Source) -> None:
        self.end = 0
        self._source = source

    def take(self, nbytes: int) -> Range:
        """A new range behind all others."""
        start = aligned(self.end)
        self.end = start + nbytes
        return Range(self._source, 0, start, nbytes)


class KernelVariant(NamedTuple):
    """One pipeline: a kernel of the manifest, its SPIR-V variant and its specialisation constants.

    Attributes:
        kernel: Name in the manifest.
        variant: Preprocessor variant, (macro, value) pairs such as ("T", "FLOAT16").
        constants: Specialisation constants, (name, 32-bit pattern) pairs; those left out have the manifest's defaults.
        subgroup_size: Required subgroup size, 0 for the device's choice.
        has_byte_offsets: Whether it reads how many bytes behind an address that the device binds each range starts, or
            takes them to be 0.
    """

    kernel: str
    variant: tuple[tuple[str, str], ...] = ()
    constants: tuple[tuple[str, int], ...] = ()
    subgroup_size: int = 0
    has_byte_offsets: bool = True


@dataclass(frozen=True)
class Dispatch:
    """One launch.

    Attributes:
        kernel: The kernel variant, which stands for a pipeline.
        bindings: A range for each storage buffer of the kernel, in the manifest's order.
        params: The kernel's immutable parameter block, packed by ``KernelSpec.pack``.
        grid: Workgroups in x, y, z.
        beside_previous: Whether it may run beside the plan's launch before it, and beside those that that one may run
            beside: none of them writes a word that another reads or writes, though their ranges overlap.
    """

    kernel: KernelVariant
    bindings: tuple[Range, ...]
    params: bytes
    grid: tuple[int, int, int]
    beside_previous: bool = False

    @property
    def name(self) -> str:
        """The kernel's name, in timings and reports."""
        return self.kernel.kernel

    def pipeline(self, alignment: int) -> KernelVariant:
        """The pipeline on a device that binds multiples of ``alignment`` bytes, for resources that start at such. Where
        all tensors do, and all ranges of the plan, it reads no offsets: that saves 0.25 of the 2.23 us of a small dispatch
        (H200, driver 580, 2026-11-29)."""
        starts = [part.offset for part in self.bindings]
        is_aligned = alignment <= MINIMUM_BUFFER_TENSOR_ALIGNMENT and all(map(is_plain, starts))
        has_byte_offsets = not is_aligned or any(start % alignment for start in starts)
        return self.kernel._replace(has_byte_offsets=has_byte_offsets)


@dataclass(frozen=True)
class BlockCopy:
    """A copy of contiguous bytes, which the device's own copy command makes: it takes any offset and length.

    Attributes:
        name: The name in timings and reports.
        bindings: The source and the target, equally long; where they are bound to the same bytes nothing is done.
    """

    name: ClassVar[str] = "copy"
    bindings: tuple[Range, ...]


Launch = Dispatch | BlockCopy
"""A launch of a plan. Both kinds count as a dispatch, and both are timed."""


class Repetition(NamedTuple):
    """Dispatches that come again, of a plan of symbolic sizes: those of a network with a launch a step, for any number of
    steps.

    Attributes:
        first, end: The plan's dispatches that come again, which are as many rounds as differ in more than their number.
        launches: The launches that they become, a size.
        each: The launches of a round.
        counter: The place of the round's number in their parameter blocks, in bytes.
    """

    first: int
    end: int
    launches: int
    each: int
    counter: int

    def order(self, dispatches: int, launches: int) -> list[int]:
        """Which of so many dispatches of the plan each launch is made of, with so many launches of those that come again."""
        again = self.end - self.first
        repeated = [self.first + index % again for index in range(launches)]
        return [*range(self.first), *repeated, *range(self.end, dispatches)]


def numbered(params: bytes, counter: int, number: int) -> bytes:
    """A parameter block with the number of its round at a place."""
    return params[:counter] + number.to_bytes(4, "little") + params[counter + 4 :]


@dataclass(frozen=True)
class Plan:
    """All that running an operator takes: launches and memory.

    Attributes:
        dispatches: The launches in order; the recorder puts barriers where ranges conflict, but for those beside each other.
        temporary_bytes: Scratch, contents undefined before and after.
        persistent_bytes: The bytes that initialisation leaves for every execution.
        initialize: Dispatches of the initialisation, reading OWNED_BY_DML inputs and writing PERSISTENT ranges.
        persistent_inputs: The OWNED_BY_DML inputs that are kept as they are: input slot -> byte offset in the persistent
            resource. Initialisation copies it there, and execution reads it from there.
        repetition: Which of the dispatches come again, of symbolic sizes alone.
    """

    dispatches: tuple[Launch, ...]
    temporary_bytes: int = 0
    persistent_bytes: int = 0
    initialize: tuple[Launch, ...] = ()
    persistent_inputs: tuple[tuple[int, int], ...] = field(default=())
    repetition: Repetition | None = None
