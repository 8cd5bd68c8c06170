"""Profiles: what each operator of a model took, and the trace of it."""

from __future__ import annotations

import itertools
import json
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

import dmlvk
from dmlvk.cli import main
from dmlvk.engine.profile import chrome_trace
from dmlvk.onnx import InferenceSession, KernelTime, StepReport

pytestmark = pytest.mark.quick
f32 = np.float32


@pytest.fixture(scope="module")
def network(make_model: Callable[..., onnx.ModelProto]) -> onnx.ModelProto:
    """A convolution, its transpose, products of both kinds, and operators whose arithmetic is not counted."""
    rng = np.random.default_rng(7)
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["a"], name="forward", pads=[1, 1, 1, 1], group=2),
        helper.make_node("Relu", ["a"], ["b"], name="relu"),
        helper.make_node("ConvTranspose", ["b", "v"], ["c"], name="backward", strides=[2, 2]),
        helper.make_node("GlobalAveragePool", ["c"], ["p"], name="pool"),
        helper.make_node("Flatten", ["p"], ["f"], name="flatten"),
        helper.make_node("Gemm", ["f", "m"], ["g"], name="head", transB=1),
        helper.make_node("Cos", ["g"], ["y"], name="gate"),
        helper.make_node("Gemm", ["f", "f"], ["s"], name="square", transA=1),
        helper.make_node("MatMulInteger", ["i", "k"], ["n"], name="integers"),
    ]
    constants = {
        "w": rng.standard_normal((6, 2, 3, 3)).astype(f32),
        "v": rng.standard_normal((6, 3, 2, 2)).astype(f32),
        "m": rng.standard_normal((5, 3)).astype(f32),
        "k": rng.integers(-9, 9, (8, 7), np.int8),
    }
    inputs = {"x": (f32, ("N", 4, "H", None)), "i": (np.int8, ("M", 8))}
    return make_model(nodes, inputs, ("y", "s", "n"), constants, output_types={"n": np.int32})


def _feeds() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(1)
    return {"x": rng.standard_normal((2, 4, 9, 10)).astype(f32), "i": rng.integers(-9, 9, (11, 8), np.int8)}


def test_a_profile_has_times_of_every_kernel(
    network: onnx.ModelProto, make_session: Callable[..., InferenceSession]
) -> None:
    session = make_session(network)
    wanted = session.run(None, _feeds())
    plain = session.report()
    assert plain.gpu_seconds is None and all(step.seconds is None for step in plain.steps)
    for method in (plain.table, plain.chrome_trace):
        with pytest.raises(dmlvk.StateError, match=r"InferenceSession\.profile"):
            method()
    report = session.profile(_feeds())
    assert [step.node for step in report.steps] == [record.name for record in report.gpu_nodes]
    assert {step.node: step.flops for step in report.steps} == {
        "forward": 2 * (2 * 6 * 9 * 10) * (2 * 3 * 3),
        "backward": 2 * (2 * 6 * 9 * 10) * (3 * 2 * 2),
        "pool": None,
        "head": 2 * (2 * 5) * 3,
        "gate": None,
        "square": 2 * (3 * 3) * 2,
        "integers": 2 * (11 * 7) * 8,
    }
    sizes = {step.node: step.bytes for step in report.steps}
    assert sizes["forward"] == 4 * (2 * 4 * 90 + 6 * 2 * 9 + 2 * 6 * 90)
    assert sum(len(step.kernels) for step in report.steps) == report.dispatches
    assert max(step.live_bytes for step in report.steps) == report.largest_live_bytes
    first, *_, last = report.steps
    assert (first.node, last.node) == ("forward", "integers")
    assert first.live_bytes >= 4 * (2 * 4 * 90) + 11 * 8 + 4 * (2 * 6 * 90) and last.live_bytes < first.live_bytes
    for step, unmeasured in zip(report.steps, plain.steps, strict=True):
        assert step.times is not None and step.seconds is not None
        assert step.kernels == unmeasured.kernels == tuple(time.kernel for time in step.times)
        assert all(0 <= time.start <= time.end < 10 for time in step.times)
        assert step.seconds == sum(time.end - time.start for time in step.times)
    assert report.gpu_seconds is not None
    assert 0 < report.gpu_seconds < 10
    starts = [time.start for step in report.steps for time in step.times or ()]
    assert starts == sorted(starts) and starts[0] == 0
    for found, expected in zip(session.run(None, _feeds()), wanted, strict=True):
        np.testing.assert_array_equal(found, expected)
    assert session.report().steps[0].times is None, "a profile is of its own run"


