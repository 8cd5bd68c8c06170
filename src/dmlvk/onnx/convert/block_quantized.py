"""Products with and rows of tables of few bits, which have a scale and a zero point for each block of a row."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import onnx

from dmlvk.onnx.conversion import Conversion
from dmlvk.onnx.convert.cast import cast_to
from dmlvk.onnx.convert.gather import taken
from dmlvk.onnx.model import FOUR_BITS, element_type
from dmlvk.onnx.node_facts import NodeFacts
from dmlvk.onnx.registry import MICROSOFT, Declared, converts
from dmlvk.onnx.values import Value
from dmlvk.spec import ops
from dmlvk.spec.block_formats import BlockFormat
from dmlvk.spec.enums import QuantizationType, TensorDataType
from dmlvk.spec.ops.block_quantized import BlockQuantizedGather, BlockQuantizedGemm
from dmlvk.spec.schema import FLOATS
from dmlvk.spec.tensor import packed_strides

_UINT8 = np.dtype(np.uint8)
_FORMATS = {4: BlockFormat.APART_4, 8: BlockFormat.APART_8}


def _is_block(block: int) -> bool:
    """Whether kernels take blocks of so many numbers: those of ONNX Runtime's."""
    return block >= 16 and block & (block - 1) == 0


def _numbers(node: Conversion, x: Value, bits: int) -> Value:
    """Bytes as the numbers of 4 or 8 bits in them, the low half of a byte first; other tensors as they are."""
    if bits == 8 or x.data_type is not TensorDataType.UINT8:
        return x
    dtype = element_type(onnx.TensorProto.UINT4)[1]
    assert dtype is not None, "onnx has had it since 1.16"
    return _of_bytes(node.packed(x), dtype)


def _of_bytes(x: Value, dtype: np.dtype[Any]) -> Value:
    """Packed bytes as twice as many numbers of 4 bits."""
    sizes = (*x.sizes[:-1], 2 * x.sizes[-1])
    return Value(x.storage, dtype, sizes, packed_strides(sizes))


def _dequantized(node: Conversion, x: Value, scale: Value, zero_point: Value | int, axis: int, block: int) -> Value:
    """(x - zero point) * scale in the scale's type; scale and zero point have a number for each block along the axis, the
    last of which may not be full."""
    if isinstance(zero_point, int):
        one = node.upload(np.full((1,) * scale.rank, zero_point, np.uint8).astype(x.dtype))
        zero_point = one.broadcast_to(scale.sizes)
    count, length = scale.sizes[axis], x.sizes[axis]
    if count * block == length:
        before, after = x.sizes[:axis], x.sizes[axis + 1 :]
        whole = node.reshape(x, (*before, count, block, *after))
        apart = [node.reshape(value, (*before, count, 1, *after)) for value in (scale, zero_point)]
    else:
        whole = x
        if zero_point.data_type in FOUR_BITS:  # which nothing repeats
            zero_point = cast_to(node, zero_point, scale.dtype)
        apart = [_repeated(node, value, axis, block, length) for value in (scale, zero_point)]
    same = apart[1].data_type is x.data_type
    if same and x.data_type in FOUR_BITS:
        y = node.launch(
            ops.Dequantize,
            whole,
            quantization_type=QuantizationType.SCALE_ZERO_POINT,
            quantization_tensors=tuple(apart),
            output_tensor=node.new(whole.sizes, scale.dtype),
        )
    elif same:
        y = node.elementwise(ops.ElementWiseDequantizeLinear, whole, *apart, dtype=scale.dtype)
    else:  # a zero point that need not be whole
        real = node.elementwise(ops.ElementWiseSubtract, cast_to(node, whole, scale.dtype), apart[1])
        y = node.elementwise(ops.ElementWiseMultiply, real, apart[0])
    return node.reshape(y, x.sizes)


