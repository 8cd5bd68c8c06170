"""Writes what type checkers know of the operators: ``eager.pyi`` for the functions of ``dmlvk.eager`` and
``graph_methods.pyi`` for the methods of ``dmlvk.Graph``, made from the operators' rows.

    python tools/generate_stubs.py FOLDER
"""

from __future__ import annotations

import enum
import inspect
import pathlib
import sys
import textwrap
from collections.abc import Iterator, Sequence

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "src"))

from dmlvk.spec.functions import (  # noqa: E402  # needs nothing that a build has not
    AXES,
    EAGER_OPTIONS,
    GRAPH_OPTIONS,
    input_fields,
    rows_by_name,
    signature,
)
from dmlvk.spec.schema import REGISTRY, FieldKind, FieldSpec, OperatorDesc  # noqa: E402

ATTRIBUTES = {
    FieldKind.UINT: "int",
    FieldKind.INT: "int",
    FieldKind.FLOAT: "float",
    FieldKind.BOOL: "bool",
    FieldKind.UINT_ARRAY: "_Integers",
    FieldKind.INT_ARRAY: "_Integers",
    FieldKind.FLOAT_ARRAY: "_Numbers",
    FieldKind.SCALE_BIAS: "ScaleBias",
    FieldKind.SCALAR_UNION: "float",
    FieldKind.SIZE_2D: "Size2D",
    FieldKind.FUSED_ACTIVATION: "OperatorDesc",
    FieldKind.OPERATOR_DESC_ARRAY: "Sequence[OperatorDesc]",
}
"""The types of attributes; those of enumerations are their classes."""

OPTIONS = {
    "output_sizes": "Sequence[int] | Sequence[Sequence[int]] | None",
    "output_data_types": "TensorDataType | Sequence[TensorDataType] | None",
    "device": "Device | None",
    "name": "str",
}
"""The types of options; ``outputs`` takes the names of the operator's own."""

NO_OUTPUTS = "tuple[()]"
"""The type of ``outputs`` where no optional output is wanted; its default."""

AT_LEAST_TWO_SIZES = "tuple[Sequence[int], Sequence[int], *tuple[Sequence[int], ...]]"
"""The type of the sizes of several outputs."""

HEAD = '''\
"""{title}, made from the operators' rows by tools/generate_stubs.py."""

from collections.abc import Collection, Sequence
from typing import Any, Literal, overload

import numpy as np
import numpy.typing as npt

{imports}
from dmlvk.spec.enums import {enumerations}
from dmlvk.spec.schema import OperatorDesc, ScaleBias, Size2D

_Integers = Sequence[int] | npt.NDArray[Any]
_Numbers = Sequence[float] | npt.NDArray[Any]
'''

EAGER_IMPORTS = """\
from dmlvk.directml.device import Device
from dmlvk.engine.device_array import DeviceArray"""

EAGER_TYPES = """\
# mypy: disable-error-code="overload-overlap"
_Scalar = complex | np.generic
_HostArray = npt.NDArray[Any] | _Scalar | Sequence[_HostArray]
_Array = _HostArray | DeviceArray
"""


def enumerations() -> str:
    """The names of the enumerations that attributes have, and of data types."""
    found = {spec.enumeration.__name__ for row in REGISTRY.values() for spec in row.fields if spec.enumeration is not None}
    return ", ".join(sorted(found | {"TensorDataType"}))


def default_text(value: object) -> str:
    """A default as a stub says it."""
    if isinstance(value, enum.Enum):
        return f"{type(value).__name__}.{value.name}"
    is_plain = (
        value is None or value == () or (isinstance(value, bool | int | str | float) and repr(value) not in ("inf", "-inf"))
    )
    return repr(value) if is_plain else "..."


def field_type(spec: FieldSpec, tensor: str) -> str:
    """The type of a field's argument, where one tensor is a ``tensor``."""
    if spec.kind is FieldKind.INPUT_TENSOR:
        kind = tensor
    elif spec.kind is FieldKind.INPUT_TENSOR_ARRAY:
        kind = f"Sequence[{tensor}]"
    elif spec.kind is FieldKind.ENUM:
        assert spec.enumeration is not None, "an enum field names its class"
        kind = spec.enumeration.__name__
    else:
        kind = f"int | {ATTRIBUTES[spec.kind]}" if AXES.get(spec.name) else ATTRIBUTES[spec.kind]
    return f"{kind} | None" if spec.optional else kind


