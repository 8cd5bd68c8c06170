"""Unpack the lavapipe driver of Debian's backports beside the installed one, for the test suite alone.

    python3 tools/setup_lavapipe.py

It is several times faster than the driver of Debian 12 and disagrees with it usefully. Nothing is installed and no root
is needed: two packages are downloaded with a private apt configuration and unpacked into .cache/lavapipe-backports,
where icd.json names the driver by its full path and `lib` is what LD_LIBRARY_PATH needs. Exit status 1, with the
reason, where the driver cannot be had.
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
from pathlib import Path

CACHE = Path(__file__).resolve().parent.parent / ".cache"
TARGET = CACHE / "lavapipe-backports"
RELEASE = "bookworm"
SUITE = f"{RELEASE}-backports"

#: The driver, and the one library that it needs newer than the release has it. Its other needs are those of the
#: release's own driver, which is installed.
PACKAGES = ("mesa-vulkan-drivers", "libdrm2")
KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")


class Unavailable(Exception):
    """The backported driver cannot be had on this machine; the message says why."""


def run(*command: str, cwd: Path | None = None) -> str:
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True)
    if done.returncode:
        shown = " ".join(word for word in command if not word.startswith("-o"))
        raise Unavailable(f"{shown} failed: {done.stderr.strip() or done.stdout.strip()}")
    return done.stdout


def apt(folder: Path, *arguments: str) -> str:
    """apt-get with its state under `folder`; what the machine has configured is read and left alone."""
    (folder / "lists" / "partial").mkdir(parents=True, exist_ok=True)
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


def download(folder: Path) -> list[Path]:
    signed = f"[signed-by={KEYRING}] " if KEYRING.exists() else ""
    sources = folder / "backports.list"
    sources.write_text(f"deb {signed}{mirror(folder)} {SUITE} main\n")
    private = (f"-oDir::Etc::SourceList={sources}", "-oDir::Etc::SourceParts=/dev/null")
    apt(folder, *private, "update", "--error-on=any")
    apt(folder, *private, "download", *(f"{package}/{SUITE}" for package in PACKAGES))
    return sorted(folder.glob("*.deb"))


def unpack(folder: Path) -> None:
    """Download and unpack under `folder`: root/ as packaged, lib as a link to the folder of its libraries."""
    for package in download(folder):
        run("dpkg", "-x", str(package), str(folder / "root"))
        package.unlink()
    driver = next((folder / "root").rglob("libvulkan_lvp.so"))
    (folder / "lib").symlink_to(driver.parent.relative_to(folder))
    environment = {**os.environ, "LD_LIBRARY_PATH": str(folder / "lib")}
    needs = subprocess.run(["ldd", str(driver)], env=environment, capture_output=True, text=True, check=True).stdout
    if absent := re.findall(r"(\S+) => not found", needs):
        raise Unavailable(f"{driver.name} needs {', '.join(absent)}; install mesa-vulkan-drivers, which brings them")


def write_icd() -> None:
    """Written at every run: it holds a full path, and a checkout may have been moved."""
    (manifest,) = (TARGET / "root" / "usr/share/vulkan/icd.d").glob("lvp_icd*.json")
    icd = json.loads(manifest.read_text())
    icd["ICD"]["library_path"] = str(TARGET / "lib" / "libvulkan_lvp.so")
    (TARGET / "icd.json").write_text(json.dumps(icd, indent=1))


def main() -> None:
    if not TARGET.exists():
        if f"VERSION_CODENAME={RELEASE}" not in Path("/etc/os-release").read_text().splitlines():
            raise Unavailable(f"{SUITE} is for Debian 12, and this is {platform.platform()}")
        print(f"[set-up] unpacking the lavapipe of {SUITE} into .cache/", file=sys.stderr, flush=True)
        CACHE.mkdir(exist_ok=True)
        with tempfile.TemporaryDirectory(dir=CACHE) as scratch:
            folder = Path(scratch) / "lavapipe"
            folder.mkdir()
            unpack(folder)
            shutil.rmtree(folder / "lists")
            folder.rename(TARGET)  # at once and whole: an interrupted run leaves nothing behind
    write_icd()


if __name__ == "__main__":
    try:
        main()
    except Unavailable as reason:
        sys.exit(f"[set-up] no backported lavapipe: {reason}")
