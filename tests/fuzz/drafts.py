"""Drafts of descs: what a caller would write, before any of it is checked, so that it can be changed, spelt and made.

A draft is a tree of plain values: numbers, tuples, ``Text`` and ``Call``s of what makes tensors, descs and the like.
``made`` makes the real thing, which may raise; ``spelt`` is the Python text of it, which ``read`` makes again.
"""

from __future__ import annotations

import dataclasses
import enum
from decimal import Decimal
from fractions import Fraction
from typing import Any, Final

import numpy as np

from dmlvk.spec import enums, schema
from dmlvk.spec.formats import NumberFormat
from dmlvk.spec.schema import OperatorDesc
from dmlvk.spec.tensor import TensorDesc
from dmlvk.verify.cases import all_cases

ROWS: Final = {row.__name__: row for row in all_cases()}
"""Every operator's row, those of our own included."""
NAMES: Final[dict[str, Any]] = {
    **vars(enums),
    **{kind.__name__: kind for kind in (schema.ScaleBias, schema.Size2D, TensorDesc, NumberFormat, Fraction, Decimal)},
    **{spec.enumeration.__name__: spec.enumeration for row in ROWS.values() for spec in row.fields if spec.enumeration},
    "np": np,
    "inf": np.inf,
    "nan": np.nan,
    **ROWS,
}
_PLAIN: Final[dict[str, dict[str, Any]]] = {
    "TensorDesc": {
        "strides": None,
        "total_tensor_size_in_bytes": 0,
        "flags": enums.TensorFlags.NONE,
        "guaranteed_base_offset_alignment": 0,
    }
}
"""Arguments that need not be spelt, because they are the defaults."""


class Text(str):
    """A value as Python's text."""


@dataclasses.dataclass
class Call:
    """A call of a function or class by its name, with the arguments that it is given."""

    name: str
    arguments: dict[str, Any] = dataclasses.field(default_factory=dict)
    positional: tuple[Any, ...] = ()


def draft_of(value: Any) -> Any:
    """The draft that makes this desc, tensor or other value."""
    if isinstance(value, TensorDesc):
        return Call("TensorDesc", {item.name: getattr(value, item.name) for item in dataclasses.fields(value)})
    if isinstance(value, OperatorDesc):
        return Call(type(value).__name__, {spec.name: draft_of(getattr(value, spec.name)) for spec in value.fields})
    if isinstance(value, schema.ScaleBias | schema.Size2D):
        return Call(type(value).__name__, positional=tuple(value))
    return tuple(map(draft_of, value)) if isinstance(value, tuple) else value


def copied(draft: Any) -> Any:
    """A draft that can be changed without the other."""
    if isinstance(draft, Call):
        return Call(draft.name, {name: copied(value) for name, value in draft.arguments.items()}, draft.positional)
    return tuple(map(copied, draft)) if isinstance(draft, tuple) else draft


def made(draft: Any) -> Any:
    """The real thing."""
    if isinstance(draft, Call):
        arguments = {name: made(value) for name, value in draft.arguments.items()}
        return NAMES[draft.name](*map(made, draft.positional), **arguments)
    if isinstance(draft, Text):
        return read(draft)
    return tuple(map(made, draft)) if isinstance(draft, tuple) else draft


def spelt(draft: Any) -> str:
    """Python's text for the draft."""
    if isinstance(draft, Call):
        plain = _PLAIN.get(draft.name, {})
        named = {name: value for name, value in draft.arguments.items() if name not in plain or value is not plain[name]}
        arguments = [*map(spelt, draft.positional), *(f"{name}={spelt(value)}" for name, value in named.items())]
        return f"{draft.name}({', '.join(arguments)})"
    if isinstance(draft, Text):
        return str(draft)
    if isinstance(draft, tuple):
        return f"({', '.join(map(spelt, draft))}{',' * (len(draft) == 1)})"
    if isinstance(draft, enum.Enum):
        return f"{type(draft).__name__}({draft.value!r})"
    return hex(draft) if type(draft) is int and abs(draft) > 2**64 else repr(draft)


def read(text: str) -> Any:
    """What a text stands for; it raises what its making raises."""
    return eval(text, NAMES)
