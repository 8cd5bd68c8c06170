"""Quantization. Scale and zero point serve the whole tensor, each index of an axis, or each block along it: broadcasting
to the tensor, of which a dimension is split where there are blocks."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from dmlvk.graph.views import Sizes
from dmlvk.onnx.conversion import Conversion
from dmlvk.onnx.convert.cast import cast_to
from dmlvk.onnx.model import FORMATS, FOUR_BITS, format_of, kind_of
from dmlvk.onnx.node_facts import NodeFacts
from dmlvk.onnx.registry import MICROSOFT, Declared, converts
from dmlvk.onnx.values import Value
from dmlvk.spec import ops
from dmlvk.spec.enums import QuantizationType, TensorDataType
from dmlvk.spec.formats import NumberFormat, Scheme
from dmlvk.spec.schema import FLOATS, OperatorDesc

_FLOAT32, _INT32, _UINT8 = np.dtype(np.float32), np.dtype(np.int32), np.dtype(np.uint8)


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

    @property
    def keep_types(self) -> bool:
        """Whether a zero point of 4 bits still is one: repeated ones are float32."""
        return all(value.dtype != _FLOAT32 for value in self.zero_points)


_REAL = (*FLOATS, NumberFormat.BFLOAT16)
_SCALES = (*_REAL, NumberFormat.FLOAT8E8M0)
_FORMATS = tuple(kind for kind in FORMATS if kind not in (NumberFormat.BFLOAT16, NumberFormat.FLOAT8E8M0))
_MADE = (
    *(TensorDataType.INT8, TensorDataType.UINT8, TensorDataType.INT16, TensorDataType.UINT16),
    *(*FOUR_BITS, *_FORMATS),
)
"""What QuantizeLinear makes."""


def _refuse_quantize(node: NodeFacts) -> None:
    node.takes(1, (*_SCALES, TensorDataType.INT32))
    node.takes(2, _MADE)
    if not node.has(2) and kind_of(dtype := node.element_type("output_dtype", _UINT8, narrow=True)) not in _MADE:
        raise node.unsupported(f"output_dtype {dtype} is not supported, because nothing is quantized to it")
    if kind_of(dtype := node.element_type("precision", _FLOAT32, narrow=True)) not in _REAL:
        raise node.unsupported(f"precision {dtype} is not supported, because no quotient has it")


_SCALED = Declared(3, 1, ("axis",))


@converts(
    "QuantizeLinear",
    1,
    types=FLOATS,
    domain=MICROSOFT,
    check=_refuse_quantize,
    declared=_SCALED,
)
@converts("QuantizeLinear", *(10, 13, 19, 21, 23, 24, 25, 28), types=(*_REAL, TensorDataType.INT32), check=_refuse_quantize)
def quantize(node: Conversion) -> Value:
    """8-bit floats have no zero point: what is given for it is 0 and says their kind. Quotients are float32, but where
    ``precision`` says otherwise."""
    parts = _parts(node)
    dtype = _output_type(node)
    precision = node.element_type("precision", _FLOAT32, narrow=True)
    of_one_type = parts.x.dtype == parts.scale.dtype and kind_of(parts.x.dtype) in FLOATS
    if precision != _FLOAT32 or not (of_one_type or (parts.x.dtype, parts.scale.dtype) == (_INT32, _FLOAT32)):
        x, scale = (cast_to(node, cast_to(node, value, precision), _FLOAT32) for value in (parts.x, parts.scale))
        parts = parts._replace(x=x, scale=scale)
    if kind_of(dtype) in FOUR_BITS and precision == _FLOAT32 and parts.keep_types:
        y = _launch_of_4_bits(node, ops.Quantize, parts, dtype)
    elif dtype.itemsize == 1 and format_of(dtype) is None and precision == _FLOAT32:
        y = node.elementwise(ops.ElementWiseQuantizeLinear, parts.x, parts.scale, *parts.zero_points, dtype=dtype)
    else:
        y = _quantize_in_steps(node, parts, dtype, precision)
    return node.reshape(y, parts.sizes)


def _refuse_dequantize(node: NodeFacts) -> None:
    node.takes(1, _SCALES)
    if kind_of(dtype := node.element_type("output_dtype", _FLOAT32, narrow=True)) not in _REAL:
        raise node.unsupported(f"output_dtype {dtype} is not supported, because nothing is dequantized to it")
    if node.kinds.get(1) is NumberFormat.FLOAT8E8M0 and not node.attribute("output_dtype", 0):
        raise node.invalid("output_dtype must be given where the scale is no type of the output", "FLOAT8E8M0")


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
    *(10, 13, 19, 21, 23, 24, 25, 28),
    types=(*ops.ElementWiseDequantizeLinear.fields[0].data_types, *FOUR_BITS, *_FORMATS),
    check=_refuse_dequantize,
)
def dequantize(node: Conversion) -> Value:
    parts = _parts(node)
    dtype = node.element_type("output_dtype", parts.scale.dtype, narrow=True)
    own = dtype == parts.scale.dtype and kind_of(dtype) in FLOATS
    parts = parts._replace(scale=cast_to(node, parts.scale, dtype if own else _FLOAT32))
    if format_of(parts.x.dtype) is None:
        row = ops.ElementWiseDequantizeLinear
        y = node.elementwise(row, parts.x, parts.scale, *parts.zero_points, dtype=parts.scale.dtype)
    elif kind_of(parts.x.dtype) in FOUR_BITS and parts.keep_types:
        y = _launch_of_4_bits(node, ops.Dequantize, parts, parts.scale.dtype)
    else:
        x = cast_to(node, parts.x, _FLOAT32)
        if _has_zero_point(parts.x.dtype):
            for zero_point in parts.zero_points:
                x = node.elementwise(ops.ElementWiseSubtract, x, cast_to(node, zero_point, _FLOAT32))
        y = node.elementwise(ops.ElementWiseMultiply, x, cast_to(node, parts.scale, _FLOAT32))
    return node.reshape(cast_to(node, y, dtype), parts.sizes)


@converts("DynamicQuantizeLinear", 11, types=FLOATS)
def dynamic_quantize(node: Conversion) -> tuple[Value, Value, Value]:
    x = node[0]
    if 0 in x.sizes:  # the range of nothing and 0
        return node.new(x.sizes, _UINT8), node.fill((), np.float32(1)), node.fill((), np.uint8(0))
    y, scale, zero_point = node.new(x.sizes, _UINT8), node.new((), _FLOAT32), node.new((), _UINT8)
    parameters = {"output_scale_tensor": scale, "output_zero_point_tensor": zero_point}
    node.launch(ops.DynamicQuantizeLinear, x, output_tensor=y, **parameters)
    return y, scale, zero_point


def _output_type(node: Conversion) -> np.dtype[Any]:
    """The type of the zero point; without one ``output_dtype``."""
    if node.has(2):
        return node.dtype(2)
    return node.element_type("output_dtype", _UINT8, narrow=True)


def _launch_of_4_bits(node: Conversion, row: type[OperatorDesc], parts: _Quantized, dtype: np.dtype[Any]) -> Value:
    """The rows of these types do it. Their scale has as many dimensions as the tensor."""
    x, zero_points = parts.x, parts.zero_points
    kind = QuantizationType.SCALE_ZERO_POINT if zero_points else QuantizationType.SCALE
    own = (1,) * (x.rank - parts.scale.rank) + parts.scale.sizes
    tensors = tuple(node.reshape(value, own) for value in (parts.scale, *zero_points))
    y = node.new(x.sizes, dtype)
    return node.launch(row, x, quantization_type=kind, quantization_tensors=tensors, output_tensor=y)


def _quantize_in_steps(node: Conversion, parts: _Quantized, dtype: np.dtype[Any], precision: np.dtype[Any]) -> Value:
    """To types that no row of DirectML's quantizes to; the last step clamps."""
    x, scale = (cast_to(node, value, _FLOAT32) for value in (parts.x, parts.scale))
    y = node.elementwise(ops.ElementWiseDivide, x, scale)
    y = cast_to(node, cast_to(node, y, precision), _FLOAT32)
    if _has_zero_point(dtype):
        y = node.elementwise(ops.ElementWiseRound, y)
        for zero_point in parts.zero_points:
            y = node.elementwise(ops.ElementWiseAdd, y, cast_to(node, zero_point, _FLOAT32))
    return cast_to(node, y, dtype, bool(node.attribute("saturate", 1)))


def _has_zero_point(dtype: np.dtype[Any]) -> bool:
    """Whether there are whole numbers of a type, which lie around a zero point."""
    kind = format_of(dtype)
    return kind is None or kind.layout.scheme is Scheme.INTEGER


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
    repeated = [node.copy(_copyable(node, value).broadcast_to(full)) for value in parameters]
    return x, [node.reshape(value, (*before, count * block, *after)).shorten(axis, size) for value in repeated]


def _copyable(node: Conversion, value: Value) -> Value:
    """A scale or zero point of a type that copies move: of 4 bits as float32."""
    return cast_to(node, value, _FLOAT32) if value.data_type in FOUR_BITS else value
