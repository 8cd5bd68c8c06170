"""Quantization: real numbers held as integers, real = (integer - zero point) * scale, and the sum of two such tensors.

What the rows share, where the specification is silent:

- Everything is computed in float32. A quotient is rounded to float32, as ``/`` does, and then to an integer, halves to
  even, both exactly on every device: results are the same bits as numpy's ``rint(x / scale)`` and as ONNX Runtime's.
- The zero point is added after that, and the sum is clamped to the type's range. NaN quantizes as 0 does.
- A scale of 0 is undefined in the specification: here a quotient by 0 is infinite, and 0 / 0 is NaN. A float32 subnormal
  counts as 0 where the device flushes it, a subnormal scale of a quotient everywhere.
- Of 4-bit types the element with the even index is the low half of its byte. Strides count elements, so halves of bytes.
"""

from dmlvk.spec import constraints as _c
from dmlvk.spec import schema as _s
from dmlvk.spec.enums import QuantizationType as _QuantizationType
from dmlvk.spec.enums import TensorDataType as _T
from dmlvk.spec.tensor import TensorDesc

_BYTES = (_T.INT8, _T.UINT8)
_INTEGERS = (_T.INT32, _T.INT16, _T.INT8, _T.UINT32, _T.UINT16, _T.UINT8)
_PACKED = (_T.INT8, _T.INT4, _T.UINT8, _T.UINT4)


@_c.constraint("scale_data_type", "ScaleTensor must have InputTensor's data type, or FLOAT32 where that is INT32")
def _scale_data_type(desc: "ElementWiseQuantizeLinear") -> _s.Violation | None:
    source, scale = desc.tensor("input_tensor").data_type, desc.tensor("scale_tensor").data_type
    wanted = _T.FLOAT32 if source == _T.INT32 else source
    return None if scale == wanted else _s.Violation("scale_tensor", scale.name)


class ElementWiseQuantizeLinear(
    _s.OperatorDesc,
    constraints=(
        _c.same_dimension_count(),
        _c.same_sizes(),
        _scale_data_type,
        _c.same_data_type("zero_point_tensor", "output_tensor"),
    ),
    traits=_s.Traits(separable=_s.everywhere),
):
    """y = clamp(round(x / scale) + zero point), scale and zero point for each element: stride 0 broadcasts them.

    INT32 is rounded to float32 first.
    """

    input_tensor: TensorDesc | None = _s.input_tensor((*_s.FLOATS, _T.INT32))
    scale_tensor: TensorDesc | None = _s.input_tensor(_s.FLOATS)
    zero_point_tensor: TensorDesc | None = _s.input_tensor(_BYTES, optional=True)
    output_tensor: TensorDesc | None = _s.output_tensor(_BYTES)


class ElementWiseDequantizeLinear(
    _s.OperatorDesc,
    constraints=(
        _c.same_dimension_count(),
        _c.same_sizes(),
        _c.same_data_type("input_tensor", "zero_point_tensor"),
        _c.same_data_type("scale_tensor", "output_tensor"),
    ),
    traits=_s.Traits(separable=_s.everywhere),
):
    """y = (x - zero point) * scale, scale and zero point for each element: stride 0 broadcasts them.

    The difference is exact, whatever the type, and then rounded to float32, which only 32-bit integers need.
    """

    input_tensor: TensorDesc | None = _s.input_tensor(_INTEGERS)
    scale_tensor: TensorDesc | None = _s.input_tensor(_s.FLOATS)
    zero_point_tensor: TensorDesc | None = _s.input_tensor(_INTEGERS, optional=True)
    output_tensor: TensorDesc | None = _s.output_tensor(_s.FLOATS)


@_c.constraint("one_element", "scale and zero point tensors must hold one element")
def _one_element(desc: "ElementWiseQuantizedLinearAdd | DynamicQuantizeLinear") -> _s.Violation | None:
    for slot in desc.input_slots() + desc.output_slots():
        is_parameter = slot.field.name.endswith(("scale_tensor", "zero_point_tensor"))
        if slot.tensor is not None and is_parameter and slot.tensor.element_count != 1:
            return _s.Violation(slot.field.name, slot.tensor.sizes)
    return None


class ElementWiseQuantizedLinearAdd(
    _s.OperatorDesc,
    constraints=(
        _c.same_dimension_count("a_tensor", "b_tensor", "output_tensor"),
        _c.same_sizes("a_tensor", "b_tensor", "output_tensor"),
        _one_element,
        _c.same_data_type("a_tensor", "a_zero_point_tensor"),
        _c.same_data_type("b_tensor", "b_zero_point_tensor"),
        _c.same_data_type("output_tensor", "output_zero_point_tensor"),
    ),
    traits=_s.Traits(separable=_s.everywhere),
):
    """y = clamp(round((real a + real b) / output scale) + output zero point), where real x = (x - x zero point) * x scale.

    Both products, the sum and the quotient are rounded to float32. A zero point that is absent is 0.
    """

    a_tensor: TensorDesc | None = _s.input_tensor(_BYTES)
    a_scale_tensor: TensorDesc | None = _s.input_tensor((_T.FLOAT32,))
    a_zero_point_tensor: TensorDesc | None = _s.input_tensor(_BYTES, optional=True)
    b_tensor: TensorDesc | None = _s.input_tensor(_BYTES)
    b_scale_tensor: TensorDesc | None = _s.input_tensor((_T.FLOAT32,))
    b_zero_point_tensor: TensorDesc | None = _s.input_tensor(_BYTES, optional=True)
    output_scale_tensor: TensorDesc | None = _s.input_tensor((_T.FLOAT32,))
    output_zero_point_tensor: TensorDesc | None = _s.input_tensor(_BYTES, optional=True)
    output_tensor: TensorDesc | None = _s.output_tensor(_BYTES)


