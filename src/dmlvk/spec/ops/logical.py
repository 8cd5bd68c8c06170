"""Logic, comparisons, predicates and bits, element for element; broadcasting is a stride of 0.

True is 1 and false is 0. Logic takes every number but 0 for true. The bit operators see the raw bits of an element,
whatever its type; a type only says how many there are.
"""

from dmlvk.spec import constraints as _c
from dmlvk.spec import schema as _s
from dmlvk.spec.enums import IsInfinityMode as _IsInfinityMode
from dmlvk.spec.enums import TensorDataType as _T
from dmlvk.spec.tensor import TensorDesc

_SAME = (_c.same_data_type(), _c.same_dimension_count(), _c.same_sizes())
_SAME_SIZES = (_c.same_dimension_count(), _c.same_sizes())
_COMPARED = (_c.same_data_type("a_tensor", "b_tensor"), *_SAME_SIZES)
_TRUTH = (_T.UINT32, _T.UINT8)
_BITS = (_T.FLOAT64, *_s.NUMERIC)
_INPUT = ("input_tensor",)
_A_OR_B = ("a_tensor", "b_tensor")
_POINTWISE = _s.Traits(pointwise=True, beyond=_s.DOUBLE)
_JUMPS = _s.Traits(pointwise=True, discontinuous=True, beyond=_s.DOUBLE)


class ElementWiseLogicalAnd(_s.OperatorDesc, in_place=_A_OR_B, constraints=_SAME, traits=_POINTWISE):
    """y = 1 where neither a nor b is 0, else 0."""

    a_tensor: TensorDesc | None = _s.input_tensor(_TRUTH)
    b_tensor: TensorDesc | None = _s.input_tensor(_TRUTH)
    output_tensor: TensorDesc | None = _s.output_tensor(_TRUTH)


class ElementWiseLogicalOr(_s.OperatorDesc, in_place=_A_OR_B, constraints=_SAME, traits=_POINTWISE):
    """y = 1 where a or b is not 0, else 0."""

    a_tensor: TensorDesc | None = _s.input_tensor(_TRUTH)
    b_tensor: TensorDesc | None = _s.input_tensor(_TRUTH)
    output_tensor: TensorDesc | None = _s.output_tensor(_TRUTH)


class ElementWiseLogicalXor(_s.OperatorDesc, in_place=_A_OR_B, constraints=_SAME, traits=_POINTWISE):
    """y = 1 where one of a and b is 0 and the other is not, else 0."""

    a_tensor: TensorDesc | None = _s.input_tensor(_TRUTH)
    b_tensor: TensorDesc | None = _s.input_tensor(_TRUTH)
    output_tensor: TensorDesc | None = _s.output_tensor(_TRUTH)


class ElementWiseLogicalNot(_s.OperatorDesc, in_place=_INPUT, constraints=_SAME, traits=_POINTWISE):
    """y = 1 where x is 0, else 0."""

    input_tensor: TensorDesc | None = _s.input_tensor(_TRUTH)
    output_tensor: TensorDesc | None = _s.output_tensor(_TRUTH)


class ElementWiseLogicalEquals(_s.OperatorDesc, constraints=_COMPARED, traits=_JUMPS):
    """y = 1 where a = b, else 0. 0 equals -0, and NaN nothing."""

    a_tensor: TensorDesc | None = _s.input_tensor(_s.NUMERIC)
    b_tensor: TensorDesc | None = _s.input_tensor(_s.NUMERIC)
    output_tensor: TensorDesc | None = _s.output_tensor(_TRUTH)


class ElementWiseLogicalGreaterThan(_s.OperatorDesc, constraints=_COMPARED, traits=_JUMPS):
    """y = 1 where a > b, else 0; 0 where either is NaN."""

    a_tensor: TensorDesc | None = _s.input_tensor(_s.NUMERIC)
    b_tensor: TensorDesc | None = _s.input_tensor(_s.NUMERIC)
    output_tensor: TensorDesc | None = _s.output_tensor(_TRUTH)


class ElementWiseLogicalLessThan(_s.OperatorDesc, constraints=_COMPARED, traits=_JUMPS):
    """y = 1 where a < b, else 0; 0 where either is NaN."""

    a_tensor: TensorDesc | None = _s.input_tensor(_s.NUMERIC)
    b_tensor: TensorDesc | None = _s.input_tensor(_s.NUMERIC)
    output_tensor: TensorDesc | None = _s.output_tensor(_TRUTH)


