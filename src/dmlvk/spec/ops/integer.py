"""Products of integer and quantized tensors: real = (integer - zero point) * scale.

What the rows share, where the specification is silent:

- A zero point that is absent is 0. Differences, products and their sums are exact integers. Of 8-bit tensors the sum has
  32 bits and wraps beyond them, which takes more than 33,025 terms of the largest magnitude.
- Requantization is ONNX Runtime's, the same bits: y = clamp(rint(sum * multiplier) + output zero point), where
  multiplier = (left scale * right scale) / output scale. The sum, the product of the scales, the quotient and the scaled
  sum are each rounded to float32, on every device alike, and halves to even. NaN counts as 0.
- A scale of 0 is undefined in the specification: here a quotient by 0 is infinite, and 0 / 0 is NaN. A float32 subnormal
  may count as 0.
"""

from __future__ import annotations

from collections.abc import Sequence

from dmlvk.spec import constraints as _c
from dmlvk.spec import schema as _s
from dmlvk.spec.enums import TensorDataType as _T
from dmlvk.spec.ops.convolution import GEOMETRY as _GEOMETRY
from dmlvk.spec.ops.convolution import Convolution as _Convolution
from dmlvk.spec.ops.convolution import bias_sizes as _bias_sizes
from dmlvk.spec.ops.convolution import sum_flops as _sum_flops
from dmlvk.spec.tensor import TensorDesc

__all__ = [
    "ConvolutionInteger",
    "MatrixMultiplyInteger",
    "MatrixMultiplyIntegerToFloat",
    "QuantizedLinearConvolution",
    "QuantizedLinearMatrixMultiply",
]

_BYTES = (_T.INT8, _T.UINT8)
_INTEGERS = (_T.INT32, _T.INT16, _T.INT8, _T.UINT32, _T.UINT16, _T.UINT8)
_REAL = (_T.FLOAT32,)
_SIDES = ("scale_tensor", "zero_point_tensor")

# -- matrix products


def _product_sizes(desc: _s.OperatorDesc) -> tuple[int, ...]:
    a, b = desc.tensor("a_tensor").sizes, desc.tensor("b_tensor").sizes
    return (*a[:-1], b[-1])


@_c.constraint("inner_sizes", "must have as many rows as a_tensor has columns, and the same leading sizes")
def _inner_sizes(desc: _s.OperatorDesc) -> _s.Violation | None:
    a, b = desc.tensor("a_tensor").sizes, desc.tensor("b_tensor").sizes
    good = a[-1] == b[-2] and a[:-2] == b[:-2]
    return None if good else _s.Violation("b_tensor", b, (*a[:-2], a[-1], b[-1]))


def _one_or_each(operand: str, part: str, dimension: int) -> _s.Constraint:
    """Scale and zero point of an operand hold one element, or one an index of the output's dimension -2 or -1."""

    @_c.constraint(
        f"{operand}_parameters", f"scale and zero point of {operand} must hold one element, or one for each {part}"
    )
    def check(desc: _s.OperatorDesc) -> _s.Violation | None:
        each = [1, 1, 1, 1]
        each[dimension] = _product_sizes(desc)[dimension]
        for name in (f"{operand}_{side}" for side in _SIDES):
            tensor = getattr(desc, name, None)
            if tensor is not None and tensor.element_count != 1:
                found = [1] * (4 - tensor.dimension_count) + list(tensor.sizes)
                if found != each:
                    return _s.Violation(name, tensor.sizes)
        return None

    return check


_PRODUCT = (
    _c.same_dimension_count("a_tensor", "b_tensor", "bias_tensor", "output_tensor"),
    _inner_sizes,
    _c.same_data_type("a_tensor", "a_zero_point_tensor"),
    _c.same_data_type("b_tensor", "b_zero_point_tensor"),
    _one_or_each("a", "row", -2),
    _one_or_each("b", "column", -1),
    _c.output_sizes_match(),
)


def _product_flops(desc: _s.OperatorDesc) -> int:
    return 2 * desc.tensor("a_tensor").sizes[-1] * desc.tensor("output_tensor").element_count


