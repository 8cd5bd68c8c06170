"""README's Python examples run as they stand there."""

from __future__ import annotations

import pathlib
import re

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import dmlvk

README = pathlib.Path(__file__).parent.parent.parent / "README.md"
EXAMPLES = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)


def test_onnx_example(
    device: dmlvk.Device, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (example,) = (text for text in EXAMPLES if "model.onnx" in text)
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [2, 3]) for name in "xy")
    graph = helper.make_graph([helper.make_node("Sqrt", ["x"], ["y"], name="root")], "root", [x], [y])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), tmp_path / "model.onnx")
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {"array": np.full((2, 3), 9, np.float32)}
    exec(example, names)
    assert "1 dispatches a run" in capsys.readouterr().out
    np.testing.assert_array_equal(names["scores"], np.full((2, 3), 3, np.float32))


def test_eager_example(device: dmlvk.Device) -> None:
    (example,) = (text for text in EXAMPLES if "dmlvk.eager" in text)
    names: dict[str, object] = {"x": np.random.default_rng(0).standard_normal((2, 3, 4, 5)).astype(np.float32)}
    exec(example, names)
    y = names["y"]
    assert isinstance(y, np.ndarray)
    np.testing.assert_allclose(y.mean((2, 3)), 0, atol=1e-6)


def test_graph_example(device: dmlvk.Device, capsys: pytest.CaptureFixture[str]) -> None:
    (example,) = (text for text in EXAMPLES if "dmlvk.Graph()" in text)
    names: dict[str, object] = {}
    exec(example, names)
    assert capsys.readouterr().out.count("0.1") == 32 * 10
    predict = names["predict"]
    assert isinstance(predict, dmlvk.Function)
    assert len(predict.operator.plan.dispatches) == 2, "as README says"
