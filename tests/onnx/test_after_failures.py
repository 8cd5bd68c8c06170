"""After a step that failed or was interrupted everything is as before or wholly new, whoever keeps the exception."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

import dmlvk
from dmlvk.onnx import InferenceSession, SessionOptions
from dmlvk.runtime.device import ComputeDevice
from dmlvk.runtime.memory import Buffer, Purpose
from dmlvk.spec.errors import OutOfDeviceMemoryError

f32 = np.float32
SOURCES = Path(dmlvk.__file__).parent
STATEFUL = (SOURCES / "engine", SOURCES / "onnx" / "session.py", SOURCES / "onnx" / "iobinding.py")
"""Where interrupts are put: all that keeps something from one run to the next."""
POINTS = int(os.environ.get("DMLVK_TEST_POINTS", "12"))
"""Places in each call at which it is interrupted; 0 for every one."""


def normal(*sizes: int) -> np.ndarray:
    return np.random.default_rng(sizes).standard_normal(sizes).astype(f32)


@pytest.fixture(scope="module")
def model(make_model: Callable[..., onnx.ModelProto]) -> onnx.ModelProto:
    """Weights that are repacked, one that is folded on the device, and two sizes that are open."""
    nodes = [
        helper.make_node("Conv", ["x", "filter", "bias"], ["c"], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c"], ["r"]),
        helper.make_node("Conv", ["r", "second"], ["d"], pads=[1, 1, 1, 1]),
        helper.make_node("GlobalAveragePool", ["d"], ["p"]),
        helper.make_node("Flatten", ["p"], ["row"]),
        helper.make_node("Softmax", ["weights"], ["soft"]),
        helper.make_node("MatMul", ["row", "soft"], ["y"]),
    ]
    constants = {"filter": normal(8, 3, 3, 3), "bias": normal(8), "second": normal(8, 8, 3, 3), "weights": normal(8, 8)}
    return make_model(nodes, {"x": (f32, (1, 3, "height", "width"))}, constants=constants)


@pytest.fixture
def full(monkeypatch: pytest.MonkeyPatch) -> Callable[[Purpose | None], None]:
    """A function from a purpose to a device that has no memory left for it; None gives it back."""
    create = ComputeDevice.create_buffer
    refused: list[Purpose | None] = [None]

    def limited(self: ComputeDevice, size_in_bytes: int, *, purpose: Purpose = Purpose.DATA) -> Buffer:
        if purpose is refused[0]:
            raise OutOfDeviceMemoryError("vmaCreateBuffer: VK_ERROR_OUT_OF_DEVICE_MEMORY", result=-2, call="vmaCreateBuffer")
        return create(self, size_in_bytes, purpose=purpose)

    monkeypatch.setattr(ComputeDevice, "create_buffer", limited)
    return lambda purpose: refused.__setitem__(0, purpose)


@pytest.mark.parametrize("purpose", [Purpose.TEMPORARY, Purpose.WEIGHTS, Purpose.DATA])
def test_sizes_that_found_no_memory_run_later_and_so_do_all_others(
    model: onnx.ModelProto, device: dmlvk.Device, full: Callable[[Purpose | None], None], purpose: Purpose
) -> None:
    session, images = InferenceSession(model, device), [normal(1, 3, size, size) for size in (8, 12, 24, 40)]
    wanted = [InferenceSession(model, device).run(None, {"x": image})[0] for image in images]

    def right(index: int) -> None:
        binding = session.io_binding()
        binding.bind_cpu_input("x", images[index])
        binding.bind_output("y")
        session.run_with_iobinding(binding)
        np.testing.assert_array_equal(binding.copy_outputs_to_cpu()[0], wanted[index])
        np.testing.assert_array_equal(session.run(None, {"x": images[index]})[0], wanted[index])

    right(0)
    kept = []
    for index in (1, 2, 3):
        full(purpose)
        try:
            session.run_with_device_arrays(None, {"x": images[index]})
        except OutOfDeviceMemoryError as error:
            kept.append(error)
        full(None)
        right(0)
        right(index)
    assert kept or purpose is Purpose.WEIGHTS  # which were all brought for the first sizes


def test_an_exception_that_is_kept_keeps_no_memory(device: dmlvk.Device, full: Callable[[Purpose | None], None]) -> None:
    graph = dmlvk.Graph(device)
    x, w = graph.input((64, 8)), graph.input((8, 8), owned_by_dml=True)
    function = graph.compile(graph.gemm(graph.element_wise_tanh(graph.gemm(x, w)), w))
    function.initialize({w: normal(8, 8)})
    value = dmlvk.DeviceArray.from_numpy(normal(64, 8), device)
    full(Purpose.TEMPORARY)  # which comes after the outputs
    kept = []
    try:
        function(value)
    except OutOfDeviceMemoryError as error:
        kept.append(error)
    gc.collect()
    with_exception = device.memory()
    assert kept.pop().__traceback__ is not None
    gc.collect()
    assert device.memory() == with_exception


@contextmanager
def interrupted(at: int, seen: list[int]) -> Iterator[None]:
    """Raises KeyboardInterrupt before the bytecode of that number in ``STATEFUL``; ``seen`` is given how many there were."""
    count = 0

    def local(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal count
        if event == "opcode":
            count += 1
            if count == at:
                raise KeyboardInterrupt
        return local

    def watch(frame: FrameType, event: str, _: Any) -> Any:
        if not any(Path(frame.f_code.co_filename).is_relative_to(place) for place in STATEFUL):
            return None
        frame.f_trace_opcodes = True
        return local

    before = sys.gettrace()
    sys.settrace(watch)
    try:
        yield
    finally:
        sys.settrace(before)
        seen.append(count)


def sweep(call: Callable[[], object], check: Callable[[], None], prepare: Callable[[], object], points: int = POINTS) -> int:
    """Interrupts a call at many places, each time prepared anew, and checks after each with all exceptions kept."""
    prepare()
    seen: list[int] = []
    with interrupted(0, seen):
        call()
    places = range(1, seen[0] + 1)
    chosen = places if not POINTS else sorted({places[index * len(places) // points] for index in range(points)})
    kept: list[BaseException] = []
    for place in chosen:
        prepare()
        try:
            with interrupted(place, seen):
                call()
        except KeyboardInterrupt as error:
            kept.append(error)
        check()
    return len(kept)


@pytest.mark.slow
def test_an_interrupted_run_leaves_a_session_right(model: onnx.ModelProto, device: dmlvk.Device) -> None:
    small, large = ({"x": normal(1, 3, size, size)} for size in (8, 20))
    wanted = [InferenceSession(model, device).run(None, feeds)[0] for feeds in (small, large)]
    session = InferenceSession(model, device)

    def prepare() -> None:
        nonlocal session
        session = InferenceSession(model, device)
        session.run(None, small)

    def check() -> None:
        for _ in range(2):
            for feeds, expected in zip((small, large), wanted, strict=True):
                np.testing.assert_array_equal(session.run(None, feeds)[0], expected)

    assert sweep(lambda: session.run(None, large), check, prepare, points=3)


def test_an_interrupted_binding_gives_no_stale_outputs(model: onnx.ModelProto, device: dmlvk.Device) -> None:
    session = InferenceSession(model, device, SessionOptions(plan_cache_size=2))
    images = [normal(1, 3, 8, 8), normal(1, 3, 8, 8) + 1]
    wanted = [session.run(None, {"x": image})[0] for image in images]
    arrays = [dmlvk.DeviceArray.from_numpy(image, device) for image in images]
    targets = [dmlvk.DeviceArray.from_numpy(np.zeros((1, 8), f32), device) for _ in images]
    binding = session.io_binding()

    def run(index: int) -> None:
        binding.bind_input("x", arrays[index])
        binding.bind_output("y", targets[index])
        session.run_with_iobinding(binding)

    def check() -> None:
        for index in (0, 1, 0):
            targets[index].buffer.write(np.zeros(8, f32))
            run(index)
            np.testing.assert_array_equal(targets[index].numpy(), wanted[index])

    assert sweep(lambda: run(1), check, lambda: run(0))


def test_an_interrupted_function_is_right_later(device: dmlvk.Device) -> None:
    graph = dmlvk.Graph(device)
    x = graph.input((4, 8))
    y = x
    for index in range(12):
        y = graph.element_wise_tanh(y) if index % 3 else y @ graph.constant(normal(8, 8))
    function = graph.compile(y)
    values = [normal(4, 8), normal(4, 8) + 1]
    wanted = [function(value) for value in values]
    arrays = [dmlvk.DeviceArray.from_numpy(value, device) for value in values]

    def check() -> None:
        for index in (0, 0, 1, 1, 0):
            np.testing.assert_array_equal(function(arrays[index]).numpy(), wanted[index])

    assert sweep(lambda: function(arrays[1]), check, lambda: function(arrays[0]))


def test_an_interrupted_initialisation_mixes_no_weights(device: dmlvk.Device) -> None:
    weights = [normal(8, 8), normal(8, 8) * 2]

    def made() -> tuple[dmlvk.Function, dmlvk.Expression]:
        graph = dmlvk.Graph(device)
        x, w = graph.input((64, 8)), graph.input((8, 8), owned_by_dml=True)
        return graph.compile(graph.element_wise_tanh(graph.gemm(graph.gemm(x, w), w))), w

    value = normal(64, 8)
    wanted = []
    for weight in weights:
        function, w = made()
        function.initialize({w: weight})
        wanted.append(function(value))

    def prepare() -> None:
        nonlocal function, w
        function, w = made()

    def check() -> None:
        try:
            function.initialize({w: weights[1]})
            expected = wanted[1]
        except dmlvk.StateError:  # the interrupt came when all was done
            expected = wanted[0]
        np.testing.assert_array_equal(function(value), expected)

    assert sweep(lambda: function.initialize({w: weights[0]}), check, prepare)
