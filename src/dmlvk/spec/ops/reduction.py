"""Reductions: one number, or the place of one, from all elements over some axes."""

from __future__ import annotations

import math

from dmlvk.spec import constraints as _c
from dmlvk.spec import schema as _s
from dmlvk.spec.enums import AxisDirection, ReduceFunction, TensorDataType
from dmlvk.spec.tensor import TensorDesc, cast_scalar

__all__ = ["Argmax", "Argmin", "Reduce"]

_T = TensorDataType
_INDICES = (_T.INT64, _T.INT32, _T.UINT64, _T.UINT32)
_WIDE = (*_s.FLOATS, _T.INT64, _T.INT32, _T.UINT64, _T.UINT32)
_TRAITS = _s.Traits(beyond=_s.DOUBLE, separable=_s.off_axes)
_ARGUMENTS = (ReduceFunction.ARGMAX, ReduceFunction.ARGMIN)


def _reduced_sizes(desc: Reduce | Argmax | Argmin) -> tuple[tuple[int, ...], ...]:
    sizes = desc.tensor("input_tensor").sizes
    return (tuple(1 if axis in desc.axes else size for axis, size in enumerate(sizes)),)


_SHAPE = (_c.same_dimension_count(), _c.valid_axes(), _c.output_sizes_match())


@_c.constraint("function_data_types", "the input must have a data type that the function takes")
def _function_input(desc: Reduce) -> _s.Violation | None:
    given = desc.tensor("input_tensor").data_type
    types = (*FUNCTION_TYPES[desc.function], *_TRAITS.beyond)
    return None if given in types else _s.Violation("input_tensor", given)


@_c.constraint(
    "same_data_type", "the output must have the input's data type, or INT64, INT32, UINT64 or UINT32 for ARGMAX and ARGMIN"
)
def _function_output(desc: Reduce) -> _s.Violation | None:
    if desc.input_tensor is None or desc.output_tensor is None:  # while data types are being inferred
        return None
    given = desc.output_tensor.data_type
    wanted = _INDICES if desc.function in _ARGUMENTS else (desc.input_tensor.data_type,)
    return None if given in wanted else _s.Violation("output_tensor", given)


class Reduce(_s.OperatorDesc, constraints=(_function_input, _function_output, *_SHAPE), traits=_TRAITS):
    """y = the function over all elements that differ in the axes alone; those dimensions have size 1 in the output.

    ====================  ==============================================  =======================================
    function              y                                               input (the output likewise)
    ====================  ==============================================  =======================================
    SUM, MULTIPLY         x0 + x1 + ..., x0 x1 ...                        floats, 32 and 64-bit integers
    L1, SUM_SQUARE        sum of abs(x), of x^2                           floats, 32 and 64-bit integers
    AVERAGE, L2           sum / n, sqrt(sum of x^2)                       floats
    LOG_SUM               ln(sum)                                         floats
    LOG_SUM_EXP           ln(sum of e^x), without overflow on the way     floats
    MAX, MIN              the largest, the least                          floats, integers of 8 to 64 bits
    ARGMAX, ARGMIN        as the operators Argmax and Argmin, INCREASING  the same; the output is an index
    ====================  ==============================================  =======================================

    Where the specification is silent:

    - FLOAT16 is accumulated and computed in float32 and rounded once. Float sums are compensated (the rounding error of
      each addition is summed as well), so their error does not grow with the number of elements. The order of additions
      depends on the sizes, the strides and the device and on nothing else: the same bits every time. Squares and sums
      that leave the range of float32 overflow to infinity or underflow to 0, also where L2 or AVERAGE would come back.
    - Integers wrap modulo 2^bits, abs(x) of the least one included.
    - A NaN among the elements makes every float result NaN, MAX and MIN included; infinities are as IEEE arithmetic has
      them. MAX takes 0 for larger than -0.
    - Without axes every element is reduced on its own.
    """

    function: ReduceFunction = _s.enumeration(ReduceFunction)
    input_tensor: TensorDesc | None = _s.input_tensor(_s.NUMERIC)
    output_tensor: TensorDesc | None = _s.output_tensor(_s.NUMERIC)
    axes: tuple[int, ...] = _s.uint_array()

    def inferred_output_sizes(self) -> tuple[tuple[int, ...], ...]:
        return _reduced_sizes(self)


FUNCTION_TYPES = {
    ReduceFunction.ARGMAX: _s.NUMERIC,
    ReduceFunction.ARGMIN: _s.NUMERIC,
    ReduceFunction.AVERAGE: _s.FLOATS,
    ReduceFunction.L1: _WIDE,
    ReduceFunction.L2: _s.FLOATS,
    ReduceFunction.LOG_SUM: _s.FLOATS,
    ReduceFunction.LOG_SUM_EXP: _s.FLOATS,
    ReduceFunction.MAX: _s.NUMERIC,
    ReduceFunction.MIN: _s.NUMERIC,
    ReduceFunction.MULTIPLY: _WIDE,
    ReduceFunction.SUM: _WIDE,
    ReduceFunction.SUM_SQUARE: _WIDE,
}
"""Data types of the input in DirectML, by function."""


def of_nothing(function: ReduceFunction, data_type: TensorDataType) -> float:
    """The function of no element, as a number of the type: as ONNX has it, and of a mean, which it leaves undefined, ONNX
    Runtime."""
    number = {
        ReduceFunction.LOG_SUM: -math.inf,
        ReduceFunction.LOG_SUM_EXP: -math.inf,
        ReduceFunction.MAX: -math.inf,
        ReduceFunction.MIN: math.inf,
        ReduceFunction.MULTIPLY: 1.0,
    }.get(function, 0.0)
    return cast_scalar(number, data_type)


class Argmin(_s.OperatorDesc, constraints=_SHAPE, traits=_TRAITS):
    """y = where the least element over the axes is; see ``Argmax``."""

    input_tensor: TensorDesc | None = _s.input_tensor(_s.NUMERIC)
    output_tensor: TensorDesc | None = _s.output_tensor(_INDICES)
    axes: tuple[int, ...] = _s.uint_array()
    axis_direction: AxisDirection = _s.enumeration(AxisDirection, AxisDirection.INCREASING)

    def inferred_output_sizes(self) -> tuple[tuple[int, ...], ...]:
        return _reduced_sizes(self)


class Argmax(_s.OperatorDesc, constraints=_SHAPE, traits=_TRAITS):
    """y = where the largest element over the axes is: its index within them, counted row-major over the axes in the order
    of the dimensions.

    Of equal elements INCREASING takes the first and DECREASING the last. Where the specification is silent: as in
    PyTorch and numpy a NaN counts as the largest element here and as the least one in Argmin, so that it is found; 0 and
    -0 are equal.
    """

    input_tensor: TensorDesc | None = _s.input_tensor(_s.NUMERIC)
    output_tensor: TensorDesc | None = _s.output_tensor(_INDICES)
    axes: tuple[int, ...] = _s.uint_array()
    axis_direction: AxisDirection = _s.enumeration(AxisDirection, AxisDirection.INCREASING)

    def inferred_output_sizes(self) -> tuple[tuple[int, ...], ...]:
        return _reduced_sizes(self)
