"""What ``dmlvk.onnx`` has of ONNX Runtime and onnxruntime's CPU has not: tensors on the device, its log lines, and where the
two differ on purpose."""

from __future__ import annotations

import enum
import json
import logging
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import dmlvk
import dmlvk.onnx as ort
from dmlvk.onnx import notices, providers, seeds
from dmlvk.onnx.names import NAMES, Standing

pytestmark = pytest.mark.quick
f32 = np.float32
X = np.array([[1.0, -2.0]], f32)
W = np.array([1.0, 2.0], f32)


@pytest.fixture(scope="module")
def source(make_model: Callable[..., onnx.ModelProto]) -> bytes:
    node = helper.make_node("Add", ["x", "w"], ["y"])
    model = make_model(node, {"x": (f32, ("N", 2))}, constants={"w": W})
    return bytes(model.SerializeToString())


@pytest.fixture(scope="module", autouse=True)
def process_wide(device: dmlvk.Device) -> Iterator[None]:
    """The device under test is the process-wide one here, where a script's values and sessions are."""
    patch = pytest.MonkeyPatch()
    patch.setattr("dmlvk.engine.default_device._opened", [device])
    yield
    patch.undo()


@pytest.fixture(scope="module")
def session(source: bytes) -> ort.InferenceSession:
    return ort.InferenceSession(source, providers=["CUDAExecutionProvider", "CPUExecutionProvider"])


