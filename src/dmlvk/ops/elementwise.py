"""Elementwise mathematics: y = f(a) or f(a, b), element for element; broadcasting is a stride of 0.

Types are the tensor's. float16 is computed in float32 and rounded once. Integer sums, differences, products and
negations keep their low bits, as in two's complement. Where a row has ``scale_bias``, x below is
g(input) = input * scale + bias; for integers g is computed in float32 and cast back toward zero, clamped to the type.
"""

from dmlvk import constraints as _c
from dmlvk import schema as _s
from dmlvk.enums import TensorDataType as _T
from dmlvk.tensor import TensorDesc
from dmlvk.tensor import cast_scalar as _cast_scalar

_SAME = (_c.same_data_type(), _c.same_dimension_count(), _c.same_sizes())
_SIGNED = _s.FLOATS + _s.SIGNED
_INPUT = ("input_tensor",)
_A_OR_B = ("a_tensor", "b_tensor")


class ElementWiseIdentity(_s.OperatorDesc, in_place=_INPUT, constraints=_SAME):
    """y = x: a copy, bit for bit where there is no ``scale_bias``, and the way to change strides or to broadcast."""

    input_tensor: TensorDesc | None = _s.input_tensor((_T.FLOAT64, *_s.NUMERIC))
    output_tensor: TensorDesc | None = _s.output_tensor((_T.FLOAT64, *_s.NUMERIC))
    scale_bias: _s.ScaleBias | None = _s.scale_bias()


class ElementWiseAbs(_s.OperatorDesc, in_place=_INPUT, constraints=_SAME):
    """y = |x|. The least integer has no positive counterpart and stays itself."""

    input_tensor: TensorDesc | None = _s.input_tensor(_SIGNED)
    output_tensor: TensorDesc | None = _s.output_tensor(_SIGNED)
    scale_bias: _s.ScaleBias | None = _s.scale_bias()


class ElementWiseAdd(_s.OperatorDesc, in_place=_A_OR_B, constraints=_SAME):
    """y = a + b."""

    a_tensor: TensorDesc | None = _s.input_tensor(_s.NUMERIC)
    b_tensor: TensorDesc | None = _s.input_tensor(_s.NUMERIC)
    output_tensor: TensorDesc | None = _s.output_tensor(_s.NUMERIC)


class ElementWiseAdd1(_s.OperatorDesc, in_place=_A_OR_B, constraints=_SAME):
    """y = activation(a + b), the sum kept in float32 between the two."""

    a_tensor: TensorDesc | None = _s.input_tensor(_s.FLOATS)
    b_tensor: TensorDesc | None = _s.input_tensor(_s.FLOATS)
    output_tensor: TensorDesc | None = _s.output_tensor(_s.FLOATS)
    fused_activation: _s.OperatorDesc | None = _s.fused_activation()


class ElementWiseCeil(_s.OperatorDesc, in_place=_INPUT, constraints=_SAME):
    """y = the least integer not below x."""

    input_tensor: TensorDesc | None = _s.input_tensor(_s.FLOATS)
    output_tensor: TensorDesc | None = _s.output_tensor(_s.FLOATS)
    scale_bias: _s.ScaleBias | None = _s.scale_bias()


class ElementWiseClip(_s.OperatorDesc, in_place=_INPUT, constraints=_SAME):
    """y = max(min, min(x, max)), the bounds cast to the tensor's type: toward zero and clamped for integers.

    min wins where min > max, as the formula says; NaN stays NaN, on which the specification is silent.
    """

    input_tensor: TensorDesc | None = _s.input_tensor(_s.NUMERIC)
    output_tensor: TensorDesc | None = _s.output_tensor(_s.NUMERIC)
    scale_bias: _s.ScaleBias | None = _s.scale_bias()
    min: float = _s.floating()
    max: float = _s.floating()

    def upgrade(self) -> _s.OperatorDesc:
        """ElementWiseClip1 with the bounds in the tensor's type."""
        data_type = self.tensor("output_tensor").data_type
        return ElementWiseClip1(
            input_tensor=self.input_tensor,
            output_tensor=self.output_tensor,
            scale_bias=self.scale_bias,
            min_max_data_type=data_type,
            min=_cast_scalar(self.min, data_type),
            max=_cast_scalar(self.max, data_type),
        )


