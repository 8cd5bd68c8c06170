"""A folder of files through a model: what it makes of each is a file of its own in another folder."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np

from dmlvk.images import CHANNELS, read_image
from dmlvk.onnx.batches import Batches, of_type
from dmlvk.onnx.model import Array, ValueInfo
from dmlvk.onnx.session import InferenceSession
from dmlvk.spec.errors import DeviceLostError, MissingPackageError, ModelError, UnsupportedError, WaitTimeoutError

_ARRAYS: Final = (".npy", ".npz")
_PICTURES: Final = (".png", ".jpg", ".jpeg", ".bmp", ".webp")
_FAILURES: Final = (DeviceLostError, WaitTimeoutError, MissingPackageError)
"""What no file is to blame for."""
USUAL_BATCH: Final = 8
"""Files that are run together where the model leaves the number open."""


def files_in(folder: Path) -> list[str]:
    """The names of the arrays and pictures in a folder and in those below it, in order.

    Raises:
        ModelError: there is no such folder.
    """
    if not folder.is_dir():
        raise ModelError(f"there is no folder {folder}")
    found = (path for path in folder.rglob("*") if path.suffix.lower() in (*_ARRAYS, *_PICTURES) and path.is_file())
    return sorted(path.relative_to(folder).as_posix() for path in found)


def result_of(out: Path, name: str) -> Path:
    """The file of a file's results: there is none, or it is complete."""
    return out / f"{name}.npz"


class PictureScale(NamedTuple):
    """How the numbers of a picture, 0 to 1, become those of a float input: less the mean, then divided, by channel."""

    mean: tuple[float, ...] = (0.0,)
    divisor: tuple[float, ...] = (1.0,)


_AS_IT_IS: Final = PictureScale()


class _Input(NamedTuple):
    """What a file has for a model: for each input an array; of one item where the axis of items was not in the file."""

    feeds: dict[str, Array]
    is_item: bool


