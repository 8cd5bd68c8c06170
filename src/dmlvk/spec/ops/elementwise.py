"""Elementwise mathematics: y = f(a) or f(a, b), element for element; broadcasting is a stride of 0.

Types are the tensor's. float16 is computed in float32 and rounded once. Integer sums, differences, products and
negations keep their low bits, as in two's complement. Where a row has ``scale_bias``, x below is
g(input) = input * scale + bias; for integers g is computed in float32 and cast back toward zero, clamped to the type.
"""

from typing import Any as _Any

from dmlvk.spec import constraints as _c
from dmlvk.spec import schema as _s
from dmlvk.spec.enums import RoundingMode as _RoundingMode
from dmlvk.spec.enums import TensorDataType as _T
from dmlvk.spec.tensor import TensorDesc
from dmlvk.spec.tensor import cast_scalar as _cast_scalar

_SAME = (_c.same_data_type(), _c.same_dimension_count(), _c.same_sizes())
_SIGNED = _s.FLOATS + _s.SIGNED
_WIDE = (*_s.FLOATS, _T.INT32, _T.UINT32)
_TO_32_BITS = (*_s.FLOATS, _T.INT32, _T.INT16, _T.INT8, _T.UINT32, _T.UINT16, _T.UINT8)
_INPUT = ("input_tensor",)
_A_OR_B = ("a_tensor", "b_tensor")
_POINTWISE = _s.Traits(pointwise=True, beyond=_s.DOUBLE)
_COSTLY = _s.Traits(pointwise=True, costly=True, beyond=_s.DOUBLE)
_JUMPS = _s.Traits(pointwise=True, discontinuous=True, beyond=_s.DOUBLE)


def _typed_bounds(least: float, most: float, data_type: _T) -> dict[str, _Any]:
    """The fields of a desc whose bounds are in the tensor's type, from float bounds: toward zero and clamped."""
    return {
        "min_max_data_type": data_type,
        "min": _cast_scalar(least, data_type),
        "max": _cast_scalar(most, data_type),
    }


class Cast(_s.OperatorDesc, constraints=(_c.same_dimension_count(), _c.same_sizes()), traits=_POINTWISE):
    """y = x in the output's type. The specification is silent on all that does not fit; we chose:

    - float to integer: toward zero, clamped to the type's range, NaN to 0.
    - integer to integer: the low bits, as in C and numpy.
    - to a float type: to nearest even, in one rounding, whatever the two types are; infinity where the value is beyond
      the type's range; NaN stays NaN.
    """

    input_tensor: TensorDesc | None = _s.input_tensor((_T.FLOAT64, *_s.NUMERIC))
    output_tensor: TensorDesc | None = _s.output_tensor((_T.FLOAT64, *_s.NUMERIC))


class ElementWiseIdentity(_s.OperatorDesc, in_place=_INPUT, constraints=_SAME, traits=_POINTWISE):
    """y = x: a copy, bit for bit where there is no ``scale_bias``, and the way to change strides or to broadcast."""

    input_tensor: TensorDesc | None = _s.input_tensor((_T.FLOAT64, *_s.NUMERIC))
    output_tensor: TensorDesc | None = _s.output_tensor((_T.FLOAT64, *_s.NUMERIC))
    scale_bias: _s.ScaleBias | None = _s.scale_bias()


class ElementWiseAbs(_s.OperatorDesc, in_place=_INPUT, constraints=_SAME, traits=_POINTWISE):
    """y = |x|. The least integer has no positive counterpart and stays itself."""

    input_tensor: TensorDesc | None = _s.input_tensor(_SIGNED)
    output_tensor: TensorDesc | None = _s.output_tensor(_SIGNED)
    scale_bias: _s.ScaleBias | None = _s.scale_bias()


class ElementWiseAcos(_s.OperatorDesc, in_place=_INPUT, constraints=_SAME, traits=_COSTLY):
    """y = the angle from 0 to pi whose cosine is x: NaN where |x| > 1."""

    input_tensor: TensorDesc | None = _s.input_tensor(_s.FLOATS)
    output_tensor: TensorDesc | None = _s.output_tensor(_s.FLOATS)
    scale_bias: _s.ScaleBias | None = _s.scale_bias()


