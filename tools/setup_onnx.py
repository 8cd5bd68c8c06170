"""Install the newest release of onnx beside the environment's, for the second run of ONNX's node cases alone.

    .venv/bin/python tools/setup_onnx.py

It goes into .cache/onnx-newest, which stands before the environment in PYTHONPATH there. Nothing is done where it is there
already. Exit status 1, with the reason, where pip cannot have it.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

TARGET = Path(__file__).resolve().parent.parent / ".cache" / "onnx-newest"
RELEASE = "1.23.2"

#: The release, and the one requirement that the environment's own onnx does not have.
REQUIREMENTS = (f"onnx=={RELEASE}", "ml_dtypes>=0.5.4")


def main() -> None:
    if (TARGET / f"onnx-{RELEASE}.dist-info").exists():
        return
    unfinished = TARGET.with_suffix(".unfinished")
    for folder in (unfinished, TARGET):
        shutil.rmtree(folder, ignore_errors=True)
    command = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", str(unfinished), *REQUIREMENTS]
    if subprocess.run(command).returncode:
        sys.exit(f"onnx {RELEASE} cannot be had: pip says why above")
    unfinished.rename(TARGET)


if __name__ == "__main__":
    main()
