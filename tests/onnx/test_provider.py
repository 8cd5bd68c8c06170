"""dmlvk as an execution provider of ONNX Runtime."""

from __future__ import annotations

import gc
import json
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from faults.layer import environment as layer_environment
from faults.layer import missing
from onnx import TensorProto, helper

import dmlvk
import dmlvk.ort

Opened = Callable[..., onnxruntime.InferenceSession]
VERSION = tuple(map(int, onnxruntime.__version__.split(".")[:2]))
beyond_1_23_0 = pytest.mark.skipif(onnxruntime.__version__ == "1.23.0", reason="1.23.0 copies nothing between providers")


@pytest.fixture
def opened(device: dmlvk.Device) -> Opened:
    """A session of ONNX Runtime's with the provider on the device under test, which leaves nothing to the processor."""
    dmlvk.ort.register()

    def make(
        model: onnx.ModelProto | Path,
        alone: bool = True,
        entries: dict[str, str] | None = None,
        traced: Path | None = None,
        **options: str,
    ) -> onnxruntime.InferenceSession:
        (chosen,) = [item for item in dmlvk.ort.get_devices() if item.ep_metadata["device_uuid"] == device.info.uuid]
        asked = onnxruntime.SessionOptions()
        asked.log_severity_level = 4
        asked.add_provider_for_devices([chosen], options)
        if traced:
            asked.enable_profiling, asked.profile_file_prefix = True, str(traced / "trace")
        for key, value in (entries or {}).items():
            asked.add_session_config_entry(key, value)
        if alone:
            asked.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
        source = str(model) if isinstance(model, Path) else model.SerializeToString()
        return onnxruntime.InferenceSession(source, asked, enable_fallback=0)

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


def test_values_on_the_device_need_an_onnx_runtime_that_has_them() -> None:
    with pytest.raises(RuntimeError, match=r"need ONNX Runtime 1\.23\.1 or newer; this is"):
        dmlvk.ort.memory_of(object())


def test_sizes_that_change_and_are_none(opened: Opened) -> None:
    session = opened(model_of([helper.make_node("Relu", ["x"], ["y"])], {"x": ["n", 2]}, ["y"]))
    for rows in (1, 3, 0, 7, 3):
        x = np.linspace(-1, 1, 2 * rows, dtype=np.float32).reshape(rows, 2)
        np.testing.assert_array_equal(session.run(None, {"x": x})[0], np.maximum(x, 0))


@beyond_1_23_0
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


@pytest.mark.parametrize(("version", "message"), [((23, 0), "needs 1.23.1; node 't' (ai.onnx::Cast)"), ((23, 1), "")])
def test_an_onnx_runtime_that_copies_nothing(version: tuple[int, int], message: str, device: dmlvk.Device) -> None:
    """1.23.0 has no kernels that copy: a model that it could run in part only is refused, with what helps."""
    cast = helper.make_node("Cast", ["a"], ["t"], to=TensorProto.STRING)
    for nodes, wanted in (([PRODUCT], ""), ([PRODUCT, cast], message)):
        session = dmlvk.ort.provider.Server().session([{"device_uuid": device.info.uuid}], {}, lambda *_: None, version)
        graph = model_of(nodes, {"x": [2, 6]}, ["a"], w=np.eye(6, dtype=np.float32)).graph
        kinds = {"x": TensorProto.FLOAT, "a": TensorProto.FLOAT, "t": TensorProto.STRING}
        graph.value_info.extend(helper.make_tensor_value_info(name, kind, None) for name, kind in kinds.items())
        given: Any = SimpleNamespace(proto=graph.SerializeToString(), weights={}, opsets={"": 17}, format_version=8)
        given.parent = lambda: None
        assert session.choose(given)[0] == [0]
        found = str(session._failure or "")
        assert wanted in found and bool(wanted) == bool(found)


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


