"""The accuracy card without a GPU: its file, its figures, which runs it rests on, and what it says of a failure."""

from __future__ import annotations

import dataclasses
import functools
import io
import json
import math
import pathlib
import sys
import types
from collections.abc import Iterator

import numpy as np
import pytest

from dmlvk.cli.descs import parse_desc
from dmlvk.devices.capabilities import SUBGROUPS, Capabilities
from dmlvk.engine.explanation import words
from dmlvk.engine.progress import ProgressBar, UntilInterrupted
from dmlvk.spec.errors import InvalidArgumentError
from dmlvk.spec.schema import OperatorDesc
from dmlvk.verify.card import Card, Entry, Failure, read
from dmlvk.verify.cases import all_cases
from dmlvk.verify.cases.layouts import LAYOUTS
from dmlvk.verify.check import Outcome, percentile
from dmlvk.verify.command import summarize, summary, table
from dmlvk.verify.machine import Machine
from dmlvk.verify.runs import Selection, Trial, cover, trials

ALL = Capabilities(
    features=SUBGROUPS | {"float16", "float64", "int8", "int16", "int64", "storage8", "storage16"},
    workgroup_invocations=1024,
    shared_memory_bytes=49152,
)
MACHINE = Machine(
    "Device",
    "1-2",
    "Driver 3",
    "discrete",
    "1.3.4",
    "",
    "Linux x86_64, 2 processors",
    "3.11.0",
    "0.1.0",
    "abc",
    "2026-01-01",
)
FAILURE = Failure(
    case="a tail",
    layout="strided",
    in_place="a_tensor",
    rule="elements",
    desc="a_tensor=FLOAT32[2,3] b_tensor=FLOAT32[2,3]",
    what="2 of 6 elements are wrong",
    output="output_tensor",
    index=(0, 1),
    actual="1.0",
    expected="2.0",
    ulp=8388608.0,
    bound_ulp=0.5,
    wrong=2,
    elements=6,
    worst_index=(1, 2),
    worst_ulp=math.inf,
    kernels="elementwise_binary",
    only="a tail, FLOAT32, strided, in place on a_tensor",
)
GOOD = Entry("ElementWiseAdd", "elementwise", "FLOAT16", False, 0.5, 0.25, 0.4, 0.5, True, True, 3, 3, 99, ("groups",))
BAD = dataclasses.replace(GOOD, data_type="FLOAT32", max_ulp=math.inf, passed=False, failure=FAILURE)
CARD = Card(MACHINE, "default", {"features": ["float16"], "is_cpu": False}, 1.5, 7, [GOOD, BAD])


def test_a_card_is_read_as_it_was_written(tmp_path: pathlib.Path) -> None:
    CARD.write(tmp_path / "card.json")
    assert read(tmp_path / "card.json") == CARD

    def refuse(name: str) -> None:
        raise ValueError(f"{name} is no JSON")

    json.loads((tmp_path / "card.json").read_text(), parse_constant=refuse)


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"format": 99}', '{"format": 1, "entries": [{"operator": "x"}]}'])
def test_another_file_is_refused(tmp_path: pathlib.Path, text: str) -> None:
    (tmp_path / "card.json").write_text(text)
    with pytest.raises(InvalidArgumentError, match="must be an accuracy card"):
        read(tmp_path / "card.json")


def test_percentiles_are_values_that_came_up() -> None:
    errors = np.arange(1.0, 101.0)
    assert [percentile(errors, share) for share in (0.0, 0.5, 0.99, 1.0)] == [1, 50, 99, 100]
    assert percentile([0.0, 0.0, math.inf], 0.5) == 0
    assert percentile([], 0.5) == 0


