"""Matrix multiplication."""

from __future__ import annotations

from collections.abc import Sequence

from dmlvk.spec import constraints as _c
from dmlvk.spec import schema as _s
from dmlvk.spec.enums import MatrixTransform, OperatorType, TensorDataType
from dmlvk.spec.formats import NumberFormat
from dmlvk.spec.gate import Gate
from dmlvk.spec.ops.normalization import MeanVarianceNormalization2
from dmlvk.spec.ops.root_mean_square import NORMALIZED_RULES, RootMeanSquare, normalization_of
from dmlvk.spec.tensor import TensorDesc

__all__ = ["Gemm"]


_FLOAT32_OR_BITS = (TensorDataType.FLOAT32, TensorDataType.UINT16)


def _transformed(sizes: tuple[int, ...], transform: MatrixTransform) -> tuple[int, int]:
    rows, columns = sizes[-2:]
    return (columns, rows) if transform == MatrixTransform.TRANSPOSE else (rows, columns)


@_c.constraint(
    "inner_sizes", "must have as many rows as a_tensor has columns, after TransA and TransB, and the same leading sizes"
)
def _inner_sizes(desc: Gemm | FormatGemm | GemmGate | GemmNormalization) -> _s.Violation | None:
    a, b = desc.tensor("a_tensor").sizes, desc.tensor("b_tensor").sizes
    matrix = (_transformed(a, desc.trans_a)[1], _transformed(b, desc.trans_b)[1])
    wanted = a[:-2] + _transformed(matrix, desc.trans_b)
    return None if b == wanted else _s.Violation("b_tensor", b, wanted)


def _product_sizes(desc: Gemm | FormatGemm | GemmNormalization) -> tuple[tuple[int, ...], ...]:
    a, b = desc.tensor("a_tensor").sizes, desc.tensor("b_tensor").sizes
    return ((*a[:-2], _transformed(a, desc.trans_a)[0], _transformed(b, desc.trans_b)[1]),)


def _product_cuts(desc: Gemm | FormatGemm | GemmNormalization, *, whole_rows: bool) -> Sequence[_s.Cut]:
    last = desc.tensor("output_tensor").dimension_count - 1
    c = tuple(name for name in ("c_tensor", "addend_tensor", "product_tensor") if getattr(desc, name, None) is not None)
    batches = [dict.fromkeys(("a_tensor", "b_tensor", *c, "output_tensor"), index) for index in range(last - 1)]
    row = {"a_tensor": last - (desc.trans_a == MatrixTransform.NONE), **dict.fromkeys((*c, "output_tensor"), last - 1)}
    column = {"b_tensor": last - (desc.trans_b != MatrixTransform.NONE), **dict.fromkeys((*c, "output_tensor"), last)}
    return [_s.Cut(ways) for ways in (*batches, row, *([] if whole_rows else [column]))]


def _product_flops(desc: Gemm | FormatGemm | GemmNormalization) -> int:
    depth = _transformed(desc.tensor("a_tensor").sizes, desc.trans_a)[1]
    return 2 * depth * desc.tensor("output_tensor").element_count


@_c.constraint("softmax_axes", "the axes of a fused softmax must be the last dimension alone")
def _softmax_axes(desc: Gemm) -> _s.Violation | None:
    axes = getattr(desc.fused_activation, "axes", None)
    last = desc.tensor("output_tensor").dimension_count - 1
    return None if axes is None or axes == (last,) else _s.Violation("fused_activation", axes)


@_c.constraint("double_activation", "FLOAT64 tensors must come without a fused activation")
def _double_activation(desc: Gemm) -> _s.Violation | None:
    given = desc.fused_activation
    is_double = desc.tensor("output_tensor").data_type is TensorDataType.FLOAT64
    return _s.Violation("fused_activation", given) if is_double and given is not None else None


