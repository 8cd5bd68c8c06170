"""Pow: base and exponent may be of different types, and the base is of 64 bits more often than not in ONNX, while
DirectML's row ends at 32."""

from __future__ import annotations

import numpy as np

from dmlvk import ops
from dmlvk.onnx.conversion import Conversion
from dmlvk.onnx.convert.cast import cast_to
from dmlvk.onnx.model import Array, data_type_of
from dmlvk.onnx.registry import converts
from dmlvk.onnx.values import Value
from dmlvk.schema import FLOATS, SIGNED, fits_float32

_INT64, _UINT64, _BOOL = np.dtype(np.int64), np.dtype(np.uint64), np.dtype(np.bool_)


@converts("Pow", 7, 12, 13, 15, types=(*FLOATS, *SIGNED))
def power(node: Conversion) -> Value:
    """A single exponent known before the run is a number of the operator, not a tensor."""
    x, known = node[0], node.host(1)
    if known is not None and known.size == 1 and x.rank >= known.ndim:
        number = known.item()
        if x.dtype.kind == "f" and fits_float32(number):
            return node.elementwise(ops.ElementWiseConstantPow, x, exponent=float(number))
        if x.dtype == _INT64 and number >= 0 and number == int(number):
            return _whole_power(node, x, int(number))
    if x.dtype == _INT64:
        return _power_of_64_bits(node, x, node[1])
    if known is not None:
        return node.elementwise(ops.ElementWisePow, x, node.upload(_narrowed(known)))
    return node.elementwise(ops.ElementWisePow, x, _narrowed_on_device(node, node[1]))


def _whole_power(node: Conversion, x: Value, exponent: int) -> Value:
    """Squares and products: the low bits of x^exponent."""
    if exponent == 0:
        return node.fill(x.sizes, np.int64(1))
    result = None
    while True:
        if exponent & 1:
            result = x if result is None else node.elementwise(ops.ElementWiseMultiply, result, x)
        exponent >>= 1
        if not exponent:
            assert result is not None, "the last bit is 1"
            return result
        x = node.elementwise(ops.ElementWiseMultiply, x, x)