def test_an_entry_sums_up_its_runs() -> None:
    entry = next(entry for entry in all_cases().values() if entry.operator.__name__ == "ElementWiseAdd")
    variation = trials(entry, ALL, Selection.QUICK)[0].variation
    first = Outcome("ElementWiseAdd", variation, "groups", 0.4, 0.1, 0.3, 0.5, dispatches=1, elements=10)
    outcomes = [
        first,
        dataclasses.replace(first, rule="tiles", max_ulp=0.5, typical_ulp=0.2, high_ulp=0.4, elements=20),
        dataclasses.replace(first, rule="groups", max_ulp=0.2, typical_ulp=0.3, high_ulp=0.2, same_bits=False),
    ]
    found = summarize(entry, "FLOAT32", outcomes)
    assert found == Entry(
        "ElementWiseAdd", "elementwise", "FLOAT32", False, 0.5, 0.2, 0.3, 0.5, False, True, 3, 3, 40, ("groups", "tiles")
    )
    refused = Outcome("ElementWiseAdd", variation, "groups", unsupported="needs the device feature float16")
    partly = summarize(entry, "FLOAT32", [first, refused])
    assert (partly.runs, partly.unsupported, partly.exact) == (1, "", False)
    assert partly.verdict == "ok, but 1 runs unsupported: needs the device feature float16"
    nothing = summarize(entry, "FLOAT32", [refused])
    assert nothing.verdict == "unsupported: needs the device feature float16" and nothing.runs == 0 and not nothing.exact
    failed = summarize(entry, "FLOAT32", [first, dataclasses.replace(first, failure=FAILURE)])
    assert failed.verdict == "FAILED" and failed.failure == FAILURE


def test_a_failure_fits_into_an_issue() -> None:
    text = CARD.report(BAD)
    assert text.count("\n") < 15
    for part in (
        "ElementWiseAdd FLOAT32: 2 of 6 elements are wrong",
        "a tail, strided, in place on a_tensor",
        "elements, kernels elementwise_binary",
        "python -m dmlvk explain ElementWiseAdd a_tensor=FLOAT32[2,3]",
        "output_tensor[0, 1] is 1.0, expected 2.0: 8.389e+06 ULP, the most is inf at [1, 2], at most 0.5 allowed",
        "gave the same bits",
        "Device (discrete), uuid 1-2",
        "Driver 3, Vulkan 1.3.4",
        "dmlvk 0.1.0 abc, Python 3.11.0",
        "python -m dmlvk verify ElementWiseAdd --only 'a tail, FLOAT32, strided, in place on a_tensor'",
    ):
        assert part in text
    assert "mask" not in text
    assert "DMLVK_DISABLE" in dataclasses.replace(
        CARD, machine=dataclasses.replace(MACHINE, mask="DMLVK_DISABLE=int8")
    ).report(BAD)
    lines = summary(CARD)
    assert lines[0].endswith("6 runs (default), 7 pipelines in 1.5 s: 1 FAILED") and text in lines
    many = summary(dataclasses.replace(CARD, entries=[BAD] * 12, stopped="the device was lost: vkWaitSemaphores"))
    assert sum("explain" in line for line in many) == 5
    assert many[-3] == "and 7 more: see the table" and "the device was lost: vkWaitSemaphores" in many[-1]
    assert not CARD.passed and not dataclasses.replace(CARD, entries=[GOOD], stopped="lost").passed
    assert [row[-1] for row in table(CARD)] == ["ok", "FAILED"]


@functools.cache
def selected(operator: type[OperatorDesc], selection: Selection) -> list[Trial]:
    return trials(all_cases()[operator], ALL, selection)


@pytest.mark.slow
def test_the_default_meets_everything_that_there_is() -> None:
    """Every case with every type; every rule, layout and shared input of every type of every operator."""
    most, least = 0, 0
    for operator, entry in all_cases().items():
        full = selected(operator, Selection.FULL)
        default = cover(full)
        most, least = most + len(full), least + len(default)
        names = [str(trial.variation) for trial in full]
        taken = {str(trial.variation) for trial in default}
        assert len(set(names)) == len(names), "the variation says which run it is"
        assert [name for name in names if name in taken] == [str(trial.variation) for trial in default], (
            "in order, none twice"
        )
        for trait in (
            lambda trial: (trial.variation.case.name, trial.variation.data_type),
            lambda trial: (trial.variation.data_type, trial.rule),
            lambda trial: (trial.variation.data_type, trial.variation.layout),
            lambda trial: (trial.variation.data_type, trial.variation.layout, trial.variation.in_place),
        ):
            assert {trait(trial) for trial in default} == {trait(trial) for trial in full}, operator
        if any(case.layouts for case in entry.cases):
            assert {trial.variation.layout for trial in default} == set(LAYOUTS)
        if quick := selected(operator, Selection.QUICK):
            assert {trial.variation.layout for trial in quick} <= {"packed", "strided"}
            assert {str(trial.variation) for trial in quick} <= set(names)
    assert least < most / 2, (least, most)


