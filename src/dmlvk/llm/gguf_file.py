"""GGUF files: the one place that imports the package gguf."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from dmlvk.llm.config import Weights, WeightTensor
from dmlvk.llm.gguf_config import config_of
from dmlvk.spec.errors import MissingPackageError, ModelError, NoSuchFileError, UnsupportedError

try:
    import gguf
except ImportError as error:
    raise MissingPackageError("GGUF files need the package gguf: pip install dmlvk[llm]") from error

EMBEDDINGS: Final = "token_embd.weight"
_ROTATIONS: Final = re.compile(r"rope_(freqs|factors_long|factors_short)\.weight")
_PART: Final = re.compile(r"-00001-of-(\d{5})\.gguf$")


class _Metadata(Mapping[str, Any]):
    """The keys of a file, each read when it is asked for: a vocabulary takes seconds."""

    def __init__(self, fields: Mapping[str, Any]) -> None:
        self._fields = fields

    def __getitem__(self, key: str) -> Any:
        return self._fields[key].contents()

    def __iter__(self) -> Iterator[str]:
        return iter(self._fields)

    def __len__(self) -> int:
        return len(self._fields)


def load_gguf(path: str | os.PathLike[str]) -> Weights:
    """The model in a GGUF file, or in several of which this is the first. Its weights are views of the files.

    Raises:
        NoSuchFileError: there is no such file.
        ModelError: it is broken, or no GGUF file.
        UnsupportedError: an architecture that is not supported, or big-endian numbers.
    """
    first = Path(path)
    readers = [_reader(first)]
    if found := _PART.search(first.name):
        count = int(found[1])
        names = (f"{first.name[: found.start()]}-{part:05}-of-{count:05}.gguf" for part in range(2, count + 1))
        readers += [_reader(first.with_name(name)) for name in names]
    metadata = _Metadata(readers[0].fields)
    tensors = {
        tensor.name: WeightTensor(
            tensor.tensor_type.name, tuple(map(int, reversed(tensor.shape))), tensor.data.reshape(-1).view(np.uint8)
        )
        for reader in readers
        for tensor in reader.tensors
    }
    rotations = {name: found[1] for name in tensors if (found := _ROTATIONS.fullmatch(name))}
    factors = {short: tensors.pop(name).data.view(np.float32).astype(np.float64) for name, short in rotations.items()}
    if EMBEDDINGS not in tensors:
        raise ModelError(f"{first}: no tensor {EMBEDDINGS}, so it is no language model")
    return Weights(config_of(metadata, factors, tensors[EMBEDDINGS].sizes[0]), tensors, metadata)


def _reader(path: Path) -> gguf.GGUFReader:
    if not path.is_file():
        raise NoSuchFileError(f"there is no file {path}")
    try:
        reader = gguf.GGUFReader(path)
    except Exception as error:  # the package raises whatever a broken file leads to
        raise ModelError(f"{path}: no GGUF file that can be read: {error}") from error
    if reader.byte_order == "S":
        raise UnsupportedError(f"{path}: numbers in the other byte order are not supported")
    return reader


def dequantized(tensor: WeightTensor) -> npt.NDArray[np.float32]:
    """The numbers of a weight in blocks."""
    kind = gguf.GGMLQuantizationType[tensor.type]
    return gguf.dequantize(tensor.data.reshape(tensor.sizes[0], -1), kind).reshape(tensor.sizes)
