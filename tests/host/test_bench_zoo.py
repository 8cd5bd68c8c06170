"""What counts as right in the zoo, and what is said of its rows."""

from __future__ import annotations

import itertools
import json
import math
import pathlib
import sys
import time
import types
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import page_samples
import pytest
import zoo_page

from dmlvk_bench.cli import main
from dmlvk_bench.zoo.agreement import TOLERANCE, off
from dmlvk_bench.zoo.command import Key, _mixed, summary
from dmlvk_bench.zoo.processes import Job, each
from dmlvk_bench.zoo.worker import _TorchNetwork, as_onnx_runtime

ROOT = pathlib.Path(__file__).parent.parent.parent


def _detections(count: int, seed: int = 0) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    corner = rng.uniform(0, 100, (count, 2)).astype(np.float32)
    boxes = np.concatenate([corner, corner + rng.uniform(10, 50, (count, 2)).astype(np.float32)], axis=1)
    return [boxes, rng.integers(0, 9, count), np.sort(rng.random(count, np.float32))[::-1].copy()]


def test_the_order_of_detections_does_not_count() -> None:
    wanted = _detections(100)
    assert off([output[::-1] for output in wanted], wanted) == 0
    assert off(wanted[:2], wanted) == np.inf


@pytest.mark.parametrize(("lost", "agrees"), [(2, True), (10, False)])
def test_a_few_detections_at_a_threshold_may_differ(lost: int, agrees: bool) -> None:
    wanted = _detections(100)
    assert (off([output[lost:] for output in wanted], wanted) <= TOLERANCE) == agrees


@pytest.mark.parametrize("change", ["box", "label", "score", "mask"])
def test_a_detection_is_its_box_label_score_and_mask(change: str) -> None:
    wanted = [*_detections(20), np.ones((20, 1, 4, 4), np.float32)]
    found = [output.copy() for output in wanted]
    index = ("box", "label", "score", "mask").index(change)
    found[index][:5] += np.asarray(3).astype(found[index].dtype)
    assert off(found, wanted) > TOLERANCE
    assert off([], wanted) == np.inf


def test_nothing_found_is_right_where_there_is_nothing() -> None:
    nothing = _detections(0)
    assert off(nothing, nothing) == 0
    assert off(nothing, _detections(3)) > TOLERANCE


def test_other_outputs_are_compared_number_by_number() -> None:
    wanted = [np.arange(4, dtype=np.float32)]
    assert off([wanted[0] + np.float32(3e-4)], wanted) == pytest.approx(1e-4, rel=1e-3)
    assert off([wanted[0][::-1]], wanted) == 1


@pytest.fixture
def begin(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Job[str]]:
    """Starts the job of a function in ``zoo_functions``; the number behind a colon is its seconds."""
    monkeypatch.setattr("dmlvk_bench.zoo.processes._IMPORTED", ("dmlvk_bench.zoo.processes",))

    def start(task: str) -> Job[str]:
        name, _, seconds = task.partition(":")
        arguments = (7,) if name == "answers" else ()
        return Job(task, f"zoo_functions:{name}", arguments, tmp_path / f"{name}.log", float(seconds or 60))

    return start


@pytest.mark.parametrize(
    ("task", "found", "error"),
    [
        ("answers", 7, ""),
        ("fails", None, "KeyError: 'layer'"),
        ("dies", None, "the process ended with 3: out of words"),
        ("dies_when_it_may_go", 1, "the process ended with 4: "),
        ("hangs:0.1", None, "took longer than 0.1 s"),
    ],
)
def test_a_job_says_what_it_found_or_why_it_ended(
    task: str, found: object, error: str, begin: Callable[[str], Job[str]]
) -> None:
    (job,) = each(deque([task]), begin, 2, math.inf)
    assert (job.task, job.found, job.error) == (task, found, error)


def test_a_job_that_stays_goes_on_when_it_is_told(begin: Callable[[str], Job[str]]) -> None:
    (job,) = each(deque(["answers_twice"]), begin, 2, math.inf, stays=True)
    assert (job.found, job.event.closed) == (1, False)
    assert job.go_on(math.inf) and job.found == 2
    job.close()
    job.end()
    assert not job.error


