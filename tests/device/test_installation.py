"""What machines differ in besides their devices: where caches lie, and whether there is a Vulkan loader or a fork."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys

import pytest
import smoke_test

from dmlvk.runtime.device import cache_folder


@pytest.mark.parametrize(
    ("platform", "environment", "folder"),
    [
        ("linux", {}, "home/.cache/dmlvk"),
        ("linux", {"XDG_CACHE_HOME": "elsewhere"}, "elsewhere/dmlvk"),
        ("darwin", {}, "home/Library/Caches/dmlvk"),
        ("win32", {}, "home/AppData/Local/dmlvk"),
        ("win32", {"LOCALAPPDATA": "local", "XDG_CACHE_HOME": "elsewhere"}, "local/dmlvk"),
        ("win32", {"LOCALAPPDATA": "local", "DMLVK_CACHE_DIR": "given"}, "given"),
    ],
)
def test_caches_lie_where_the_system_keeps_them(
    platform: str, environment: dict[str, str], folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("XDG_CACHE_HOME", "LOCALAPPDATA", "DMLVK_CACHE_DIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", "home")
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(sys, "platform", platform)
    assert cache_folder() == pathlib.Path(folder)


def python(script: str, **environment: str) -> str:
    """What a script prints in a process of its own."""
    command = [sys.executable, "-c", script]
    return subprocess.run(command, env={**os.environ, **environment}, check=True, capture_output=True, text=True).stdout


def test_without_a_loader_the_package_imports_and_says_so(tmp_path: pathlib.Path) -> None:
    script = """
import dmlvk
for call in (dmlvk.devices, dmlvk.Device, lambda: dmlvk.eager.element_wise_abs([1.0])):
    try:
        call()
    except dmlvk.NoDeviceError as error:
        print(error)
print(dmlvk.TensorDesc(dmlvk.TensorDataType.FLOAT32, (2,)).total_tensor_size_in_bytes)
"""
    *errors, last = python(script, **smoke_test.broken_loader(tmp_path)).splitlines()
    assert len(errors) == 3 and last == "8"
    assert all(error.startswith("no Vulkan loader: ") for error in errors)


def test_without_a_driver_too(tmp_path: pathlib.Path) -> None:
    missing = str(tmp_path / "none.json")
    said = python(
        "import dmlvk\ntry:\n    dmlvk.Device()\nexcept dmlvk.NoDeviceError as error:\n    print(error)",
        VK_DRIVER_FILES=missing,
        VK_ICD_FILENAMES=missing,
    )
    assert said.startswith("vkCreateInstance: no Vulkan driver is installed")


def test_a_system_without_fork_will_do() -> None:
    script = (
        "import os\ndel os.fork, os.register_at_fork\nfrom dmlvk.runtime.device import devices\nprint(len(devices()) > 0)"
    )
    assert python(script) == "True\n"