class ElementWiseAcosh(_s.OperatorDesc, in_place=_INPUT, constraints=_SAME, traits=_COSTLY):
    """y = the number from 0 whose cosh is x: NaN below 1."""

    input_tensor: TensorDesc | None = _s.input_tensor(_s.FLOATS)
    output_tensor: TensorDesc | None = _s.output_tensor(_s.FLOATS)
    scale_bias: _s.ScaleBias | None = _s.scale_bias()


class ElementWiseAdd(_s.OperatorDesc, in_place=_A_OR_B, constraints=_SAME, traits=_POINTWISE):
    """y = a + b."""

    a_tensor: TensorDesc | None = _s.input_tensor(_s.NUMERIC)
    b_tensor: TensorDesc | None = _s.input_tensor(_s.NUMERIC)
    output_tensor: TensorDesc | None = _s.output_tensor(_s.NUMERIC)


class ElementWiseAdd1(_s.OperatorDesc, in_place=_A_OR_B, constraints=_SAME, traits=_s.Traits(pointwise=True)):
    """y = activation(a + b), the sum kept in float32 between the two."""

    a_tensor: TensorDesc | None = _s.input_tensor(_s.FLOATS)
    b_tensor: TensorDesc | None = _s.input_tensor(_s.FLOATS)
    output_tensor: TensorDesc | None = _s.output_tensor(_s.FLOATS)
    fused_activation: _s.OperatorDesc | None = _s.fused_activation()


class ElementWiseAsin(_s.OperatorDesc, in_place=_INPUT, constraints=_SAME, traits=_COSTLY):
    """y = the angle from -pi/2 to pi/2 whose sine is x: NaN where |x| > 1."""

    input_tensor: TensorDesc | None = _s.input_tensor(_s.FLOATS)
    output_tensor: TensorDesc | None = _s.output_tensor(_s.FLOATS)
    scale_bias: _s.ScaleBias | None = _s.scale_bias()


class ElementWiseAsinh(_s.OperatorDesc, in_place=_INPUT, constraints=_SAME, traits=_COSTLY):
    """y = the number whose sinh is x."""

    input_tensor: TensorDesc | None = _s.input_tensor(_s.FLOATS)
    output_tensor: TensorDesc | None = _s.output_tensor(_s.FLOATS)
    scale_bias: _s.ScaleBias | None = _s.scale_bias()


class ElementWiseAtan(_s.OperatorDesc, in_place=_INPUT, constraints=_SAME, traits=_COSTLY):
    """y = the angle from -pi/2 to pi/2 whose tangent is x."""

    input_tensor: TensorDesc | None = _s.input_tensor(_s.FLOATS)
    output_tensor: TensorDesc | None = _s.output_tensor(_s.FLOATS)
    scale_bias: _s.ScaleBias | None = _s.scale_bias()


class ElementWiseAtanh(_s.OperatorDesc, in_place=_INPUT, constraints=_SAME, traits=_COSTLY):
    """y = the number whose tanh is x: infinite at -1 and 1, NaN beyond."""

    input_tensor: TensorDesc | None = _s.input_tensor(_s.FLOATS)
    output_tensor: TensorDesc | None = _s.output_tensor(_s.FLOATS)
    scale_bias: _s.ScaleBias | None = _s.scale_bias()


class ElementWiseAtanYx(_s.OperatorDesc, in_place=_A_OR_B, constraints=_SAME, traits=_JUMPS):
    """y = the angle from -pi to pi of the point with height a and abscissa b: C's atan2(a, b).

    The specification leaves the origin open. There and at the infinities signs decide, as in C and numpy: 0 for (0, 0), pi
    for (0, -0), their opposites for a = -0, pi / 4 for (infinity, infinity).
    """

    a_tensor: TensorDesc | None = _s.input_tensor(_s.FLOATS)
    b_tensor: TensorDesc | None = _s.input_tensor(_s.FLOATS)
    output_tensor: TensorDesc | None = _s.output_tensor(_s.FLOATS)


class ElementWiseCeil(_s.OperatorDesc, in_place=_INPUT, constraints=_SAME, traits=_JUMPS):
    """y = the least integer not below x."""

    input_tensor: TensorDesc | None = _s.input_tensor(_s.FLOATS)
    output_tensor: TensorDesc | None = _s.output_tensor(_s.FLOATS)
    scale_bias: _s.ScaleBias | None = _s.scale_bias()


