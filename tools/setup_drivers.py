"""Unpack Vulkan drivers that run on a processor beside the installed one, for tests alone.

    python3 tools/setup_drivers.py [backports | newest | swiftshader]

    backports    the lavapipe of Debian's backports: several times faster than that of Debian 12, disagrees with it usefully
    newest       the newest lavapipe that Debian has, of its unstable release, with the C library that it was built against
    swiftshader  the driver that Chromium brings

Nothing is installed and no root is needed: packages are downloaded with a private apt configuration and unpacked into a
folder under .cache, where icd.json names the driver by its full path. Exit status 1, with the reason, where the driver
cannot be had.
"""

from __future__ import annotations

import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CACHE = ROOT / ".cache"
RELEASE = "bookworm"
KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")


class Unavailable(Exception):
    """A driver cannot be had on this machine; the message says why."""


@dataclass(frozen=True)
class Launch:
    """How a program is started so that it has a driver.

    Attributes:
        environment: Variables to set.
        loader: The start of the command line where the driver wants another C library than the machine's.
    """

    environment: Mapping[str, str]
    loader: tuple[str, ...] = field(default=())


def run(*command: str, cwd: Path | None = None) -> str:
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True)
    if done.returncode:
        shown = " ".join(word for word in command if not word.startswith("-o"))
        raise Unavailable(f"{shown} failed: {done.stderr.strip() or done.stdout.strip()}")
    return done.stdout


def apt(folder: Path, *arguments: str) -> str:
    """apt-get with its state under `folder`; what the machine has configured is read and left alone."""
    (folder / "lists" / "partial").mkdir(parents=True, exist_ok=True)
    (folder / "cache" / "archives" / "partial").mkdir(parents=True, exist_ok=True)
    settings = {
        "Dir::State::Lists": folder / "lists",
        "Dir::Cache": folder / "cache",
        "Debug::NoLocking": 1,
        "APT::Sandbox::User": "root",
        "Acquire::Retries": 2,
        "Acquire::http::Timeout": 30,
    }
    return run("apt-get", *(f"-o{name}={value}" for name, value in settings.items()), *arguments, cwd=folder)


def mirror(folder: Path) -> str:
    """The address from which this machine takes its own release; apt answers, whichever way its sources are written."""
    for address in re.findall(rf"'(\S+)/dists/{RELEASE}/InRelease'", apt(folder, "update", "--print-uris")):
        return str(address)
    raise Unavailable(f"this machine's apt sources have no {RELEASE}")


def only_from(folder: Path, suite: str) -> tuple[str, ...]:
    """Options of apt-get with which it knows one suite of Debian and nothing else, its lists downloaded."""
    signed = f"[signed-by={KEYRING}] " if KEYRING.exists() else ""
    sources = folder / "suite.list"
    sources.write_text(f"deb {signed}{mirror(folder)} {suite} main\n")
    private = (f"-oDir::Etc::SourceList={sources}", "-oDir::Etc::SourceParts=/dev/null")
    apt(folder, *private, "update", "--error-on=any")
    return private


def download_backports(folder: Path) -> None:
    """The driver, and the one library that it needs newer than the release has it; the rest is the installed driver's."""
    suite = f"{RELEASE}-backports"
    apt(folder, *only_from(folder, suite), "download", f"mesa-vulkan-drivers/{suite}", f"libdrm2/{suite}")


def download_newest(folder: Path) -> None:
    """The driver with all that it needs, as on a machine where nothing is installed."""
    nothing = folder / "status"
    nothing.touch()
    private = (*only_from(folder, "sid"), f"-oDir::State::status={nothing}")
    apt(folder, *private, "install", "--yes", "--download-only", "--no-install-recommends", "mesa-vulkan-drivers")


def download_swiftshader(folder: Path) -> None:
    apt(folder, "update")
    apt(folder, "download", "chromium-common")