@pytest.fixture
def lines(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> Callable[[], list[str]]:
    """What was logged, as in a new process."""
    monkeypatch.setattr(notices, "_told", set())
    caplog.set_level(logging.INFO, "dmlvk.onnx")
    return lambda: [record.getMessage() for record in caplog.records if record.name == "dmlvk.onnx"]


@pytest.mark.parametrize("place", ["cuda", "dml", "gpu", "vulkan"])
def test_a_tensor_on_the_device(place: str, device: dmlvk.Device) -> None:
    value = ort.OrtValue.ortvalue_from_numpy(X, place, 0)
    assert (value.device_name(), value.shape(), value.data_type()) == (place, [1, 2], "tensor(float)")
    assert value.content.device is device and value.tensor_size_in_bytes() == 8
    np.testing.assert_array_equal(value.numpy(), X)
    np.testing.assert_array_equal(np.from_dlpack(value), X)
    assert not np.shares_memory(value.numpy(), X)


@pytest.mark.parametrize("dtype", [np.bool_, np.int64, np.float16])
def test_types_come_back_from_the_device(dtype: type) -> None:
    array = np.array([0, 1, 1], dtype)
    found = ort.OrtValue.ortvalue_from_numpy(array, "cuda").numpy()
    assert found.dtype == array.dtype
    np.testing.assert_array_equal(found, array)


def test_a_tensor_on_the_device_is_updated() -> None:
    value = ort.OrtValue.ortvalue_from_shape_and_type([1, 2], f32, "cuda", 0)
    np.testing.assert_array_equal(value.numpy(), [[0, 0]])
    value.update_inplace(X)
    np.testing.assert_array_equal(value.numpy(), X)
    value.update_inplace(ort.OrtValue.ortvalue_from_numpy(X * 2, "cuda"))
    np.testing.assert_array_equal(value.numpy(), X * 2)
    host = ort.OrtValue.ortvalue_from_numpy(X.copy())
    ort.copy_tensors([value], [host])
    np.testing.assert_array_equal(host.numpy(), X * 2)
    with pytest.raises(dmlvk.InvalidArgumentError, match="number of elements"):
        value.update_inplace(X.astype(np.float64))


def test_a_binding_on_the_device(session: ort.InferenceSession) -> None:
    """As in ONNX Runtime's own example: addresses of tensors on the device, then new outputs there."""
    x = ort.OrtValue.ortvalue_from_numpy(X, "cuda", 0)
    y = ort.OrtValue.ortvalue_from_shape_and_type([1, 2], f32, "cuda", 0)
    binding = session.io_binding()
    binding.bind_input("x", x.device_name(), 0, f32, x.shape(), x.data_ptr())
    binding.bind_output("y", y.device_name(), 0, f32, y.shape(), y.data_ptr())
    session.run_with_iobinding(binding)
    np.testing.assert_array_equal(y.numpy(), X + W)
    x.update_inplace(X * 3)
    binding.bind_output("y", "cuda")
    session.run_with_iobinding(binding)
    (found,) = binding.get_outputs()
    assert found.device_name() == "cuda"
    np.testing.assert_array_equal(found.numpy(), X * 3 + W)
    np.testing.assert_array_equal(y.numpy(), X + W)
    binding.bind_ortvalue_input("x", found)
    binding.bind_ortvalue_output("y", y)
    session.run_with_iobinding(binding)
    assert binding.get_outputs() == [y]
    np.testing.assert_array_equal(y.numpy(), X * 3 + 2 * W)
    with pytest.raises(dmlvk.InvalidArgumentError, match=r"OrtValue\.data_ptr"):
        binding.bind_input("x", "cuda", 0, f32, [1, 2], X.ctypes.data)
    with pytest.raises(dmlvk.InvalidArgumentError, match="no more bytes"):
        binding.bind_input("x", "cuda", 0, f32, [2, 2], x.data_ptr())


def test_an_output_of_other_sizes_than_its_memory(session: ort.InferenceSession) -> None:
    binding = session.io_binding()
    binding.bind_cpu_input("x", X)
    binding.bind_ortvalue_output("y", ort.OrtValue.ortvalue_from_numpy(np.zeros((3, 2), f32)))
    with pytest.raises(dmlvk.InvalidArgumentError, match="the output's sizes"):
        session.run_with_iobinding(binding)


def test_what_means_nothing_is_said_once(source: bytes, lines: Callable[[], list[str]], device: dmlvk.Device) -> None:
    options = ort.SessionOptions()
    options.intra_op_num_threads = 4
    options.add_session_config_entry("session.disable_prepacking", "1")
    for _ in range(2):
        ort.InferenceSession(source, options, [("CUDAExecutionProvider", {"arena": "1"})], enable_fallback=0)
    found = lines()
    assert len(found) == len(set(found)) == 5, found
    for start in (
        "SessionOptions.intra_op_num_threads has no effect: the device runs",
        "SessionOptions.add_session_config_entry (session.disable_prepacking) has no effect",
        "InferenceSession: its argument 'enable_fallback' has no effect",
        f"CUDAExecutionProvider: the model runs on the Vulkan device {device.info.name!r}",
        "CUDAExecutionProvider: its option 'arena' has no effect",
    ):
        assert any(line.startswith(start) for line in found), start


def test_all_that_has_no_effect_is_said(
    session: ort.InferenceSession, source: bytes, lines: Callable[[], list[str]]
) -> None:
    """What the table says is accepted without effect logs a line: calls when they are made, fields when they are used."""
    arguments: dict[str, tuple[object, ...]] = {
        "add_run_config_entry": ("a", "b"),
        "add_session_config_entry": ("a", "b"),
        "set_default_logger_verbosity": (1,),
        "set_ep_dynamic_options": ({"a": "b"},),
        "set_global_thread_pool_sizes": (1, 1),
        "set_load_cancellation_flag": (True,),
        "set_tuning_results": ([],),
    }
    owners = {"": ort, "InferenceSession": session, "SessionOptions": ort.SessionOptions(), "RunOptions": ort.RunOptions()}
    changed = {bool: lambda value: not value, int: lambda value: value + 1, str: lambda value: value + "a"}
    names = [
        (owner, name) for owner, rows in NAMES.items() for name, row in rows.items() if row.standing is Standing.ACCEPTED
    ]
    for owner, name in names:
        thing = getattr(owners[owner], name)
        if callable(thing):
            thing(*arguments.get(name, ()))
        elif isinstance(thing, enum.Enum):
            setattr(owners[owner], name, type(thing)(1))
        else:
            setattr(owners[owner], name, changed[type(thing)](thing))
    ort.InferenceSession(source, owners["SessionOptions"]).run(None, {"x": X}, owners["RunOptions"])
    told = lines()
    for owner, name in names:
        full = f"{owner}.{name}" if owner else name
        assert any(line.startswith((f"{full} has no effect: ", f"{full} (a) has no effect: ")) for line in told), full


def test_the_processor_alone_is_the_device_too(source: bytes, lines: Callable[[], list[str]]) -> None:
    ort.InferenceSession(source)
    assert lines() == []
    session = ort.InferenceSession(source, providers=["CPUExecutionProvider"])
    assert session.report().device == session.device.info.name
    assert [line.partition(":")[0] for line in lines()] == ["CPUExecutionProvider"]


def test_providers(source: bytes, session: ort.InferenceSession) -> None:
    assert session.get_providers() == ["CUDAExecutionProvider", "CPUExecutionProvider"]
    assert ort.InferenceSession(source).get_providers() == ort.get_available_providers()
    options = ort.SessionOptions()
    options.add_provider("DmlExecutionProvider", {"device_id": 0})
    assert options.has_providers()
    made = ort.InferenceSession(source, options)
    assert made.get_provider_options() == {"DmlExecutionProvider": {"device_id": "0"}, "CPUExecutionProvider": {}}
    for wrong in ("CPUExecutionProvider", [3], [("CPUExecutionProvider",)]):
        with pytest.raises(dmlvk.InvalidArgumentError, match="providers"):
            ort.InferenceSession(source, providers=wrong)
    with pytest.raises(dmlvk.InvalidArgumentError, match="provider_options"):
        ort.InferenceSession(source, providers=["CPUExecutionProvider"], provider_options=[{}, {}])


def test_a_device_id_chooses_the_device(source: bytes, monkeypatch: pytest.MonkeyPatch, device: dmlvk.Device) -> None:
    with pytest.raises(dmlvk.NoDeviceError):
        ort.InferenceSession(source, providers=[("CUDAExecutionProvider", {"device_id": 77})])
    with pytest.raises(dmlvk.InvalidArgumentError, match="device_id"):
        ort.InferenceSession(source, providers=[("CUDAExecutionProvider", {"device_id": "first"})])
    other = dmlvk.Device()
    monkeypatch.setitem(providers._opened, 7, other)
    session = ort.InferenceSession(source, providers=["CUDAExecutionProvider"], provider_options=[{"device_id": 7}])
    assert session.device is other
    value = ort.OrtValue.ortvalue_from_numpy(X, "cuda", 7)
    np.testing.assert_array_equal(session.run(None, {"x": value})[0], X + W)
    with pytest.raises(dmlvk.StateError, match="same Device"):
        session.run(None, {"x": ort.OrtValue.ortvalue_from_numpy(X, "cuda", 0)})
    moved = ort.InferenceSession(source)
    assert moved.device is device
    moved.set_providers([("CUDAExecutionProvider", {"device_id": 7})])
    assert moved.device is other
    np.testing.assert_array_equal(moved.run(None, {"x": value})[0], X + W)


def test_own_arguments_stay(source: bytes, device: dmlvk.Device) -> None:
    options = ort.SessionOptions(plan_cache_size=1)
    for session in (
        ort.InferenceSession(source, device, options),
        ort.InferenceSession(source, device=device, options=options),
        ort.InferenceSession(model=source, options=options),
    ):
        assert session.device is device and session.get_session_options().plan_cache_size == 1
        assert session.get_session_options() is not options
    binding = session.io_binding()
    binding.bind_cpu_input("x", array=X)
    binding.bind_output("y")
    session.run_with_iobinding(binding)
    assert isinstance(binding.get_outputs()[0], dmlvk.DeviceArray)
    (value,) = binding.get_outputs_as_ortvaluevector()
    assert value.shape() == [1, 2]


def test_lists_become_the_input_s_type(make_model: Callable[..., onnx.ModelProto], device: dmlvk.Device) -> None:
    model = make_model(helper.make_node("Neg", ["x"], ["y"]), {"x": (np.int64, ("N",))}, output_types={"y": np.int64})
    session = ort.InferenceSession(model, device)
    for fed in ([1, 2], (1, 2), [True, np.int32(2)]):
        np.testing.assert_array_equal(session.run(None, {"x": fed})[0], [-1, -2])
    for wrong in ([1.5], [1 << 70], ["a"], [[1], [2, 3]], 3):
        with pytest.raises(dmlvk.ModelError, match="input 'x'"):
            session.run(None, {"x": wrong})


def test_overrides(source: bytes) -> None:
    options = ort.SessionOptions()
    options.add_free_dimension_override_by_name("N", 1)
    assert ort.InferenceSession(source, options).report().plans == 1, "no size is open"
    for name, array, said in (("q", X, "no initializer 'q'"), ("w", X, "must keep its type and shape")):
        options = ort.SessionOptions()
        options.add_initializer(name, ort.OrtValue.ortvalue_from_numpy(array))
        with pytest.raises(dmlvk.ModelError, match=said):
            ort.InferenceSession(source, options)


def test_a_level_leaves_out_the_passes() -> None:
    options = ort.SessionOptions(without_passes=("chain",))
    assert options.passes_left_out == ("chain",)
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    assert options.passes_left_out == ("all",)


def test_a_profile(source: bytes, tmp_path: Path) -> None:
    options = ort.SessionOptions()
    options.enable_profiling, options.profile_file_prefix = True, str(tmp_path / "run_")
    session = ort.InferenceSession(source, options)
    began = session.get_profiling_start_time_ns()
    for _ in range(2):
        np.testing.assert_array_equal(session.run(None, {"x": X})[0], X + W)
    ended = time.monotonic_ns()
    path = session.end_profiling()
    spans = [event for event in json.loads(Path(path).read_text())["traceEvents"] if event.get("cat") == "nodes"]
    assert [span["args"]["op_type"] for span in spans] == ["Add", "Add"]
    first, second = sorted(spans, key=lambda span: span["ts"])
    assert first["ts"] > 0 and first["ts"] + first["dur"] <= second["ts"]
    assert (second["ts"] + second["dur"]) * 1000 <= ended - began
    assert (session.end_profiling(), session.get_profiling_start_time_ns()) == ("", 0)


EXCEPTIONS = """
import sys
import dmlvk.onnx
sys.modules["onnxruntime"] = dmlvk.onnx
import onnxruntime as ort
import onnxruntime.capi._pybind_state as state
from onnxruntime.capi.onnxruntime_inference_collection import InferenceSession
from onnxruntime.capi.onnxruntime_pybind11_state import Fail, InvalidArgument, NoSuchFile

assert InferenceSession is ort.InferenceSession and state.get_device() == "GPU"
assert ort.capi.onnxruntime_pybind11_state.InvalidArgument is InvalidArgument
for wanted in (NoSuchFile, InvalidArgument, Fail):
    try:
        ort.InferenceSession("nowhere.onnx")
    except wanted:
        continue
"""


def test_scripts_find_the_exceptions() -> None:
    """Also where dmlvk.onnx stands for the whole of onnxruntime."""
    subprocess.run([sys.executable, "-c", EXCEPTIONS], check=True)


def test_a_tensor_of_the_host_has_no_gaps() -> None:
    value = ort.OrtValue.ortvalue_from_numpy(np.arange(6, dtype=f32).reshape(2, 3).T)
    assert value.numpy().flags.c_contiguous
    np.testing.assert_array_equal(value.numpy(), [[0, 3], [1, 4], [2, 5]])


def test_an_optimized_model_is_not_written(source: bytes) -> None:
    options = ort.SessionOptions()
    options.optimized_model_filepath = "model.onnx"
    with pytest.raises(dmlvk.UnsupportedError, match="no ONNX model"):
        ort.InferenceSession(source, options)


def test_an_input_with_an_initializer_is_not_fed(device: dmlvk.Device) -> None:
    inputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1]) for name in ("x", "b")]
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1])]
    default = [helper.make_tensor("b", TensorProto.FLOAT, [1], [2])]
    graph = helper.make_graph([helper.make_node("Add", ["x", "b"], ["y"])], "sum", inputs, outputs, default)
    for version, overridable in ((3, []), (8, ["b"])):
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=version)
        session = ort.InferenceSession(model, device)
        assert [info.name for info in session.get_overridable_initializers()] == overridable
        with pytest.raises((dmlvk.UnsupportedError, dmlvk.ModelError), match="'b'"):
            session.run(None, {"x": [1.0], "b": [5.0]})


def test_a_seed_repeats(make_model: Callable[..., onnx.ModelProto], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(seeds, "_numbers", [])
    model = make_model(helper.make_node("RandomUniform", [], ["y"], shape=[4]), {})
    found = []
    for seed in (5, 5, 6):
        ort.set_seed(seed)
        found.append(ort.InferenceSession(model).run(None, {})[0])
    np.testing.assert_array_equal(found[0], found[1])
    assert not np.array_equal(found[0], found[2])
