"""A device's model: where its numbers come from, how measured ones are rounded and kept, what masks make of it."""

from __future__ import annotations

import dataclasses
import json
import pathlib

import pytest

from dmlvk.devices.capabilities import Capabilities
from dmlvk.devices.mask import Mask
from dmlvk.devices.model import CPU, GENERIC_GPU, H200, MODELS, NUMBERS, PHONE, NumberSource, nearest_power_of_two, preferred
from dmlvk.runtime.model_file import read_model, write_model
from dmlvk.spec.errors import InvalidArgumentError

NUMBERS_OF_ONE = {"processors": 20, "bytes_per_microsecond": 1e5}


def test_capabilities_have_a_model() -> None:
    assert Capabilities().model is GENERIC_GPU
    assert Capabilities(is_cpu=True).model is CPU
    assert Capabilities(is_cpu=True, model=PHONE).model is PHONE
    assert dataclasses.replace(Capabilities(), model=H200).model is H200


def test_what_is_told_goes_before_what_was_there() -> None:
    told = GENERIC_GPU.told(NumberSource.MEASURED, NUMBERS_OF_ONE).told(
        NumberSource.VULKAN, {"processors": 24, "half_products_per_microsecond": None}
    )
    assert (told.processors, told.bytes_per_microsecond, told.half_products_per_microsecond) == (24, 1e5, None)
    known = told.known()
    assert known["processors"] == (24, "Vulkan")
    assert known["bytes_per_microsecond"] == (1e5, "measured")
    assert known["launch_microseconds"] == (GENERIC_GPU.launch_microseconds, "generic")
    assert "half_products_per_microsecond" not in known
    assert "processors 24 (Vulkan)" in str(told)
    assert told == dataclasses.replace(told, sources=H200.sources), "models are their numbers"


def test_rows_are_named_and_positive() -> None:
    for name, model in MODELS.items():
        assert model.name == name
        assert all(value > 0 for value, _ in model.known().values())
        assert len(model.sources) == len(NUMBERS)


def test_counts_are_powers_of_two_of_processors() -> None:
    assert [nearest_power_of_two(count) for count in (1, 3, 20, 23, 108, 132, 0.3)] == [1, 4, 16, 32, 128, 128, 1]
    assert H200.workgroups(8) == 1024
    assert H200.workgroups(0.75) == 96
    assert H200.invocations(0.5) == 2**17
    assert dataclasses.replace(H200, resident_invocations=1536).invocations(0.5) == 2**17
    assert dataclasses.replace(GENERIC_GPU, processors=20).workgroups(8) == 128
    assert dataclasses.replace(GENERIC_GPU, processors=1).workgroups(0.25) == 1


def test_measurements_of_one_device_are_one_number() -> None:
    assert preferred(4.249e6) == 4e6
    assert preferred(2.25) == 2.5
    assert preferred(0.16) == pytest.approx(0.16)
    assert {preferred(19.2), preferred(20.0), preferred(20.9)} == {20.0}


def test_a_kept_model_is_read_again(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "model.json"
    assert read_model(path) is None
    write_model(path, "a GPU", NUMBERS_OF_ONE)
    assert read_model(path) == NUMBERS_OF_ONE
    write_model(path, "a GPU", {"processors": 7})
    assert read_model(path) == {"processors": 7}
    assert list(tmp_path.iterdir()) == [path], "nothing else is left"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "{}",
        json.dumps({"format": 0, "numbers": NUMBERS_OF_ONE}),
        json.dumps({"format": 1, "numbers": {"processors": "20"}}),
        json.dumps({"format": 1, "numbers": {"processors": -1}}),
        json.dumps({"format": 1, "numbers": {"processors": True}}),
        json.dumps({"format": 1, "numbers": {"speed": 1}}),
        json.dumps({"format": 1, "numbers": [1]}),
        '{"format": 1, "numbers": {"processors": Infinity}}',
    ],
)
def test_a_broken_or_older_file_is_none(tmp_path: pathlib.Path, text: str) -> None:
    path = tmp_path / "model.json"
    path.write_text(text)
    assert read_model(path) is None


def test_masks_and_profiles_state_a_model(monkeypatch: pytest.MonkeyPatch) -> None:
    own = Capabilities(model=H200)
    assert Mask().applied(own, 16, 32).capabilities.model is H200
    assert Mask("mali").applied(own, 16, 32).capabilities.model is PHONE
    assert Mask("moltenvk").applied(own, 16, 32).capabilities.model is H200
    assert Mask("mali", model="gpu").applied(own, 16, 32).capabilities.model is GENERIC_GPU
    cpu = Capabilities(is_cpu=True)
    assert Mask("mali", model="h200").applied(cpu, 16, 32).capabilities.model is CPU
    monkeypatch.setenv("DMLVK_MODEL", " phone ")
    assert Mask.from_environment() == Mask(model="phone")
    assert str(Mask.from_environment()) == "model phone"
    with pytest.raises(InvalidArgumentError, match=r"DMLVK_MODEL.*h200, gpu, cpu, phone|h200, gpu, cpu, phone.*DMLVK_MODEL"):
        Mask(model="fast")