def test_a_job_that_is_told_on_too_late_is_no_more(begin: Callable[[str], Job[str]]) -> None:
    (job,) = each(deque(["answers_and_hangs"]), begin, 2, math.inf, stays=True)
    assert not job.go_on(time.monotonic() + 0.1)
    assert not job.error and not job._process.is_alive()


def test_tasks_may_follow_from_others(begin: Callable[[str], Job[str]]) -> None:
    waiting = deque(["answers", "dies"])
    found = []
    for job in each(waiting, begin, 1, math.inf):
        found.append(job.task)
        if job.task == "answers":
            waiting.appendleft("fails")
    assert found == ["answers", "fails", "dies"]


def test_nothing_is_begun_after_the_end_and_nothing_left_running(begin: Callable[[str], Job[str]]) -> None:
    jobs: list[Job[str]] = []

    def start(task: str) -> Job[str]:
        jobs.append(begin(task))
        return jobs[-1]

    assert not list(each(deque(["answers"]), start, 1, 0.0)) and not jobs
    assert not list(each(deque(["hangs", "hangs", "hangs"]), start, 2, time.monotonic() + 0.1))
    assert len(jobs) == 2 and not any(job._process.is_alive() for job in jobs)


def test_what_ctrl_c_finds_waiting_is_not_begun(begin: Callable[[str], Job[str]]) -> None:
    waiting = deque(["answers", "hangs", "dies"])
    found = each(waiting, begin, 1, math.inf)
    assert next(found).task == "answers"
    with pytest.raises(KeyboardInterrupt):
        found.throw(KeyboardInterrupt())
    assert list(waiting) == ["hangs", "dies"]


def test_the_first_of_a_mixed_list_come_from_all_of_it() -> None:
    names = [str(index) for index in range(198)]
    mixed = _mixed(names)
    assert sorted(mixed, key=int) == names
    places = sorted([0, *(int(name) for name in mixed[:50]), 198])
    assert max(later - before for before, later in itertools.pairwise(places)) <= 8
    assert _mixed(["a"]) == ["a"] and _mixed([]) == []


