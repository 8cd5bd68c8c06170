"""What hangs together by what it has in common."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import TypeVar

T = TypeVar("T")
K = TypeVar("K", bound=Hashable)


def connected(items: Iterable[tuple[T, Iterable[K]]]) -> list[list[T]]:
    """The items in groups that have no key in common, each in the order of the items, the group of the first item first.

    Args:
        items: Each with its keys, at least one.
    """
    ways: dict[K, K] = {}  # from each key to another of its group, and in the end to the one that stands for all

    def group(key: K) -> K:
        while ways.setdefault(key, key) != key:
            ways[key] = ways[ways[key]]
            key = ways[key]
        return key

    firsts = []
    for item, (first, *others) in items:
        firsts.append((item, first))
        for other in others:
            ways[group(other)] = group(first)
    found: dict[K, list[T]] = {}
    for item, first in firsts:
        found.setdefault(group(first), []).append(item)
    return list(found.values())
