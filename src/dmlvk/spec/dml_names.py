"""DirectML's own spellings of operators, fields and enumerations, as files and other programs write them.

The rows and the enumerations are the one source: ``DML_OPERATOR_GEMM``, or ``GEMM``, is the row ``Gemm``;
``DML_MATRIX_TRANSFORM_NONE``, or ``NONE``, is ``MatrixTransform.NONE``.
"""

from __future__ import annotations

import enum
import re
from typing import Any, TypeVar

from dmlvk.spec.enums import OperatorType, TensorDataType
from dmlvk.spec.schema import REGISTRY, FieldKind, FieldSpec, OperatorDesc

_E = TypeVar("_E", bound=enum.IntEnum | enum.IntFlag)

COUNTED = (
    FieldKind.INPUT_TENSOR_ARRAY,
    FieldKind.OUTPUT_TENSOR_ARRAY,
    FieldKind.UINT_ARRAY,
    FieldKind.INT_ARRAY,
    FieldKind.FLOAT_ARRAY,
    FieldKind.OPERATOR_DESC_ARRAY,
)
"""The kinds of fields whose length DirectML's struct has in a field of its own, which our rows leave out."""


def row_named(name: str) -> type[OperatorDesc] | None:
    """The row of an operator by its constant, with or without ``DML_OPERATOR_``; None where there is none."""
    found = OperatorType.__members__.get(name.removeprefix("DML_OPERATOR_"))
    return None if found is None else REGISTRY.get(found)


def prefix(enumeration: type[enum.Enum]) -> str:
    """What DirectML's constants of an enumeration begin with, such as ``DML_CONVOLUTION_MODE_``. Those of flags name one
    flag, and operators are not called types."""
    if enumeration is OperatorType:
        return "DML_OPERATOR_"
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", enumeration.__name__).upper()
    return f"DML_{words.removesuffix('S') if issubclass(enumeration, enum.IntFlag) else words}_"


def member_named(enumeration: type[_E], name: str) -> _E | None:
    """The member by DirectML's constant, with or without its prefix; None where there is none."""
    found: _E | None = enumeration.__members__.get(name.removeprefix(prefix(enumeration)))  # type: ignore[assignment]
    return found


def is_count(row: type[OperatorDesc], name: str) -> bool:
    """Whether a field of the struct that the row lacks is the length of one of its arrays, such as ``AxisCount``."""
    return name.endswith("Count") and any(spec.kind in COUNTED for spec in row.fields)


def counted(row: type[OperatorDesc], values: dict[str, Any]) -> set[int]:
    """The lengths of the arrays among a desc's values, by the names of the row: what its counts may be."""
    arrays = (values.get(spec.name) for spec in row.fields if spec.kind in COUNTED)
    return {len(value) for value in arrays if value is not None}


def scalar_type_field(row: type[OperatorDesc]) -> FieldSpec:
    """The field that says of which type a row's ``DML_SCALAR_UNION`` fields are."""
    return next(spec for spec in row.fields if spec.enumeration is TensorDataType)
