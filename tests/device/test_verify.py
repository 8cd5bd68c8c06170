"""The operators' cases on the device, against the oracle: what ``python -m dmlvk verify`` runs, each case a test."""

from __future__ import annotations

import pytest

import dmlvk
from dmlvk.cases import all_cases
from dmlvk.cases.model import Case, OperatorCases
from dmlvk.verify import verify_operator

CASES = [(entry, case) for entry in all_cases().values() for case in entry.cases]


def identify(value: object) -> str | None:
    if isinstance(value, OperatorCases):
        return value.operator.__name__
    return value.name.replace(" ", "_") if isinstance(value, Case) else None


def run(device: dmlvk.Device, entry: OperatorCases, case: Case, *, quick: bool) -> None:
    outcomes = list(verify_operator(device, entry, (case,), quick=quick))
    assert outcomes
    assert not [f"{outcome.variation}: {outcome.detail}" for outcome in outcomes if not outcome.passed]
    assert not [outcome.unsupported for outcome in outcomes if outcome.unsupported], "the CI's device can do everything"


@pytest.mark.parametrize(("entry", "case"), CASES, ids=identify)
def test_case(device: dmlvk.Device, entry: OperatorCases, case: Case) -> None:
    run(device, entry, case, quick=False)


@pytest.mark.quick
@pytest.mark.parametrize(("entry", "case"), [pair for pair in CASES if pair[1].quick], ids=identify)
def test_quick_case(device: dmlvk.Device, entry: OperatorCases, case: Case) -> None:
    run(device, entry, case, quick=True)
