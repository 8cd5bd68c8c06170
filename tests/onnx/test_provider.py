"""dmlvk as an execution provider of ONNX Runtime."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper

import dmlvk
import dmlvk.ort

Opened = Callable[..., onnxruntime.InferenceSession]


@pytest.fixture
def opened(device: dmlvk.Device) -> Opened:
    """A session of ONNX Runtime's with the provider on the device under test, which leaves nothing to the processor."""
    dmlvk.ort.register()

    def make(model: onnx.ModelProto, alone: bool = True, **options: str) -> onnxruntime.InferenceSession:
        (chosen,) = [item for item in dmlvk.ort.get_devices() if item.ep_metadata["device_uuid"] == device.info.uuid]
        asked = onnxruntime.SessionOptions()
        asked.log_severity_level = 4
        asked.add_provider_for_devices([chosen], options)
        if alone:
            asked.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
        return onnxruntime.InferenceSession(model.SerializeToString(), asked, enable_fallback=0)

    return make


def model_of(nodes: list[onnx.NodeProto], inputs: dict[str, Any], outputs: list[str], **constants: Any) -> onnx.ModelProto:
    """A model of FLOAT32 tensors; the sizes of an input may be names."""
    graph = helper.make_graph(
        nodes,
        "model",
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, sizes) for name, sizes in inputs.items()],
        [onnx.ValueInfoProto(name=name) for name in outputs],
        [onnx.numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def test_devices(device: dmlvk.Device) -> None:
    dmlvk.ort.register()
    dmlvk.ort.register()
    found = {item.ep_metadata["device_uuid"]: item for item in dmlvk.ort.get_devices()}
    assert set(found) == {info.uuid for info in dmlvk.devices()}
    mine = found[device.info.uuid]
    assert mine.ep_name == dmlvk.ort.get_ep_name() == dmlvk.ort.get_ep_names()[0] == "DmlvkExecutionProvider"
    assert mine.ep_metadata["driver"] == device.info.driver
    assert int(mine.ep_metadata["memory_bytes"]) == device.info.memory_in_bytes


def test_sizes_that_change_and_are_none(opened: Opened) -> None:
    session = opened(model_of([helper.make_node("Relu", ["x"], ["y"])], {"x": ["n", 2]}, ["y"]))
    for rows in (1, 3, 0, 7, 3):
        x = np.linspace(-1, 1, 2 * rows, dtype=np.float32).reshape(rows, 2)
        np.testing.assert_array_equal(session.run(None, {"x": x})[0], np.maximum(x, 0))


def test_what_cannot_run_stays_with_the_processor_in_few_parts(opened: Opened) -> None:
    """A chain goes through text and back: what comes after it is the second part, and the rest the first."""
    weight = np.random.default_rng(0).standard_normal((64, 64), np.float32)
    nodes = [  # ONNX Runtime computes x @ w once
        helper.make_node("MatMul", ["x", "w"], ["a"]),
        helper.make_node("Cast", ["a"], ["text"], to=TensorProto.STRING),
        helper.make_node("Cast", ["text"], ["b"], to=TensorProto.FLOAT),
        helper.make_node("MatMul", ["x", "w"], ["c"]),
        helper.make_node("Add", ["b", "c"], ["d"]),
        helper.make_node("MatMul", ["d", "w"], ["y"]),
    ]
    model = model_of(nodes, {"x": ["n", 64]}, ["y"], w=weight)
    x = np.random.default_rng(1).standard_normal((3, 64), np.float32)
    (y,) = opened(model, alone=False).run(None, {"x": x})
    np.testing.assert_allclose(y, 2 * (x @ weight) @ weight, rtol=1e-4, atol=1e-3)
    with pytest.raises(Exception, match="fallback to CPU EP has been explicitly disabled"):
        opened(model)
    with pytest.raises(Exception, match="2 of 5 nodes cannot run on the device; node 'text'"):
        opened(model, alone=False, on_unsupported="error")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"no_such": "1"}, "must be one of device_uuid"),
        ({"on_unsupported": "maybe"}, 'must be "cpu" or "error"'),
        ({"graph_passes": "gelu,magic"}, "names of dead"),
        ({"device_uuid": "00000000-0000-0000-0000-000000000000"}, "no Vulkan 1.3 device matches"),
    ],
)
def test_wrong_options(options: dict[str, str], message: str, opened: Opened) -> None:
    with pytest.raises(Exception, match=message):
        opened(model_of([helper.make_node("Relu", ["x"], ["y"])], {"x": [2]}, ["y"]), **options)


def test_a_failing_run_leaves_the_session_usable(opened: Opened) -> None:
    nodes = [helper.make_node("Reshape", ["x", "to"], ["y"])]
    session = opened(model_of(nodes, {"x": ["n"]}, ["y"], to=np.array([2, -1], np.int64)))
    with pytest.raises(Exception, match="ModelError"):
        session.run(None, {"x": np.zeros(3, np.float32)})
    (y,) = session.run(None, {"x": np.arange(4, dtype=np.float32)})
    np.testing.assert_array_equal(y, [[0, 1], [2, 3]])
