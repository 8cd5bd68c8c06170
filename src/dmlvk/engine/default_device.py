"""The process-wide device. What class it is of, the package says: a door adds its own methods to a device."""

from __future__ import annotations

import threading
from collections.abc import Callable

from dmlvk.runtime.device import ComputeDevice
from dmlvk.spec.errors import InvalidArgumentError

_lock = threading.Lock()
_openers: list[Callable[[], ComputeDevice]] = []
_opened: list[ComputeDevice] = []


def open_with(opener: Callable[[], ComputeDevice]) -> None:
    """Says how the device is opened, once somebody wants it."""
    _openers[:] = [opener]


def default_device() -> ComputeDevice:
    """The process-wide device, opened at the first call.

    Raises:
        NoDeviceError: there is none.
    """
    with _lock:
        if not _opened:
            _opened.append(_openers[0]())
        return _opened[0]


def check_device(device: object) -> None:
    """Raises InvalidArgumentError for what is no open device, such as an index or a name."""
    if not isinstance(device, ComputeDevice):
        raise InvalidArgumentError("must be a Device, as dmlvk.Device(0) opens one", field="device", value=device)
