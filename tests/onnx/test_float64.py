"""Models of 64-bit floats: computed as they are where the device does, refused where it does not, and with
``float64_as_float32`` what is fed and given back, constants and attributes, and names that are taken.

ONNX's own cases are in ``test_backend.py``, each operator's accuracy is in the device's ``test_float64.py``."""

from __future__ import annotations

import math
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
    with pytest.raises(
        dmlvk.UnsupportedNodeError, match="FLOAT64, with which the device does not compute: it lacks float64"
    ):
        InferenceSession(_model(), without)


def test_a_model_without_doubles_stays_as_it_is(make_model: Any, make_session: Any) -> None:
    model = make_model(helper.make_node("Relu", ["x"], ["y"]), {"x": (f32, ("N",))})
    session = make_session(model, options=AS_FLOAT32)
    np.testing.assert_array_equal(session.run(None, {"x": np.array([-1, 2], f32)})[0], [0, 2])
    assert [record.op_type for record in session.report().gpu_nodes] == ["Relu"]


@pytest.mark.parametrize(("op_type", "axis", "opset"), [("Softmax", 1, 17), ("LogSoftmax", -1, 17), ("Softmax", 1, 11)])
def test_softmax(
    make_model: Any, make_session: Any, reference: Any, device: dmlvk.Device, op_type: str, axis: int, opset: int
) -> None:
    """Made of other operators, with all digits where results are small or near 0."""
    if "float64" not in device.capabilities.features:
        pytest.skip("the device does not compute with 64-bit floats")
    x = np.random.default_rng(5).normal(0, 5, (3, 7, 5))
    node = helper.make_node(op_type, ["x"], ["y"], axis=axis)
    model = make_model(node, {"x": (f64, ("N", "C", "W"))}, output_types={"y": f64}, opset=opset)
    (y,) = make_session(model).run(None, {"x": x})
    np.testing.assert_allclose(y, reference(model, {"x": x}, "onnxruntime")[0], rtol=1e-13, atol=1e-15)


def test_constants_near_a_patterns_are_not_the_patterns(make_model: Any, make_session: Any, device: dmlvk.Device) -> None:
    """x * (1 + erf(x / 1.4142)) / 2 is nearly a GELU, and in float32 taken for one."""
    if "float64" not in device.capabilities.features:
        pytest.skip("the device does not compute with 64-bit floats")
    nodes = [
        helper.make_node("Div", ["x", "root"], ["d"]),
        helper.make_node("Erf", ["d"], ["e"]),
        helper.make_node("Add", ["e", "one"], ["s"]),
        helper.make_node("Mul", ["x", "s"], ["p"]),
        helper.make_node("Mul", ["p", "half"], ["y"]),
    ]
    constants = {name: np.array(value) for name, value in (("root", 1.4142), ("one", 1.0), ("half", 0.5))}
    x = np.linspace(-3, 3, 13)
    model = make_model(nodes, {"x": (f64, ("N",))}, constants=constants, output_types={"y": f64})
    wanted = [item * (1 + math.erf(item / 1.4142)) / 2 for item in x]
    np.testing.assert_allclose(make_session(model).run(None, {"x": x})[0], wanted, rtol=1e-13)
