"""The file of waivers: rows that mean runs which exist, each with a cause."""

from __future__ import annotations

import pytest

from dmlvk.verify.cases import all_cases
from dmlvk.verify.cases.problem import variations
from dmlvk.verify.waivers import Waiver, all_waivers, waivers_of

ENTRIES = {entry.operator.__name__: entry for entry in all_cases().values()}


@pytest.mark.parametrize("waiver", all_waivers(), ids=str)
def test_a_waiver_names_a_driver_runs_and_a_cause(waiver: Waiver) -> None:
    assert waiver.driver and waiver.cause and not waiver.cause.endswith(".")
    assert any(waiver.covers(waiver.operator, variation) for variation in variations(ENTRIES[waiver.operator]))
    assert waiver in waivers_of(f"some {waiver.driver} 1.2.3")
    assert waiver not in waivers_of("another driver")


def test_no_two_waivers_cover_the_same() -> None:
    keys = [(waiver.driver, waiver.operator, waiver.runs) for waiver in all_waivers()]
    assert len(keys) == len(set(keys))
