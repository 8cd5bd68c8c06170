"""Rows of our own: products with weights of a few bits in blocks, and rows of tables of such."""

from __future__ import annotations

from dmlvk.spec import constraints as _c
from dmlvk.spec import schema as _s
from dmlvk.spec.block_formats import BlockFormat, BlockLayout, OffsetKind, ScaleKind
from dmlvk.spec.enums import TensorDataType as _T
from dmlvk.spec.gate import Gate
from dmlvk.spec.ops.root_mean_square import NORMALIZED_RULES, RootMeanSquare, normalization_of
from dmlvk.spec.tensor import TensorDesc, packed_strides

__all__ = ["BlockQuantizedGather", "BlockQuantizedGemm", "NormalizedBlockGemm", "layout_of"]

_WEIGHT, _SCALES, _ZERO_POINTS, _OUTPUT = "weight_tensor", "scales_tensor", "zero_points_tensor", "output_tensor"
_CODES = (_T.UINT8, _T.INT8)
_SCALE_TYPES = (_T.FLOAT16, _T.FLOAT32, _T.UINT16)
_SCALE_KINDS = {_T.FLOAT16: ScaleKind.FLOAT16, _T.FLOAT32: ScaleKind.FLOAT32, _T.UINT16: ScaleKind.BFLOAT16}
_LEAST_BLOCK = 16


def layout_of(desc: WithBlocks) -> BlockLayout:
    """What the bytes of an operator's weights mean."""
    layout, scales, points = desc.format.layout, desc.scales_tensor, desc.zero_points_tensor
    if scales is None:
        return layout
    offset = OffsetKind.NONE
    if points is not None:
        offset = OffsetKind.REAL if points.data_type is scales.data_type else OffsetKind.ZERO_POINT
    signed = desc.tensor(_WEIGHT).data_type is _T.INT8
    return layout._replace(block=desc.block_size, scale=_SCALE_KINDS[scales.data_type], offset=offset, signed=signed)


