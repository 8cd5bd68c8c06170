"""Copies that a run makes before and after its plan's commands."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from dmlvk.directml.command import CommandList
from dmlvk.directml.device import Device
from dmlvk.runtime.memory import Buffer


class Region(NamedTuple):
    """The arguments of ``CommandList.copy_buffer_region``."""

    target: Buffer
    target_offset: int
    source: Buffer
    source_offset: int
    size_in_bytes: int


class Copies:
    """A list of copies, recorded anew only where they are others than the last time.

    Args:
        device: Where the buffers are.
    """

    def __init__(self, device: Device) -> None:
        self._device = device
        self._regions: tuple[Region, ...] = ()
        self._commands = device.create_command_list()

    def of(self, regions: Sequence[Region]) -> CommandList:
        """The list of these copies."""
        if self._regions != tuple(regions):
            self._commands = self._device.create_command_list()
            for region in regions:
                self._commands.copy_buffer_region(*region)
            self._regions = tuple(regions)
        return self._commands
