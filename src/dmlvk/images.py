"""Pictures as tensors of channels from 0 to 1, and back. Takes Pillow, which the extra ``dispatch`` brings."""

from __future__ import annotations

import pathlib
from types import ModuleType
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from dmlvk.spec.errors import MissingPackageError

IMAGES: Final = (".png", ".jpg")
"""The suffixes of files that are pictures."""
_MODES: Final = {1: "L", 3: "RGB", 4: "RGBA"}
CHANNELS: Final = tuple(_MODES)
"""The numbers of channels that a picture may have."""


def read_image(
    path: pathlib.Path, channels: int = 3, rows: int | None = None, columns: int | None = None
) -> npt.NDArray[np.float32]:
    """A picture as channels, rows and columns of numbers from 0 to 1.

    Args:
        path: The file.
        channels: One of ``CHANNELS``.
        rows, columns: What it is scaled to; None for its own.

    Raises:
        MissingPackageError: Pillow is not installed.
        OSError, ValueError: the file is no picture.
    """
    pillow = _pillow()
    with pillow.open(path) as opened:
        picture = opened.convert(_MODES[channels])
    size = (columns or picture.width, rows or picture.height)
    if size != picture.size:
        picture = picture.resize(size, pillow.Resampling.BICUBIC)
    pixels = np.asarray(picture, np.float32) / np.float32(255)
    return pixels[None] if channels == 1 else pixels.transpose(2, 0, 1)


def write_image(path: pathlib.Path, values: npt.NDArray[Any]) -> None:
    """Writes channels, rows and columns of numbers from 0 to 1 as a picture; what is beyond is cut off.

    Raises:
        MissingPackageError: Pillow is not installed.
        OSError: the file cannot be written.
    """
    pixels = (np.clip(np.nan_to_num(values.astype(np.float32)), 0, 1) * 255).astype(np.uint8).transpose(1, 2, 0)
    _pillow().fromarray(pixels[..., 0] if pixels.shape[2] == 1 else pixels, _MODES[pixels.shape[2]]).save(path)


def _pillow() -> ModuleType:
    try:
        from PIL import Image
    except ImportError as error:
        raise MissingPackageError("pictures need the package pillow: pip install 'dmlvk[dispatch]'") from error
    return Image
