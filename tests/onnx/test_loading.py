"""Loading: weights apart from the graph, memory while they are placed, pipelines in several threads, progress."""

from __future__ import annotations

import dataclasses
import io
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import dmlvk
from dmlvk.cli import main
from dmlvk.engine.transfer import to_device
from dmlvk.engine.weights import Target, _batches
from dmlvk.onnx import InferenceSession, SessionOptions
from dmlvk.onnx.model import load_model, read_initializer
from dmlvk.onnx.weights import STAND_IN, with_weights, without_weights

pytestmark = pytest.mark.quick
f32 = np.float32
Make = Callable[..., onnx.ModelProto]
MakeSession = Callable[..., InferenceSession]


@pytest.fixture(scope="module")
def branches(make_model: Make) -> onnx.ModelProto:
    """Three branches of convolutions, whose filters are repacked, and a product."""
    rng = np.random.default_rng(3)
    constants, nodes, made = {}, [], []
    for branch, width in enumerate((32, 48, 64)):
        x = "x"
        for depth in range(2):
            name = f"c{branch}{depth}"
            constants[f"{name}.w"] = rng.standard_normal((width, 16 if depth == 0 else width, 3, 3)).astype(f32)
            constants[f"{name}.b"] = rng.standard_normal(width).astype(f32)
            nodes.append(helper.make_node("Conv", [x, f"{name}.w", f"{name}.b"], [name], name, pads=[1] * 4))
            x = f"{name}.relu"
            nodes.append(helper.make_node("Relu", [name], [x], x))
        made.append(x)
    nodes += [
        helper.make_node("Concat", made, ["all"], "all", axis=1),
        helper.make_node("GlobalAveragePool", ["all"], ["pool"], "pool"),
        helper.make_node("Flatten", ["pool"], ["flat"], "flat"),
        helper.make_node("MatMul", ["flat", "m"], ["y"], "head"),
    ]
    constants["m"] = rng.standard_normal((144, 1000)).astype(f32)
    return make_model(nodes, {"x": (f32, (1, 16, 24, 24))}, constants=constants)


def _image() -> dict[str, np.ndarray]:
    return {"x": np.random.default_rng(5).standard_normal((1, 16, 24, 24)).astype(f32)}


# ---- the file


def test_weights_apart(branches: onnx.ModelProto) -> None:
    file = branches.SerializeToString()
    light, weights = without_weights(file)
    large = {item.name: item for item in branches.graph.initializer if len(item.raw_data) >= 1024}
    assert weights.keys() == large.keys() and len(light) < 10_000
    assert all(bytes(weights[name]) == item.raw_data for name, item in large.items())
    parsed = onnx.ModelProto.FromString(light)
    assert [item.name for item in parsed.graph.initializer] == [item.name for item in branches.graph.initializer]
    assert {item.raw_data for item in parsed.graph.initializer if item.name in large} == {STAND_IN}
    assert with_weights(parsed, weights) == branches
    arrays = load_model(file).initializers
    for item in branches.graph.initializer:
        np.testing.assert_array_equal(arrays[item.name], numpy_helper.to_array(item))


