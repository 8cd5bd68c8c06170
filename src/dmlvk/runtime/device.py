"""Vulkan devices: listing, choosing and opening them, with their capabilities, pipelines and pipeline cache.

Environment variables:
    DMLVK_DEVICE: The default choice: an index, a UUID or part of a name.
    DMLVK_VISIBLE_DEVICES: UUIDs with commas between: the process sees no other devices.
    DMLVK_PROFILE, DMLVK_DISABLE, DMLVK_SUBGROUP_SIZE, DMLVK_CLAIMED_SUBGROUP_SIZE, DMLVK_LIMITS, DMLVK_MODEL: What devices
        are to do without; see ``Mask``.
    DMLVK_CACHE_DIR: Folder of the pipeline caches and measured models, instead of ``dmlvk`` where the system keeps caches:
        ``$XDG_CACHE_HOME`` or ``~/.cache``, on Windows ``%LOCALAPPDATA%``, on macOS ``~/Library/Caches``.
    DMLVK_WAIT_TIMEOUT: Seconds; see ``ComputeDevice.wait_timeout``.
    DMLVK_VALIDATION: "1" switches the Khronos validation layer on, core and synchronisation checks.
"""

from __future__ import annotations

import atexit
import collections
import contextlib
import dataclasses
import functools
import itertools
import math
import numbers
import os
import pathlib
import sys
import threading
import time
import warnings
import weakref
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from dmlvk.devices.capabilities import Capabilities, CooperativeMatrix
from dmlvk.devices.mask import Mask
from dmlvk.devices.model import CPU, DEVICES, GENERIC_GPU, DeviceModel, NumberSource
from dmlvk.html.elements import facts, notebook
from dmlvk.html.words import size
from dmlvk.kernels.common.kernel import GLSL_TYPES
from dmlvk.kernels.common.library import pipeline_spirv
from dmlvk.kernels.common.plan import COUNTERS, Dispatch, KernelVariant
from dmlvk.kernels.manifest import KERNELS
from dmlvk.runtime.byte_offsets import without_byte_offsets
from dmlvk.runtime.memory import PURPOSE_NUMBERS, Buffer, ParameterArena, ParameterBlock, Purpose
from dmlvk.runtime.model_file import read_model
from dmlvk.runtime.program import Executable, executables_of
from dmlvk.runtime.threads import start_thread
from dmlvk.spec.enums import TensorDataType
from dmlvk.spec.errors import (
    DeviceLostError,
    InvalidArgumentError,
    NoDeviceError,
    OutOfDeviceMemoryError,
    UnsupportedError,
    VulkanError,
)
from dmlvk.spec.log import logger

if TYPE_CHECKING:
    # Where it runs, it is imported inside functions: loading it registers functions to be called at exit, which importing
    # dmlvk must not.
    from dmlvk.runtime import _native

_NUMBERS: Final = itertools.count(1)
_MOST_THREADS: Final = 16
_PREFERENCE: Final = ("discrete", "integrated", "virtual", "cpu", "other")

DeviceChoice = int | str | None
"""An index, a UUID, part of a name (any case), or None for DMLVK_DEVICE, else the first of the most capable type."""