class DynamicQuantizeLinear(
    _s.OperatorDesc,
    constraints=(
        _c.same_dimension_count("input_tensor", "output_tensor"),
        _c.same_sizes("input_tensor", "output_tensor"),
        _one_element,
        _c.same_data_type("output_tensor", "output_zero_point_tensor"),
    ),
):
    """y = clamp(round(x / scale) + zero point) with the scale and the zero point that the elements themselves ask for.

    For the type's least number Q and the range of all elements and 0, as in ONNX, so that 0 has an integer:

    - scale = (largest - least) / 255, both steps rounded to float32. Of a range below 2^-118, whose scale might be
      subnormal, and so of zeros alone, it is 1.
    - zero point = clamp(round(-least / scale) + Q): that of INT8, and so all its integers, are 128 less than UINT8's.

    Infinities, and ranges beyond float32, have the scale infinity, a NaN the scale NaN; the zero point and the whole
    output are Q then. Subnormal ends of the range count as 0.
    """

    input_tensor: TensorDesc | None = _s.input_tensor(_s.FLOATS)
    output_tensor: TensorDesc | None = _s.output_tensor(_BYTES)
    output_scale_tensor: TensorDesc | None = _s.output_tensor((_T.FLOAT32,))
    output_zero_point_tensor: TensorDesc | None = _s.output_tensor(_BYTES)

    def inferred_output_sizes(self) -> tuple[tuple[int, ...], ...]:
        sizes = self.tensor("input_tensor").sizes
        return (sizes, *((1,) * len(sizes),) * 2)


@_c.constraint(
    "quantization_type",
    "QuantizationType must be SCALE with one tensor in QuantizationTensors, or SCALE_ZERO_POINT with two",
)
def _quantization_type(desc: "Quantize | Dequantize") -> _s.Violation | None:
    counts = {_QuantizationType.SCALE: 1, _QuantizationType.SCALE_ZERO_POINT: 2}
    wanted = counts.get(desc.quantization_type)
    if wanted is None:
        return _s.Violation("quantization_type", desc.quantization_type)
    if len(desc.quantization_tensors) != wanted:
        return _s.Violation("quantization_tensors", len(desc.quantization_tensors), wanted)
    return None


def _quantization_data_types(real: str, integer: str) -> _s.Constraint:
    """The data types of the quantization tensors: those of the fields ``real`` and ``integer``."""

    @_c.constraint("same_data_type", f"the scale must have the data type of {real}, the zero point that of {integer}")
    def check(desc: "Quantize | Dequantize") -> _s.Violation | None:
        for tensor, like in zip(desc.quantization_tensors, (real, integer), strict=False):
            other = getattr(desc, like)  # None while data types are being inferred
            if other is not None and tensor.data_type != other.data_type:
                return _s.Violation("quantization_tensors", tensor.data_type, other.data_type)
        return None

    return check


@_c.constraint("blocks", "each size of the scale must divide InputTensor's, and the zero point must have the scale's sizes")
def _blocks(desc: "Quantize | Dequantize") -> _s.Violation | None:
    scale, *zero_point = desc.quantization_tensors
    if any(
        (full % blocks if blocks else full)
        for full, blocks in zip(desc.tensor("input_tensor").sizes, scale.sizes, strict=True)
    ):
        return _s.Violation("quantization_tensors", scale.sizes)
    for tensor in zero_point:
        if tensor.sizes != scale.sizes:
            return _s.Violation("quantization_tensors", tensor.sizes, scale.sizes)
    return None


class Quantize(
    _s.OperatorDesc,
    constraints=(
        _c.same_dimension_count(),
        _c.same_sizes("input_tensor", "output_tensor"),
        _quantization_type,
        _quantization_data_types("input_tensor", "output_tensor"),
        _blocks,
    ),
    traits=_s.Traits(separable=_s.everywhere),
):
    """y = clamp(round(x / scale) + zero point), to 8 or 4 bits; ``quantization_tensors``: (scale,) or (scale, zero point).

    In each dimension a scale serves a block of input size / scale size neighbours: size 1 serves the whole dimension, the
    input's own size gives each element its own.
    """

    input_tensor: TensorDesc | None = _s.input_tensor(_s.FLOATS)
    quantization_type: _QuantizationType = _s.enumeration(_QuantizationType)
    quantization_tensors: tuple[TensorDesc, ...] = _s.input_tensor_array((*_s.FLOATS, *_PACKED))
    output_tensor: TensorDesc | None = _s.output_tensor(_PACKED)


class Dequantize(
    _s.OperatorDesc,
    constraints=(
        _c.same_dimension_count(),
        _c.same_sizes("input_tensor", "output_tensor"),
        _quantization_type,
        _quantization_data_types("output_tensor", "input_tensor"),
        _blocks,
    ),
    traits=_s.Traits(separable=_s.everywhere),
):
    """y = (x - zero point) * scale, from 8 or 4 bits; ``quantization_tensors`` are (scale,) or (scale, zero point).

    In each dimension a scale serves a block of input size / scale size neighbours: size 1 serves the whole dimension, the
    input's own size gives each element its own.
    """

    input_tensor: TensorDesc | None = _s.input_tensor(_PACKED)
    quantization_type: _QuantizationType = _s.enumeration(_QuantizationType)
    quantization_tensors: tuple[TensorDesc, ...] = _s.input_tensor_array((*_s.FLOATS, *_PACKED))
    output_tensor: TensorDesc | None = _s.output_tensor(_s.FLOATS)