class ElementWiseClip(_s.OperatorDesc, in_place=_INPUT, constraints=_SAME, traits=_POINTWISE):
    """y = max(min, min(x, max)), the bounds cast to the tensor's type: toward zero and clamped for integers.

    min wins where min > max, as the formula says; NaN stays NaN, on which the specification is silent.
    """

    input_tensor: TensorDesc | None = _s.input_tensor(_s.NUMERIC)
    output_tensor: TensorDesc | None = _s.output_tensor(_s.NUMERIC)
    scale_bias: _s.ScaleBias | None = _s.scale_bias()
    min: float = _s.floating()
    max: float = _s.floating()

    def upgrade(self) -> "ElementWiseClip1":
        """ElementWiseClip1 with the bounds in the tensor's type."""
        return ElementWiseClip1(
            input_tensor=self.input_tensor,
            output_tensor=self.output_tensor,
            scale_bias=self.scale_bias,
            **_typed_bounds(self.min, self.max, self.tensor("output_tensor").data_type),
        )


class ElementWiseClip1(
    _s.OperatorDesc,
    in_place=_INPUT,
    constraints=(*_SAME, _c.scalars_of_type("min_max_data_type", "output_tensor", "min", "max")),
    traits=_POINTWISE,
):
    """y = max(min, min(x, max)) in the tensor's type. min wins where min > max; NaN stays NaN."""

    input_tensor: TensorDesc | None = _s.input_tensor(_s.NUMERIC)
    output_tensor: TensorDesc | None = _s.output_tensor(_s.NUMERIC)
    scale_bias: _s.ScaleBias | None = _s.scale_bias()
    min_max_data_type: _T = _s.enumeration(_T)
    min: int | float = _s.scalar_union()
    max: int | float = _s.scalar_union()


class ElementWiseConstantPow(_s.OperatorDesc, in_place=_INPUT, constraints=_SAME, traits=_COSTLY):
    """y = x^exponent, as C's pow.

    The specification leaves the corners open; C and numpy give: 1 for exponent 0 whatever x is, NaN for negative x and an
    exponent that is no integer, and for 0, -0 and the infinities the limit, negative where x is and the exponent is odd.
    """

    input_tensor: TensorDesc | None = _s.input_tensor(_s.FLOATS)
    output_tensor: TensorDesc | None = _s.output_tensor(_s.FLOATS)
    scale_bias: _s.ScaleBias | None = _s.scale_bias()
    exponent: float = _s.floating()


class ElementWiseCos(_s.OperatorDesc, in_place=_INPUT, constraints=_SAME, traits=_COSTLY):
    """y = cos(x), x in radians of any size: NaN for the infinities."""

    input_tensor: TensorDesc | None = _s.input_tensor(_s.FLOATS)
    output_tensor: TensorDesc | None = _s.output_tensor(_s.FLOATS)
    scale_bias: _s.ScaleBias | None = _s.scale_bias()


class ElementWiseCosh(_s.OperatorDesc, in_place=_INPUT, constraints=_SAME, traits=_COSTLY):
    """y = cosh(x)."""

    input_tensor: TensorDesc | None = _s.input_tensor(_s.FLOATS)
    output_tensor: TensorDesc | None = _s.output_tensor(_s.FLOATS)
    scale_bias: _s.ScaleBias | None = _s.scale_bias()


class ElementWiseDifferenceSquare(_s.OperatorDesc, in_place=_A_OR_B, constraints=_SAME, traits=_POINTWISE):
    """y = (a - b)^2."""

    a_tensor: TensorDesc | None = _s.input_tensor(_WIDE)
    b_tensor: TensorDesc | None = _s.input_tensor(_WIDE)
    output_tensor: TensorDesc | None = _s.output_tensor(_WIDE)


class ElementWiseDivide(_s.OperatorDesc, in_place=_A_OR_B, constraints=_SAME, traits=_POINTWISE):
    """y = a / b. Integers round toward zero.

    The specification leaves two integer cases open: division by 0 gives 0, and the least integer divided by -1, whose
    quotient does not fit, gives itself. Both are what numpy gives.
    """

    a_tensor: TensorDesc | None = _s.input_tensor(_s.NUMERIC)
    b_tensor: TensorDesc | None = _s.input_tensor(_s.NUMERIC)
    output_tensor: TensorDesc | None = _s.output_tensor(_s.NUMERIC)


