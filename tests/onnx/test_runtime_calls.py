"""Calls of ONNX Runtime's session interface, each made with onnxruntime on the CPU and with ``dmlvk.onnx``: what they
return, or what kind of error they raise, is the same.
"""

from __future__ import annotations

import ast
import logging
import re
import threading
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper

import dmlvk
import dmlvk.onnx
from dmlvk.onnx.capi import onnxruntime_pybind11_state as ours
from dmlvk.onnx.names import NAMES, Standing

pytestmark = pytest.mark.quick
f32 = np.float32

RUNTIMES = (onnxruntime, dmlvk.onnx)


def model(ir_version: int = 8) -> bytes:
    """``y = relu(x + w)`` and ``z = x + b`` for x of N rows of 2, where b is an input with a default."""
    nodes = [
        helper.make_node("Add", ["x", "w"], ["s"]),
        helper.make_node("Relu", ["s"], ["y"]),
        helper.make_node("Add", ["x", "b"], ["z"]),
    ]
    inputs = [helper.make_tensor_value_info(*info) for info in (("x", 1, ["N", 2]), ("b", 1, [2]))]
    outputs = [helper.make_tensor_value_info(name, 1, ["N", 2]) for name in "yz"]
    constants = [helper.make_tensor("w", 1, [2], [1, -2]), helper.make_tensor("b", 1, [2], [0.5, 0.5])]
    graph = helper.make_graph(nodes, "layer", inputs, outputs, constants, doc_string="two sums")
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=ir_version)
    made.producer_name, made.doc_string, made.domain, made.model_version = "test", "a layer", "org.example", 3
    helper.set_model_props(made, {"classes": "a,b"})
    return bytes(made.SerializeToString())


MODEL = model()
SEQUENCES = helper.make_model(
    helper.make_graph(
        [helper.make_node("SequenceConstruct", ["x", "x"], ["q"])],
        "pair",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2])],
        [helper.make_tensor_sequence_value_info("q", TensorProto.FLOAT, None)],
    ),
    opset_imports=[helper.make_opsetid("", 17)],
    ir_version=8,
).SerializeToString()

