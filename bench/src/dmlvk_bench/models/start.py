"""Times a process from its start to a model's first result.

    python -P start.py MODEL FEEDS.npz [--device CHOICE]

prints the seconds of each part. It is run as a file, because as a module its package would be imported before it looks at
the clock. ``starts`` calls that in processes of their own, the second with the first one's caches.
"""

from __future__ import annotations

import time

STARTED = time.perf_counter()

import argparse  # noqa: E402
import json  # noqa: E402
import os  # noqa: E402
import pathlib  # noqa: E402
import subprocess  # noqa: E402
import sys  # noqa: E402
import tempfile  # noqa: E402
from collections.abc import Mapping  # noqa: E402
from typing import Any  # noqa: E402

import numpy as np  # noqa: E402


def starts(model: bytes, feeds: Mapping[str, np.ndarray[Any, Any]], choice: str | None) -> list[dict[str, float]]:
    """The first start, with empty caches: of pipelines, dmlvk's and the driver's, and of Python's byte code; and the second.

    Returns:
        Seconds of each start: ``total``, from the start of the process to the first result, and parts of it: ``imports``,
        ``device``, ``session`` and ``run``.
    """
    found = []
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder)
        (path / "model.onnx").write_bytes(model)
        arrays: dict[str, Any] = dict(feeds)
        np.savez(path / "feeds.npz", **arrays)
        caches = dict.fromkeys(("DMLVK_CACHE_DIR", "__GL_SHADER_DISK_CACHE_PATH", "PYTHONPYCACHEPREFIX"), folder)
        caches["PYTHONDONTWRITEBYTECODE"] = ""  # an installed package has its byte code; the first start makes it
        command = [sys.executable, "-P", __file__, f"{folder}/model.onnx", f"{folder}/feeds.npz"]
        command += ["--device", choice] if choice is not None else []
        for _ in range(2):
            started = time.time()  # not the other clock: the two processes compare it
            done = subprocess.run(command, env=os.environ | caches, check=True, capture_output=True, text=True)
            parts = json.loads(done.stdout)
            found.append({"total": parts.pop("ready_at") - started, **parts})
    return found


def main() -> int:
    """Loads a model, runs it once and prints what that took."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("feeds")
    parser.add_argument("--device")
    options = parser.parse_args()
    feeds = dict(np.load(options.feeds))
    marks = [STARTED]
    import dmlvk
    from dmlvk.onnx import InferenceSession

    marks.append(time.perf_counter())
    device = dmlvk.Device(options.device)
    marks.append(time.perf_counter())
    session = InferenceSession(options.model, device)
    marks.append(time.perf_counter())
    session.run(None, feeds)
    marks.append(time.perf_counter())
    ready_at = time.time()
    parts = zip(("imports", "device", "session", "run"), marks, marks[1:], strict=False)
    print(json.dumps({"ready_at": ready_at} | {name: end - begin for name, begin, end in parts}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
