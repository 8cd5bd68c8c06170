"""Models on nodes that do not have their files: each node fetches them once, and all its processes map them."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from dmlvk.ray.devices import node_folder, taking_turns
from dmlvk.spec.errors import ModelError, NoSuchFileError

_PIECE: Final = 1 << 26
"""Bytes that go from node to node at once."""
_FIRST_PART: Final = re.compile(r"-00001-of-\d{5}\.gguf$")


class _File(NamedTuple):
    """A file of a model: its path below the model's folder, and how to tell that a node has the same one."""

    name: str
    nbytes: int
    modified_ns: int


class SharedModel:
    """A model of this node for all nodes: ``share`` makes it. It goes to actors as an argument.

    Attributes:
        path: The model's path on the node that shares it.
    """

    def __init__(self, path: Path, root: Path, files: tuple[_File, ...], server: Any) -> None:
        self.path = path
        self._root = root
        self._files = files
        self._server = server

    def local(self) -> Path:
        """The model's path on the node of the caller, which fetches it where no other process has."""
        if all(_is_there(self._root / file.name, file) for file in self._files):
            return self.path
        name = hashlib.sha256(repr((self.path, self._files)).encode()).hexdigest()
        own = node_folder() / "models" / name[:16]
        with taking_turns(own):
            for file in self._files:
                if not _is_there(own / file.name, file):
                    self._fetch(file, own / file.name)
        return own / self.path.relative_to(self._root)

    def _fetch(self, file: _File, place: Path) -> None:
        place.parent.mkdir(parents=True, exist_ok=True)
        part = place.with_name(place.name + ".part")
        with part.open("wb") as out:
            for start in range(0, file.nbytes, _PIECE):
                out.write(ray.get(self._server.piece.remote(file.name, start)))
        os.utime(part, ns=(file.modified_ns, file.modified_ns))
        part.replace(place)


ModelSource = str | os.PathLike[str] | SharedModel
"""A model's path on each node, or a model that one of them shares."""


def files_of(model: ModelSource) -> Path:
    """The path of a model on this node."""
    return model.local() if isinstance(model, SharedModel) else Path(model)


def share(path: str | os.PathLike[str]) -> SharedModel:
    """A model whose files only this node has, for the predictors of all nodes. Each node fetches them when it first needs
    them, in pieces of 64 MiB, and keeps them among Ray's files of the session; a node with the same files there takes those.

    Args:
        path: An ONNX file, with the files of its weights; a GGUF file, or the first of its parts; or a model's folder.

    Raises:
        NoSuchFileError: there is no such file.
        ModelError: the ONNX file is broken, or its weights lie outside of its folder.
    """
    model = Path(path).absolute()
    if not model.exists():
        raise NoSuchFileError(f"there is no file {model}")
    root = model if model.is_dir() else model.parent
    files = []
    for name in sorted(set(_names(model))):
        found = (root / name).stat()
        files.append(_File(name, found.st_size, found.st_mtime_ns))
    here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
    server = ray.remote(_Server).options(num_cpus=0, scheduling_strategy=here).remote(str(root))
    return SharedModel(model, root, tuple(files), server)


class _Server:
    """The actor that reads the files, on the node that has them."""

    def __init__(self, root: str) -> None:
        self._root = Path(root)

    def piece(self, name: str, start: int) -> bytes:
        with (self._root / name).open("rb") as file:
            file.seek(start)
            return file.read(_PIECE)


def _is_there(path: Path, file: _File) -> bool:
    try:
        found = path.stat()
    except OSError:
        return False
    return (found.st_size, found.st_mtime_ns) == (file.nbytes, file.modified_ns)


def _names(model: Path) -> Iterator[str]:
    """The model's files, below its folder."""
    if model.is_dir():
        yield from (str(path.relative_to(model)) for path in model.rglob("*") if path.is_file())
        return
    yield model.name
    if _FIRST_PART.search(model.name):
        pattern = _FIRST_PART.sub("-*-of-*.gguf", model.name)
        yield from (path.name for path in model.parent.glob(pattern))
    if model.suffix == ".onnx":
        yield from _external(model)


def _external(model: Path) -> Iterator[str]:
    import onnx
    from google.protobuf.message import DecodeError  # type: ignore[import-untyped]

    from dmlvk.onnx.external import is_external, tensors

    try:
        proto = onnx.load_model(model, load_external_data=False)
    except DecodeError as error:
        raise ModelError(f"the model is broken: {model} is no ONNX model: {error}") from error
    for tensor in tensors(proto):
        if is_external(tensor):
            entries = {entry.key: entry.value for entry in tensor.external_data}
            path = (model.parent / entries.get("location", "")).resolve()
            if not path.is_relative_to(model.parent.resolve()) or not path.is_file():
                where = entries.get("location")
                raise ModelError(f"tensor {tensor.name!r} is at {where!r}: no file below the model's folder")
            yield str(path.relative_to(model.parent.resolve()))
