"""Models on the command line: loads them, with progress, and makes or reads their inputs."""

from __future__ import annotations

import pathlib
import sys
import time
import zipfile
from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from dmlvk.onnx.session import InferenceSession
from dmlvk.spec.errors import ModelError


def loaded(model: str, device: str | None) -> InferenceSession:
    """The model's session. Shows on a terminal how far it is, where that takes time."""
    line = ProgressLine()
    try:
        return InferenceSession(model, device, progress=line.show)
    finally:
        line.clear()


class ProgressLine:
    """A line on standard error that tells how far something is, once it has taken half a second; none where that is no
    terminal."""

    _PATIENCE = 0.5
    _INTERVAL = 0.05
    _WIDTH = 30

    def __init__(self) -> None:
        self._next = time.monotonic() + self._PATIENCE
        self._shown = 0

    def show(self, phase: str, done: int, total: int) -> None:
        """Draws the line, if it is time; a ``Progress``."""
        now = time.monotonic()
        if now < self._next or not sys.stderr.isatty():
            return
        self._next = now + self._INTERVAL
        full = self._WIDTH * done // total
        line = f"{phase:20} [{'#' * full}{' ' * (self._WIDTH - full)}] {100 * done // total:3} %"
        print(f"\r{line}", end="", file=sys.stderr, flush=True)
        self._shown = len(line)

    def clear(self) -> None:
        """Wipes the line out."""
        if self._shown:
            print(f"\r{' ' * self._shown}\r", end="", file=sys.stderr, flush=True)


def random_feeds(session: InferenceSession, sizes: Mapping[str, int]) -> dict[str, Any]:
    """Random numbers, seed 0, for all inputs of a model; ``sizes`` are those of dimensions that it leaves open, else 1."""
    rng = np.random.default_rng(0)
    feeds = {}
    for item in session.get_inputs():
        if item.shape is None:
            raise ModelError(f"input {item.name!r} has no shape: give the inputs with --input")
        shape = [
            size if isinstance(size, int) else sizes.get(size or f"{item.name}.{axis}", 1)
            for axis, size in enumerate(item.shape)
        ]
        if item.type not in _NUMPY_NAMES:
            raise ModelError(f"input {item.name!r} is a {item.type}, for which no numbers can be made up")
        kind = _NUMPY_NAMES[item.type]
        values = rng.standard_normal(shape) if "float" in kind or "double" in kind else rng.integers(0, 2, shape)
        feeds[item.name] = values.astype(kind)
    return feeds


def read_feeds(path: pathlib.Path) -> dict[str, Any]:
    try:
        with np.load(path) as archive:
            return dict(archive)
    except (TypeError, ValueError, zipfile.BadZipFile) as error:
        raise ModelError(f"{path} is no .npz file of arrays: {error}") from None


_NUMPY_NAMES: Final = {
    "tensor(float)": "float32",
    "tensor(float16)": "float16",
    "tensor(double)": "float64",
    "tensor(int64)": "int64",
    "tensor(int32)": "int32",
    "tensor(int16)": "int16",
    "tensor(int8)": "int8",
    "tensor(uint64)": "uint64",
    "tensor(uint32)": "uint32",
    "tensor(uint16)": "uint16",
    "tensor(uint8)": "uint8",
    "tensor(bool)": "bool",
}
