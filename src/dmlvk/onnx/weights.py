"""A model's file, its weights apart.

protobuf copies whatever it parses, and ONNX's checker has it written and parsed once more: of a file of 100 MB, all but some
100 KB are weights that nobody checks. Here the bytes of large initializers are cut out before the rest is parsed, and arrays
are views of the file as it was read. What is not as an ONNX file is written, protobuf judges as it stands.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

import onnx

_LARGE: Final = 1024
"""Bytes of an initializer that are worth cutting out."""
# Field numbers of ONNX's messages, and protobuf's number for a field of so and so many bytes.
_GRAPH: Final = 7
_INITIALIZER: Final = 5
_NAME, _RAW_DATA = 8, 9
_BYTES: Final = 2
_FIXED: Final = {1: 8, 5: 4}

STAND_IN: Final = b"\0"
"""Instead of an initializer's bytes: without any, ONNX's checker would say that they are missing."""

Weights = Mapping[str, memoryview]
"""Bytes of initializers, by name."""


class SplitModel(NamedTuple):
    """A model whose weights are apart already.

    Attributes:
        light: The model; each initializer of the weights has ``STAND_IN`` for its raw data.
        weights: The bytes of those, which the caller leaves as they are.
    """

    light: onnx.ModelProto
    weights: Weights


class _Irregular(ValueError):
    """The bytes are no message, or one that has twice what it should have once."""


def without_weights(file: bytes | memoryview) -> tuple[bytes, Weights]:
    """The model without the bytes of its large initializers, which have a stand-in, and those bytes, as parts of ``file``.

    A file that is irregular comes back as it is.
    """
    weights: dict[str, memoryview] = {}
    try:
        pieces = []
        for number, start, content, end in _fields(memoryview(file), 0, len(file)):
            if number == _GRAPH:
                pieces += _written(_GRAPH, _graph(memoryview(file), content, end, weights))
            else:
                pieces.append(memoryview(file)[start:end])
    except _Irregular:
        return bytes(file), {}
    return (b"".join(pieces), weights) if weights else (bytes(file), {})


def with_weights(proto: onnx.ModelProto, weights: Weights) -> onnx.ModelProto:
    """The model with the bytes of its initializers in it again."""
    if not weights:
        return proto
    whole = onnx.ModelProto()
    whole.CopyFrom(proto)
    for tensor in whole.graph.initializer:
        if tensor.name in weights:
            tensor.raw_data = bytes(weights[tensor.name])
    return whole


def without_stand_ins(proto: onnx.ModelProto, weights: Weights) -> onnx.ModelProto:
    """The model as ONNX's checker may see it: initializers whose bytes are elsewhere have no elements. Newer checkers
    compare the bytes with the sizes."""
    if not weights:
        return proto
    light = onnx.ModelProto()
    light.CopyFrom(proto)
    for tensor in light.graph.initializer:
        if tensor.name in weights:
            tensor.ClearField("raw_data")
            tensor.dims[:] = [0]
    return light


def with_data(proto: onnx.TensorProto, data: memoryview) -> onnx.TensorProto:
    """The tensor with its bytes."""
    whole = onnx.TensorProto()
    whole.CopyFrom(proto)
    whole.raw_data = bytes(data)
    return whole


def _graph(file: memoryview, begin: int, end: int, weights: dict[str, memoryview]) -> list[memoryview | bytes]:
    """The pieces of a graph."""
    pieces: list[memoryview | bytes] = []
    kept = begin  # what is not yet among the pieces
    for number, start, content, stop in _fields(file, begin, end):
        if number == _INITIALIZER and stop - content >= _LARGE:
            name, data = _named_data(file, content, stop)
            if data is not None:
                if name in weights:
                    raise _Irregular
                data_start, data_content, data_end = data
                weights[name] = file[data_content:data_end]
                rest = [file[content:data_start], *_written(_RAW_DATA, [STAND_IN]), file[data_end:stop]]
                pieces += (file[kept:start], *_written(_INITIALIZER, rest))
                kept = stop
    return [*pieces, file[kept:end]]


def _named_data(file: memoryview, begin: int, end: int) -> tuple[str, tuple[int, int, int] | None]:
    """A tensor's name, and where its raw data are if they are large: the field's start, that of its bytes, and the end."""
    name, data = None, None
    for number, start, content, stop in _fields(file, begin, end):
        if number == _NAME:
            if name is not None:
                raise _Irregular
            try:
                name = str(file[content:stop], "utf-8")
            except UnicodeDecodeError:
                raise _Irregular from None
        elif number == _RAW_DATA:
            if data is not None:
                raise _Irregular
            data = start, content, stop
    if not name or data is None or data[2] - data[1] < _LARGE:
        return "", None
    return name, data


def _fields(file: memoryview, begin: int, end: int) -> Iterator[tuple[int, int, int, int]]:
    """The fields of a message: number, where the field starts, where its content does, and where both end."""
    at = begin
    while at < end:
        start = at
        key, at = _varint(file, at, end)
        kind = key & 7
        if kind == _BYTES:
            length, at = _varint(file, at, end)
            content, at = at, at + length
        elif kind == 0:
            content = at
            _, at = _varint(file, at, end)
        elif kind in _FIXED:
            content, at = at, at + _FIXED[kind]
        else:
            raise _Irregular
        if at > end or key >> 3 == 0:
            raise _Irregular
        if kind != _BYTES and key >> 3 in (_GRAPH, _INITIALIZER, _NAME, _RAW_DATA):
            key = 0  # a number where text, bytes or a message would be: none of those that are looked for
        yield key >> 3, start, content, at


def _varint(file: memoryview, at: int, end: int) -> tuple[int, int]:
    """A number, seven bits a byte, the lowest first, and where it ends."""
    value = 0
    for shift in range(0, 70, 7):
        if at >= end:
            raise _Irregular
        byte = file[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
    raise _Irregular


def _written(number: int, pieces: list[memoryview | bytes]) -> list[memoryview | bytes]:
    """A field of these bytes."""
    length = sum(map(len, pieces))
    head = bytearray([number << 3 | _BYTES])
    while length > 127:
        head.append(length & 127 | 128)
        length >>= 7
    head.append(length)
    return [bytes(head), *pieces]