@dataclass(frozen=True)
class DeviceInfo:
    """One Vulkan device as its driver describes it.

    Attributes:
        index: Its place in the loader's list.
        name: The name that the driver gives.
        uuid: The UUID of the device, 8-4-4-4-12 hexadecimal digits.
        driver: Name and version of the driver.
        type: "discrete", "integrated", "virtual", "cpu" or "other".
        api_version: Vulkan's, (major, minor, patch).
        memory_in_bytes: Sum of the device-local heaps.
        features: dmlvk's feature names -> whether the device reports them.
        vendor_id, device_id: The numbers of the vendor, on PCI's list or the Khronos Group's, and of its device.
    """

    index: int
    name: str
    uuid: str
    driver: str
    type: str
    api_version: tuple[int, int, int]
    memory_in_bytes: int
    features: Mapping[str, bool] = field(hash=False)
    vendor_id: int = 0
    device_id: int = 0

    def _facts(self) -> list[tuple[str, str]]:
        """What there is to say of it beside its name, in pairs."""
        return [
            ("type", self.type),
            ("memory", size(self.memory_in_bytes)),
            ("driver", self.driver),
            ("Vulkan", ".".join(map(str, self.api_version))),
            ("uuid", self.uuid),
            ("features", ", ".join(name for name, there in self.features.items() if there)),
            ("without", ", ".join(name for name, there in self.features.items() if not there)),
        ]

    def _repr_html_(self) -> str:
        return notebook(type(self).__name__, f"{self.index}: {self.name}", facts(self._facts()))


def _physical_devices() -> list[_native.PhysicalDevice]:
    from dmlvk.runtime import _native

    return _native.physical_devices()


def devices() -> list[DeviceInfo]:
    """Every device of at least Vulkan 1.3 with a compute queue, in the loader's order, but for those that
    DMLVK_VISIBLE_DEVICES leaves out. Opens none of them.

    Raises:
        NoDeviceError: no Vulkan loader or driver is installed.
    """
    visible = os.environ.get("DMLVK_VISIBLE_DEVICES")
    return [
        DeviceInfo(
            native.index,
            native.name,
            native.uuid,
            native.driver,
            native.type,
            native.api_version,
            native.memory_bytes,
            dict(native.features),
            native.vendor_id,
            native.device_id,
        )
        for native in _physical_devices()
        if visible is None or native.uuid in visible.lower().split(",")
    ]


def worthy(candidates: Sequence[DeviceInfo]) -> list[DeviceInfo]:
    """Those of several devices on which all work is shared out: all that are no processor's, or where there are none the
    first. A device that is listed twice is there once."""
    found = {info.uuid: info for info in reversed(candidates)}
    chosen = [info for info in candidates if info.type != "cpu" and info is found[info.uuid]]
    return chosen or list(candidates[:1])


def choose_device(choice: DeviceChoice = None, candidates: Sequence[DeviceInfo] | None = None) -> DeviceInfo:
    """The device that a choice means; of several the first of the best type: discrete, integrated, virtual, cpu.

    Args:
        choice: See ``DeviceChoice``.
        candidates: The devices to choose from, ``devices()`` where not given.

    Raises:
        NoDeviceError: there is no device, or none that matches.
    """
    found = devices() if candidates is None else list(candidates)
    if choice is None:
        choice = os.environ.get("DMLVK_DEVICE") or None
    if isinstance(choice, str) and choice.isdecimal():
        choice = int(choice)
    if choice is None:
        matches = found
    elif not isinstance(choice, int | str) or isinstance(choice, bool):
        raise InvalidArgumentError("must be an index, a UUID, part of a name or None", field="choice", value=choice)
    elif isinstance(choice, int):
        matches = [info for info in found if info.index == choice]
    else:
        wanted = choice.lower()
        matches = [info for info in found if info.uuid == wanted] or [i for i in found if wanted in i.name.lower()]
    if not matches:
        if not found:
            raise NoDeviceError("there is no Vulkan 1.3 device")
        listed = ", ".join(f"{info.index}: {info.name} ({info.uuid})" for info in found)
        raise NoDeviceError(f"no Vulkan 1.3 device matches {choice!r}; there are {listed}")
    return min(matches, key=lambda info: (_PREFERENCE.index(info.type), info.index))


def validation_messages(clear: bool = True) -> list[str]:
    """The validation layer's messages since the last call. Empty unless DMLVK_VALIDATION=1 was set before the first use.

    Args:
        clear: Whether to forget the messages that are returned.
    """
    from dmlvk.runtime import _native

    return _native.validation_messages(clear)