CALLS = (
    """
[(info.name, info.shape, info.type) for info in session.get_inputs()]
[(info.name, info.shape, info.type) for info in session.get_outputs()]
[(info.name, info.shape, info.type) for info in session.get_overridable_initializers()]
session.get_modelmeta().producer_name
session.get_modelmeta().graph_name
session.get_modelmeta().graph_description
session.get_modelmeta().description
session.get_modelmeta().domain
session.get_modelmeta().version
session.get_modelmeta().custom_metadata_map
session.get_providers()
session.get_provider_options()
session.get_session_options().graph_optimization_level.name
session.get_profiling_start_time_ns()
session.end_profiling()
options.enable_profiling = True; options.profile_file_prefix = str(path); own = made(options);
    own.run(None, {"x": x}); own.end_profiling().startswith(str(path))
session.get_tuning_results()
session.set_tuning_results([])
session.set_ep_dynamic_options({"a": "b"})
session.release_captured_graph()
session.disable_fallback()
session.enable_fallback()
session.run(None, {"x": x})
session.run([], {"x": x})
session.run(["z"], {"x": x})
session.run(("z", "y"), {"x": x})
session.run(None, {"x": x.tolist()})
session.run(None, {"x": [[1, 2]]})
session.run(None, {"x": x}, ort.RunOptions())
session.run(output_names=["y"], input_feed={"x": x}, run_options=None)
session.run(["y"], {"x": ort.OrtValue.ortvalue_from_numpy(x)})
session.run(["q"], {"x": x})
session.run(None, {})
session.run(None, {"x": x, "k": x})
session.run(None, {"x": x.astype(np.float64)})
session.run(None, {"x": x[:, :1]})
session.run(None, {"x": x[0]})
session.run_with_ort_values(None, {"x": value})[1].numpy()
session.run_with_ort_values(["y"], {"x": value}, ort.RunOptions())[0].device_name()
ort.InferenceSession(MODEL, ort.SessionOptions(), ["CPUExecutionProvider"], [{}]).run(["y"], {"x": x})
ort.InferenceSession(path_or_bytes=MODEL, sess_options=None, providers=["CPUExecutionProvider"]).run(["y"], {"x": x})
ort.InferenceSession(path, providers=[("CPUExecutionProvider", {})]).get_providers()
ort.InferenceSession(str(path), providers=["CPUExecutionProvider"], enable_fallback=0).run(["z"], {"x": x})
ort.InferenceSession("nowhere.onnx")
ort.InferenceSession(b"nothing")
own.set_providers(["CPUExecutionProvider"]); own.get_providers()
options.add_free_dimension_override_by_name("N", 3); made(options).get_inputs()[0].shape
kept = ort.OrtValue.ortvalue_from_numpy(array[0]); options.add_initializer("w", kept); made(options).run(["y"], {"x": x})
kept = ort.OrtValue.ortvalue_from_numpy(array[0]); options.add_initializer("b", kept); made(options).run(["z"], {"x": x})
options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL; made(options).run(None, {"x": x})
options.graph_optimization_level = 99
options.execution_mode = 0
options.intra_op_num_threads = 2.5
options.intra_op_num_threads = 3; options.intra_op_num_threads
options.enable_mem_pattern = 0; options.enable_mem_pattern
options.speed = 1
options.logid = "a"; options.logid
options.add_session_config_entry("a", "b"); options.get_session_config_entry("a")
options.get_session_config_entry("a")
options.has_providers()
made(options).get_session_options().intra_op_num_threads
ort.SessionOptions().execution_mode.name
ort.SessionOptions().execution_order.value
ort.SessionOptions().profile_file_prefix
ort.SessionOptions().log_severity_level
sorted(ort.GraphOptimizationLevel.__members__)
sorted(ort.ExecutionMode.__members__)
sorted(ort.ExecutionOrder.__members__)
int(ort.GraphOptimizationLevel.ORT_ENABLE_ALL)
ort.GraphOptimizationLevel(1).name
int(ort.OrtDeviceVendorId.NVIDIA)
run_options.terminate = True; session.run(None, {"x": x}, run_options)
run_options.add_run_config_entry("a", "b"); run_options.get_run_config_entry("a")
run_options.get_run_config_entry("a")
run_options.log_severity_level = 3; run_options.log_severity_level
run_options.only_execute_path_to_fetches = True; session.run(["y"], {"x": x}, run_options)
answers(session, {"x": x})
bool(answers(session, {"x": x[0]})[0][2])
value.shape()
value.data_type()
value.element_type()
value.device_name()
value.has_value()
value.is_tensor()
value.is_tensor_sequence()
value.is_sparse_tensor()
value.tensor_size_in_bytes()
value.numpy()
np.shares_memory(value.numpy(), array)
value.data_ptr() == array.ctypes.data
value.__dlpack_device__()
np.asarray(value)
np.from_dlpack(value)
ort.OrtValue.from_dlpack(x).numpy()
value.update_inplace(array * 3); array
value.update_inplace(ort.OrtValue.ortvalue_from_numpy(np.zeros((1, 2), f32))); value.numpy()
value.update_inplace(np.ones(5, f32))
value.update_inplace([1, 2])
ort.OrtValue.ortvalue_from_numpy(np.array(3.0)).shape()
ort.OrtValue.ortvalue_from_numpy(np.ones((2, 3), f32).T).numpy()
ort.OrtValue.ortvalue_from_numpy(np.ones(2, bool)).data_type()
ort.OrtValue.ortvalue_from_numpy(np.ones(2, complex))
ort.OrtValue.ortvalue_from_numpy([1, 2])
ort.OrtValue.ortvalue_from_numpy(x, "mars", 0)
ort.OrtValue.ortvalue_from_shape_and_type([2, 3], np.int64).element_type()
ort.OrtValue.ortvalue_from_shape_and_type([2, 3], np.float16, "cpu", 0).shape()
ort.OrtValue.ortvalue_from_shape_and_type([2, 3], 16).data_type()
ort.OrtValue.ortvalue_from_numpy_with_onnx_type(np.ones(2, np.uint16), 16).data_type()
session.create_ortvalue_from_shape_and_type([2], np.float32, "cpu").data_type()
pairs.run_with_ort_values(None, {"x": ort.OrtValue.ortvalue_from_numpy(x[0])})[0].data_type()
pairs.run_with_ort_values(None, {"x": ort.OrtValue.ortvalue_from_numpy(x[0])})[0].is_tensor_sequence()
ort.OrtDevice.make("cpu", 0).device_type()
ort.OrtDevice.make("cuda", 1).device_type()
ort.OrtDevice.make("cuda", 1).device_id()
ort.OrtDevice.make("dml", 0).device_vendor_id()
ort.OrtDevice.make("gpu", 0, 0x10DE).device_vendor_id()
ort.OrtDevice.make("npu", 0).device_type()
ort.OrtDevice.make("cpu", 0).device_mem_type()
ort.OrtDevice.make("mars", 0)
binding.get_outputs()
binding.copy_outputs_to_cpu()
binding.synchronize_inputs()
binding.bind_cpu_input("x", x); binding.bind_output("y"); session.run_with_iobinding(binding); binding.copy_outputs_to_cpu()
binding.bind_cpu_input("x", x); binding.bind_output("z"); session.run_with_iobinding(binding);
    binding.get_outputs()[0].numpy()
binding.bind_cpu_input("x", x); binding.bind_output("z", "cpu"); session.run_with_iobinding(binding);
    binding.get_outputs()[0].shape()
binding.bind_cpu_input("x", x); binding.bind_output("z", "cpu"); session.run_with_iobinding(binding, run_options);
    binding.get_outputs()[0].data_type()
binding.bind_cpu_input("x", x); binding.bind_output("y"); session.run_with_iobinding(binding); binding.synchronize_outputs()
binding.bind_cpu_input("x", x); binding.bind_output("y", "cpu", 0, f32, [1, 2], array.ctypes.data);
    session.run_with_iobinding(binding); array
binding.bind_input("x", "cpu", 0, f32, [1, 2], array.ctypes.data); binding.bind_output("y");
    session.run_with_iobinding(binding); binding.copy_outputs_to_cpu()
binding.bind_input(name="x", device_type="cpu", device_id=0, element_type=1, shape=(1, 2), buffer_ptr=array.ctypes.data);
    binding.bind_output("z"); session.run_with_iobinding(iobinding=binding); binding.copy_outputs_to_cpu()
binding.bind_ortvalue_input("x", value); binding.bind_output(name="y", device_type="cpu", device_id=0);
    session.run_with_iobinding(binding); binding.get_outputs()[0].numpy()
binding.bind_ortvalue_input("x", ort.OrtValue.ortvalue_from_numpy(x)); binding.bind_ortvalue_output("z", value);
    session.run_with_iobinding(binding); value.numpy()
binding.bind_cpu_input("x", x); binding.bind_output("y", "cpu"); session.run_with_iobinding(binding);
    len(binding.get_outputs_as_ortvaluevector())
binding.bind_output("y"); binding.clear_binding_inputs(); binding.clear_binding_outputs(); binding.get_outputs()
binding.bind_cpu_input("q", x)
binding.bind_output("y", "cpu", 0, None, None, array.ctypes.data)
ort.IOBinding(session).get_outputs()
isinstance(session.io_binding(), ort.IOBinding)
isinstance(session.get_modelmeta(), ort.ModelMetadata)
all(isinstance(info, ort.NodeArg) for info in session.get_inputs())
ort.set_seed(3)
ort.set_default_logger_severity(3)
ort.set_default_logger_severity(9)
ort.set_default_logger_verbosity(0)
ort.disable_telemetry_events()
ort.enable_telemetry_events()
ort.has_collective_ops()
ort.import_capi_exception
ort.__version__.split(".")[0]
ort.get_version_string() == ort.__version__
"CPUExecutionProvider" in ort.get_available_providers()
{"CUDAExecutionProvider", "CPUExecutionProvider"} <= set(ort.get_all_providers())
""".strip()
    .replace("\n    ", " ")
    .splitlines()
)
"""Each line, with those indented below it, is a call; before the last semicolon stands what it needs."""