class Gemm(
    _s.OperatorDesc,
    constraints=(
        _c.same_data_type(),
        _c.same_dimension_count(),
        _inner_sizes,
        _c.same_sizes("c_tensor", "output_tensor"),
        _c.output_sizes_match(),
        _softmax_axes,
        _double_activation,
    ),
    accepts=(
        OperatorType.ELEMENT_WISE_CLIP,
        OperatorType.ACTIVATION_SOFTMAX,
        OperatorType.ACTIVATION_SOFTMAX1,
    ),
    traits=_s.Traits(strided=True, beyond=_s.DOUBLE),
):
    """y = activation(alpha * op(A) op(B) + beta * C), for each leading index; op transposes the last two dimensions or
    not. A is {..., M, K}, B {..., K, N} (or their transposes), C and y {..., M, N}; a C of fewer rows, columns or
    matrices is broadcast by zero strides. Without C, beta is ignored.

    Products are summed in float32 for both of DirectML's data types, and in float64 for FLOAT64. A fused softmax, over the
    last dimension, works on the sums as rounded to the tensor's type. No tensor has a size of 0, so K is at least 1.
    """

    a_tensor: TensorDesc | None = _s.input_tensor(_s.FLOATS, (2, 4))
    b_tensor: TensorDesc | None = _s.input_tensor(_s.FLOATS, (2, 4))
    c_tensor: TensorDesc | None = _s.input_tensor(_s.FLOATS, (2, 4), optional=True)
    output_tensor: TensorDesc | None = _s.output_tensor(_s.FLOATS, (2, 4))
    trans_a: MatrixTransform = _s.enumeration(MatrixTransform, MatrixTransform.NONE)
    trans_b: MatrixTransform = _s.enumeration(MatrixTransform, MatrixTransform.NONE)
    alpha: float = _s.floating(1.0)
    beta: float = _s.floating(1.0)
    fused_activation: _s.OperatorDesc | None = _s.fused_activation()

    def inferred_output_sizes(self) -> tuple[tuple[int, ...], ...]:
        return _product_sizes(self)

    def cuts(self) -> Sequence[_s.Cut]:
        """By matrices and by rows; by columns where no softmax needs them together."""
        softmax = (OperatorType.ACTIVATION_SOFTMAX, OperatorType.ACTIVATION_SOFTMAX1)
        whole_rows = self.fused_activation is not None and self.fused_activation.type in softmax
        return _product_cuts(self, whole_rows=whole_rows)

    def flops(self) -> int:
        return _product_flops(self)


@_c.constraint("format", "the format must be BFLOAT16")
def _bfloat16(desc: FormatGemm) -> _s.Violation | None:
    return None if desc.format is NumberFormat.BFLOAT16 else _s.Violation("format", desc.format)


@_c.constraint("type_of_c", "must be of the output's type, or bits")
def _type_of_c(desc: FormatGemm) -> _s.Violation | None:
    c, output = desc.c_tensor, desc.tensor("output_tensor")
    wrong = c is not None and c.data_type not in (output.data_type, TensorDataType.UINT16)
    return _s.Violation("c_tensor", desc.tensor("c_tensor").data_type, output.data_type) if wrong else None


class FormatGemm(
    _s.OperatorDesc,
    internal=True,
    constraints=(
        _bfloat16,
        _c.same_data_type("a_tensor", "b_tensor"),
        _type_of_c,
        _c.same_dimension_count(),
        _inner_sizes,
        _c.same_sizes("c_tensor", "output_tensor"),
        _c.output_sizes_match(),
    ),
    traits=_s.Traits(strided=True),
):
    """y = alpha * op(A) op(B) + beta * C, as ``Gemm`` has it, of factors in a format that no tensor has: their tensors hold
    bits. A row of our own, which a pass makes of products of what casts have widened.

    Products are summed in float32, as those of FLOAT32 are.

    output_tensor: FLOAT32, or of UINT16 the bits of the nearest numbers of the format; so is c_tensor, which may be bits
        beside an output of FLOAT32, too.
    format: BFLOAT16.
    """

    a_tensor: TensorDesc | None = _s.input_tensor((TensorDataType.UINT16,), (2, 4))
    b_tensor: TensorDesc | None = _s.input_tensor((TensorDataType.UINT16,), (2, 4))
    c_tensor: TensorDesc | None = _s.input_tensor(_FLOAT32_OR_BITS, (2, 4), optional=True)
    output_tensor: TensorDesc | None = _s.output_tensor(_FLOAT32_OR_BITS, (2, 4))
    format: NumberFormat = _s.enumeration(NumberFormat, NumberFormat.BFLOAT16)
    trans_a: MatrixTransform = _s.enumeration(MatrixTransform, MatrixTransform.NONE)
    trans_b: MatrixTransform = _s.enumeration(MatrixTransform, MatrixTransform.NONE)
    alpha: float = _s.floating(1.0)
    beta: float = _s.floating(1.0)

    def inferred_output_sizes(self) -> tuple[tuple[int, ...], ...]:
        """Those of a Gemm."""
        return _product_sizes(self)

    def cuts(self) -> Sequence[_s.Cut]:
        """Those of a Gemm without a softmax."""
        return _product_cuts(self, whole_rows=False)

    def flops(self) -> int:
        """Those of a Gemm."""
        return _product_flops(self)


