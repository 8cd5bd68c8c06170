"""The rivals beside a device: they compute the same as we do, a wrong output of ours shows, and what ends a rival's
process does not end ours."""

from __future__ import annotations

import importlib
import importlib.util
import os
import pathlib
from collections.abc import Iterator
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import dmlvk
from dmlvk_bench import models, rivals, timing
from dmlvk_bench.measure import Loaded
from dmlvk_bench.models.networks import Network
from dmlvk_bench.models.start import starts
from dmlvk_bench.names import RIVALS
from dmlvk_bench.problems import all_problems
from dmlvk_bench.problems.model import Problem
from dmlvk_bench.problems.scale import QUICK
from dmlvk_bench.rivals import ncnn_rival
from dmlvk_bench.rivals.base import Array

NAMES = (
    "ActivationSigmoid FLOAT32 131072",
    "softmax FLOAT32 16x8192",
    "layer norm, last axis FLOAT32 16x8192",
    "GEMM depth 256 FLOAT32 4x512",
    "max pooling 3x3 stride 2 NCHW FLOAT32 4x8x56x56",
    "convolution 1x1 16 to 96 channels NCHW FLOAT32 1x28x28",
    "add FLOAT32 131072",
)
PROBLEMS = {problem.name: problem for problem in all_problems(QUICK)}


def outputs(device: dmlvk.Device, problem: Problem, inputs: list[Array]) -> list[Array]:
    loaded = Loaded(device, problem, inputs)
    loaded.run()
    return list(loaded.outputs())


@pytest.fixture(scope="module", params=RIVALS)
def rival(request: pytest.FixtureRequest, device: dmlvk.Device) -> Iterator[rivals.Rival]:
    name: str = request.param
    if importlib.util.find_spec(name) is None:
        pytest.skip(f"{name} is not installed")
    found, missing = rivals.find([name], device, quick=True)
    assert name in found, missing
    yield found[name]
    if name != "torch":
        found[name].close()  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", NAMES)