class ComputeDevice:
    """An open Vulkan device: memory, kernels and command lists, shared freely between threads.

    Args:
        choice, mask: See ``Device``.
        max_memory_bytes, max_launches: See ``Device``.

    Attributes:
        info: The device's description.
        capabilities: The capabilities that kernels may rely on here.
        native: The native device; for ``dmlvk.runtime`` only.
        mask: The mask that the device runs under.
        has_timestamps: Whether its queue can take the time.
        kept: What others keep for the device, each under a key of its own. It goes with the device and may not hold it: a
            weak dictionary's entry stays where an interrupt comes while Python drops it.
        max_memory_bytes: The most bytes of all buffers, None for what the driver gives.
    """

    _is_open = False

    def __init__(
        self,
        choice: DeviceChoice | DeviceInfo = None,
        *,
        mask: Mask | None = None,
        max_memory_bytes: int | None = None,
        max_launches: int | None = None,
    ) -> None:
        from dmlvk.runtime import _native

        for name, most in (("max_memory_bytes", max_memory_bytes), ("max_launches", max_launches)):
            if most is not None and (not isinstance(most, numbers.Integral) or most < 1):
                raise InvalidArgumentError("must be an integer of at least 1, or None", field=name, value=most)
        self.info = choice if isinstance(choice, DeviceInfo) else choose_device(choice)
        self._number = next(_NUMBERS)
        self._cache_path = str(_cached_file(self.info, "pipelines", "bin") or "")
        self.mask = Mask.from_environment() if mask is None else mask
        physical = _physical_devices()[self.info.index]
        limits = physical.limits
        reduced = self.mask.applied(
            _reported(physical, known_model(self.info)),
            int(limits["minStorageBufferOffsetAlignment"]),
            int(limits["maxComputeWorkgroupSubgroups"]),
        )
        self.native = _native.Device(self.info.index, disable=reduced.disable, pipeline_cache=self._cache_path)
        if limit := os.environ.get("DMLVK_WAIT_TIMEOUT"):
            self.wait_timeout = limit
        on = frozenset(name for name, on in self.native.features.items() if on)
        self.capabilities = dataclasses.replace(reduced.capabilities, features=reduced.capabilities.features & on)
        if max_launches is not None:
            self.capabilities = dataclasses.replace(self.capabilities, max_launches=int(max_launches))
        self.max_memory_bytes: int | None = None if max_memory_bytes is None else int(max_memory_bytes)
        if self.max_memory_bytes is None and self.capabilities.is_cpu:
            self.max_memory_bytes = self.info.memory_in_bytes // 4 * 3  # it is the host's, which hands out more than it has
        self._subgroup_size = reduced.subgroup_size
        self.storage_alignment = reduced.storage_alignment
        self._parameters = ParameterArena(int(limits["minUniformBufferOffsetAlignment"]))
        self._timestamp_period = float(limits["timestampPeriod"])
        self._timestamp_bits = int(limits["timestampValidBits"])
        self.has_timestamps = self._timestamp_bits > 0
        self._counters: _native.Buffer | None = None
        self.kept: dict[Hashable, Any] = {}
        self._kernels: dict[KernelVariant, _native.Kernel] = {}
        self._creations: dict[KernelVariant, threading.Lock] = {}
        self._todo: collections.deque[KernelVariant] = collections.deque()
        self._expected: dict[KernelVariant, None] = {}
        self._threads = 0
        self._lock = threading.Lock()
        self._pipelines_saved = 0
        self._saved_at = time.monotonic()
        _register_hook()
        reduced_to = f", reduced to {self.mask}" if str(self.mask) else ""
        logger("runtime").info("opened device %d: %s, %s%s", self.info.index, self.info.name, self.info.driver, reduced_to)
        self._is_open = True
        _OPEN_DEVICES.add(self)

    def __del__(self) -> None:
        if self._is_open:
            self.save_pipeline_cache()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.info.index}: {self.info.name}, opened as number {self._number}>"

    def _repr_html_(self) -> str:
        memory = self.memory()
        used = f"{size(memory['live'])} in use now, {size(memory['peak'])} at most so far"
        known = facts([*self.info._facts(), ("mask", str(self.mask)), ("buffers", used)])
        return notebook(type(self).__name__, f"{self.info.index}: {self.info.name}", known)

    def nanoseconds(self, earlier: int, later: int) -> float:
        """Time between two timestamps of the queue, in ticks; the counter may have wrapped around between them."""
        return ((later - earlier) & ((1 << self._timestamp_bits) - 1)) * self._timestamp_period

    # -- memory

    def create_buffer(self, size_in_bytes: int, *, purpose: Purpose = Purpose.DATA, exported: bool = False) -> Buffer:
        """Device-local memory, contents undefined.

        Args:
            size_in_bytes: The size, at least 1.
            purpose: Under which heading ``memory()`` counts it.
            exported: Whether other interfaces, such as CUDA, may import it. It then has an allocation of its own.

        Raises:
            UnsupportedError: the device exports no memory.
            InvalidArgumentError: a size below 1, or no integer.
            OutOfDeviceMemoryError: the device has no room, or buffers may not take as much; it stays usable.
        """
        if not isinstance(size_in_bytes, numbers.Integral) or not 1 <= size_in_bytes < 2**64:
            rule = "must be an integer of at least 1 byte and below 2**64"
            raise InvalidArgumentError(rule, field="size_in_bytes", value=size_in_bytes)
        if exported:
            self._require("external_memory")
        live = self.native.memory()["buffers"]
        if self.max_memory_bytes is not None and live + size_in_bytes > self.max_memory_bytes:
            raise OutOfDeviceMemoryError(
                f"a buffer of {size_in_bytes} bytes beside others of {live} is more than the {self.max_memory_bytes} that "
                "Device(max_memory_bytes=...) allows"
            )
        return Buffer(self, self.native.allocate(size_in_bytes, PURPOSE_NUMBERS[purpose], exported), is_exported=exported)

    def shared_timeline(self) -> _native.SharedTimeline:
        """A new timeline semaphore that other interfaces, such as CUDA, may import. It lives as long as the device.

        Raises:
            UnsupportedError: the device exports none.
        """
        self._require("external_semaphores")
        return self.native.shared_timeline()

    def counters(self) -> Buffer:
        """The device's counters: see ``Source.COUNTERS``."""
        with self._lock:
            if self._counters is None:
                made = self.create_buffer(4 * COUNTERS, purpose=Purpose.TEMPORARY)
                made.write(bytes(made.size_in_bytes))
                self._counters = made.native  # which does not hold the device
            return Buffer(self, self._counters)

    def _require(self, feature: str) -> None:
        if feature not in self.capabilities.features:
            raise UnsupportedError(f"{self.info.name} shares nothing with other interfaces", features=(feature,))

    def place_parameters(self, blocks: list[bytes]) -> list[ParameterBlock]:
        """Uploads the parameter blocks of kernels, none of them empty, and says where each went."""
        return self._parameters.place(self, blocks)

    def memory(self) -> dict[str, int]:
        """Bytes now: ``live`` (all buffers), ``peak`` (the most there were), ``reserved`` from the driver, ``staging``
        (host-visible), one entry for each ``Purpose`` and, where the driver tells, its ``budget`` and ``usage``."""
        native = dict(self.native.memory())
        totals = {
            "live": native.pop("buffers"),
            "peak": native.pop("peak"),
            "reserved": native.pop("blocks"),
            "staging": native.pop("staging"),
        }
        purposes = {purpose.value: self.native.live_bytes(number) for purpose, number in PURPOSE_NUMBERS.items()}
        return {**totals, **purposes, **native}

    def reset_peak_memory(self, at_least: int = 0) -> None:
        """Makes ``memory()["peak"]`` start again from what is live now, or from ``at_least`` bytes where that is more."""
        self.native.reset_peak(at_least)

    # -- kernels

    def pipeline(self, launch: Dispatch) -> KernelVariant:
        """The pipeline of a launch here."""
        return launch.pipeline(self.storage_alignment)

    def kernel(self, variant: KernelVariant) -> _native.Kernel:
        """The variant's pipeline, created at the first call. Several may be created at the same time."""
        found = self._kernels.get(variant)
        if found is None:
            with self._lock:
                creation = self._creations.setdefault(variant, threading.Lock())
            with creation:
                found = self._kernels.get(variant)
                if found is None:
                    found = self._kernels[variant] = self._create_kernel(variant)
        return found

    def prepare_kernels(self, variants: Iterable[KernelVariant]) -> list[KernelVariant]:
        """Starts to create those pipelines that are missing, in several threads, and returns which they are: ``kernel``
        waits for the one that it is asked for. What fails, fails there again, for whoever asks."""
        with self._lock:
            known = (self._kernels, self._expected)
            missing = [item for item in dict.fromkeys(variants) if not any(item in found for found in known)]
            self._expected.update(dict.fromkeys(missing))
            self._todo.extend(missing)
            more = min(_MOST_THREADS - self._threads, (os.cpu_count() or 1) - self._threads, len(missing))
            for _ in range(more):
                self._threads += 1
                try:
                    start_thread("dmlvk-pipelines", self._create_kernels)
                except RuntimeError:  # the system has no more threads: ``kernel`` creates what is missing
                    self._threads -= 1
                except BaseException:
                    self._threads -= 1
                    raise
        return missing

    def _create_kernels(self) -> None:
        """Creates what ``prepare_kernels`` has found missing, until there is nothing left or the interpreter ends."""
        while True:
            with self._lock:
                if not (self._todo and threading.main_thread().is_alive()):
                    self._threads -= 1
                    return
                variant = self._todo.popleft()
            with contextlib.suppress(Exception):
                self.kernel(variant)
            self._expected.pop(variant, None)

    def programs(self, launch: Dispatch) -> tuple[Executable, ...]:
        """What the driver makes of a launch's kernel: a pipeline is created for the question alone.

        Raises:
            UnsupportedError: the device does not tell.
        """
        needed = "executable_properties"
        if needed not in self.capabilities.features:
            raise UnsupportedError(
                "the driver does not tell what it makes of a kernel: it lacks VK_KHR_pipeline_executable_properties",
                features=(needed,),
            )
        return executables_of(self._create_kernel(self.pipeline(launch), inspected=True).executables())

    def _create_kernel(self, variant: KernelVariant, *, inspected: bool = False) -> _native.Kernel:
        spec = KERNELS[variant.kernel]
        identifiers = {name: index for index, (name, _) in enumerate(spec.constants)}
        values = dict(spec.constants) | dict(variant.constants)
        invocations = math.prod(int(values.get(f"LOCAL_SIZE_{axis}", 1)) for axis in "XYZ")
        most = self.capabilities.workgroup_invocations
        if invocations > most:  # Vulkan would refuse it on a device that is what this one was reduced to
            raise ValueError(f"kernel {variant.kernel}: workgroup invocations {invocations} exceeds {most}")
        logger("runtime").debug("creating a pipeline of %s", variant.kernel)
        module = pipeline_spirv(variant, portable_reductions=self.native.physical.has_portable_reductions)
        return self.native.kernel(
            module if variant.has_byte_offsets else without_byte_offsets(module),
            name=variant.kernel,
            storage_buffers=len(spec.buffers),
            has_params=bool(spec.params),
            push_bytes=4 * len(spec.buffers) if variant.has_byte_offsets else 0,
            constants=[(identifiers[name], bits) for name, bits in variant.constants],
            subgroup_size=variant.subgroup_size or self._subgroup_size,
            inspected=inspected,
        )

    def save_pipeline_cache(self, *, at_most_every: float = 0.0) -> None:
        """Writes the driver's pipeline cache to its file if there are pipelines that it lacks. Also done at exit, and when
        the device goes.

        Args:
            at_most_every: Seconds since the last time that make it worth while.
        """
        if self.native.left_behind:
            return
        with self._lock:
            created = self.native.pipelines_created
            due = created > self._pipelines_saved and time.monotonic() >= self._saved_at + at_most_every
            if not self._cache_path or not due or self.native.lost:
                return
            self._pipelines_saved, self._saved_at = created, time.monotonic()
            try:
                self.native.save_pipeline_cache()
                logger("runtime").debug("kept the pipelines in %s", self._cache_path)
            except (OSError, MemoryError, VulkanError) as error:  # whoever runs or closes something has what he asked for
                warnings.warn(f"dmlvk could not save the pipeline cache: {error}", RuntimeWarning, stacklevel=2)

    # -- state

    @property
    def dispatches(self) -> int:
        """Dispatches submitted so far, replays counted each time: what shows that the device did the work."""
        return self.native.dispatches

    @property
    def pipelines_created(self) -> int:
        """Pipelines created so far."""
        return self.native.pipelines_created

    def supports_data_type(self, data_type: TensorDataType) -> bool:
        """Whether kernels can load, store and compute it here. 4-bit types go in 32-bit words, which every device has."""
        if data_type in (TensorDataType.INT4, TensorDataType.UINT4):
            return True
        glsl = GLSL_TYPES.get(data_type.name)
        return glsl is not None and self.capabilities.features.issuperset(glsl.features)

    def get_device_removed_reason(self) -> DeviceLostError | None:
        """``IDMLDevice::GetDeviceRemovedReason``: None while the device works, else the error that it was lost with."""
        lost = self.native.lost
        return DeviceLostError(f"{lost}: VK_ERROR_DEVICE_LOST", result=-4, call=lost) if lost else None

    def flush(self) -> None:
        """Hands over what has been submitted with ``defer``."""
        self.native.flush()

    def wait_idle(self) -> None:
        """Waits until the device has done all that was submitted."""
        self.native.wait_idle()

    @property
    def wait_timeout(self) -> float | None:
        """The most seconds that any one wait for the device may take, in whichever call; after that it ends with
        ``WaitTimeoutError``. None for as long as it takes. At first DMLVK_WAIT_TIMEOUT, None where that is not set."""
        return self.native.wait_timeout

    @wait_timeout.setter
    def wait_timeout(self, seconds: float | str | None) -> None:
        try:
            self.native.wait_timeout = None if seconds is None else float(seconds)
        except (TypeError, ValueError):
            rule = "must be a number of seconds above 0, or None"
            raise InvalidArgumentError(rule, field="wait_timeout (DMLVK_WAIT_TIMEOUT)", value=seconds) from None

    def require_alive(self) -> None:
        """Sees whether the device can be used: what a call asks before it takes turns with others.

        Raises:
            DeviceLostError: the device is lost.
            StateError: this is a forked child of the process that opened it.
        """
        self.native.require_alive()


