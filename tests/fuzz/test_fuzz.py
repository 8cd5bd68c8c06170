"""Short runs of the fuzzers, and every fault that a long one has found."""

from __future__ import annotations

from typing import Any

import pytest

from fuzz import descs, eager
from fuzz.campaign import SEEDS, Attempt, run


def seeds(name: str) -> list[Any]:
    """The faults that were found: a line that says what was wrong, and one with the attempt."""
    lines = (SEEDS / f"{name}.txt").read_text().splitlines()
    return [pytest.param(text, id=fault) for fault, text in zip(lines[::2], lines[1::2], strict=True)]


def short_run(attempt: Attempt, count: int, seed: int = 0) -> dict[str, int]:
    """What came of so many attempts, none of them a fault."""
    *_, (_, account) = run(attempt, seed, range(count))
    assert not account.faults, "\n".join(f"{kind}: {text} {numbers}" for kind, (numbers, text) in account.faults.items())
    return account.outcomes


@pytest.mark.host
def test_descs() -> None:
    outcomes = short_run(descs.attempt, 1500)
    assert min(outcomes[word] for word in ("refused", "planned")) > 500
    assert outcomes["beyond the device"] > 20


@pytest.mark.host
@pytest.mark.parametrize("text", seeds("descs"))
def test_faults_of_descs(text: str) -> None:
    descs.judged(text)


def test_eager_calls() -> None:
    outcomes = short_run(eager.attempt, 40)
    assert outcomes["right"] > 10 and outcomes["refused"] > 10


@pytest.mark.parametrize("text", seeds("eager"))
def test_faults_of_eager_calls(text: str) -> None:
    eager.judged(text)