class Scene:
    """What the calls are made with: a runtime, with sessions that all of them share and things of each call's own."""

    def __init__(self, ort: ModuleType, path: Path) -> None:
        self.shared = {
            "ort": ort,
            "np": np,
            "f32": f32,
            "MODEL": MODEL,
            "path": path,
            "session": self._session(ort, MODEL, 2),
            "pairs": self._session(ort, SEQUENCES),
            "answers": answers,
            "made": lambda options: ort.InferenceSession(MODEL, options, providers=["CPUExecutionProvider"]),
        }

    @staticmethod
    def _session(ort: ModuleType, source: bytes, threads: int = 1) -> Any:
        options = ort.SessionOptions()
        options.log_severity_level, options.intra_op_num_threads = 4, threads  # run_async takes two in onnxruntime
        return ort.InferenceSession(source, options, providers=["CPUExecutionProvider"])

    def result(self, call: str) -> Any:
        """What a call returns, or the error that it raises."""
        ort = self.shared["ort"]
        array = np.array([[1.5, -2.0]], f32)
        names = self.shared | {
            "x": np.array([[1.0, 2.5]], f32),
            "array": array,
            "value": ort.OrtValue.ortvalue_from_numpy(array),
            "binding": self.shared["session"].io_binding(),
            "options": ort.SessionOptions(),
            "run_options": ort.RunOptions(),
        }
        if "own." in call:
            names["own"] = self._session(ort, MODEL)
        names["options"].log_severity_level = 4
        *before, last = ast.parse(call).body
        try:
            exec(compile(ast.Module(before, []), call, "exec"), names)
            if not isinstance(last, ast.Expr):
                exec(compile(ast.Module([last], []), call, "exec"), names)
                return None
            return eval(compile(ast.Expression(last.value), call, "eval"), names)
        except Exception as error:
            return error


