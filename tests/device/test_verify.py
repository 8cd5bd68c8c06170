"""The operators' cases on the device, against the oracle: what ``python -m dmlvk verify`` runs, each case a test."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import dmlvk
from dmlvk import verify
from dmlvk.cases import all_cases
from dmlvk.cases.model import Case, OperatorCases
from dmlvk.cases.problem import Variation
from dmlvk.oracle import Scaled, oracle
from dmlvk.verify import bit_errors, check, ulp_errors, verify_operator

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


# -- the verdict itself can fail


def test_errors_are_counted_in_ulp() -> None:
    one = np.float32([1.0])
    assert ulp_errors(np.nextafter(one, np.float32(2)), np.float64([1.0])) == [1.0]
    assert ulp_errors(one, np.float64([1.0 + 2.0**-25])) == [0.0], "rounded once"
    assert ulp_errors(np.float32([1e-9]), Scaled(np.zeros(1), np.ones(1))) < 0.01
    for wrong, right in ((np.nan, 1.0), (1.0, np.nan), (np.inf, 1.0), (1.0, np.inf), (np.inf, -np.inf)):
        assert np.isinf(ulp_errors(np.float32([wrong]), np.float64([right])))
    assert np.isinf(ulp_errors(np.int8([1]), np.int8([2])))
    undefined = np.ma.MaskedArray(np.uint32([1, 2, 3]), mask=[False, True, False])
    assert ulp_errors(np.uint32([1, 9, 4]), undefined).tolist() == [0.0, 0.0, np.inf]
    with pytest.raises(AssertionError, match="the oracle gives"):
        ulp_errors(np.zeros((1, 2), np.float32), np.zeros(2))


def test_every_bit_counts_where_elements_are_moved() -> None:
    moved = np.array([np.nan, 0.0, 1.0], np.float16)
    assert bit_errors(moved, moved).tolist() == [0, 0, 0]
    assert bit_errors(moved, np.array([-np.nan, -0.0, 1.0], np.float16)).tolist() == [np.inf, np.inf, 0]
    with pytest.raises(AssertionError, match="own elements"):
        bit_errors(moved, moved.astype(np.float64))


@pytest.mark.parametrize("name", ["ElementWiseAdd", "MaxPooling2"])
def test_a_wrong_result_fails(device: dmlvk.Device, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    entry = all_cases()[getattr(dmlvk, name)]
    case = next(case for case in entry.cases if case.quick)
    variation = Variation(case, entry.crossed_types[0], "packed")
    assert check(device, entry, variation).passed
    expected = oracle(entry.operator)
    assert expected is not None

    def shifted(*arguments: Any) -> Any:
        result = expected(*arguments)
        return result[0] + 1 if isinstance(result, tuple) else result + 1

    monkeypatch.setattr(verify, "oracle", lambda operator: shifted)
    outcome = check(device, entry, variation)
    assert not outcome.passed
    assert "ULP" in outcome.detail