@_c.constraint("min_max_data_type", "min_max_data_type is the output's data type, and min and max fit it")
def _min_max_data_type(desc: "ElementWiseClip1") -> _s.Violation | None:
    data_type = desc.tensor("output_tensor").data_type
    if desc.min_max_data_type != data_type:
        return _s.Violation("min_max_data_type", desc.min_max_data_type)
    for name, value in (("min", desc.min), ("max", desc.max)):
        if _cast_scalar(value, data_type) != value or (data_type in _s.FLOATS and not _s.fits_float32(value)):
            return _s.Violation(name, value)
    return None


class ElementWiseClip1(_s.OperatorDesc, in_place=_INPUT, constraints=(*_SAME, _min_max_data_type)):
    """y = max(min, min(x, max)) in the tensor's type. min wins where min > max; NaN stays NaN."""

    input_tensor: TensorDesc | None = _s.input_tensor(_s.NUMERIC)
    output_tensor: TensorDesc | None = _s.output_tensor(_s.NUMERIC)
    scale_bias: _s.ScaleBias | None = _s.scale_bias()
    min_max_data_type: _T = _s.enumeration(_T)
    min: int | float = _s.scalar_union()
    max: int | float = _s.scalar_union()


class ElementWiseDivide(_s.OperatorDesc, in_place=_A_OR_B, constraints=_SAME):
    """y = a / b. Integers round toward zero.

    The specification leaves two integer cases open: division by 0 gives 0, and the least integer divided by -1, whose
    quotient does not fit, gives itself. Both are what numpy gives.
    """

    a_tensor: TensorDesc | None = _s.input_tensor(_s.NUMERIC)
    b_tensor: TensorDesc | None = _s.input_tensor(_s.NUMERIC)
    output_tensor: TensorDesc | None = _s.output_tensor(_s.NUMERIC)


class ElementWiseErf(_s.OperatorDesc, in_place=_INPUT, constraints=_SAME):
    """y = erf(x), the error function."""

    input_tensor: TensorDesc | None = _s.input_tensor(_s.FLOATS)
    output_tensor: TensorDesc | None = _s.output_tensor(_s.FLOATS)
    scale_bias: _s.ScaleBias | None = _s.scale_bias()


class ElementWiseExp(_s.OperatorDesc, in_place=_INPUT, constraints=_SAME):
    """y = e^x."""

    input_tensor: TensorDesc | None = _s.input_tensor(_s.FLOATS)
    output_tensor: TensorDesc | None = _s.output_tensor(_s.FLOATS)
    scale_bias: _s.ScaleBias | None = _s.scale_bias()


class ElementWiseFloor(_s.OperatorDesc, in_place=_INPUT, constraints=_SAME):
    """y = the greatest integer not above x."""

    input_tensor: TensorDesc | None = _s.input_tensor(_s.FLOATS)
    output_tensor: TensorDesc | None = _s.output_tensor(_s.FLOATS)
    scale_bias: _s.ScaleBias | None = _s.scale_bias()


class ElementWiseLog(_s.OperatorDesc, in_place=_INPUT, constraints=_SAME):
    """y = ln(x): -infinity at 0, NaN below."""

    input_tensor: TensorDesc | None = _s.input_tensor(_s.FLOATS)
    output_tensor: TensorDesc | None = _s.output_tensor(_s.FLOATS)
    scale_bias: _s.ScaleBias | None = _s.scale_bias()


class ElementWiseMax(_s.OperatorDesc, in_place=_A_OR_B, constraints=_SAME):
    """y = max(a, b); NaN where either is NaN, on which the specification is silent."""

    a_tensor: TensorDesc | None = _s.input_tensor(_s.NUMERIC)
    b_tensor: TensorDesc | None = _s.input_tensor(_s.NUMERIC)
    output_tensor: TensorDesc | None = _s.output_tensor(_s.NUMERIC)


