"""Gradients of pointwise operators: dx from the forward input x and the gradient dy of the forward output."""

from dmlvk.spec import constraints as _c
from dmlvk.spec import schema as _s
from dmlvk.spec.enums import TensorDataType as _T
from dmlvk.spec.ops.elementwise import _typed_bounds
from dmlvk.spec.tensor import TensorDesc

_SAME = (_c.same_data_type(), _c.same_dimension_count(), _c.same_sizes())
_SIGNED = (*_s.FLOATS, _T.INT32, _T.INT16, _T.INT8)
_JUMPS = _s.Traits(pointwise=True, discontinuous=True)


class ActivationReluGrad(_s.OperatorDesc, constraints=_SAME, traits=_JUMPS):
    """dx = dy where x > 0, else 0: 0 too at x = 0 and where x is NaN."""

    input_tensor: TensorDesc | None = _s.input_tensor(_SIGNED)
    input_gradient_tensor: TensorDesc | None = _s.input_tensor(_SIGNED)
    output_gradient_tensor: TensorDesc | None = _s.output_tensor(_SIGNED)


class ElementWiseClipGrad(_s.OperatorDesc, in_place=("input_tensor",), constraints=_SAME, traits=_JUMPS):
    """dx = 0 where x <= min or x >= max, else dy, the bounds cast to the tensor's type: toward zero and clamped for
    integers.

    So dx is 0 at exactly min and max. As ``ElementWiseClip`` keeps NaN, dx is dy where x is NaN, on which the
    specification is silent.
    """

    input_tensor: TensorDesc | None = _s.input_tensor(_s.NUMERIC)
    input_gradient_tensor: TensorDesc | None = _s.input_tensor(_s.NUMERIC)
    output_gradient_tensor: TensorDesc | None = _s.output_tensor(_s.NUMERIC)
    min: float = _s.floating()
    max: float = _s.floating()

    def upgrade(self) -> "ElementWiseClipGrad1":
        """ElementWiseClipGrad1 with the bounds in the tensor's type."""
        return ElementWiseClipGrad1(
            input_tensor=self.input_tensor,
            input_gradient_tensor=self.input_gradient_tensor,
            output_gradient_tensor=self.output_gradient_tensor,
            **_typed_bounds(self.min, self.max, self.tensor("output_gradient_tensor").data_type),
        )


class ElementWiseClipGrad1(
    _s.OperatorDesc,
    in_place=("input_tensor",),
    constraints=(*_SAME, _c.scalars_of_type("min_max_data_type", "output_gradient_tensor", "min", "max")),
    traits=_JUMPS,
):
    """dx = 0 where x <= min or x >= max, else dy, in the tensor's type; dy where x is NaN."""

    input_tensor: TensorDesc | None = _s.input_tensor(_s.NUMERIC)
    input_gradient_tensor: TensorDesc | None = _s.input_tensor(_s.NUMERIC)
    output_gradient_tensor: TensorDesc | None = _s.output_tensor(_s.NUMERIC)
    min_max_data_type: _T = _s.enumeration(_T)
    min: int | float = _s.scalar_union()
    max: int | float = _s.scalar_union()