class ElementWiseErf(_s.OperatorDesc, in_place=_INPUT, constraints=_SAME, traits=_COSTLY):
    """y = erf(x), the error function."""

    input_tensor: TensorDesc | None = _s.input_tensor(_s.FLOATS)
    output_tensor: TensorDesc | None = _s.output_tensor(_s.FLOATS)
    scale_bias: _s.ScaleBias | None = _s.scale_bias()


class ElementWiseExp(_s.OperatorDesc, in_place=_INPUT, constraints=_SAME, traits=_POINTWISE):
    """y = e^x."""

    input_tensor: TensorDesc | None = _s.input_tensor(_s.FLOATS)
    output_tensor: TensorDesc | None = _s.output_tensor(_s.FLOATS)
    scale_bias: _s.ScaleBias | None = _s.scale_bias()


class ElementWiseFloor(_s.OperatorDesc, in_place=_INPUT, constraints=_SAME, traits=_JUMPS):
    """y = the greatest integer not above x."""

    input_tensor: TensorDesc | None = _s.input_tensor(_s.FLOATS)
    output_tensor: TensorDesc | None = _s.output_tensor(_s.FLOATS)
    scale_bias: _s.ScaleBias | None = _s.scale_bias()


class ElementWiseIf(
    _s.OperatorDesc,
    constraints=(
        _c.same_data_type("a_tensor", "b_tensor", "output_tensor"),
        _c.same_dimension_count(),
        _c.same_sizes(),
    ),
    traits=_s.Traits(strided=True, separable=_s.everywhere),
):
    """y = a where the condition is not 0, else b, bit for bit."""

    condition_tensor: TensorDesc | None = _s.input_tensor((_T.UINT8,))
    a_tensor: TensorDesc | None = _s.input_tensor((_T.FLOAT64, *_s.NUMERIC))
    b_tensor: TensorDesc | None = _s.input_tensor((_T.FLOAT64, *_s.NUMERIC))
    output_tensor: TensorDesc | None = _s.output_tensor((_T.FLOAT64, *_s.NUMERIC))


class ElementWiseLog(_s.OperatorDesc, in_place=_INPUT, constraints=_SAME, traits=_COSTLY):
    """y = ln(x): -infinity at 0, NaN below."""

    input_tensor: TensorDesc | None = _s.input_tensor(_s.FLOATS)
    output_tensor: TensorDesc | None = _s.output_tensor(_s.FLOATS)
    scale_bias: _s.ScaleBias | None = _s.scale_bias()


class ElementWiseMax(_s.OperatorDesc, in_place=_A_OR_B, constraints=_SAME, traits=_POINTWISE):
    """y = max(a, b); NaN where either is NaN, on which the specification is silent."""

    a_tensor: TensorDesc | None = _s.input_tensor(_s.NUMERIC)
    b_tensor: TensorDesc | None = _s.input_tensor(_s.NUMERIC)
    output_tensor: TensorDesc | None = _s.output_tensor(_s.NUMERIC)


class ElementWiseMean(_s.OperatorDesc, in_place=_A_OR_B, constraints=_SAME, traits=_POINTWISE):
    """y = (a + b) / 2, the sum never overflowing.

    The specification does not say how integers round; a half goes toward zero, as in ``ElementWiseDivide`` and in C.
    """

    a_tensor: TensorDesc | None = _s.input_tensor(_WIDE)
    b_tensor: TensorDesc | None = _s.input_tensor(_WIDE)
    output_tensor: TensorDesc | None = _s.output_tensor(_WIDE)


class ElementWiseMin(_s.OperatorDesc, in_place=_A_OR_B, constraints=_SAME, traits=_POINTWISE):
    """y = min(a, b); NaN where either is NaN, on which the specification is silent."""

    a_tensor: TensorDesc | None = _s.input_tensor(_s.NUMERIC)
    b_tensor: TensorDesc | None = _s.input_tensor(_s.NUMERIC)
    output_tensor: TensorDesc | None = _s.output_tensor(_s.NUMERIC)


class ElementWiseModulusFloor(_s.OperatorDesc, in_place=_A_OR_B, constraints=_SAME, traits=_JUMPS):
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


