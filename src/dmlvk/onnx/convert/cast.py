"""Cast and its kin: elements as another data type."""

from __future__ import annotations

from typing import Any

import numpy as np

from dmlvk.onnx.conversion import Conversion
from dmlvk.onnx.convert.narrow_floats import narrowed, widened
from dmlvk.onnx.model import FOUR_BITS, NarrowFloat, data_type_of, kind_of
from dmlvk.onnx.registry import converts
from dmlvk.onnx.values import Value
from dmlvk.spec import ops
from dmlvk.spec.enums import QuantizationType, TensorDataType
from dmlvk.spec.schema import FLOATS, NUMERIC

_FLOAT = np.dtype(np.float32)
_ANY = (TensorDataType.FLOAT64, *NUMERIC, *FOUR_BITS, *NarrowFloat)


@converts("Cast", 6, 9, 13, 19, 21, 23, 24, 25, types=_ANY, check=lambda node: node.element_type("to", narrow=True))
def cast(node: Conversion) -> Value:
    return cast_to(node, node[0], node.element_type("to", narrow=True), bool(node.attribute("saturate", 1)))


@converts("CastLike", 15, 19, 21, 23, 24, 25, types=_ANY)
def cast_like(node: Conversion) -> Value:
    return cast_to(node, node[0], node[1].dtype, bool(node.attribute("saturate", 1)))


def cast_to(node: Conversion, x: Value, dtype: np.dtype[Any], saturate: bool = True) -> Value:
    """The value as another type: a view where the bytes are the same, else one launch; two from a float to bool. To narrow
    floats and back goes through float32; what is too large for 8 bits becomes their largest number if it is to
    ``saturate``."""
    kinds = kind_of(x.dtype), kind_of(dtype)
    if isinstance(kinds[0], NarrowFloat) or isinstance(kinds[1], NarrowFloat):
        if kinds[0] is kinds[1]:
            return x
        x = widened(node, x) if isinstance(kinds[0], NarrowFloat) else cast_to(node, x, _FLOAT)
        return narrowed(node, x, dtype, saturate) if isinstance(kinds[1], NarrowFloat) else cast_to(node, x, dtype)
    before, after = data_type_of(x.dtype), data_type_of(dtype)
    if before in FOUR_BITS or after in FOUR_BITS:
        return x if before is after else _cast_4_bits(node, x, dtype)
    if dtype.kind == "b" and x.dtype.kind != "b":
        return _truth(node, x)
    integers = x.dtype.kind in "biu" and dtype.kind in "biu"
    if x.dtype == dtype or (integers and x.dtype.itemsize == dtype.itemsize):
        return x.reinterpret(dtype)
    return node.elementwise(ops.Cast, x, dtype=dtype)


def _cast_4_bits(node: Conversion, x: Value, dtype: np.dtype[Any]) -> Value:
    """The operators of these types do it with a scale of 1: from floats to the nearest, halves to even, as ONNX says."""
    quantizes = data_type_of(dtype) in FOUR_BITS
    real = x.dtype if quantizes else dtype
    if data_type_of(real) not in FLOATS:
        real = np.dtype(np.float32)
    if quantizes:
        x = cast_to(node, x, real)
    y = node.launch(
        ops.Quantize if quantizes else ops.Dequantize,
        x,
        quantization_type=QuantizationType.SCALE,
        quantization_tensors=(node.upload(np.ones((1,) * x.rank, real)),),
        output_tensor=node.new(x.sizes, dtype if quantizes else real),
    )
    return y if quantizes else cast_to(node, y, dtype)


def _truth(node: Conversion, x: Value) -> Value:
    """1 where x is not 0, else 0, by the bits, so that subnormal numbers and NaN are true on every device. Doubling the
    bits of a float drops its sign: -0 is 0 too."""
    bits = x.reinterpret(np.dtype(f"u{x.dtype.itemsize}"))
    if x.dtype.kind == "f":
        bits = node.elementwise(ops.ElementWiseAdd, bits, bits)
    zero = node.upload(np.zeros((), bits.dtype))
    return node.elementwise(ops.ElementWiseLogicalGreaterThan, bits, zero, dtype=np.dtype(np.bool_))
