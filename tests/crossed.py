"""Parameters of a test that crosses several lists: the default tier takes a share of them, ``make test-full`` all."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from typing import Any

import pytest
from _pytest.mark.structures import ParameterSet


def _name(value: object) -> str:
    return str(getattr(value, "name", getattr(value, "__name__", value)))


def crossed(*lists: Iterable[object], name: Callable[[Any], str] = _name) -> list[ParameterSet]:
    """All combinations of one value of each list, for ``pytest.mark.parametrize``.

    Those are marked ``full`` whose places in the lists do not add up to a multiple of the shortest list's length. Without
    them each combination of the other lists' values is met once, and so is each value of the shortest, by turns.

    Args:
        lists: The values of each argument.
        name: The name of a value in the test's own.
    """
    values = [list(each) for each in lists]
    shortest = min(map(len, values))
    return [
        pytest.param(
            *combination, id="-".join(map(name, combination)), marks=[pytest.mark.full] * (sum(places) % shortest != 0)
        )
        for combination, places in zip(
            itertools.product(*values), itertools.product(*(range(len(each)) for each in values)), strict=True
        )
    ]
