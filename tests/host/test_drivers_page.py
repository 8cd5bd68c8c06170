"""The pass lists of drivers name what verify runs today, with no failure; the page counts them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import drivers_page
import pytest
from drivers_page import PassList

from dmlvk.verify.card import Card, Entry
from dmlvk.verify.cases import all_cases
from dmlvk.verify.cases.problem import variations
from dmlvk.verify.machine import Machine
from dmlvk.verify.waivers import waivers_of

LISTS = drivers_page.lists()
TODAY = {
    (row.__name__, variation.data_type.name)
    for row, entry in all_cases().items()
    for variation in variations(entry, quick=True)
}


@pytest.mark.parametrize("name", LISTS)
def test_a_list_names_every_operator_and_data_type(name: str) -> None:
    found = set(LISTS[name].pairs())
    stale = f"{name}.json is stale: verify --quick on that driver and write the list anew (docs/development.md)"
    assert found == TODAY, f"{stale}; new {sorted(TODAY - found)}, gone {sorted(found - TODAY)}"


@pytest.mark.parametrize("name", LISTS)
def test_what_is_not_right_has_a_waiver(name: str) -> None:
    own = LISTS[name]
    waived = {waiver.operator for waiver in waivers_of(own.driver)}
    for (operator, data_type), found in own.pairs().items():
        assert found in drivers_page.VERDICTS and found != "failed", f"{operator} {data_type}"
        assert found != "waived" or operator in waived, f"{operator} {data_type}: the waiver is gone"
    assert own.commit and own.date and own.driver


def entry(data_type: str, **fields: Any) -> Entry:
    given: Mapping[str, Any] = {"exact": True, "same_bits": True, "passed": True, "runs": 1, "dispatches": 1, "elements": 1}
    ulps = dict.fromkeys(("max_ulp", "typical_ulp", "high_ulp", "bound_ulp"), 0.0)
    return Entry(operator="Gemm", family="matmul", data_type=data_type, rules=(), **{**given, **ulps, **fields})


def test_a_list_is_made_of_the_parts_of_a_run(tmp_path: Any) -> None:
    machine = Machine("gpu", "", "driver 1", "cpu", "1.3", "", "Linux", "3.11", "0.1", "abc", "2026-01-01")
    entries = [
        entry("FLOAT64", unsupported="no float64"),
        entry("FLOAT32"),
        entry("FLOAT16", partly="1 runs unsupported: no float16"),
        entry("INT8", partly="1 runs unsupported: waived: wrong"),
        entry("INT16", passed=False),
        entry("UINT8"),
    ]
    own = PassList.of([Card(machine, "quick", {}, 1.0, 1, [item]) for item in entries])
    assert own.operators == {
        "Gemm": {"refused": "FLOAT64", "ok": "FLOAT32 UINT8", "partly": "FLOAT16", "waived": "INT8", "failed": "INT16"}
    }
    own.write(tmp_path / "one.json")
    assert (tmp_path / "one.json").read_text().count("\n") == 13


def test_the_page_has_a_line_for_each_list() -> None:
    text = drivers_page.page()
    assert all(f"\n| {name} |" in text for name in LISTS)
