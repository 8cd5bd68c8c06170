"""What is learned of the sizes of a region: how many recipes are made before one is of use for other sizes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import pytest

from dmlvk.engine import shapes

Fits = Callable[[int, int], bool]
"""Whether a recipe that was made for one size is for another, too."""


def _region(monkeypatch: pytest.MonkeyPatch, fits: Fits) -> tuple[shapes.RegionShapes, list[None]]:
    """A region with one size, and an entry for each recipe that is made."""
    made: list[None] = []

    class Recipe:
        def __init__(self, *_: Any) -> None:
            made.append(None)
            self._own: int | None = None

        def filled(self, values: Sequence[int]) -> object | None:
            (size,) = values
            self._own = self._own or size
            return self if fits(self._own, size) else None

    monkeypatch.setattr(shapes, "GraphRecipe", Recipe)
    region: Any = shapes.RegionShapes
    return region(None, None, lambda *_: None), made


def _filled(region: shapes.RegionShapes, sizes: Iterable[int]) -> list[bool]:
    """Whether each size, as a run would ask for it, was filled; others are traced, and noted."""
    found = []
    for size in sizes:
        specs = {"x": (np.dtype(np.float32), (1, size))}
        found.append(region.graph(specs, {}) is not None)
        if not found[-1]:
            region.note(specs, {})
    return found


@pytest.mark.parametrize(("useful", "recipes"), [(True, 1), (False, 4)])
def test_recipes_that_fit_no_other_sizes_are_not_made_for_ever(
    monkeypatch: pytest.MonkeyPatch, useful: bool, recipes: int
) -> None:
    region, made = _region(monkeypatch, lambda own, size: useful or size == own)
    found = _filled(region, range(10, 22))
    assert len(made) == recipes
    assert found == [False, False, *([True] * 10 if useful else [True] * 4 + [False] * 6)]


def test_each_use_of_a_recipe_earns_another(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tens that have a recipe each: more of them than are made on credit, as each is of use once."""
    region, made = _region(monkeypatch, lambda own, size: own // 10 == size // 10)
    found = _filled(region, [8, 9, *(ten + unit for ten in range(10, 100, 10) for unit in (0, 5))])
    assert found == [False, False, *[True] * 18]
    assert len(made) == 9


def test_no_use_earns_more_than_the_first_credit(monkeypatch: pytest.MonkeyPatch) -> None:
    """A recipe that is used twenty times, and then sizes that have nothing in common."""
    region, made = _region(monkeypatch, lambda own, size: own == size or max(own, size) < 100)
    assert all(_filled(region, range(8, 30))[2:])
    assert _filled(region, range(100, 110)) == [True] * 4 + [False] * 6
    assert len(made) == 5


def test_the_recipe_that_was_not_used_for_longest_goes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """A recipe for each ten, one more than are kept; the first is used between all others."""
    region, made = _region(monkeypatch, lambda own, size: own // 10 == size // 10)
    tens = [size for ten in range(20, 340, 10) for size in (ten, ten + 1, 11)]
    assert all(_filled(region, [8, 9, 10, *tens])[2:])
    assert len(made) == 33
    assert _filled(region, [12, 32, 22]) == [True, True, True]
    assert len(made) == 34, "only the twenties had gone"
