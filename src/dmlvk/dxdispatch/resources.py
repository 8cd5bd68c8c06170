"""Buffers and what they hold at the start: numbers, a constant, a sequence, numbers of several types, or a file."""

from __future__ import annotations

import pathlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, NoReturn

import numpy as np
import numpy.typing as npt

from dmlvk.dxdispatch.document import Place
from dmlvk.engine.numpy_types import data_type_of, dtype_of
from dmlvk.images import IMAGES, read_image
from dmlvk.spec.enums import TensorDataType
from dmlvk.spec.errors import InvalidArgumentError

Bytes = npt.NDArray[np.uint8]

_MEMBERS: Final = (
    "type",
    "initialValues",
    "initialValuesDataType",
    "initialValuesOffsetInBytes",
    "sizeInBytes",
    "resampleSize",
    "resampleMode",
)
_UNION: Final = (TensorDataType.UNKNOWN, TensorDataType.UINT4, TensorDataType.INT4)
"""The types of which no value is written in JSON."""


@dataclass(frozen=True)
class Content:
    """What a buffer holds at the start.

    Attributes:
        data_type: The type of the values; UNKNOWN for values of several types.
        nbytes: Their bytes.
        make: Makes them: only once there is memory for them, as a line of JSON may ask for any number.
    """

    data_type: TensorDataType
    nbytes: int
    make: Callable[[], Bytes]


@dataclass(frozen=True)
class BufferDesc:
    """A buffer.

    Attributes:
        content: What it holds at the start; None where a dispatch makes the buffer (``"deferred"``).
        size_in_bytes: Its length.
        offset: The byte at which the content begins.
    """

    content: Content | None
    size_in_bytes: int = 0
    offset: int = 0


