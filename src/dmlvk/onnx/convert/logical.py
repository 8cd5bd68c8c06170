"""Comparisons, logic, predicates, bits, and the choice between two tensors. A bool is a byte of 0 or 1."""

from __future__ import annotations

import numpy as np

from dmlvk.onnx.conversion import Conversion
from dmlvk.onnx.convert.elementwise import Elementwise, register
from dmlvk.onnx.model import data_type_of
from dmlvk.onnx.registry import always, converts
from dmlvk.onnx.values import Value
from dmlvk.spec import ops
from dmlvk.spec.enums import IsInfinityMode, TensorDataType
from dmlvk.spec.schema import FLOATS, NUMERIC, SIGNED, UNSIGNED

_BOOL = np.dtype(np.bool_)
_BOOLS = (TensorDataType.UINT8,)
_INTEGERS = SIGNED + UNSIGNED

# fmt: off
register((
    Elementwise("And",            (7,),              ops.ElementWiseLogicalAnd,                _BOOLS),
    Elementwise("Or",             (7,),              ops.ElementWiseLogicalOr,                 _BOOLS),
    Elementwise("Xor",            (7,),              ops.ElementWiseLogicalXor,                _BOOLS),
    Elementwise("Not",            (1,),              ops.ElementWiseLogicalNot,                _BOOLS),
    Elementwise("Equal",          (7, 11, 13, 19),   ops.ElementWiseLogicalEquals,             NUMERIC,   _BOOL),
    Elementwise("Greater",        (7, 9, 13),        ops.ElementWiseLogicalGreaterThan,        NUMERIC,   _BOOL),
    Elementwise("GreaterOrEqual", (12, 16),          ops.ElementWiseLogicalGreaterThanOrEqual, NUMERIC,   _BOOL),
    Elementwise("Less",           (7, 9, 13),        ops.ElementWiseLogicalLessThan,           NUMERIC,   _BOOL),
    Elementwise("LessOrEqual",    (12, 16),          ops.ElementWiseLogicalLessThanOrEqual,    NUMERIC,   _BOOL),
    Elementwise("IsNaN",          (9, 13, 20),       ops.ElementWiseIsNan,                     FLOATS,    _BOOL),
    Elementwise("BitwiseAnd",     (18,),             ops.ElementWiseBitAnd,                    _INTEGERS),
    Elementwise("BitwiseOr",      (18,),             ops.ElementWiseBitOr,                     _INTEGERS),
    Elementwise("BitwiseXor",     (18,),             ops.ElementWiseBitXor,                    _INTEGERS),
    Elementwise("BitwiseNot",     (18,),             ops.ElementWiseBitNot,                    _INTEGERS),
))
# fmt: on


@converts("IsInf", 10, 20, types=FLOATS, doubles=True)
def is_infinity(node: Conversion) -> Value:
    """Either sign may be left out; without both, nothing counts as infinite."""
    negative, positive = (bool(node.attribute(f"detect_{sign}", 1)) for sign in ("negative", "positive"))
    if not (negative or positive):
        return node.fill(node[0].sizes, np.False_)
    one_sign = IsInfinityMode.NEGATIVE if negative else IsInfinityMode.POSITIVE
    mode = IsInfinityMode.EITHER if negative and positive else one_sign
    return node.elementwise(ops.ElementWiseIsInfinity, node[0], dtype=_BOOL, infinity_mode=mode)


@converts("BitShift", 11, 28, types=_INTEGERS)
def bit_shift(node: Conversion) -> Value:
    """By as many bits as there are, or more, nothing is left; a negative number of bits is read as an unsigned one, which is
    more. A signed number goes right as the bits of ``x xor sign``, whose first is 0; what comes of that is turned back."""
    goes_left = node.attribute("direction", "") == "LEFT"
    x, bits = node[0], node[1].reinterpret(np.dtype(f"u{node[1].dtype.itemsize}"))
    if x.dtype.kind == "u" or goes_left:
        row = ops.ElementWiseBitShiftLeft if goes_left else ops.ElementWiseBitShiftRight
        return node.elementwise(row, x.reinterpret(bits.dtype), bits).reinterpret(x.dtype)
    sign = node.elementwise(ops.ElementWiseClip1, x, min_max_data_type=data_type_of(x.dtype), min=-1, max=0)
    turned = node.elementwise(ops.ElementWiseBitXor, x, sign).reinterpret(bits.dtype)
    shifted = node.elementwise(ops.ElementWiseBitShiftRight, turned, bits).reinterpret(x.dtype)
    return node.elementwise(ops.ElementWiseBitXor, shifted, sign)


@converts("Where", 9, 16, types=_BOOLS, moves=always)
def where(node: Conversion) -> Value:
    condition, x, y = node[0], node[1], node[2]
    return node.elementwise(ops.ElementWiseIf, condition, x, y, dtype=x.dtype)