def test_every_type_of_weight(make_model: Make) -> None:
    """Weights are read as they are when all of the message is parsed."""
    model = make_model(helper.make_node("Relu", ["x"], ["y"]), {"x": (f32, (1,))}, opset=21)
    model.ir_version = 10
    halves = {TensorProto.INT4, TensorProto.UINT4}
    data = np.random.default_rng(0).integers(0, 60, 4096, np.uint8).tobytes()
    for code in (*halves, TensorProto.BFLOAT16, TensorProto.FLOAT8E4M3FN, TensorProto.FLOAT16, TensorProto.DOUBLE):
        item = model.graph.initializer.add(name=f"w{code}", data_type=code, raw_data=data)
        item.dims.append(len(data) * 8 // (4 if code in halves else {10: 16, 11: 64, 16: 16, 17: 8}[code]))
    file = model.SerializeToString()
    assert len(without_weights(file)[1]) == 6
    arrays = load_model(file).initializers
    for item in model.graph.initializer:
        wanted = read_initializer(item)
        assert arrays[item.name].dtype == wanted.dtype
        np.testing.assert_array_equal(arrays[item.name], wanted)


@pytest.mark.parametrize(
    "change",
    [
        lambda tensor: tensor.dims.append(2),
        lambda tensor: setattr(tensor, "raw_data", tensor.raw_data[:-1]),
        lambda tensor: tensor.float_data.append(1.0),
        lambda tensor: setattr(tensor, "data_type", TensorProto.STRING),
        lambda tensor: tensor.dims.__setitem__(0, 0),
        lambda tensor: tensor.dims.__setitem__(0, -1),
        lambda tensor: setattr(tensor, "name", "m"),
    ],
    ids=["more sizes", "fewer bytes", "two kinds of data", "strings", "no elements", "negative size", "twice"],
)
def test_broken_weights(change: Callable[[onnx.TensorProto], None], branches: onnx.ModelProto) -> None:
    model = onnx.ModelProto()
    model.CopyFrom(branches)
    change(model.graph.initializer[0])
    for source in (model, model.SerializeToString()):
        with pytest.raises(dmlvk.ModelError):
            load_model(source)


def test_what_is_no_message_stays_as_it_is(branches: onnx.ModelProto) -> None:
    file = branches.SerializeToString()
    rng = np.random.default_rng(0)
    cut = [file[: int(end)] for end in rng.integers(1, len(file), 20)]
    for data in (b"", b"\xff" * 40, b"\x3b" + file, *cut):
        light, weights = without_weights(data)
        assert light == data and not weights
    # An unknown field, a graph in two parts and a number longer than it must be are protobuf's to judge, and are the same.
    for data in (b"\xfa\x07\x01a" + file, file + helper.make_model(helper.make_graph([], "", [], [])).SerializeToString()):
        light, weights = without_weights(data)
        assert with_weights(onnx.ModelProto.FromString(light), weights) == onnx.ModelProto.FromString(data)


def test_external_weights_are_read_once(branches: onnx.ModelProto, tmp_path: Path) -> None:
    model = onnx.ModelProto()
    model.CopyFrom(branches)  # saving changes it
    onnx.save(model, tmp_path / "m.onnx", save_as_external_data=True, location="m.bin", size_threshold=0)
    arrays = load_model(tmp_path / "m.onnx").initializers
    for item in branches.graph.initializer:
        np.testing.assert_array_equal(arrays[item.name], numpy_helper.to_array(item))


# ---- the device


@pytest.fixture
def own_device() -> Iterator[dmlvk.Device]:
    """One whose memory nothing else uses."""
    device = dmlvk.Device()
    yield device
    device.wait_idle()


@pytest.mark.slow
def test_memory_stays_below_the_rule(branches: onnx.ModelProto, own_device: dmlvk.Device) -> None:
    own_device.capabilities = dataclasses.replace(own_device.capabilities, is_cpu=False)  # a GPU repacks filters
    own_device.reset_peak_memory()
    session = InferenceSession(branches, own_device)
    session.run(None, _image())
    report = session.report()
    parameters = own_device.memory()["parameters"]
    repacked = {step.node for step in report.steps if session.explain(step.node).operators[0].persistent_bytes}
    assert len(repacked) >= 6, "filters are repacked, or this shows nothing"
    live = 4 * 24 * 24 * (16 + 32 + 48 + 64)
    assert live / 4 < report.largest_live_bytes <= report.activation_bytes <= 1.2 * report.largest_live_bytes
    assert report.peak_device_bytes - parameters <= report.weights_bytes + 1.2 * report.largest_live_bytes
    assert 0 < report.staging_bytes <= 64 << 20
    memory = own_device.memory()
    assert memory["weights"] == report.weights_bytes, "originals of what is repacked are gone"


def test_what_runs_once_leaves_only_its_results(make_model: Make, own_device: dmlvk.Device) -> None:
    rng = np.random.default_rng(9)
    constants = {f"m{index}": rng.standard_normal((64, 64)).astype(f32) / 8 for index in range(3)}
    constants["k"] = rng.standard_normal((64, 2048)).astype(f32)
    nodes = []
    for index in range(3):
        inputs = [f"m{index}", f"m{index}"], [f"a{index}", f"m{index}"]
        nodes.append(helper.make_node("Einsum", inputs[0], [f"a{index}"], equation="ij,kj->ik"))
        nodes.append(helper.make_node("Einsum", inputs[1], [f"b{index}"], equation="ij,kj->ik"))
        nodes.append(helper.make_node("MatMul", ["x", f"b{index}"], [f"c{index}"]))
    nodes += [helper.make_node("Sum", ["c0", "c1", "c2"], ["s"]), helper.make_node("MatMul", ["s", "k"], ["y"])]
    session = InferenceSession(make_model(nodes, {"x": (f32, (4, 64))}, constants=constants), own_device)
    x = rng.standard_normal((4, 64)).astype(f32)
    (found,) = session.run(None, {"x": x})
    wanted = sum(x @ (m @ m.T @ m.T) for m in (constants[f"m{index}"] for index in range(3))) @ constants["k"]
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4 * np.abs(wanted).max())
    report, memory = session.report(), own_device.memory()
    assert memory["weights"] == report.weights_bytes == 4 * (3 * 64 * 64 + 64 * 2048)
    assert memory["peak"] - memory["parameters"] <= report.weights_bytes + 1.2 * report.largest_live_bytes


