"""Tensors whose bytes lie in files beside the model's.

The file says where: a path below the model's folder, an offset and a length. None of it is trusted, and whatever leads out
of the folder, a symbolic link included, is refused before anything is opened. So is a file with several names: one of them
may be outside.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterable, Iterator
from pathlib import Path, PurePosixPath, PureWindowsPath

import onnx

from dmlvk.onnx.weights import STAND_IN
from dmlvk.spec.errors import ModelError

_SHARING = 4
"""The most bytes of tensors for each byte of their files: some share theirs, but a small file must not become a large
model."""


def nodes_within(nodes: Iterable[onnx.NodeProto]) -> Iterator[onnx.NodeProto]:
    """The nodes and those of the graphs in their attributes."""
    waiting = list(nodes)
    while waiting:
        node = waiting.pop()
        yield node
        for attribute in node.attribute:
            for graph in (*((attribute.g,) if attribute.HasField("g") else ()), *attribute.graphs):
                waiting += graph.node


def tensors(proto: onnx.ModelProto) -> Iterator[onnx.TensorProto]:
    """Every tensor of a model: initializers and attributes, those of inner graphs and functions as well."""
    yield from _initializers(proto.graph)
    for node in nodes_within((*proto.graph.node, *(node for function in proto.functions for node in function.node))):
        for attribute in node.attribute:
            if attribute.HasField("t"):
                yield attribute.t
            yield from attribute.tensors
            for graph in (*((attribute.g,) if attribute.HasField("g") else ()), *attribute.graphs):
                yield from _initializers(graph)


def _initializers(graph: onnx.GraphProto) -> Iterator[onnx.TensorProto]:
    yield from graph.initializer
    for sparse in graph.sparse_initializer:
        yield from (sparse.values, sparse.indices)


def is_external(tensor: onnx.TensorProto) -> bool:
    """Whether a tensor's bytes are elsewhere."""
    return bool(tensor.data_location == onnx.TensorProto.EXTERNAL)


def read_external(proto: onnx.ModelProto, folder: Path, maps: bool = False) -> dict[str, memoryview]:
    """Reads the bytes of all external tensors: into the model but for its initializers, which get a stand-in.

    Args:
        proto: The model; it is changed.
        folder: The folder of the model's file.
        maps: Whether those of initializers stay in their files, which are mapped.

    Returns:
        The bytes of the initializers, by name.

    Raises:
        ModelError: a path leads out of the folder or to no file, or the range is not in the file; names the tensor.
    """
    root = folder.resolve()
    sizes: dict[Path, int] = {}
    found = [
        (index, (tensor, *_range(tensor, root, sizes))) for index, tensor in enumerate(tensors(proto)) if is_external(tensor)
    ]
    total = sum(length for _, (_, _, _, length) in found)
    if total > _SHARING * sum(sizes.values()):
        raise ModelError(
            f"the tensors' external data are {total} bytes out of files of {sum(sizes.values())}: too much is read twice"
        )
    weights: dict[str, memoryview] = {}
    mapped: dict[Path, memoryview] = {}
    initializers = len(proto.graph.initializer)  # the first of the tensors
    for index, (tensor, path, offset, length) in found:
        try:
            with path.open("rb") as file:
                if maps and length and index < initializers:
                    if path not in mapped:
                        mapped[path] = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
                    content: bytes | memoryview = mapped[path][offset : offset + length]
                else:
                    file.seek(offset)
                    content = file.read(length)
        except (OSError, MemoryError) as error:
            raise _refused(tensor, f"cannot be read from {str(path)!r}: {error or 'out of memory'}") from error
        if index < initializers:
            weights[tensor.name] = memoryview(content)
        tensor.raw_data = STAND_IN[:length] if index < initializers else bytes(content)
        tensor.data_location = onnx.TensorProto.DEFAULT
        del tensor.external_data[:]
    return weights


def _range(tensor: onnx.TensorProto, root: Path, sizes: dict[Path, int]) -> tuple[Path, int, int]:
    """A tensor's file, offset and length; notes the size of the file."""
    entries = {entry.key: entry.value for entry in tensor.external_data}
    location = entries.get("location", "")
    if not location or "\0" in location:
        raise _refused(tensor, f"has the location {location!r}")
    if any(path.is_absolute() or path.drive or path.root or ".." in path.parts for path in _spellings(location)):
        raise _refused(tensor, f"is at {location!r}, which is no path below the model's folder")
    try:
        path = (root / location).resolve()
        is_inside, is_file = path.is_relative_to(root), path.is_file()
        found = path.stat() if is_inside and is_file else None
    except (OSError, RuntimeError) as error:  # a name too long, a loop of links
        raise _refused(tensor, f"at {location[:200]!r} cannot be read: {error}") from error
    if not is_inside:
        raise _refused(tensor, f"is at {location!r}, a link that leads out of the model's folder")
    if found is None:
        raise _refused(tensor, f"cannot be read: there is no file {str(path)!r}")
    if found.st_nlink > 1:
        raise _refused(tensor, f"is at {location!r}, which is a hard link: a copy of the file has one name only")
    size = found.st_size
    try:
        offset = int(entries.get("offset", "0") or 0)
        length = int(entries.get("length", "") or size - offset)
    except ValueError as error:
        raise _refused(tensor, f"has an offset or a length that is no number: {error}") from error
    if offset < 0 or length < 0 or offset + length > size:
        raise _refused(tensor, f"is {length} bytes from {offset} of {location!r}, which has {size}")
    sizes[path] = size
    return path, offset, length


def _spellings(location: str) -> tuple[PurePosixPath | PureWindowsPath, ...]:
    """The path as either kind of system would take it: a model is refused on all of them or on none."""
    return PurePosixPath(location), PureWindowsPath(location)


def _refused(tensor: onnx.TensorProto, what: str) -> ModelError:
    return ModelError(f"the external data of tensor {tensor.name!r} {what}")