def parameters(row: type[OperatorDesc], options: dict[str, object], tensor: str, special: dict[str, str]) -> str:
    """The parameters of a row's function, with their types and defaults. The types in ``special`` are those of one overload:
    only the empty tuple keeps its default."""
    outputs = ", ".join(repr(spec.name) for spec in row.fields if spec.kind.is_output)
    types = {spec.name: field_type(spec, tensor) for spec in row.fields if not spec.kind.is_output}
    types |= OPTIONS | {"outputs": f"Collection[Literal[{outputs}]]"} | special
    texts = []
    for item in signature(row, options).parameters.values():
        if item.kind is item.KEYWORD_ONLY and "*" not in texts:
            texts.append("*")
        has_default = item.default is not item.empty and special.get(item.name, NO_OUTPUTS) == NO_OUTPUTS
        default = f" = {default_text(item.default)}" if has_default else ""
        texts.append(f"{item.name}: {types[item.name]}{default}")
    return ", ".join(texts)


def results(row: type[OperatorDesc], tensor: str) -> Iterator[tuple[dict[str, str], str]]:
    """What a row's function returns, where one tensor is a ``tensor``: one result for each overload, with the types of the
    options that lead to it."""
    fields = [spec for spec in row.fields if spec.kind.is_output]
    optional = [spec for spec in fields if spec.optional]
    either = f"{tensor} | tuple[{tensor}, ...]"
    if any(spec.kind is FieldKind.OUTPUT_TENSOR_ARRAY for spec in fields):
        assert len(fields) == 1, "an array of outputs is an operator's only output"
        yield {"output_sizes": AT_LEAST_TWO_SIZES}, f"tuple[{tensor}, ...]"
        yield {"output_sizes": "Sequence[int] | Sequence[Sequence[int]]"}, either
    elif optional:
        name = f"Literal[{', '.join(repr(spec.name) for spec in optional)}]"
        for wanted in range(len(optional) + 1):
            count = len(fields) - len(optional) + wanted
            if count:  # a call must want an output
                yield {"outputs": tuple_of(name, wanted)}, tensor if count == 1 else tuple_of(tensor, count)
        names = ", ".join(repr(spec.name) for spec in fields)
        yield {"outputs": f"Collection[Literal[{names}]]"}, either
    else:
        yield {}, tensor if len(fields) == 1 else tuple_of(tensor, len(fields))


def tuple_of(item: str, count: int) -> str:
    """The type of a tuple of so many items."""
    return f"tuple[{', '.join([item] * count)}]" if count else NO_OUTPUTS


def definition(name: str, row: type[OperatorDesc], arguments: str, result: str) -> str:
    """A function with the first paragraph of the row's documentation."""
    text = (inspect.getdoc(row) or row.__name__).partition("\n\n")[0].replace("\\", "\\\\")
    return f"def {name}({arguments}) -> {result}:\n" + textwrap.indent(f'"""{text}"""', "    ")


def overloaded(functions: Sequence[str]) -> Iterator[str]:
    """Functions of one name: overloads, if there are several."""
    for function in functions:
        if len(functions) > 1:
            yield "@overload"
        yield function


def eager_stub() -> str:
    """The text of ``eager.pyi``."""
    head = HEAD.format(title="The functions of dmlvk.eager", imports=EAGER_IMPORTS, enumerations=enumerations())
    lines = [head + EAGER_TYPES]
    options = dict(EAGER_OPTIONS)
    for name, row in sorted(rows_by_name().items()):
        # The first overload that fits counts: one array on the device brings the result there.
        kinds = [("_HostArray", "npt.NDArray[Any]"), ("_Array", "DeviceArray")]
        lines += overloaded(
            [
                definition(name, row, parameters(row, options, tensor, special), result)
                for tensor, made in (kinds if input_fields(row) else kinds[:1])
                for special, result in results(row, made)
            ]
        )
    return "\n".join(lines) + "\n"


def graph_stub() -> str:
    """The text of ``graph_methods.pyi``."""
    imports = "from dmlvk.builder import Expression"
    title = "The methods of dmlvk.Graph that add an operator"
    head = HEAD.format(title=title, imports=imports, enumerations=enumerations())
    lines = [head, "class GraphMethods:"]
    for name, row in sorted(rows_by_name().items()):
        methods = [
            definition(name, row, f"self, {parameters(row, dict(GRAPH_OPTIONS), 'Expression', special)}", result)
            for special, result in results(row, "Expression")
        ]
        lines += [textwrap.indent(text, "    ") for text in overloaded(methods)]
    return "\n".join(lines) + "\n"


def write(folder: pathlib.Path) -> None:
    """Writes both files."""
    for name, text in (("eager.pyi", eager_stub()), ("graph_methods.pyi", graph_stub())):
        (folder / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    write(pathlib.Path(sys.argv[1]))
