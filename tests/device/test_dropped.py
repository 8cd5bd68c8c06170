"""What is dropped goes at once, with its memory, its pipelines and its device: nothing waits for the garbage collector."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper

import dmlvk
from dmlvk import eager
from dmlvk.directml.ready_operator import ReadyOperator
from dmlvk.onnx import InferenceSession

f32 = np.float32
X = np.linspace(-1, 3, 32, dtype=f32).reshape(4, 8)


def session(device: dmlvk.Device) -> InferenceSession:
    """A session that has met shapes enough for a recipe, with a loop whose rounds the device computes, and reports."""
    body = helper.make_graph(
        [helper.make_node("MatMul", ["a", "w"], ["b"]), helper.make_node("Identity", ["go"], ["on"])],
        "body",
        [
            helper.make_tensor_value_info("round", TensorProto.INT64, []),
            helper.make_tensor_value_info("go", TensorProto.BOOL, []),
            helper.make_tensor_value_info("a", TensorProto.FLOAT, None),
        ],
        [
            helper.make_tensor_value_info("on", TensorProto.BOOL, []),
            helper.make_tensor_value_info("b", TensorProto.FLOAT, None),
        ],
    )
    nodes = [
        helper.make_node("ReduceMax", ["x"], ["most"], keepdims=0),
        helper.make_node("Cast", ["most"], ["rounds"], to=TensorProto.INT64),
        helper.make_node("Loop", ["rounds", "", "x"], ["y"], body=body),
    ]
    graph = helper.make_graph(
        nodes,
        "test",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ("N", 8))],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [helper.make_tensor("w", TensorProto.FLOAT, (8, 8), np.eye(8, dtype=f32).ravel())],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    made = InferenceSession(model, device)
    for rows in (4, 3, 2, 1):
        np.testing.assert_array_equal(made.run(None, {"x": np.full((rows, 8), 3, f32)})[0], np.full((rows, 8), 3, f32))
    made.profile({"x": X})
    made.report()
    return made


def function(device: dmlvk.Device) -> object:
    """A called graph that owns a weight."""
    graph = dmlvk.Graph(device)
    w = graph.input((8, 5), owned_by_dml=True)
    made = graph.compile(graph.activation_softmax1(graph.input((4, 8)) @ w, axes=(1,)))
    made.initialize({w: np.ones((8, 5), f32)})
    for _ in range(3):
        np.testing.assert_allclose(made(X), np.full((4, 5), 0.2, f32), rtol=1e-5)
    return made


def operator(device: dmlvk.Device) -> object:
    """A compiled operator, with its binding table and command list."""
    tensor = dmlvk.TensorDesc(dmlvk.TensorDataType.FLOAT32, X.shape)
    made = ReadyOperator(device, dmlvk.ActivationRelu(input_tensor=tensor, output_tensor=tensor))
    commands = device.create_command_list()
    buffers = [dmlvk.BufferBinding(device.create_buffer(X.nbytes)) for _ in range(2)]
    made.record(commands, buffers[:1], buffers[1:])
    device.execute(commands)
    return made, commands


def called(device: dmlvk.Device) -> np.ndarray:
    """An eager function, whose operator the device keeps."""
    return eager.activation_relu(X, device=device)


@pytest.fixture
def no_collector() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.mark.parametrize(
    "make", [session, *(pytest.param(make, marks=pytest.mark.quick) for make in (function, operator, called))]
)  # not a session as a lesser device: rounds of a loop are INT64
def test_nothing_waits_for_the_collector(make: Callable[[dmlvk.Device], object], no_collector: None) -> None:
    device = dmlvk.Device()
    made = make(device)
    device.wait_idle()
    del made
    memory = device.memory()
    assert memory["live"] == memory["parameters"], "but for the shared chunk of parameter blocks"
    alive = weakref.ref(device.native)
    del device
    assert alive() is None


@pytest.mark.quick
def test_a_device_that_goes_saves_its_pipelines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DMLVK_CACHE_DIR", str(tmp_path))
    called(dmlvk.Device())
    assert [*tmp_path.glob("pipelines-*")]
