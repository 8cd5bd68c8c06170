"""The process-wide device. What class it is of, the package says: a door adds its own methods to a device."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from dmlvk.spec.errors import InvalidArgumentError

if TYPE_CHECKING:
    from dmlvk.runtime.device import ComputeDevice

_lock = threading.Lock()
_openers: list[Callable[[], ComputeDevice]] = []
_opened: list[ComputeDevice] = []


def open_with(opener: Callable[[], ComputeDevice]) -> None:
    """Says how the device is opened, once somebody wants it."""
    _openers[:] = [opener]


def default_device() -> ComputeDevice:
    """The process-wide device, opened at the first call, and once more at the first after it was lost.

    Raises:
        NoDeviceError: there is none.
    """
    opened = _opened[-1] if _opened else None
    if opened is None or opened.native.lost:
        with _lock:
            if not _opened or _opened[-1].native.lost:
                _opened[:] = [_openers[0]()]
            opened = _opened[-1]
    return opened


def check_device(device: object) -> None:
    """Raises InvalidArgumentError for what is no open device, such as an index or a name."""
    from dmlvk.runtime.device import ComputeDevice  # here, because importing dmlvk must not bring numpy

    if not isinstance(device, ComputeDevice):
        raise InvalidArgumentError("must be a Device, as dmlvk.Device(0) opens one", field="device", value=device)
