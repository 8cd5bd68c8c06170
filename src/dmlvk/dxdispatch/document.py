"""JSON as DxDispatch reads it, with the path to each value for messages.

Comments and a comma behind the last element are allowed, and what follows the document is not looked at.
"""

from __future__ import annotations

import enum
import functools
import json
import math
import numbers
import operator
import re
from collections.abc import Iterator
from typing import Any, Final, NoReturn, TypeVar

from dmlvk.spec.dml_names import member_named, prefix
from dmlvk.spec.errors import InvalidArgumentError

_E = TypeVar("_E", bound=enum.IntEnum | enum.IntFlag)

_STRING: Final = r'"(?:[^"\\]|\\.)*"'
_COMMENT: Final = re.compile(rf"{_STRING}|//[^\n]*|/\*.*?\*/", re.DOTALL)
_LAST_COMMA: Final = re.compile(rf"{_STRING}|,(?=\s*[\]}}])", re.DOTALL)
_PLAIN_NAME: Final = re.compile(r"[A-Za-z_$][A-Za-z0-9_$]*")
_NOT_FINITE: Final = {"inf": math.inf, "-inf": -math.inf, "nan": math.nan}


class _Object(dict[str, Any]):
    """A JSON object, with the first name that it has twice."""

    repeated: str | None = None


class Place:
    """A value of a document.

    Attributes:
        value: What ``json`` makes of it.
        path: The way to it from the root, such as ``$.commands[2].resource``.
        notices: Sentences about members that mean nothing, one list for the whole document.
    """

    __slots__ = ("notices", "path", "value")

    def __init__(self, value: Any, path: str = "$", notices: list[str] | None = None) -> None:
        self.value, self.path = value, path
        self.notices: list[str] = [] if notices is None else notices

    def error(self, rule: str, value: object = None, expected: object = None) -> InvalidArgumentError:
        """The exception for a value that breaks a rule; the value itself where no other is given."""
        found = self.value if value is None else value
        if isinstance(found, dict | list):
            found = "an object" if isinstance(found, dict) else f"an array of {len(found)}"
        return InvalidArgumentError(rule, field=self.path, value=found, expected=expected)

    def refuse(self, rule: str, value: object = None, expected: object = None) -> NoReturn:
        """Raises ``error``."""
        raise self.error(rule, value, expected)

    # -- objects and arrays

    def object(self) -> dict[str, Any]:
        """The members of an object, none of them given twice."""
        if not isinstance(self.value, _Object):
            self.refuse("must be an object")
        if self.value.repeated is not None:
            self.refuse("must have each member once", self.value.repeated)
        return self.value

    def get(self, *names: str) -> Place | None:
        """The member that has the first of these names; None where there is none, or where it is null."""
        members = self.object()
        name = next((name for name in names if name in members), None)
        return None if name is None or members[name] is None else self._member(name)

    def member(self, *names: str) -> Place:
        """The member that has the first of these names."""
        return self.get(*names) or self.refuse(f"must have the member {names[0]!r}")

    def members(self) -> Iterator[tuple[str, Place]]:
        """The members of an object with their names."""
        for name in self.object():
            yield name, self._member(name)

    def items(self) -> list[Place]:
        """The elements of an array."""
        if not isinstance(self.value, list):
            self.refuse("must be an array")
        return [Place(item, f"{self.path}[{index}]", self.notices) for index, item in enumerate(self.value)]

    def note_unknown(self, *known: str) -> None:
        """Notes each member that has another name: DxDispatch does not look at it either, but it may be a misspelling."""
        for name in self.object():
            if name not in known and name != "$schema":
                self.notices.append(f"{self._member(name).path} means nothing and is ignored")

    def _member(self, name: str) -> Place:
        step = f".{name}" if _PLAIN_NAME.fullmatch(name) else f"[{json.dumps(name)}]"
        return Place(self.value[name], self.path + step, self.notices)

    # -- single values

    def text(self) -> str:
        """A string."""
        if not isinstance(self.value, str):
            self.refuse("must be a string")
        return self.value

    def boolean(self) -> bool:
        """True or false."""
        if not isinstance(self.value, bool):
            self.refuse("must be true or false")
        return self.value

    def whole(self, least: int = 0, end: int = 2**32) -> int:
        """An integer from ``least`` to below ``end``."""
        if not isinstance(self.value, int) or isinstance(self.value, bool) or not least <= self.value < end:
            self.refuse(f"must be an integer from {least} to {end - 1}")
        return self.value

    def wholes(self, least: int = 0, end: int = 2**32) -> tuple[int, ...]:
        """An array of integers from ``least`` to below ``end``."""
        return tuple(item.whole(least, end) for item in self.items())

    def number(self) -> float:
        """A number, or one that JSON lacks as a string: "nan", "inf" or "-inf" in any case."""
        if isinstance(self.value, str) and self.value.lower() in _NOT_FINITE:
            return _NOT_FINITE[self.value.lower()]
        if not isinstance(self.value, numbers.Real) or isinstance(self.value, bool):
            self.refuse('must be a number, or "nan", "inf" or "-inf"')
        try:
            return float(self.value)
        except OverflowError:
            self.refuse("must be a number that fits a FLOAT64")

    def enumerated(self, enumeration: type[_E]) -> _E:
        """A member of an enumeration by DirectML's constant, whole or without its prefix."""
        found = member_named(enumeration, self.text())
        if found is None:
            names = ", ".join(enumeration.__members__)
            self.refuse(f"must be one of {names}, or one of these behind {prefix(enumeration)}")
        return found

    def flags(self, enumeration: type[_E]) -> _E:
        """A flag, or an array of flags, by DirectML's constants."""
        parts = self.items() if isinstance(self.value, list) else [self]
        return enumeration(functools.reduce(operator.or_, (part.enumerated(enumeration) for part in parts), 0))


def read_document(data: bytes) -> Place:
    """The root of a JSON document.

    Raises:
        InvalidArgumentError: it is no JSON; names line and column.
    """
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InvalidArgumentError("must be UTF-8", field="$", value=f"byte {error.start}: {error.reason}") from None
    text = _LAST_COMMA.sub(_blank, _COMMENT.sub(_blank, text))
    decoder = json.JSONDecoder(object_pairs_hook=_as_object, parse_constant=_no_constant)
    try:
        value, _ = decoder.raw_decode(text, len(text) - len(text.lstrip(" \t\n\r")))
    except json.JSONDecodeError as error:
        raise InvalidArgumentError(
            "must be JSON", field="$", value=f"line {error.lineno}, column {error.colno}: {error.msg}"
        ) from None
    except (ValueError, RecursionError) as error:  # a constant, a number of too many digits, too many brackets
        raise InvalidArgumentError("must be JSON of numbers and depths in reason", field="$", value=str(error)) from None
    return Place(value)


def _blank(match: re.Match[str]) -> str:
    """A string as it is; anything else as spaces, so that lines and columns stay."""
    found = match[0]
    return found if found.startswith('"') else re.sub(r"[^\n]", " ", found)


def _as_object(pairs: list[tuple[str, Any]]) -> _Object:
    made = _Object()
    for name, value in pairs:
        if name in made and made.repeated is None:
            made.repeated = name
        made[name] = value
    return made


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON; write it as a string")
