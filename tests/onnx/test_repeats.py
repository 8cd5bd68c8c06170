"""Runs that come again: what is kept for them, when it goes, and that each computes with what it is fed."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

import dmlvk
from dmlvk.engine.device_array import DeviceArray
from dmlvk.onnx import InferenceSession, SessionOptions
from dmlvk.runtime import prepared_run

pytestmark = pytest.mark.quick
f32, i64 = np.float32, np.int64


class Counted:
    """Native runs that are made, and how often they run."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.made = self.runs = 0
        counted = self

        def counting(*arguments: Any) -> Any:
            native = prepared_run.prepared_run(*arguments)
            counted.made += 1

            class Native:
                def run(self, inputs: Any, outputs: Any) -> None:
                    counted.runs += 1
                    native.run(inputs, outputs)

            return Native()

        monkeypatch.setattr("dmlvk.onnx.repeats.prepared_run", counting)


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> Counted:
    return Counted(monkeypatch)


@pytest.fixture(scope="module")
def network(make_model: Callable[..., onnx.ModelProto]) -> onnx.ModelProto:
    """A product, what is added to it, and an output that is a constant; rows are open."""
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["y"]),
        helper.make_node("Add", ["y", "z"], ["s"]),
        helper.make_node("Identity", ["w"], ["k"]),
    ]
    w = np.random.default_rng(0).standard_normal((4, 5)).astype(f32)
    return make_model(nodes, {"x": (f32, ("N", 4)), "z": (f32, ("N", 5))}, ("y", "s", "k"), {"w": w})


def fed(rows: int, seed: int = 0) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    return {"x": rng.standard_normal((rows, 4)).astype(f32), "z": rng.standard_normal((rows, 5)).astype(f32)}


def check(session: InferenceSession, feeds: dict[str, np.ndarray], names: list[str] | None = None) -> None:
    (weights,) = session.run(["k"], feeds)
    y = feeds["x"] @ weights
    wanted = {"y": y, "s": y + feeds["z"], "k": weights}
    for name, found in zip(names or ["y", "s", "k"], session.run(names, feeds), strict=True):
        np.testing.assert_allclose(found, wanted[name], rtol=0, atol=1e-5, err_msg=name)


def test_the_third_run_of_a_size_asks_no_python(network: onnx.ModelProto, device: dmlvk.Device, counted: Counted) -> None:
    session = InferenceSession(network, device)
    for number in range(8):
        y, s, _ = session.run(None, fed(3, number))
        np.testing.assert_allclose(s - y, fed(3, number)["z"], atol=1e-5)
        assert (counted.made, counted.runs) == (int(number > 0), max(number - 1, 0))
    report = session.report()
    assert report.input_shapes == {"x": (3, 4), "z": (3, 5)}
    assert report.dispatches > 0
    dispatches = device.native.dispatches
    session.run(None, fed(3))
    assert device.native.dispatches - dispatches == report.dispatches


def test_sizes_and_outputs_that_take_turns(network: onnx.ModelProto, device: dmlvk.Device, counted: Counted) -> None:
    session = InferenceSession(network, device)
    for turn in range(6):
        for rows in (1, 7, 2):
            for names in (None, ["s"], ["s", "y"], ["s", "s"]):
                check(session, fed(rows, turn), names)
    assert counted.runs > 30
    assert len(session.run(["s"], fed(7))) == 1


def test_results_are_new_arrays(network: onnx.ModelProto, device: dmlvk.Device) -> None:
    session = InferenceSession(network, device)
    kept = [session.run(None, fed(2, seed)) for seed in range(6)]
    for seed, (y, s, k) in enumerate(kept):
        np.testing.assert_allclose(s - y, fed(2, seed)["z"], atol=1e-5)
        k[:] = 0
        assert y.base is None and s.base is None
    check(session, fed(2))


def test_other_types_and_shapes_are_refused_as_ever(network: onnx.ModelProto, device: dmlvk.Device) -> None:
    session = InferenceSession(network, device)
    for _ in range(4):
        check(session, fed(2))
    good = fed(2)
    for wrong in (
        {**good, "x": good["x"].astype(np.float64)},
        {**good, "x": good["x"].reshape(4, 2)},
        {**good, "x": good["x"].astype(">f4")},
        {**good, "more": good["x"]},
        {"x": good["x"]},
    ):
        with pytest.raises(dmlvk.ModelError):
            session.run(None, wrong)
    check(session, good)


def test_what_is_no_plain_array_takes_the_long_way(network: onnx.ModelProto, device: dmlvk.Device, counted: Counted) -> None:
    session = InferenceSession(network, device)
    for _ in range(4):
        session.run(None, fed(4))
    runs = counted.runs
    feeds = fed(4)
    check(session, {**feeds, "x": np.asfortranarray(feeds["x"])})
    check(session, {**feeds, "x": feeds["x"].tolist()})  # type: ignore[dict-item]
    check(session, {**feeds, "x": DeviceArray.from_numpy(feeds["x"], device)})  # type: ignore[dict-item]
    assert counted.runs - runs == 0


