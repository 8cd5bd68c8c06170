"""A device that is lost, by the fault layer's word: what its objects answer, and how sessions and calls go on."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper

import dmlvk
from dmlvk.onnx import InferenceSession

FAULTS = Path(__file__).parents[1] / "faults"

LOST = """
import sys, time
sys.path.insert(0, sys.argv[1])
import numpy as np, dmlvk
from dmlvk.onnx import InferenceSession
from layer import Layer

layer = Layer()
x = np.arange(6, dtype=np.float32).reshape(2, 3)
chosen = dmlvk.Device()
sessions = [InferenceSession(sys.argv[2]), InferenceSession(sys.argv[2], chosen)]
wanted = [session.run(None, {"x": x})[0] for session in sessions]

def lost_objects(session):
    device = session.device
    array = dmlvk.DeviceArray.from_numpy(x, device)
    binding = session.io_binding()
    binding.bind_input("x", array)
    binding.bind_output("y")
    session.run_with_iobinding(binding)
    commands = device.create_command_list()
    commands.copy_buffer_region(device.create_buffer(8), 0, array.buffer, 0, 8)
    commands.submit()
    graph = dmlvk.Graph(device)
    function = graph.compile(graph.element_wise_abs(graph.input((2, 3))))
    function(array)
    calls = {
        "run": lambda: session.run(None, {"x": x}),
        "run_with_device_arrays": lambda: session.run_with_device_arrays(None, {"x": array}),
        "run_with_iobinding": lambda: session.run_with_iobinding(binding),
        "copy_outputs_to_cpu": binding.copy_outputs_to_cpu,
        "from_numpy": lambda: dmlvk.DeviceArray.from_numpy(x, device),
        "numpy": array.numpy,
        "write": lambda: array.buffer.write(x),
        "submit": commands.submit,
        "create_buffer": lambda: device.create_buffer(4),
        "function": lambda: function(array),
        "eager": lambda: dmlvk.eager.element_wise_abs(array),
        "flush": device.flush,
        "wait_idle": device.wait_idle,
    }
    return calls, binding, array

for session, expected in zip(sessions, wanted):
    calls, binding, array = lost_objects(session)
    old = session.device
    layer.plan("vkQueueSubmit", 1, 1, "VK_ERROR_DEVICE_LOST")
    start = time.perf_counter()
    for name, call in calls.items():
        try:
            call()
        except dmlvk.DeviceLostError as error:
            assert "vkQueueSubmit" in str(error), (name, error)
        else:
            raise AssertionError(f"{name} said nothing")
    assert layer.fired == 1 and time.perf_counter() - start < 30
    layer.count()
    kept = old.memory()["weights"]

    session.recover()
    assert session.device is not old and session.device.get_device_removed_reason() is None
    assert (session.run(None, {"x": x})[0] == expected).all() and session.device.memory()["weights"] == kept
    for call in (lambda: session.run(None, {"x": array}), lambda: session.run_with_iobinding(binding)):
        try:
            call()
        except dmlvk.StateError as error:
            assert "another Device" in str(error)
        else:
            raise AssertionError("an object of the lost device was taken")
    del calls, binding, array, call

assert sessions[0].device is dmlvk.default_device() and sessions[1].device is not chosen
assert (dmlvk.eager.element_wise_abs(-x) == x).all()
again = sessions[1].device
sessions[1].recover()
assert sessions[1].device is again  # which works
sessions[1].recover(dmlvk.default_device())
assert sessions[1].device is sessions[0].device and (sessions[1].run(None, {"x": x})[0] == wanted[1]).all()
"""


@pytest.fixture(scope="module")
def model(make_model: Callable[..., onnx.ModelProto]) -> onnx.ModelProto:
    nodes = [helper.make_node("MatMul", ["x", "w"], ["product"]), helper.make_node("Tanh", ["product"], ["y"])]
    weights = np.random.default_rng(1).standard_normal((3, 5)).astype(np.float32)
    return make_model(nodes, {"x": (np.float32, ("rows", 3))}, constants={"w": weights})


@pytest.mark.slow
def test_a_lost_device_answers_at_once_and_a_session_moves(model: onnx.ModelProto, tmp_path: Path) -> None:
    sys.path.insert(0, str(FAULTS))
    try:
        import layer
    finally:
        sys.path.remove(str(FAULTS))
    if reason := layer.missing():
        pytest.skip(reason)
    path = tmp_path / "model.onnx"
    onnx.save(model, path)
    environment = {**os.environ, **layer.environment(), "DMLVK_VALIDATION": "0"}
    command = [sys.executable, "-c", LOST, str(FAULTS), str(path)]
    subprocess.run(command, check=True, timeout=120, env=environment)


def test_a_session_that_cannot_move_stays(model: onnx.ModelProto, device: dmlvk.Device) -> None:
    session, x = InferenceSession(model, device), np.ones((2, 3), np.float32)
    wanted = session.run(None, {"x": x})[0]
    with pytest.raises(dmlvk.NoDeviceError):
        session.recover("no such device")
    assert session.device is device
    np.testing.assert_array_equal(session.run(None, {"x": x})[0], wanted)
