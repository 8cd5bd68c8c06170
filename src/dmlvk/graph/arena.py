"""The activation arena: where each intermediate tensor lies in one buffer, planned from its first and last use."""

from __future__ import annotations

import bisect
import itertools
from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Final, NamedTuple

ARENA_ALIGNMENT: Final = 256
"""Bytes: what temporary and persistent resources need, and more than any tensor."""


class Lifetime(NamedTuple):
    """Bytes that must stay untouched from one step to another.

    Attributes:
        nbytes: The number of bytes; 0 takes no room.
        first: Step that writes them.
        last: Last step that reads them, ``first`` or later.
        offset: The offset of the first of them in their block.
    """

    nbytes: int
    first: int
    last: int
    offset: int = 0


Block = Sequence[Lifetime]
"""Bytes that lie together, where each part has a lifetime of its own: other blocks may use a part before it is written and
after it is read."""


class Arena(NamedTuple):
    """The places of all blocks in one buffer.

    Attributes:
        offsets: Byte offset of each block, a multiple of ``ARENA_ALIGNMENT``.
        nbytes: Length of the arena.
    """

    offsets: tuple[int, ...]
    nbytes: int


def live_bytes(blocks: Sequence[Block], steps: int) -> tuple[int, ...]:
    """The bytes that must be untouched before the first of so many steps, at each of them and after the last: no arena can
    be smaller than the most."""
    changes: Counter[int] = Counter()
    for part in itertools.chain.from_iterable(blocks):
        changes[part.first] += part.nbytes
        changes[part.last + 1] -= part.nbytes
    return tuple(itertools.accumulate(changes[step] for step in range(-1, steps + 1)))


def plan_arena(blocks: Sequence[Block]) -> Arena:
    """Gives parts whose lifetimes overlap disjoint ranges.

    The largest block is placed first, each at the lowest place where it meets no other.
    """
    offsets = [0] * len(blocks)
    taken = _Taken(max((part.last for block in blocks for part in block), default=0))
    nbytes = 0
    order = sorted(range(len(blocks)), key=lambda index: (-_length(blocks[index]), _first(blocks[index])))
    for index in order:
        offset, length = _lowest(blocks[index], taken), _length(blocks[index])
        for part in blocks[index]:
            end = part.offset + part.nbytes
            if part.nbytes:  # behind a block nothing starts before the next multiple: then blocks touch
                taken.add(part, offset + part.offset, offset + (_aligned(end) if end == length else end))
        nbytes = max(nbytes, _aligned(offset + length))
        offsets[index] = offset
    return Arena(tuple(offsets), nbytes)


class Stacking:
    """Which blocks of an arena lie on which others: places for any lengths of blocks that are used at the same steps.

    Blocks keep the order in which a plan has them from the bottom up, each on those below it that are in use meanwhile. So
    those that are used together never meet, whatever their lengths, and those of the plan's own lengths lie no higher than
    in the plan. A block costs about the same among more.

    Args:
        lives: The first and the last step of each block.
        lengths: The bytes of each for which the blocks are planned. Those without any lie on top.
    """

    def __init__(self, lives: Sequence[tuple[int, int]], lengths: Sequence[int]) -> None:
        planned = plan_arena([[Lifetime(nbytes, *life)] for life, nbytes in zip(lives, lengths, strict=True)]).offsets
        self._order = sorted(range(len(lives)), key=lambda block: (not lengths[block], planned[block]))
        self._below: list[tuple[int, ...]] = []
        starts, tops = [min((first for first, _ in lives), default=0)], [-1]  # from which step on which block is the top one
        for block in self._order:
            first, last = lives[block]
            before = bisect.bisect_right(starts, first) - 1
            after = bisect.bisect_right(starts, last)
            self._below.append(tuple(sorted({top for top in tops[before:after] if top >= 0})) or (len(lives),))
            rest = [] if after < len(starts) and starts[after] == last + 1 else [(last + 1, tops[after - 1])]
            kept = [] if starts[before] == first else [(starts[before], tops[before])]
            made = [*kept, (first, block), *rest]
            starts[before:after], tops[before:after] = [start for start, _ in made], [top for _, top in made]

    def arena(self, lengths: Sequence[int]) -> Arena:
        """The places of blocks of these lengths."""
        offsets = [0] * len(lengths)
        ends = [0] * (len(lengths) + 1)  # the last is the floor
        for block, below in zip(self._order, self._below, strict=True):
            offsets[block] = offset = ends[below[0]] if len(below) == 1 else max([ends[other] for other in below])
            ends[block] = offset + _aligned(lengths[block])
        return Arena(tuple(offsets), max(ends))