class MatrixMultiplyInteger(_s.OperatorDesc, constraints=_PRODUCT):
    """y = (A - A's zero point) (B - B's zero point), in 32-bit integers, for each leading index.

    A is {..., M, K}, B {..., K, N} and y {..., M, N}. A zero point holds one element, or one a row of A, {..., M, 1}, or a
    column of B, {..., 1, N}; its leading sizes are 1.
    """

    a_tensor: TensorDesc | None = _s.input_tensor(_BYTES, (2, 4))
    a_zero_point_tensor: TensorDesc | None = _s.input_tensor(_BYTES, (1, 4), optional=True)
    b_tensor: TensorDesc | None = _s.input_tensor(_BYTES, (2, 4))
    b_zero_point_tensor: TensorDesc | None = _s.input_tensor(_BYTES, (1, 4), optional=True)
    output_tensor: TensorDesc | None = _s.output_tensor((_T.INT32,), (2, 4))

    def inferred_output_sizes(self) -> tuple[tuple[int, ...], ...]:
        return (_product_sizes(self),)

    def flops(self) -> int:
        return _product_flops(self)


class QuantizedLinearMatrixMultiply(
    _s.OperatorDesc,
    constraints=(
        *_PRODUCT,
        _c.same_data_type("output_tensor", "output_zero_point_tensor"),
        _one_or_each("output", "row", -2),
    ),
):
    """The product of two quantized matrices, quantized: y = clamp(rint(sum * multiplier) + output zero point), the sum being
    ``MatrixMultiplyInteger``'s and multiplier = (A's scale * B's scale) / output scale.

    Scales and zero points of A and the output hold one element, or one a row, {..., M, 1}; those of B one, or one a column,
    {..., 1, N}.
    """

    a_tensor: TensorDesc | None = _s.input_tensor(_BYTES, (2, 4))
    a_scale_tensor: TensorDesc | None = _s.input_tensor(_REAL, (1, 4))
    a_zero_point_tensor: TensorDesc | None = _s.input_tensor(_BYTES, (1, 4), optional=True)
    b_tensor: TensorDesc | None = _s.input_tensor(_BYTES, (2, 4))
    b_scale_tensor: TensorDesc | None = _s.input_tensor(_REAL, (1, 4))
    b_zero_point_tensor: TensorDesc | None = _s.input_tensor(_BYTES, (1, 4), optional=True)
    output_scale_tensor: TensorDesc | None = _s.input_tensor(_REAL, (1, 4))
    output_zero_point_tensor: TensorDesc | None = _s.input_tensor(_BYTES, (1, 4), optional=True)
    output_tensor: TensorDesc | None = _s.output_tensor(_BYTES, (2, 4))

    def inferred_output_sizes(self) -> tuple[tuple[int, ...], ...]:
        return (_product_sizes(self),)

    def flops(self) -> int:
        return _product_flops(self)


@_c.constraint("operand_types", "a_tensor and b_tensor must have the same data type, or both have 8 bits")
def _operand_types(desc: _s.OperatorDesc) -> _s.Violation | None:
    a, b = desc.tensor("a_tensor").data_type, desc.tensor("b_tensor").data_type
    return None if a == b or (a in _BYTES and b in _BYTES) else _s.Violation("b_tensor", b.name)


