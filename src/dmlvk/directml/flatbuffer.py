"""FlatBuffers' tables, read from bytes that nobody vouches for: each offset is checked, and so is the work it asks for."""

from __future__ import annotations

import struct
from typing import Any, Final, NoReturn

import numpy as np
import numpy.typing as npt

from dmlvk.spec.errors import InvalidArgumentError

_WORK: Final = 8
"""Bytes that may be read for each byte of the file: tables may share parts, and a file made to could share without end."""


class _Source:
    """The bytes, and how many more of them may be read."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.left = _WORK * len(data)


class Table:
    """A table of a file. Fields are named by their place in the schema.

    Attributes:
        path: The way to it from the root, for messages.
    """

    __slots__ = ("_fields", "_position", "_source", "path")

    def __init__(self, source: _Source, position: int, path: str) -> None:
        self._source, self._position, self.path = source, position, path
        start = position - self._unpack("i", position)
        nbytes = self._unpack("H", start)
        if nbytes < 4 or nbytes % 2:
            self.refuse("must have a table of fields", nbytes)
        self._fields = struct.unpack(f"<{nbytes // 2 - 2}H", self._bytes(start + 4, nbytes - 4))

    @staticmethod
    def root(data: bytes, path: str) -> Table:
        """The table that a file begins with."""
        source = _Source(data)
        if len(data) < 8:
            raise InvalidArgumentError("must have at least 8 bytes", field=path, value=len(data))
        return Table(source, struct.unpack_from("<I", data)[0], path)

    def refuse(self, rule: str, value: object) -> NoReturn:
        """Raises InvalidArgumentError for what the table holds."""
        raise InvalidArgumentError(rule, field=self.path, value=value)

    def has(self, field: int) -> bool:
        """Whether a field is there."""
        return self._place(field) is not None

    def scalar(self, field: int, kind: str, default: int = 0) -> Any:
        """A number, ``kind`` as ``struct`` has it; ``default`` where it is absent."""
        place = self._place(field)
        return default if place is None else self._unpack(kind, place)

    def struct(self, field: int, kinds: str) -> tuple[Any, ...]:
        """The numbers of a struct that a union's field points to."""
        place = self._target(field)
        if place is None:
            self.refuse(f"field {field} must be there", None)
        return struct.unpack(f"<{kinds}", self._bytes(place, struct.calcsize(f"<{kinds}")))

    def text(self, field: int) -> str:
        """A string, "" where it is absent."""
        place = self._target(field)
        return "" if place is None else self._text(place)

    def texts(self, field: int) -> list[str]:
        """A vector of strings."""
        return [self._text(place) for place in self._targets(field)]

    def table(self, field: int, name: str) -> Table | None:
        """A table; ``name`` is the step to it in paths."""
        place = self._target(field)
        return None if place is None else Table(self._source, place, f"{self.path}.{name}")

    def tables(self, field: int, name: str) -> list[Table]:
        """A vector of tables."""
        return [
            Table(self._source, place, f"{self.path}.{name}[{index}]") for index, place in enumerate(self._targets(field))
        ]

    def array(self, field: int, dtype: npt.DTypeLike) -> npt.NDArray[Any] | None:
        """A vector of numbers, without a copy; None where it is absent."""
        place = self._target(field)
        if place is None:
            return None
        kind = np.dtype(dtype)
        count = self._unpack("I", place)
        return np.frombuffer(self._bytes(place + 4, count * kind.itemsize), kind)

    # -- positions

    def _place(self, field: int) -> int | None:
        offset = self._fields[field] if field < len(self._fields) else 0
        return self._position + offset if offset else None

    def _target(self, field: int) -> int | None:
        place = self._place(field)
        return None if place is None else place + self._unpack("I", place)

    def _targets(self, field: int) -> list[int]:
        offsets = self.array(field, "<u4")
        if offsets is None:
            return []
        place = self._target(field)
        assert place is not None, "the vector is there"
        return [place + 4 + 4 * index + int(offset) for index, offset in enumerate(offsets)]

    def _text(self, place: int) -> str:
        try:
            return bytes(self._bytes(place + 4, self._unpack("I", place))).decode()
        except UnicodeDecodeError as error:
            self.refuse("must have strings of UTF-8", error.reason)

    def _unpack(self, kind: str, place: int) -> Any:
        return struct.unpack(f"<{kind}", self._bytes(place, struct.calcsize(f"<{kind}")))[0]

    def _bytes(self, place: int, nbytes: int) -> memoryview:
        source = self._source
        if place < 0 or place + nbytes > len(source.data):
            self.refuse(f"must lie inside the file's {len(source.data)} bytes", (place, nbytes))
        source.left -= nbytes
        if source.left < 0:
            self.refuse("the file must not have more in it than its bytes hold: its tables share parts", len(source.data))
        return memoryview(source.data)[place : place + nbytes]
