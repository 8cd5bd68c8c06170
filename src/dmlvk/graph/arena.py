"""The activation arena: where each intermediate tensor lies in one buffer, planned from its first and last use."""

from __future__ import annotations

import bisect
import itertools
from collections import Counter
from collections.abc import Sequence
from typing import Final, NamedTuple

ARENA_ALIGNMENT: Final = 256
"""Bytes: what temporary and persistent resources need, and more than any tensor."""


class Lifetime(NamedTuple):
    """Bytes that must stay untouched from one step to another.

    Attributes:
        nbytes: How many; 0 takes no room.
        first: Step that writes them.
        last: Last step that reads them, ``first`` or later.
        offset: Of their block's bytes, the first.
    """

    nbytes: int
    first: int
    last: int
    offset: int = 0


Block = Sequence[Lifetime]
"""Bytes that lie together, where each part has a lifetime of its own: other blocks may use a part before it is written and
after it is read."""


class Arena(NamedTuple):
    """Where everything lies.

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
    placed: list[_Taken] = []
    order = sorted(range(len(blocks)), key=lambda index: (-_length(blocks[index]), _first(blocks[index])))
    for index in order:
        offset = offsets[index] = _lowest(blocks[index], placed)
        for part in blocks[index]:
            start = offset + part.offset
            bisect.insort(placed, _Taken(start, start + part.nbytes, part), key=lambda taken: taken.start)
    return Arena(tuple(offsets), max((_aligned(taken.end) for taken in placed), default=0))


def _length(block: Block) -> int:
    return max(part.offset + part.nbytes for part in block)


def _first(block: Block) -> int:
    return min(part.first for part in block)


def _lowest(block: Block, placed: Sequence[_Taken]) -> int:
    """The lowest offset of a block; ``placed`` are sorted by their start."""
    offset = 0
    while True:
        before = offset
        for part in block:
            for start, end, (_, first, last, _) in placed:
                if first <= part.last and part.first <= last:
                    if offset + part.offset + part.nbytes <= start:
                        break
                    offset = max(offset, _aligned(end - part.offset))
        if offset == before or len(block) == 1:  # where one part makes way, another may meet something else
            return offset


def _aligned(offset: int) -> int:
    return offset + -offset % ARENA_ALIGNMENT
