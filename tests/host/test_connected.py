"""Groups of what hangs together, against a search that looks at everything again and again."""

from __future__ import annotations

import random

from dmlvk.graph.connected import connected


def searched(items: list[tuple[int, list[int]]]) -> list[list[int]]:
    groups: list[tuple[list[int], set[int]]] = []
    for item, keys in items:
        near = [group for group in groups if not group[1].isdisjoint(keys)]
        groups = [group for group in groups if group not in near]
        groups.append((sorted([*(own for group in near for own in group[0]), item]), {*keys}.union(*(k for _, k in near))))
    return sorted(group for group, _ in groups)


def test_groups_are_what_a_search_finds() -> None:
    rng = random.Random(0)
    for count in range(60):
        items = [(item, rng.choices(range(2 * count), k=rng.randint(1, 3))) for item in range(count)]
        assert connected(items) == searched(items), items