_OPEN_DEVICES: weakref.WeakSet[ComputeDevice] = weakref.WeakSet()


def _save_all_pipeline_caches() -> None:
    for device in list(_OPEN_DEVICES):
        device.save_pipeline_cache()


@functools.cache  # once, when the first device opens: importing dmlvk leaves a process as it is
def _register_hook() -> None:
    atexit.register(_save_all_pipeline_caches)


def cache_folder() -> pathlib.Path:
    """The folder of pipeline caches and measured models: ``DMLVK_CACHE_DIR``, else ``dmlvk`` in the folder that the system
    keeps caches in.

    Raises:
        RuntimeError: the user has no home, as in many a container.
    """
    if configured := os.environ.get("DMLVK_CACHE_DIR"):
        return pathlib.Path(configured)
    if sys.platform == "win32":
        base, default = os.environ.get("LOCALAPPDATA"), ("AppData", "Local")
    elif sys.platform == "darwin":
        base, default = None, ("Library", "Caches")
    else:
        base, default = os.environ.get("XDG_CACHE_HOME"), (".cache",)
    return (pathlib.Path(base) if base else pathlib.Path.home().joinpath(*default)) / "dmlvk"


def _cached_file(info: DeviceInfo, kind: str, suffix: str) -> pathlib.Path | None:
    """The file of what is kept of this device under this driver and its size of subgroups; None, with a warning, where the
    folder cannot be made.

    Some drivers take the size from the environment (Mesa's LP_NATIVE_VECTOR_WIDTH), and no pipeline cache tells it.
    """
    try:
        folder = cache_folder()
        folder.mkdir(parents=True, exist_ok=True)
    except (OSError, RuntimeError) as error:
        warnings.warn(f"dmlvk keeps no pipeline cache: {error}", RuntimeWarning, stacklevel=4)
        return None
    physical = _physical_devices()[info.index]
    return folder / f"{kind}-{info.uuid}-{physical.driver_version:08x}-{int(physical.limits['subgroupSize'])}.{suffix}"


