"""The whole way on a device: choose, create, compile, initialise, bind, record, submit, read back; and failures."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import dmlvk
from dmlvk import BufferArrayBinding, BufferBinding, TensorDataType, TensorDesc, TensorFlags
from dmlvk.runtime import device as runtime_device
from dmlvk.runtime.device import DeviceInfo, choose_device
from dmlvk.runtime.memory import Purpose

F32 = TensorDataType.FLOAT32
Floats = NDArray[np.float32]


def add_desc(count: int, data_type: TensorDataType = F32) -> dmlvk.ElementWiseAdd:
    tensor = TensorDesc(data_type, (count,))
    return dmlvk.ElementWiseAdd(a_tensor=tensor, b_tensor=tensor, output_tensor=tensor)


def upload(device: dmlvk.Device, values: NDArray[Any], offset: int = 0) -> dmlvk.Buffer:
    buffer = device.create_buffer(offset + values.nbytes)
    buffer.write(values, offset)
    return buffer


def initialized(
    device: dmlvk.Device, desc: dmlvk.OperatorDesc, flags: dmlvk.ExecutionFlags = dmlvk.ExecutionFlags.NONE
) -> dmlvk.CompiledOperator:
    """A compiled operator without owned inputs, initialised."""
    operator = device.compile_operator(device.create_operator(desc), flags)
    initializer = device.create_operator_initializer([operator])
    commands = device.create_command_list()
    device.create_command_recorder().record_dispatch(commands, initializer, device.create_binding_table(initializer))
    device.execute(commands)
    return operator


def recorded(
    device: dmlvk.Device,
    operator: dmlvk.CompiledOperator,
    inputs: list[BufferBinding | None],
    output: BufferBinding,
    commands: dmlvk.CommandList | None = None,
) -> dmlvk.CommandList:
    table = device.create_binding_table(operator)
    table.bind_inputs(inputs)
    table.bind_outputs([output])
    if commands is None:
        commands = device.create_command_list()
    device.create_command_recorder().record_dispatch(commands, operator, table)
    return commands


def check_sum(device: dmlvk.Device, count: int = 1000) -> None:
    """A good call."""
    a, b = np.arange(count, dtype=np.float32), np.full(count, 0.5, np.float32)
    output = device.create_buffer(4 * count)
    operator = initialized(device, add_desc(count))
    inputs: list[BufferBinding | None] = [BufferBinding(upload(device, a)), BufferBinding(upload(device, b))]
    device.execute(recorded(device, operator, inputs, BufferBinding(output)))
    np.testing.assert_array_equal(output.read().view(np.float32), a + b)


# -- running


@pytest.mark.quick
def test_a_sum(device: dmlvk.Device, count_dispatches: Callable[[], AbstractContextManager[Any]]) -> None:
    with count_dispatches() as count:
        check_sum(device)
    assert count.dispatches == 1


@pytest.mark.quick
def test_an_owned_filter_is_bound_once(device: dmlvk.Device) -> None:
    rng = np.random.default_rng(1)
    a, b = (rng.standard_normal((17, 17), np.float32) for _ in range(2))
    sizes = (1, 1, 17, 17)
    desc = dmlvk.Gemm(
        a_tensor=TensorDesc(F32, sizes),
        b_tensor=TensorDesc(F32, sizes, flags=TensorFlags.OWNED_BY_DML),
        output_tensor=TensorDesc(F32, sizes),
    )
    operator = device.compile_operator(device.create_operator(desc))
    properties = operator.get_binding_properties()
    assert properties.persistent_resource_size >= b.nbytes
    home = BufferBinding(device.create_buffer(properties.persistent_resource_size, purpose=Purpose.WEIGHTS))
    weights = upload(device, b)

    initializer = device.create_operator_initializer([operator])
    assert initializer.get_binding_properties().persistent_resource_size == 0
    table = device.create_binding_table(initializer)
    table.bind_inputs([BufferArrayBinding([None, BufferBinding(weights), None])])
    table.bind_outputs([home])
    commands = device.create_command_list()
    recorder = device.create_command_recorder()
    recorder.record_dispatch(commands, initializer, table)

    output = device.create_buffer(a.nbytes)
    table.reset(operator)
    table.bind_inputs([BufferBinding(upload(device, a)), None, None])
    table.bind_outputs([BufferBinding(output)])
    table.bind_persistent_resource(home)
    recorder.record_dispatch(commands, operator, table)
    device.execute(commands)
    weights.write(np.zeros_like(b))
    again = device.create_command_list()
    recorder.record_dispatch(again, operator, table)
    device.execute(again)
    np.testing.assert_allclose(output.read().view(np.float32).reshape(a.shape), a @ b, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("offsets", [(16, 48, 80), (0, 4096, 16)])
def test_tensors_start_at_any_multiple_of_sixteen(device: dmlvk.Device, offsets: tuple[int, int, int]) -> None:
    count = 37
    rng = np.random.default_rng(2)
    a, b = (rng.standard_normal(count, np.float32) for _ in range(2))
    output = device.create_buffer(offsets[2] + 4 * count + 16)
    output.write(np.full(output.size_in_bytes, 0xA5, np.uint8))
    operator = initialized(device, add_desc(count))
    inputs: list[BufferBinding | None] = [
        BufferBinding(upload(device, a, offsets[0]), offsets[0]),
        BufferBinding(upload(device, b, offsets[1]), offsets[1]),
    ]
    device.execute(recorded(device, operator, inputs, BufferBinding(output, offsets[2])))
    got = output.read()
    np.testing.assert_array_equal(got[offsets[2] : -16].view(np.float32), a + b)
    assert (got[: offsets[2]] == 0xA5).all() and (got[-16:] == 0xA5).all()


def test_a_list_is_replayed_with_what_its_buffers_hold_then(device: dmlvk.Device) -> None:
    x, output = upload(device, np.float32([1, 2, 3])), device.create_buffer(12)
    commands = recorded(
        device, initialized(device, add_desc(3)), [BufferBinding(x), BufferBinding(x)], BufferBinding(output)
    )
    for values in ([1, 2, 3], [4, 5, 6], [7, 8, 9]):
        x.write(np.float32(values))
        commands.submit()
        np.testing.assert_array_equal(output.read().view(np.float32), 2 * np.float32(values))


def test_volatile_bindings_follow_the_table(device: dmlvk.Device) -> None:
    x = BufferBinding(upload(device, np.float32([1, 2, 3])))
    first, second = (device.create_buffer(12) for _ in range(2))
    operator = initialized(device, add_desc(3), dmlvk.ExecutionFlags.DESCRIPTORS_VOLATILE)
    table = device.create_binding_table(operator)
    commands = device.create_command_list(timestamps=True)
    device.create_command_recorder().record_dispatch(commands, operator, table)
    table.bind_inputs([x, x])
    for target in (first, second, first):
        target.write(bytes(12))
        table.bind_outputs([BufferBinding(target)])
        device.execute(commands)
        np.testing.assert_array_equal(target.read().view(np.float32), [2, 4, 6])
    assert len(commands.timings()) == 1


def test_timings_name_every_dispatch(device: dmlvk.Device) -> None:
    x, output = BufferBinding(upload(device, np.ones(5000, np.float32))), device.create_buffer(20000)
    operator = initialized(device, add_desc(5000))
    commands = device.create_command_list(timestamps=True)
    for _ in range(3):
        recorded(device, operator, [x, x], BufferBinding(output), commands)
    device.execute(commands)
    timings = commands.timings()
    assert [timing.operator for timing in timings] == ["DML_OPERATOR_ELEMENT_WISE_ADD"] * 3
    assert all(timing.start <= timing.end for timing in timings)
    assert timings[0].start == 0 and timings[2].start >= timings[0].end


def test_waiting_with_a_timeout_leaves_the_list_valid(device: dmlvk.Device) -> None:
    count = 2**22
    x, output = BufferBinding(upload(device, np.ones(count, np.float32))), device.create_buffer(4 * count)
    operator = initialized(device, add_desc(count))
    commands = device.create_command_list()
    for _ in range(4):
        recorded(device, operator, [x, x], BufferBinding(output), commands)
    commands.submit()
    commands.wait(0)
    assert commands.wait()
    assert output.read(4).view(np.float32) == 2


def test_an_operator_outlives_its_python_object_in_a_list(device: dmlvk.Device) -> None:
    x, output = upload(device, np.float32([1, 2, 3])), device.create_buffer(12)
    commands = recorded(
        device, initialized(device, add_desc(3)), [BufferBinding(x), BufferBinding(x)], BufferBinding(output)
    )
    del x
    for count in range(2, 300):
        device.compile_operator(device.create_operator(add_desc(count)))
    device.execute(commands)
    np.testing.assert_array_equal(output.read().view(np.float32), [2, 4, 6])


# -- pipelines and memory


def test_another_shape_costs_no_pipeline(device: dmlvk.Device) -> None:
    device.compile_operator(device.create_operator(add_desc(1000)))
    before = device.native.pipelines_created
    device.compile_operator(device.create_operator(add_desc(1000)))
    device.compile_operator(device.create_operator(add_desc(2000)))
    assert device.native.pipelines_created == before


def test_memory_is_counted_by_purpose(device: dmlvk.Device) -> None:
    before = device.memory()
    weights = [device.create_buffer(1000, purpose=Purpose.WEIGHTS) for _ in range(400)]
    data = device.create_buffer(500)
    during = device.memory()
    assert during["weights"] - before["weights"] == 400_000
    assert during["data"] - before["data"] == data.size_in_bytes
    assert during["peak"] >= during["live"] >= before["live"] + 400_500
    del weights, data
    after = device.memory()
    assert (after["weights"], after["data"], after["live"]) == (before["weights"], before["data"], before["live"])
    device.reset_peak_memory()
    assert device.memory()["peak"] == after["live"]


def test_running_out_of_memory_leaves_the_device_usable(device: dmlvk.Device) -> None:
    with pytest.raises(dmlvk.OutOfDeviceMemoryError):
        device.create_buffer(2**62)
    check_sum(device)
    assert device.get_device_removed_reason() is None


def test_an_empty_buffer_is_refused(device: dmlvk.Device) -> None:
    with pytest.raises(dmlvk.InvalidArgumentError, match="at least 1 byte"):
        device.create_buffer(0)


def test_the_pipeline_cache_has_a_file_of_its_own(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DMLVK_CACHE_DIR", str(tmp_path / "cache"))
    device = dmlvk.Device()
    check_sum(device)
    device.save_pipeline_cache()
    files = list((tmp_path / "cache").iterdir())
    assert len(files) == 1 and device.info.uuid in files[0].name
    stamp = files[0].stat().st_mtime_ns
    device.save_pipeline_cache()
    assert files[0].stat().st_mtime_ns == stamp
    check_sum(dmlvk.Device())


def test_a_cache_folder_that_cannot_be_made_is_a_warning(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("DMLVK_CACHE_DIR", str(tmp_path / "file" / "cache"))
    with pytest.warns(RuntimeWarning, match="no pipeline cache"):
        device = dmlvk.Device()
    check_sum(device)


# -- creation, features


def test_an_invalid_desc_names_what_is_wrong(device: dmlvk.Device) -> None:
    desc = add_desc(4).replace(output_tensor=TensorDesc(F32, (5,)))
    with pytest.raises(dmlvk.InvalidArgumentError) as caught:
        device.create_operator(desc)
    assert (caught.value.operator, caught.value.field) == ("DML_OPERATOR_ELEMENT_WISE_ADD", "OutputTensor")
    with pytest.raises(dmlvk.InvalidArgumentError, match="must be an operator desc"):
        device.create_operator(TensorDesc(F32, (1,)))  # type: ignore[arg-type]
    check_sum(device)


def test_masked_features_are_missed_with_a_typed_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DMLVK_DISABLE", " storage16, int64")
    device = dmlvk.Device()
    assert not {"storage16", "int64"} & device.capabilities.features
    for data_type in (TensorDataType.FLOAT16, TensorDataType.INT64):
        assert not device.check_feature_support(dmlvk.Feature.TENSOR_DATA_TYPE_SUPPORT, data_type)
    with pytest.raises(dmlvk.UnsupportedError, match="FLOAT16"):
        device.create_operator(add_desc(4, TensorDataType.FLOAT16))
    integers = device.create_operator(add_desc(4, TensorDataType.INT64))  # for all this knows, they are only moved
    with pytest.raises(dmlvk.UnsupportedError, match="int64"):
        device.compile_operator(integers)
    check_sum(device)
    monkeypatch.setenv("DMLVK_DISABLE", "flux_capacitor")
    with pytest.raises(dmlvk.InvalidArgumentError, match="flux_capacitor"):
        dmlvk.Device()


def test_feature_support(device: dmlvk.Device) -> None:
    kind, levels = dmlvk.Feature.TENSOR_DATA_TYPE_SUPPORT, dmlvk.Feature.FEATURE_LEVELS
    assert device.check_feature_support(kind, F32) is True
    assert device.check_feature_support(kind, TensorDataType.INT4) is True
    assert device.check_feature_support(kind, TensorDataType.UNKNOWN) is False
    asked = [dmlvk.FeatureLevel.LEVEL_1_0, dmlvk.FeatureLevel.LEVEL_5_0]
    assert device.check_feature_support(levels, asked) == dmlvk.FeatureLevel.LEVEL_5_0
    for feature, query in ((kind, 77), (levels, []), (levels, [1]), (9, F32), (kind, asked)):
        with pytest.raises(dmlvk.InvalidArgumentError):
            device.check_feature_support(feature, query)  # type: ignore[arg-type]


def test_debugging_needs_the_validation_layer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DMLVK_VALIDATION", "0")
    with pytest.raises(dmlvk.InvalidArgumentError, match="DMLVK_VALIDATION"):
        dmlvk.Device(flags=dmlvk.CreateDeviceFlags.DEBUG)


# -- choosing


def info(index: int, name: str, kind: str) -> DeviceInfo:
    return DeviceInfo(index, name, f"{index:08x}-0000-0000-0000-000000000000", "driver", kind, (1, 3, 0), 1, {})


MACHINE = [
    info(0, "llvmpipe", "cpu"),
    info(1, "Iris Xe", "integrated"),
    info(2, "Arc A770", "discrete"),
    info(3, "Arc A380", "discrete"),
]


@pytest.mark.parametrize(
    ("choice", "index"),
    [
        (None, 2),
        (0, 0),
        ("3", 3),
        ("arc", 2),
        ("A380", 3),
        ("00000001-0000-0000-0000-000000000000", 1),
        ("LLVM", 0),
    ],
)
def test_devices_are_chosen_by_index_uuid_name_or_type(choice: Any, index: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DMLVK_DEVICE", raising=False)
    assert choose_device(choice, MACHINE).index == index
    if choice is not None:
        monkeypatch.setenv("DMLVK_DEVICE", str(choice))
        assert choose_device(None, MACHINE).index == index


def test_a_choice_without_a_match_lists_what_there_is(monkeypatch: pytest.MonkeyPatch) -> None:
    for choice in ("GeForce", 9, "99"):
        with pytest.raises(dmlvk.NoDeviceError, match="Iris Xe"):
            choose_device(choice, MACHINE)
    monkeypatch.setattr(runtime_device, "devices", list)
    with pytest.raises(dmlvk.NoDeviceError, match="there is no"):
        choose_device()


def test_the_listed_devices_open(device: dmlvk.Device) -> None:
    listed = dmlvk.devices()
    assert device.info in listed
    assert dmlvk.Device(device.info.uuid).info == device.info
    assert dmlvk.Device(device.info).info == device.info


def test_importing_touches_neither_vulkan_nor_onnx() -> None:
    code = """