class GemmAdd(
    Gemm,
    internal=True,
    constraints=(*Gemm.constraints, _c.same_sizes("addend_tensor", "output_tensor")),
    accepts=Gemm.accepts,
    traits=_s.Traits(strided=True),
):
    """A Gemm that adds one more tensor before its activation: activation(alpha * op(A) op(B) + beta * C + addend), such as
    what goes round a layer, where C is its bias. Zero strides broadcast it. A row of our own, which a pass makes of the two
    operators.

    It rounds to the tensors' type once, where the two do so twice.
    """

    addend_tensor: TensorDesc | None = _s.input_tensor(_s.FLOATS, (2, 4))


@_c.constraint("norm_sizes", "must be {columns} of the product")
def _norm_sizes(desc: GemmNormalization) -> _s.Violation | None:
    wanted = desc.tensor("output_tensor").sizes[-1:]
    for name in ("norm_scale_tensor", "norm_bias_tensor"):
        tensor: TensorDesc | None = getattr(desc, name)
        if tensor is not None and tensor.sizes != wanted:
            return _s.Violation(name, tensor.sizes, wanted)
    return None


class GemmNormalization(
    _s.OperatorDesc,
    internal=True,
    constraints=(
        _c.same_data_type(),
        _c.same_dimension_count("a_tensor", "b_tensor", "c_tensor", "addend_tensor", "output_tensor", "product_tensor"),
        _inner_sizes,
        _c.same_sizes("c_tensor", "addend_tensor", "output_tensor"),
        _norm_sizes,
        _c.output_sizes_match(),
    ),
    traits=_s.Traits(strided=True),
):
    """A ``Gemm`` or ``GemmAdd`` and a ``MeanVarianceNormalization2`` of its rows in one operator: product = alpha * op(A)
    op(B) + beta * C + addend, and y = norm_scale * (product - mean) / sqrt(variance + epsilon) + norm_bias, with mean and
    variance of each row; without use_mean nothing is subtracted. A row of our own, which a pass makes of the two.

    What is normalized is the product as its tensor has it, or not rounded yet.

    c_tensor, addend_tensor: {..., rows, columns}, as the outputs.
    norm_scale_tensor, norm_bias_tensor: {columns}.
    output_tensor: What is normalized.
    product_tensor: The product, where something else reads it.
    """

    a_tensor: TensorDesc | None = _s.input_tensor(_s.FLOATS, (2, 4))
    b_tensor: TensorDesc | None = _s.input_tensor(_s.FLOATS, (2, 4))
    c_tensor: TensorDesc | None = _s.input_tensor(_s.FLOATS, (2, 4), optional=True)
    addend_tensor: TensorDesc | None = _s.input_tensor(_s.FLOATS, (2, 4), optional=True)
    norm_scale_tensor: TensorDesc | None = _s.input_tensor(_s.FLOATS, (1, 1), optional=True)
    norm_bias_tensor: TensorDesc | None = _s.input_tensor(_s.FLOATS, (1, 1), optional=True)
    output_tensor: TensorDesc | None = _s.output_tensor(_s.FLOATS, (2, 4))
    product_tensor: TensorDesc | None = _s.output_tensor(_s.FLOATS, (2, 4), optional=True)
    trans_a: MatrixTransform = _s.enumeration(MatrixTransform, MatrixTransform.NONE)
    trans_b: MatrixTransform = _s.enumeration(MatrixTransform, MatrixTransform.NONE)
    alpha: float = _s.floating(1.0)
    beta: float = _s.floating(1.0)
    epsilon: float = _s.floating()
    use_mean: bool = _s.boolean(True)

    @property
    def product(self) -> Gemm:
        """The first part, whose output is packed where it is none of the whole."""
        y = self.tensor("output_tensor")
        made = TensorDesc(y.data_type, y.sizes) if self.product_tensor is None else self.product_tensor
        names = ("a_tensor", "b_tensor", "c_tensor", "trans_a", "trans_b", "alpha", "beta")
        fields = {name: getattr(self, name) for name in names}
        if self.addend_tensor is None:
            return Gemm(**fields, output_tensor=made)
        return GemmAdd(**fields, output_tensor=made, addend_tensor=self.addend_tensor)

    @property
    def normalization(self) -> MeanVarianceNormalization2:
        """The second part."""
        made = self.product.tensor("output_tensor")
        last = made.dimension_count - 1

        def along_rows(row: TensorDesc | None) -> TensorDesc | None:
            return row and TensorDesc(row.data_type, (1,) * last + row.sizes, (0,) * last + row.effective_strides)

        return MeanVarianceNormalization2(
            input_tensor=made,
            scale_tensor=along_rows(self.norm_scale_tensor),
            bias_tensor=along_rows(self.norm_bias_tensor),
            output_tensor=self.output_tensor,
            axes=(last,),
            use_mean=self.use_mean,
            epsilon=self.epsilon,
        )

    def inferred_output_sizes(self) -> tuple[tuple[int, ...], ...]:
        """Those of the product, twice."""
        return _product_sizes(self) * 2

    def cuts(self) -> Sequence[_s.Cut]:
        """By matrices and by rows."""
        return _product_cuts(self, whole_rows=True)

    def flops(self) -> int:
        """Those of the product."""
        return _product_flops(self)