def _cooperative_matrices(physical: _native.PhysicalDevice) -> tuple[CooperativeMatrix, ...]:
    """Those of subgroups with factors of one type, and an addend of the result's type."""
    return tuple(
        CooperativeMatrix(shape["m"], shape["n"], shape["k"], shape["a_type"], shape["c_type"])
        for shape in physical.cooperative_matrices
        if shape["scope"] == "subgroup"
        and shape["a_type"] == shape["b_type"]
        and shape["c_type"] == shape["result_type"]
        and not shape["saturating"]
    )


def model_path(info: DeviceInfo) -> pathlib.Path | None:
    """The file of what was measured of this device under this driver; None where nothing can be kept."""
    return _cached_file(info, "model", "json")


def known_model(info: DeviceInfo) -> DeviceModel:
    """The model of a device that is not open: its shipped row, else a general one with what was measured once, and with what
    Vulkan tells of its processors."""
    physical = _physical_devices()[info.index]
    model = DEVICES.get(info.name, CPU if physical.type == "cpu" else GENERIC_GPU)
    if model is GENERIC_GPU and (path := model_path(info)) and (found := read_model(path)):
        model = model.told(NumberSource.MEASURED, found)
    held = physical.limits.get("processorSubgroups")
    told = {
        "processors": physical.limits.get("processors"),
        "resident_invocations": held and held * physical.limits["subgroupSize"],
    }
    return model.told(NumberSource.VULKAN, told)


def _reported(physical: _native.PhysicalDevice, model: DeviceModel) -> Capabilities:
    limits: Mapping[str, Any] = physical.limits
    x, y, z = (int(limits[f"maxComputeWorkGroupCount{axis}"]) for axis in range(3))
    return Capabilities(
        features=frozenset(name for name, on in physical.features.items() if on),
        cooperative_matrices=_cooperative_matrices(physical),
        subgroup_size=int(limits["subgroupSize"]),
        minimum_subgroup_size=int(limits["minSubgroupSize"]),
        maximum_subgroup_size=int(limits["maxSubgroupSize"]),
        shared_memory_bytes=int(limits["maxComputeSharedMemorySize"]),
        workgroup_invocations=int(limits["maxComputeWorkGroupInvocations"]),
        workgroup_counts=(x, y, z),
        storage_buffer_bytes=int(limits["maxStorageBufferRange"]),
        storage_buffers=int(limits["maxPerStageDescriptorStorageBuffers"]),
        is_cpu=physical.type == "cpu",
        model=model,
    )