class ElementWiseModulusTruncate(_s.OperatorDesc, in_place=_A_OR_B, constraints=_SAME, traits=_JUMPS):
    """y = a - b * trunc(a / b): C's modulus, whose sign is the dividend's.

    Float results are exact however large a / b is. What the specification leaves open follows C and numpy's ``fmod``:
    NaN where b is 0 or a is infinite, a where b is infinite; integers give 0 where b is 0.
    """

    a_tensor: TensorDesc | None = _s.input_tensor(_s.NUMERIC)
    b_tensor: TensorDesc | None = _s.input_tensor(_s.NUMERIC)
    output_tensor: TensorDesc | None = _s.output_tensor(_s.NUMERIC)


class ElementWiseMultiply(_s.OperatorDesc, in_place=_A_OR_B, constraints=_SAME, traits=_POINTWISE):
    """y = a * b."""

    a_tensor: TensorDesc | None = _s.input_tensor(_s.NUMERIC)
    b_tensor: TensorDesc | None = _s.input_tensor(_s.NUMERIC)
    output_tensor: TensorDesc | None = _s.output_tensor(_s.NUMERIC)


class ElementWiseNegate(_s.OperatorDesc, in_place=_INPUT, constraints=_SAME, traits=_POINTWISE):
    """y = -x. The least integer has no positive counterpart and stays itself."""

    input_tensor: TensorDesc | None = _s.input_tensor(_SIGNED)
    output_tensor: TensorDesc | None = _s.output_tensor(_SIGNED)


@_c.constraint("double_exponent", "the exponent of a FLOAT64 input, and of no other, must be FLOAT64")
def _double_exponent(desc: _s.OperatorDesc) -> _s.Violation | None:
    found, base = desc.tensor("exponent_tensor").data_type, desc.tensor("input_tensor").data_type
    return _s.Violation("exponent_tensor", found) if _T.FLOAT64 in (found, base) and found != base else None


class ElementWisePow(
    _s.OperatorDesc,
    in_place=("input_tensor", "exponent_tensor"),
    constraints=(
        _c.same_data_type("input_tensor", "output_tensor"),
        _double_exponent,
        _c.same_dimension_count(),
        _c.same_sizes(),
    ),
    traits=_s.Traits(strided=True, costly=True, beyond=_s.DOUBLE, separable=_s.everywhere),
):
    """y = x^e, in the type of x; e may have another type. 0^0 is 1.

    - float x: as C's ``pow``. An integer e is exact up to 2^24 and rounded to a float beyond, but for its parity, which
      gives the sign.
    - integer x and whole e, be e's type integer or float: the power's low bits. For e < 0 the specification is silent
      and numpy refuses: we take the quotient 1 / x^-e toward zero, which is 1 for x = 1, 1 or -1 for x = -1, else 0;
      so is 0^e, as the quotient by 0 is in ``ElementWiseDivide``.
    - integer x and a float e that is not whole: the float32 power, toward zero and clamped to the type, NaN to 0.
    """

    input_tensor: TensorDesc | None = _s.input_tensor(_TO_32_BITS)
    exponent_tensor: TensorDesc | None = _s.input_tensor(_TO_32_BITS)
    output_tensor: TensorDesc | None = _s.output_tensor(_TO_32_BITS)
    scale_bias: _s.ScaleBias | None = _s.scale_bias()


class ElementWiseRecip(_s.OperatorDesc, in_place=_INPUT, constraints=_SAME, traits=_POINTWISE):
    """y = 1 / x."""

    input_tensor: TensorDesc | None = _s.input_tensor(_s.FLOATS)
    output_tensor: TensorDesc | None = _s.output_tensor(_s.FLOATS)
    scale_bias: _s.ScaleBias | None = _s.scale_bias()


class ElementWiseRound(_s.OperatorDesc, in_place=_INPUT, constraints=_SAME, traits=_JUMPS):
    """y = x as an integer, by the mode: the nearest and of two the even one (HALVES_TO_NEAREST_EVEN), the nearest and of two
    the one away from 0 (TOWARD_INFINITY), or the next one toward 0 (TOWARD_ZERO). A zero result has the sign of x."""

    input_tensor: TensorDesc | None = _s.input_tensor(_s.FLOATS)
    output_tensor: TensorDesc | None = _s.output_tensor(_s.FLOATS)
    rounding_mode: _RoundingMode = _s.enumeration(_RoundingMode, _RoundingMode.HALVES_TO_NEAREST_EVEN)


