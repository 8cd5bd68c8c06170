"""Models on the command line: loads them, with progress, and makes or reads their inputs."""

from __future__ import annotations

import contextlib
import pathlib
import zipfile
from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from dmlvk.engine.progress import ProgressBar
from dmlvk.onnx.session import InferenceSession
from dmlvk.spec.errors import ModelError

_PATIENCE: Final = 0.5
"""Seconds that a phase takes before it is shown."""


def loaded(model: str, device: str | None) -> InferenceSession:
    """The model's session. Shows how far each phase is that takes time."""
    with contextlib.ExitStack() as shown:
        bars: dict[str, ProgressBar] = {}

        def show(phase: str, done: int, total: int) -> None:
            if phase not in bars:
                shown.close()  # the bar before it
                bars[phase] = shown.enter_context(ProgressBar(total, patience=_PATIENCE))
            bars[phase].update(done, phase)

        return InferenceSession(model, device, progress=show)


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
