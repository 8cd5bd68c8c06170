"""A folder of files through a model, on all devices of a cluster."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import numpy as np
import ray.data

from dmlvk.onnx.folder import FolderRun, PictureScale
from dmlvk.ray.devices import assigned_device
from dmlvk.ray.predictors import Batch, Predictor, predict, session_on
from dmlvk.ray.shared_model import ModelSource, share

_BATCHES: Final = 4
"""Batches of the device that an actor is given at once: fewer of Ray's tasks, and still many for all devices."""


class FolderPredictor(Predictor):
    """Runs files by their names, and gives what is wrong with each; see ``FolderRun``."""

    def __init__(self, model: ModelSource, *, folder: str, out: str, batch: int, scale: PictureScale) -> None:
        session = session_on(assigned_device(), model)
        self._run = FolderRun(session, Path(folder), Path(out), batch=batch, scale=scale)

    def __call__(self, batch: Batch) -> Batch:
        """The names with their errors."""
        names = [str(name) for name in batch["name"]]
        found: list[tuple[str, str]] = []
        with self.new_process_on_failure():
            for start in range(0, len(names), self._run.batch):
                found += self._run(names[start : start + self._run.batch])
        texts = np.array(found, object)
        return {"name": texts[:, 0], "error": texts[:, 1]}


def run_folder(
    model: Path, folder: Path, out: Path, names: Sequence[str], *, batch: int, scale: PictureScale, workers: int | None
) -> Iterator[tuple[str, str]]:
    """Runs files of a folder that all nodes have, such as one of a network; see ``FolderRun`` and ``predict``.

    Returns:
        Each name with what is wrong with its file, "" where nothing is, as they are done.
    """
    rows = ray.data.from_items([{"name": name} for name in names])
    made = predict(
        rows,
        FolderPredictor,
        share(model),
        batch_size=_BATCHES * batch,
        workers=workers,
        folder=str(folder.absolute()),
        out=str(out.absolute()),
        batch=batch,
        scale=scale,
    )
    return ((row["name"], row["error"]) for row in made.iter_rows())
