"""Models that keep parts: ``EPContext`` nodes of ONNX Runtime's, each with its part inside or in a file beside the model."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Final, NamedTuple

import onnx

from dmlvk.ort.parts import NAME
from dmlvk.spec.errors import ModelError, UnsupportedError

_PATH: Final = "ep.context_file_path"
_EMBEDDED: Final = "ep.context_embed_mode"
_MOST: Final = 2**31 - 1
"""The most bytes of a message of protobuf's, and of an attribute in one."""


class Context(NamedTuple):
    """What an ``EPContext`` node says of its part.

    Attributes:
        content: The part as a model, or the name of the file that has it.
        is_embedded: Whether it is the part.
    """

    content: bytes
    is_embedded: bool


def written(part: onnx.ModelProto, name: str, entries: Mapping[str, str], model_path: str) -> Context:
    """Keeps a part: in a file beside the model that ONNX Runtime writes, or inside that where the session's entry
    ``ep.context_embed_mode`` is 1 or where the model goes to memory.

    Args:
        part: The part.
        name: Its name, one for each part of a model.
        entries: The session's entries.
        model_path: The path of the model that the session was given; "" where it came as bytes.

    Raises:
        UnsupportedError: the part is larger than a message may be.
        OSError: the file cannot be written.
    """
    if part.ByteSize() > _MOST:
        raise UnsupportedError(f"a part of {part.ByteSize()} bytes cannot be kept: protobuf has no messages over {_MOST}")
    content = part.SerializeToString()
    model = Path(entries.get(_PATH) or (f"{Path(model_path).with_suffix('')}_ctx.onnx" if model_path else ""))
    if entries.get(_EMBEDDED) == "1" or not model.name:
        return Context(content, is_embedded=True)
    file = model.with_name(f"{model.stem}_{name}.bin")
    unfinished = file.with_name(f"{file.name}.{os.getpid()}")  # so that no session opens half of one
    unfinished.write_bytes(content)
    unfinished.replace(file)
    return Context(file.name.encode(), is_embedded=False)


def read(node: onnx.NodeProto, entries: Mapping[str, str], model_path: str) -> bytes:
    """The part of a node for which ``is_kept`` says yes.

    Args:
        node: The node.
        entries, model_path: As for ``written``. A model that came as bytes has its files beside ``ep.context_file_path``.

    Raises:
        ModelError: there is no such file, or it may not be named.
        UnsupportedError: the part is in another node.
    """
    found = {item.name: item for item in node.attribute}
    if "main_context" in found and not found["main_context"].i:
        raise UnsupportedError(f"node {node.name!r} is a part that another node has, and dmlvk's parts are each their own")
    content = found["ep_cache_context"].s if "ep_cache_context" in found else b""
    if "embed_mode" not in found or found["embed_mode"].i:
        return content
    name = content.decode(errors="replace")
    is_outside = any(path.is_absolute() or ".." in path.parts for path in (PurePosixPath(name), PureWindowsPath(name)))
    if not name or is_outside:
        raise ModelError(f"node {node.name!r} names the file {name!r}, and its part must be in the model's folder")
    path = Path(model_path or entries.get(_PATH, "")).parent / name
    try:
        return path.read_bytes()
    except OSError as error:
        raise ModelError(f"the part of node {node.name!r} cannot be read: {error}") from error


def is_kept(node: onnx.NodeProto) -> bool:
    """Whether a node is a part that ``written`` kept."""
    return node.op_type == "EPContext" and any(item.name == "source" and item.s == NAME.encode() for item in node.attribute)
