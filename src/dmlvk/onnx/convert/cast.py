"""Cast and its kin: elements as another data type."""

from __future__ import annotations

from typing import Any

import numpy as np

from dmlvk.onnx.conversion import Conversion
from dmlvk.onnx.convert.formats import decoded, encoded, low_bits
from dmlvk.onnx.model import FORMATS, FOUR_BITS, ElementKind, format_of, kind_of
from dmlvk.onnx.node_facts import NodeFacts
from dmlvk.onnx.registry import converts
from dmlvk.onnx.values import Value
from dmlvk.spec import ops
from dmlvk.spec.enums import TensorDataType
from dmlvk.spec.formats import FormatRounding, NumberFormat, Scheme
from dmlvk.spec.schema import NUMERIC

_FLOAT, _INT8, _UINT8 = np.dtype(np.float32), np.dtype(np.int8), np.dtype(np.uint8)
_ANY: tuple[ElementKind, ...] = (TensorDataType.FLOAT64, *NUMERIC, *FOUR_BITS, *FORMATS)
_WHOLE = tuple(kind for kind in NumberFormat if kind.layout.scheme is Scheme.INTEGER)
_LOW_BITS_SINCE = 24
"""The version of Cast and CastLike since which a float beyond a whole number's range leaves its low bits there, as in ONNX
Runtime, and not the end of the range. ONNX leaves it open; its own cases changed with opset 24."""
_ROUNDINGS = {"up": FormatRounding.UP, "down": FormatRounding.DOWN, "nearest": FormatRounding.NEAREST}


def _refuse_cast(node: NodeFacts) -> None:
    node.element_type("to", narrow=True)
    _refuse_rounding(node)


def _refuse_rounding(node: NodeFacts) -> None:
    if (mode := node.attribute("round_mode", "up")) not in _ROUNDINGS:
        raise node.invalid("round_mode must be 'up', 'down' or 'nearest'", mode)


@converts("Cast", 6, 9, 13, 19, 21, 23, 24, 25, 28, types=_ANY, check=_refuse_cast)
def cast(node: Conversion) -> Value:
    return _cast(node, node.element_type("to", narrow=True))


@converts("CastLike", 15, 19, 21, 23, 24, 25, types=_ANY, check=_refuse_rounding)
def cast_like(node: Conversion) -> Value:
    return _cast(node, node.dtype(1))


def _cast(node: Conversion, dtype: np.dtype[Any]) -> Value:
    saturate = bool(node.attribute("saturate", 1))
    rounding = _ROUNDINGS[node.attribute("round_mode", "up")]
    return cast_to(node, node[0], dtype, saturate, rounding, keep_low_bits=node.node.version >= _LOW_BITS_SINCE)


@converts("BitCast", 26, types=_ANY, check=lambda node: node.element_type("to", narrow=True))
def bit_cast(node: Conversion) -> Value:
    x, dtype = node[0], node.element_type("to", narrow=True)
    if _bit_count(x.dtype) != _bit_count(dtype):
        raise node.invalid(f"the type to cast to must have the {_bit_count(x.dtype)} bits of the input's", str(dtype))
    return x.reinterpret(dtype)


def _bit_count(dtype: np.dtype[Any]) -> int:
    kind = format_of(dtype)
    return dtype.itemsize * 8 if kind is None else kind.layout.bits


def cast_to(
    node: Conversion,
    x: Value,
    dtype: np.dtype[Any],
    saturate: bool = True,
    rounding: FormatRounding = FormatRounding.NEAREST,
    *,
    keep_low_bits: bool = False,
) -> Value:
    """The value as another type: a view where the bytes are the same, else one launch; two from a float to bool. To formats
    that no tensor has and back goes through float32.

    Args:
        node: The node that launches it.
        x: The value.
        dtype: The type.
        saturate: Whether what is too large for a float of 8 bits becomes the largest of these.
        rounding: How numbers become powers of two.
        keep_low_bits: Whether floats too large for whole numbers of 4 or 2 bits leave their low bits, and halves are rounded
            away from 0. Else they become the end of the range, and halves even.
    """
    if x.dtype == dtype and kind_of(x.dtype) is kind_of(dtype):  # onnx 1.17's type for INT4 equals numpy's int8
        return x
    source, target = format_of(x.dtype), format_of(dtype)
    if source in _WHOLE and target in _WHOLE and source.layout.bits == target.layout.bits:
        return x.reinterpret(dtype)
    if source is not None:
        real = dtype if dtype == np.float16 else _FLOAT
        y = decoded(node, x, real)
        if source in _WHOLE and dtype not in (np.float32, np.float16):
            y = node.elementwise(ops.Cast, y, dtype=_INT8)
        return cast_to(node, y, dtype, saturate, rounding, keep_low_bits=keep_low_bits)
    if target is not None:
        is_whole = target in _WHOLE
        if is_whole and x.dtype.kind in "biu":
            x, keep_low_bits = low_bits(node, cast_to(node, x, _UINT8), dtype), False
        elif x.dtype != np.float16 or is_whole:
            x = cast_to(node, x, _FLOAT)
        return encoded(node, x, dtype, not keep_low_bits if is_whole else saturate, rounding)
    return node.cast(x, dtype)