class FolderRun:
    """Runs files of a folder, and writes their results: an .npz file of the outputs by name for each.

    A file is one item of a batch, or it has the axis of items as well. An .npz file has an array for each input; an .npy
    file and a picture are for a model of one input. A picture is scaled to the input's rows and columns. A model that has
    no axis of items takes each file as it is.

    Args:
        session: The model.
        folder, out: The folders.
        batch: Files that are run together where the model leaves the number open, as many as it takes where it does not.
        scale: See there.
    """

    def __init__(
        self,
        session: InferenceSession,
        folder: Path,
        out: Path,
        *,
        batch: int = USUAL_BATCH,
        scale: PictureScale | None = None,
    ) -> None:
        self._session, self._folder, self._out = session, folder, out
        self._scale = scale or PictureScale()
        self._inputs = {info.name: info for info in session.get_inputs()}
        self._outputs = [info.name for info in session.get_outputs()]
        self._batches: Batches | None
        try:
            self._batches = Batches(session.get_inputs(), session.get_outputs(), batch)
        except UnsupportedError:
            self._batches = None
        self.batch = 1 if self._batches is None else self._batches.size or batch

    def __call__(self, names: Sequence[str]) -> list[tuple[str, str]]:
        """Runs files, together as far as they have the same sizes.

        Returns:
            Each name with what is wrong with its file, "" where nothing is.

        Raises:
            DeviceLostError, WaitTimeoutError: the device failed. Some results may have been written.
            MissingPackageError: pictures need Pillow.
        """
        errors = dict.fromkeys(names, "")
        groups: dict[Any, dict[str, _Input]] = {}
        for name in names:
            try:
                found = self._read(name)
            except _FAILURES:
                raise
            except Exception as error:  # readers of broken files raise whatever they like
                errors[name] = _said(error)
                continue
            alone = name if self._batches is None else None
            key = (alone, *(array.shape[1:] for array in found.feeds.values()))
            groups.setdefault(key, {})[name] = found
        for group in groups.values():
            errors |= self._run(group)
        return list(errors.items())

    def _run(self, group: dict[str, _Input]) -> dict[str, str]:
        """The errors of files that are run together; where that fails, of each by itself."""
        try:
            made = self._made(group)
            for name, outputs in made.items():
                self._write(name, outputs)
        except _FAILURES:
            raise
        except Exception as error:
            if len(group) == 1:
                return dict.fromkeys(group, _said(error))
            return {name: text for item in group.items() for name, text in self._run(dict([item])).items()}
        return {}

    def _made(self, group: dict[str, _Input]) -> dict[str, list[Any]]:
        items = list(group.values())
        if self._batches is None:
            return {name: self._session.run(None, item.feeds) for name, item in group.items()}
        feeds = {name: np.concatenate([item.feeds[name] for item in items]) for name in self._inputs}
        outputs = self._batches.run(lambda batch: self._session.run(None, batch), feeds)
        ends = np.cumsum([len(next(iter(item.feeds.values()))) for item in items])[:-1]
        parts = zip(*(np.split(output, ends) for output in outputs), strict=True)
        return {
            name: [array[0] for array in arrays] if item.is_item else list(arrays)
            for (name, item), arrays in zip(group.items(), parts, strict=True)
        }

    def _write(self, name: str, outputs: Iterable[Any]) -> None:
        """Writes a file's results aside, and gives them their name when they are complete."""
        place = result_of(self._out, name)
        place.parent.mkdir(parents=True, exist_ok=True)
        aside = place.with_name(f".{place.name}.part")
        with aside.open("wb") as file:
            np.savez(file, **dict(zip(self._outputs, outputs, strict=True)))
        os.replace(aside, place)

    # -- reading

    def _read(self, name: str) -> _Input:
        path = self._folder / name
        suffix = path.suffix.lower()
        if suffix == ".npz":
            with np.load(path, allow_pickle=False) as archive:
                arrays = dict(archive)
        else:
            if len(self._inputs) != 1:
                raise ModelError(
                    f"the model has inputs {', '.join(self._inputs)}: its files must be .npz, of arrays by name"
                )
            (info,) = self._inputs.values()
            array = np.load(path, allow_pickle=False) if suffix == ".npy" else self._picture(path, info)
            arrays = {info.name: array}
        if arrays.keys() != self._inputs.keys():
            raise ModelError(f"the file must have arrays {', '.join(self._inputs)}; it has {', '.join(arrays) or 'none'}")
        feeds = {input: of_type(info, arrays[input]) for input, info in self._inputs.items()}
        if self._batches is None:
            return _Input(feeds, False)
        single = {input: self._is_item(info, feeds[input]) for input, info in self._inputs.items()}
        if len(set(single.values())) > 1:
            raise ModelError("some arrays of the file have an axis of items, and some have none")
        is_item = any(single.values())
        feeds = {input: array[None] if is_item else array for input, array in feeds.items()}
        counts = {input: len(array) for input, array in feeds.items()}
        if len(set(counts.values())) > 1 or not all(counts.values()):
            raise ModelError(
                f"the arrays of the file must have the same number of items each, at least 1; they have {counts}"
            )
        return _Input(feeds, is_item)

    def _is_item(self, info: ValueInfo, array: Array) -> bool:
        if info.shape is None:
            return False
        if array.ndim not in (len(info.shape), len(info.shape) - 1):
            raise ModelError(f"input {info.name!r} has shape {info.shape}; the file's array has {list(array.shape)}")
        return array.ndim < len(info.shape)

    def _picture(self, path: Path, info: ValueInfo) -> Array:
        """A picture as an input wants it, without the axis of items."""
        sizes = (info.shape or [])[-3:]
        first = len(sizes) == 3 and sizes[0] in CHANNELS
        if not first and not (len(sizes) == 3 and sizes[2] in CHANNELS):
            rule = "must have an axis of 1, 3 or 4 channels before or after those of rows and columns"
            raise ModelError(f"input {info.name!r} of shape {info.shape} {rule}: pictures need one")
        channels, rows, columns = sizes if first else (sizes[2], *sizes[:2])
        assert isinstance(channels, int), "it is one of those"
        given = [size if isinstance(size, int) else None for size in (rows, columns)]
        pixels = read_image(path, channels, *given)
        if info.dtype.kind == "f":
            mean, divisor = (np.asarray(numbers, np.float32).reshape(-1, 1, 1) for numbers in self._scale)
            pixels = (pixels - mean) / divisor
        else:
            pixels = np.rint(pixels * 255)
        if not first:
            pixels = pixels.transpose(1, 2, 0)
        return pixels.astype(info.dtype)


def _said(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__