def test_a_provider_that_fails_to_choose_fails_the_session(opened: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    """ONNX Runtime takes an error there for a provider that wants no node, and would go on with the processor."""
    monkeypatch.setattr(dmlvk.ort.provider.ProviderSession, "choose", lambda *_: "no lists of numbers")
    with pytest.raises(Exception, match="dmlvk: std::bad_cast"):
        opened(model_of([helper.make_node("Relu", ["x"], ["y"])], {"x": [2]}, ["y"]), alone=False)


def test_a_failing_run_leaves_the_session_usable(opened: Opened) -> None:
    nodes = [helper.make_node("Reshape", ["x", "to"], ["y"])]
    session = opened(model_of(nodes, {"x": ["n"]}, ["y"], to=np.array([2, -1], np.int64)))
    with pytest.raises(Exception, match="ModelError"):
        session.run(None, {"x": np.zeros(3, np.float32)})
    (y,) = session.run(None, {"x": np.arange(4, dtype=np.float32)})
    np.testing.assert_array_equal(y, [[0, 1], [2, 3]])


def test_a_model_that_keeps_its_parts(opened: Opened, tmp_path: Path) -> None:
    """ONNX Runtime writes a part as one node, which is opened without its weights being anywhere else."""
    path = tmp_path / "kept.onnx"
    weight = np.random.default_rng(0).standard_normal((64, 8), np.float32)
    nodes = [helper.make_node("MatMul", ["x", "w"], ["a"]), helper.make_node("Relu", ["a"], ["y"])]
    entries = {"ep.context_enable": "1", "ep.context_file_path": str(path), "ep.context_embed_mode": "1"}
    first = opened(model_of(nodes, {"x": ["n", 64]}, ["y"], w=weight), entries=entries)
    kept = onnx.load(path)
    assert [(node.domain, node.op_type) for node in kept.graph.node] == [("com.microsoft", "EPContext")]
    assert not kept.graph.initializer
    x = np.random.default_rng(1).standard_normal((3, 64), np.float32)
    np.testing.assert_array_equal(opened(kept).run(None, {"x": x})[0], first.run(None, {"x": x})[0])


def test_a_model_that_keeps_its_parts_beside_it(opened: Opened, tmp_path: Path) -> None:
    path = tmp_path / "kept.onnx"
    weight = np.random.default_rng(0).standard_normal((64, 8), np.float32)
    entries = {"ep.context_enable": "1", "ep.context_file_path": str(path), "ep.context_embed_mode": "0"}
    first = opened(model_of([PRODUCT], {"x": ["n", 64]}, ["a"], w=weight), entries=entries)
    (file,) = set(tmp_path.iterdir()) - {path}
    kept = onnx.load(path)
    (node,) = kept.graph.node
    known = {item.name: item for item in node.attribute}
    assert known["ep_cache_context"].s.decode() == file.name and not known["embed_mode"].i
    x = np.random.default_rng(1).standard_normal((3, 64), np.float32)
    np.testing.assert_array_equal(opened(path).run(None, {"x": x})[0], first.run(None, {"x": x})[0])
    beside = {"ep.context_file_path": str(path)}
    np.testing.assert_array_equal(opened(kept, entries=beside).run(None, {"x": x})[0], first.run(None, {"x": x})[0])
    for name in ("/etc/passwd", "../kept.bin", "C:\\kept.bin", ""):
        known["ep_cache_context"].s = name.encode()
        with pytest.raises(Exception, match="must be in the model's folder"):
            opened(kept, entries=beside)
    file.unlink()
    with pytest.raises(Exception, match="cannot be read"):
        opened(path)


def test_a_profile_is_written_when_the_session_is_closed(opened: Opened, tmp_path: Path) -> None:
    session = opened(model_of([helper.make_node("Relu", ["x"], ["y"])], {"x": [4]}, ["y"]), profile=f"{tmp_path}/part")
    session.run(None, {"x": np.ones(4, np.float32)})
    assert not [*tmp_path.iterdir()]
    del session
    (written,) = tmp_path.iterdir()
    assert "Relu" in written.read_text()


def test_kernels_are_in_the_trace_of_onnx_runtime(opened: Opened, tmp_path: Path) -> None:
    """Where its interface has a place for them, which is from 1.25 on."""
    session = opened(model_of([helper.make_node("Tanh", ["x"], ["y"], name="mine")], {"x": ["n"]}, ["y"]), traced=tmp_path)
    x = np.ones(4, np.float32)
    for _ in range(2):
        np.testing.assert_allclose(session.run(None, {"x": x})[0], np.tanh(x), rtol=1e-5)
    events = json.loads(Path(session.end_profiling()).read_text())
    kernels = [event for event in events if event["cat"] == "Kernel"]
    has_place = VERSION >= (1, 25)
    assert [event["args"]["node"] for event in kernels] == (["mine"] * 2 if has_place else [])
    parts = [event for event in events if event["cat"] == "Node" and event["name"].endswith("_kernel_time")]
    for kernel, part in zip(kernels, parts, strict=has_place):
        assert part["ts"] <= kernel["ts"] <= kernel["ts"] + kernel["dur"] <= part["ts"] + part["dur"] + 1


def test_several_threads_and_sessions(opened: Opened) -> None:
    weight = np.random.default_rng(0).standard_normal((64, 8), np.float32)
    model = model_of([helper.make_node("MatMul", ["x", "w"], ["y"])], {"x": ["n", 64]}, ["y"], w=weight)
    sessions = [opened(model), opened(model)]

    def work(number: int) -> bool:
        x = np.full((1 + number % 3, 64), number, np.float32)
        return all(np.allclose(sessions[number % 2].run(None, {"x": x})[0], x @ weight, rtol=1e-3) for _ in range(10))

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(work, range(1, 9)))


