"""Numbers in formats with which nothing computes, as float32 and back: one launch, more where a tensor has two in a byte."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from dmlvk.onnx.conversion import Conversion
from dmlvk.onnx.model import FOUR_BITS, format_of
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
    if kind.carrier in FOUR_BITS:
        y = _quantization(node, ops.Dequantize, x, dtype if kind in _WHOLE else _FLOAT)
        if kind in _WHOLE:
            return y
        bits = node.elementwise(ops.Cast, y, dtype=_BYTE)
    else:
        bits = x.reinterpret(_bits(kind))
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
    if kind.carrier in FOUR_BITS:
        return _quantization(node, ops.Quantize, node.elementwise(ops.Cast, bits, dtype=_FLOAT), dtype)
    return bits.reinterpret(dtype)


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
