"""The benchmark of whole models: a network is the same in ONNX and in PyTorch, and the page says what was measured."""

from __future__ import annotations

import pathlib
from typing import Any

import hollow_models
import numpy as np
import onnx
import onnxruntime
import performance_models as page
import pytest
from onnx import TensorProto, helper, numpy_helper

from dmlvk.spec.errors import InvalidArgumentError
from dmlvk.verify.machine import Machine
from dmlvk_bench.models import files, networks
from dmlvk_bench.models.layers import Weights
from dmlvk_bench.models.measure import difference
from dmlvk_bench.models.networks import Network
from dmlvk_bench.models.onnx_layers import onnx_model
from dmlvk_bench.results import Results


def _small(name: str) -> Network:
    single = np.dtype(np.float32)
    if name == "resnet":
        inputs = {"input": (single, (2, 3, 64, 64))}
        return Network(name, single, 2, inputs, {"logits": (2, 1000)}, networks.resnet_50, 1.0)
    words = (np.dtype(np.int64), (1, networks.SEQUENCE))
    inputs = {"input_ids": words, "attention_mask": words, "token_type_ids": words}
    outputs = {"hidden": (1, networks.SEQUENCE, networks.WIDTH), "pooled": (1, networks.WIDTH)}
    return Network(name, single, 1, inputs, outputs, networks.bert_base, 1.0)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["resnet", "bert"])
def test_a_network_is_the_same_in_onnx_and_in_pytorch(name: str, torch: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from dmlvk_bench.models.torch_network import TorchNetwork

    monkeypatch.setattr(networks, "DEPTH", 2)
    monkeypatch.setattr(networks, "VOCABULARY", 50)
    network, weights = _small(name), Weights()
    feeds = network.feeds(3)
    model = onnx_model(network, weights)
    onnx.checker.check_model(model)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    expected = session.run(None, feeds)
    for layout in ("NCHW", "NHWC"):
        found = TorchNetwork(network, weights, "cpu", layout, graph=False).run(feeds)
        assert difference(found, expected) < 1e-5
    feeds[next(iter(feeds))] = feeds[next(iter(feeds))][..., ::-1].copy()
    assert difference(session.run(None, feeds), expected) > 1e-2, "what is fed counts"


def test_a_hollow_model_is_filled_with_numbers_like_its_own(tmp_path: pathlib.Path) -> None:
    rng = np.random.default_rng(0)
    arrays = {
        "large": rng.normal(3, 0.5, (128, 200)).astype(np.float32),
        "bytes": rng.normal(100, 20, (70000,)).astype(np.uint8),
        "small": np.arange(4, dtype=np.float32),
        "indices": np.arange(20000),
    }
    node = helper.make_node("Identity", ["small"], ["y"])
    initializers = [numpy_helper.from_array(array, name) for name, array in arrays.items()]
    graph = helper.make_graph([node], "g", [], [helper.make_tensor_value_info("y", TensorProto.FLOAT, [4])], initializers)
    model = helper.make_model(graph)
    onnx.save(model, str(tmp_path / "whole.onnx"))
    hollow_models.hollow(model)
    onnx.save(model, str(tmp_path / "hollow.onnx"))
    whole, replaced = files.load(tmp_path / "whole.onnx")
    assert not replaced
    assert (tmp_path / "hollow.onnx").stat().st_size < 235_000 < (tmp_path / "whole.onnx").stat().st_size
    filled, replaced = files.load(tmp_path / "hollow.onnx")
    assert replaced
    for before, after in zip(whole.graph.initializer, filled.graph.initializer, strict=True):
        old, new = numpy_helper.to_array(before), numpy_helper.to_array(after)
        assert (old.dtype, old.shape) == (new.dtype, new.shape)
        if before.name == "large":
            assert not np.array_equal(old, new)
            assert new.mean() == pytest.approx(old.mean(), rel=0.01)
            assert new.std() == pytest.approx(old.std(), rel=0.02)
        else:
            assert np.array_equal(old, new)


def test_a_difference_is_relative_to_the_largest_number() -> None:
    wanted = [np.array([1.0, -200.0]), np.zeros(0)]
    assert difference([np.array([1.2, -200.0]), np.zeros(0)], wanted) == pytest.approx(1e-3)
    assert difference([np.array([1.0, np.nan]), np.zeros(0)], wanted) == np.inf
    assert difference([np.zeros(3), np.zeros(0)], wanted) == np.inf


def test_a_model_is_fed_what_the_file_beside_it_says(tmp_path: pathlib.Path) -> None:
    inputs = [
        helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 3]),
        helper.make_tensor_value_info("ids", TensorProto.INT64, ["batch"]),
        helper.make_tensor_value_info("rate", TensorProto.INT32, []),
    ]
    nodes = [helper.make_node("Identity", ["x"], ["y"])]
    graph = helper.make_graph(nodes, "g", inputs, [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)])
    model = helper.make_model(graph)
    path = tmp_path / "deep/model.onnx"
    path.parent.mkdir()
    onnx.save(model, str(path))
    (small,) = files.find_files(tmp_path)
    plain = files.describe(small, tmp_path)
    assert plain.name == "deep/model.onnx"
    assert [array.shape for array in plain.arrays(model, 0).values()] == [(1, 3), (1,), ()]
    said = '{"name": "M", "input_shapes": [[500, 3], [500], []], "feeds": {"rate": 16000}, "below": {"ids": 7}}'
    path.with_suffix(".json").write_text(said)
    described = files.describe(path, tmp_path)
    first, second = (described.arrays(model, seed) for seed in (0, 1))
    assert described.name == "M" and first["x"].shape == (500, 3) and first["rate"] == 16000
    assert set(first["ids"]) == set(range(7))
    assert not np.array_equal(first["x"], second["x"])
    path.with_suffix(".json").write_text('{"shapes": []}')
    with pytest.raises(InvalidArgumentError, match="input_shapes"):
        files.describe(path, tmp_path)
    with pytest.raises(InvalidArgumentError, match="a folder with ONNX files"):
        files.find_files(tmp_path / "deep/nothing")


