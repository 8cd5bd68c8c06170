"""The activation arena: where each intermediate tensor lies in one buffer, planned from its first and last use."""

from __future__ import annotations

import itertools
from collections import Counter
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


class _Taken(NamedTuple):
    """Bytes of the arena that a part of a placed block takes."""

    start: int
    end: int
    lifetime: Lifetime


def largest_live_set(blocks: Sequence[Block]) -> int:
    """The most bytes that must be untouched at the same time: no arena can be smaller."""
    changes: Counter[int] = Counter()
    for part in itertools.chain.from_iterable(blocks):
        changes[part.first] += part.nbytes
        changes[part.last + 1] -= part.nbytes
    return max(itertools.accumulate(changes[step] for step in sorted(changes)), default=0)


def plan_arena(blocks: Sequence[Block]) -> Arena:
    """Gives parts whose lifetimes overlap disjoint ranges.

    The largest block is placed first, each at the lowest place where it meets no other.
    """
    offsets = [0] * len(blocks)
    placed = _Placed()
    nbytes = 0
    order = sorted(range(len(blocks)), key=lambda index: (-_length(blocks[index]), _first(blocks[index])))
    for index in order:
        offset = offsets[index] = _lowest(blocks[index], placed)
        for part in blocks[index]:
            taken = _Taken(offset + part.offset, offset + part.offset + part.nbytes, part)
            placed.add(taken)
            nbytes = max(nbytes, _aligned(taken.end))
    return Arena(tuple(offsets), nbytes)


class _Placed:
    """The placed parts, found by time: a search takes as long as the lifetime and what it finds, not what there is."""

    def __init__(self) -> None:
        self._by_first: dict[int, list[_Taken]] = {}
        self._by_range: dict[tuple[int, int], list[_Taken]] = {}  # ranges of 2**level steps; a lifetime is cut into few
        self._levels = 0

    def add(self, taken: _Taken) -> None:
        """Notes that a part takes its bytes for its lifetime."""
        first, end = taken.lifetime.first, taken.lifetime.last + 1
        self._by_first.setdefault(first, []).append(taken)
        level = 0
        while first < end:
            if first & 1:
                self._by_range.setdefault((level, first), []).append(taken)
                first += 1
            if end & 1:
                end -= 1
                self._by_range.setdefault((level, end), []).append(taken)
            first, end, level = first >> 1, end >> 1, level + 1
        self._levels = max(self._levels, level)

    def during(self, lifetime: Lifetime) -> list[_Taken]:
        """The parts that are in use in a part's lifetime, by their start."""
        found = [
            taken for level in range(self._levels) for taken in self._by_range.get((level, lifetime.first >> level), ())
        ]
        for step in range(lifetime.first + 1, lifetime.last + 1):
            found += self._by_first.get(step, ())
        return sorted(found, key=lambda taken: taken.start)


def _length(block: Block) -> int:
    return max(part.offset + part.nbytes for part in block)


def _first(block: Block) -> int:
    return min(part.first for part in block)


def _lowest(block: Block, placed: _Placed) -> int:
    """The lowest offset of a block."""
    others = [placed.during(part) for part in block]
    offset = 0
    while True:
        before = offset
        for part, met in zip(block, others, strict=True):
            for start, end, _ in met:
                if offset + part.offset + part.nbytes <= start:
                    break
                offset = max(offset, _aligned(end - part.offset))
        if offset == before or len(block) == 1:  # where one part makes way, another may meet something else
            return offset


def _aligned(offset: int) -> int:
    return offset + -offset % ARENA_ALIGNMENT
