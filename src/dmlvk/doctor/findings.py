"""What can keep dmlvk from a device, looked for part by part: loader, variables, drivers, device files, cache, packages."""

from __future__ import annotations

import importlib.util
import json
import os
import pathlib
import re
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final, Literal

from dmlvk.doctor.system import VENDORS, System
from dmlvk.runtime.device import cache_folder

LOADERS: Final = {
    "win32": ("vulkan-1.dll",),
    "darwin": ("libvulkan.1.dylib", "libMoltenVK.dylib"),
    "linux": ("libvulkan.so.1", "libvulkan.so"),
}
"""The names by which the native module opens the loader, in its order."""

_GIVEN: Final = ("VK_DRIVER_FILES", "VK_ICD_FILENAMES")
"""The loader's variables that replace what is installed, the one that counts first."""
_FILES: Final = (*_GIVEN, "VK_ADD_DRIVER_FILES", "VK_LAYER_PATH", "VK_ADD_LAYER_PATH")
_FILTERS: Final = (
    *("VK_LOADER_DRIVERS_SELECT", "VK_LOADER_DRIVERS_DISABLE", "VK_LOADER_LAYERS_ENABLE", "VK_LOADER_LAYERS_DISABLE"),
    *("VK_LOADER_LAYERS_ALLOW", "VK_INSTANCE_LAYERS"),
)
_FOLDERS: Final = {
    "linux": ("/etc/xdg", "/etc", "/usr/local/share", "/usr/share"),
    "darwin": (
        *("/etc", "/usr/local/etc", "/usr/local/share", "/usr/share"),
        *("/opt/homebrew/etc", "/opt/homebrew/share"),
    ),
}
"""Where the loader looks for ``vulkan/icd.d``, besides what the user has."""

_VENDOR_IDS: Final = {"0x10de": "NVIDIA", "0x1002": "AMD", "0x8086": "Intel"}
_MODULES: Final = {"AMD": "amdgpu", "Intel": "i915"}
_DOCKER_NVIDIA: Final = "start the container with: docker run --gpus all -e NVIDIA_DRIVER_CAPABILITIES=all ..."
_WINDOW_LIBRARY: Final = re.compile(r"\blib(X|xcb|wayland)")
_OTHER_MACHINE: Final = re.compile(r"wrong ELF class|invalid ELF header|incompatible architecture")

_PACKAGES: Final = {
    ("onnx",): ("ONNX models", "dmlvk[onnx]"),
    ("onnxruntime",): ("nodes of a model that no device can do", "onnxruntime"),
    ("jinja2", "matplotlib"): ("reports as HTML pages", "dmlvk[report]"),
}


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at.

    Attributes:
        state: "ok"; "note": worth knowing; "fault": keeps something from working.
        part: What was looked at.
        text: What was found.
        mend: The command or the advice that changes it, "" where nothing needs to change.
    """

    state: Literal["ok", "note", "fault"]
    part: str
    text: str
    mend: str = ""


def all_findings(system: System) -> list[Finding]:
    """What there is to say of a machine, before a device is looked for."""
    parts = (loader, variables, drivers, device_files, cache, packages)
    return [finding for part in parts for finding in part(system)]


def loader(system: System) -> Iterator[Finding]:
    """The library through which every Vulkan driver is reached."""
    reasons = []
    for name in LOADERS.get(system.platform, LOADERS["linux"]):
        reason = system.opens(name)
        if not reason:
            yield Finding("ok", "Vulkan loader", name)
            return
        reasons.append(reason)
    yield Finding("fault", "Vulkan loader", "; ".join(reasons), system.install("loader"))


def variables(system: System) -> Iterator[Finding]:
    """The variables that change what the loader, or dmlvk, does: those that point nowhere, and those in force."""
    for name in sorted(system.environment):
        value = system.environment[name]
        unset = f"set {name}=" if system.platform == "win32" else f"unset {name}"
        if name in _FILES:
            missing = [path for path in system.paths(name) if not system.has(path)]
            if missing:
                yield Finding("fault", name, f"names {', '.join(missing)}: there is no such file", unset)
            else:
                yield Finding("note", name, f"is in force: {value}", unset)
        elif name in _FILTERS or name.startswith("DMLVK_"):
            yield Finding("note", name, f"is in force: {value}", unset)


def drivers(system: System) -> Iterator[Finding]:
    """The drivers' manifests, and whether the library of each can be opened. Windows keeps them in its registry."""
    if system.platform == "win32":
        return
    if system.platform == "darwin" and system.opens(LOADERS["darwin"][0]):
        return  # without a loader MoltenVK is opened directly, and needs no manifest
    given = replacing_variable(system)
    folders = _manifest_folders(system)
    listed = system.paths(given) if given else folders
    manifests = [found for path in (*listed, *system.paths("VK_ADD_DRIVER_FILES")) for found in _manifests(system, path)]
    for manifest in manifests:
        yield from _driver(system, manifest)
    names = [manifest.name for manifest in manifests]
    if given is None and system.nvidia_version and not any("nvidia" in name for name in names):
        text = f"the kernel has NVIDIA's driver {system.nvidia_version}, but there is no manifest of its Vulkan part"
        if "NVIDIA_DRIVER_CAPABILITIES" in system.environment:
            text += f"; NVIDIA_DRIVER_CAPABILITIES is {system.environment['NVIDIA_DRIVER_CAPABILITIES']}"
        yield Finding("fault", "NVIDIA's driver", text, nvidia_mend(system))
    if not manifests:
        mend = f"unset {given}" if given else system.install("mesa")
        yield Finding("fault", "drivers", f"there is no driver manifest in {' '.join(listed)}", mend)


