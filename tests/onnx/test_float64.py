"""Models of 64-bit floats: computed as they are where the device does, refused where it does not, and with
``float64_as_float32`` what is fed and given back, constants and attributes, and names that are taken (ONNX's own cases of
them: ``test_backend.py``)."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import dmlvk
from dmlvk.onnx import InferenceSession, SessionOptions

f32, f64 = np.float32, np.float64
AS_FLOAT32 = SessionOptions(float64_as_float32=True)


def _model() -> onnx.ModelProto:
    """y = (x * w + c) over doubles with an initializer, a constant and casts; x itself is an output too."""
    nodes = [
        helper.make_node("Constant", [], ["c"], value=numpy_helper.from_array(np.array(0.5, f64))),
        helper.make_node("Mul", ["x", "w"], ["p"]),
        helper.make_node("Add", ["p", "c"], ["y"]),
        helper.make_node("Cast", ["y"], ["i"], to=TensorProto.INT32),
        helper.make_node("Cast", ["i"], ["z"], to=TensorProto.DOUBLE),
    ]
    infos = {
        name: helper.make_tensor_value_info(name, kind, ["n"])
        for name, kind in (("x", TensorProto.DOUBLE), ("y", TensorProto.DOUBLE), ("z", TensorProto.DOUBLE))
    }
    graph = helper.make_graph(
        nodes,
        "test",
        [infos["x"]],
        [infos["y"], infos["z"], infos["x"]],
        [numpy_helper.from_array(np.array([3.0], f64), "w")],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def test_constants_casts_and_types(make_session: Any) -> None:
    x = np.array([1.25, -2.5, 1 / 3])
    session = make_session(_model(), options=AS_FLOAT32)
    assert [info.type for info in (*session.get_inputs(), *session.get_outputs())] == ["tensor(double)"] * 4
    y, z, same = session.run(None, {"x": x})
    assert y.dtype == z.dtype == same.dtype == f64
    np.testing.assert_array_equal(y, (x.astype(f32) * f32(3) + f32(0.5)).astype(f64))
    np.testing.assert_array_equal(z, np.trunc(y))
    np.testing.assert_array_equal(same, x)


def test_names_that_are_taken(make_session: Any) -> None:
    nodes = [helper.make_node("Neg", ["x"], ["x/float32"]), helper.make_node("Add", ["x/float32", "x"], ["y"])]
    x, y = (helper.make_tensor_value_info(name, TensorProto.DOUBLE, [2]) for name in "xy")
    model = helper.make_model(
        helper.make_graph(nodes, "test", [x], [y]), opset_imports=[helper.make_opsetid("", 17)], ir_version=8
    )
    np.testing.assert_array_equal(make_session(model, options=AS_FLOAT32).run(None, {"x": np.array([1.0, 2.0])})[0], [0, 0])


def test_computed_in_64_bits(make_session: Any, device: dmlvk.Device) -> None:
    if "float64" not in device.capabilities.features:
        pytest.skip("the device does not compute with 64-bit floats")
    x = np.array([1.25, -2.5, 1 / 3])
    y, z, same = make_session(_model()).run(None, {"x": x})
    np.testing.assert_array_equal(y, x * 3 + 0.5)
    np.testing.assert_array_equal(z, np.trunc(y))
    np.testing.assert_array_equal(same, x)


def test_a_device_without_them_refuses_at_load() -> None:
    without = dmlvk.Device(mask=dmlvk.Mask(disable=("float64",)))
    with pytest.raises(dmlvk.UnsupportedNodeError, match="FLOAT64, with which the device does not compute"):
        InferenceSession(_model(), without)


def test_a_model_without_doubles_stays_as_it_is(make_model: Any, make_session: Any) -> None:
    model = make_model(helper.make_node("Relu", ["x"], ["y"]), {"x": (f32, ("N",))})
    session = make_session(model, options=AS_FLOAT32)
    np.testing.assert_array_equal(session.run(None, {"x": np.array([-1, 2], f32)})[0], [0, 2])
    assert [record.op_type for record in session.report().gpu_nodes] == ["Relu"]