def answers(session: Any, feeds: dict[str, Any]) -> list[Any]:
    """What ``run_async`` gives its callback, once it has."""
    found: list[Any] = []
    told = threading.Event()

    def take(*given: Any) -> None:
        found.append(given)
        told.set()

    session.run_async(["y"], feeds, take, "mine")
    assert told.wait(120), "no answer"
    return found


@pytest.fixture(scope="module")
def scenes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Scene]]:
    path = tmp_path_factory.mktemp("calls") / "model.onnx"
    path.write_bytes(MODEL)
    yield [Scene(ort, path) for ort in RUNTIMES]
    for ort in RUNTIMES:
        ort.set_default_logger_severity(2)
    logging.getLogger("dmlvk").setLevel(logging.NOTSET)


def same(found: Any, wanted: Any) -> None:
    """Asserts that two results are the same, and two errors of the same kind."""
    if isinstance(wanted, Exception):
        assert isinstance(found, counterpart(wanted)), repr(found)
    elif isinstance(wanted, list | tuple):
        assert type(found) is type(wanted) and len(found) == len(wanted), found
        for one, other in zip(found, wanted, strict=True):
            same(one, other)
    else:
        assert not isinstance(found, Exception), repr(found)
        np.testing.assert_array_equal(found, wanted)
        assert getattr(found, "dtype", None) == getattr(wanted, "dtype", None)


def counterpart(error: Exception) -> type[Exception]:
    """The error that a script which catches this one has to meet here. Plain ones mean that an argument is wrong."""
    kind = type(error)
    if "onnxruntime" in kind.__module__:
        return getattr(ours, kind.__name__)
    return kind if kind in (TypeError, AttributeError) else dmlvk.DmlvkError


@pytest.mark.parametrize("call", CALLS)
def test_a_call_does_what_it_does_in_onnxruntime(scenes: list[Scene], call: str) -> None:
    wanted, found = (scene.result(call) for scene in scenes)
    same(found, wanted)


def test_all_that_is_the_same_is_called() -> None:
    called = {word for call in CALLS for word in re.findall(r"\w+", call)}
    same_names = {name for names in NAMES.values() for name, row in names.items() if row == (Standing.SAME, "")}
    assert same_names <= called, sorted(same_names - called)