def test_what_measures_is_not_measured(branches: onnx.ModelProto, own_device: dmlvk.Device) -> None:
    session = InferenceSession(branches, own_device)
    session.run(None, _image())
    peak = own_device.memory()["peak"]
    first, second = session.profile(_image()), session.profile(_image())
    assert first.copy_bandwidth == second.copy_bandwidth, "measured once"
    assert peak == own_device.memory()["peak"] == second.peak_device_bytes < 32 << 20


def test_batches() -> None:
    sizes = dict(enumerate((5, 100, 1, 30, 0, 30, 7, 0)))
    targets = [Target(index, ()) for index in sizes]  # type: ignore[arg-type]  # a number stands for an operator
    batches = list(_batches(targets, sizes, 0))  # type: ignore[arg-type]
    assert sorted(target.operator for batch in batches for target in batch) == list(sizes)
    rest = sum(sizes.values())
    for batch in batches:
        nbytes = sum(sizes[target.operator] for target in batch)  # type: ignore[index]
        rest -= nbytes
        assert nbytes <= rest or sum(sizes[target.operator] > 0 for target in batch) <= 1  # type: ignore[index]
    assert not list(_batches([], {}, 0))
    assert len(list(_batches(targets, sizes, 1000))) == 1  # type: ignore[arg-type]
    assert len(list(_batches(targets[4:5], {4: 0}, 0))) == 1  # type: ignore[dict-item]