class ElementWiseSign(_s.OperatorDesc, in_place=_INPUT, constraints=_SAME, traits=_JUMPS):
    """y = 1 where x > 0, -1 where x < 0, 0 otherwise: for 0, -0 and, as the formula says, NaN."""

    input_tensor: TensorDesc | None = _s.input_tensor(_s.NUMERIC)
    output_tensor: TensorDesc | None = _s.output_tensor(_s.NUMERIC)


class ElementWiseSin(_s.OperatorDesc, in_place=_INPUT, constraints=_SAME, traits=_COSTLY):
    """y = sin(x), x in radians of any size: NaN for the infinities."""

    input_tensor: TensorDesc | None = _s.input_tensor(_s.FLOATS)
    output_tensor: TensorDesc | None = _s.output_tensor(_s.FLOATS)
    scale_bias: _s.ScaleBias | None = _s.scale_bias()


class ElementWiseSinh(_s.OperatorDesc, in_place=_INPUT, constraints=_SAME, traits=_COSTLY):
    """y = sinh(x)."""

    input_tensor: TensorDesc | None = _s.input_tensor(_s.FLOATS)
    output_tensor: TensorDesc | None = _s.output_tensor(_s.FLOATS)
    scale_bias: _s.ScaleBias | None = _s.scale_bias()


class ElementWiseSqrt(_s.OperatorDesc, in_place=_INPUT, constraints=_SAME, traits=_POINTWISE):
    """y = sqrt(x): NaN below 0."""

    input_tensor: TensorDesc | None = _s.input_tensor(_s.FLOATS)
    output_tensor: TensorDesc | None = _s.output_tensor(_s.FLOATS)
    scale_bias: _s.ScaleBias | None = _s.scale_bias()


class ElementWiseSubtract(_s.OperatorDesc, in_place=_A_OR_B, constraints=_SAME, traits=_POINTWISE):
    """y = a - b."""

    a_tensor: TensorDesc | None = _s.input_tensor(_s.NUMERIC)
    b_tensor: TensorDesc | None = _s.input_tensor(_s.NUMERIC)
    output_tensor: TensorDesc | None = _s.output_tensor(_s.NUMERIC)


class ElementWiseTan(_s.OperatorDesc, in_place=_INPUT, constraints=_SAME, traits=_COSTLY):
    """y = tan(x), x in radians of any size: NaN for the infinities."""

    input_tensor: TensorDesc | None = _s.input_tensor(_s.FLOATS)
    output_tensor: TensorDesc | None = _s.output_tensor(_s.FLOATS)
    scale_bias: _s.ScaleBias | None = _s.scale_bias()


class ElementWiseTanh(_s.OperatorDesc, in_place=_INPUT, constraints=_SAME, traits=_COSTLY):
    """y = tanh(x)."""

    input_tensor: TensorDesc | None = _s.input_tensor(_s.FLOATS)
    output_tensor: TensorDesc | None = _s.output_tensor(_s.FLOATS)
    scale_bias: _s.ScaleBias | None = _s.scale_bias()


class ElementWiseThreshold(_s.OperatorDesc, in_place=_INPUT, constraints=_SAME, traits=_POINTWISE):
    """y = max(x, min), the bound cast to the tensor's type: toward zero and clamped for integers. NaN stays NaN."""

    input_tensor: TensorDesc | None = _s.input_tensor(_TO_32_BITS)
    output_tensor: TensorDesc | None = _s.output_tensor(_TO_32_BITS)
    scale_bias: _s.ScaleBias | None = _s.scale_bias()
    min: float = _s.floating()


@_c.constraint("bias_per_channel", "bias must have one number for each channel, and there must be 1 or 3 channels")
def _bias_per_channel(desc: "ValueScale2d") -> _s.Violation | None:
    channels = desc.tensor("input_tensor").sizes[1]
    return None if channels in (1, 3) and len(desc.bias) == channels else _s.Violation("bias", desc.bias)


class ValueScale2d(
    _s.OperatorDesc,
    constraints=(_c.same_data_type(), _c.same_sizes(), _bias_per_channel),
    traits=_s.Traits(separable=_s.along(0, 2, 3)),
):
    """y[n, c, h, w] = scale * x[n, c, h, w] + bias[c], for images of 1 or 3 channels."""

    input_tensor: TensorDesc | None = _s.input_tensor(_s.FLOATS, (4, 4))
    output_tensor: TensorDesc | None = _s.output_tensor(_s.FLOATS, (4, 4))
    scale: float = _s.floating(1.0)
    bias: tuple[float, ...] = _s.float_array()
