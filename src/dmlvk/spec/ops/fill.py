"""Fills: tensors made from a number, from a counter, from a diagonal or from indices.

Numbers of a ``DML_SCALAR_UNION`` are of the output's type: an integer must fit it, a float is rounded to it (to an
infinity where it is beyond the type), and NaN is a number to fill with.
"""

from __future__ import annotations

import struct as _struct
from collections.abc import Sequence

from dmlvk.spec import constraints as _c
from dmlvk.spec import schema as _s
from dmlvk.spec.enums import TensorDataType
from dmlvk.spec.tensor import TensorDesc, cast_scalar

__all__ = ["DiagonalMatrix", "DiagonalMatrix1", "FillValueConstant", "FillValueSequence", "OneHot"]

_ALL = (TensorDataType.FLOAT64, *_s.NUMERIC)
_INDICES = (TensorDataType.INT64, TensorDataType.INT32, TensorDataType.UINT64, TensorDataType.UINT32)
_OUTPUT = "output_tensor"


class FillValueConstant(
    _s.OperatorDesc,
    constraints=(_c.scalars_of_type("value_data_type", _OUTPUT, "value", allow_nan=True),),
    traits=_s.Traits(separable=_s.everywhere),
):
    """y = value, everywhere."""

    output_tensor: TensorDesc | None = _s.output_tensor(_ALL)
    value_data_type: TensorDataType = _s.enumeration(TensorDataType)
    value: int | float = _s.scalar_union()


class FillValueSequence(
    _s.OperatorDesc,
    constraints=(
        _c.scalars_of_type(
            "value_data_type", _OUTPUT, "value_start", "value_delta", allow_nan=True, signed=("value_delta",)
        ),
    ),
):
    """y[i] = value_start + i * value_delta, where i counts the elements in logical order, whatever the strides.

    Integers wrap modulo 2^bits: the specification's own example counts a UINT8 down with a ValueDelta of -2. For
    floats the specification does not say how the sum is formed. Here, as in ONNX's Range, it is one product and one
    sum: start and delta are rounded to the type; i, the product and the sum to float32; a float16 result once more. So
    no error builds up along the sequence.
    """

    output_tensor: TensorDesc | None = _s.output_tensor(_s.NUMERIC)
    value_data_type: TensorDataType = _s.enumeration(TensorDataType)
    value_start: int | float = _s.scalar_union()
    value_delta: int | float = _s.scalar_union()


class DiagonalMatrix(_s.OperatorDesc):
    """y[.., row, column] = value where column = row + offset, else 0. For integers, value is rounded toward zero and
    clamped to the type."""

    output_tensor: TensorDesc | None = _s.output_tensor(_ALL, (2, 4))
    offset: int = _s.integer(0)
    value: float = _s.floating(1.0)

    def upgrade(self) -> DiagonalMatrix1:
        """DiagonalMatrix1 of one diagonal on a background of zeros."""
        data_type = self.tensor(_OUTPUT).data_type
        (single,) = _struct.unpack("<f", _struct.pack("<f", self.value))
        return DiagonalMatrix1(
            output_tensor=self.output_tensor,
            value_data_type=data_type,
            value=cast_scalar(single, data_type),
            diagonal_fill_begin=self.offset,
            diagonal_fill_end=self.offset + 1,
        )


class DiagonalMatrix1(
    _s.OperatorDesc,
    constraints=(
        _c.same_data_type(),
        _c.same_dimension_count(),
        _c.same_sizes(),
        _c.scalars_of_type("value_data_type", _OUTPUT, "value", allow_nan=True),
    ),
):
    """y[.., row, column] = value on the diagonals that are filled, elsewhere input_tensor, or 0 without one.

    Diagonal d = column - row is filled where diagonal_fill_begin <= d < diagonal_fill_end or, with begin above end,
    where d >= begin or d < end. The specification gives sizes for the output alone; here the input has the same.
    """

    input_tensor: TensorDesc | None = _s.input_tensor(_ALL, (2, 4), optional=True)
    output_tensor: TensorDesc | None = _s.output_tensor(_ALL, (2, 4))
    value_data_type: TensorDataType = _s.enumeration(TensorDataType)
    value: int | float = _s.scalar_union()
    diagonal_fill_begin: int = _s.integer(0)
    diagonal_fill_end: int = _s.integer(1)

    def inferred_output_sizes(self) -> tuple[tuple[int, ...], ...]:
        if self.input_tensor is None:
            raise self.error(_OUTPUT, "must be given, because without InputTensor nothing else has its sizes", None)
        return (self.input_tensor.sizes,)


@_c.constraint("axis", "axis must be below the dimension count of output_tensor")
def _axis(desc: OneHot) -> _s.Violation | None:
    return None if desc.axis < desc.tensor(_OUTPUT).dimension_count else _s.Violation("axis", desc.axis)


@_c.constraint("indices_sizes", "must have the output's sizes, except 1 along axis")
def _indices_sizes(desc: OneHot) -> _s.Violation | None:
    output = desc.tensor(_OUTPUT).sizes
    sizes = desc.tensor("indices_tensor").sizes
    return None if sizes == (*output[: desc.axis], 1, *output[desc.axis + 1 :]) else _s.Violation("indices_tensor", sizes)


@_c.constraint("two_values", "must have at least two elements, the values for off and on")
def _two_values(desc: OneHot) -> _s.Violation | None:
    values = desc.tensor("values_tensor")
    return None if values.element_count >= 2 else _s.Violation("values_tensor", values.sizes)


class OneHot(
    _s.OperatorDesc,
    constraints=(
        _c.same_dimension_count(),
        _c.same_data_type("values_tensor", _OUTPUT),
        _axis,
        _indices_sizes,
        _two_values,
    ),
):
    """y = the second value where the position along axis equals the index there, else the first.

    A negative index of a signed type counts from the end. An index out of range is on nowhere: its whole line is off.
    """

    indices_tensor: TensorDesc | None = _s.input_tensor(_INDICES)
    values_tensor: TensorDesc | None = _s.input_tensor(_ALL)
    output_tensor: TensorDesc | None = _s.output_tensor(_ALL)
    axis: int = _s.uint()

    def inferred_output_sizes(self) -> tuple[tuple[int, ...], ...]:
        raise self.error(_OUTPUT, "must be given, because nothing else has its size along Axis", None)

    def cuts(self) -> Sequence[_s.Cut]:
        """By indices."""
        count = self.tensor(_OUTPUT).dimension_count
        return [_s.Cut({"indices_tensor": way, _OUTPUT: way}) for way in range(count) if way != self.axis]
