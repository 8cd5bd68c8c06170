"""The process-wide device. What class it is of, the package says: a door adds its own methods to a device."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dmlvk.runtime.device import ComputeDevice

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
