"""Parameters of a test that crosses several lists: the default tier takes a share of them, ``make test-full`` all."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from typing import Any

import pytest
from _pytest.mark.structures import ParameterSet


def _name(value: object) -> str:
    return str(getattr(value, "name", getattr(value, "__name__", value)))


def crossed(
    *lists: Iterable[object], name: Callable[[Any], str] = _name, each_value_once: bool = False
) -> list[ParameterSet]:
    """All combinations of one value of each list, for ``pytest.mark.parametrize``.

    Those are marked ``full`` whose places in the lists do not add up to a multiple of the shortest list's length. Without
    them each combination of the other lists' values is met once, and so is each value of the shortest, by turns.

    Args:
        lists: The values of each argument.
        name: The name of a value in the test's own.
        each_value_once: Marks more: without them each value of the longest list is met once, those of all others by turns.
    """
    values = [list(each) for each in lists]
    lengths = [len(each) for each in values]
    turns = {tuple(turn % length for length in lengths) for turn in range(max(lengths))}
    return [
        pytest.param(
            *(each[place] for each, place in zip(values, places, strict=True)),
            id="-".join(name(each[place]) for each, place in zip(values, places, strict=True)),
            marks=[] if (places in turns if each_value_once else sum(places) % min(lengths) == 0) else [pytest.mark.full],
        )
        for places in itertools.product(*map(range, lengths))
    ]
