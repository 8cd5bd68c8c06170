"""Operator descs from JSON: DirectML's structs by their own names, read by the rows.

A struct's pair of type and pointer may be written with a ``Desc`` member or without. Lengths of arrays that DirectML's
structs have in fields of their own, such as ``AxisCount``, may be left out.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, Final

from dmlvk.dxdispatch.document import Place
from dmlvk.spec.dml_names import counted, is_count, row_named, scalar_type_field
from dmlvk.spec.enums import TensorDataType, TensorFlags, TensorType
from dmlvk.spec.errors import InvalidArgumentError
from dmlvk.spec.schema import FieldKind, FieldSpec, OperatorDesc, ScaleBias, Size2D
from dmlvk.spec.tensor import TensorDesc

_TENSOR_MEMBERS: Final = (
    "Type",
    "DataType",
    "Flags",
    "DimensionCount",
    "Sizes",
    "Strides",
    "TotalTensorSizeInBytes",
    "GuaranteedBaseOffsetAlignment",
)
_UNION_MEMBERS: Final = {"FLOAT": "Float", "UINT": "UInt", "INT": "Int"}


def read_operator(place: Place, *, fused: bool = False) -> OperatorDesc:
    """The desc of an operator, checked against its row.

    Args:
        place: An object with the member ``Type`` or ``type``.
        fused: Whether it is an activation of another operator, which has no tensors.

    Raises:
        InvalidArgumentError: a rule is broken; names the path of the member.
    """
    name = place.member("Type", "type")
    row = row_named(name.text())
    if row is None:
        name.refuse("must be the type of a DirectML operator, such as DML_OPERATOR_GEMM")
    inner = place.get("Desc", "desc") or place
    fields = [spec for spec in row.fields if not (fused and spec.kind.is_tensor)]
    values: dict[str, Any] = {}
    for spec in fields:
        member = inner.get(spec.dml_name)
        if member is not None:
            values[spec.name] = _READERS[spec.kind](member, spec, inner, row)
        elif not spec.optional:
            inner.refuse(f"must have the member {spec.dml_name!r} of {row.dml_name}")
    _check_counts(inner, row, values, () if inner is not place else ("Type", "type", *_AROUND))
    desc = row(**values)
    if not fused:
        try:
            desc.validate()
        except InvalidArgumentError as error:
            raise located(error, inner) from None
    return desc


def located(error: InvalidArgumentError, place: Place) -> InvalidArgumentError:
    """An error of a desc or a binding as one of the place that it was read from."""
    operator = f"{error.operator} at {place.path}" if error.operator else place.path
    return type(error)(error.rule, operator=operator, field=error.field, value=error.value, expected=error.expected)


_AROUND: Final = ("dmlCompileType", "executionFlags", "bindings")
"""Members of a dispatchable that are none of its operator's."""


def _check_counts(place: Place, row: type[OperatorDesc], values: dict[str, Any], around: tuple[str, ...]) -> None:
    known = {spec.dml_name for spec in row.fields}
    for name, member in place.members():
        if name not in known and is_count(row, name):
            known.add(name)
            count = member.whole()
            lengths = counted(row, values)
            if count not in (lengths or {0}):
                member.refuse(f"must be the length of an array of {row.dml_name}", expected=sorted(lengths))
    place.note_unknown(*known, *around)


def read_tensor(place: Place) -> TensorDesc:
    """A ``DML_TENSOR_DESC``."""
    kind = place.get("Type")
    if kind is not None and kind.enumerated(TensorType) is not TensorType.BUFFER:
        kind.refuse("must be DML_TENSOR_TYPE_BUFFER")
    inner = place.get("Desc") or place
    sizes, strides, count = inner.member("Sizes"), inner.get("Strides"), inner.get("DimensionCount")
    dimensions = sizes.wholes(1)
    if count is not None and count.whole() != len(dimensions):
        count.refuse("must be the length of Sizes", expected=len(dimensions))
    flags, total, alignment = (inner.get(name) for name in ("Flags", "TotalTensorSizeInBytes", _TENSOR_MEMBERS[-1]))
    inner.note_unknown(*_TENSOR_MEMBERS)
    try:
        return TensorDesc(
            inner.member("DataType").enumerated(TensorDataType),
            dimensions,
            (strides.wholes() or None) if strides else None,
            total.whole(0, 2**64) if total else 0,
            flags.flags(TensorFlags) if flags else TensorFlags.NONE,
            alignment.whole() if alignment else 0,
        )
    except InvalidArgumentError as error:
        if error.field.startswith("$"):
            raise
        raise located(error, inner) from None