def _repeated(node: Conversion, value: Value, axis: int, block: int, length: int) -> Value:
    """A number of each block for each of its elements."""
    before, count, after = value.sizes[:axis], value.sizes[axis], value.sizes[axis + 1 :]
    full = node.reshape(value, (*before, count, 1, *after)).broadcast_to((*before, count, block, *after))
    return node.reshape(node.copy(full), (*before, count * block, *after)).shorten(axis, length)


# -- products

_PRODUCT = Declared(6, 1, ("K", "N", "accuracy_level", "bits", "block_size", "weight_prepacked"))


def _refuse_product(node: NodeFacts) -> None:
    node.takes(1, (TensorDataType.UINT8,))
    node.takes(3, (TensorDataType.UINT8, *FLOATS))
    if node.attribute("bits", 4) not in (4, 8):
        raise node.unsupported(f"bits {node.attribute('bits', 4)} are not supported, only 4 and 8")
    if not _is_block(node.attribute("block_size", 0)):
        raise node.unsupported(
            f"block_size {node.attribute('block_size', 0)} is not supported, only 16 and larger powers of two"
        )
    if node.attribute("weight_prepacked", 0):
        raise node.unsupported("weight_prepacked is not supported: the order of the weights is that of some processor")
    if node.has(4):
        raise node.unsupported("g_idx is not supported")