def replacing_variable(system: System) -> str | None:
    """The variable in force that replaces the installed drivers by others."""
    return next((name for name in _GIVEN if system.environment.get(name)), None)


def _manifest_folders(system: System) -> list[str]:
    home = system.environment.get("HOME", "")
    own = [
        system.environment.get("XDG_CONFIG_HOME") or (home and f"{home}/.config"),
        *system.paths("XDG_CONFIG_DIRS"),
        *_FOLDERS.get(system.platform, _FOLDERS["linux"]),
        system.environment.get("XDG_DATA_HOME") or (home and f"{home}/.local/share"),
        *system.paths("XDG_DATA_DIRS"),
    ]
    return [f"{folder.rstrip('/')}/vulkan/icd.d" for folder in dict.fromkeys(filter(None, own))]


def _manifests(system: System, path: str) -> list[pathlib.Path]:
    """The manifests in a folder, or the one at the path."""
    found = system.path(path)
    if os.path.isdir(found):  # pathlib's own would raise of a folder that may not be read
        return sorted(found.glob("*.json"))
    return [found] if system.has(path) else []


def _driver(system: System, manifest: pathlib.Path) -> Iterator[Finding]:
    part = f"driver {system.shown(manifest)}"
    try:
        library = str(json.loads(manifest.read_text(encoding="utf-8"))["ICD"]["library_path"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        yield Finding("fault", part, f"is no manifest: {type(error).__name__}: {error}", "install its driver anew")
        return
    beside = manifest.parent / library if "/" in library and not library.startswith("/") else system.path(library)
    reason = system.opens(str(beside) if "/" in library else library)
    if not reason:
        yield Finding("ok", part, library)
    elif not _OTHER_MACHINE.search(reason):  # such as the manifests for programs of 32 bits, which lie beside
        yield Finding("fault", part, reason, _driver_mend(system, library, reason))


def _driver_mend(system: System, library: str, reason: str) -> str:
    if _WINDOW_LIBRARY.search(reason):
        return system.install("window")
    return nvidia_mend(system) if "nvidia" in library.lower() else system.install("mesa")


def nvidia_mend(system: System) -> str:
    """What brings the Vulkan part of NVIDIA's driver."""
    if system.in_container:
        return _DOCKER_NVIDIA
    return system.install("nvidia") if system.nvidia_version else VENDORS


def device_files(system: System) -> Iterator[Finding]:
    """The files through which drivers reach GPUs, and whether this user may use them. Other systems have none."""
    if system.platform in ("win32", "darwin"):
        return
    render = sorted(system.path("/dev/dri").glob("renderD*"))
    nvidia = sorted(system.path("/dev").glob("nvidia[0-9]*")) + sorted(system.path("/dev").glob("nvidiactl"))
    for path in (*render, *nvidia):
        if system.may_use(path):
            yield Finding("ok", "device file", system.shown(path))
        else:
            text = f"{system.shown(path)}: this user may not read and write it"
            yield Finding("fault", "device file", text, _access_mend(system, path))
    for vendor in sorted(gpu_vendors(system)):
        if not (nvidia if vendor == "NVIDIA" else render):
            files = "/dev/nvidia0 and /dev/nvidiactl" if vendor == "NVIDIA" else "/dev/dri/renderD*"
            yield Finding("fault", "device file", f"there is a GPU of {vendor}, but no {files}", _file_mend(system, vendor))


def gpu_vendors(system: System) -> set[str]:
    """Whose GPUs are on the machine's bus."""
    found = set()
    for device in system.path("/sys/bus/pci/devices").glob("*"):
        kind, vendor = (system.text(f"{system.shown(device)}/{name}").strip() for name in ("class", "vendor"))
        if kind.startswith("0x03") and vendor in _VENDOR_IDS:
            found.add(_VENDOR_IDS[vendor])
    return found


def _access_mend(system: System, path: pathlib.Path) -> str:
    group = path.stat().st_gid
    if system.in_container:
        return f"start the container with: docker run --group-add {group} ..."
    if group == 0:
        return f"sudo chmod a+rw {system.shown(path)}"
    return f'sudo usermod -aG "$(stat -c %G {system.shown(path)})" "$USER", then log in anew'


def _file_mend(system: System, vendor: str) -> str:
    if system.in_container:
        return _DOCKER_NVIDIA if vendor == "NVIDIA" else "start the container with: docker run --device /dev/dri ..."
    if vendor == "NVIDIA":
        return "sudo nvidia-modprobe -c 0" if system.nvidia_version else VENDORS
    return f"sudo modprobe {_MODULES[vendor]}"


def cache(system: System, folder: Callable[[], pathlib.Path] = cache_folder) -> Iterator[Finding]:
    """The folder of pipeline caches; without one pipelines are compiled in each process again."""
    try:
        path = folder()
        path.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=path).close()
    except (OSError, RuntimeError) as error:
        mend = "set DMLVK_CACHE_DIR to a folder that this user may write"
        yield Finding("fault", "pipeline cache", f"nothing can be kept: {error}", mend)
    else:
        yield Finding("ok", "pipeline cache", str(path))


def packages(system: System, find: Callable[[str], object] = importlib.util.find_spec) -> Iterator[Finding]:
    """The Python packages that parts of dmlvk need."""
    for names, (purpose, requirement) in _PACKAGES.items():
        missing = [name for name in names if find(name) is None]
        if missing:
            text = f"not installed; needed for {purpose}"
            mend = f"{pathlib.PurePath(sys.executable).name} -m pip install '{requirement}'"
            yield Finding("note", " and ".join(missing), text, mend)
        else:
            yield Finding("ok", " and ".join(names), f"installed, for {purpose}")
