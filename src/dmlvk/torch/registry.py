"""The operators of PyTorch that run on a device: one row for each.

A converter is one function under one decorator line::

    @converter("aten.relu.default")
    def relu(node: Conversion, x: Value) -> Value:
        return node.elementwise(ops.ActivationRelu, x)

It is called with its operator's arguments as the operator's schema has them: tensors are values, sizes are whole numbers,
all else is as PyTorch gives it. What it leaves out of an operator it refuses with ``node.unsupported``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TypeVar

from dmlvk.engine.values import Value
from dmlvk.torch.conversion import Conversion

Result = Value | tuple[Value | None, ...] | list[Value]
Converter = Callable[..., Result]
"""Launches what an operator takes and returns what it makes: a value, or one for each of several outputs."""

Own = TypeVar("Own", bound=Converter)


@dataclass(frozen=True)
class Row:
    """One operator.

    Attributes:
        name: PyTorch's name with its overload, such as "aten.add.Tensor".
        convert: The converter.
        moves: Whether it only moves elements, so that what it makes of bfloat16 needs no rounding.
        random: Whether it asks for random words.
    """

    name: str
    convert: Callable[..., Result] = field(repr=False)
    moves: bool = False
    random: bool = False


ROWS: dict[str, Row] = {}
"""The rows by name, filled by the files of ``dmlvk.torch.convert``."""


def converter(*names: str, moves: bool = False, random: bool = False) -> Callable[[Own], Own]:
    """Registers the decorated converter for operators; see ``Row``."""

    def register(convert: Own) -> Own:
        for name in names:
            assert name not in ROWS, f"{name} has two converters"
            ROWS[name] = Row(name, convert, moves, random)
        return convert

    return register


def missing(names: Iterable[str]) -> list[str]:
    """Those of some operators that have no row, each once, in order."""
    return sorted({name for name in names if name not in ROWS})


__all__ = ["ROWS", "Conversion", "Converter", "Result", "Row", "converter", "missing"]
