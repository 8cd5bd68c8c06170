"""An addition on each device, which takes no feature of it, held against numpy."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from dmlvk.builder import Graph
from dmlvk.devices.capabilities import SUBGROUPS, Capabilities
from dmlvk.directml.device import Device
from dmlvk.doctor.findings import Finding, gpu_vendors, nvidia_mend, replacing_variable
from dmlvk.doctor.system import System
from dmlvk.kernels.common.data_types import unsupported_types
from dmlvk.kernels.common.registry import has_kernels
from dmlvk.runtime.device import DeviceInfo, choose_device, devices
from dmlvk.spec.errors import DmlvkError, NoDeviceError
from dmlvk.spec.schema import REGISTRY

_SECONDS: Final = 60.0
"""How long a device may take for what takes it milliseconds."""
_REINSTALL: Final = "pip install --force-reinstall --no-deps dmlvk; in a checkout: tools/develop.sh"


@dataclass(frozen=True)
class Trial:
    """What became of a device.

    Attributes:
        device: Its description.
        works: Whether it computed what it should.
        findings: What there is to say of it.
    """

    device: DeviceInfo
    works: bool
    findings: tuple[Finding, ...]


def find_devices(
    system: System, find: Callable[[], Sequence[DeviceInfo]] = devices
) -> tuple[list[DeviceInfo], list[Finding]]:
    """The devices, and why there are none, or none that the environment chooses."""
    try:
        found = list(find())
    except ImportError as error:
        return [], [Finding("fault", "native module", str(error), _REINSTALL)]
    except DmlvkError as error:
        return [], [Finding("fault", "devices", error.args[0], system.install("loader", "mesa"))]
    if not found:
        text = "the drivers have no device of Vulkan 1.3 that computes: update the GPU's driver, or take the processor's"
        return [], [Finding("fault", "devices", text, system.install("mesa"))]
    findings = list(overlooked(system, found))
    try:
        choose_device(candidates=found)
    except NoDeviceError as error:
        findings.append(Finding("fault", "DMLVK_DEVICE", error.args[0], "unset DMLVK_DEVICE, or name one of these"))
    return found, findings


def overlooked(system: System, found: Sequence[DeviceInfo]) -> Iterator[Finding]:
    """GPUs on the machine's bus where the drivers find the processor alone."""
    vendors = gpu_vendors(system)
    if vendors and all(info.type == "cpu" for info in found):
        if given := replacing_variable(system):
            mend = f"unset {given}"
        else:
            mend = nvidia_mend(system) if "NVIDIA" in vendors else system.install("mesa")
        text = f"only the processor is found, and there is a GPU of {' and of '.join(sorted(vendors))}"
        yield Finding("note", "devices", text, mend)


def try_device(info: DeviceInfo) -> Trial:
    """Opens a device, computes on it, and says what it lacks."""
    part = f"device {info.index}: {info.name}"
    mend = f"update its driver ({info.driver}), or set DMLVK_DEVICE to another device"
    try:
        with warnings.catch_warnings(category=RuntimeWarning, action="ignore"):  # of the cache, which has a finding
            device = Device(info)
        device.wait_timeout = _SECONDS
        right = _computes(device)
    except (DmlvkError, OSError) as error:
        text = f"{type(error).__name__}: {error}"
        if named := re.search(r"\bDMLVK_\w+", text):  # a mask that is none, or that the device cannot have
            mend = f"unset {named[0]}"
        elif type(error) is DmlvkError:  # the kernels are not there
            mend = _REINSTALL
        return Trial(info, False, (Finding("fault", part, text, mend),))
    if not right:
        return Trial(info, False, (Finding("fault", part, "computes wrong numbers", mend),))
    driver = f"{info.driver}, Vulkan {'.'.join(map(str, info.api_version))}"
    return Trial(info, True, (Finding("ok", part, f"computes right; {driver}"), *lacks(part, device.capabilities)))


def lacks(part: str, capabilities: Capabilities) -> Iterator[Finding]:
    """What a device cannot do for want of features, those that a mask takes away among them."""
    mend = "python -m dmlvk ops lists what that means for each operator; a newer driver may have it"
    if missing := SUBGROUPS - capabilities.features:
        text = f"lacks {' and '.join(sorted(missing))}, which many operators need"
        yield Finding("fault", part, text, mend)
    types: dict[str, set[str]] = {}
    for row in filter(has_kernels, REGISTRY.values()):
        for data_type, features in unsupported_types(row, capabilities).items():
            types.setdefault(data_type.name, set()).update(features - SUBGROUPS)
    if named := [f"{name} ({' '.join(sorted(features))})" for name, features in sorted(types.items()) if features]:
        yield Finding("note", part, f"some operators lack {', '.join(named)}", mend)


def _computes(device: Device) -> bool:
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    graph = Graph(device)
    function = graph.compile(graph.input(x.shape) + graph.input(x.shape))
    return np.array_equal(function(x, 10 * x).numpy(), 11 * x)