@_c.constraint("gated_columns", "must gate a product of 16 columns or a multiple, half of which are the output's")
def _gated_columns(desc: GemmGate) -> _s.Violation | None:
    columns = _transformed(desc.tensor("b_tensor").sizes, desc.trans_b)[1]
    return _s.Violation("gate", desc.gate) if desc.gate is Gate.NONE or columns % 16 else None


class GemmGate(
    _s.OperatorDesc,
    internal=True,
    constraints=(
        _c.same_data_type(),
        _c.same_dimension_count(),
        _inner_sizes,
        _gated_columns,
        _c.output_sizes_match(),
    ),
    traits=_s.Traits(strided=True),
):
    """y = gate(z[first half of the columns]) * z[the other half], z = op(A) op(B), for each leading index: what a decoder's
    layer feeds forward. A row of our own, which a pass makes of two products of one tensor and of what comes behind them.

    Sums are float32. It rounds to the tensors' type once at least: where the gate is the end of the product, z is not
    rounded.

    a_tensor: {..., rows, depth}, or its transpose.
    b_tensor: {..., depth, columns}, or its transpose.
    output_tensor: {..., rows, columns / 2}.
    """

    a_tensor: TensorDesc | None = _s.input_tensor(_s.FLOATS, (2, 4))
    b_tensor: TensorDesc | None = _s.input_tensor(_s.FLOATS, (2, 4))
    output_tensor: TensorDesc | None = _s.output_tensor(_s.FLOATS, (2, 4))
    trans_a: MatrixTransform = _s.enumeration(MatrixTransform, MatrixTransform.NONE)
    trans_b: MatrixTransform = _s.enumeration(MatrixTransform, MatrixTransform.NONE)
    gate: Gate = _s.enumeration(Gate, Gate.NONE)

    def inferred_output_sizes(self) -> tuple[tuple[int, ...], ...]:
        """Rows of A, half of the columns of B."""
        a, b = self.tensor("a_tensor").sizes, self.tensor("b_tensor").sizes
        return ((*a[:-2], _transformed(a, self.trans_a)[0], _transformed(b, self.trans_b)[1] // 2),)

    def cuts(self) -> Sequence[_s.Cut]:
        """By matrices and by rows."""
        last = self.tensor("output_tensor").dimension_count - 1
        batches = [dict.fromkeys(("a_tensor", "b_tensor", "output_tensor"), index) for index in range(last - 1)]
        row = {"a_tensor": last - (self.trans_a == MatrixTransform.NONE), "output_tensor": last - 1}
        return [_s.Cut(ways) for ways in (*batches, row)]

    def flops(self) -> int:
        """A multiplication and an addition for each term of all columns."""
        depth = _transformed(self.tensor("a_tensor").sizes, self.trans_a)[1]
        return 4 * depth * self.tensor("output_tensor").element_count


@_c.constraint(
    "sizes",
    "must be {rows, columns} for an input {rows, depth} and {depth, columns} or its transpose, or with a gate half as many "
    "columns, of which there are a multiple of 8 and which have no bias; a bias {columns}",
)
def _normalized_sizes(desc: NormalizedGemm) -> _s.Violation | None:
    (rows, depth), bias = desc.tensor("input_tensor").sizes, desc.bias_tensor
    own_depth, columns = _transformed(desc.tensor("b_tensor").sizes, desc.trans_b)
    if own_depth != depth:
        return _s.Violation("b_tensor", own_depth, depth)
    if bias is not None and bias.sizes != (columns,):
        return _s.Violation("bias_tensor", bias.sizes, (columns,))
    if desc.gate is not Gate.NONE:
        if columns % 16 or bias is not None:
            return _s.Violation("gate", desc.gate)
        columns //= 2
    found = desc.tensor("output_tensor").sizes
    return None if found == (rows, columns) else _s.Violation("output_tensor", found, (rows, columns))


class NormalizedGemm(
    _s.OperatorDesc,
    internal=True,
    traits=_s.Traits(strided=True),
    constraints=(*NORMALIZED_RULES, _c.same_data_type("b_tensor", "bias_tensor", "output_tensor"), _normalized_sizes),
):
    """A ``Gemm`` of what a ``RootMeanSquare`` makes, or a ``GemmGate``, in one operator: sum = input + norm_addend, and
    y = x op(B) + bias, or the gate of x op(B), with x = norm_scale * sum / sqrt(mean(sum^2) + epsilon). A row of our own,
    which a pass makes of the two.

    The sum is rounded to its type first, as it is there. x is rounded to the output's type, or not at all.

    input_tensor: {rows, depth}, and so are norm_addend_tensor, of the input's or the output's type, and sum_tensor.
    b_tensor: {depth, columns}, or its transpose.
    bias_tensor: {columns}.
    norm_scale_tensor: {depth}.
    output_tensor: {rows, columns}, with a gate half as many.
    """

    input_tensor: TensorDesc | None = _s.input_tensor(_s.FLOATS, (2, 2))
    b_tensor: TensorDesc | None = _s.input_tensor(_s.FLOATS, (2, 2))
    bias_tensor: TensorDesc | None = _s.input_tensor(_s.FLOATS, (1, 1), optional=True)
    norm_addend_tensor: TensorDesc | None = _s.input_tensor(_s.FLOATS, (2, 2), optional=True)
    norm_scale_tensor: TensorDesc | None = _s.input_tensor(_s.FLOATS, (1, 1))
    output_tensor: TensorDesc | None = _s.output_tensor(_s.FLOATS, (2, 2))
    sum_tensor: TensorDesc | None = _s.output_tensor(_s.FLOATS, (2, 2), optional=True)
    epsilon: float = _s.floating()
    trans_b: MatrixTransform = _s.enumeration(MatrixTransform, MatrixTransform.NONE)
    gate: Gate = _s.enumeration(Gate, Gate.NONE)

    @property
    def normalization(self) -> RootMeanSquare:
        """The first part."""
        return normalization_of(self, self.epsilon)

    @property
    def product(self) -> Gemm | GemmGate:
        """The second part."""
        a, b, y, bias = self.normalization.output_tensor, self.b_tensor, self.tensor("output_tensor"), self.bias_tensor
        if self.gate is not Gate.NONE:
            return GemmGate(a_tensor=a, b_tensor=b, output_tensor=y, trans_b=self.trans_b, gate=self.gate)
        c = bias and TensorDesc(bias.data_type, y.sizes, (0, *bias.effective_strides))
        return Gemm(a_tensor=a, b_tensor=b, c_tensor=c, output_tensor=y, trans_b=self.trans_b)

    def flops(self) -> int:
        """Those of the product."""
        return self.product.flops()

    def inferred_output_sizes(self) -> tuple[tuple[int, ...], ...]:
        """Those of the product, and of the sum."""
        sizes = self.tensor("input_tensor").sizes
        columns = _transformed(self.tensor("b_tensor").sizes, self.trans_b)[1]
        return (sizes[0], columns // (1 if self.gate is Gate.NONE else 2)), sizes