class MatrixMultiplyIntegerToFloat(
    _s.OperatorDesc,
    constraints=(
        *_PRODUCT,
        _operand_types,
        _c.same_data_type("a_scale_tensor", "b_scale_tensor", "bias_tensor", "output_tensor"),
        _c.same_dimension_count("a_scale_tensor", "a_zero_point_tensor", "b_scale_tensor", "b_zero_point_tensor"),
        _c.same_sizes("bias_tensor", "output_tensor"),
    ),
):
    """y = sum * (A's scale * B's scale) + bias, a real number, the sum being that of (a - A's zero point) *
    (b - B's zero point).

    Sizes are those of ``MatrixMultiplyInteger``; the bias has the output's, fewer by zero strides. A and B may be INT8 and
    UINT8 in either order, as ONNX Runtime has it. Sums of 8-bit integers are exact up to 33,025 terms, and rounded to
    float32 once. Longer ones are exact in blocks and then summed in float32, as those of wider integers are throughout,
    from differences that are rounded to it.
    """

    a_tensor: TensorDesc | None = _s.input_tensor(_INTEGERS, (2, 4))
    a_scale_tensor: TensorDesc | None = _s.input_tensor(_s.FLOATS, (1, 4))
    a_zero_point_tensor: TensorDesc | None = _s.input_tensor(_INTEGERS, (1, 4), optional=True)
    b_tensor: TensorDesc | None = _s.input_tensor(_INTEGERS, (2, 4))
    b_scale_tensor: TensorDesc | None = _s.input_tensor(_s.FLOATS, (1, 4))
    b_zero_point_tensor: TensorDesc | None = _s.input_tensor(_INTEGERS, (1, 4), optional=True)
    bias_tensor: TensorDesc | None = _s.input_tensor(_s.FLOATS, (2, 4), optional=True)
    output_tensor: TensorDesc | None = _s.output_tensor(_s.FLOATS, (2, 4))

    def inferred_output_sizes(self) -> tuple[tuple[int, ...], ...]:
        return (_product_sizes(self),)

    def flops(self) -> int:
        return _product_flops(self)


# -- convolutions


def _as_convolution(desc: _s.OperatorDesc) -> _Convolution:
    """The ``Convolution`` of the same geometry: direction FORWARD, mode CROSS_CORRELATION, no output padding."""
    shared = ("input_tensor", "filter_tensor", "output_tensor", "strides", "dilations", "start_padding", "end_padding")
    return _Convolution(
        **{name: getattr(desc, name) for name in (*shared, "group_count")},
        bias_tensor=getattr(desc, "bias_tensor", None),
        output_padding=(0,) * (desc.tensor("input_tensor").dimension_count - 2),
    )


def _of_convolution(rule: _s.Constraint) -> _s.Constraint:
    """A rule of ``Convolution`` for the rows here."""
    return _s.Constraint(rule.label, rule.rule, lambda desc: rule.check(_as_convolution(desc)))


_RULES = tuple(map(_of_convolution, _GEOMETRY))


def _convolved_sizes(desc: _s.OperatorDesc) -> tuple[tuple[int, ...], ...]:
    for rule in _RULES[:-1]:
        violation = rule.check(desc)
        if violation is not None:
            raise desc.broken(rule, violation)
    return _as_convolution(desc).inferred_output_sizes()


@_c.constraint("one_element", "scales and zero points of the input and the output must hold one element")
def _one_element(desc: _s.OperatorDesc) -> _s.Violation | None:
    for name in (f"{tensor}_{side}" for tensor in ("input", "output") for side in _SIDES):
        tensor = getattr(desc, name, None)
        if tensor is not None and tensor.element_count != 1:
            return _s.Violation(name, tensor.sizes)
    return None


@_c.constraint(
    "filter_parameters",
    "the filter's scale and zero point must hold one element, or one for each channel: {1, OutC, 1, ...}",
)
def _filter_parameters(desc: _s.OperatorDesc) -> _s.Violation | None:
    channels = desc.tensor("filter_tensor").sizes[0]
    for name in (f"filter_{side}" for side in _SIDES):
        tensor = getattr(desc, name, None)
        if tensor is None or tensor.element_count == 1:
            continue
        if tensor.sizes != (1, channels, *(1,) * (tensor.dimension_count - 2)):
            return _s.Violation(name, tensor.sizes)
    return None


_CONVOLUTION = (
    _c.same_dimension_count("input_tensor", "filter_tensor", "bias_tensor", "output_tensor"),
    _c.same_data_type("input_tensor", "input_zero_point_tensor"),
    _c.same_data_type("filter_tensor", "filter_zero_point_tensor"),
    *_RULES,
    _one_element,
    _filter_parameters,
)


