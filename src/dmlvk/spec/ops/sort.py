"""The largest or smallest elements along an axis."""

from __future__ import annotations

from dmlvk.spec import constraints as _c
from dmlvk.spec import schema as _s
from dmlvk.spec.enums import AxisDirection as _AxisDirection
from dmlvk.spec.enums import TensorDataType as _Type
from dmlvk.spec.tensor import TensorDesc

__all__ = ["TopK", "TopK1"]

_INDICES = (_Type.UINT64, _Type.UINT32)


@_c.constraint("k", "must be at least 1 and at most the size of input_tensor along axis")
def _k(desc: TopK | TopK1) -> _s.Violation | None:
    return None if 1 <= desc.k <= desc.tensor("input_tensor").sizes[desc.axis] else _s.Violation("k", desc.k)


def _inferred(desc: TopK | TopK1) -> tuple[tuple[int, ...], ...]:
    sizes = desc.tensor("input_tensor").sizes
    if desc.axis >= len(sizes):
        raise desc.error("axis", _c.valid_axis().rule, desc.axis)
    return ((*sizes[: desc.axis], desc.k, *sizes[desc.axis + 1 :]),) * 2


_CONSTRAINTS = (
    _c.same_data_type("input_tensor", "output_value_tensor"),
    _c.same_dimension_count(),
    _c.valid_axis(),
    _k,
    _c.output_sizes_match(),
)


class TopK(_s.OperatorDesc, constraints=_CONSTRAINTS):
    """``TopK1`` with AxisDirection DECREASING: the largest first."""

    input_tensor: TensorDesc | None = _s.input_tensor(_s.NUMERIC)
    output_value_tensor: TensorDesc | None = _s.output_tensor(_s.NUMERIC)
    output_index_tensor: TensorDesc | None = _s.output_tensor(_INDICES)
    axis: int = _s.uint()
    k: int = _s.uint()

    def inferred_output_sizes(self) -> tuple[tuple[int, ...], ...]:
        return _inferred(self)

    def upgrade(self) -> TopK1:
        return TopK1(**{spec.name: getattr(self, spec.name) for spec in self.fields})


class TopK1(_s.OperatorDesc, constraints=_CONSTRAINTS, traits=_s.Traits(separable=_s.off_axes)):
    """The K largest (AxisDirection DECREASING) or smallest (INCREASING) elements of each row along Axis, sorted in that
    direction, and their positions in the row. Equal elements come in the order of their positions.

    Where the specification is silent:

    - K may be the size of the axis: that sorts it.
    - NaN counts as larger than infinity, every NaN as equal to every other, and -0 as equal to 0. Values are copied bit
      for bit.
    """

    input_tensor: TensorDesc | None = _s.input_tensor(_s.NUMERIC)
    output_value_tensor: TensorDesc | None = _s.output_tensor(_s.NUMERIC)
    output_index_tensor: TensorDesc | None = _s.output_tensor(_INDICES)
    axis: int = _s.uint()
    k: int = _s.uint()
    axis_direction: _AxisDirection = _s.enumeration(_AxisDirection, _AxisDirection.DECREASING)

    def inferred_output_sizes(self) -> tuple[tuple[int, ...], ...]:
        return _inferred(self)
