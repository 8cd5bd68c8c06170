"""What a sweep says of the rules."""

from __future__ import annotations

import pytest

from dmlvk_bench.sweep import SweepRow, is_hopeless, slower_than_possible

pytestmark = pytest.mark.quick


def row(problem: str, rule: str, us: float, *, chosen: bool = False) -> SweepRow:
    return SweepRow(problem, rule, chosen, us, 1.0, 0.0)


def test_a_choice_that_is_slower_than_another_is_named() -> None:
    rows = [
        row("good", "wide", 100, chosen=True),
        row("good", "narrow", 96),
        row("bad", "narrow", 120, chosen=True),
        row("bad", "wide", 90),
        row("bad", "naive", 100),
    ]
    (line,) = slower_than_possible(rows)
    assert line == "bad: narrow is chosen and takes 120.0 us, 1.33 times the 90.0 us of wide"


def test_a_rule_is_hopeless_only_beyond_what_starting_takes() -> None:
    assert is_hopeless(0.5, best=0.1)
    assert not is_hopeless(0.3, best=0.1)
    assert not is_hopeless(9e-5, best=1e-6)


def test_a_row_says_which_rule_is_chosen() -> None:
    assert "wide* " in str(row("problem", "wide", 10, chosen=True))
    assert "narrow  " in str(row("problem", "narrow", 10))
