"""Sessions with copies of their model on several devices."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

import dmlvk
from dmlvk.onnx import InferenceSession
from dmlvk.onnx.loaded_model import LoadedModel
from dmlvk.spec.errors import DeviceLostError, InvalidArgumentError, ModelError


@pytest.fixture(scope="module")
def devices(device: dmlvk.Device) -> list[dmlvk.Device]:
    return [device, dmlvk.Device(device.info)]


@pytest.fixture(scope="module")
def model(make_model: Callable[..., onnx.ModelProto]) -> onnx.ModelProto:
    node = helper.make_node("Mul", ["x", "w"], ["y"])
    return make_model(node, {"x": (np.float32, ("N", 4))}, constants={"w": np.float32([1, 2, 3, 4])})


W = np.float32([1, 2, 3, 4])


def batch(number: int) -> dict[str, Any]:
    return {"x": np.full((2, 4), number, np.float32)}


def test_runs_at_the_same_time_are_on_devices_of_their_own(
    model: onnx.ModelProto, devices: list[dmlvk.Device], monkeypatch: pytest.MonkeyPatch
) -> None:
    session = InferenceSession(model, devices=devices)
    assert session.devices == devices and session.device is devices[0]
    both, used = threading.Barrier(2), set()
    run = LoadedModel.run

    def meeting(self: LoadedModel, names: Any, feeds: Any) -> list[Any]:
        both.wait()  # goes on only once both copies have a run
        used.add(self.device)
        return run(self, names, feeds)

    monkeypatch.setattr(LoadedModel, "run", meeting)
    found = list(session.run_many(None, map(batch, range(6))))
    assert used == set(devices)
    for number, (y,) in enumerate(found):
        np.testing.assert_array_equal(y, number * W * np.ones((2, 1)))


def test_batches_are_taken_as_they_are_needed(model: onnx.ModelProto, devices: list[dmlvk.Device]) -> None:
    taken: list[int] = []

    def batches() -> Iterator[dict[str, Any]]:
        for number in range(100):
            taken.append(number)
            yield batch(number)

    found = InferenceSession(model, devices=devices).run_many(["y"], batches())
    for _ in range(3):
        next(found)
    assert len(taken) == 6
    found.close()


def test_one_device_runs_many_batches_too(model: onnx.ModelProto, device: dmlvk.Device) -> None:
    found = list(InferenceSession(model, device).run_many(None, map(batch, range(3))))
    assert [float(y[0, 0]) for (y,) in found] == [0, 1, 2]


def test_an_error_comes_in_its_place_and_the_session_stays(model: onnx.ModelProto, devices: list[dmlvk.Device]) -> None:
    session = InferenceSession(model, devices=devices)
    feeds = [batch(0), batch(1), {"x": np.ones((2, 3), np.float32)}, batch(3)]
    found, seen = session.run_many(None, feeds), []
    with pytest.raises(ModelError, match="'x'"):
        for (y,) in found:
            seen.append(float(y[0, 0]))
    assert seen == [0, 1]
    assert len(list(session.run_many(None, map(batch, range(5))))) == 5


def test_what_is_on_a_device_stays_there(model: onnx.ModelProto, devices: list[dmlvk.Device]) -> None:
    session = InferenceSession(model, devices=devices)
    (y,) = session.run_with_device_arrays(None, batch(2))
    for _ in range(3):
        (z,) = session.run(None, {"x": y})
        np.testing.assert_array_equal(z, 2 * W * W * np.ones((2, 1)))


def test_each_lost_device_is_opened_anew(
    model: onnx.ModelProto, device: dmlvk.Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = InferenceSession(model, devices=[device.info.uuid, device])
    lost = session.devices[0]
    monkeypatch.setattr(lost, "get_device_removed_reason", lambda: DeviceLostError("lost"))
    session.recover()
    assert session.devices[0] is not lost and session.devices[1] is device
    assert len(list(session.run_many(None, map(batch, range(4))))) == 4
    with pytest.raises(InvalidArgumentError, match="session of several devices"):
        session.recover(0)


def test_devices_are_given_once(model: onnx.ModelProto, device: dmlvk.Device) -> None:
    for devices in ([], [device]):
        with pytest.raises(InvalidArgumentError, match="devices: must be one device or more"):
            InferenceSession(model, device if devices else None, devices=devices)