class ElementWiseLogicalGreaterThanOrEqual(_s.OperatorDesc, constraints=_COMPARED, traits=_JUMPS):
    """y = 1 where a >= b, else 0; 0 where either is NaN."""

    a_tensor: TensorDesc | None = _s.input_tensor(_s.NUMERIC)
    b_tensor: TensorDesc | None = _s.input_tensor(_s.NUMERIC)
    output_tensor: TensorDesc | None = _s.output_tensor(_TRUTH)


class ElementWiseLogicalLessThanOrEqual(_s.OperatorDesc, constraints=_COMPARED, traits=_JUMPS):
    """y = 1 where a <= b, else 0; 0 where either is NaN."""

    a_tensor: TensorDesc | None = _s.input_tensor(_s.NUMERIC)
    b_tensor: TensorDesc | None = _s.input_tensor(_s.NUMERIC)
    output_tensor: TensorDesc | None = _s.output_tensor(_TRUTH)


class ElementWiseIsNan(_s.OperatorDesc, constraints=_SAME_SIZES, traits=_JUMPS):
    """y = 1 where x is NaN, else 0."""

    input_tensor: TensorDesc | None = _s.input_tensor(_s.FLOATS)
    output_tensor: TensorDesc | None = _s.output_tensor(_TRUTH)


class ElementWiseIsInfinity(_s.OperatorDesc, constraints=_SAME_SIZES, traits=_JUMPS):
    """y = 1 where x is infinite and of a sign that ``infinity_mode`` accepts, else 0.

    Input and output never have one type, so they never share a range.
    """

    input_tensor: TensorDesc | None = _s.input_tensor(_s.FLOATS)
    output_tensor: TensorDesc | None = _s.output_tensor((_T.UINT8,))
    infinity_mode: _IsInfinityMode = _s.enumeration(_IsInfinityMode, _IsInfinityMode.EITHER)


class ElementWiseBitAnd(_s.OperatorDesc, in_place=_A_OR_B, constraints=_SAME, traits=_POINTWISE):
    """y = a & b, bit by bit."""

    a_tensor: TensorDesc | None = _s.input_tensor(_BITS)
    b_tensor: TensorDesc | None = _s.input_tensor(_BITS)
    output_tensor: TensorDesc | None = _s.output_tensor(_BITS)


class ElementWiseBitOr(_s.OperatorDesc, in_place=_A_OR_B, constraints=_SAME, traits=_POINTWISE):
    """y = a | b, bit by bit."""

    a_tensor: TensorDesc | None = _s.input_tensor(_BITS)
    b_tensor: TensorDesc | None = _s.input_tensor(_BITS)
    output_tensor: TensorDesc | None = _s.output_tensor(_BITS)


class ElementWiseBitXor(_s.OperatorDesc, in_place=_A_OR_B, constraints=_SAME, traits=_POINTWISE):
    """y = a ^ b, bit by bit."""

    a_tensor: TensorDesc | None = _s.input_tensor(_BITS)
    b_tensor: TensorDesc | None = _s.input_tensor(_BITS)
    output_tensor: TensorDesc | None = _s.output_tensor(_BITS)


class ElementWiseBitNot(_s.OperatorDesc, in_place=_INPUT, constraints=_SAME, traits=_POINTWISE):
    """y = ~x, bit by bit."""

    input_tensor: TensorDesc | None = _s.input_tensor(_BITS)
    output_tensor: TensorDesc | None = _s.output_tensor(_BITS)


class ElementWiseBitShiftLeft(_s.OperatorDesc, in_place=_A_OR_B, constraints=_SAME, traits=_POINTWISE):
    """y = a << b, zeros entering from the right. The specification leaves shifts by the type's width or more open: they
    push every bit out and give 0, as numpy's do."""

    a_tensor: TensorDesc | None = _s.input_tensor(_s.UNSIGNED)
    b_tensor: TensorDesc | None = _s.input_tensor(_s.UNSIGNED)
    output_tensor: TensorDesc | None = _s.output_tensor(_s.UNSIGNED)


class ElementWiseBitShiftRight(_s.OperatorDesc, in_place=_A_OR_B, constraints=_SAME, traits=_POINTWISE):
    """y = a >> b, zeros entering from the left. Shifts by the type's width or more give 0, as in
    ``ElementWiseBitShiftLeft``."""

    a_tensor: TensorDesc | None = _s.input_tensor(_s.UNSIGNED)
    b_tensor: TensorDesc | None = _s.input_tensor(_s.UNSIGNED)
    output_tensor: TensorDesc | None = _s.output_tensor(_s.UNSIGNED)


class ElementWiseBitCount(_s.OperatorDesc, constraints=_SAME_SIZES, traits=_POINTWISE):
    """y = the number of ones among the bits of x."""

    input_tensor: TensorDesc | None = _s.input_tensor(_BITS)
    output_tensor: TensorDesc | None = _s.output_tensor(_TRUTH)