@beyond_1_23_0
def test_runs_that_feed_each_other_move_nothing(opened: Opened, device: dmlvk.Device) -> None:
    """Two tensors on the device take turns as input and output: no byte goes to the host, or comes from there."""
    weight = np.random.default_rng(0).standard_normal((64, 64), np.float32)
    nodes = [helper.make_node("MatMul", ["x", "w"], ["a"]), helper.make_node("Tanh", ["a"], ["y"])]
    session = opened(model_of(nodes, {"x": ["n", 64]}, ["y"], w=weight))
    (chosen,) = [item for item in dmlvk.ort.get_devices() if item.ep_metadata["device_uuid"] == device.info.uuid]
    x = np.random.default_rng(1).standard_normal((30, 64), np.float32)
    place = dmlvk.ort.memory_of(chosen)
    pair = [onnxruntime.OrtValue.ortvalue_from_numpy(array, *place) for array in (x, np.zeros_like(x))]
    binding = session.io_binding()

    def turn(number: int) -> None:
        binding.bind_ortvalue_input("x", pair[number % 2])
        binding.bind_ortvalue_output("y", pair[1 - number % 2])
        session.run_with_iobinding(binding)

    turn(0)
    native = dmlvk.default_device().native
    before = native.uploads, native.downloads
    for number in range(1, 6):
        turn(number)
    binding.synchronize_outputs()
    assert (native.uploads, native.downloads) == before
    wanted = x
    for _ in range(6):
        wanted = np.tanh(wanted @ weight)
    np.testing.assert_allclose(pair[0].numpy(), wanted, rtol=1e-3, atol=1e-3)
    for rows in (30, 7):
        dmlvk.ort.bind_output(binding, "y", chosen)
        binding.bind_ortvalue_input("x", onnxruntime.OrtValue.ortvalue_from_numpy(x[:rows], *place))
        session.run_with_iobinding(binding)
        (made,) = binding.get_outputs()
        np.testing.assert_allclose(made.numpy(), np.tanh(x[:rows] @ weight), rtol=1e-4, atol=1e-4)


