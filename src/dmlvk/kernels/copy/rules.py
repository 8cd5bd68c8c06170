"""The rules of copies."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import NamedTuple

from dmlvk.devices.capabilities import Capabilities
from dmlvk.kernels.common.rule import Rule, always
from dmlvk.kernels.common.shapes import Coalesced, tile_lanes
from dmlvk.kernels.elementwise.rules import ElementwiseProblem, tiles_pay
from dmlvk.spec.enums import TensorDataType
from dmlvk.spec.tensor import packed_strides

MOST_INTERLEAVED = 16
"""Units of a strip's short dimension; an invocation holds as many words."""
_STRIP_WORDS = (128, 64, 32, 16, 8)
"""Bits of the words in which strips are moved."""


class Strip(NamedTuple):
    """Two dimensions that follow each other in memory in one tensor, ``long`` times ``short`` units, while in the other one
    each unit of the short dimension is in a run of its own.

    Attributes:
        short, long: The dimensions.
        size: The size of the short one.
        interleaves: Whether the output has the strips.
        word_bits: The bits of the largest words, one unit at least and 128 at most, on which runs and strips start in both.
    """

    short: int
    long: int
    size: int
    interleaves: bool
    word_bits: int


@dataclass(frozen=True)
class CopyProblem:
    """A copy as its kernels see it: units, each an element's bits or several elements'.

    Attributes:
        bits: The bits of a unit.
        walk: The dimensions in the order in which the output lies in memory, merged; strides of the input, which may be
            negative, and the output in units.
        starts: The first unit of either.
    """

    bits: int
    walk: Coalesced
    starts: tuple[int, int]

    @property
    def in_rows(self) -> bool:
        """Whether the innermost dimension is contiguous in both."""
        return all(steps[-1] == 1 for steps in self.walk.strides)

    @property
    def is_block(self) -> bool:
        """Whether all of it is contiguous in both."""
        return self.in_rows and len(self.walk.sizes) == 1

    @property
    def is_even(self) -> bool:
        """Whether units of twice the size have places of their own."""
        places = (self.walk.sizes[-1], *self.starts, *(step for steps in self.walk.strides for step in steps[:-1]))
        return self.in_rows and all(place % 2 == 0 for place in places)

    @property
    def output_is_packed(self) -> bool:
        """Whether the output's rows follow each other."""
        return self.walk.strides[1] == packed_strides(self.walk.sizes)

    @property
    def row_bytes(self) -> int:
        """The bytes of a row that is contiguous in both."""
        return self.walk.sizes[-1] * self.bits // 8

    def extent(self, tensor: int) -> tuple[int, int]:
        """The first unit that is touched of the source (0) or the target (1), and the one after the last."""
        steps = zip(self.walk.sizes, self.walk.strides[tensor], strict=True)
        reaches = [step * (size - 1) for size, step in steps]
        start = self.starts[tensor]
        return start + sum(min(reach, 0) for reach in reaches), start + sum(max(reach, 0) for reach in reaches) + 1

    @property
    def elementwise(self) -> ElementwiseProblem | None:
        """The problem for the kernel that moves tiles; None where that cannot serve it."""
        if self.bits > 32:
            return None
        unsigned = TensorDataType[f"UINT{self.bits}"]
        problem = ElementwiseProblem(unsigned, unsigned, self.walk)
        lanes = tile_lanes(self.bits)
        return problem if problem.turned is not None and all(start % lanes == 0 for start in self.starts) else None

    @property
    def strip(self) -> Strip | None:
        """The strips that are moved in the largest words, and of those the narrowest; None where there are none."""
        if self.bits > 64:
            return None
        pairs = itertools.permutations(range(len(self.walk.sizes)), 2)
        strips = (self._strip(*pair, interleaves) for pair in pairs for interleaves in (False, True))
        found = [strip for strip in strips if strip is not None]
        return max(found, key=lambda strip: (strip.word_bits, -strip.size), default=None)

    def _strip(self, short: int, long: int, interleaves: bool) -> Strip | None:
        """The strips of two dimensions, in the output or the input; None where they are none."""
        size = self.walk.sizes[short]
        runs, strips = self.walk.strides if interleaves else self.walk.strides[::-1]
        if not 2 <= size <= MOST_INTERLEAVED or (strips[short], strips[long], runs[long]) != (1, size, 1):
            return None
        others = [axis for axis, own in enumerate(self.walk.sizes) if own > 1 and axis not in (short, long)]
        steps = (own[axis] for own in self.walk.strides for axis in others)
        places = (self.walk.sizes[long], *self.starts, runs[short], *steps)
        word = next(bits for bits in _STRIP_WORDS if all(place * self.bits % bits == 0 for place in places))
        return Strip(short, long, size, interleaves, word)