def test_the_samples_are_of_many_cases() -> None:
    """Not always the first case that would do."""
    add = next(operator for operator in all_cases() if operator.__name__ == "ElementWiseAdd")
    sampled = [trial.variation for trial in selected(add, Selection.DEFAULT)]
    assert len({v.case.name for v in sampled if v.layout == "strided" and not v.in_place}) > 2


@pytest.mark.slow
def test_explain_takes_the_words_of_every_case() -> None:
    """Strides that are those of a packed tensor go unsaid; 1 and 1.0 are one number."""
    for operator in all_cases():
        for trial in selected(operator, Selection.DEFAULT):
            if not trial.variation.rule:
                own, again = words(trial.desc), words(parse_desc(operator.__name__, words(trial.desc)))
                assert [word.replace(".0", "") for word in again] == [word.replace(".0", "") for word in own]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_the_progress_bar() -> None:
    seconds = iter([0.0, 0.0, 0.01, 30.0, 90.0])
    terminal = Terminal()
    with ProgressBar(100, stream=terminal, clock=lambda: next(seconds)) as bar:
        bar.update(0, "1/3 A")
        bar.update(1, "too soon")
        bar.update(25, "2/3 B")
        bar.update(75, "3/3 C")
    drawn = terminal.getvalue().split("\r")
    assert drawn[0] == ""
    assert "   0%  0:00  1/3 A" in drawn[1]
    assert "[######..................]  25%  0:30, 1:30 left  2/3 B" in drawn[2]
    assert "75%  1:30, 0:30 left  3/3 C" in drawn[3]
    assert drawn[4] == "\x1b[K", "it is gone in the end"


def test_what_is_no_terminal_gets_a_plain_line_now_and_then() -> None:
    seconds = iter([0.0, 29.0, 31.0, 60.0, 62.0])
    log = io.StringIO()
    with ProgressBar(100, stream=log, clock=lambda: next(seconds)) as bar:
        for done in (24, 25, 50, 75):
            bar.update(done, "text")
    assert log.getvalue() == " 25%  0:31, 1:33 left  text\n 75%  1:02, 0:20 left  text\n"


def test_short_work_is_not_shown() -> None:
    seconds = iter([0.0, 0.4, 0.6])
    terminal = Terminal()
    with ProgressBar(2, patience=0.5, stream=terminal, clock=lambda: next(seconds)) as bar:
        bar.update(0, "A")
        assert not terminal.getvalue()
        bar.update(1, "B")
    assert "B" in terminal.getvalue()


@pytest.mark.parametrize("kernel", [object(), None])
def test_a_notebook_shows_a_bar(kernel: object, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """In IPython's own terminal, which has no kernel, it is no different from any other program."""
    shown: list[str] = []
    module = types.ModuleType("IPython.display")
    module.HTML = str  # type: ignore[attr-defined]
    module.display = lambda html, display_id: (shown.append(html), types.SimpleNamespace(update=shown.append))[1]  # type: ignore[attr-defined]
    ipython = types.ModuleType("IPython")
    ipython.get_ipython = lambda: types.SimpleNamespace(kernel=kernel)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "IPython", ipython)
    monkeypatch.setitem(sys.modules, "IPython.display", module)
    seconds = iter([0.0, 0.0, 0.01, 30.0])
    with ProgressBar(100, clock=lambda: next(seconds)) as bar:
        for done, text in ((0, "A"), (1, "too soon"), (25, "<b>")):
            bar.update(done, text)
    assert bool(shown) == (kernel is not None)
    assert ("25%" in capsys.readouterr().err) == (kernel is None), "half a minute has passed"
    if shown:
        first, second, last = shown
        assert '<progress max="1" value="0.0"' in first and "0:00  A" in first
        assert 'value="0.25"' in second and " 25%  0:30, 1:30 left  &lt;b&gt;" in second
        assert last == "", "it is gone in the end"


def test_what_was_done_before_ctrl_c_stays() -> None:
    def work() -> Iterator[int]:
        yield 1
        raise KeyboardInterrupt

    items = UntilInterrupted(work())
    assert list(items) == [1] and items.interrupted
    items = UntilInterrupted(iter([1, 2]))
    assert list(items) == [1, 2] and not items.interrupted
