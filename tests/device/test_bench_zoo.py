"""The zoo's command with two small files, in processes of its own."""

from __future__ import annotations

import json
import pathlib
import sys
import types
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from dmlvk_bench.cli import main


def _export(folder: pathlib.Path, op_type: str, wrong: float) -> None:
    """Writes what the zoo's exporter writes, of a network of one node."""
    folder.mkdir(parents=True)
    given = np.linspace(-2, 2, 12, dtype=np.float32).reshape(3, 4)
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, given.shape) for name in "xy"]
    graph = helper.make_graph([helper.make_node(op_type, ["x"], ["y"])], "one", ends[:1], ends[1:])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), folder / "model.onnx")
    exact = {"Relu": np.maximum(given, 0), "Sigmoid": 1 / (1 + np.exp(-given))}[op_type]
    np.savez(folder / "inputs.npz", x=given)
    np.savez(folder / "outputs.npz", y=exact + np.float32(wrong))
    (folder / "export.json").write_text('{"seconds": 1}')


def test_files_are_checked_and_timed(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("onnxruntime")
    models = [types.SimpleNamespace(name=name, kind="classification") for name in ("relu", "sigmoid", "broken")]
    architectures = types.SimpleNamespace(architectures=lambda: models)
    monkeypatch.setitem(sys.modules, "dmlvk_bench.zoo.architectures", architectures)  # it needs PyTorch
    _export(tmp_path / "relu/dynamo", "Relu", 0.0)
    _export(tmp_path / "sigmoid/dynamo", "Sigmoid", 0.5)
    _export(tmp_path / "broken/dynamo", "Relu", 0.0)
    (tmp_path / "broken/dynamo/model.onnx").write_bytes(b"\x00\x01")
    file = tmp_path / "zoo.json"
    words = ["zoo", "--folder", str(tmp_path), "--exporters", "dynamo", "--json", str(file)]
    assert main([*words, "--stages", "check"]) == 1
    checked = {row["architecture"]: row for row in json.loads(file.read_text())["rows"]}
    assert {name: row["right"] for name, row in checked.items()} == {"relu": True, "sigmoid": True, "broken": False}
    assert checked["sigmoid"]["difference"] > 0.3 and checked["sigmoid"]["from_onnxruntime"] < 1e-6
    assert "DecodeError" in checked["broken"]["error"]
    assert main([*words, "--stages", "time", "--rivals", "", "--only", "relu"]) == 0
    (row,) = json.loads(file.read_text())["rows"]
    assert row["right"] and row["ms"] > 0 and row["dispatches"] == 1 and row["rivals"] == {}


def test_a_model_of_words_alone_is_exported_in_float16(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its inputs are whole numbers in float16, too: what it is says its weights."""
    torch = pytest.importorskip("torch")
    from dmlvk_bench.zoo import architectures, export, worker

    def make() -> tuple[Any, dict[str, Any]]:
        torch.manual_seed(0)
        return torch.nn.Sequential(torch.nn.Embedding(10, 64), torch.nn.Linear(64, 64)), {"ids": torch.arange(5)[None]}

    def halved() -> tuple[Any, dict[str, Any]]:
        model, inputs = architectures._halved(make)
        return architectures.Flat(model).eval(), inputs

    one = architectures.Architecture("words-float16", "float16", halved)
    monkeypatch.setattr(export, "architectures", lambda: [one])
    list(export.export(one.name, "torchscript", tmp_path))
    graph = onnx.load(tmp_path / "model.onnx").graph
    assert {tensor.data_type for tensor in graph.initializer} == {TensorProto.FLOAT16}
    (row,) = worker.check(tmp_path, None)
    assert row["right"]
    assert 1e-6 < row["difference"] < worker.HALVES
