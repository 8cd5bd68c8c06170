"""Numbers in formats that no tensor has, as float32 and back: one launch, more where a tensor has two in a byte."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from dmlvk.onnx.conversion import Conversion
from dmlvk.onnx.model import FOUR_BITS, Array, format_of
from dmlvk.onnx.values import Value
from dmlvk.spec import ops
from dmlvk.spec.enums import QuantizationType
from dmlvk.spec.formats import FormatRounding, NumberFormat, Scheme
from dmlvk.spec.ops.number_format import FormatCast

_FLOAT, _BYTE = np.dtype(np.float32), np.dtype(np.uint8)
_WHOLE: Final = (NumberFormat.INT4, NumberFormat.UINT4)
"""Formats that Quantize and Dequantize compute with."""


def decoded(node: Conversion, x: Value, dtype: np.dtype[Any] = _FLOAT) -> Value:
    """The numbers that bits stand for, exactly as float32, or as float16."""
    kind = _format(x.dtype)
    if kind in _WHOLE:
        return _quantization(node, ops.Dequantize, x, dtype)
    bits = in_bytes(node, x, _BYTE) if kind.carrier in FOUR_BITS else x.reinterpret(_bits(kind))
    return node.elementwise(FormatCast, bits, dtype=dtype, format=kind)


def encoded(
    node: Conversion,
    x: Value,
    dtype: np.dtype[Any],
    saturate: bool = True,
    rounding: FormatRounding = FormatRounding.NEAREST,
) -> Value:
    """Floats as numbers of a format; see ``FormatCast``. Only powers of two are rounded otherwise than to the nearest."""
    kind = _format(dtype)
    if kind.layout.scheme is not Scheme.EXPONENT:
        rounding = FormatRounding.NEAREST
    fields: dict[str, Any] = {"format": kind, "saturate": saturate, "rounding": rounding}
    if kind in _WHOLE:
        return _quantization(node, ops.Quantize, x if saturate else node.elementwise(FormatCast, x, **fields), dtype)
    bits = node.elementwise(FormatCast, x, dtype=_bits(kind), **fields)
    return in_half_bytes(node, bits, dtype) if kind.carrier in FOUR_BITS else bits.reinterpret(dtype)


def rounded(node: Conversion, x: Value, kind: NumberFormat) -> Value:
    """float32 as the nearest numbers of a format."""
    return node.elementwise(FormatCast, x, format=kind)


def in_bytes(node: Conversion, x: Value, dtype: np.dtype[Any]) -> Value:
    """Elements of 4 bits, each in a byte: a number in int8 for INT4, else bits in uint8."""
    return node.elementwise(ops.Cast, _quantization(node, ops.Dequantize, x, _FLOAT), dtype=dtype)


def in_half_bytes(node: Conversion, x: Value, dtype: np.dtype[Any]) -> Value:
    """What ``in_bytes`` makes as a type of 4 bits."""
    return _quantization(node, ops.Quantize, node.elementwise(ops.Cast, x, dtype=_FLOAT), dtype)


def on_host(array: Array, dtype: np.dtype[Any]) -> Array:
    """What stands for elements that the host knows: float32 and int8 as numbers, else their bits."""
    if dtype == _FLOAT and format_of(array.dtype) is NumberFormat.BFLOAT16:  # by hand, for onnx 1.17 has integers for it
        return (array.view(np.uint16).astype(np.uint32) << 16).view(np.float32)
    return array.astype(dtype) if dtype in (_FLOAT, np.int8) else array.view(dtype)


def low_bits(node: Conversion, x: Value, dtype: np.dtype[Any]) -> Value:
    """The numbers, as float32, that the low bits of bytes stand for in a format."""
    return node.elementwise(FormatCast, x, dtype=_FLOAT, format=_format(dtype))


def _format(dtype: np.dtype[Any]) -> NumberFormat:
    kind = format_of(dtype)
    assert kind is not None, f"{dtype} is no format"
    return kind


def _bits(kind: NumberFormat) -> np.dtype[Any]:
    return np.dtype(np.uint16 if kind.layout.bits > 8 else np.uint8)


def _quantization(node: Conversion, row: type[ops.Quantize] | type[ops.Dequantize], x: Value, dtype: np.dtype[Any]) -> Value:
    """To 4 bits or from them, with a scale of 1."""
    real = x.dtype if row is ops.Quantize else dtype
    return node.launch(
        row,
        x,
        quantization_type=QuantizationType.SCALE,
        quantization_tensors=(node.upload(np.ones((1,) * x.rank, real)),),
        output_tensor=node.new(x.sizes, dtype),
    )