class _Ranges:
    """Bytes of the arena, as ranges that neither meet nor touch: what fills the space between two makes them one."""

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._ends: list[int] = []

    def __len__(self) -> int:
        return len(self._starts)

    def add(self, start: int, end: int) -> bool:
        """Adds bytes; returns whether any of them is new."""
        first, last = bisect.bisect_left(self._ends, start), bisect.bisect_right(self._starts, end)
        if first < last:
            if self._starts[first] <= start and end <= self._ends[first]:
                return False
            start, end = min(start, self._starts[first]), max(end, self._ends[last - 1])
        self._starts[first:last], self._ends[first:last] = [start], [end]
        return True

    def update(self, other: _Ranges) -> None:
        """Adds the bytes of others."""
        for start, end in zip(other._starts, other._ends, strict=True):
            self.add(start, end)

    def lowest(self, part: Lifetime, offset: int) -> int:
        """The lowest offset of a part's block, from one on, at which the part meets none of the bytes."""
        for index in range(bisect.bisect_right(self._ends, offset + part.offset), len(self._ends)):
            if offset + part.offset + part.nbytes <= self._starts[index]:
                break
            offset = max(offset, _aligned(self._ends[index] - part.offset))
        return offset


class _Taken:
    """The bytes that placed parts take, found by time: a search takes about as long however many parts there are.

    Time is cut in halves again and again. A lifetime is few of these spans, one after the other. Each span knows the bytes
    that are taken at any time in it. Of those that are taken throughout it, its halves learn once that saves time.

    Args:
        last: The last step of all lifetimes.
    """

    def __init__(self, last: int) -> None:
        self._top = last.bit_length()
        self._taken: defaultdict[_Span, _Ranges] = defaultdict(_Ranges)
        self._untold: defaultdict[_Span, _Ranges] = defaultdict(_Ranges)

    def add(self, part: Lifetime, start: int, end: int) -> None:
        """Notes that a part takes bytes of the arena."""
        for level, index in _spans(part):
            if level:
                self._untold[level, index].add(start, end)
            for outer in range(level, self._top + 1):  # what is not new to a span is not new to those around it
                if not self._taken[outer, index >> outer - level].add(start, end):
                    break

    def lowest(self, part: Lifetime, offset: int) -> int:
        """The lowest offset of a part's block, from one on, at which it meets none of the bytes that are taken meanwhile."""
        around = [span for span in self._around(part) if span in self._untold]
        found = [self._taken[span] for span in _spans(part) if span in self._taken]
        found += [self._untold[span] for span in around]
        patience = sum(len(self._untold[span]) for span in around)
        index = 0
        while index < len(found):
            before, offset = offset, found[index].lowest(part, offset)
            if offset == before or not index:
                index += 1
                continue
            found.insert(0, found.pop(index))  # what made it move once may do so again
            index = 1
            patience -= 1
            if patience == 0:  # one after the other keeps it moving: together they are fewer ranges
                self._tell(part)
                return self.lowest(part, offset)
        return offset

    def _around(self, part: Lifetime) -> list[_Span]:
        """The spans around those of a lifetime, the longest first."""
        first, last = part.first, part.last
        return [
            (level, index)
            for level in range(self._top, 0, -1)
            for index in {first >> level, last >> level}
            if not first <= index << level <= last + 1 - (1 << level)
        ]

    def _tell(self, part: Lifetime) -> None:
        """Lets the spans of a lifetime learn what is taken throughout those around them."""
        for level, index in self._around(part):
            untold = self._untold.pop((level, index), _Ranges())
            for half in ((level - 1, 2 * index), (level - 1, 2 * index + 1)):
                self._taken[half].update(untold)
                if level > 1 and untold:
                    self._untold[half].update(untold)


_Span = tuple[int, int]
"""Level and index of 2**level steps, from 2**level * index on."""


def _spans(part: Lifetime) -> list[_Span]:
    """The fewest spans that are just a part's lifetime."""
    found: list[_Span] = []
    first, end, level = part.first, part.last + 1, 0
    while first < end:
        if first & 1:
            found += [(level, first)]
            first += 1
        if end & 1:
            end -= 1
            found += [(level, end)]
        first, end, level = first >> 1, end >> 1, level + 1
    return found


def _length(block: Block) -> int:
    return max(part.offset + part.nbytes for part in block)


def _first(block: Block) -> int:
    return min(part.first for part in block)


def _lowest(block: Block, taken: _Taken) -> int:
    """The lowest offset of a block."""
    offset, before = 0, -1
    while offset != before:  # where one part makes way, another may meet something else
        before = offset
        for part in block:
            offset = taken.lowest(part, offset) if part.nbytes else offset
    return offset


def _aligned(offset: int) -> int:
    return offset + -offset % ARENA_ALIGNMENT