def read_buffer(place: Place, folder: pathlib.Path) -> BufferDesc:
    """A resource. Files are looked for in ``folder``, and then where the program runs.

    Raises:
        InvalidArgumentError: a rule is broken, or a file cannot be read; names the path.
    """
    place.note_unknown(*_MEMBERS)
    kind, values = place.get("type"), place.member("initialValues")
    if kind is not None and kind.text() != "buffer":
        kind.refuse("must be buffer: there are no textures")
    if values.value == "deferred":
        return BufferDesc(None)
    content = _content(place, values, folder)
    if not content.nbytes:
        values.refuse("must have at least one value")
    size, start = place.get("sizeInBytes"), place.get("initialValuesOffsetInBytes")
    nbytes = -(-content.nbytes // 4) * 4 if size is None else size.whole(0, 2**64)
    offset = 0 if start is None else start.whole(0, 2**64)
    if content.nbytes + offset > nbytes:
        rule = f"must hold the {content.nbytes} bytes of initialValues behind the first {offset}"
        (size or start or place).refuse(rule, nbytes)
    return BufferDesc(content, nbytes, offset)


def found_file(place: Place, folder: pathlib.Path) -> pathlib.Path:
    """The file that a member names: of the folder, else of the one where the program runs."""
    name = place.text()
    try:
        found = next((path for path in (folder / name, pathlib.Path(name)) if path.is_file()), None)
    except (OSError, ValueError) as error:  # a name too long, or one with a NUL
        place.refuse(f"must be the name of a file ({error})")
    return found or place.refuse("must be a file of the model's folder, or of the one where the program runs")


def _content(place: Place, values: Place, folder: pathlib.Path) -> Content:
    named = place.get("initialValuesDataType")
    data_type = TensorDataType.UNKNOWN if named is None else named.enumerated(TensorDataType)
    if isinstance(values.value, list):
        array = _mixed(values) if data_type in _UNION else _numbers(values.items(), data_type)
        return _made(data_type, array)
    if not isinstance(values.value, dict):
        values.refuse('must be an array, an object or "deferred"')
    kinds = [name for name in ("value", "valueStart", "sourcePath") if name in values.object()]
    if len(kinds) != 1:
        values.refuse("must have one of the members value, valueStart and sourcePath", kinds)
    if kinds == ["sourcePath"]:
        values.note_unknown("sourcePath")
        return _file(place, values.member("sourcePath"), folder, data_type)
    if data_type in _UNION:
        (named or place).refuse("initialValuesDataType must be the type of the values", data_type)
    count = values.member("valueCount").whole(1)
    if kinds == ["value"]:
        values.note_unknown("value", "valueCount")
        (value,) = _numbers([values.member("value")], data_type)
        return Content(data_type, count * value.itemsize, lambda: _as_bytes(np.full(count, value)))
    values.note_unknown("valueStart", "valueDelta", "valueCount")
    start, delta = _numbers([values.member("valueStart"), values.member("valueDelta")], data_type)

    def counted() -> Bytes:
        """Each value is the one before it and the delta, rounded to the type."""
        steps = np.full(count, delta)
        steps[0] = start
        with np.errstate(all="ignore"):
            return _as_bytes(np.cumsum(steps, dtype=steps.dtype))

    return Content(data_type, count * start.itemsize, counted)


def _numbers(items: list[Place], data_type: TensorDataType) -> npt.NDArray[Any]:
    if data_type in _UNION:
        raise AssertionError("the caller has refused these types")
    dtype = dtype_of(data_type)
    if dtype.kind == "f":
        values = np.array([item.number() for item in items], np.float64)
        with np.errstate(over="ignore", invalid="ignore"):  # FLOAT16 by way of FLOAT32, as DxDispatch has it
            return (values if dtype.itemsize == 8 else values.astype(np.float32)).astype(dtype)
    limits = np.iinfo(dtype)
    return np.array([item.whole(int(limits.min), int(limits.max) + 1) for item in items], dtype)


def _mixed(values: Place) -> npt.NDArray[Any]:
    parts = [np.zeros(0, np.uint8)]
    for item in values.items():
        item.note_unknown("name", "type", "value")
        kind = item.member("type")
        data_type = kind.enumerated(TensorDataType)
        if data_type in _UNION:
            kind.refuse("must be the type of a number of at least a byte")
        parts.append(_numbers([item.member("value")], data_type).view(np.uint8))
    return np.concatenate(parts)


def _file(place: Place, source: Place, folder: pathlib.Path, data_type: TensorDataType) -> Content:
    path = found_file(source, folder)
    if path.suffix.lower() in IMAGES:
        if data_type not in (TensorDataType.FLOAT32, TensorDataType.FLOAT16):
            (place.get("initialValuesDataType") or place).refuse("an image must become FLOAT32 or FLOAT16", data_type)
        mode, size = place.get("resampleMode"), place.get("resampleSize")
        if mode is not None and mode.text() != "scale":
            mode.refuse("must be scale")
        sizes = () if size is None else size.wholes(1, 2**16)
        if size is not None and (len(sizes) != 4 or sizes[0] != 1 or sizes[1] not in (3, 4)):
            size.refuse("must be the sizes N, C, H and W, with N 1 and C 3 or 4", sizes)
        pixels = _reading(source, lambda: read_image(path, *sizes[1:]))
        return _made(data_type, pixels.astype(dtype_of(data_type)))
    if path.suffix.lower() != ".npy":
        if data_type is TensorDataType.UNKNOWN:
            place.refuse("must have the member 'initialValuesDataType' for a file of bytes")
        return _made(data_type, np.frombuffer(_reading(source, path.read_bytes), np.uint8))
    array = _reading(source, lambda: np.load(path, allow_pickle=False))
    if not isinstance(array, np.ndarray):
        source.refuse("must be a file of one numpy array")
    try:
        found = data_type_of(array.dtype.newbyteorder("="))
    except InvalidArgumentError:
        source.refuse("must have numbers of a type that tensors have", str(array.dtype))
    if data_type not in (TensorDataType.UNKNOWN, found):
        place.member("initialValuesDataType").refuse("must be the type of the file's numbers", data_type, found)
    return _made(found, array.astype(array.dtype.newbyteorder("=")))


def _reading(source: Place, read: Callable[[], Any]) -> Any:
    """What ``read`` returns; that a file is broken is an error at its name."""
    try:
        return read()
    except (OSError, ValueError, EOFError, SyntaxError) as error:
        _broken(source, error)


def _broken(source: Place, error: Exception) -> NoReturn:
    source.refuse(f"must be a file that can be read ({type(error).__name__}: {error})")


def _made(data_type: TensorDataType, array: npt.NDArray[Any]) -> Content:
    content = _as_bytes(array)
    return Content(data_type, content.nbytes, lambda: content)


def _as_bytes(array: npt.NDArray[Any]) -> Bytes:
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)
