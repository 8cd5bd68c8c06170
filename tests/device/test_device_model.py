"""A device of which nothing is known is measured when it is first opened, and never again."""

from __future__ import annotations

import dataclasses
import pathlib

import pytest

import dmlvk
from dmlvk.devices.model import GENERIC_GPU, Source
from dmlvk.runtime import device as opening
from dmlvk.runtime import measure
from dmlvk.runtime.device import known_model, model_path

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
    assert {name for name, source in sources.items() if source == Source.MEASURED} >= MEASURED - {"processors"}
    assert sources["processors"] in (Source.MEASURED, Source.VULKAN)
    assert sources["latency_microseconds"] == Source.GENERIC
    path = model_path(first.info)
    assert path is not None
    assert path.parent == unknown

    def never(device: dmlvk.Device) -> None:
        raise AssertionError("measured twice")

    monkeypatch.setattr(measure, "measured_numbers", never)
    assert dmlvk.Device(mask=dmlvk.Mask()).capabilities.model == found == known_model(first.info)


def test_a_masked_device_is_not_measured(unknown: pathlib.Path) -> None:
    mask = dmlvk.Mask(disable=("int8",))
    device = dmlvk.Device(mask=mask)
    assert Source.MEASURED not in device.capabilities.model.sources
    assert not list(unknown.glob("model*"))


def test_what_fails_to_be_measured_stays_unknown(unknown: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(device: dmlvk.Device) -> None:
        raise dmlvk.OutOfDeviceMemoryError("no room")

    monkeypatch.setattr(measure, "measured_numbers", fail)
    with pytest.warns(RuntimeWarning, match="could not measure"):
        device = dmlvk.Device(mask=dmlvk.Mask())
    assert Source.MEASURED not in device.capabilities.model.sources


def test_what_has_a_row_is_not_measured(monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path) -> None:
    monkeypatch.setenv("DMLVK_CACHE_DIR", str(tmp_path))
    device = dmlvk.Device(mask=dmlvk.Mask())
    if not device.capabilities.is_cpu:
        pytest.skip("it takes the driver of a CPU")
    assert set(device.capabilities.model.sources) == {Source.SHIPPED}
    assert not list(tmp_path.glob("model*"))