def test_a_rival_computes_what_we_do(name: str, rival: rivals.Rival, device: dmlvk.Device) -> None:
    problem = PROBLEMS[name]
    inputs = problem.inputs()
    prepared = rival.prepare(problem, inputs)
    assert prepared is not None, rival.failures
    found = outputs(device, problem, inputs)
    assert max(prepared.compare(found)) <= problem.tolerance
    wrong = found[0].copy().view(np.float32)
    wrong[wrong.size // 3] += 1
    assert max(prepared.compare([wrong.view(np.uint8)])) > problem.tolerance, "a wrong element of ours must show"
    times = prepared.time()
    assert len(times) >= 3 and sorted(times)[len(times) // 2] > 0
    prepared.close()


def test_rivals_are_on_the_processor_where_we_are(device: dmlvk.Device) -> None:
    if device.info.type != "cpu":
        pytest.skip("the device is no CPU")
    found, _ = rivals.find(["torch", "onnxruntime"], device, quick=True)
    assert all(" on CPU" in rival.version for rival in found.values())


def test_torch_compares_with_what_it_gives_in_float32(torch: Any, device: dmlvk.Device) -> None:
    rival = rivals.find(["torch"], device, quick=True)[0]["torch"]
    problem = next(p for p in PROBLEMS.values() if p.name.startswith("GEMM") and " FLOAT16 " in p.name)
    inputs = problem.inputs()
    prepared = rival.prepare(problem, inputs)
    assert prepared is not None, rival.failures
    ours, theirs = prepared.compare(outputs(device, problem, inputs))
    assert 0 < ours <= problem.tolerance and 0 < theirs <= problem.tolerance, "both round to float16"


def test_what_torch_raises_is_a_failure_with_its_words(torch: Any) -> None:
    rival = rivals.find(["torch"], quick=True)[0]["torch"]

    def broken(torch: Any, x: Any) -> Any:
        return x @ x

    problem = PROBLEMS[NAMES[0]]
    wrong = Problem("broken", problem.desc, broken, 0.0, 1)
    two = [np.zeros(problem.inputs()[0].size, np.float32)]
    assert rival.prepare(wrong, two) is not None, "a vector by itself is a number"
    wrong = Problem("missing", problem.desc, lambda torch, x: torch.there_is_no_such_function(x), 0.0, 1)
    assert rival.prepare(wrong, two) is None
    assert "there_is_no_such_function" in rival.failures["missing"]


def test_ncnn_starts_again_after_its_process_has_ended(device: dmlvk.Device) -> None:
    if importlib.util.find_spec("ncnn") is None:
        pytest.skip("ncnn is not installed")
    rival = ncnn_rival.open_rival(device, timing.QUICK)
    problem = PROBLEMS[NAMES[0]]
    rival.process.process.kill()
    rival.process.process.join()
    assert rival.prepare(problem, problem.inputs()) is not None, rival.failures
    with pytest.raises(RuntimeError, match="does not read the net"):
        rival.process.ask("load", "no net", np.zeros(0, np.uint8))
    rival.close()


def test_what_ends_ncnn_is_a_failure(device: dmlvk.Device, monkeypatch: pytest.MonkeyPatch) -> None:
    if importlib.util.find_spec("ncnn") is None:
        pytest.skip("ncnn is not installed")
    rival = ncnn_rival.open_rival(device, timing.QUICK)
    asked = rival.process.ask

    def killed(request: str, *arguments: Any) -> Any:
        if request == "time":
            rival.process.process.kill()
        return asked(request, *arguments)

    monkeypatch.setattr(rival.process, "ask", killed)
    problem = PROBLEMS[NAMES[0]]
    assert rival.prepare(problem, problem.inputs()) is None
    assert "its process ended with -9" in rival.failures[problem.name]
    monkeypatch.undo()
    assert rival.prepare(problem, problem.inputs()) is not None, rival.failures
    rival.close()


def test_models_are_measured_beside_their_rivals(
    device: dmlvk.Device,
    tmp_path: pathlib.Path,
    torch: Any,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    single = np.dtype(np.float32)

    def network(name: str, batch: int) -> Network:
        def build(layers: Any, x: Any) -> tuple[Any]:
            return (layers.tanh(layers.linear(layers.relu(x), "fc", 16, 8)),)

        return Network(name, single, batch, {"x": (single, (batch, 16))}, {"y": (batch, 8)}, build, 2.5)

    monkeypatch.setattr(models, "NETWORKS", (network("B0", 2), network("B1", 1)))
    monkeypatch.setattr(importlib.import_module("dmlvk_bench.models.measure"), "TARGET_DEVICE", device.info.name)
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 4])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", 4])
    file = helper.make_model(
        helper.make_graph([helper.make_node("Sigmoid", ["x"], ["y"])], "g", [x], [y]),
        opset_imports=[helper.make_opsetid("", 17)],
        ir_version=8,
    )
    onnx.save(file, str(tmp_path / "B.onnx"))
    before = dict(os.environ)
    told: list[Any] = []
    rows, started = models.measure_all(
        None, RIVALS, quick=True, only="B", folder=tmp_path, found=lambda row: told.append(row["model"])
    )
    assert [row["model"] for row in rows] == told == ["B1", "B.onnx"] and started == []
    assert dict(os.environ) == before
    declared, model = rows
    for row in rows:
        assert min(row["ms"], row["first_s"], row["dispatches"], row["peak_bytes"]) > 0 and row["runs"] >= 3
        assert all(rival["agrees"] and rival["ms"] > 0 for rival in row["rivals"].values()), row["rivals"]
    assert (declared["target_ms"], declared["random_weights"]) == (2.5, True)
    assert (model["target_ms"], model["random_weights"], model["weights_bytes"]) == (None, False, 0)
    assert model["inputs"] == {"x": ["float32", 1, 4]}
    kinds = {name.split()[0] for name in declared["rivals"]}
    assert kinds == {"PyTorch", "ONNX"} or kinds == {"PyTorch", "WebGPU"}
    assert not any(name.startswith("PyTorch") for name in model["rivals"]), "a file is not PyTorch's"
    said = capsys.readouterr().out
    assert "not measured in a quick run: B0" in said and "without ncnn: it reads no ONNX" in said


def test_a_start_is_timed_from_the_start_of_its_process() -> None:
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [4])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [4])
    graph = helper.make_graph([helper.make_node("Sigmoid", ["x"], ["y"])], "g", [x], [y])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    for parts in starts(model.SerializeToString(), {"x": np.zeros(4, np.float32)}, None):
        total = parts.pop("total")
        assert set(parts) == {"imports", "device", "session", "run"}
        assert 0 < sum(parts.values()) < total
        assert parts["imports"] > total / 20, "the package is imported by the clock"
