"""ONNX Runtime's execution providers, each of which means the Vulkan device here; and its names and numbers of devices."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import Any, Final

from dmlvk.directml.device import Device, default_device
from dmlvk.onnx.notices import tell_once
from dmlvk.spec.errors import InvalidArgumentError

Providers = Sequence[str | tuple[str, Mapping[Any, Any]]]

CPU: Final = "CPUExecutionProvider"
_AVAILABLE: Final = ("VulkanExecutionProvider", "DmlExecutionProvider", CPU)
"""What is said to be there: what computes, the one whose operators these are, and the one that scripts always name."""
_OTHERS: Final = (
    "TensorrtExecutionProvider",
    "CUDAExecutionProvider",
    "MIGraphXExecutionProvider",
    "OpenVINOExecutionProvider",
    "DnnlExecutionProvider",
    "VitisAIExecutionProvider",
    "QNNExecutionProvider",
    "NnapiExecutionProvider",
    "VSINPUExecutionProvider",
    "JsExecutionProvider",
    "CoreMLExecutionProvider",
    "ArmNNExecutionProvider",
    "ACLExecutionProvider",
    "RknpuExecutionProvider",
    "WebNNExecutionProvider",
    "WebGpuExecutionProvider",
    "XnnpackExecutionProvider",
    "CANNExecutionProvider",
    "AzureExecutionProvider",
)


def get_available_providers() -> list[str]:
    """The providers that a script may find: all of them are the Vulkan device."""
    return list(_AVAILABLE)


def get_all_providers() -> list[str]:
    """The names of providers that ONNX Runtime has, and dmlvk's."""
    return [*_AVAILABLE[:1], *_OTHERS, *_AVAILABLE[1:]]


def get_device() -> str:
    """ "GPU": what runs is a Vulkan device."""
    return "GPU"


def normalized(
    providers: Providers | None, provider_options: Sequence[Mapping[Any, Any]] | None = None
) -> dict[str, dict[str, str]]:
    """The providers that were asked for, with their options as text; all available ones where None were.

    Raises:
        InvalidArgumentError: no sequence of names, or of pairs of a name and a mapping; or options for others.
    """
    if not providers:
        return {name: {} for name in _AVAILABLE}
    if isinstance(providers, str) or not isinstance(providers, Sequence):
        raise InvalidArgumentError("must be a sequence of names", field="providers", value=providers)
    if provider_options is not None and len(provider_options) != len(providers):
        rule = "must have as many options as providers has names"
        raise InvalidArgumentError(rule, field="provider_options", value=len(provider_options), expected=len(providers))
    found: dict[str, dict[str, str]] = {}
    for at, item in enumerate(providers):
        name, options = _pair(item, {} if provider_options is None else provider_options[at])
        found.setdefault(name, {str(key): str(value) for key, value in options.items()})
    found.setdefault(CPU, {})
    return found


def _pair(item: object, beside: Mapping[Any, Any]) -> tuple[str, Mapping[Any, Any]]:
    match item:
        case str():
            return item, beside
        case (str() as name, Mapping() as options):
            return name, options
    raise InvalidArgumentError("must have names, or pairs of a name and a mapping", field="providers", value=item)


def asked_device_id(providers: Mapping[str, Mapping[str, str]]) -> int:
    """The number of the device that the first provider with a ``device_id`` asks for, else 0.

    Raises:
        InvalidArgumentError: it is no number.
    """
    text = next((options["device_id"] for options in providers.values() if "device_id" in options), "0")
    if not text.isdecimal():
        raise InvalidArgumentError("must be a number", field="device_id", value=text)
    return int(text)


def tell_of_providers(asked: Providers | None, providers: Mapping[str, Mapping[str, str]], device: Device) -> None:
    """Logs that what was asked for by name is the Vulkan device."""
    for name, options in providers.items():
        if asked and (name != CPU or len(providers) == 1):
            tell_once(f"{name}: the model runs on the Vulkan device {device.info.name!r}")
        for key in options.keys() - {"device_id"}:
            tell_once(f"{name}: its option {key!r} has no effect")


_lock = threading.Lock()
_opened: dict[int, Device] = {}


def device_of(device_id: int) -> Device:
    """The device of ONNX Runtime's number: 0 is the process-wide one, another the place in ``dmlvk.devices()``. There is one
    object for each, so that tensors and sessions of a number belong together, and another once it was lost.

    Raises:
        NoDeviceError: there is no such device.
    """
    default = default_device()
    if device_id in (0, default.info.index):
        return default
    with _lock:
        if device_id not in _opened or _opened[device_id].get_device_removed_reason() is not None:
            _opened[device_id] = Device(device_id)
        return _opened[device_id]
