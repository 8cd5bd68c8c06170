"""What counts as right in the zoo, and what is said of its rows."""

from __future__ import annotations

import concurrent.futures
import json
import pathlib
import sys
import threading
import types
from typing import Any

import numpy as np
import page_samples
import pytest

from dmlvk_bench.cli import main
from dmlvk_bench.zoo.agreement import TOLERANCE, off
from dmlvk_bench.zoo.command import Key, _each, summary
from dmlvk_bench.zoo.worker import as_onnx_runtime

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


def test_what_ctrl_c_finds_waiting_is_not_begun(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[Key] = []
    second_begun, go_on = threading.Event(), threading.Event()
    shutdown = concurrent.futures.ThreadPoolExecutor.shutdown

    def work(key: Key) -> str:
        begun.append(key)
        if len(begun) == 2:
            second_begun.set()
            go_on.wait(10)
        return "exported"

    def told(pool: concurrent.futures.ThreadPoolExecutor, **how: bool) -> None:
        shutdown(pool, **how)
        go_on.set()

    keys = [(name, "dynamo") for name in "abcdef"]
    each = _each(keys, 1, work)
    assert next(each) == (("a", "dynamo"), "exported")
    assert second_begun.wait(60)
    monkeypatch.setattr(concurrent.futures.ThreadPoolExecutor, "shutdown", told)
    with pytest.raises(KeyboardInterrupt):
        each.throw(KeyboardInterrupt())
    assert begun == keys[:2]


def test_the_rows_go_to_the_file_as_they_come(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    models = [types.SimpleNamespace(name=name, kind="classification") for name in ("resnet18", "vgg11")]
    for module, names in (
        ("architectures", {"architectures": lambda: models}),
        ("export", {"EXPORTERS": ("script", "dynamo")}),
    ):
        monkeypatch.setitem(sys.modules, f"dmlvk_bench.zoo.{module}", types.SimpleNamespace(**names))  # they need PyTorch
    for name in ("resnet18", "vgg11"):
        for exporter in ("script", "dynamo"):
            folder = tmp_path / name / exporter
            folder.mkdir(parents=True)
            (folder / "export.json").write_text('{"opset": 18}')
    file = tmp_path / "zoo.json"
    tried: list[Key] = []

    def row(folders: object, stage: str, device: str | None, key: Key) -> dict[str, Any]:
        tried.append(key)
        if len(tried) == 3:
            raise KeyboardInterrupt
        return {"right": True, "difference": 0.0, "dispatches": 9}

    monkeypatch.setattr("dmlvk_bench.zoo.command._row", row)
    monkeypatch.setattr("dmlvk_bench.zoo.command.Device", lambda _: None)
    monkeypatch.setattr("dmlvk.verify.machine.describe", lambda *_: page_samples.MACHINE)
    words = ["zoo", "--folder", str(tmp_path), "--stages", "check", "--jobs", "1", "--json", str(file)]
    assert main(words) == 130
    rows = json.loads(file.read_text())["rows"]
    assert all(item["opset"] == 18 for item in rows), "what was known before is there"
    assert not any("right" in item for item in rows[2:]), "the third was never done"
    assert "files are right" in capsys.readouterr().out


def test_summary() -> None:
    def row(name: str, **fields: object) -> dict[str, object]:
        return {"architecture": name, "exporter": "dynamo", **fields}

    rivals = {"eager": {"ms": 4.0, "agrees": True}, "webgpu": {"ms": 1.0, "agrees": False}, "graph": {"error": "none"}}
    rows = [
        row("a", right=True, ms=2.0, rivals=rivals),
        row("b", right=False, difference=0.5, onnxruntime_difference=1e-6),
        row("c", not_exported="why"),
        row("d", broken="refused"),
    ]
    assert list(summary(rows)) == [
        "1 of 2 files are right, of 1 of 2 architectures",
        "eager: 2.00 times our time (geometric mean of 1), 0 faster than we are",
        "wrong: b dynamo: off 5.0e-01, ONNX Runtime's CPU 1.0e-06",
        "not exported: c dynamo: why",
        "ONNX Runtime refuses it, too: d dynamo: refused",
    ]


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