@dataclass(frozen=True)
class Unpacked:
    """A driver of Debian's packages.

    Attributes:
        folder: Its folder under .cache.
        library: The file name of the driver.
        download: Leaves the packages anywhere under a folder.
        own_libc: Whether the C library is among them.
    """

    folder: str
    library: str
    download: Callable[[Path], None]
    own_libc: bool = False

    def unpack(self, folder: Path) -> None:
        """Download and unpack under `folder`: root/ as packaged, lib as a link to the folder of the driver."""
        self.download(folder)
        for package in folder.rglob("*.deb"):
            run("dpkg", "-x", str(package), str(folder / "root"))
            package.unlink()
        driver = next((folder / "root").rglob(self.library))
        (folder / "lib").symlink_to(driver.parent.relative_to(folder))
        for name in ("lists", "cache"):
            shutil.rmtree(folder / name)
        if self.own_libc:
            return
        environment = {**os.environ, "LD_LIBRARY_PATH": str(folder / "lib")}
        needs = subprocess.run(["ldd", str(driver)], env=environment, capture_output=True, text=True, check=True).stdout
        if absent := re.findall(r"(\S+) => not found", needs):
            raise Unavailable(f"{driver.name} needs {', '.join(absent)}; install mesa-vulkan-drivers, which brings them")

    def launch(self) -> Launch:
        """Unpacks it where that is missing."""
        target = (CACHE / self.folder).resolve()
        if not target.exists():
            if f"VERSION_CODENAME={RELEASE}" not in Path("/etc/os-release").read_text().splitlines():
                raise Unavailable(f"it is unpacked on Debian 12, and this is {platform.platform()}")
            print(f"[set-up] unpacking {self.library} into .cache/{self.folder}", file=sys.stderr, flush=True)
            CACHE.mkdir(exist_ok=True)
            with tempfile.TemporaryDirectory(dir=CACHE) as scratch:
                folder = Path(scratch) / "driver"
                folder.mkdir()
                self.unpack(folder)
                folder.rename(target)  # at once and whole: an interrupted run leaves nothing behind
        # Written at every run: it holds a full path, and a checkout may have been moved.
        library = {"library_path": str(target / "lib" / self.library), "api_version": "1.3.0"}
        icd = target / "icd.json"
        icd.write_text(json.dumps({"file_format_version": "1.0.0", "ICD": library}, indent=1))
        environment = {"VK_DRIVER_FILES": str(icd)}
        if not self.own_libc:
            return Launch({**environment, "LD_LIBRARY_PATH": str(target / "lib")})
        folder = (target / "lib").resolve()
        loader = next(folder.glob("ld-linux*.so.*"))
        return Launch(environment, (str(loader), "--library-path", str(folder)))


def installed() -> Launch:
    """The lavapipe that the system has."""
    found = sorted(Path("/usr/share/vulkan/icd.d").glob("lvp_icd*.json"))
    if not found:
        raise Unavailable("no lavapipe is installed: tools/setup_debian.sh does")
    return Launch({"VK_DRIVER_FILES": str(found[0])})


DRIVERS: Mapping[str, Callable[[], Launch]] = {
    "installed": installed,
    "backports": Unpacked("lavapipe-backports", "libvulkan_lvp.so", download_backports).launch,
    "newest": Unpacked("lavapipe-newest", "libvulkan_lvp.so", download_newest, own_libc=True).launch,
    "swiftshader": Unpacked("swiftshader", "libvk_swiftshader.so", download_swiftshader).launch,
}
"""Drivers by name, each with what readies it and says how a program gets it."""


def main(names: list[str]) -> int:
    for name in names or ["backports"]:
        try:
            DRIVERS[name]()
        except KeyError:
            sys.exit(f"[set-up] there is no driver {name!r}, only {', '.join(DRIVERS)}")
        except Unavailable as reason:
            sys.exit(f"[set-up] no driver {name}: {reason}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