def _tensor(place: Place, *_: object) -> TensorDesc:
    return read_tensor(place)


def _tensors(place: Place, *_: object) -> tuple[TensorDesc, ...]:
    return tuple(map(read_tensor, place.items()))


def _flag(place: Place, *_: object) -> bool:
    return place.boolean()


def _enumerated(place: Place, spec: FieldSpec, *_: object) -> Any:
    assert spec.enumeration is not None, "an enum field names its class"
    return place.enumerated(spec.enumeration)


def _size_2d(place: Place, *_: object) -> Size2D:
    place.note_unknown("Width", "Height")
    return Size2D(place.member("Width").whole(), place.member("Height").whole())


def _scale_bias(place: Place, *_: object) -> ScaleBias:
    place.note_unknown("Scale", "Bias")
    return ScaleBias(place.member("Scale").number(), place.member("Bias").number())


def _scalar(place: Place, spec: FieldSpec, inner: Place, row: type[OperatorDesc]) -> int | float:
    """A number of the type that another member names, plain or as the union's member: ``{"Float32": 1.5}``. A FLOAT16 has
    its bits in ``UInt16`` there."""
    data_type = inner.member(scalar_type_field(row).dml_name).enumerated(TensorDataType)
    kind = data_type.name.rstrip("0123456789")
    if kind not in _UNION_MEMBERS:
        place.refuse(f"must be a number of a type that a union holds, not {data_type.name}")
    if isinstance(place.value, dict):
        if data_type is TensorDataType.FLOAT16:
            (value,) = struct.unpack("<e", struct.pack("<H", place.member("UInt16").whole(0, 2**16)))
            return float(value)
        place = place.member(_UNION_MEMBERS[kind] + data_type.name.removeprefix(kind))
    if kind == "FLOAT":
        return place.number()
    bits = int(data_type.name.removeprefix(kind))
    # An unsigned delta may count down: the row says which.
    return place.whole(-(2 ** (bits - 1)), 2**bits if kind == "UINT" else 2 ** (bits - 1))


def _activation(place: Place, *_: object) -> OperatorDesc:
    return read_operator(place, fused=True)


def _activations(place: Place, *_: object) -> tuple[OperatorDesc, ...]:
    return tuple(read_operator(item, fused=True) for item in place.items())


_READERS: Final[dict[FieldKind, Callable[[Place, FieldSpec, Place, type[OperatorDesc]], Any]]] = {
    FieldKind.INPUT_TENSOR: _tensor,
    FieldKind.OUTPUT_TENSOR: _tensor,
    FieldKind.INPUT_TENSOR_ARRAY: _tensors,
    FieldKind.OUTPUT_TENSOR_ARRAY: _tensors,
    FieldKind.UINT: lambda place, *_: place.whole(),
    FieldKind.INT: lambda place, *_: place.whole(-(2**31), 2**31),
    FieldKind.FLOAT: lambda place, *_: place.number(),
    FieldKind.BOOL: _flag,
    FieldKind.ENUM: _enumerated,
    FieldKind.UINT_ARRAY: lambda place, *_: place.wholes(),
    FieldKind.INT_ARRAY: lambda place, *_: place.wholes(-(2**31), 2**31),
    FieldKind.FLOAT_ARRAY: lambda place, *_: tuple(item.number() for item in place.items()),
    FieldKind.SCALE_BIAS: _scale_bias,
    FieldKind.SCALAR_UNION: _scalar,
    FieldKind.SIZE_2D: _size_2d,
    FieldKind.FUSED_ACTIVATION: _activation,
    FieldKind.OPERATOR_DESC_ARRAY: _activations,
}