def test_what_is_printed(network: onnx.ModelProto, make_session: Callable[..., InferenceSession]) -> None:
    report = make_session(network).profile(_feeds())
    written = json.loads(json.dumps(report.to_dict()))
    assert written["gpu_seconds"] == report.gpu_seconds
    assert [item["seconds"] for item in written["steps"]] == [step.seconds for step in report.steps]
    assert set(written["steps"][0]["times"][0]) == {"kernel", "start", "end"}
    assert report.copy_bandwidth is not None and 1e8 < report.copy_bandwidth < 1e14
    shares = {step.node: report.share_of_copy(step) for step in report.steps}
    assert {node for node, share in shares.items() if share is None} == {"forward"}, "limited by arithmetic"
    assert [item["share_of_copy"] for item in written["steps"]] == list(shares.values())
    gate = next(step for step in report.steps if step.node == "gate")
    assert gate.seconds and shares["gate"] == pytest.approx(gate.bytes / gate.seconds / report.copy_bandwidth)
    lines = report.table().splitlines()
    assert sum(line.split()[3].endswith("%") for line in lines[1:]) == len([share for share in shares.values() if share])
    assert len(lines) == 1 + len(report.steps)
    times = [float(line.split()[0]) for line in lines[1:]]
    assert times == sorted(times, reverse=True)
    assert sum(float(line.split()[1].rstrip("%")) for line in lines[1:]) == pytest.approx(100, abs=1)
    for step in report.steps:
        assert any(line.endswith(f"{step.op_type} {step.node}") and step.kernels[0] in line for line in lines)


def test_nothing_to_time(make_model: Callable[..., Any], make_session: Callable[..., InferenceSession]) -> None:
    session = make_session(make_model(helper.make_node("Identity", ["x"], ["y"]), {"x": (f32, (2,))}))
    report = session.profile({"x": np.ones(2, f32)})
    assert report.gpu_seconds == 0 and report.steps == ()
    assert len(report.table().splitlines()) == 1
    assert [event["ph"] for event in json.loads(report.chrome_trace())["traceEvents"]] == ["M"]


def test_a_trace_nests_nothing_that_overlaps() -> None:
    """Kernels of one node one after the other, those of another meanwhile."""
    steps = [
        StepReport("a", "Conv", "Convolution", ("k", "l"), 10, 20, (KernelTime("k", 0, 2e-6), KernelTime("l", 2e-6, 5e-6))),
        StepReport("b", "Relu", "ActivationRelu", ("m",), 30, None, (KernelTime("m", 1e-6, 3e-6),)),
        StepReport("c", "Add", "ElementWiseAdd", ("n",), 40, None, (KernelTime("n", 3e-6, 4e-6),)),
        StepReport("d", "Identity", "ElementWiseIdentity", ("copy",), 50, None, ()),
    ]
    trace = json.loads(chrome_trace("a device", steps))["traceEvents"]
    rows = {event["tid"]: event["args"]["name"] for event in trace if event["name"] == "thread_name"}
    assert list(rows.values()) == ["nodes", "nodes", "kernels", "kernels"]
    spans = [(rows[event["tid"]], event["name"], event["ts"], event["dur"]) for event in trace if event["ph"] == "X"]
    assert sorted((row, name, pytest.approx(start), pytest.approx(length)) for row, name, start, length in spans) == [
        ("kernels", "k", 0, 2),
        ("kernels", "l", 2, 3),
        ("kernels", "m", 1, 2),
        ("kernels", "n", 3, 1),
        ("nodes", "Add c", 3, 1),
        ("nodes", "Conv a", 0, 5),
        ("nodes", "Relu b", 1, 2),
    ]
    ends: dict[int, list[tuple[float, float]]] = defaultdict(list)
    for event in trace:
        if event["ph"] == "X":
            ends[event["tid"]].append((event["ts"], round(event["ts"] + event["dur"], 3)))
    for lane in ends.values():
        assert all(first[1] <= second[0] for first, second in itertools.pairwise(sorted(lane)))


def test_command_line(
    network: onnx.ModelProto, tmp_path: Path, capsys: pytest.CaptureFixture[str], make_session: Callable[..., Any]
) -> None:
    path, trace = tmp_path / "model.onnx", tmp_path / "trace.json"
    onnx.save(network, path)
    arguments = ["run", str(path), "--size", "H=9", "--size", "x.3=8", "--profile", str(trace)]
    assert main(arguments) == 0
    text = capsys.readouterr().out
    assert "GFLOP/s" in text and "Conv forward" in text
    events = json.loads(trace.read_text())["traceEvents"]
    assert {event["args"]["node"] for event in events if event["ph"] == "X" and event["cat"] == "kernels"} == {
        "forward", "backward", "pool", "head", "gate", "square", "integers",
    }  # fmt: skip
    assert main([*arguments, "--json"]) == 0
    report = json.loads(capsys.readouterr().out)["report"]
    assert report["gpu_seconds"] > 0
    assert report["input_shapes"] == {"x": [1, 4, 9, 8], "i": [1, 8]}
    assert main([*arguments[:-1], str(tmp_path / "missing" / "trace.json")]) == 2
    page = tmp_path / "report.html"
    assert main(["run", str(path), "--html", str(page)]) == 0
    assert "GFLOP/s" not in capsys.readouterr().out, "the table is the profile's"
    written = page.read_text(encoding="utf-8")
    assert "model.onnx" in written and "Where the time went" in written
    assert main(["run", str(path), "--json"]) == 0
    written = capsys.readouterr().out
    assert json.loads(written)["report"]["gpu_seconds"] is None


@pytest.mark.parametrize(("flops", "holds"), [(399, True), (400, False), (None, True)])
def test_memory_is_the_limit_below_four_operations_a_byte(flops: int | None, holds: bool) -> None:
    assert StepReport("a", "Conv", "Convolution", ("k",), 100, flops).is_memory_bound == holds