def test_elements_that_the_host_must_know(
    make_model: Callable[..., onnx.ModelProto], device: dmlvk.Device, counted: Counted
) -> None:
    model = make_model([helper.make_node("Expand", ["x", "n"], ["y"])], {"x": (f32, (1, 3)), "n": (i64, (2,))}, ("y",))
    session = InferenceSession(model, device)
    x = np.arange(3, dtype=f32)[None]
    for _ in range(4):
        for rows in (2, 5):
            (y,) = session.run(None, {"x": x, "n": np.array([rows, 3], i64)})
            np.testing.assert_array_equal(y, np.broadcast_to(x, (rows, 3)))
    assert counted.runs == 4


def test_empty_inputs_and_outputs(network: onnx.ModelProto, device: dmlvk.Device) -> None:
    session = InferenceSession(network, device)
    for _ in range(4):
        y, s, k = session.run(None, fed(0))
        assert (y.shape, s.shape, k.shape) == ((0, 5), (0, 5), (4, 5))


def test_a_plan_that_goes_takes_its_runs_along(network: onnx.ModelProto, device: dmlvk.Device, counted: Counted) -> None:
    """One plan is kept, and a larger size makes the arena anew: what was recorded over the old one runs no more."""
    session = InferenceSession(network, device, SessionOptions(plan_cache_size=1))
    for rows in (2, 300, 2, 40_000, 2, 300):
        for turn in range(4):
            check(session, fed(rows, turn))
    gc.collect()
    assert len(session._loaded._home.repeats._plans) <= 2


def test_a_larger_arena(network: onnx.ModelProto, device: dmlvk.Device, counted: Counted) -> None:
    session = InferenceSession(network, device)
    for turn in range(4):
        check(session, fed(2, turn))
    check(session, fed(50_000))
    runs = counted.runs
    session.run(None, fed(2))  # recorded anew over the larger arena
    assert counted.runs == runs
    for turn in range(4):
        check(session, fed(2, turn))
    assert counted.runs > runs


@pytest.mark.parametrize("rows", [1, 20_000, 150_000])
def test_sizes_about_what_is_copied_together(network: onnx.ModelProto, device: dmlvk.Device, rows: int) -> None:
    """From 2 MiB on tensors go their own way; with 20,000 rows some do."""
    session = InferenceSession(network, device)
    for turn in range(6):
        check(session, fed(rows, turn))


def test_a_model_that_moves_to_another_device(network: onnx.ModelProto, device: dmlvk.Device, counted: Counted) -> None:
    session = InferenceSession(network, device)
    for turn in range(4):
        check(session, fed(3, turn))
    session.recover(device.reopened())
    runs = counted.runs
    session.run(None, fed(3))
    assert counted.runs == runs
    for turn in range(4):
        check(session, fed(3, turn))
    assert counted.runs > runs
    assert session.device is not device


def test_memory_of_another_size_is_refused(device: dmlvk.Device) -> None:
    buffer = device.create_buffer(64)
    run = device.native.prepared_run([(buffer.native, 0, 16)], [], [(buffer.native, 0, 16)])
    for _ in range(4):
        out = np.zeros(4, f32)
        run.run([np.arange(4, dtype=f32)], [out])
        np.testing.assert_array_equal(out, np.arange(4))
    good, bad = np.zeros(4, f32), np.zeros(3, f32)
    for inputs, outputs in (([bad], [good]), ([good], [bad]), ([], [good]), ([good], [good, good])):
        with pytest.raises(ValueError, match="run: "):
            run.run(inputs, outputs)
    good.flags.writeable = False
    with pytest.raises(ValueError, match="writable"):
        run.run([good], [good])
    run.close()
    with pytest.raises(dmlvk.StateError, match="closed"):
        run.run([np.zeros(4, f32)], [np.zeros(4, f32)])


def test_a_run_that_is_started_brings_its_results(device: dmlvk.Device) -> None:
    """From the second time on, and in parts; what it does not bring is refused."""
    buffer = device.create_buffer(64)
    run = device.native.prepared_run([(buffer.native, 0, 16)], [], [(buffer.native, 0, 16), b"known", (buffer.native, 4, 8)])
    part = np.zeros(2, f32)
    assert not run.start([np.zeros(4, f32)])
    with pytest.raises(ValueError, match="no such result"):
        run.take(0, 0, part)
    for turn in range(3):
        assert run.start([np.arange(4, dtype=f32) + turn])
        run.take(0, 8, part)
        np.testing.assert_array_equal(part, [2 + turn, 3 + turn])
        run.take(2, 0, part)
        np.testing.assert_array_equal(part, [1 + turn, 2 + turn])
    for index, offset in ((1, 0), (3, 0), (0, 12), (0, 17), (2, 4)):
        with pytest.raises(ValueError, match="take: "):
            run.take(index, offset, part)
    with pytest.raises(ValueError, match="run: input 0 must have 16 bytes"):
        run.start([part])
    part.flags.writeable = False
    with pytest.raises(ValueError, match="writable"):
        run.take(0, 0, part)
    run.close()
    for use in (lambda: run.start([np.zeros(4, f32)]), lambda: run.take(0, 0, np.zeros(2, f32))):
        with pytest.raises(dmlvk.StateError, match="closed"):
            use()


def test_large_results_of_a_run_are_not_brought(device: dmlvk.Device) -> None:
    large, small = device.create_buffer(3 << 20), device.create_buffer(16)
    run = device.native.prepared_run([], [], [(large.native, 0, 3 << 20), (small.native, 0, 16)])
    assert [run.start([]) for _ in range(3)] == [False] * 3
