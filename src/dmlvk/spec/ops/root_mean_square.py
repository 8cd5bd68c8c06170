"""A row of our own: normalization by the root mean square, of a sum that is a result, too."""

from __future__ import annotations

from dmlvk.spec import constraints as _c
from dmlvk.spec import schema as _s
from dmlvk.spec.enums import TensorDataType
from dmlvk.spec.tensor import TensorDesc

_INPUT, _ADDEND, _SCALE, _SUM = "input_tensor", "addend_tensor", "scale_tensor", "sum_tensor"
_NORM_ADDEND, _NORM_SCALE = "norm_addend_tensor", "norm_scale_tensor"


def _of_a_known_type(desc: _s.OperatorDesc, name: str) -> _s.Violation | None:
    allowed = desc.tensor(_INPUT).data_type, desc.tensor("output_tensor").data_type, TensorDataType.FLOAT16
    addend: TensorDesc | None = getattr(desc, name)
    return None if addend is None or addend.data_type in allowed else _s.Violation(name, addend.data_type, allowed)


@_c.constraint("addend_type", "must have the type of input or output, or be FLOAT16")
def _addend_type(desc: RootMeanSquare) -> _s.Violation | None:
    return _of_a_known_type(desc, _ADDEND)


@_c.constraint("scale_sizes", "must be a number for each element of a row")
def _scale_sizes(desc: RootMeanSquare) -> _s.Violation | None:
    scale, wanted = desc.scale_tensor, desc.tensor(_INPUT).sizes[-1:]
    return None if scale is None or scale.sizes == wanted else _s.Violation(_SCALE, scale.sizes, wanted)


@_c.constraint("norm_addend_type", "must have the type of input or output, or be FLOAT16")
def _norm_addend_type(desc: _s.OperatorDesc) -> _s.Violation | None:
    return _of_a_known_type(desc, _NORM_ADDEND)


@_c.constraint("norm_scale_sizes", "must be a number for each element of a row")
def _norm_scale_sizes(desc: _s.OperatorDesc) -> _s.Violation | None:
    scale, wanted = desc.tensor(_NORM_SCALE).sizes, desc.tensor(_INPUT).sizes[-1:]
    return None if scale == wanted else _s.Violation(_NORM_SCALE, scale, wanted)


NORMALIZED_RULES = (
    _c.same_data_type(_INPUT, _NORM_SCALE, _SUM),
    _c.same_sizes(_INPUT, _NORM_ADDEND, _SUM),
    _norm_addend_type,
    _norm_scale_sizes,
)
"""The constraints of the tensors that a product has of the normalization before it."""


def normalization_of(desc: _s.OperatorDesc, epsilon: float) -> RootMeanSquare:
    """The normalization whose rows, packed and of the output's type, a product with one is of."""
    x: TensorDesc = desc.tensor(_INPUT)
    return RootMeanSquare(
        input_tensor=x,
        addend_tensor=getattr(desc, _NORM_ADDEND),
        scale_tensor=desc.tensor(_NORM_SCALE),
        output_tensor=TensorDesc(desc.tensor("output_tensor").data_type, x.sizes),
        sum_tensor=getattr(desc, _SUM),
        epsilon=epsilon,
    )


class RootMeanSquare(
    _s.OperatorDesc,
    internal=True,
    traits=_s.Traits(strided=True, separable=lambda desc, count: range(count - 1)),
    constraints=(
        _c.same_data_type(_INPUT, _SCALE, _SUM),
        _c.same_sizes(_INPUT, _ADDEND, _SUM, "output_tensor"),
        _addend_type,
        _scale_sizes,
    ),
):
    """sum = input + addend, output = scale * sum / sqrt(mean(sum^2) + epsilon), with a mean for each row.

    A row is the last dimension. The sum is rounded to its type first. What is added up and divided is float32. What a
    language model's layers hand on may so be FLOAT32, and what they compute with FLOAT16.

    addend_tensor: Of the input's or the output's type, or FLOAT16; without, the input is normalized.
    scale_tensor: {width}; of the input's type, as the sum is.
    """

    input_tensor: TensorDesc | None = _s.input_tensor(_s.FLOATS, (1, 4))
    addend_tensor: TensorDesc | None = _s.input_tensor(_s.FLOATS, (1, 4), optional=True)
    scale_tensor: TensorDesc | None = _s.input_tensor(_s.FLOATS, (1, 1), optional=True)
    output_tensor: TensorDesc | None = _s.output_tensor(_s.FLOATS, (1, 4))
    sum_tensor: TensorDesc | None = _s.output_tensor(_s.FLOATS, (1, 4), optional=True)
    epsilon: float = _s.floating()
