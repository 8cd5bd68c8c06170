"""What ONNX Runtime has for the whole process: versions, seeds and logging."""

from __future__ import annotations

import logging
import platform
from importlib.metadata import PackageNotFoundError, version
from typing import Final

from dmlvk.onnx.names import VERSION
from dmlvk.onnx.notices import tell_without_effect
from dmlvk.spec.errors import InvalidArgumentError

_LEVELS: Final = (logging.DEBUG, logging.INFO, logging.WARNING, logging.ERROR, logging.CRITICAL)


def get_version_string() -> str:
    """The version of ONNX Runtime whose names these are."""
    return VERSION


def get_build_info() -> str:
    """dmlvk's version, and that of ONNX Runtime whose names it has."""
    try:
        own = version("dmlvk")
    except PackageNotFoundError:  # sources that are not installed
        own = "not installed"
    return f"dmlvk {own}, with the names of ONNX Runtime {VERSION}"


def print_debug_info() -> None:
    """Prints what ``get_build_info`` says, and the platform; ``python -m dmlvk devices`` lists the devices."""
    print(get_build_info())
    print("platform:", platform.platform())


def has_collective_ops() -> bool:
    """False: no operator spans several devices."""
    return False


def set_default_logger_severity(severity: int) -> None:
    """Sets the level of the logger ``dmlvk``: 0 for everything, then information, warnings, errors, and 4 for the worst.

    Raises:
        InvalidArgumentError: another number.
    """
    if severity not in range(len(_LEVELS)):
        raise InvalidArgumentError("must be 0 to 4", field="severity", value=severity)
    logging.getLogger("dmlvk").setLevel(_LEVELS[severity])


def set_default_logger_verbosity(verbosity: int) -> None:
    """No effect: ``set_default_logger_severity`` decides."""
    tell_without_effect("", "set_default_logger_verbosity")


def set_global_thread_pool_sizes(intra_op_num_threads: int, inter_op_num_threads: int) -> None:
    """No effect: the device runs the model."""
    tell_without_effect("", "set_global_thread_pool_sizes")


def enable_telemetry_events() -> None:
    """No effect: nothing is sent anywhere."""
    tell_without_effect("", "enable_telemetry_events")


def disable_telemetry_events() -> None:
    """Nothing is sent anywhere."""


def preload_dlls(cuda: bool = True, cudnn: bool = True, msvc: bool = True, directory: str | None = None) -> None:
    """No effect: there are no libraries of CUDA to load."""
    tell_without_effect("", "preload_dlls")
