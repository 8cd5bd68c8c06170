"""An operator as a Python function: its name, its arguments and its documentation, told from the operator's row.

The functions of ``dmlvk.eager`` and the methods of ``dmlvk.Graph`` have the same arguments: input tensors in the
specification's order, then all other fields by keyword, then options.
"""

from __future__ import annotations

import difflib
import enum
import inspect
from collections.abc import Iterable, Mapping
from typing import Final

from dmlvk.spec import ops as _ops  # noqa: F401  # fills the registry
from dmlvk.spec.schema import REGISTRY, FieldKind, FieldSpec, OperatorDesc

OUTPUT_OPTIONS: Final[Mapping[str, object]] = {"outputs": (), "output_sizes": None, "output_data_types": None}
"""The options of every call about its outputs, with the defaults."""

EAGER_OPTIONS: Final[Mapping[str, object]] = {"device": None}
"""The further options of a call of ``dmlvk.eager``."""

GRAPH_OPTIONS: Final[Mapping[str, object]] = {"name": ""}
"""The further options of a call of a ``dmlvk.Graph``."""

AXES: Final[Mapping[str, bool]] = {"axis": False, "axes": True}
"""The fields that name dimensions of an operator's first tensor, which callers may count from the end, and whether there are
several. One of several may be given by itself."""

_MOST_SUGGESTIONS: Final = 5

_OPTION_TEXTS: Final[Mapping[str, str]] = {
    "outputs": "Names of outputs on request that are wanted as well.",
    "output_sizes": "Sizes of the wanted outputs, where it cannot infer them: one entry for each, or a single one.",
    "output_data_types": "Data types of the wanted outputs, where it cannot infer them, likewise.",
    "device": "The device to run on; that of the operands on a device, else ``default_device()``, where None.",
    "name": "The node's name, which errors and reports say.",
}

_ERROR_TEXTS: Final = (
    "InvalidArgumentError: an argument breaks a rule of the operator; names operator, field, rule and value.",
    "UnsupportedError: the device lacks a feature or a limit that the call needs.",
    "StateError: operands that do not belong together, such as arrays of two devices.",
    "TypeError: an argument that the function does not have, or that is missing.",
)

_KIND_WORDS: Final[Mapping[FieldKind, str]] = {
    FieldKind.UINT: "An integer from 0 to 2**32 - 1",
    FieldKind.INT: "An integer from -2**31 to 2**31 - 1",
    FieldKind.FLOAT: "A number that fits a float32",
    FieldKind.BOOL: "True or False",
    FieldKind.UINT_ARRAY: "Integers from 0 to 2**32 - 1",
    FieldKind.INT_ARRAY: "Integers from -2**31 to 2**31 - 1",
    FieldKind.FLOAT_ARRAY: "Numbers that fit a float32",
    FieldKind.SCALE_BIAS: "A ScaleBias, applied to the input first, or None",
    FieldKind.SCALAR_UNION: "A number of the data type that another argument names",
    FieldKind.SIZE_2D: "A Size2D",
    FieldKind.FUSED_ACTIVATION: "An activation's desc without tensors, applied to the result, or None",
    FieldKind.OPERATOR_DESC_ARRAY: "Descs of activations without tensors",
}
"""What an attribute is; one of an enumeration is a member of its class."""


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
        AttributeError: there is none; the message suggests names that are near, of operators that have no newer issue.
    """
    rows = rows_by_name()
    if name not in rows:
        newest = (known for known, row in rows.items() if row.upgrade is OperatorDesc.upgrade)
        raise AttributeError(f"{owner} has no operator {name!r}{suggestion(name, newest)}")
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


def documentation(row: type[OperatorDesc], options: Mapping[str, object]) -> str:
    """The docstring of a row's function with its further options: what it computes, its arguments, results and errors."""
    fields = [spec for spec in row.fields if not spec.kind.is_output]
    outputs = [spec for spec in row.fields if spec.kind.is_output]
    parameters = inspect.signature(row).parameters
    lines = [inspect.getdoc(row) or row.__name__, "", f"See ``dmlvk.{row.__name__}``.", "", "Args:"]
    lines += [f"    {spec.name}: {_described(spec, parameters[spec.name])}." for spec in fields]
    lines += [f"    {name}: {_OPTION_TEXTS[name]}" for name in (*OUTPUT_OPTIONS, *options)]
    named = ", ".join(spec.name + (" (on request)" if spec.optional else "") for spec in outputs)
    several = len(outputs) > 1 or outputs[0].kind is FieldKind.OUTPUT_TENSOR_ARRAY
    lines += ["", "Returns:", f"    {named}{': one as it is, several as a tuple' if several else ''}.", "", "Raises:"]
    return "\n".join([*lines, *(f"    {error}" for error in _ERROR_TEXTS)])


def _described(spec: FieldSpec, parameter: inspect.Parameter) -> str:
    """An argument in words: a tensor's types and dimensions, or an attribute's kind and default."""
    if spec.kind.is_input:
        types = ", ".join(data_type.name.lower() for data_type in spec.all_types)
        least, most = spec.dimension_counts
        several = "Tensors" if spec.kind is FieldKind.INPUT_TENSOR_ARRAY else "Tensor"
        count = f"{least} dimensions" if least == most else f"{least} to {most} dimensions"
        return f"{'Optional tensor' if spec.optional else several} of {types}, with {count}"
    words = _KIND_WORDS[spec.kind] if spec.enumeration is None else f"A {spec.enumeration.__name__}"
    if spec.name in AXES:
        words = f"{'Dimensions' if AXES[spec.name] else 'A dimension'} of the first tensor, from the end where negative"
    if parameter.default is parameter.empty:
        return words
    default = parameter.default
    return f"{words}; {default.name if isinstance(default, enum.Enum) else default} by default"
