"""A row of our own, which is no operator of DirectML: numbers in formats that its tensors lack. It is in no table."""

from __future__ import annotations

from dmlvk.spec import constraints as _c
from dmlvk.spec import schema as _s
from dmlvk.spec.enums import TensorDataType as _T
from dmlvk.spec.formats import FormatRounding, NumberFormat, Scheme
from dmlvk.spec.tensor import TensorDesc

_BITS = (_T.UINT8, _T.UINT16)


@_c.constraint("types", "input or output must be floats, the bits of at most one of them as many as the format's")
def _types(desc: FormatCast) -> _s.Violation | None:
    source, target = desc.tensor("input_tensor").data_type, desc.tensor("output_tensor").data_type
    bits = _T.UINT16 if desc.format.layout.bits > 8 else _T.UINT8
    if source in _BITS and (target in _BITS or source != bits):
        return _s.Violation("input_tensor", source)
    if target in _BITS and target != bits:
        return _s.Violation("output_tensor", target)
    is_rounding = source == target == _T.FLOAT32
    return _s.Violation("output_tensor", target) if {source, target} <= {*_s.FLOATS} and not is_rounding else None


@_c.constraint("rounding", "rounding must be NEAREST, but to a format of powers of two")
def _rounding(desc: FormatCast) -> _s.Violation | None:
    is_nearest = desc.rounding is FormatRounding.NEAREST
    return None if is_nearest or desc.format.layout.scheme is Scheme.EXPONENT else _s.Violation("rounding", desc.rounding)


class FormatCast(
    _s.OperatorDesc,
    internal=True,
    in_place=("input_tensor",),
    constraints=(_c.same_dimension_count(), _c.same_sizes(), _types, _rounding),
    traits=_s.Traits(strided=True, discontinuous=True, separable=_s.everywhere),
):
    """y = x to a format, or from it.

    From floats to integers, the bits of the nearest number of the format; from integers, of which the format's bits count,
    to floats, the number that they stand for; from FLOAT32 to FLOAT32 the nearest number of the format.

    format: The format.
    saturate: Whether what is beyond the largest number becomes that. Else it becomes infinity, or where there is none NaN;
        of whole numbers the low bits remain. BFLOAT16 never does.
    rounding: How what is between two numbers is rounded.
    """

    input_tensor: TensorDesc | None = _s.input_tensor((*_s.FLOATS, *_BITS))
    output_tensor: TensorDesc | None = _s.output_tensor((*_s.FLOATS, *_BITS))
    format: NumberFormat = _s.enumeration(NumberFormat)
    saturate: bool = _s.boolean(True)
    rounding: FormatRounding = _s.enumeration(FormatRounding, FormatRounding.NEAREST)

    @property
    def title(self) -> str:
        """The title with the format: "FormatCast(BFLOAT16)"."""
        return f"{super().title}({self.format.name})"