@beyond_1_23_0
def test_shapes_that_the_host_must_know_may_be_on_the_device(opened: Opened, device: dmlvk.Device) -> None:
    nodes = [helper.make_node("Reshape", ["x", "to"], ["a"]), helper.make_node("Relu", ["a"], ["y"])]
    graph = model_of(nodes, {"x": ["n"]}, ["y"])
    graph.graph.input.append(helper.make_tensor_value_info("to", TensorProto.INT64, [2]))
    session = opened(graph)
    (chosen,) = [item for item in dmlvk.ort.get_devices() if item.ep_metadata["device_uuid"] == device.info.uuid]
    x = np.arange(12, dtype=np.float32)
    for sizes in ([3, 4], [2, 6], [3, 4]):
        binding = session.io_binding()
        for name, array in (("x", x), ("to", np.array(sizes))):
            value = onnxruntime.OrtValue.ortvalue_from_numpy(array, *dmlvk.ort.memory_of(chosen))
            binding.bind_ortvalue_input(name, value)
        dmlvk.ort.bind_output(binding, "y", chosen)
        session.run_with_iobinding(binding)
        np.testing.assert_array_equal(binding.copy_outputs_to_cpu()[0], x.reshape(sizes))


def test_known_sizes_run_without_python(opened: Opened) -> None:
    """Another thread's run reaches the device while this one has Python's lock and keeps it."""
    session = opened(model_of([helper.make_node("Tanh", ["x"], ["y"])], {"x": ["n"]}, ["y"]))
    x = np.linspace(-1, 1, 5, dtype=np.float32)
    session.run(None, {"x": x})
    native = dmlvk.default_device().native
    before = native.dispatches
    ended = threading.Event()
    results: list[Any] = []

    def done(outputs: list[Any], ended: threading.Event, error: str) -> None:
        results.append(error or outputs[0])
        ended.set()

    usual = sys.getswitchinterval()
    deadline = time.monotonic() + 60
    sys.setswitchinterval(100)
    try:
        session.run_async(None, {"x": x}, done, ended)
        while native.dispatches == before and time.monotonic() < deadline:
            pass
        has_run = native.dispatches > before
    finally:
        sys.setswitchinterval(usual)
    assert ended.wait(60)
    assert has_run
    np.testing.assert_allclose(results[0], np.tanh(x), rtol=1e-5)


IN_THE_LOOP = helper.make_graph(
    [
        helper.make_node("MatMul", ["state", "w"], ["next"]),
        helper.make_node("Cast", ["next"], ["text"], to=TensorProto.STRING),
        helper.make_node("Cast", ["text"], ["row"], to=TensorProto.FLOAT),
        helper.make_node("Identity", ["go"], ["go_on"]),
    ],
    "body",
    [
        helper.make_tensor_value_info("round", TensorProto.INT64, []),
        helper.make_tensor_value_info("go", TensorProto.BOOL, []),
        helper.make_tensor_value_info("state", TensorProto.FLOAT, None),
    ],
    [
        helper.make_tensor_value_info("go_on", TensorProto.BOOL, []),
        helper.make_tensor_value_info("next", TensorProto.FLOAT, None),
        helper.make_tensor_value_info("row", TensorProto.FLOAT, None),
    ],
)
PRODUCT = helper.make_node("MatMul", ["x", "w"], ["a"])


