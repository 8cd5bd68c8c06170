"""A device that is opened while something else is done."""

from __future__ import annotations

import threading

from dmlvk.directml.device import Device, default_device
from dmlvk.runtime.device import DeviceChoice
from dmlvk.runtime.threads import start_thread


class Opening:
    """Opens a device in a thread of its own: a driver takes its time, and does not need Python for it.

    Args:
        device: A device, a choice of one, or None for the process-wide one.
    """

    def __init__(self, device: Device | DeviceChoice) -> None:
        self._device: Device | None = device if isinstance(device, Device) else None
        self._error: BaseException | None = None
        self._thread: threading.Thread | None = None
        if not isinstance(device, Device):
            self._thread = start_thread("dmlvk-device", lambda: self._open(device))

    def _open(self, choice: DeviceChoice) -> None:
        try:
            self._device = default_device() if choice is None else Device(choice)
        except BaseException as error:  # whatever it is, it is for whoever waits
            self._error = error

    def result(self) -> Device:
        """The device, once it is open; what opening it raised is raised here."""
        if self._thread is not None:
            self._thread.join()
        if self._error is not None:
            raise self._error
        assert self._device is not None, "it is open, or there is an error"
        return self._device
