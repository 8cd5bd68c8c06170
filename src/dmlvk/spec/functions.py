"""An operator as a Python function: its name, its arguments and its documentation, told from the operator's row.

The functions of ``dmlvk.eager`` and the methods of ``dmlvk.Graph`` have the same arguments: input tensors in the
specification's order, then all other fields by keyword, then options.
"""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Iterable, Mapping
from typing import Final

from dmlvk.spec import ops as _ops  # noqa: F401  # fills the registry
from dmlvk.spec.schema import REGISTRY, FieldSpec, OperatorDesc

OUTPUT_OPTIONS: Final[Mapping[str, object]] = {"outputs": (), "output_sizes": None, "output_data_types": None}
"""The options of every call about its outputs, with the defaults."""

EAGER_OPTIONS: Final[Mapping[str, object]] = {"device": None}
"""The further options of a call of ``dmlvk.eager``."""

GRAPH_OPTIONS: Final[Mapping[str, object]] = {"name": ""}
"""The further options of a call of a ``dmlvk.Graph``."""

_MOST_SUGGESTIONS: Final = 5


def function_name(row: type[OperatorDesc]) -> str:
    """The operator's name in snake case."""
    return row.type.name.lower()


def rows_by_name() -> dict[str, type[OperatorDesc]]:
    """Every row by its function's name."""
    return {function_name(row): row for row in REGISTRY.values()}


def row_named(name: str, owner: str) -> type[OperatorDesc]:
    """The row whose function has this name.

    Args:
        name: The name that a caller asks for.
        owner: The object that the caller asks, in words, for the error.

    Raises:
        AttributeError: there is none; the message suggests names that are near.
    """
    rows = rows_by_name()
    if name not in rows:
        raise AttributeError(f"{owner} has no operator {name!r}{suggestion(name, rows)}")
    return rows[name]


def suggestion(name: str, names: Iterable[str]) -> str:
    """The end of a sentence about a wrong name: the names that it may stand for, the nearest first; "" where there are none.

    They are those that have all its words, or longer ones that begin so, and those that are spelt nearly like it.
    """
    words = name.split("_")
    known = list(names)
    having = [item for item in known if all(any(part.startswith(word) for part in item.split("_")) for word in words)]
    having.sort(key=lambda item: (len(item), item))
    near = dict.fromkeys(having + difflib.get_close_matches(name, known, _MOST_SUGGESTIONS, 0.75))
    return f"; did you mean {', '.join(list(near)[:_MOST_SUGGESTIONS])}?" if near else ""


def input_fields(row: type[OperatorDesc]) -> tuple[FieldSpec, ...]:
    """A row's input tensors."""
    return tuple(spec for spec in row.fields if spec.kind.is_input)


def signature(row: type[OperatorDesc], options: Mapping[str, object]) -> inspect.Signature:
    """The signature of a row's function: tensors, attributes, what is said of outputs, and options with their defaults."""
    inputs = input_fields(row)
    last_required = max((i for i, spec in enumerate(inputs) if not spec.optional), default=-1)
    parameters = [
        inspect.Parameter(
            spec.name,
            inspect.Parameter.POSITIONAL_OR_KEYWORD,
            default=None if index > last_required else inspect.Parameter.empty,
        )
        for index, spec in enumerate(inputs)
    ]
    constructed = inspect.signature(row).parameters
    attributes = {spec.name: constructed[spec.name].default for spec in row.fields if not spec.kind.is_tensor}
    parameters += [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default)
        for name, default in {**attributes, **OUTPUT_OPTIONS, **options}.items()
    ]
    return inspect.Signature(parameters)


def documentation(row: type[OperatorDesc]) -> str:
    """The docstring of a row's function."""
    lines = [inspect.getdoc(row) or row.__name__, "", f"See ``dmlvk.{row.__name__}``.", "", "Args:"]
    for spec in row.fields:
        if spec.kind.is_input:
            types = ", ".join(data_type.name.lower() for data_type in spec.data_types)
            lines.append(f"    {spec.name}: {'Optional tensor' if spec.optional else 'Tensor'} of {types}.")
    outputs = [spec.name + (" (on request)" if spec.optional else "") for spec in row.fields if spec.kind.is_output]
    return "\n".join([*lines, "", "Returns:", f"    {', '.join(outputs)}."])
