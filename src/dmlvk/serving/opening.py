"""Files as applications, for those who run servers."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from dmlvk.directml.device import Device
from dmlvk.serving.limits import Limits

if TYPE_CHECKING:
    from starlette.applications import Starlette

DeviceOf = Callable[[], Device | None]
"""Opens the device; None for the process-wide one. It is called again where the device was lost."""


def is_language_model(path: Path) -> bool:
    """Whether a file or folder is a language model, and not an ONNX file."""
    return path.is_dir() or path.suffix == ".gguf"


def text_of(
    path: str | os.PathLike[str],
    device: DeviceOf,
    *,
    name: str | None = None,
    capacity: int | None = None,
    sequences: int = 8,
    piece: int | None = None,
    most_waiting: int = 256,
    limits: Limits | None = None,
) -> Starlette:
    """A language model of a file, see ``text_application``.

    Args:
        path: As of ``llm.load``.
        device: The device.
        name: What clients call the model; the file's name without its ending where None.
        capacity, sequences: As of ``llm.load``; a folder has one sequence.
        piece, most_waiting: As of ``Service``.
        limits: What clients may ask for.

    Raises:
        DmlvkError: what ``llm.load`` raises.
    """
    from dmlvk import llm  # here: ONNX files do not need its packages
    from dmlvk.llm.service import Service, warmed
    from dmlvk.serving.text import text_application

    file = Path(path)
    count = 1 if file.is_dir() else sequences

    def load() -> llm.Model:
        return warmed(llm.load(file, device(), capacity=capacity, sequences=count), piece)

    service = Service(load, most_waiting=most_waiting, piece=piece)
    return text_application(service, name or (file.name if file.is_dir() else file.stem), limits=limits)


def models_of(
    paths: Mapping[str, str | os.PathLike[str]],
    device: DeviceOf,
    *,
    most_rows: int = 1,
    most_waiting: int = 256,
    limits: Limits | None = None,
) -> Starlette:
    """ONNX models of files, see ``model_application``.

    Args:
        paths: The files, by the names that clients call the models.
        device: The device.
        most_rows, most_waiting: As of ``ServedModel``.
        limits: What clients may ask for.

    Raises:
        DmlvkError: what ``onnx.InferenceSession`` and ``ServedModel`` raise.
    """
    from dmlvk.onnx.session import InferenceSession
    from dmlvk.serving.models import ServedModel, model_application

    opened = device()
    sessions = {name: InferenceSession(os.fspath(path), opened) for name, path in paths.items()}
    served = {name: ServedModel(own, most_rows=most_rows, most_waiting=most_waiting) for name, own in sessions.items()}
    return model_application(served, limits=limits)
