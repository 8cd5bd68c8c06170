"""The fault layer as Python sees it: built once for its sources, loaded by the Vulkan loader, planned from here."""

from __future__ import annotations

import ctypes
import hashlib
import json
import os
import pathlib
import shutil
import subprocess
import sys
from types import ModuleType
from typing import Final

sys.path.insert(0, str(pathlib.Path(__file__).parent))

import registry

from dmlvk.runtime import _native

NAME: Final = "VK_LAYER_DMLVK_faults"
FOLDER: Final = pathlib.Path(__file__).parents[2] / "build" / "faults"
SOURCE: Final = pathlib.Path(__file__).with_name("layer.c")


def missing() -> str:
    """What this machine lacks to build the layer, "" where it lacks nothing."""
    if not sys.platform.startswith("linux"):
        return "the fault layer is built on Linux only"
    if shutil.which("cc") is None:
        return "no C compiler for the fault layer"
    return "" if registry.registry_path() else "no Vulkan registry (vk.xml) for the fault layer"


def build() -> pathlib.Path:
    """The folder of the library and its manifest, made anew where a source has changed."""
    wrappers = registry.wrappers()
    folder = (
        FOLDER
        / hashlib.sha256(SOURCE.read_bytes() + pathlib.Path(__file__).read_bytes() + wrappers.encode()).hexdigest()[:16]
    )
    if not folder.exists():
        unfinished = folder.with_suffix(f".{os.getpid()}")
        unfinished.mkdir(parents=True)
        (unfinished / "functions.inc").write_text(wrappers)
        flags = ["-O1", "-g", "-Wall", "-Wextra", "-Werror", "-fPIC", "-shared", "-fvisibility=hidden"]
        command = ["cc", *flags, f"-I{unfinished}", str(SOURCE), "-o", str(unfinished / "libfaults.so"), "-lpthread"]
        subprocess.run(command, check=True)
        described = {
            "name": NAME,
            "type": "GLOBAL",
            "library_path": "./libfaults.so",
            "api_version": "1.3.0",
            "implementation_version": "1",
            "description": "Faults for dmlvk's tests",
        }
        manifest = {"file_format_version": "1.2.0", "layer": described}
        (unfinished / "faults.json").write_text(json.dumps(manifest))
        try:
            unfinished.rename(folder)
        except OSError:  # another process was faster
            shutil.rmtree(unfinished)
    return folder


def environment() -> dict[str, str]:
    """What a process needs in its environment so that the loader loads the layer, nearest to dmlvk."""
    folder = build()
    return {"VK_ADD_LAYER_PATH": str(folder), "VK_INSTANCE_LAYERS": NAME, "LD_PRELOAD": str(folder / "libfaults.so")}


def _code_of(module: ModuleType) -> tuple[int, int]:
    """The addresses between which a native module's code lies. Its C++ runtime is linked into it, operator new too."""
    spans = [
        [int(address, 16) for address in line.split()[0].split("-")]
        for line in pathlib.Path("/proc/self/maps").read_text().splitlines()
        if line.endswith(str(pathlib.Path(module.__file__ or "").resolve())) and "x" in line.split()[1]
    ]
    return min(begin for begin, _ in spans), max(end for _, end in spans)


class Layer:
    """The layer in this process, which was started with ``environment``."""

    def __init__(self) -> None:
        self._library = ctypes.CDLL(str(build() / "libfaults.so"))
        self._library.faults_fired.restype = ctypes.c_uint64
        self._library.faults_calls.restype = ctypes.c_uint64
        self._library.faults_live.restype = ctypes.c_int64
        self._library.faults_memory.restype = ctypes.c_uint64
        self._library.faults_misused.restype = ctypes.c_uint64
        self._library.faults_allocations.restype = ctypes.c_uint64
        self.watch_allocations(_native)
        self._numbers = {command.name: number for number, command in enumerate(registry.commands())}

    def watch_allocations(self, module: ModuleType) -> None:
        """Counts the allocations of a native module, too."""
        self._library.faults_watch_allocations(*map(ctypes.c_uint64, _code_of(module)))

    def plan(self, function: str, first: int, times: int, result: str) -> None:
        """Makes calls of a function fail, counted from here and from 1: ``times`` calls from ``first`` on."""
        if function == registry.ALLOCATION.name:
            self._library.faults_refuse_allocations(ctypes.c_uint64(first), ctypes.c_uint64(times))
            return
        value = registry.result_values()[result]
        self._library.faults_plan(self._numbers[function], ctypes.c_uint64(first), ctypes.c_uint64(times), value)

    def count(self) -> None:
        """Makes every call as it is, and counts from here."""
        self._library.faults_plan(-1, ctypes.c_uint64(0), ctypes.c_uint64(0), 0)

    def interrupt_call(self, number: int) -> None:
        """Sends SIGINT at the call with this number, of any function, from 1."""
        self._library.faults_interrupt_call(ctypes.c_uint64(number))

    def interrupt_after(self, seconds: float) -> None:
        """Sends SIGINT when that time has passed; 0 calls it off."""
        if self._library.faults_interrupt_after(ctypes.c_uint64(int(seconds * 1e9))):
            raise OSError("no timer")

    @property
    def fired(self) -> int:
        """How many calls failed, or were interrupted, since the plan was made."""
        return int(self._library.faults_fired())

    def calls(self) -> dict[str, int]:
        """The calls of each function since the plan was made; functions without any are left out."""
        found = {name: int(self._library.faults_calls(number)) for name, number in self._numbers.items()}
        found[registry.ALLOCATION.name] = int(self._library.faults_allocations())
        return {name: calls for name, calls in found.items() if calls}

    def live(self) -> dict[str, int]:
        """Objects made and not destroyed, by kind, and ``bytes`` of device memory; what is 0 is left out."""
        found = {kind: int(self._library.faults_live(number)) for number, kind in enumerate(registry.kinds())}
        found["bytes"] = int(self._library.faults_memory())
        return {kind: amount for kind, amount in found.items() if amount}

    @property
    def misused(self) -> int:
        """How often a command buffer was submitted that could not be ended."""
        return int(self._library.faults_misused())