class _Zoo:
    """Runs the zoo's command in a folder of four files that are exported, and computes nothing.

    Attributes:
        did: The tasks in the order in which they were done; "told" instead of "time" where a waiting one computed.
    """

    def __init__(self, folder: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder, self.did = folder, list[tuple[str, Key]]()
        self.rows: list[dict[str, Any]] = []
        self.until_task = 99
        models = [types.SimpleNamespace(name=name, kind="classification") for name in ("resnet18", "vgg11")]
        architectures = types.SimpleNamespace(architectures=lambda: models)
        monkeypatch.setitem(sys.modules, "dmlvk_bench.zoo.architectures", architectures)  # it needs PyTorch
        for model, exporter in itertools.product(models, ("torchscript", "dynamo")):
            file = folder / model.name / exporter
            file.mkdir(parents=True)
            (file / "export.json").write_text('{"seconds": 1}')
            (file / "model.onnx").write_text("")
        monkeypatch.setattr("dmlvk_bench.zoo.command.each", self._each)
        monkeypatch.setattr("dmlvk_bench.zoo.command.start_server", lambda: None)
        monkeypatch.setattr("dmlvk_bench.zoo.command.Device", lambda _: None)
        monkeypatch.setattr("dmlvk.verify.machine.describe", lambda *_: page_samples.MACHINE)

    def _each(self, waiting: deque[Any], *_: object, stays: bool = False) -> Iterator[Any]:
        while waiting and len(self.did) < self.until_task:
            stage, key = task = waiting.popleft()
            self.did.append(task)

            def go_on(_: float, key: Key = key) -> bool:
                self.did.append(("told", key))
                return True

            found = {"seconds": 1} if stage == "export" else {"right": True, "difference": 0.0, "dispatches": 9}
            found |= {"ms": 2.0, "rivals": {}} if stage == "time" else {}
            yield types.SimpleNamespace(task=task, found=found, error="", go_on=go_on, close=lambda: None, end=lambda: None)

    def run(self, *words: str) -> int:
        file = self.folder / "zoo.json"
        self.did.clear()
        status = main(["zoo", "--folder", str(self.folder), "--json", str(file), *words])
        self.rows = json.loads(file.read_text())["rows"]
        return status


@pytest.fixture
def zoo(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> _Zoo:
    return _Zoo(tmp_path, monkeypatch)


def test_the_rows_go_to_the_file_as_they_come(zoo: _Zoo, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    def each(*arguments: Any, **options: Any) -> Iterator[Any]:
        yield from itertools.islice(zoo._each(*arguments, **options), 2)
        raise KeyboardInterrupt

    monkeypatch.setattr("dmlvk_bench.zoo.command.each", each)
    assert zoo.run("--stages", "check") == 130
    assert all(row["seconds"] == 1 for row in zoo.rows), "what was known before is there"
    assert sum("right" in row for row in zoo.rows) == 2, "the third was never done"
    assert "files are right" in capsys.readouterr().out


def test_a_command_goes_on_where_another_ended(zoo: _Zoo) -> None:
    zoo.until_task = 3
    assert zoo.run("--stages", "check", "--seconds", "5") == 0
    assert [row.get("left_out") for row in zoo.rows] == [None, None, None, "check: 5 s were over"]
    zoo.until_task = 99
    zoo.run("--stages", "check", "--missing")
    assert zoo.did == [("check", ("vgg11", "dynamo"))]
    assert all(row["right"] and "left_out" not in row for row in zoo.rows)
    zoo.run("--stages", "time", "--exporters", "dynamo")
    assert [row["ms"] for row in zoo.rows] == [2.0, 2.0]
    zoo.run("--stages", "time", "--missing")
    assert not zoo.did, "one file of each architecture is timed"
    zoo.run("--stages", "check", "--exporters", "dynamo")
    assert not any("ms" in row for row in zoo.rows), "times of what was computed before"


def test_what_is_not_exported_is_left_out(zoo: _Zoo) -> None:
    (zoo.folder / "vgg11/dynamo/export.json").unlink()
    zoo.run("--stages", "check,time")
    assert [row.get("left_out") for row in zoo.rows] == [None, None, None, "export: nothing there"]
    assert ("time", ("vgg11", "torchscript")) in zoo.did


def test_what_another_commit_found_names_it(zoo: _Zoo) -> None:
    zoo.run("--stages", "check")
    assert not any("commit" in row for row in zoo.rows)
    kept = zoo.folder / "vgg11/dynamo/check.json"
    kept.write_text(kept.read_text().replace(page_samples.MACHINE.commit, "0ldc0de"))
    zoo.run("--stages", "check", "--missing")
    assert [row.get("commit") for row in zoo.rows] == [None, None, None, "0ldc0de"]


def test_each_is_timed_when_all_of_a_round_are_ready(zoo: _Zoo) -> None:
    zoo.run("--stages", "time", "--jobs", "2")
    assert [stage for stage, _ in zoo.did] == ["time", "time", "told", "told"]
    zoo.run("--stages", "time", "--jobs", "1")
    assert [stage for stage, _ in zoo.did] == ["time", "told", "time", "told"]


def test_a_lean_folder_keeps_what_is_timed(zoo: _Zoo) -> None:
    zoo.run("--stages", "check", "--lean")
    assert sorted(path.parent.name for path in zoo.folder.glob("*/*/model.onnx")) == ["dynamo", "dynamo"]
    zoo.run("--stages", "export,check,time", "--missing")
    assert {stage for stage, _ in zoo.did} == {"time", "told"}
    zoo.run("--stages", "check")
    assert [row.get("left_out") for row in zoo.rows] == ["check: nothing there", None] * 2
    zoo.run("--stages", "export,check")
    assert [stage for stage, (_, exporter) in zoo.did if exporter == "torchscript"] == ["export", "check"] * 2


def test_summary() -> None:
    def row(name: str, **fields: object) -> dict[str, object]:
        return {"architecture": name, "exporter": "dynamo", **fields}

    rivals = {"eager": {"ms": 4.0, "agrees": True}, "webgpu": {"ms": 1.0, "agrees": False}, "graph": {"error": "none"}}
    rows = [
        row("a", right=True, ms=2.0, rivals=rivals),
        row("b", right=False, difference=0.5, onnxruntime_difference=1e-6, float64_difference=0.2),
        row("c", not_exported="why"),
        row("d", broken="refused"),
        row("e", left_out="check: 9 s were over"),
    ]
    assert list(summary(rows)) == [
        "1 of 2 files are right, of 1 of 2 architectures",
        "eager: 2.00 times our time (geometric mean of 1), 0 faster than we are",
        "wrong: b dynamo: off 5.0e-01, ONNX Runtime's CPU 1.0e-06, PyTorch from its float64 2.0e-01",
        "not exported: c dynamo: why",
        "ONNX Runtime refuses it, too: d dynamo: refused",
        "left out: 1 files, check: 9 s were over",
    ]


@pytest.mark.slow
@pytest.mark.parametrize(("large", "decides"), [(1.0, False), (1e9, True)])
def test_a_network_in_which_roundings_decide_is_far_from_its_float64(
    large: float, decides: bool, torch: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Cancels(torch.nn.Module):  # type: ignore[misc]  # of a class without types
        def forward(self, x: Any) -> tuple[Any, ...]:
            return ((x + large) - large,)

    one = types.SimpleNamespace(name="one", make=lambda: (Cancels(), {"x": torch.rand(8)}))
    monkeypatch.setitem(sys.modules, "dmlvk_bench.zoo.architectures", types.SimpleNamespace(architectures=lambda: [one]))
    assert (_TorchNetwork("one").own_difference() > TOLERANCE) == decides


def test_the_page_has_a_line_for_what_was_timed_beside_some_rivals(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rivals = {"graph": {"ms": 3.0, "agrees": True}, "webgpu": {"ms": 9.0, "agrees": False}}
    timed = {"right": True, "dispatches": 9, "host_reads": 0, "ms": 2.0, "rivals": rivals}
    row = {"architecture": "a", "kind": "video", "exporter": "dynamo", "torch": "2.11.0", **timed}
    late = {"architecture": "b", "kind": "video", "exporter": "dynamo", "left_out": "export: 9 s were over"}
    file = tmp_path / "zoo.json"
    machine = {"device": "a GPU", "driver": "1"}
    file.write_text(json.dumps({"machine": machine, "rows": [row, late]}))
    later = tmp_path / "later.json"
    row = row | {"ms": 1.2}
    machine |= {"commit": "abc", "date": "2026-12-01T00:04:13"}
    later.write_text(json.dumps({"machine": machine, "rows": [row, late]}))
    monkeypatch.setattr(zoo_page, "RESULTS", file)
    monkeypatch.setattr(zoo_page, "LATER", later)
    page = zoo_page.page()
    assert "commit abc (a GPU, 1, 2026-12-01)" in page
    assert "| a | video | - | right | 9 | 0 | 2.00 | - | 1.50 | (4.50) | 2.50 |" in page
    assert "| b | video | - | - | - | - | - | - | - | - | - |" in page
    assert "- left out: 1 files, export: 9 s were over" in page


def test_what_excuses_a_file_is_the_rule_of_the_kept_results() -> None:
    for row in json.loads((ROOT / "bench/results/h200-zoo.json").read_text(encoding="utf-8"))["rows"]:
        if "onnxruntime_difference" in row:
            assert row["right"] == as_onnx_runtime(row), row["architecture"]


@pytest.mark.parametrize(
    ("ours", "theirs", "apart", "right"),
    [
        (2e-3, 1e-3, 3e-3, True),
        (3e-3, 1e-3, 4e-3, False),
        (1e-2, 8e-3, 9e-3, False),
        (np.inf, np.inf, np.inf, False),
        (0.5, 0.5, 5e-4, True),
    ],
)
def test_onnx_runtimes_result_excuses_ours_only_where_it_means_something(
    ours: float, theirs: float, apart: float, right: bool
) -> None:
    row = {"difference": ours, "onnxruntime_difference": theirs, "from_onnxruntime": apart}
    assert as_onnx_runtime(row) is right
