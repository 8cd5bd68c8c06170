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
from collections.abc import Iterator

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "src"))

from dmlvk.spec.functions import (  # noqa: E402  # needs nothing that a build has not
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

HEAD = '''\
"""{title}, made from the operators' rows by tools/generate_stubs.py."""

from collections.abc import Collection, Sequence
from typing import Any, Literal{overload}

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
        kind = ATTRIBUTES[spec.kind]
    return f"{kind} | None" if spec.optional else kind


def parameters(row: type[OperatorDesc], options: dict[str, object], tensor: str) -> str:
    """The parameters of a row's function, with their types and defaults."""
    outputs = ", ".join(repr(spec.name) for spec in row.fields if spec.kind.is_output)
    types = {spec.name: field_type(spec, tensor) for spec in row.fields if not spec.kind.is_output}
    types |= OPTIONS | {"outputs": f"Collection[Literal[{outputs}]]"}
    texts = []
    for item in signature(row, options).parameters.values():
        if item.kind is item.KEYWORD_ONLY and "*" not in texts:
            texts.append("*")
        default = "" if item.default is item.empty else f" = {default_text(item.default)}"
        texts.append(f"{item.name}: {types[item.name]}{default}")
    return ", ".join(texts)


def result_type(row: type[OperatorDesc], tensor: str) -> str:
    """What a row's function returns: Any where that depends on how many outputs are wanted."""
    outputs = [spec for spec in row.fields if spec.kind.is_output]
    if any(spec.optional or spec.kind is FieldKind.OUTPUT_TENSOR_ARRAY for spec in outputs):
        return "Any"
    return tensor if len(outputs) == 1 else f"tuple[{', '.join([tensor] * len(outputs))}]"


def definition(name: str, row: type[OperatorDesc], arguments: str, result: str) -> Iterator[str]:
    """A function with the first paragraph of the row's documentation."""
    yield f"def {name}({arguments}) -> {result}:"
    text = (inspect.getdoc(row) or row.__name__).partition("\n\n")[0].replace("\\", "\\\\")
    yield textwrap.indent(f'"""{text}"""', "    ")


def eager_stub() -> str:
    """The text of ``eager.pyi``."""
    lines = [
        HEAD.format(
            title="The functions of dmlvk.eager", overload=", overload", imports=EAGER_IMPORTS, enumerations=enumerations()
        )
        + EAGER_TYPES
    ]
    options = dict(EAGER_OPTIONS)
    for name, row in sorted(rows_by_name().items()):
        host, device = (result_type(row, kind) for kind in ("npt.NDArray[Any]", "DeviceArray"))
        if host == device or not input_fields(row):
            lines += definition(name, row, parameters(row, options, "_Array"), host)
            continue
        # The first overload that fits counts: one array on the device brings the result there.
        lines.append("@overload")
        lines += definition(name, row, parameters(row, options, "_HostArray"), host)
        lines.append("@overload")
        lines += definition(name, row, parameters(row, options, "_Array"), device)
    return "\n".join(lines) + "\n"


def graph_stub() -> str:
    """The text of ``graph_methods.pyi``."""
    imports = "from dmlvk.builder import Expression"
    title = "The methods of dmlvk.Graph that add an operator"
    lines = [HEAD.format(title=title, overload="", imports=imports, enumerations=enumerations()), "class GraphMethods:"]
    for name, row in sorted(rows_by_name().items()):
        arguments = f"self, {parameters(row, dict(GRAPH_OPTIONS), 'Expression')}"
        function = "\n".join(definition(name, row, arguments, result_type(row, "Expression")))
        lines.append(textwrap.indent(function, "    "))
    return "\n".join(lines) + "\n"


def write(folder: pathlib.Path) -> None:
    """Writes both files."""
    for name, text in (("eager.pyi", eager_stub()), ("graph_methods.pyi", graph_stub())):
        (folder / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    write(pathlib.Path(sys.argv[1]))