@converts("MatMulNBits", 1, types=FLOATS, domain=MICROSOFT, check=_refuse_product, declared=_PRODUCT)
def product_of_few_bits(node: Conversion) -> Value:
    """The weights are rows for output columns, in blocks. ``accuracy_level`` allows less than is computed here. Weights of
    size 0 are zeros."""
    a, packed, scale, points, bias = node[0], node[1], node[2], node.get(3), node.get(5)
    bits = node.attribute("bits", 4)
    inner, columns, block = (node.attribute(name, 0) for name in ("K", "N", "block_size"))
    if min(inner, columns, block) < 1:
        raise node.invalid("K, N and block_size must be at least 1", (inner, columns, block))
    count = -(-inner // block)
    if a.rank < 1 or a.sizes[-1] != inner:
        raise node.invalid("the last dimension of A must be K", a.sizes, inner)
    if 0 in packed.sizes:
        y = node.fill((*a.sizes[:-1], columns), a.dtype.type(0))
        return y if bias is None else node.elementwise(ops.ElementWiseAdd, y, bias)
    if points is not None:
        of_codes = points.data_type is TensorDataType.UINT8
        points = node.packed(node.reshape(points, (columns, -(-count * bits // 8) if of_codes else count)))
    y = node.launch(
        BlockQuantizedGemm,
        input_tensor=node.reshape(a, (math.prod(a.sizes[:-1]), inner)),
        weight_tensor=node.packed(node.reshape(packed, (columns, count * block * bits // 8))),
        scales_tensor=node.packed(node.reshape(scale, (columns, count))),
        zero_points_tensor=points,
        bias_tensor=bias,
        output_tensor=node.new((math.prod(a.sizes[:-1]), columns), a.dtype),
        format=_FORMATS[bits],
        block_size=block,
    )
    return node.reshape(y, (*a.sizes[:-1], columns))


# -- rows of a table

_TABLE = (TensorDataType.UINT8, *FOUR_BITS)


def _refuse_rows(node: NodeFacts) -> None:
    node.takes(2, FLOATS)
    if node.kinds.get(0) is TensorDataType.UINT8 and node.attribute("bits", 4) not in (4, 8):
        raise node.unsupported(f"bits {node.attribute('bits', 4)} are not supported, only 4 and 8")


@converts(
    "GatherBlockQuantized",
    1,
    types=_TABLE,
    domain=MICROSOFT,
    check=_refuse_rows,
    declared=Declared(4, 1, ("bits", "block_size", "gather_axis", "quantize_axis")),
)
def rows_of_few_bits(node: Conversion) -> Value:
    """Of rows in blocks one operator makes numbers. Of other tables what is chosen is dequantized; where it cannot be chosen
    before, the whole table is."""
    bits, block = node.attribute("bits", 4), node.attribute("block_size", 128)
    table, scale, indices = _numbers(node, node[0], bits), node[2], node[1]
    axis, along = (node.axis(node.attribute(*given), table.rank) for given in (("gather_axis", 0), ("quantize_axis", 1)))
    zero_point: Value | int = 1 << (bits - 1) if node[0].data_type is TensorDataType.UINT8 else 0
    if (given := node.get(3)) is not None:
        zero_point = _numbers(node, given, bits).shorten(table.rank - 1, scale.sizes[-1])
    if (axis, along, table.rank) == (0, 1, 2) and (rows := _by_rows(node, bits, block)) is not None:
        return rows
    tensors = [table, scale, *([zero_point] if isinstance(zero_point, Value) else [])]
    if axis == along or not all(_is_of_whole_bytes(value, axis) for value in tensors):
        return taken(node, _dequantized(node, table, scale, zero_point, along, block), indices, axis)
    table, scale, *rest = (_chosen(node, value, indices, axis) for value in tensors)
    place = along if along < axis else along + indices.rank - 1
    return _dequantized(node, table, scale, rest[0] if rest else zero_point, place, block)


def _by_rows(node: Conversion, bits: int, block: int) -> Value | None:
    """Rows of a table whose blocks lie along them, by one operator; None where rows or their zero points share a byte."""
    indices, scale = node[1], node.packed(node[2])
    table, points = (None if value is None else _as_bytes(node, value) for value in (node[0], node.get(3)))
    if table is None or (points is None) != (node.get(3) is None) or not _is_block(block):
        return None
    depth = node[0].sizes[1] * (8 // bits if node[0].data_type is TensorDataType.UINT8 else 1)
    if points is None and node[0].data_type is TensorDataType.UINT4:
        points = node.upload(np.zeros((scale.sizes[0], -(-scale.sizes[1] // 2)), np.uint8))
    count = math.prod(indices.sizes)
    y = node.launch(
        BlockQuantizedGather,
        indices_tensor=node.reshape(indices, (count,)),
        weight_tensor=table,
        scales_tensor=scale,
        zero_points_tensor=points,
        output_tensor=node.new((count, depth), scale.dtype),
        format=_FORMATS[4 if node[0].data_type in FOUR_BITS else bits],
        block_size=block,
    )
    return node.reshape(y, (*indices.sizes, depth))


def _as_bytes(node: Conversion, x: Value) -> Value | None:
    """A matrix as the bytes that it is packed in, INT8 where numbers of 4 bits are signed; None where rows share bytes."""
    x = node.packed(x)
    if x.data_type not in FOUR_BITS:
        return x
    if x.sizes[1] % 2:
        return None
    dtype = np.dtype(np.int8 if x.data_type is TensorDataType.INT4 else np.uint8)
    sizes = (x.sizes[0], x.sizes[1] // 2)
    return Value(x.storage, dtype, sizes, packed_strides(sizes))


def _is_of_whole_bytes(x: Value, axis: int) -> bool:
    """Whether what an index along the axis chooses is made of whole bytes."""
    return x.data_type not in FOUR_BITS or (axis < x.rank - 1 and x.is_packed and x.sizes[-1] % 2 == 0)


def _chosen(node: Conversion, x: Value, indices: Value, axis: int) -> Value:
    """The parts of a tensor of whole bytes that indices choose along an axis."""
    if x.data_type not in FOUR_BITS:
        return taken(node, x, indices, axis)
    sizes = (*x.sizes[:-1], x.sizes[-1] // 2)
    bytes_of_x = Value(x.storage, _UINT8, sizes, packed_strides(sizes))
    return _of_bytes(node.packed(taken(node, bytes_of_x, indices, axis)), x.dtype)
