"""What is learned of the sizes of a region: how many recipes are made before one is of use for other sizes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from dmlvk.engine import shapes


def _region(monkeypatch: pytest.MonkeyPatch, *, useful: bool) -> tuple[shapes.RegionShapes, list[None]]:
    """A region whose recipes fit all sizes, or none but their own; and an entry for each recipe that is made."""
    made: list[None] = []

    class Recipe:
        def __init__(self, *_: Any) -> None:
            made.append(None)
            self._own: Sequence[int] | None = None

        def filled(self, values: Sequence[int]) -> object | None:
            self._own = self._own or values
            return self if useful or values == self._own else None

    monkeypatch.setattr(shapes, "GraphRecipe", Recipe)
    region: Any = shapes.RegionShapes
    return region(None, None, lambda *_: None), made


@pytest.mark.parametrize(("useful", "recipes"), [(True, 1), (False, 4)])
def test_recipes_that_fit_no_other_sizes_are_not_made_for_ever(
    monkeypatch: pytest.MonkeyPatch, useful: bool, recipes: int
) -> None:
    region, made = _region(monkeypatch, useful=useful)
    found = []
    for size in range(10, 22):
        specs = {"x": (np.dtype(np.float32), (1, size))}
        found.append(region.graph(specs, {}) is not None)
        if not found[-1]:
            region.note(specs, {})
    assert len(made) == recipes
    assert found == [False, False, *([True] * 10 if useful else [True] * 4 + [False] * 6)]
