"""Every exception dmlvk raises on purpose.

Where DirectML returns ``E_INVALIDARG``, removes the device or leaves the behaviour undefined, dmlvk raises one of these
before anything reaches the GPU; the device, the session and the caller's data stay usable afterwards. Only
``DeviceLostError`` means that a device is gone.
"""

from __future__ import annotations

import enum
import sys
from collections.abc import Callable
from typing import Any, Final

_MOST_CHARACTERS: Final = 300
"""A longer value is cut off in messages."""


def spelled(value: object) -> str:
    """A value as messages say it: members of enumerations by their names, text in quotes, all else by its ``str``."""
    if isinstance(value, enum.Enum):
        text = value.name or str(value.value)
    elif isinstance(value, type):
        text = value.__name__
    elif isinstance(value, str):
        text = repr(value)
    elif isinstance(value, tuple | list) and type(value) in (tuple, list):  # whose elements may be of the kinds above
        items = [spelled(item) for item in value]
        text = f"({', '.join(items)}{',' * (len(items) == 1)})" if isinstance(value, tuple) else f"[{', '.join(items)}]"
    else:
        try:
            text = str(value)
        except ValueError:  # of so many digits Python makes none
            text = f"{type(value).__name__} of more than {sys.get_int_max_str_digits()} digits"
    return text if len(text) <= _MOST_CHARACTERS else f"{text[:_MOST_CHARACTERS]}..."


def broken_rule(rule: str, value: object, expected: object = None) -> str:
    """The sentence that every message about a wrong value is made of: what must be, what was expected and what came.

    Args:
        rule: What must be, such as "must have the sizes of input_tensor".
        value: The value that breaks it.
        expected: The value that would not; None where the rule says it all.
    """
    return (
        f"{rule}; got {spelled(value)}"
        if expected is None
        else f"{rule}; expected {spelled(expected)}, got {spelled(value)}"
    )


class DmlvkError(Exception):
    """Base of all of them. They travel between processes with their attributes, as far as those can."""

    def __reduce__(self) -> tuple[Callable[..., DmlvkError], tuple[Any, ...]]:
        return _restore, (type(self), self.args, self.__dict__)


def _restore(cls: type[DmlvkError], args: tuple[Any, ...], attributes: dict[str, Any]) -> DmlvkError:
    error = cls.__new__(cls, *args)
    error.__dict__.update(attributes)
    return error


class InvalidArgumentError(DmlvkError, ValueError):
    """A desc, a binding or an argument breaks a rule of the specification (DirectML's ``E_INVALIDARG``).

    Attributes:
        operator: The operator's DirectML name, "" where none is concerned.
        field: The offending field or argument.
        rule: The rule: what must be, such as "must be at least 1".
        value: The value that broke it.
        expected: The value that another field asks for, None where the rule compares none.

    The message is made of them: ``OPERATOR.Field: rule; expected (2, 3), got (3, 2)``.
    """

    def __init__(
        self, rule: str, *, operator: str = "", field: str = "", value: object = None, expected: object = None
    ) -> None:
        where = ".".join(part for part in (operator, field) if part)
        super().__init__(": ".join(part for part in (where, broken_rule(rule, value, expected)) if part))
        self.operator, self.field, self.rule = operator, field, rule
        self.value, self.expected = value, expected


class BindingError(InvalidArgumentError):
    """A binding breaks a rule of ``IDMLBindingTable``; DirectML would remove the device."""


class StateError(DmlvkError, RuntimeError):
    """A call in the wrong order: executing before initialising, initialising twice, using a table of another device."""


class QueueFullError(StateError):
    """As many requests wait as may. Later there is room."""


def other_device(what: str, device: object, other: str, wanted: object) -> StateError:
    """The error for two objects of one call that belong to different devices.

    Args:
        what: The object that is elsewhere, in words.
        device: Its device.
        other: The object that decides where the call runs.
        wanted: The device of that one.
    """
    return StateError(
        f"{what} must belong to the same Device as {other}; got {device}, which is another Device object than {wanted}"
    )


class UnsupportedError(DmlvkError, NotImplementedError):
    """The request is valid, but this device or this version cannot do it.

    Attributes:
        operator: The operator's DirectML name, "" where none is concerned.
        reason: The reason, such as a missing feature.
        limitation: Name of the limitation that ``dmlvk ops`` lists for the operator, "" where none is concerned.
        features: The device features that it would take, where only those are missing.
    """

    def __init__(self, reason: str, *, operator: str = "", limitation: str = "", features: tuple[str, ...] = ()) -> None:
        super().__init__(f"{operator}: {reason}" if operator else reason)
        self.operator, self.reason, self.limitation, self.features = operator, reason, limitation, features

    def of(self, operator: str) -> UnsupportedError:
        """The same error about another operator: the one that the user wrote, of which this error's is a part."""
        return UnsupportedError(self.reason, operator=operator, limitation=self.limitation, features=self.features)


