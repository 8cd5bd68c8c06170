"""Quantization. Scale and zero point serve the whole tensor, each index of an axis, or each block along it: broadcasting
to the tensor, of which a dimension is split where there are blocks."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from dmlvk.graph.views import Sizes
from dmlvk.onnx.conversion import Conversion
from dmlvk.onnx.convert.cast import cast_to
from dmlvk.onnx.model import FOUR_BITS, NarrowFloat, data_type_of, kind_of
from dmlvk.onnx.node_facts import NodeFacts
from dmlvk.onnx.registry import MICROSOFT, Declared, converts
from dmlvk.onnx.values import Value
from dmlvk.spec import ops
from dmlvk.spec.enums import QuantizationType, TensorDataType
from dmlvk.spec.schema import FLOATS, OperatorDesc

_FLOAT32, _UINT8 = np.dtype(np.float32), np.dtype(np.uint8)


class _Quantized(NamedTuple):
    """The inputs of a node, broadcast to one another.

    Attributes:
        x: The tensor; a dimension may be split in blocks.
        scale: The scale.
        zero_points: The zero point, or nothing.
        sizes: The sizes of the node's output.
    """

    x: Value
    scale: Value
    zero_points: tuple[Value, ...]
    sizes: Sizes


_MADE = (
    *(TensorDataType.INT8, TensorDataType.UINT8, TensorDataType.INT16, TensorDataType.UINT16),
    *(*FOUR_BITS, *(kind for kind in NarrowFloat if kind is not NarrowFloat.BFLOAT16)),
)
"""What QuantizeLinear makes."""


def _refuse_quantize(node: NodeFacts) -> None:
    node.takes(1, FLOATS)
    node.takes(2, _MADE)
    if not node.has(2) and kind_of(dtype := node.element_type("output_dtype", _UINT8, narrow=True)) not in _MADE:
        raise node.unsupported(f"output_dtype {dtype} is not supported, because nothing is quantized to it")


_SCALED = Declared(3, 1, ("axis",))


@converts(
    "QuantizeLinear",
    1,
    types=FLOATS,
    domain=MICROSOFT,
    check=_refuse_quantize,
    declared=_SCALED,
)
@converts("QuantizeLinear", 10, 13, 19, 21, types=(*FLOATS, TensorDataType.INT32), check=_refuse_quantize)
def quantize(node: Conversion) -> Value:
    """8-bit floats have no zero point: what is given for it is 0 and says their kind."""
    parts = _parts(node)
    dtype = _output_type(node, parts)
    if isinstance(kind_of(dtype), NarrowFloat):
        x, scale = (cast_to(node, value, _FLOAT32) for value in (parts.x, parts.scale))
        y = node.elementwise(ops.ElementWiseDivide, x, scale)
        y = cast_to(node, y, dtype, bool(node.attribute("saturate", 1)))
    elif data_type_of(dtype) in FOUR_BITS:
        y = _launch_of_4_bits(node, ops.Quantize, parts, dtype)
    elif dtype.itemsize == 2:
        y = _quantize_to_16_bits(node, parts, dtype)
    else:
        y = node.elementwise(ops.ElementWiseQuantizeLinear, parts.x, parts.scale, *parts.zero_points, dtype=dtype)
    return node.reshape(y, parts.sizes)


@converts(
    "DequantizeLinear",
    1,
    types=(*ops.ElementWiseDequantizeLinear.fields[0].data_types, *FOUR_BITS),
    domain=MICROSOFT,
    check=lambda node: node.takes(1, FLOATS),
    declared=_SCALED,
)
@converts(
    "DequantizeLinear",
    *(10, 13, 19, 21),
    types=(*ops.ElementWiseDequantizeLinear.fields[0].data_types, *FOUR_BITS, *NarrowFloat),
    check=lambda node: node.takes(1, FLOATS),
)
def dequantize(node: Conversion) -> Value:
    parts = _parts(node)
    if isinstance(kind_of(parts.x.dtype), NarrowFloat):
        x, scale = (cast_to(node, value, _FLOAT32) for value in (parts.x, parts.scale))
        y = cast_to(node, node.elementwise(ops.ElementWiseMultiply, x, scale), parts.scale.dtype)
    elif data_type_of(parts.x.dtype) in FOUR_BITS:
        y = _launch_of_4_bits(node, ops.Dequantize, parts, parts.scale.dtype)
    else:
        row, dtype = ops.ElementWiseDequantizeLinear, parts.scale.dtype
        y = node.elementwise(row, parts.x, parts.scale, *parts.zero_points, dtype=dtype)
    return node.reshape(y, parts.sizes)


@converts("DynamicQuantizeLinear", 11, types=FLOATS)
def dynamic_quantize(node: Conversion) -> tuple[Value, Value, Value]:
    x = node[0]
    if 0 in x.sizes:  # the range of nothing and 0
        return node.new(x.sizes, _UINT8), node.fill((), np.float32(1)), node.fill((), np.uint8(0))
    y, scale, zero_point = node.new(x.sizes, _UINT8), node.new((), _FLOAT32), node.new((), _UINT8)
    parameters = {"output_scale_tensor": scale, "output_zero_point_tensor": zero_point}
    node.launch(ops.DynamicQuantizeLinear, x, output_tensor=y, **parameters)
    return y, scale, zero_point


def _output_type(node: Conversion, parts: _Quantized) -> np.dtype[Any]:
    """The type of the zero point; without one ``output_dtype``."""
    if parts.zero_points:
        return parts.zero_points[0].dtype
    return node.element_type("output_dtype", _UINT8, narrow=True)


def _launch_of_4_bits(node: Conversion, row: type[OperatorDesc], parts: _Quantized, dtype: np.dtype[Any]) -> Value:
    """The rows of these types do it. Their scale has as many dimensions as the tensor."""
    x, zero_points = parts.x, parts.zero_points
    kind = QuantizationType.SCALE_ZERO_POINT if zero_points else QuantizationType.SCALE
    own = (1,) * (x.rank - parts.scale.rank) + parts.scale.sizes
    tensors = tuple(node.reshape(value, own) for value in (parts.scale, *zero_points))
    y = node.new(x.sizes, dtype)
    return node.launch(row, x, quantization_type=kind, quantization_tensors=tensors, output_tensor=y)


def _quantize_to_16_bits(node: Conversion, parts: _Quantized, dtype: np.dtype[Any]) -> Value:
    """Step by step, because DirectML's operator ends at 8 bits; the last step clamps."""
    x, scale = (cast_to(node, value, _FLOAT32) for value in (parts.x, parts.scale))
    y = node.elementwise(ops.ElementWiseRound, node.elementwise(ops.ElementWiseDivide, x, scale))
    for zero_point in parts.zero_points:
        y = node.elementwise(ops.ElementWiseAdd, y, cast_to(node, zero_point, _FLOAT32))
    return cast_to(node, y, dtype)