class ConvolutionInteger(_s.OperatorDesc, constraints=_CONVOLUTION):
    """y[n, k, o] = sum over c of k's group and taps t of (x[n, c, o * stride + t * dilation - start] - input zero point) *
    (w[k, c, t] - filter zero point), in 32-bit integers, over 1 or 2 spatial dimensions.

    The filter is {OutC, InC / GroupCount, window}. Outside the input x is the zero point, so that padding adds nothing. The
    input's zero point holds one element, the filter's one, or one an output channel, {1, OutC, 1, ...}.
    """

    input_tensor: TensorDesc | None = _s.input_tensor(_BYTES, (3, 4))
    input_zero_point_tensor: TensorDesc | None = _s.input_tensor(_BYTES, (1, 4), optional=True)
    filter_tensor: TensorDesc | None = _s.input_tensor(_BYTES, (3, 4))
    filter_zero_point_tensor: TensorDesc | None = _s.input_tensor(_BYTES, (1, 4), optional=True)
    output_tensor: TensorDesc | None = _s.output_tensor((_T.INT32,), (3, 4))
    strides: tuple[int, ...] = _s.uint_array()
    dilations: tuple[int, ...] = _s.uint_array()
    start_padding: tuple[int, ...] = _s.uint_array()
    end_padding: tuple[int, ...] = _s.uint_array()
    group_count: int = _s.uint(1)

    def cuts(self) -> Sequence[_s.Cut]:
        """By images."""
        return [_s.Cut({"input_tensor": 0, "output_tensor": 0})]

    def inferred_output_sizes(self) -> tuple[tuple[int, ...], ...]:
        return _convolved_sizes(self)

    def flops(self) -> int:
        return _sum_flops(self.tensor("output_tensor"), self.tensor("filter_tensor"))


class QuantizedLinearConvolution(
    _s.OperatorDesc,
    constraints=(
        *_CONVOLUTION,
        _of_convolution(_bias_sizes),
        _c.same_data_type("output_tensor", "output_zero_point_tensor"),
    ),
):
    """The convolution of a quantized tensor with a quantized filter, quantized:
    y = clamp(rint((sum + bias[k]) * multiplier) + output zero point), the sum being ``ConvolutionInteger``'s and
    multiplier = (input scale * filter scale) / output scale.

    The bias, {1, OutC, 1, ...}, is a number of units of input scale * filter scale, as in ONNX. Scales and zero points of
    the input and the output hold one element, those of the filter one, or one an output channel, {1, OutC, 1, ...}.
    """

    input_tensor: TensorDesc | None = _s.input_tensor(_BYTES, (3, 4))
    input_scale_tensor: TensorDesc | None = _s.input_tensor(_REAL, (1, 4))
    input_zero_point_tensor: TensorDesc | None = _s.input_tensor(_BYTES, (1, 4), optional=True)
    filter_tensor: TensorDesc | None = _s.input_tensor(_BYTES, (3, 4))
    filter_scale_tensor: TensorDesc | None = _s.input_tensor(_REAL, (1, 4))
    filter_zero_point_tensor: TensorDesc | None = _s.input_tensor(_BYTES, (1, 4), optional=True)
    bias_tensor: TensorDesc | None = _s.input_tensor((_T.INT32,), (3, 4), optional=True)
    output_scale_tensor: TensorDesc | None = _s.input_tensor(_REAL, (1, 4))
    output_zero_point_tensor: TensorDesc | None = _s.input_tensor(_BYTES, (1, 4), optional=True)
    output_tensor: TensorDesc | None = _s.output_tensor(_BYTES, (3, 4))
    strides: tuple[int, ...] = _s.uint_array()
    dilations: tuple[int, ...] = _s.uint_array()
    start_padding: tuple[int, ...] = _s.uint_array()
    end_padding: tuple[int, ...] = _s.uint_array()
    group_count: int = _s.uint(1)

    def cuts(self) -> Sequence[_s.Cut]:
        """By images."""
        return [_s.Cut({"input_tensor": 0, "output_tensor": 0})]

    def inferred_output_sizes(self) -> tuple[tuple[int, ...], ...]:
        return _convolved_sizes(self)

    def flops(self) -> int:
        return _sum_flops(self.tensor("output_tensor"), self.tensor("filter_tensor"))