class WaitTimeoutError(DmlvkError, TimeoutError):
    """A device has not finished within its ``wait_timeout``. What was submitted may still run; everything stays usable, and
    may be waited for again.

    Attributes:
        seconds: The time-out.
    """

    def __init__(self, seconds: float) -> None:
        super().__init__(
            f"the device has not finished within the {seconds:g} seconds of its wait_timeout; its work may still go on"
        )
        self.seconds = seconds


class NoDeviceError(DmlvkError, RuntimeError):
    """No Vulkan loader, no device, or none that matches the choice. ``args[0]`` is the reason alone."""

    def __str__(self) -> str:
        return f"{super().__str__()}; `python -m dmlvk doctor` says what mends it"


class MissingPackageError(DmlvkError, ImportError):
    """An optional dependency is not installed; the message names the extra that brings it."""


class ModelError(DmlvkError, ValueError):
    """An ONNX file is broken, or the feeds do not fit the model's inputs."""


class NoSuchFileError(ModelError, FileNotFoundError):
    """There is no ONNX file at the path."""


class UnsupportedNodeError(UnsupportedError):
    """A node of an ONNX model that dmlvk cannot run, found when the model is loaded.

    Attributes:
        node: The node's name, or its first output's where it has none.
        op_type, domain, version: The operator that the model asks for.
    """

    def __init__(self, node: str, op_type: str, domain: str, version: int, reason: str) -> None:
        super().__init__(f"node {node!r} ({domain or 'ai.onnx'}::{op_type}, opset {version}): {reason}")
        self.node, self.op_type, self.domain, self.version, self.reason = node, op_type, domain, version, reason


class VulkanError(DmlvkError, RuntimeError):
    """A Vulkan call failed.

    Attributes:
        result: The VkResult, a negative number.
        call: The Vulkan function.
    """

    def __init__(self, message: str, *, result: int = 0, call: str = "") -> None:
        super().__init__(message)
        self.result, self.call = result, call


class OutOfHostMemoryError(VulkanError, MemoryError):
    """VK_ERROR_OUT_OF_HOST_MEMORY."""


class OutOfDeviceMemoryError(VulkanError, MemoryError):
    """VK_ERROR_OUT_OF_DEVICE_MEMORY: the device keeps working; free something or ask for less."""


class InitializationFailedError(VulkanError):
    """VK_ERROR_INITIALIZATION_FAILED, or a driver too old or broken to create an instance or device."""


class DeviceLostError(VulkanError):
    """VK_ERROR_DEVICE_LOST: what lived on the device is gone, and all that was made on it answers with this.

    A new ``Device`` works. ``dmlvk.default_device()`` is one from then on, and ``InferenceSession.recover`` moves a session
    there.
    """


class FeatureNotPresentError(VulkanError):
    """A layer, extension or feature that was asked for is not there."""


_RESULTS: dict[int, tuple[str, type[VulkanError]]] = {
    -1: ("VK_ERROR_OUT_OF_HOST_MEMORY", OutOfHostMemoryError),
    -2: ("VK_ERROR_OUT_OF_DEVICE_MEMORY", OutOfDeviceMemoryError),
    -3: ("VK_ERROR_INITIALIZATION_FAILED", InitializationFailedError),
    -4: ("VK_ERROR_DEVICE_LOST", DeviceLostError),
    -5: ("VK_ERROR_MEMORY_MAP_FAILED", OutOfHostMemoryError),
    -6: ("VK_ERROR_LAYER_NOT_PRESENT", FeatureNotPresentError),
    -7: ("VK_ERROR_EXTENSION_NOT_PRESENT", FeatureNotPresentError),
    -8: ("VK_ERROR_FEATURE_NOT_PRESENT", FeatureNotPresentError),
    -9: ("VK_ERROR_INCOMPATIBLE_DRIVER", InitializationFailedError),
    -10: ("VK_ERROR_TOO_MANY_OBJECTS", OutOfDeviceMemoryError),
    -12: ("VK_ERROR_FRAGMENTED_POOL", OutOfDeviceMemoryError),
    -13: ("VK_ERROR_UNKNOWN", VulkanError),
    -1000069000: ("VK_ERROR_OUT_OF_POOL_MEMORY", OutOfDeviceMemoryError),
    -1000072003: ("VK_ERROR_INVALID_EXTERNAL_HANDLE", VulkanError),
    -1000161000: ("VK_ERROR_FRAGMENTATION", OutOfDeviceMemoryError),
}


def vulkan_error(result: int, call: str, detail: str = "") -> VulkanError:
    """The exception for a VkResult; the native module raises what this returns."""
    name, cls = _RESULTS.get(result, (f"VkResult {result}", VulkanError))
    return cls(f"{call}: {name}" + (f" ({detail})" if detail else ""), result=result, call=call)