def _row(model: str, ms: float, target: float | None, rivals: dict[str, Any], peak: int = 220) -> dict[str, Any]:
    sizes = {"weights_bytes": 90, "parameters_bytes": 10, "activation_bytes": 90, "live_bytes": 100, "peak_bytes": peak}
    own = {"ms": ms, "gpu_ms": ms / 2, "first_s": 0.25, "dispatches": 7, "target_ms": target, "random_weights": True}
    return {"model": model, **own, **sizes, "rivals": rivals, "webgpu_cpu_nodes": {"Shape": 2}}


def _rival(ms: float, agrees: bool = True) -> dict[str, Any]:
    return {"ms": ms, "first_s": 0.5, "agrees": agrees}


def test_the_page_says_what_missed() -> None:
    networks_rows = [
        _row("A", 2.0, 2.5, {"PyTorch graph NCHW": _rival(3.0), "PyTorch graph NHWC": _rival(1.0, agrees=False)}),
        _row("B", 3.0, 2.5, {"WebGPU": _rival(6.0), "WebGPU replayed": _rival(5.0)}, peak=221),
    ]
    files_rows = [
        _row("c.onnx", 1.0, None, {"WebGPU": _rival(9.0), "WebGPU replayed": {"error": "no"}}),
        _row("d.onnx", 2.0, None, {"WebGPU": _rival(1.0)}),
        _row("e.onnx", 2.0, None, {"WebGPU": {"error": "no"}}),
    ]
    parts = {"imports": 0.1, "device": 0.1, "session": 0.2, "run": 0.1}
    machine = Machine(**dict.fromkeys(Machine.__annotations__, "x"))
    starts = [{"total": 0.9, **parts}, {"total": 0.6, **parts}]
    results = Results(machine, "full", models=networks_rows + files_rows, starts=starts)
    text = "\n".join(page.section(results))
    assert "| A | 2.00 | 1.00 | 7 |  | 3.00 |  | 2.5 |" in text, "a rival that differs is none"
    assert "| B | **3.00** | 1.50 | 7 |  |  | 5.00 | 2.5 |" in text
    assert "| c.onnx | 1.00 | 0.50 | 7 | 0.25 | 9.00 | 0.50 | 2 | 9.00 |" in text
    assert "| d.onnx | 2.00 | 1.00 | 7 | 0.25 | 1.00 | 0.50 | 2 | **0.50** |" in text
    assert "| e.onnx | 2.00 | 1.00 | 7 | 0.25 | does not run it | | 2 |  |" in text
    assert "on 1 of the 2 that it runs;\ngeometric mean 2.12 x" in text
    assert "**0.60** s" in text
    assert "| B | 0.0 | 0.0 | 0.0 | **1.21** |" in text
    assert text.count("**") == 2 * page.misses(results)
