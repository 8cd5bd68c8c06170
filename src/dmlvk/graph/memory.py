"""The activation arena: where each intermediate tensor lies in one buffer, planned from its first and last use."""

from __future__ import annotations

import bisect
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
    """

    nbytes: int
    first: int
    last: int


class Arena(NamedTuple):
    """Where everything lies.

    Attributes:
        offsets: Byte offset of each lifetime, a multiple of ``ARENA_ALIGNMENT``.
        nbytes: Length of the arena.
    """

    offsets: tuple[int, ...]
    nbytes: int


def plan_arena(lifetimes: Sequence[Lifetime]) -> Arena:
    """Gives lifetimes that overlap disjoint ranges.

    The largest is placed first, each in the lowest gap between those that it meets.
    """
    offsets = [0] * len(lifetimes)
    placed: list[int] = []
    for index in sorted(range(len(lifetimes)), key=lambda i: (-lifetimes[i].nbytes, lifetimes[i].first)):
        nbytes, first, last = lifetimes[index]
        offset = 0
        for other in placed:
            if lifetimes[other].first <= last and first <= lifetimes[other].last:
                if offset + nbytes <= offsets[other]:
                    break
                offset = max(offset, _aligned(offsets[other] + lifetimes[other].nbytes))
        offsets[index] = offset
        bisect.insort(placed, index, key=offsets.__getitem__)
    return Arena(tuple(offsets), max((_aligned(offsets[i] + lifetimes[i].nbytes) for i in placed), default=0))


def _aligned(offset: int) -> int:
    return offset + -offset % ARENA_ALIGNMENT
