"""A device of which nothing is known is measured when it is first opened, and never again."""

from __future__ import annotations

import concurrent.futures
import dataclasses
import os
import pathlib
import time
from collections.abc import Callable
from typing import Any

import pytest

import dmlvk
from dmlvk.devices.model import GENERIC_GPU, NumberSource
from dmlvk.runtime import device as opening
from dmlvk.runtime import measure
from dmlvk.runtime.device import ComputeDevice, known_model, model_path
from dmlvk.runtime.model_file import read_model, write_model
from dmlvk.runtime.recorder import Recording

MEASURED = {"processors", "bytes_per_microsecond", "launch_microseconds", "barrier_microseconds", "products_per_microsecond"}


@pytest.fixture
def unknown(monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path) -> pathlib.Path:
    """Makes every device one of which nothing is known, and an empty folder to keep measurements in."""
    monkeypatch.setenv("DMLVK_CACHE_DIR", str(tmp_path))
    row = dataclasses.replace(GENERIC_GPU)
    for name in ("CPU", "GENERIC_GPU"):
        monkeypatch.setattr(opening, name, row)
    monkeypatch.setattr(opening, "DEVICES", {})
    return tmp_path


def test_an_unknown_device_is_measured_once(unknown: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = dmlvk.Device(mask=dmlvk.Mask())
    found = first.capabilities.model
    sources = {name: source for name, (_, source) in found.known().items()}
    assert {name for name, source in sources.items() if source == NumberSource.MEASURED} >= MEASURED - {"processors"}
    assert sources["processors"] in (NumberSource.MEASURED, NumberSource.VULKAN)
    assert sources["latency_microseconds"] == NumberSource.GENERIC
    path = model_path(first.info)
    assert path is not None
    assert path.parent == unknown

    def never(device: dmlvk.Device) -> None:
        raise AssertionError("measured twice")

    monkeypatch.setattr(measure, "measured_numbers", never)
    assert dmlvk.Device(mask=dmlvk.Mask()).capabilities.model == found == known_model(first.info)


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Makes measuring quick, and lists the devices that were measured."""
    names: list[str] = []

    def numbers(device: ComputeDevice) -> dict[str, float]:
        names.append(device.info.name)
        return {"processors": 10.0 * len(names)}

    monkeypatch.setattr(measure, "measured_numbers", numbers)
    return names


class _Changed:
    """A device of which some things are told otherwise, as after an update of its driver."""

    def __init__(self, own: Any, told: dict[str, Any]) -> None:
        self._own = own
        self.__dict__.update(told)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._own, name)


def kept(info: dmlvk.DeviceInfo) -> pathlib.Path:
    path = model_path(info)
    assert path is not None
    return path


def test_a_broken_file_is_measured_anew(unknown: pathlib.Path, measured: list[str]) -> None:
    info = opening.choose_device()
    kept(info).write_text('{"format": 1, "numbers": {"processors": ')
    assert dmlvk.Device(mask=dmlvk.Mask()).capabilities.model.processors == 10
    assert read_model(kept(info)) == {"processors": 10}
    dmlvk.Device(mask=dmlvk.Mask())
    assert len(measured) == 1


def next_version(own: Any) -> _Changed:
    return _Changed(own, {"driver_version": own.driver_version + 1})


def twice_as_wide(own: Any) -> _Changed:
    return _Changed(own, {"limits": {**own.limits, "subgroupSize": 2 * own.limits["subgroupSize"]}})


@pytest.mark.parametrize("changed", [next_version, twice_as_wide])
def test_another_driver_or_size_of_subgroups_is_measured_anew(
    unknown: pathlib.Path,
    measured: list[str],
    monkeypatch: pytest.MonkeyPatch,
    changed: Callable[[Any], _Changed],
) -> None:
    device = dmlvk.Device(mask=dmlvk.Mask())
    assert device.capabilities.model.processors == 10
    old, others = kept(device.info), [changed(own) for own in opening._physical_devices()]
    monkeypatch.setattr(opening, "_physical_devices", lambda: others)
    assert dmlvk.Device(mask=dmlvk.Mask()).capabilities.model.processors == 20
    assert sorted(unknown.glob("model*")) == sorted((old, kept(device.info)))
    assert len(measured) == 2


@pytest.mark.parametrize("writable", [True, False])
def test_what_cannot_be_kept_stays_unknown(
    unknown: pathlib.Path, measured: list[str], monkeypatch: pytest.MonkeyPatch, writable: bool
) -> None:
    if writable:  # but no file can be put where the numbers belong
        kept(opening.choose_device()).mkdir()
        with pytest.warns(RuntimeWarning, match="could not measure"):
            device = dmlvk.Device(mask=dmlvk.Mask())
    else:
        monkeypatch.setattr(os, "access", lambda path, mode: False)
        device = dmlvk.Device(mask=dmlvk.Mask())
        assert not measured
    assert NumberSource.MEASURED not in device.capabilities.model.sources


def test_without_a_folder_a_device_stays_unknown(
    unknown: pathlib.Path, measured: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (unknown / "file").touch()
    monkeypatch.setenv("DMLVK_CACHE_DIR", str(unknown / "file" / "folder"))
    with pytest.warns(RuntimeWarning, match="keeps no pipeline cache"):
        device = dmlvk.Device(mask=dmlvk.Mask())
    assert NumberSource.MEASURED not in device.capabilities.model.sources
    assert not measured


def test_of_two_processes_the_first_one_counts(
    unknown: pathlib.Path, measured: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    ours = measure.measured_numbers

    def slower(device: ComputeDevice) -> dict[str, float]:
        write_model(kept(device.info), device.info.name, {"processors": 7})
        return ours(device)

    monkeypatch.setattr(measure, "measured_numbers", slower)
    device = dmlvk.Device(mask=dmlvk.Mask())
    assert measured
    assert device.capabilities.model.processors == 7
    assert read_model(kept(device.info)) == {"processors": 7}


def test_of_two_threads_one_measures(unknown: pathlib.Path, measured: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    ours = measure.measured_numbers

    def slower(device: ComputeDevice) -> dict[str, float]:
        numbers = ours(device)
        time.sleep(0.2)
        return numbers

    monkeypatch.setattr(measure, "measured_numbers", slower)
    devices = [ComputeDevice(mask=dmlvk.Mask()) for _ in range(2)]
    with concurrent.futures.ThreadPoolExecutor(2) as threads:
        list(threads.map(measure.learn_model, devices))
    assert {device.capabilities.model.processors for device in devices} == {10}
    assert len(measured) == 1


def test_a_masked_device_is_not_measured(unknown: pathlib.Path) -> None:
    mask = dmlvk.Mask(disable=("int8",))
    device = dmlvk.Device(mask=mask)
    assert NumberSource.MEASURED not in device.capabilities.model.sources
    assert not list(unknown.glob("model*"))


def test_what_fails_to_be_measured_stays_unknown(unknown: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(device: dmlvk.Device) -> None:
        raise dmlvk.OutOfDeviceMemoryError("no room")

    monkeypatch.setattr(measure, "measured_numbers", fail)
    with pytest.warns(RuntimeWarning, match="could not measure"):
        device = dmlvk.Device(mask=dmlvk.Mask())
    assert NumberSource.MEASURED not in device.capabilities.model.sources


def test_what_has_a_row_is_not_measured(monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path) -> None:
    monkeypatch.setenv("DMLVK_CACHE_DIR", str(tmp_path))
    device = dmlvk.Device(mask=dmlvk.Mask())
    if not device.capabilities.is_cpu:
        pytest.skip("it takes the driver of a CPU")
    assert set(device.capabilities.model.sources) == {NumberSource.SHIPPED}
    assert not list(tmp_path.glob("model*"))


def test_a_gpu_is_at_work_before_it_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    """The clocks of an idle one are slow."""
    device = dmlvk.Device(mask=dmlvk.Mask())
    device.capabilities = dataclasses.replace(device.capabilities, is_cpu=False)
    done: list[str] = []
    submit = Recording.submit

    def working(self: Recording, **options: bool) -> None:
        done.append("work")
        submit(self, **options)

    def measured(device: ComputeDevice, commands: object) -> float:
        done.append("measurement")
        return 1.0

    monkeypatch.setattr(Recording, "submit", working)
    monkeypatch.setattr(measure, "_seconds", measured)
    monkeypatch.setattr(measure, "_WAKING_BYTES", 1 << 16)
    assert measure.copy_bandwidth(device) > 0
    assert done == ["work"] * (len(done) - 1) + ["measurement"] and len(done) > 2
