"""Short runs of the fuzzers, and every fault that a long one has found."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import dmlvk
from fuzz import answers, descs, eager, files, orders
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
@pytest.mark.slow
def test_descs() -> None:
    outcomes = short_run(descs.attempt, 1500)
    assert min(outcomes[word] for word in ("refused", "planned")) > 500
    assert outcomes["beyond the device"] > 20


@pytest.mark.host
@pytest.mark.parametrize("text", seeds("descs"))
def test_faults_of_descs(text: str) -> None:
    descs.judged(text)


@pytest.mark.host
def test_files() -> None:
    outcomes = short_run(files.attempt, 300)
    assert outcomes["refused"] > 200 and outcomes["read"] > 10


def test_eager_calls() -> None:
    outcomes = short_run(eager.attempt, 40)
    assert outcomes["right"] > 10 and outcomes["refused"] > 10


@pytest.mark.parametrize("text", seeds("eager"))
def test_faults_of_eager_calls(text: str) -> None:
    eager.judged(text)


@pytest.mark.parametrize("text", seeds("answers"))
def test_faults_of_answers(text: str) -> None:
    answers.judged(text)


def test_orders() -> None:
    assert short_run(orders.attempt, 20) == {"right": 20}


def test_models() -> None:
    """In a process of its own, which a crash of native code would end."""
    folders = (Path(dmlvk.__file__).parents[1], Path(__file__).parents[1])
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, folders)), "OPENBLAS_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "fuzz", "models", "--seed", "8", "--count", "1000"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, env=environment, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    outcomes = {word: int(number) for number, word in re.findall(r"(\d+) (loaded|refused)", done.stdout)}
    assert outcomes["loaded"] > 100 and outcomes["refused"] > 400