@pytest.mark.parametrize(
    ("nodes", "outputs"),
    [
        pytest.param(
            [helper.make_node("Loop", ["three", "", "x"], ["a", "rows"], body=IN_THE_LOOP)],
            ["a", "rows"],
            id="inside a loop",
            marks=beyond_1_23_0,
        ),
        pytest.param(
            [PRODUCT, helper.make_node("Identity", ["x"], ["same"])], ["a", "same", "w"], id="inputs and constants"
        ),
        pytest.param([helper.make_node("MatMul", ["x", "w"], ['输出 {}%s\n"'], name='"é\\')], ['输出 {}%s\n"'], id="names"),
        pytest.param([helper.make_node("Clip", ["x", "", "one"], ["c"]), PRODUCT], ["c", "a"], id="an optional input"),
        pytest.param(
            [PRODUCT, helper.make_node("Split", ["a"], ["left", "middle", "right"], axis=1)], ["right"], id="unused outputs"
        ),
        pytest.param([helper.make_node("NonZero", ["x"], ["nz"]), PRODUCT], ["nz", "a"], id="sizes that the device finds"),
        pytest.param([PRODUCT, helper.make_node("Shape", ["a"], ["sizes"])], ["a", "sizes"], id="a result that is known"),
    ],
)
def test_what_goes_in_and_comes_out(nodes: list[onnx.NodeProto], outputs: list[str], opened: Opened) -> None:
    """ONNX Runtime's processor gives the same, for any number of rows."""
    weight = np.random.default_rng(0).standard_normal((6, 6), np.float32)
    model = model_of(nodes, {"x": ["n", 6]}, outputs, w=weight, three=np.array(3), one=np.float32(1))
    wanted = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    session = opened(model, alone=False)
    for rows in (2, 0, 3, 2):
        x = np.random.default_rng(rows).standard_normal((rows, 6), np.float32)
        for mine, theirs in zip(session.run(None, {"x": x}), wanted.run(None, {"x": x}), strict=True):
            assert mine.shape == theirs.shape
            np.testing.assert_allclose(mine, theirs, rtol=1e-4, atol=1e-4)


def test_operators_that_onnx_runtime_puts_into_onnx_s_domain(opened: Opened) -> None:
    node = helper.make_node("SimplifiedLayerNormalization", ["x", "scale"], ["y"], axis=-1, epsilon=1e-6)
    session = opened(model_of([node], {"x": ["n", 6]}, ["y"], scale=np.full(6, 2, np.float32)))
    x = np.random.default_rng(0).standard_normal((3, 6), np.float32)
    wanted = 2 * x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True))
    np.testing.assert_allclose(session.run(None, {"x": x})[0], wanted, rtol=1e-4)


ENDS = {
    "a session that is global": "",
    "a tensor on the device": "value = onnxruntime.OrtValue.ortvalue_from_numpy(x, *dmlvk.ort.memory_of(device))",
    "a library that is unregistered": "del session; onnxruntime.unregister_execution_provider_library(name)",
    "a child": "\n".join(
        [
            "child = os.fork()",
            "if not child:",
            "    try:",
            "        session.run(None, {'x': x})",
            "    except Exception as error:",
            "        os._exit(0 if 'StateError' in str(error) else 3)",
            "    os._exit(4)",
            "assert os.waitpid(child, 0)[1] == 0",
            "session.run(None, {'x': x})",
        ]
    ),
}


@pytest.mark.full
@pytest.mark.parametrize("way", [pytest.param(way, marks=beyond_1_23_0) if "tensor" in way else way for way in ENDS])
def test_how_a_process_may_end(way: str) -> None:
    """Whatever is still there when the interpreter ends, the process ends well."""
    if way == "a child" and not hasattr(os, "fork"):
        pytest.skip("the system has no fork")
    node = helper.make_node("Tanh", ["x"], ["y"])
    model = model_of([node], {"x": [4]}, ["y"]).SerializeToString()
    program = f"""
import os
import numpy as np, onnxruntime
import dmlvk.ort
dmlvk.ort.register()
name = dmlvk.ort.get_ep_name()
device = dmlvk.ort.get_devices()[0]
options = onnxruntime.SessionOptions()
options.add_provider_for_devices([device], {{}})
session = onnxruntime.InferenceSession({model!r}, options)
x = np.ones(4, np.float32)
session.run(None, {{"x": x}})
{ENDS[way]}
print("the end")
"""
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=300, check=False)
    assert (ended.returncode, ended.stdout) == (0, "the end\n"), ended.stderr


