"""The measured numbers of a device, kept on disk: a JSON file a device and driver, beside the pipeline cache."""

from __future__ import annotations

import json
import os
import pathlib
import tempfile
from collections.abc import Mapping
from typing import Final

from dmlvk.devices.model import NUMBERS

_FORMAT: Final = 1
"""The version of the file's format; a file of another one is measured anew. It grows when a number changes its meaning."""


def read_model(path: pathlib.Path) -> dict[str, float] | None:
    """The numbers of the file; None where there is no file, or none of this format, whole and with positive numbers."""
    try:
        found = json.loads(path.read_text())
        numbers = {str(name): value for name, value in found["numbers"].items()}
        good = found["format"] == _FORMAT and all(
            name in NUMBERS and type(value) in (int, float) and 0 < value < float("inf") for name, value in numbers.items()
        )
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return None
    return numbers if good else None


def write_model(path: pathlib.Path, device: str, numbers: Mapping[str, float]) -> None:
    """Writes the file, at once or not at all: a process that reads it meanwhile sees the old one.

    Args:
        path: The file.
        device: The device's name, for whoever looks at the file.
        numbers: The numbers of ``DeviceModel`` that were measured.

    Raises:
        OSError: it cannot be written.
    """
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=path.name, suffix=".new")
    try:
        with os.fdopen(handle, "w") as file:
            json.dump({"format": _FORMAT, "device": device, "numbers": dict(numbers)}, file, indent=1)
        pathlib.Path(temporary).replace(path)
    except BaseException:
        pathlib.Path(temporary).unlink(missing_ok=True)
        raise