def test_pipelines_are_created_in_several_threads_once(
    branches: onnx.ModelProto, own_device: dmlvk.Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = InferenceSession(branches).run(None, _image())
    threads: dict[object, list[str]] = {}
    create = own_device._create_kernel
    beside = threading.Event()

    def counted(variant: Any) -> Any:
        name = threading.current_thread().name
        threads.setdefault(variant, []).append(name)
        if name.startswith("dmlvk-pipelines"):
            beside.set()
        else:  # whoever needs a pipeline that no thread has begun creates it, while the threads create others
            assert beside.wait(60), "no thread creates pipelines"
        return create(variant)

    monkeypatch.setattr(own_device, "_create_kernel", counted)
    found = InferenceSession(branches, own_device).run(None, _image())
    np.testing.assert_array_equal(found[0], wanted[0])
    assert len(threads) > 2 and all(len(names) == 1 for names in threads.values()) and beside.is_set()
    before = own_device.pipelines_created
    InferenceSession(branches, own_device)
    assert own_device.pipelines_created == before


def test_a_pipeline_that_fails_is_told_by_who_needs_it(
    branches: onnx.ModelProto, own_device: dmlvk.Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    create = own_device._create_kernel

    def failing(variant: Any) -> Any:
        if "pool" in variant.kernel or "reduce" in variant.kernel or "mean" in variant.kernel:
            raise dmlvk.UnsupportedError(f"{variant.kernel} cannot be", operator="test")
        return create(variant)

    with monkeypatch.context() as patched:
        patched.setattr(own_device, "_create_kernel", failing)
        with pytest.raises(dmlvk.UnsupportedNodeError) as caught:
            InferenceSession(branches, own_device)
    assert caught.value.node == "pool"
    assert InferenceSession(branches, own_device).run(None, _image())[0].shape == (1, 1000)


def test_deferred_lists_run_in_order(own_device: dmlvk.Device) -> None:
    first, second = own_device.create_buffer(64), own_device.create_buffer(64)
    copy, back = own_device.create_command_list(), own_device.create_command_list()
    copy.copy_buffer_region(second, 0, first, 0, 64)
    back.copy_buffer_region(first, 0, second, 0, 32)
    before = own_device.native.submissions
    first.write(np.full(16, 1, np.int32))
    copy.submit(defer=True)
    back.submit(defer=True)
    assert own_device.native.submissions == before, "nothing has been handed over"
    first.write(np.full(4, 2, np.int32), 32)  # after the lists: it must not overtake them
    assert own_device.native.submissions == before + 1
    np.testing.assert_array_equal(second.read().view(np.int32), np.full(16, 1))
    np.testing.assert_array_equal(first.read().view(np.int32), [1] * 8 + [2] * 4 + [1] * 4)
    before = own_device.native.submissions
    copy.submit(defer=True)
    assert copy.wait() and own_device.native.submissions == before + 1, "a wait hands over"
    copy.submit(defer=True)
    copy.submit(defer=True)  # waits for itself
    own_device.flush()
    assert copy.wait(10) and own_device.native.submissions == before + 3
    np.testing.assert_array_equal(second.read().view(np.int32), [1] * 8 + [2] * 4 + [1] * 4)
    copy.submit(defer=True)
    del copy, back  # while it waits
    np.testing.assert_array_equal(first.read().view(np.int32), [1] * 8 + [2] * 4 + [1] * 4)


def test_a_run_is_one_submission(make_model: Make, own_device: dmlvk.Device) -> None:
    session = InferenceSession(make_model(helper.make_node("Cos", ["x"], ["y"]), {"x": (f32, (3,))}), own_device)
    x = np.arange(3, dtype=f32)
    session.run(None, {"x": x})
    (on_device,) = session.run_with_device_arrays(None, {"x": x})
    binding = session.io_binding()
    binding.bind_input("x", on_device)
    binding.bind_output("y")
    for run in (
        lambda: session.run(None, {"x": x}),
        lambda: session.run_with_device_arrays(None, {"x": x}),
        lambda: session.run_with_device_arrays(None, {"x": on_device}),
        lambda: session.run_with_iobinding(binding),
    ):
        own_device.wait_idle()
        before = own_device.native.submissions
        run()
        assert own_device.native.submissions == before + 1
    binding.synchronize_outputs()
    np.testing.assert_allclose(binding.copy_outputs_to_cpu()[0], np.cos(np.cos(x)), atol=1e-6)


def test_a_binding_records_its_copies_once(make_model: Make, own_device: dmlvk.Device) -> None:
    session = InferenceSession(make_model(helper.make_node("Cos", ["x"], ["y"]), {"x": (f32, (3,))}), own_device)
    first, second = (to_device(own_device, np.full(3, value, f32), dmlvk.TensorDataType.FLOAT32) for value in (1, 2))
    binding = session.io_binding()
    binding.bind_output("y", to_device(own_device, np.zeros(3, f32), dmlvk.TensorDataType.FLOAT32))
    lists = []
    for array in (first, first, second, first):
        binding.bind_input("x", array)
        session.run_with_iobinding(binding)
        lists.append((binding.feeding._kept[1], binding.commands))
        np.testing.assert_allclose(binding.copy_outputs_to_cpu()[0], np.cos(array.numpy()), atol=1e-6)
    assert lists[0] == lists[1] and lists[1][0] is not lists[2][0] is not lists[3][0]
    assert len({commands for _, commands in lists}) == 1


def test_a_constant_output_over_an_input(make_model: Make, own_device: dmlvk.Device) -> None:
    """What the host knows before the run goes there after the input has been read."""
    nodes = [helper.make_node("Cos", ["x"], ["y"]), helper.make_node("Add", ["k", "k"], ["c"])]
    model = make_model(nodes, {"x": (f32, (3,))}, ("y", "c"), {"k": np.arange(3, dtype=f32)})
    session = InferenceSession(model, own_device)
    array = to_device(own_device, np.full(3, 5, f32), dmlvk.TensorDataType.FLOAT32)
    binding = session.io_binding()
    binding.bind_input("x", array)
    binding.bind_output("y")
    binding.bind_output("c", array)
    session.run_with_iobinding(binding)
    found = binding.copy_outputs_to_cpu()
    np.testing.assert_allclose(found[0], np.cos(np.full(3, 5, f32)), atol=1e-6)
    np.testing.assert_array_equal(found[1], [0, 2, 4])


# ---- progress


def test_progress(branches: onnx.ModelProto, own_device: dmlvk.Device) -> None:
    told: list[tuple[str, int, int]] = []
    session = InferenceSession(branches, own_device, progress=lambda *where: told.append(where))
    phases = list(dict.fromkeys(phase for phase, _, _ in told))
    assert phases[:2] == ["parsing", "folding"] and sorted(phases[2:]) == ["compiling pipelines", "uploading"]
    for phase in phases:
        dones = [done for name, done, _ in told if name == phase]
        ends = {total for name, _, total in told if name == phase}
        assert dones[0] == 0 and dones == sorted(dones) and ends == {dones[-1]}
    totals = {phase: total for phase, _, total in told}
    assert totals["uploading"] == sum(array.nbytes for array in load_model(branches).initializers.values())
    assert totals["compiling pipelines"] == own_device.pipelines_created
    told.clear()
    session.run(None, _image())
    assert not told

    def refuse(phase: str, done: int, total: int) -> None:
        raise KeyboardInterrupt(phase)

    with pytest.raises(KeyboardInterrupt):
        InferenceSession(branches, own_device, progress=refuse)


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_terminal_shows_progress(
    branches: onnx.ModelProto, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    onnx.save(branches, tmp_path / "m.onnx")
    monkeypatch.setattr("dmlvk.onnx.command_line._PATIENCE", -1.0)
    monkeypatch.setattr("dmlvk.engine.progress._SECONDS_BETWEEN", 0.0)
    terminal = _Terminal()
    with monkeypatch.context() as patched:
        patched.setattr(sys, "stderr", terminal)
        assert main(["run", str(tmp_path / "m.onnx")]) == 0
    shown = [line.removesuffix("\x1b[K") for line in terminal.getvalue().split("\r")]
    assert any("] 100%" in line and line.endswith("parsing") for line in shown)
    assert any(line.startswith("[####") and line.endswith("uploading") for line in shown)
    assert shown[-1] == "", "the line is wiped out"
    monkeypatch.setattr("dmlvk.onnx.command_line._PATIENCE", 3600.0)
    for stream in (_Terminal(), io.StringIO()):
        with monkeypatch.context() as patched:
            patched.setattr(sys, "stderr", stream)
            assert main(["run", str(tmp_path / "m.onnx")]) == 0
        assert not stream.getvalue()
    assert "on the GPU" in capsys.readouterr().out


# ---- a node explained


def test_explain(make_model: Make, make_session: MakeSession) -> None:
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["a"], name="conv", pads=[1] * 4),
        helper.make_node("Relu", ["a"], ["b"], name="relu"),
        helper.make_node("Shape", ["b"], ["s"], name="shape"),
        helper.make_node("Reshape", ["b", "s"], ["c"], name="view"),
        helper.make_node("Add", ["k", "k"], ["f"], name="folded"),
        helper.make_node("Mul", ["c", "f"], ["y"]),
        helper.make_node("Cos", ["c"], ["unread"], name="unread"),
    ]
    rng = np.random.default_rng(0)
    constants = {"w": rng.standard_normal((4, 3, 3, 3)).astype(f32), "k": rng.standard_normal((1, 4, 1, 1)).astype(f32)}
    model = make_model(nodes, {"x": (f32, ("N", 3, 8, 8))}, constants=constants)
    session = make_session(model)
    with pytest.raises(dmlvk.StateError, match="call run first"):
        session.explain("conv")
    session.run(None, {"x": np.zeros((2, 3, 8, 8), f32)})
    conv = session.explain("conv")
    assert (conv.op_type, conv.place, conv.reason) == ("Conv", "device", "")
    (operator,), (step,) = conv.operators, conv.steps
    assert operator.operator.startswith("Convolution") and operator.fields["input_tensor"] == "FLOAT32[2,3,8,8]"
    assert step.flops == 2 * (2 * 4 * 64) * 27 and step.kernels == tuple(item.kernel for item in operator.dispatches)
    assert operator.chosen in [answer.rule for answer in operator.rules if answer.holds]
    assert all(answer.because for answer in operator.rules)
    text = str(conv)
    assert text.startswith("Conv conv: on the device\n") and f"chosen  {operator.chosen}: " in text
    assert f"dispatch {step.kernels[0]}" in text
    relu = session.explain("relu")
    assert relu.place == "removed" and "another node" in relu.reason
    assert relu.operators == conv.operators and relu.steps == conv.steps and step.merged == ("relu",)
    assert session.explain("shape").place == "host" and "shape arithmetic" in session.explain("shape").reason
    assert session.explain("folded").place == "host" and "folded" in session.explain("folded").reason
    assert session.explain("view").place == "removed" and not session.explain("view").operators
    assert session.explain("unread").place == "removed" and "nothing reads" in session.explain("unread").reason
    assert session.explain("y").op_type == "Mul"
    with pytest.raises(dmlvk.ModelError, match="no node 'con'; the nearest are conv"):
        session.explain("con")


def test_explain_on_the_command_line(branches: onnx.ModelProto, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = str(tmp_path / "m.onnx")
    onnx.save(branches, path)
    assert main(["explain", path, "head"]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith("MatMul head: on the device") and "chosen" in printed and "dispatch" in printed
    for arguments in ([path], [path, "head", "all"], [path, "nope"]):
        assert main(["explain", *arguments]) == 2
        assert "dmlvk: " in capsys.readouterr().err


def test_a_device_that_is_not_there(branches: onnx.ModelProto) -> None:
    with pytest.raises(dmlvk.NoDeviceError, match="no such device"):
        InferenceSession(branches, "no such device")
    with pytest.raises(dmlvk.ModelError):  # whichever error comes first, the other is not lost in a thread
        InferenceSession(b"nonsense", "no such device")


def test_options_are_checked_before_the_file() -> None:
    with pytest.raises(dmlvk.InvalidArgumentError):
        InferenceSession(b"", options=SessionOptions(plan_cache_size=0))
