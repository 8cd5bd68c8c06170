"""Feeds and outputs that stay on the device, and the binding that keeps them from one run to the next."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import dmlvk
from dmlvk import DeviceArray
from dmlvk.onnx import InferenceSession, SessionOptions

pytestmark = pytest.mark.quick
f32, i64 = np.float32, np.int64


@pytest.fixture(scope="module")
def step_model(make_model: Callable[..., onnx.ModelProto]) -> onnx.ModelProto:
    """A step of a recurrence: the state, its relation to a limit, and the limit passed through."""
    nodes = [
        helper.make_node("MatMul", ["state", "w"], ["product"]),
        helper.make_node("Add", ["product", "limit"], ["next"]),
        helper.make_node("Greater", ["next", "limit"], ["above"]),
        helper.make_node("Transpose", ["next"], ["turned"], perm=[1, 0]),
        helper.make_node("Identity", ["limit"], ["same"]),
        helper.make_node("Shape", ["state"], ["sizes"]),
    ]
    constants = {"w": np.random.default_rng(5).standard_normal((4, 4)).astype(f32)}
    inputs = {"state": (f32, ("N", 4)), "limit": (f32, (4,))}
    types = {"above": np.bool_, "sizes": i64}
    return make_model(nodes, inputs, ("next", "above", "turned", "same", "sizes"), constants, output_types=types)


@pytest.fixture(scope="module")
def session(step_model: onnx.ModelProto, make_session: Callable[..., InferenceSession]) -> InferenceSession:
    return make_session(step_model, options=SessionOptions(plan_cache_size=4))


def _feeds(rows: int = 3) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(rows)
    return {"state": rng.standard_normal((rows, 4)).astype(f32), "limit": rng.standard_normal(4).astype(f32)}


def _on_device(session: InferenceSession, array: np.ndarray) -> DeviceArray:
    return DeviceArray.from_numpy(array, session.device)


def test_device_arrays_are_fed_and_returned(session: InferenceSession) -> None:
    feeds = _feeds()
    wanted = session.run(None, feeds)
    for put in (lambda array: array, lambda array: _on_device(session, array)):
        given = {"state": put(feeds["state"]), "limit": _on_device(session, feeds["limit"])}
        for found, expected in zip(session.run(None, given), wanted, strict=True):
            assert found.dtype == expected.dtype
            np.testing.assert_array_equal(found, expected)
        kept = session.run_with_device_arrays(None, given)
        assert all(array.device is session.device and array.is_packed for array in kept)
        assert kept[1].data_type is dmlvk.TensorDataType.UINT8
        for array, expected in zip(kept, wanted, strict=True):
            assert array.shape == expected.shape
            np.testing.assert_array_equal(array.numpy(), expected)
        np.testing.assert_array_equal(given["limit"].numpy(), feeds["limit"])
        twice = session.run_with_device_arrays(["next", "sizes", "next"], given)
        for array, expected in zip(twice, (wanted[0], wanted[4], wanted[0]), strict=True):
            np.testing.assert_array_equal(array.numpy(), expected)


def test_views_are_fed(session: InferenceSession) -> None:
    """Transposed ones, and ones that start between two places where a tensor may be bound."""
    feeds = _feeds(5)
    wanted = session.run(["next"], feeds)[0]
    turned = _on_device(session, np.ascontiguousarray(feeds["state"].T)).T
    inner = _on_device(session, np.concatenate([[9], feeds["limit"], [9]]).astype(f32))[1:-1]
    assert not turned.is_packed and not inner.is_bindable
    np.testing.assert_array_equal(session.run(["next"], {"state": turned, "limit": inner})[0], wanted)


def test_outputs_are_of_their_own(session: InferenceSession) -> None:
    """A later run, of another shape too, does not touch what an earlier one returned."""
    feeds = _feeds()
    wanted = session.run(["next", "same"], feeds)
    kept = session.run_with_device_arrays(["next", "same"], feeds)
    session.run_with_device_arrays(None, {"state": feeds["state"] * 2, "limit": feeds["limit"] * 3})
    session.run(None, _feeds(40))
    gc.collect()
    for array, expected in zip(kept, wanted, strict=True):
        np.testing.assert_array_equal(array.numpy(), expected)


def test_binding(session: InferenceSession) -> None:
    feeds = _feeds()
    names = ["sizes", "above", "next"]
    wanted = session.run(names, feeds)
    binding = session.io_binding()
    with pytest.raises(dmlvk.StateError, match="not been run"):
        binding.synchronize_outputs()
    binding.bind_cpu_input("state", feeds["state"])
    binding.bind_input("limit", _on_device(session, feeds["limit"]))
    for name in names:
        binding.bind_output(name)
    feeds["state"][:] = 0  # uploaded when it was bound
    for _ in range(2):
        session.run_with_iobinding(binding)
        binding.synchronize_outputs()
        for found, array, expected in zip(binding.copy_outputs_to_cpu(), binding.get_outputs(), wanted, strict=True):
            assert found.dtype == expected.dtype
            np.testing.assert_array_equal(found, expected)
            np.testing.assert_array_equal(array.numpy(), expected)
    first = binding.get_outputs()
    session.run_with_iobinding(binding)
    assert not {id(array.buffer) for array in first} & {id(array.buffer) for array in binding.get_outputs()}
    binding.clear_binding_outputs()
    assert binding.get_outputs() == []
    binding.clear_binding_inputs()
    with pytest.raises(dmlvk.ModelError, match="missing: 'state', 'limit'"):
        session.run_with_iobinding(binding)


def test_an_output_is_the_next_input(session: InferenceSession) -> None:
    feeds = _feeds()
    wanted = feeds["state"]
    for _ in range(4):
        wanted = session.run(["next"], {"state": wanted, "limit": feeds["limit"]})[0]
    state = _on_device(session, feeds["state"])
    binding = session.io_binding()
    binding.bind_input("state", state)
    binding.bind_cpu_input("limit", feeds["limit"])
    binding.bind_output("next", state)
    for _ in range(4):
        session.run_with_iobinding(binding)
    assert binding.get_outputs() == [state]
    np.testing.assert_array_equal(state.numpy(), wanted)


def test_bound_memory_is_written_and_no_more(session: InferenceSession) -> None:
    feeds = _feeds(2)
    wanted = session.run(["next", "same", "sizes"], feeds)
    binding = session.io_binding()
    binding.bind_cpu_input("state", feeds["state"])
    binding.bind_cpu_input("limit", feeds["limit"])
    rows = _on_device(session, np.full((4, 4), 7, f32))
    edge = _on_device(session, np.full(6, 7, f32))
    sizes = _on_device(session, np.full(4, 7, i64))
    binding.bind_output("next", rows[1:3])
    binding.bind_output("same", edge[1:5])
    binding.bind_output("sizes", sizes[1:3])
    session.run_with_iobinding(binding)
    np.testing.assert_array_equal(rows.numpy(), [[7] * 4, *wanted[0], [7] * 4])
    np.testing.assert_array_equal(edge.numpy(), [7, *wanted[1], 7])
    np.testing.assert_array_equal(sizes.numpy(), [7, *wanted[2], 7])


def test_what_is_refused(session: InferenceSession) -> None:
    feeds = _feeds()
    wanted = session.run(None, feeds)
    other = dmlvk.Device(session.device.info.index)
    foreign = DeviceArray.from_numpy(feeds["state"], other)
    binding = session.io_binding()
    with pytest.raises(dmlvk.StateError, match="input 'state'"):
        session.run(None, {**feeds, "state": foreign})
    with pytest.raises(dmlvk.StateError, match="input 'state'"):
        binding.bind_input("state", foreign)
    with pytest.raises(dmlvk.StateError, match="output 'next'"):
        binding.bind_output("next", foreign)
    with pytest.raises(dmlvk.ModelError, match="must have that type; expected FLOAT32, got INT64"):
        binding.bind_input("state", _on_device(session, np.ones((3, 4), i64)))
    with pytest.raises(dmlvk.ModelError, match=r"\[3, 5\]"):
        session.run(None, {**feeds, "state": _on_device(session, np.ones((3, 5), f32))})
    with pytest.raises(dmlvk.ModelError, match="float64"):
        binding.bind_cpu_input("state", np.ones((3, 4)))
    with pytest.raises(dmlvk.ModelError, match="no input 'q'"):
        binding.bind_cpu_input("q", feeds["state"])
    with pytest.raises(dmlvk.ModelError, match="no output 'q'"):
        binding.bind_output("q")
    binding.bind_cpu_input("state", feeds["state"])
    binding.bind_cpu_input("limit", feeds["limit"])
    for array in (np.ones((4, 3), f32), np.ones((3, 4), i64), np.ones((4, 3), f32).T):
        binding.bind_output("next", _on_device(session, array))
        with pytest.raises(
            dmlvk.InvalidArgumentError, match=r"output 'next'.*packed strides; expected \(FLOAT32, \(3, 4\), \(4, 1\)\)"
        ):
            session.run_with_iobinding(binding)
    shared = _on_device(session, np.ones((5, 4), f32))
    binding.bind_output("next", shared[:3])
    binding.bind_output("same", shared[2])
    with pytest.raises(dmlvk.InvalidArgumentError, match=r"output 'same'.*may not share bytes with that of output 'next'"):
        session.run_with_iobinding(binding)
    for found, expected in zip(session.run(None, feeds), wanted, strict=True):
        np.testing.assert_array_equal(found, expected)


def test_inputs_that_the_host_must_know(
    make_model: Callable[..., Any], make_session: Callable[..., InferenceSession]
) -> None:
    node = helper.make_node("Reshape", ["x", "shape"], ["y"])
    session = make_session(make_model(node, {"x": (f32, (4, 3)), "shape": (i64, (2,))}))
    x = _on_device(session, np.arange(12, dtype=f32).reshape(4, 3))
    shape = np.array([2, 6], i64)
    (y,) = session.run_with_device_arrays(None, {"x": x, "shape": _on_device(session, shape)})
    np.testing.assert_array_equal(y.numpy(), np.arange(12, dtype=f32).reshape(2, 6))
    binding = session.io_binding()
    binding.bind_input("x", x)
    binding.bind_cpu_input("shape", shape)
    binding.bind_output("y")
    shape[:] = 5  # read when it was bound
    session.run_with_iobinding(binding)
    np.testing.assert_array_equal(binding.copy_outputs_to_cpu()[0], np.arange(12, dtype=f32).reshape(2, 6))


@pytest.mark.parametrize("sizes", [(0, 3), (3, 0), (2, 0, 4), (0,), ()])
def test_few_elements(
    sizes: tuple[int, ...], make_model: Callable[..., Any], make_session: Callable[..., InferenceSession]
) -> None:
    session = make_session(make_model(helper.make_node("Relu", ["x"], ["y"]), {"x": (f32, sizes)}))
    binding = session.io_binding()
    binding.bind_cpu_input("x", np.ones(sizes, f32))
    binding.bind_output("y")
    session.run_with_iobinding(binding)
    (y,) = binding.get_outputs()
    for found in (y.numpy(), binding.copy_outputs_to_cpu()[0], session.run(None, {"x": y})[0]):
        np.testing.assert_array_equal(found, np.ones(sizes, f32))


@pytest.mark.parametrize("kind", ["float16", "int8", "uint8", "bool", "int64", "uint16"])
def test_types(kind: str, make_model: Callable[..., Any], make_session: Callable[..., InferenceSession]) -> None:
    """An odd number of elements: the last bytes are no whole word."""
    session = make_session(
        make_model(helper.make_node("Transpose", ["x"], ["y"]), {"x": (kind, (3, 5))}, output_types={"y": kind})
    )
    x = np.random.default_rng(3).integers(0, 2, (3, 5)).astype(kind)
    binding = session.io_binding()
    binding.bind_input("x", _on_device(session, x))
    binding.bind_output("y")
    session.run_with_iobinding(binding)
    (y,) = binding.copy_outputs_to_cpu()
    assert y.dtype == x.dtype and [output.dtype for output in session.run_with_device_arrays(None, {"x": x})] == [x.dtype]
    np.testing.assert_array_equal(y, x.T)


@pytest.mark.parametrize("code", [TensorProto.BFLOAT16, TensorProto.FLOAT8E4M3FN, TensorProto.INT4, TensorProto.UINT4])
def test_types_that_numpy_lacks(code: int, make_session: Callable[..., InferenceSession]) -> None:
    """An output of one, kept on the device, is another session's input."""
    half_bytes = code in (TensorProto.INT4, TensorProto.UINT4)
    scale = helper.make_tensor("scale", TensorProto.FLOAT, [], [1.0])
    zero = helper.make_tensor("zero", code, [], [0])

    def session(operator: str, before: int, after: int) -> InferenceSession:
        linear = helper.make_node(operator, ["x", "scale", "zero"], ["y"])
        node = linear if half_bytes else helper.make_node("Cast", ["x"], ["y"], to=after)
        infos = [helper.make_tensor_value_info(name, kind, [3, 5]) for name, kind in (("x", before), ("y", after))]
        graph = helper.make_graph([node], "test", infos[:1], infos[1:], [scale, zero] if half_bytes else [])
        return make_session(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10))

    narrowing = session("QuantizeLinear", TensorProto.FLOAT, code)
    widening = session("DequantizeLinear", code, TensorProto.FLOAT)
    x = np.arange(15, dtype=f32).reshape(3, 5) - (8 if code == TensorProto.INT4 else 0)
    (wanted,) = narrowing.run(None, {"x": x})
    binding = narrowing.io_binding()
    binding.bind_cpu_input("x", x)
    binding.bind_output("y")
    narrowing.run_with_iobinding(binding)
    (found,), (kept,) = binding.copy_outputs_to_cpu(), binding.get_outputs()
    assert found.dtype == wanted.dtype
    assert found.tobytes() == wanted.tobytes()
    for narrow in (kept, wanted):
        np.testing.assert_array_equal(widening.run(None, {"x": narrow})[0], x)


def test_threads(session: InferenceSession) -> None:
    """Bindings of several threads over one session, on inputs of several shapes."""
    failures: list[str] = []
    feeds = [_feeds(2 + index) for index in range(3)]
    wanted = [session.run(["next"], feed)[0] for feed in feeds]

    def work(index: int) -> None:
        binding = session.io_binding()
        for name, array in feeds[index].items():
            binding.bind_cpu_input(name, array)
        binding.bind_output("next")
        for _ in range(10):
            session.run_with_iobinding(binding)
            if not np.array_equal(binding.copy_outputs_to_cpu()[0], wanted[index]):
                failures.append(f"thread {index}")

    threads = [threading.Thread(target=work, args=(index,)) for index in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