def _parts(node: Conversion) -> _Quantized:
    x, scale, zero_point = node[0], node[1], node.get(2)
    parameters = [scale] if zero_point is None else [scale, zero_point]
    sizes, block = x.sizes, node.attribute("block_size", 0)
    single = all(value.sizes in ((), (1,)) for value in parameters)
    if not single and parameters[-1].sizes != scale.sizes:
        raise node.invalid("the zero point must have the sizes of the scale", parameters[-1].sizes, scale.sizes)
    if block:
        x, parameters = _blocked(node, x, parameters, block)
    elif single:
        parameters = [node.reshape(value, ()) for value in parameters]
    else:
        axis = node.axis(node.attribute("axis", 1), x.rank)
        if scale.sizes != (x.sizes[axis],):
            raise node.invalid(f"the scale must have one element for each along axis {axis}", scale.sizes, (x.sizes[axis],))
        own = (x.sizes[axis],) + (1,) * (x.rank - 1 - axis)
        parameters = [node.reshape(value, own) for value in parameters]
    return _Quantized(x, parameters[0], tuple(parameters[1:]), sizes)


def _blocked(node: Conversion, x: Value, parameters: list[Value], block: int) -> tuple[Value, list[Value]]:
    """The tensor's dimension split in blocks and elements of a block; or, where the last block is not full, the
    parameters repeated for each element."""
    axis = node.axis(node.attribute("axis", 1), x.rank)
    before, size, after = x.sizes[:axis], x.sizes[axis], x.sizes[axis + 1 :]
    count = -(-size // block)
    if block < 1 or parameters[0].sizes != (*before, count, *after):
        rule = f"the scale must have one element for each block of {block} along axis {axis} of {x.sizes}"
        raise node.invalid(rule, parameters[0].sizes, (*before, count, *after))
    parameters = [node.reshape(value, (*before, count, 1, *after)) for value in parameters]
    if count * block == size:
        return node.reshape(x, (*before, count, block, *after)), parameters
    full = (*before, count, block, *after)
    repeated = [node.copy(value.broadcast_to(full)) for value in parameters]
    return x, [node.reshape(value, (*before, count * block, *after)).shorten(axis, size) for value in repeated]
