"""GGUF files: the one place that imports the package gguf."""

from __future__ import annotations

import os
import re
import struct
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


class _Reader(gguf.GGUFReader):
    """The package's reader, without the fifteen seconds that it takes for a vocabulary: it makes several views of each
    element of an array. A version of the package that does not ask here is slow, and right."""

    def _get_field_parts(
        self, orig_offs: int, raw_type: int
    ) -> tuple[int, list[npt.NDArray[Any]], list[int], list[gguf.GGUFValueType]]:
        if raw_type != gguf.GGUFValueType.ARRAY:
            return super()._get_field_parts(orig_offs, raw_type)
        kind, count = self._get(orig_offs, np.uint32), self._get(orig_offs + 4, np.uint64)
        element, start = gguf.GGUFValueType(kind[0]), orig_offs + 12
        if element in self.gguf_scalar_to_np:
            values = self._get(start, self.gguf_scalar_to_np[element], count[0])
            return 12 + values.nbytes, [kind, count, values], [2], [gguf.GGUFValueType.ARRAY, element]
        if element != gguf.GGUFValueType.STRING:
            return super()._get_field_parts(orig_offs, raw_type)
        everything, order = self.data.data, ">" if self.byte_order == "S" else "<"
        length_of = struct.Struct(f"{order}Q").unpack_from
        texts = []
        for _ in range(int(count[0])):
            end = start + 8 + length_of(everything, start)[0]
            texts.append(np.frombuffer(everything[start + 8 : end], np.uint8))
            start = end
        return start - orig_offs, [kind, count, *texts], [*range(2, 2 + len(texts))], [gguf.GGUFValueType.ARRAY, element]


def _reader(path: Path) -> gguf.GGUFReader:
    if not path.is_file():
        raise NoSuchFileError(f"there is no file {path}")
    try:
        reader = _Reader(path)
    except Exception as error:  # the package raises whatever a broken file leads to
        raise ModelError(f"{path}: no GGUF file that can be read: {error}") from error
    if reader.byte_order == "S":
        raise UnsupportedError(f"{path}: numbers in the other byte order are not supported")
    return reader