@_c.constraint(
    "weights", "weights must be {rows, bytes} of UINT8, with as many bytes as the format has for a row; APART no fewer"
)
def _weights(desc: WithBlocks) -> _s.Violation | None:
    weights, format_ = desc.tensor(_WEIGHT), desc.format
    if format_.is_apart:
        least = -(-desc.depth * format_.layout.bits // 8)
        return None if weights.sizes[1] >= least else _s.Violation(_WEIGHT, weights.sizes[1], least)
    wanted = format_.row_bytes(desc.depth)
    good = weights.sizes[1] == wanted and weights.data_type is _T.UINT8
    return None if good else _s.Violation(_WEIGHT, weights, wanted)


@_c.constraint("scales", "scales must be {rows, blocks} where the format is APART, of blocks of 16 or a larger power of two")
def _scales(desc: WithBlocks) -> _s.Violation | None:
    scales, block = desc.scales_tensor, desc.block_size
    if not desc.format.is_apart:
        return None if scales is None and block == 0 else _s.Violation(_SCALES, scales, "none")
    if block < _LEAST_BLOCK or block & (block - 1):
        return _s.Violation("block_size", block)
    wanted = (desc.tensor(_WEIGHT).sizes[0], -(-desc.depth // block))
    return None if scales is not None and scales.sizes == wanted else _s.Violation(_SCALES, scales, wanted)


@_c.constraint(
    "zero_points", "zero points must be packed as the weights are, rows of whole bytes, or of UINT8 be as the scales"
)
def _zero_points(desc: WithBlocks) -> _s.Violation | None:
    points, scales = desc.zero_points_tensor, desc.scales_tensor
    if points is None:
        return None
    if scales is None:
        return _s.Violation(_ZERO_POINTS, points, "none")
    rows, blocks = scales.sizes
    nbytes = -(-blocks * desc.format.layout.bits // 8)
    codes = desc.tensor(_WEIGHT).data_type
    wanted = {codes: (rows, nbytes)} | ({scales.data_type: (rows, blocks)} if codes is _T.UINT8 else {})
    return None if points.sizes == wanted.get(points.data_type) else _s.Violation(_ZERO_POINTS, points)


@_c.constraint("packed", "weights, scales and zero points must lie packed")
def _packed(desc: WithBlocks) -> _s.Violation | None:
    for name in (_WEIGHT, _SCALES, _ZERO_POINTS):
        tensor: TensorDesc | None = getattr(desc, name)
        if tensor is not None and tensor.effective_strides != packed_strides(tensor.sizes):
            return _s.Violation(name, tensor.strides)
    return None


_RULES = (_weights, _scales, _zero_points, _packed)


@_c.constraint(
    "sizes",
    "must be {rows, columns} for an input {rows, depth} and weights {columns, bytes}, or with a gate half as many columns, "
    "of which there are a multiple of 8 and to which nothing is added; a bias {columns of the weights}",
)
def _product_sizes(desc: BlockQuantizedGemm) -> _s.Violation | None:
    (columns, _), bias = desc.tensor(_WEIGHT).sizes, desc.bias_tensor
    if bias is not None and bias.sizes != (columns,):
        return _s.Violation("bias_tensor", bias.sizes, (columns,))
    if desc.gate is not Gate.NONE:
        if columns % 16 or desc.addend_tensor is not None:
            return _s.Violation("gate", desc.gate)
        columns //= 2
    wanted = (desc.tensor("input_tensor").sizes[0], columns)
    found, addend = desc.tensor(_OUTPUT).sizes, desc.addend_tensor
    if addend is not None and addend.sizes != wanted:
        return _s.Violation("addend_tensor", addend.sizes, wanted)
    return None if found == wanted else _s.Violation(_OUTPUT, found, wanted)


class BlockQuantizedGemm(
    _s.OperatorDesc,
    internal=True,
    in_place=("addend_tensor",),
    traits=_s.Traits(strided=True),
    constraints=(_c.same_data_type("input_tensor", "bias_tensor", "addend_tensor", _OUTPUT), _product_sizes, *_RULES),
):
    """y = x w^T + bias + addend, of weights in blocks; or the gate of the first half of the columns of that times the other
    half. Sums are float32.

    Weights that are OWNED_BY_DML are repacked at initialisation, into about as many bytes; others in every execution.

    input_tensor: {rows, depth}.
    weight_tensor: {columns, bytes}: the codes, with all else that the format has in a row. INT8 where codes of a format
        APART are in two's complement.
    scales_tensor: Of a format APART {columns, blocks}; UINT16 holds the bits of BFLOAT16.
    zero_points_tensor: {columns, bytes}, packed and signed as the codes are, or {columns, blocks} of the scales' type.
        Without them the zero point is the middle of the codes.
    bias_tensor: {columns}.
    addend_tensor: {rows, columns}: what is added besides, such as what goes round a layer.
    output_tensor: {rows, columns}, with a gate half as many.
    block_size: The codes that have a scale in common, of a format APART; 0 of others.
    half_factors: Whether rows and numbers of the weights may be rounded to FLOAT16 where they are FLOAT32, on a device that
        multiplies those faster; sums are float32.
    """

    input_tensor: TensorDesc | None = _s.input_tensor(_s.FLOATS, (2, 2))
    weight_tensor: TensorDesc | None = _s.input_tensor(_CODES, (2, 2))
    scales_tensor: TensorDesc | None = _s.input_tensor(_SCALE_TYPES, (2, 2), optional=True)
    zero_points_tensor: TensorDesc | None = _s.input_tensor((*_CODES, *_SCALE_TYPES), (2, 2), optional=True)
    bias_tensor: TensorDesc | None = _s.input_tensor(_s.FLOATS, (1, 1), optional=True)
    addend_tensor: TensorDesc | None = _s.input_tensor(_s.FLOATS, (2, 2), optional=True)
    output_tensor: TensorDesc | None = _s.output_tensor(_s.FLOATS, (2, 2))
    format: BlockFormat = _s.enumeration(BlockFormat)
    block_size: int = _s.uint(0)
    gate: Gate = _s.enumeration(Gate, Gate.NONE)
    half_factors: bool = _s.boolean(False)

    @property
    def depth(self) -> int:
        """The terms of each sum."""
        return self.tensor("input_tensor").sizes[1]

    @property
    def title(self) -> str:
        """The title with the format: "BlockQuantizedGemm(Q4_K)"."""
        return f"{super().title}({self.format.name})"

    def flops(self) -> int:
        """A multiplication and an addition for each weight and row."""
        return 2 * self.tensor(_OUTPUT).sizes[0] * self.tensor(_WEIGHT).sizes[0] * self.depth

    def inferred_output_sizes(self) -> tuple[tuple[int, ...], ...]:
        """Rows of the input, columns of the weights, or with a gate half of them."""
        columns = self.tensor(_WEIGHT).sizes[0]
        return ((self.tensor("input_tensor").sizes[0], columns // (1 if self.gate is Gate.NONE else 2)),)


@_c.constraint(
    "sizes",
    "must be {rows, columns} for an input {rows, depth} and weights {columns, bytes}, or with a gate half as many columns, "
    "of which there are a multiple of 8; a bias {columns of the weights}",
)
def _normalized_sizes(desc: NormalizedBlockGemm) -> _s.Violation | None:
    return _product_sizes.check(desc.product)


class NormalizedBlockGemm(
    _s.OperatorDesc,
    internal=True,
    traits=_s.Traits(strided=True),
    constraints=(
        *NORMALIZED_RULES,
        _c.same_data_type("bias_tensor", _OUTPUT),
        _normalized_sizes,
        *_RULES,
    ),
):
    """A ``BlockQuantizedGemm`` of what a ``RootMeanSquare`` makes, in one operator: sum = input + norm_addend, and
    y = x w^T + bias, or the gate of that, with x = norm_scale * sum / sqrt(mean(sum^2) + epsilon). A row of our own, which a
    pass makes of the two.

    The sum is rounded to its type first, as it is there. x is rounded to the output's type, or not at all.

    input_tensor: {rows, depth}, and so are norm_addend_tensor, of the input's or the output's type, and sum_tensor.
    norm_scale_tensor: {depth}.
    The others are those of ``BlockQuantizedGemm``, in the same slots: both of them share what is repacked.
    """

    input_tensor: TensorDesc | None = _s.input_tensor(_s.FLOATS, (2, 2))
    weight_tensor: TensorDesc | None = _s.input_tensor(_CODES, (2, 2))
    scales_tensor: TensorDesc | None = _s.input_tensor(_SCALE_TYPES, (2, 2), optional=True)
    zero_points_tensor: TensorDesc | None = _s.input_tensor((*_CODES, *_SCALE_TYPES), (2, 2), optional=True)
    bias_tensor: TensorDesc | None = _s.input_tensor(_s.FLOATS, (1, 1), optional=True)
    norm_addend_tensor: TensorDesc | None = _s.input_tensor(_s.FLOATS, (2, 2), optional=True)
    norm_scale_tensor: TensorDesc | None = _s.input_tensor(_s.FLOATS, (1, 1))
    output_tensor: TensorDesc | None = _s.output_tensor(_s.FLOATS, (2, 2))
    sum_tensor: TensorDesc | None = _s.output_tensor(_s.FLOATS, (2, 2), optional=True)
    epsilon: float = _s.floating()
    format: BlockFormat = _s.enumeration(BlockFormat)
    block_size: int = _s.uint(0)
    gate: Gate = _s.enumeration(Gate, Gate.NONE)
    half_factors: bool = _s.boolean(False)

    @property
    def depth(self) -> int:
        """The terms of each sum."""
        return self.tensor("input_tensor").sizes[1]

    @property
    def title(self) -> str:
        """The title with the format: "NormalizedBlockGemm(Q4_K)"."""
        return f"{super().title}({self.format.name})"

    @property
    def normalization(self) -> RootMeanSquare:
        """The first part."""
        return normalization_of(self, self.epsilon)

    @property
    def product(self) -> BlockQuantizedGemm:
        """The second part."""
        names = (_WEIGHT, _SCALES, _ZERO_POINTS, "bias_tensor", _OUTPUT, "format", "block_size", "gate", "half_factors")
        return BlockQuantizedGemm(
            input_tensor=self.normalization.output_tensor, **{name: getattr(self, name) for name in names}
        )

    def flops(self) -> int:
        """Those of the product."""
        return self.product.flops()

    def inferred_output_sizes(self) -> tuple[tuple[int, ...], ...]:
        """Those of the product, and of the sum."""
        (rows, depth), columns = self.tensor("input_tensor").sizes, self.tensor(_WEIGHT).sizes[0]
        return (rows, columns // (1 if self.gate is Gate.NONE else 2)), (rows, depth)


@_c.constraint("sizes", "must be {indices, depth}")
def _chosen_sizes(desc: BlockQuantizedGather) -> _s.Violation | None:
    wanted, found = desc.tensor("indices_tensor").sizes[0], desc.tensor(_OUTPUT).sizes
    return None if found[0] == wanted else _s.Violation(_OUTPUT, found, wanted)


class BlockQuantizedGather(
    _s.OperatorDesc, internal=True, traits=_s.Traits(strided=True), constraints=(_chosen_sizes, *_RULES)
):
    """Rows of a table in blocks, as numbers. Indices are those of ``Gather``: negative ones count from the end, and what is
    out of range is clamped.

    indices_tensor: {count}.
    output_tensor: {count, depth}.
    The others are those of ``BlockQuantizedGemm``, in the same slots: both of them share what is repacked.
    """

    indices_tensor: TensorDesc | None = _s.input_tensor((_T.INT32, _T.INT64, _T.UINT32), (1, 1))
    weight_tensor: TensorDesc | None = _s.input_tensor(_CODES, (2, 2))
    scales_tensor: TensorDesc | None = _s.input_tensor(_SCALE_TYPES, (2, 2), optional=True)
    zero_points_tensor: TensorDesc | None = _s.input_tensor((*_CODES, *_SCALE_TYPES), (2, 2), optional=True)
    output_tensor: TensorDesc | None = _s.output_tensor(_s.FLOATS, (2, 2))
    format: BlockFormat = _s.enumeration(BlockFormat)
    block_size: int = _s.uint(0)

    @property
    def depth(self) -> int:
        """The numbers of a row."""
        return self.tensor(_OUTPUT).sizes[1]

    @property
    def title(self) -> str:
        """The title with the format: "BlockQuantizedGather(Q4_K)"."""
        return f"{super().title}({self.format.name})"


WithBlocks = BlockQuantizedGemm | NormalizedBlockGemm | BlockQuantizedGather
"""The rows with weights in blocks."""