_LEAST_ROWS = {8: (24,), 16: (48, 48, 48, 32), 32: (768, 768, 768, 512, 256)}
"""Bytes of a row from which on it is moved faster in words than in units of so many bits, by the dimensions around it: to
find a place among more of them takes longer, and a word does it once."""


def words_pay(bits: int, row_bytes: int, around: int, caps: Capabilities) -> bool:
    """Whether rows that start anywhere, in so many dimensions, are moved faster in words than in units of so many bits."""
    if caps.is_cpu:
        return bits < 128 and row_bytes >= 16
    least = _LEAST_ROWS.get(bits)
    return least is not None and row_bytes >= least[min(around, len(least) - 1)]


WORDS_BECAUSE = (
    "rows are contiguous but do not start on 16-byte words, and are long enough: words of the output, each shifted together "
    "from two of the input. H200, slices that start at 1: 8190 float16 a row at 3990 GB/s against 2690 by units, 61 at 3340 "
    "against 2650; 61 float32 at 3670 against 3980, but 129 in five dimensions at 3500 against 2990; 29 uint8 at 2290 "
    "against 1490, 13 at 1420 against 1480"
)
UNITS_BECAUSE = "any strides: units as wide as sizes, strides and starts allow, 16 bytes at most"


def _strips_pay(strip: Strip | None) -> bool:
    """Whether words of a strip are wide enough."""
    assert strip is not None, "the rule has shown it to be there"
    return strip.word_bits >= 32


COPY = (
    Rule(
        "block",
        when=lambda p, caps: caps.is_cpu,
        possible=lambda p, caps: p.is_block,
        because="contiguous in both, on a CPU, whose driver's own copy command is memcpy: lavapipe, 64 MiB, 4 times as fast "
        "as a kernel. H200: vkCmdCopyBuffer moves 1 GiB at 850 GB/s, and 213 where the length is odd; kernels at 4240",
    ),
    Rule(
        "strips_shared",
        when=lambda p, caps: not caps.is_cpu and _strips_pay(p.strip),
        possible=lambda p, caps: p.strip is not None,
        because="one tensor interleaves the 2 to 16 runs that the other has apart: words of all of those are rearranged in "
        "registers, and pass through shared memory, so that neighbours move neighbouring words on either side. H200, blocks "
        "of 2 from depth to space: float16 at 3930 GB/s against 1500 by units and 2850 without shared memory, float32 at "
        "3990 against 3020; uint8 images of 3 channels from NHWC at 3590 against 1150",
    ),
    Rule(
        "strips",
        when=lambda p, caps: caps.is_cpu,
        possible=lambda p, caps: p.strip is not None,
        because="the same on a CPU, whose caches need no neighbours that move neighbouring words. lavapipe, two million "
        "pixels of 2 to 16 channels from NHWC: uint8 in 2 to 3 ms against 22 to 27 by units, in words of one byte 8 to 19 "
        "against 26 to 39; float32 in 3 to 6 against 14 to 23",
    ),
    Rule(
        "tiles",
        when=lambda p, caps: not caps.is_cpu and tiles_pay(p.elementwise),
        possible=lambda p, caps: p.elementwise is not None,
        because="the input is contiguous in another dimension than the output: tiles through shared memory read and write "
        "whole cache lines. H200, 16384x8192 transposed in float32: 3880 GB/s against 1120 by units. A CPU's caches do that "
        "by themselves",
    ),
    Rule(
        "rows",
        when=lambda p, caps: p.is_block or words_pay(p.bits, p.row_bytes, len(p.walk.sizes) - 1, caps),
        possible=lambda p, caps: p.in_rows,
        because=f"{WORDS_BECAUSE}; and what is contiguous in both, so that blocks of any length share a pipeline: "
        "1 GiB at 4250 GB/s against 4220",
    ),
    Rule("units", when=always, possible=always, because=UNITS_BECAUSE),
)
