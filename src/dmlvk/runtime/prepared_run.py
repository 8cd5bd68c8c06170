"""Runs that native code repeats without Python, and what gives it to other native modules."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from dmlvk.runtime.device import ComputeDevice
from dmlvk.runtime.recorder import BoundRange, Recording

if TYPE_CHECKING:
    from dmlvk.runtime import _native


def prepared_run(
    device: ComputeDevice,
    feeds: Sequence[BoundRange],
    recordings: Sequence[Recording],
    results: Sequence[BoundRange | bytes],
) -> _native.PreparedRun:
    """A run as native code repeats it; see ``_native.Device.prepared_run``.

    Args:
        device: The device of it all.
        feeds: Where the inputs go.
        recordings: The commands, in order.
        results: Where the outputs come from, or the bytes of one that is known.
    """
    return device.native.prepared_run(
        [_native_range(feed) for feed in feeds],
        [recording.native for recording in recordings],
        [result if isinstance(result, bytes) else _native_range(result) for result in results],
    )


def door() -> object:
    """What another native module of ours is given to call ``_native`` without Python: see native/door.h."""
    from dmlvk.runtime import _native

    return _native.door()


def _native_range(part: BoundRange) -> tuple[_native.Buffer, int, int]:
    return part.buffer.native, part.offset, part.nbytes
