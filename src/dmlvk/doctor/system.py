"""The machine that is examined: its files, its environment, and how software is installed on it."""

from __future__ import annotations

import ctypes
import os
import pathlib
import platform
import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, Literal, NamedTuple

Thing = Literal["loader", "mesa", "nvidia", "window"]
"""What may be installed: the Vulkan loader; Mesa's drivers, of AMD, Intel and the processor; the Vulkan part of NVIDIA's
driver; the libraries of windows, which NVIDIA's driver opens without a screen too."""

_MARKS: Final = ("/.dockerenv", "/run/.containerenv")
"""Files that Docker and Podman put into a container."""
_NAMES: Final = ("container", "KUBERNETES_SERVICE_HOST")
"""Variables that Podman, systemd and Kubernetes set in one."""
_OVERLAY: Final = r"^\S+ \S+ \S+ \S+ / .* - overlay "
"""The root as other makers of containers mount it."""
_ANY: Final = "with this system's package manager, install "


class _Family(NamedTuple):
    """How a family of systems installs what dmlvk may need: the command, with places for ``sudo``, and the packages of each
    ``Thing``. NVIDIA's have a place for the main version of the driver."""

    command: str
    loader: str
    mesa: str
    nvidia: str
    window: str


_APT: Final = "{sudo}apt-get update && {sudo}apt-get install -y "
_FAMILIES: Final[Mapping[str, _Family]] = {
    "ubuntu": _Family(_APT, "libvulkan1", "mesa-vulkan-drivers", "libnvidia-gl-{}", "libx11-6 libxext6"),
    "debian": _Family(_APT, "libvulkan1", "mesa-vulkan-drivers", "nvidia-vulkan-icd", "libx11-6 libxext6"),
    "fedora": _Family(
        "{sudo}dnf install -y ", "vulkan-loader", "mesa-vulkan-drivers", "xorg-x11-drv-nvidia-libs", "libX11 libXext"
    ),
    "arch": _Family(
        "{sudo}pacman -S --needed ",
        "vulkan-icd-loader",
        "vulkan-swrast vulkan-radeon vulkan-intel",
        "nvidia-utils",
        "libx11 libxext",
    ),
}
"""By the names that /etc/os-release has after ID and ID_LIKE."""
_WORDS: Final = _Family(
    "",
    "the Vulkan loader",
    "Mesa's Vulkan drivers",
    "the Vulkan part of NVIDIA's driver",
    "the libraries libX11 and libXext",
)
"""The same things in words."""
_BREW: Final = 'brew install vulkan-loader molten-vk && export DYLD_FALLBACK_LIBRARY_PATH="$(brew --prefix)/lib:/usr/lib"'
VENDORS: Final = (
    "install the newest driver of the GPU: https://www.nvidia.com/drivers, https://www.amd.com/support or "
    "https://www.intel.com/content/www/us/en/download-center/home.html"
)
"""Where drivers come from that no package manager brings."""


def _reason(library: str) -> str:
    try:
        ctypes.CDLL(library)
    except OSError as error:
        return str(error)
    return ""


def _may_use(path: pathlib.Path) -> bool:
    return os.access(path, os.R_OK | os.W_OK)


@dataclass(frozen=True)
class System:
    """A machine.

    Attributes:
        platform: As ``sys.platform``.
        root: The folder that its absolute paths start at.
        environment: Its environment variables.
        is_root: Whether the user may install software without asking.
        opens: Why a library cannot be opened, by its path or its name; "" where it can.
        may_use: Whether this user may read and write a file.
    """

    platform: str = sys.platform
    root: pathlib.Path = pathlib.Path("/")
    environment: Mapping[str, str] = field(default_factory=lambda: os.environ)
    is_root: bool = field(default_factory=lambda: sys.platform != "win32" and os.geteuid() == 0)
    opens: Callable[[str], str] = _reason
    may_use: Callable[[pathlib.Path], bool] = _may_use

    def path(self, path: str) -> pathlib.Path:
        """Where a path of the machine is found."""
        return self.root / path.lstrip("/") if path.startswith("/") else pathlib.Path(path)

    def has(self, path: str) -> bool:
        """Whether there is a file or folder, as far as this user may see."""
        return os.path.exists(self.path(path))

    def shown(self, path: pathlib.Path) -> str:
        """A path that was found, as the machine names it."""
        return f"/{path.relative_to(self.root).as_posix()}" if path.is_relative_to(self.root) else str(path)

    def text(self, path: str) -> str:
        """What stands in a file; "" where it cannot be read."""
        try:
            return self.path(path).read_text(encoding="utf-8", errors="replace")
        except OSError:
            return ""

    def paths(self, variable: str) -> list[str]:
        """The paths that a variable lists."""
        return [path for path in self.environment.get(variable, "").split(";" if self.platform == "win32" else ":") if path]

    @property
    def release(self) -> dict[str, str]:
        """What /etc/os-release says."""
        lines = (self.text("/etc/os-release") or self.text("/usr/lib/os-release")).splitlines()
        return {name: value.strip("\"'") for name, _, value in (line.strip().partition("=") for line in lines)}

    @property
    def name(self) -> str:
        """The system in words."""
        return self.release.get("PRETTY_NAME") or platform.platform()

    @property
    def in_container(self) -> bool:
        """Whether this is a container, as far as one can see."""
        marked = any(map(self.has, _MARKS))
        named = any(name in self.environment for name in _NAMES)
        return marked or named or re.search(_OVERLAY, self.text("/proc/self/mountinfo"), re.MULTILINE) is not None

    @property
    def nvidia_version(self) -> str:
        """The version of NVIDIA's kernel driver, "" where none is loaded."""
        words = self.text("/proc/driver/nvidia/version").split()
        return next((word for word in words if word[:1].isdigit() and "." in word), "")

    def install(self, *things: Thing) -> str:
        """The command, or the advice, that brings these things."""
        if self.platform == "win32":
            return VENDORS
        if self.platform == "darwin":
            return _BREW
        release = self.release
        names = [release.get("ID", ""), *release.get("ID_LIKE", "").split()]
        family = next((_FAMILIES[name] for name in names if name in _FAMILIES), None)
        if family is None:
            return _ANY + " and ".join(getattr(_WORDS, thing) for thing in things)
        packages = " ".join(getattr(family, thing) for thing in things).format(self.nvidia_version.partition(".")[0])
        return family.command.format(sudo="" if self.is_root else "sudo ") + packages
