"""Compaction: where the elements that are not zero are."""

from __future__ import annotations

import math as _math

from dmlvk.spec import constraints as _c
from dmlvk.spec import schema as _s
from dmlvk.spec.enums import TensorDataType
from dmlvk.spec.tensor import TensorDesc

__all__ = ["NonzeroCoordinates"]

_VALUES = (
    *_s.FLOATS,
    TensorDataType.INT32,
    TensorDataType.INT16,
    TensorDataType.INT8,
    TensorDataType.UINT32,
    TensorDataType.UINT16,
    TensorDataType.UINT8,
)
_UINT32 = (TensorDataType.UINT32,)
_COUNT, _COORDINATES = "output_count_tensor", "output_coordinates_tensor"


def _effective_rank(sizes: tuple[int, ...]) -> int:
    """Dimensions without the leading ones of size 1."""
    return next((len(sizes) - axis for axis, size in enumerate(sizes) if size != 1), 0)


@_c.constraint("one_count", "must have sizes of 1 only")
def _one_count(desc: NonzeroCoordinates) -> _s.Violation | None:
    count = desc.tensor(_COUNT)
    return None if count.element_count == 1 else _s.Violation(_COUNT, count.sizes)


@_c.constraint("coordinate_rows", "must have a row for each element of input_tensor, and sizes of 1 before its last two")
def _coordinate_rows(desc: NonzeroCoordinates) -> _s.Violation | None:
    *outer, rows, _ = desc.tensor(_COORDINATES).sizes
    good = _math.prod(outer) == 1 and rows == desc.tensor("input_tensor").element_count
    return None if good else _s.Violation(_COORDINATES, desc.tensor(_COORDINATES).sizes)


@_c.constraint(
    "coordinate_columns", "the last size must be at least the effective rank of input_tensor and at most its rank"
)
def _coordinate_columns(desc: NonzeroCoordinates) -> _s.Violation | None:
    sizes = desc.tensor("input_tensor").sizes
    columns = desc.tensor(_COORDINATES).sizes[-1]
    good = _effective_rank(sizes) <= columns <= len(sizes)
    return None if good else _s.Violation(_COORDINATES, desc.tensor(_COORDINATES).sizes)


class NonzeroCoordinates(_s.OperatorDesc, constraints=(_one_count, _coordinate_rows, _coordinate_columns)):
    """The coordinates of the elements that are not zero, a row each, in ascending order of the elements, and how many
    they are.

    Of M elements of which C are not zero, output_coordinates_tensor, {.., M, N}, gets C rows of N coordinates, those
    along the input's last N dimensions. N may be less than the rank where the dimensions left out have size 1.

    - -0 is zero. NaN and subnormal numbers are not, whatever a device does with those when it computes.
    - The rows behind the first C are undefined in the specification: their memory is not written.
    - The page asks for equal dimension counts, which a vector and its coordinates cannot have, though its table allows
      both: here only the sizes count.
    """

    input_tensor: TensorDesc | None = _s.input_tensor(_VALUES)
    output_count_tensor: TensorDesc | None = _s.output_tensor(_UINT32)
    output_coordinates_tensor: TensorDesc | None = _s.output_tensor(_UINT32, (2, 8))

    def inferred_output_sizes(self) -> tuple[tuple[int, ...], ...]:
        """One count, and coordinates along every dimension."""
        source = self.tensor("input_tensor")
        rank = source.dimension_count
        return (1,) * rank, (*(1,) * (rank - 2), source.element_count, rank)
