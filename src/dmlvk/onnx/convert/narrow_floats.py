"""bfloat16 and the four kinds of 8-bit floats, from float32 and back, by their bits.

Numbers are rounded to the nearest, halves to even. Reading a byte is a gather from a table of all 256; writing one takes
about 20 elementwise operators on 32-bit integers, which move far more than a kernel of its own would.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from dmlvk.onnx.conversion import Conversion
from dmlvk.onnx.model import Array, NarrowFloat, kind_of
from dmlvk.onnx.values import Value
from dmlvk.spec import ops
from dmlvk.spec.enums import RoundingMode
from dmlvk.spec.schema import OperatorDesc, ScaleBias

_FLOAT, _BITS, _BOOL = np.dtype(np.float32), np.dtype(np.uint32), np.dtype(np.bool_)
_MANTISSA, _BIAS = 23, 127
"""The bits of a float32's fraction, and its exponent's bias."""

_INFINITY = 0x7F800000


def widened(node: Conversion, x: Value) -> Value:
    """Narrow floats as float32, exactly."""
    kind = kind_of(x.dtype)
    assert isinstance(kind, NarrowFloat), "callers ask for narrow floats only"
    bits = node.elementwise(ops.Cast, x.reinterpret(np.dtype(f"u{x.dtype.itemsize}")), dtype=_BITS)
    if kind is NarrowFloat.BFLOAT16:
        return _with(node, ops.ElementWiseBitShiftLeft, bits, 16).reinterpret(_FLOAT)
    table = node.upload(_numbers(kind))
    flat = node.reshape(bits, (1, int(np.prod(bits.sizes, dtype=np.int64))))
    y = node.launch(
        ops.Gather,
        node.reshape(table, (1, 256)),
        flat,
        output_tensor=node.new(flat.sizes, _FLOAT),
        axis=1,
        index_dimensions=1,
    )
    return node.reshape(y, x.sizes)


def narrowed(node: Conversion, x: Value, dtype: np.dtype[Any], saturate: bool) -> Value:
    """float32 as narrow floats. What is too large becomes the largest number if it is to ``saturate``, which bfloat16 never
    does, else infinity, or where there is none no number."""
    kind = kind_of(dtype)
    assert isinstance(kind, NarrowFloat), "callers ask for narrow floats only"
    size = dtype.itemsize * 8
    bits = node.packed(x).reinterpret(_BITS)
    magnitude = _with(node, ops.ElementWiseBitAnd, bits, 2**31 - 1)
    sign = _with(node, ops.ElementWiseBitAnd, _with(node, ops.ElementWiseBitShiftRight, bits, 32 - size), 1 << (size - 1))
    code = _rounded(node, magnitude, kind)
    if kind is not NarrowFloat.BFLOAT16:
        code = node.elementwise(
            ops.ElementWiseIf, _below_normal(node, magnitude, kind), _steps(node, magnitude, kind), code, dtype=_BITS
        )
        beyond = kind.largest if saturate else kind.infinity
        code = _chosen(node, _with(node, ops.ElementWiseLogicalGreaterThan, code, kind.largest), beyond, code)
    code = _chosen(node, _with(node, ops.ElementWiseLogicalGreaterThan, magnitude, _INFINITY), kind.nan, code)
    if kind.nan == 1 << (size - 1):  # the bits of a negative 0, which there is not
        sign = _chosen(node, _with(node, ops.ElementWiseLogicalEquals, code, 0), 0, sign)
    if kind is NarrowFloat.BFLOAT16:  # no number has no sign there
        sign = _chosen(node, _with(node, ops.ElementWiseLogicalGreaterThan, magnitude, _INFINITY), 0, sign)
    y = node.elementwise(ops.ElementWiseBitOr, code, sign)
    return node.elementwise(ops.Cast, y, dtype=np.dtype(f"u{dtype.itemsize}")).reinterpret(dtype)


def _rounded(node: Conversion, magnitude: Value, kind: NarrowFloat) -> Value:
    """The bits of numbers that are not below the normal ones: float32's without the mantissa's last bits, after half of what
    they count is added (a little less to even numbers), and with the other bias. Rounding up runs into the exponent."""
    dropped = _MANTISSA - kind.mantissa
    last = _with(node, ops.ElementWiseBitAnd, _with(node, ops.ElementWiseBitShiftRight, magnitude, dropped), 1)
    sums = node.elementwise(ops.ElementWiseAdd, _with(node, ops.ElementWiseAdd, magnitude, (1 << (dropped - 1)) - 1), last)
    code = _with(node, ops.ElementWiseBitShiftRight, sums, dropped)
    return code if kind.bias == _BIAS else _with(node, ops.ElementWiseSubtract, code, (_BIAS - kind.bias) << kind.mantissa)


def _below_normal(node: Conversion, magnitude: Value, kind: NarrowFloat) -> Value:
    return _with(node, ops.ElementWiseLogicalLessThan, magnitude, (_BIAS - kind.bias + 1) << _MANTISSA)


def _steps(node: Conversion, magnitude: Value, kind: NarrowFloat) -> Value:
    """The bits of numbers below the normal ones: how many of the least number they are."""
    scale = ScaleBias(2.0 ** (kind.bias - 1 + kind.mantissa), 0.0)
    steps = node.elementwise(ops.ElementWiseIdentity, magnitude.reinterpret(_FLOAT), scale_bias=scale)
    steps = node.elementwise(ops.ElementWiseRound, steps, rounding_mode=RoundingMode.HALVES_TO_NEAREST_EVEN)
    return node.elementwise(ops.Cast, steps, dtype=_BITS)


def _with(node: Conversion, row: type[OperatorDesc], x: Value, number: int) -> Value:
    """An operator with a constant as its second input; comparisons give bools."""
    dtype = _BOOL if "Logical" in row.__name__ else None
    return node.elementwise(row, x, node.upload(np.array(number, _BITS)), dtype=dtype)


def _chosen(node: Conversion, condition: Value, number: int, other: Value) -> Value:
    return node.elementwise(ops.ElementWiseIf, condition, node.upload(np.array(number, _BITS)), other, dtype=_BITS)


def _numbers(kind: NarrowFloat) -> Array:
    """The number that each of 256 bytes stands for."""
    codes = np.arange(256)
    exponents, mantissas = codes >> kind.mantissa & (0x7F >> kind.mantissa), codes & ((1 << kind.mantissa) - 1)
    normal = exponents > 0
    numbers = (mantissas + (normal << kind.mantissa)) * 2.0 ** (np.where(normal, exponents, 1) - kind.bias - kind.mantissa)
    numbers = np.where(codes < 128, numbers, -numbers)
    beyond = codes & 0x7F > kind.largest
    numbers[beyond] = np.nan
    if kind.nan == 0x80:
        numbers[0x80] = np.nan
    if kind.infinity not in (kind.nan, 0x80):
        numbers[[kind.infinity, kind.infinity | 0x80]] = np.inf, -np.inf
    table: Array = numbers.astype(np.float32)
    return table