WHEN_LOST = """
import numpy as np, onnxruntime
import dmlvk.ort
from faults.layer import Layer

dmlvk.ort.register()
device = dmlvk.ort.get_devices()[0]
place = dmlvk.ort.memory_of(device)


def opened():
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
    options.add_provider_for_devices([device], {})
    return onnxruntime.InferenceSession(MODEL, options, enable_fallback=0)


def run(session, value=None):
    binding = session.io_binding()
    binding.bind_ortvalue_input("x", value or onnxruntime.OrtValue.ortvalue_from_numpy(x, *place))
    dmlvk.ort.bind_output(binding, "y", device)
    session.run_with_iobinding(binding)
    return binding.get_outputs()[0].numpy()


def refused(call):
    try:
        call()
    except Exception as error:
        assert "DeviceLostError: vkQueueSubmit: VK_ERROR_DEVICE_LOST" in str(error), error
    else:
        raise AssertionError("the lost device works")


x = np.linspace(-2, 2, 600, dtype=np.float32)
first, other = opened(), opened()
wanted = first.run(None, {"x": x})[0]
lost = onnxruntime.OrtValue.ortvalue_from_numpy(x, *place)
layer = Layer()
layer.plan("vkQueueSubmit", 1, 1, "VK_ERROR_DEVICE_LOST")
refused(lambda: first.run(None, {"x": x}))
assert layer.fired == 1
layer.count()
for session in (first, other):
    refused(lambda: session.run(None, {"x": x}))
    refused(lambda: session.run(None, {"x": x[:7]}))
refused(lost.numpy)
again = opened()
np.testing.assert_array_equal(again.run(None, {"x": x})[0], wanted)
np.testing.assert_array_equal(run(again), wanted)
refused(lambda: run(again, lost))
np.testing.assert_array_equal(run(again), wanted)
del first, other, lost
np.testing.assert_array_equal(run(again), wanted)
print("the end")
"""


@beyond_1_23_0
@pytest.mark.full
def test_a_lost_device_is_an_error_until_a_session_is_opened() -> None:
    """Whatever was on the device says so; a new session has a new device, and works beside what is left of the lost one."""
    if why := missing():
        pytest.skip(why)
    model = model_of([helper.make_node("Tanh", ["x"], ["y"])], {"x": ["n"]}, ["y"]).SerializeToString()
    folder = str(Path(__file__).parents[1])
    environment = {**os.environ, **layer_environment()}
    environment["PYTHONPATH"] = os.pathsep.join([folder, *filter(None, [environment.get("PYTHONPATH")])])
    program = [sys.executable, "-c", f"MODEL = {model!r}\n{WHEN_LOST}"]
    ended = subprocess.run(program, capture_output=True, text=True, timeout=300, check=False, env=environment)
    assert (ended.returncode, ended.stdout) == (0, "the end\n"), ended.stderr


@pytest.mark.full
def test_sessions_that_are_closed_leave_nothing_behind(opened: Opened, device: dmlvk.Device) -> None:
    weight = np.random.default_rng(0).standard_normal((64, 64), np.float32)
    model = model_of([helper.make_node("MatMul", ["x", "w"], ["y"])], {"x": ["n", 64]}, ["y"], w=weight)
    x = np.ones((3, 64), np.float32)
    taken = []
    for _ in range(200):
        opened(model).run(None, {"x": x})
        taken.append({key: device.memory()[key] for key in ("live", "weights", "temporary", "parameters")})
    assert taken[20] == taken[-1]


def test_a_session_that_is_refused_leaves_nothing_behind(opened: Opened) -> None:
    """Why it is refused is kept until ONNX Runtime asks, and must not keep the session."""
    nodes = [
        helper.make_node("Neg", ["x"], ["a"]),
        helper.make_node("Cast", ["a"], ["text"], to=TensorProto.STRING),
        helper.make_node("Cast", ["text"], ["y"], to=TensorProto.FLOAT),
    ]

    def alive() -> int:
        gc.collect()
        return sum(isinstance(item, onnxruntime.InferenceSession) for item in gc.get_objects())

    before = alive()
    for _ in range(3):
        with pytest.raises(Exception, match="cannot run on the device"):
            opened(model_of(nodes, {"x": ["n"]}, ["y"]), alone=False, on_unsupported="error")
    assert alive() == before


