"""What a node announces to Ray, and how its processes share devices among themselves."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from dmlvk.ray import devices as module
from dmlvk.ray.devices import Place, assigned_device, resources, take
from dmlvk.runtime import device as runtime
from dmlvk.runtime.device import DeviceInfo
from dmlvk.spec.errors import InvalidArgumentError, NoDeviceError, StateError

pytestmark = pytest.mark.slow  # Ray takes seconds to be imported

ONE, TWO = Place("11111111", 0), Place("22222222", 0)


def info(index: int, kind: str) -> DeviceInfo:
    return DeviceInfo(index, f"device {index}", f"uuid{index}", "driver", kind, (1, 3, 0), 1 << 30, {})


@pytest.fixture
def devices(monkeypatch: pytest.MonkeyPatch) -> list[DeviceInfo]:
    found = [info(0, "cpu"), info(1, "discrete"), info(2, "integrated")]
    monkeypatch.setattr(module, "devices", lambda: found)
    return found


def test_a_node_announces_its_devices_by_uuid(devices: list[DeviceInfo]) -> None:
    assert resources() == {"vulkan": 2, "vulkan-uuid1": 1, "vulkan-uuid2": 1}
    assert resources([2, "uuid2"]) == {"vulkan": 1, "vulkan-uuid2": 1}


def test_a_processor_is_announced_where_there_is_nothing_else(devices: list[DeviceInfo]) -> None:
    assert resources([0], copies=2) == {"vulkan": 2, "vulkan-uuid0": 2}
    del devices[1:]
    assert resources(copies=3) == {"vulkan": 3, "vulkan-uuid0": 3}
    devices.clear()
    with pytest.raises(NoDeviceError):
        resources()


def test_no_copies_are_refused(devices: list[DeviceInfo]) -> None:
    with pytest.raises(InvalidArgumentError, match="copies: must be at least 1; got 0"):
        resources(copies=0)


def test_each_holder_has_a_device_of_its_own(tmp_path: Path) -> None:
    first, _ = take(tmp_path, [ONE, TWO], 1)
    second, file = take(tmp_path, [ONE, TWO], 1)
    assert {first, second} == {ONE, TWO}
    with pytest.raises(NoDeviceError, match=f"process {os.getpid()}: 1 of 11111111"):
        take(tmp_path, [ONE, TWO], 0.1, seconds=0)
    os.close(file)
    assert take(tmp_path, [ONE, TWO], 1)[0] == second


def test_shares_fill_a_device_before_they_begin_another(tmp_path: Path) -> None:
    places = [take(tmp_path, [ONE, TWO], share)[0] for share in (0.5, 0.25, 1, 0.25)]
    assert places == [ONE, ONE, TWO, ONE]


def test_what_a_process_held_is_free_when_it_is_killed(tmp_path: Path) -> None:
    code = "import sys; from pathlib import Path; from dmlvk.ray.devices import Place, take\n"
    code += f"take(Path({str(tmp_path)!r}), [Place('11111111', 0)], 1); print('has it', flush=True); sys.stdin.read()"
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None and other.stdout.readline() == "has it\n"
        with pytest.raises(NoDeviceError, match=f"process {other.pid}: 1 of 11111111"):
            take(tmp_path, [ONE], 1, seconds=0)
        other.kill()
        other.wait()
    assert take(tmp_path, [ONE], 1, seconds=0)[0] == ONE


def test_a_process_sees_the_devices_that_it_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    names = ("index", "name", "uuid", "driver", "type", "api_version", "memory_bytes", "features", "vendor_id", "device_id")
    rows = [(at, f"device {at}", f"uuid{at}", "driver", "cpu", (1, 3, 0), 1, {}, 0, 0) for at in range(3)]
    there = [SimpleNamespace(**dict(zip(names, row, strict=True))) for row in rows]
    monkeypatch.setattr(runtime, "_physical_devices", lambda: there)
    monkeypatch.setenv("DMLVK_VISIBLE_DEVICES", "UUID2,uuid1")
    assert [item.uuid for item in runtime.devices()] == ["uuid1", "uuid2"]
    with pytest.raises(NoDeviceError, match=r"no Vulkan 1\.3 device matches 0"):
        runtime.choose_device(0)
    monkeypatch.setenv("DMLVK_VISIBLE_DEVICES", "")
    assert runtime.devices() == []


def test_only_an_actor_is_given_a_device() -> None:
    with pytest.raises(StateError, match="only an actor of Ray"):
        assigned_device()
