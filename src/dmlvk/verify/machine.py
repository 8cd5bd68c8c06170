"""The machine, the device and the build of a measurement, with which every file of results begins."""

from __future__ import annotations

import contextlib
import datetime
import os
import pathlib
import platform
import subprocess
from dataclasses import dataclass

import dmlvk
from dmlvk.directml.device import Device


@dataclass(frozen=True)
class Machine:
    """The machine, the device and the build of a run.

    Attributes:
        device, uuid, driver, type, api_version: The driver's own words; see ``dmlvk.DeviceInfo``.
        mask: The profile, features and subgroup size that the device was reduced to, in words; "" for none.
        system: Operating system and processor.
        python, dmlvk: Versions.
        commit: The commit that was built; "" if unknown.
        date: UTC, ISO 8601.
    """

    device: str
    uuid: str
    driver: str
    type: str
    api_version: str
    mask: str
    system: str
    python: str
    dmlvk: str
    commit: str
    date: str


def describe(device: Device, commit: str = "") -> Machine:
    """The machine of an open device, now.

    Args:
        device: The one that measures.
        commit: The commit that was built; without it this checkout's HEAD, if the package runs from one.
    """
    info = device.info
    return Machine(
        device=info.name,
        uuid=info.uuid,
        driver=info.driver,
        type=info.type,
        api_version=".".join(map(str, info.api_version)),
        mask=str(device.mask),
        system=f"{platform.system()} {platform.machine()}, {os.cpu_count()} processors",
        python=platform.python_version(),
        dmlvk=dmlvk.__version__,
        commit=commit or _head(),
        date=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
    )


def _head() -> str:
    """HEAD of the checkout that the package lies in; "" where it lies in none."""
    root = pathlib.Path(dmlvk.__file__).resolve().parent.parent.parent
    if not (root / ".git").exists():
        return ""
    with contextlib.suppress(OSError, subprocess.CalledProcessError):
        command = ["git", "-C", str(root), "rev-parse", "--short", "HEAD"]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()
    return ""