@beyond_1_23_0
def test_freed_memory_goes_with_the_last_session(opened: Opened) -> None:
    """What ONNX Runtime frees is kept for its next tensor, and only for as long as there is a session to have one."""
    device = dmlvk.default_device()

    def live() -> int:
        gc.collect()
        memory = device.memory()
        return memory["live"] - memory["parameters"]

    before = live()
    model = model_of([helper.make_node("Neg", ["x"], ["y"])], {"x": ["n"]}, ["y"])
    x = np.ones(1 << 20, np.float32)
    sessions = [opened(model), opened(model)]
    for session in sessions:
        session.run(None, {"x": x})
    del session
    sessions.pop()
    assert live() >= before + x.nbytes
    value = sessions[0].run_with_ort_values(None, {"x": onnxruntime.OrtValue.ortvalue_from_numpy(x)})
    sessions.pop()
    del value
    assert live() == before


@pytest.mark.full
def test_the_slots_are_those_of_the_public_headers() -> None:
    """DMLVK_ORT_HEADERS names a folder with onnxruntime_c_api.h and onnxruntime_ep_c_api.h."""
    if "DMLVK_ORT_HEADERS" not in os.environ:
        pytest.skip("there are no headers: DMLVK_ORT_HEADERS is not set")
    folder = Path(os.environ["DMLVK_ORT_HEADERS"])
    theirs = slots("".join((folder / name).read_text() for name in ("onnxruntime_c_api.h", "onnxruntime_ep_c_api.h")))
    ours = (Path(__file__).parents[2] / "native" / "ort" / "interface.h").read_text()
    tables = {"DMLVK_ORT_API": "OrtApi", "DMLVK_ORT_EP_API": "OrtEpApi", "DMLVK_ORT_MODEL_EDITOR_API": "OrtModelEditorApi"}
    for table, struct in tables.items():
        text = ours[ours.index(f"#define {table}(CALL)") :].split("\n\n")[0]
        found = re.findall(r"CALL\((\d+), (\d+), [^,]+, (\w+)", text)
        assert found, table
        for slot, _, name in found:
            assert theirs[struct][int(slot)] == name, f"{struct} {slot}"
    for struct in ("OrtEp", "OrtEpFactory", "OrtNodeComputeInfo"):
        body = ours[ours.index(f"\nstruct {struct} {{") :].split("\n};")[0]
        names = re.findall(r"(?:\(DMLVK_ORT_CALL\* (\w+)\)|Unused (\w+);)", body)
        assert [one or other for one, other in names] == theirs[struct][: len(names)], struct


def slots(header: str) -> dict[str, list[str]]:
    """The names of the functions of each table of a header, in order."""
    text = re.sub(r"//[^\n]*|/\*.*?\*/|^\s*#[^\n]*", "", header, flags=re.DOTALL | re.MULTILINE)
    kinds = r"ORT_API2_STATUS\((\w+)|ORT_API_T\([^,;]+,\s*(\w+)|ORT_CLASS_RELEASE\((\w+)\)|\(ORT_API_CALL\s*\*\s*(\w+)\)"
    kinds += r"|^\s*void\s*\(\s*\*\s*(\w+)\)"
    found: dict[str, list[str]] = {}
    for struct, body in re.findall(r"\nstruct (Ort\w+) \{(.*?)\n\};", text, re.DOTALL):
        statements = (re.search(kinds, part) for part in body.split(";"))
        found[struct] = [
            match[1] or match[2] or (f"Release{match[3]}" if match[3] else match[4] or match[5])
            for match in statements
            if match
        ]
    return found