import sys, dmlvk
assert not {"onnx", "dmlvk.runtime", "dmlvk.directml", "numpy"} & set(sys.modules), sorted(sys.modules)
assert {"Device", "eager", "Gemm"} <= set(dir(dmlvk))
assert dmlvk.eager.gemm.__name__ == "gemm" and "onnx" not in sys.modules
try:
    dmlvk.nonsense
except AttributeError as error:
    assert "nonsense" in str(error)
else:
    raise AssertionError
"""
    subprocess.run([sys.executable, "-c", code], check=True)


# -- several devices, several threads


def test_objects_of_two_devices_do_not_mix(device: dmlvk.Device) -> None:
    other = dmlvk.Device(device.info)
    operator = initialized(device, add_desc(3))
    foreign = BufferBinding(other.create_buffer(12))
    for call in (
        lambda: other.compile_operator(device.create_operator(add_desc(3))),
        lambda: other.create_binding_table(operator),
        lambda: other.execute(device.create_command_list()),
        lambda: device.create_binding_table(operator).bind_outputs([foreign]),
    ):
        with pytest.raises(dmlvk.StateError, match="must belong to the same Device"):
            call()
    check_sum(other)
    check_sum(device)


def test_threads_share_a_device(device: dmlvk.Device) -> None:
    """Each thread has its own shapes, lists and buffers; kernels, parameter blocks and the queue are shared."""
    failures: list[BaseException] = []

    def work(thread: int) -> None:
        try:
            for step in range(20):
                check_sum(device, 100 * thread + step + 1)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(index,)) for index in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def test_threads_replay_lists_of_one_operator(device: dmlvk.Device) -> None:
    operator = initialized(device, add_desc(64))
    failures: list[BaseException] = []

    def work(thread: int) -> None:
        try:
            x, output = upload(device, np.full(64, thread, np.float32)), device.create_buffer(256)
            commands = recorded(device, operator, [BufferBinding(x), BufferBinding(x)], BufferBinding(output))
            for _ in range(30):
                output.write(bytes(256))
                device.execute(commands)
                np.testing.assert_array_equal(output.read().view(np.float32), np.full(64, 2 * thread, np.float32))
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(index,)) for index in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def test_a_user_without_a_home_needs_none(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    def no_home() -> None:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr("pathlib.Path.home", no_home)
    monkeypatch.setenv("DMLVK_CACHE_DIR", str(tmp_path))
    dmlvk.Device()
    monkeypatch.delenv("DMLVK_CACHE_DIR")
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    with pytest.warns(RuntimeWarning, match="keeps no pipeline cache"):
        dmlvk.Device()


_FORK = """
import gc, os, signal, threading, numpy as np, dmlvk
device = dmlvk.Device()
array = dmlvk.DeviceArray.from_numpy(np.ones(3, np.float32), device)
target = device.create_buffer(12)
commands = device.create_command_list()
commands.copy_buffer_region(target, 0, array.buffer, 0, 12)
commands.submit()
open_list = device.create_command_list()
graph = dmlvk.Graph(device)
function = graph.compile(graph.element_wise_abs(graph.input((3,))))
function._graph._lock.acquire()  # as a thread that calls it meanwhile, and is not there in the child
child = os.fork()
if not child:
    signal.alarm(20)
    for call in (
        array.numpy,
        dmlvk.Device,
        lambda: dmlvk.eager.element_wise_add(array, array),
        commands.wait,
        lambda: commands.wait(0.1),
        commands.submit,
        lambda: open_list.copy_buffer_region(target, 0, array.buffer, 0, 12),
        device.wait_idle,
        device.flush,
        device.memory,
        lambda: device.create_buffer(4),
        lambda: function(array),
    ):
        try:
            call()
        except dmlvk.StateError as error:
            assert "spawn" in str(error)
        else:
            raise AssertionError("no StateError")
    del array, target, commands, open_list, graph, function, device
    gc.collect()
    raise SystemExit(0)
assert os.waitpid(child, 0)[1] == 0
assert (array.numpy() == 1).all()
"""


def test_a_forked_child_is_told_so_and_ends(device: dmlvk.Device) -> None:
    subprocess.run([sys.executable, "-c", _FORK], check=True, timeout=60)
