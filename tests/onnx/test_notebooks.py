"""What notebooks show of the objects that live on a device."""

from __future__ import annotations

import ast
import json
import pathlib
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper
from page_samples import Reader

import dmlvk
from dmlvk.onnx import InferenceSession

pytestmark = pytest.mark.quick


EXAMPLE = pathlib.Path(__file__).parent.parent.parent / "examples" / "notebook.ipynb"


def shown(item: object) -> str:
    """The text of what a notebook shows of an object, whose HTML is well formed."""
    return Reader(item._repr_html_()).text  # type: ignore[attr-defined]


def test_a_device() -> None:
    device = dmlvk.default_device()
    text = shown(device)
    for words in (f"Device {device.info.index}: {device.info.name}", device.info.uuid, device.info.driver, "in use now"):
        assert words in text
    assert device.info.uuid in shown(device.info)


def test_an_array() -> None:
    values = np.arange(12, dtype=np.float32).reshape(3, 4)
    array = dmlvk.DeviceArray.from_numpy(values)
    text = shown(array)
    for words in ("shape(3, 4)", "float32 (FLOAT32)", "48 B", array.device.info.name, str(values)):
        assert words in text
    assert "strides" not in text and "strides(1, 4), in elements" in shown(array.T)
    assert len(shown(dmlvk.DeviceArray.from_numpy(np.zeros((1000, 100), np.int8)))) < 2000
    assert "()" in shown(array.sum()) and "(0,)" in shown(array.reshape(12)[:0])


def test_a_graph() -> None:
    graph = dmlvk.Graph()
    x, y = graph.input((64, 32)), graph.input((32, 16))
    function = graph.compile(graph.activation_softmax(x @ y))
    text = shown(function)
    for words in ("Function", "FLOAT32 (64, 32)", "FLOAT32 (64, 16)", "2, 2 launches a call", "Gemm", "2 nodes"):
        assert words in text, words
    text = shown(function.operator)
    for words in ("CompiledOperator DML_GRAPH_DESC", "GraphInput[1]", "GraphOutput[0]", "not yet", "FLOAT32 (32, 16)"):
        assert words in text, words


def test_a_session_and_its_report(
    make_model: Callable[..., onnx.ModelProto], make_session: Callable[..., InferenceSession]
) -> None:
    nodes = [helper.make_node("MatMul", ["<x>", "w"], ["a"], name="<m>"), helper.make_node("Relu", ["a"], ["y"], name="r")]
    model = make_model(nodes, {"<x>": (np.float32, ("N", 3))}, constants={"w": np.ones((3, 4), np.float32)})
    model.graph.name = "a <graph>"
    session = make_session(model)
    text = shown(session)
    for words in ("InferenceSession a <graph>", "2, 0 of them constants", "<x>inputtensor(float)['N', 3]", "youtput"):
        assert words in text
    feeds = {"<x>": np.ones((2, 3), np.float32)}
    session.run(None, feeds)
    assert "1 made for the shapes" in shown(session)
    for report in (session.report(), session.profile(feeds)):
        text = shown(report)
        for words in ("SessionReport a <graph>", "<x> [2, 3]", "<m> MatMul", "with the work of r", "part of <m>"):
            assert words in text, words


def test_the_example_runs_from_above() -> None:
    names: dict[str, Any] = {}
    found = []
    for cell in json.loads(EXAMPLE.read_text(encoding="utf-8"))["cells"]:
        if cell["cell_type"] == "code":
            assert cell["outputs"] == [] and cell["execution_count"] is None, "what it shows is made by whoever runs it"
            *body, last = ast.parse("".join(cell["source"])).body
            exec(compile(ast.Module(body, []), EXAMPLE.name, "exec"), names)
            if isinstance(last, ast.Expr):
                found.append(eval(compile(ast.Expression(last.value), EXAMPLE.name, "eval"), names))
                assert shown(found[-1])
            else:
                exec(compile(ast.Module([last], []), EXAMPLE.name, "exec"), names)
    assert [type(item).__name__ for item in found] == [
        *("InferenceSession", "SessionReport", "Device", "DeviceArray", "Function", "Card")
    ]
