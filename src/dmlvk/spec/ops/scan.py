"""Running sums and products along an axis."""

from __future__ import annotations

from dmlvk.spec import constraints as _c
from dmlvk.spec import schema as _s
from dmlvk.spec.enums import AxisDirection as _AxisDirection
from dmlvk.spec.enums import TensorDataType as _Type
from dmlvk.spec.tensor import TensorDesc

__all__ = ["CumulativeProduct", "CumulativeSummation"]

_TYPES = (*_s.FLOATS, _Type.INT64, _Type.INT32, _Type.UINT64, _Type.UINT32)

_TRAITS = _s.Traits(beyond=_s.DOUBLE, separable=_s.off_axes)
_CONSTRAINTS = (_c.same_data_type(), _c.same_dimension_count(), _c.same_sizes(), _c.valid_axis())


class CumulativeSummation(_s.OperatorDesc, in_place=("input_tensor",), constraints=_CONSTRAINTS, traits=_TRAITS):
    """y = the sum of all elements of the row up to and including this one; with HasExclusiveSum, of those before it, so
    that it starts at 0. A row is the elements along Axis; DECREASING walks it from its end.

    Where the specification is silent:

    - FLOAT16 is summed in float32 and rounded once an element: a sum that FLOAT16 cannot hold is infinite there and
      nowhere else.
    - Elements are added in a tree whose shape depends on the sizes and the device alone, and the sum of all that came
      before is kept in two float32 numbers, so errors do not grow with the row's length.
    - From an infinity on sums are infinite, from a NaN or a second infinity of the other sign on NaN.
    - Integers wrap around.
    """

    input_tensor: TensorDesc | None = _s.input_tensor(_TYPES)
    output_tensor: TensorDesc | None = _s.output_tensor(_TYPES)
    axis: int = _s.uint()
    axis_direction: _AxisDirection = _s.enumeration(_AxisDirection, _AxisDirection.INCREASING)
    has_exclusive_sum: bool = _s.boolean(False)


class CumulativeProduct(_s.OperatorDesc, in_place=("input_tensor",), constraints=_CONSTRAINTS, traits=_TRAITS):
    """y = the product of all elements of the row up to and including this one; with HasExclusiveProduct, of those before
    it, so that it starts at 1. A row is the elements along Axis; DECREASING walks it from its end.

    Where the specification is silent:

    - Floating products are kept with an exponent of their own: one beyond float32's range is infinite or 0 where it is
      written, but the product goes on from its true value. FLOAT16 is multiplied in float32 and rounded once.
    - From a NaN on products are NaN, and so they are from where both 0 and infinity have come.
    - Integers wrap around.
    """

    input_tensor: TensorDesc | None = _s.input_tensor(_TYPES)
    output_tensor: TensorDesc | None = _s.output_tensor(_TYPES)
    axis: int = _s.uint()
    axis_direction: _AxisDirection = _s.enumeration(_AxisDirection, _AxisDirection.INCREASING)
    has_exclusive_product: bool = _s.boolean(False)
