"""Copies that a run makes before and after a graph's commands."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from dmlvk.runtime.device import ComputeDevice
from dmlvk.runtime.recorder import BoundRange, Recording, copy_between


class Copy(NamedTuple):
    """One copy of bytes, between ranges of the same length that do not overlap."""

    source: BoundRange
    target: BoundRange


def recorded_copies(device: ComputeDevice, copies: Sequence[Copy]) -> Recording:
    """Copies as recorded commands, ready to be submitted."""
    recording = Recording(device, timestamps=False)
    recording.add([copy_between("CopyBufferRegion", *copy) for copy in copies])
    return recording


class Copies:
    """A list of copies, recorded anew only where they are others than the last time.

    Args:
        device: The device with the buffers.
    """

    def __init__(self, device: ComputeDevice) -> None:
        self._device = device
        self._kept: tuple[tuple[Copy, ...], Recording] | None = None

    def of(self, copies: Sequence[Copy]) -> Recording:
        """The recorded commands of copies, kept for the next call with the same ones."""
        kept = self._kept
        if kept is None or kept[0] != tuple(copies):
            self._kept = kept = tuple(copies), recorded_copies(self._device, copies)  # in one step, whatever interrupts
        return kept[1]