class ElementWiseMin(_s.OperatorDesc, in_place=_A_OR_B, constraints=_SAME):
    """y = min(a, b); NaN where either is NaN, on which the specification is silent."""

    a_tensor: TensorDesc | None = _s.input_tensor(_s.NUMERIC)
    b_tensor: TensorDesc | None = _s.input_tensor(_s.NUMERIC)
    output_tensor: TensorDesc | None = _s.output_tensor(_s.NUMERIC)


class ElementWiseModulusFloor(_s.OperatorDesc, in_place=_A_OR_B, constraints=_SAME):
    """y = a - b * floor(a / b): Python's modulus, whose sign is the divisor's.

    The formula holds for the exact quotient, so float results are exact but for one rounding where the signs of a and b
    differ and |a| < |b| (then y = a + b, which may round to b itself), however large a / b is. What the specification
    leaves open follows Python and numpy:
    - floats: NaN where b is 0 or a is infinite; a where b is infinite and of a's sign, b where it is not; a zero result
      has the divisor's sign.
    - integers: 0 where b is 0, and 0 for the least integer and -1.
    """

    a_tensor: TensorDesc | None = _s.input_tensor(_s.NUMERIC)
    b_tensor: TensorDesc | None = _s.input_tensor(_s.NUMERIC)
    output_tensor: TensorDesc | None = _s.output_tensor(_s.NUMERIC)


class ElementWiseModulusTruncate(_s.OperatorDesc, in_place=_A_OR_B, constraints=_SAME):
    """y = a - b * trunc(a / b): C's modulus, whose sign is the dividend's.

    Float results are exact however large a / b is. What the specification leaves open follows C and numpy's ``fmod``:
    NaN where b is 0 or a is infinite, a where b is infinite; integers give 0 where b is 0.
    """

    a_tensor: TensorDesc | None = _s.input_tensor(_s.NUMERIC)
    b_tensor: TensorDesc | None = _s.input_tensor(_s.NUMERIC)
    output_tensor: TensorDesc | None = _s.output_tensor(_s.NUMERIC)


class ElementWiseMultiply(_s.OperatorDesc, in_place=_A_OR_B, constraints=_SAME):
    """y = a * b."""

    a_tensor: TensorDesc | None = _s.input_tensor(_s.NUMERIC)
    b_tensor: TensorDesc | None = _s.input_tensor(_s.NUMERIC)
    output_tensor: TensorDesc | None = _s.output_tensor(_s.NUMERIC)


class ElementWiseNegate(_s.OperatorDesc, in_place=_INPUT, constraints=_SAME):
    """y = -x. The least integer has no positive counterpart and stays itself."""

    input_tensor: TensorDesc | None = _s.input_tensor(_SIGNED)
    output_tensor: TensorDesc | None = _s.output_tensor(_SIGNED)


class ElementWiseRecip(_s.OperatorDesc, in_place=_INPUT, constraints=_SAME):
    """y = 1 / x."""

    input_tensor: TensorDesc | None = _s.input_tensor(_s.FLOATS)
    output_tensor: TensorDesc | None = _s.output_tensor(_s.FLOATS)
    scale_bias: _s.ScaleBias | None = _s.scale_bias()


class ElementWiseSqrt(_s.OperatorDesc, in_place=_INPUT, constraints=_SAME):
    """y = sqrt(x): NaN below 0."""

    input_tensor: TensorDesc | None = _s.input_tensor(_s.FLOATS)
    output_tensor: TensorDesc | None = _s.output_tensor(_s.FLOATS)
    scale_bias: _s.ScaleBias | None = _s.scale_bias()


class ElementWiseSubtract(_s.OperatorDesc, in_place=_A_OR_B, constraints=_SAME):
    """y = a - b."""

    a_tensor: TensorDesc | None = _s.input_tensor(_s.NUMERIC)
    b_tensor: TensorDesc | None = _s.input_tensor(_s.NUMERIC)
    output_tensor: TensorDesc | None = _s.output_tensor(_s.NUMERIC)


class ElementWiseTanh(_s.OperatorDesc, in_place=_INPUT, constraints=_SAME):
    """y = tanh(x)."""

    input_tensor: TensorDesc | None = _s.input_tensor(_s.FLOATS)
    output_tensor: TensorDesc | None = _s.output_tensor(_s.FLOATS)
    scale_bias: _s.ScaleBias | None = _s.scale_bias()
