"""The rules of softmax and its relatives."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import NamedTuple

from dmlvk.devices.capabilities import Capabilities
from dmlvk.kernels.common.rule import Rule, always
from dmlvk.kernels.common.shapes import Coalesced


class SoftmaxUnit(enum.IntEnum):
    """The unit that an invocation of the softmax kernels moves at once; ``glsl/include/row_tiles.glsl``."""

    ELEMENT = 0
    WORD_OF_A_ROW = 1
    WORD_OF_ROWS = 2
    WORD_ANYWHERE = 3


SOFTMAX_HELD = 32
"""Elements that an invocation holds in registers at most: with what else it needs, four workgroups of 256 share a core of
65,536 registers. Words of rows side by side are 8 at most, though that be 64 elements: fewer make the workgroups larger than
the device likes. H200, 8x1000x64x64 over the channels in float16: 98 us, 206 with 4 words."""
SOFTMAX_HELD_ALONE = 52
"""Registers for elements that an invocation has at most where a row has a workgroup of 1024, and so a processor, for itself:
64 less what else it needs."""
SOFTMAX_HELD_BY_ALL = 44
"""Those up to which that is the faster way. Of more, some spill, and half as many invocations have twice the registers each.
H200 (driver 580, 2026-11-28), 2048 rows in us by 1024 and by 512: of float32 40,000 187 and 219, 45,056 (44 registers) 209
and 225, 49,152 (48) 241 and 238, 50,257 297 and 239; of float16 81,920 (40) 187 and 191, 90,112 (44) 207 and 207, 98,304
(48) 244 and 225, 106,496 337 and 271."""
SHORT_WORDS = 1024
"""Words of a row up to which powers of two of them leave room for several workgroups on a processor."""


class Together(NamedTuple):
    """A workgroup for a row that leaves room for another one on its processor: while one waits, the other loads.

    Attributes:
        lanes: Its invocations.
        held: The most words that each holds in registers.
        shelf: Those that each holds in shared memory beside them.
    """

    lanes: int
    held: int
    shelf: int = 0

    @property
    def most(self) -> int:
        """The most words of a row."""
        return self.lanes * (self.held + self.shelf)


TOGETHER = {
    False: (Together(128, 10), Together(256, 10), Together(512, 11)),
    True: (Together(128, 10), Together(256, 10), Together(512, 8), Together(512, 5, 5), Together(256, 15, 11)),
}
"""For many rows of more words, by whether they are packed; the first that fits. H200 (driver 580, 2026-11-28), GB/s so and
by powers of two or a processor for each row: of float16 10,000 4,080 and 2,950, 20,000 4,080 and 2,340, 32,000 4,100 and
3,020, 36,000 3,900 and 2,900, 50,000 3,670 and 3,180; of float32 10,000 4,080 and 3,720, 20,000 4,030 and 3,100, 22,000
3,840 and 3,150. Longer rows of float32 took more than half of a processor's registers with shared memory, too."""
_WHOLE_PROCESSOR = 1024
"""Invocations of a workgroup that has a processor's registers for itself."""
LEAST_ANYWHERE = 24
"""Words of a row from which on one that starts anywhere is read in words: the shortest that was measured has 197 float16.
H200, by words and by elements: 262144x197 in 73 and 92 us, in float32 in 111 and 141; 65536x1001 float16 in 67 and 100."""


@dataclass(frozen=True)
class SoftmaxProblem:
    """Softmax and its relatives, as their kernels see them.

    Attributes:
        side_by_side: Whether neighbours in memory belong to different rows.
        unit: The unit that moves at once.
        unit_elements: Elements in a unit.
        groups: Groups of rows: single ones, or with ``WORD_OF_ROWS`` as many as elements in a unit.
        row_units: Units in a row, at most.
        row_elements: Elements in a row.
        kept, row: The kept and the reduced dimensions, merged: steps of x, y in elements.
        may_start_anywhere: Whether ``WORD_ANYWHERE`` is possible.
    """

    side_by_side: bool
    unit: SoftmaxUnit
    unit_elements: int
    groups: int
    row_units: int
    row_elements: int
    kept: Coalesced
    row: Coalesced
    may_start_anywhere: bool

    @property
    def least_columns(self) -> int:
        """Neighbouring groups of a workgroup, at least: as many as a memory sector of 32 bytes has."""
        if not self.side_by_side:
            return 1
        return 2 if self.unit is SoftmaxUnit.WORD_OF_ROWS else 8

    def most_invocations(self, caps: Capabilities) -> int:
        """The largest workgroup, a power of two. Merging takes 16 bytes of shared memory for each row of a group, of each of
        up to 8 columns of a subgroup."""
        most = min(caps.workgroup_invocations, 1024)
        if self.unit is SoftmaxUnit.WORD_OF_ROWS:
            most = min(most, caps.shared_memory_bytes * max(caps.least_subgroup, 8) // (16 * self.unit_elements * 8))
        return 1 << (most.bit_length() - 1)

    def fits_in_registers(self, caps: Capabilities) -> bool:
        """Whether a workgroup can hold the rows that it cannot do without."""
        return self.is_short(caps) or self.row_units <= self._alone(caps)

    def is_short(self, caps: Capabilities) -> bool:
        """Whether the registers of one workgroup of several on a processor hold them."""
        return self.row_units <= self.most_invocations(caps) // self.least_columns * self.units_held

    @property
    def units_held(self) -> int:
        """Units that an invocation holds in registers at most, so that several workgroups share a processor."""
        least = 8 if self.unit is SoftmaxUnit.WORD_OF_ROWS else 1
        return max(SOFTMAX_HELD // self.unit_elements, least)

    def _alone(self, caps: Capabilities) -> int:
        """Units that a workgroup of all of a processor's registers holds at most; 0 where there is none."""
        most = self.most_invocations(caps)
        each = SOFTMAX_HELD_ALONE * (2 if self.may_be_packed else 1) // self.unit_elements
        return 0 if self.side_by_side or most < _WHOLE_PROCESSOR else most * each

    @property
    def is_in_words(self) -> bool:
        """Whether units are words of a row."""
        return self.unit in (SoftmaxUnit.WORD_OF_A_ROW, SoftmaxUnit.WORD_ANYWHERE)

    @property
    def may_be_packed(self) -> bool:
        """Whether elements may be held as they lie in memory, two in a register."""
        return self.unit_elements == 8 and self.is_in_words


SOFTMAX = (
    Rule(
        "whole",
        when=lambda problem, caps: problem.is_short(caps) or problem.groups >= caps.model.workgroups(1),
        possible=lambda problem, caps: problem.fits_in_registers(caps),
        because="rows fit into the registers of a workgroup, of float16 with shared memory: one read and one write of each "
        "byte. H200, 16384x8192 in float32: 4061 GB/s. The longest take all registers of a processor, where there are "
        "enough rows to give each processor one: 4096x50000 in 468 us in float32, 621 in two reads; in float16, where a "
        "processor has two rows, in 222, 303 in two reads",
    ),
    Rule(
        "looped",
        when=lambda problem, caps: problem.groups >= caps.model.workgroups(32 if problem.side_by_side else 4),
        possible=always,
        because="rows longer than that, but enough of them to fill the device with a workgroup each: two reads, the second "
        "of which finds the ends of rows in the cache, and one write. H200, 1024 rows of 131072 float32: 418 us, PyTorch "
        "526",
    ),
    Rule(
        "split",
        when=always,
        possible=always,
        because="few long rows: two reads and one write by as many workgroups as the device can use. H200, 4 rows of 2^24 "
        "float32: 227 us, PyTorch 6030",
    ),
)
