"""Changes of type."""

from __future__ import annotations

from typing import Any

import numpy as np

from dmlvk import ops
from dmlvk.enums import TensorDataType
from dmlvk.onnx.conversion import Conversion
from dmlvk.onnx.registry import converts
from dmlvk.onnx.values import Value
from dmlvk.schema import NUMERIC

_ANY = (TensorDataType.FLOAT64, *NUMERIC)


@converts("Cast", 6, 9, 13, 19, 21, 23, 24, 25, types=_ANY)
def cast(node: Conversion) -> Value:
    """``saturate`` is about 8-bit floats, which no device tensor can hold."""
    return cast_to(node, node[0], node.element_type("to"))


@converts("CastLike", 15, 19, 21, 23, 24, 25, types=_ANY)
def cast_like(node: Conversion) -> Value:
    return cast_to(node, node[0], node[1].dtype)


def cast_to(node: Conversion, x: Value, dtype: np.dtype[Any]) -> Value:
    """The value as another type: a view where the bytes are the same, else one launch; two from a float to bool."""
    if dtype.kind == "b" and x.dtype.kind != "b":
        return _truth(node, x)
    integers = x.dtype.kind in "biu" and dtype.kind in "biu"
    if x.dtype == dtype or (integers and x.dtype.itemsize == dtype.itemsize):
        return x.reinterpret(dtype)
    return node.elementwise(ops.Cast, x, dtype=dtype)


def _truth(node: Conversion, x: Value) -> Value:
    """1 where x is not 0, else 0, by the bits, so that subnormal numbers and NaN are true on every device. Doubling the
    bits of a float drops its sign: -0 is 0 too."""
    bits = x.reinterpret(np.dtype(f"u{x.dtype.itemsize}"))
    if x.dtype.kind == "f":
        bits = node.elementwise(ops.ElementWiseAdd, bits, bits)
    zero = node.upload(np.zeros((), bits.dtype))
    return node.elementwise(ops.ElementWiseLogicalGreaterThan, bits, zero, dtype=np.dtype(np.bool_))
