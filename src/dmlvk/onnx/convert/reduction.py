"""Reductions over axes, and where the largest and the least elements are."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from dmlvk.graph.views import Sizes
from dmlvk.onnx.conversion import Conversion
from dmlvk.onnx.registry import converts
from dmlvk.onnx.values import Value
from dmlvk.spec import ops
from dmlvk.spec.enums import AxisDirection, ReduceFunction
from dmlvk.spec.ops.reduction import FUNCTION_TYPES, of_nothing
from dmlvk.spec.schema import NUMERIC, OperatorDesc


class _Reduction(NamedTuple):
    """An operator that one function implements.

    Attributes:
        op_type: The ONNX operator.
        function: The DirectML function; its data types are the operator's.
        by_attribute: Since-versions with axes as an attribute.
        by_input: Since-versions with axes as an input.
    """

    op_type: str
    function: ReduceFunction
    by_attribute: tuple[int, ...]
    by_input: tuple[int, ...]


# fmt: off
_REDUCTIONS = (
    _Reduction("ReduceL1",        ReduceFunction.L1,          (1, 11, 13),     (18,)),
    _Reduction("ReduceL2",        ReduceFunction.L2,          (1, 11, 13),     (18,)),
    _Reduction("ReduceLogSum",    ReduceFunction.LOG_SUM,     (1, 11, 13),     (18,)),
    _Reduction("ReduceLogSumExp", ReduceFunction.LOG_SUM_EXP, (1, 11, 13),     (18,)),
    _Reduction("ReduceMax",       ReduceFunction.MAX,         (1, 11, 12, 13), (18, 20)),
    _Reduction("ReduceMean",      ReduceFunction.AVERAGE,     (1, 11, 13),     (18,)),
    _Reduction("ReduceMin",       ReduceFunction.MIN,         (1, 11, 12, 13), (18, 20)),
    _Reduction("ReduceProd",      ReduceFunction.MULTIPLY,    (1, 11, 13),     (18,)),
    _Reduction("ReduceSum",       ReduceFunction.SUM,         (1, 11),         (13,)),
    _Reduction("ReduceSumSquare", ReduceFunction.SUM_SQUARE,  (1, 11, 13),     (18,)),
)
# fmt: on

_OF_ONE_ITSELF = frozenset(
    {
        ReduceFunction.AVERAGE,
        ReduceFunction.LOG_SUM_EXP,
        ReduceFunction.MAX,
        ReduceFunction.MIN,
        ReduceFunction.MULTIPLY,
        ReduceFunction.SUM,
    }
)
"""Functions that leave a single element as it is."""


def _register(reduction: _Reduction) -> None:
    types = FUNCTION_TYPES[reduction.function]

    @converts(reduction.op_type, *reduction.by_attribute, types=types, doubles=True)
    def by_attribute(node: Conversion) -> Value:
        return _reduced(node, reduction.function, node.attribute("axes", ()))

    @converts(reduction.op_type, *reduction.by_input, types=types, doubles=True, host_inputs=(1,))
    def by_input(node: Conversion) -> Value:
        axes = node.host(1)
        return _reduced(node, reduction.function, () if axes is None else axes.reshape(-1).tolist())


for _row in _REDUCTIONS:
    _register(_row)


def _reduced(node: Conversion, function: ReduceFunction, axes: Iterable[int]) -> Value:
    """No axes are all of them, or with ``noop_with_empty_axes`` none: then the function of each element by itself."""
    x = node[0]
    chosen = _from_the_front(node, axes)
    if not chosen and not node.attribute("noop_with_empty_axes", 0):
        chosen = tuple(range(x.rank))
    count = math.prod(x.sizes[axis] for axis in chosen)
    kept, sizes = _output_sizes(node, chosen)
    if count == 0:
        return node.fill(sizes, x.dtype.type(of_nothing(function, x.data_type)))
    if count == 1 and function in _OF_ONE_ITSELF:
        return node.reshape(x, sizes)
    y = node.launch(ops.Reduce, x, output_tensor=node.new(kept, x.dtype), function=function, axes=chosen)
    return node.reshape(y, sizes)


@converts("ArgMax", 1, 11, 12, 13, types=NUMERIC, doubles=True)
def argmax(node: Conversion) -> Value:
    return _place(node, ops.Argmax)


@converts("ArgMin", 1, 11, 12, 13, types=NUMERIC, doubles=True)
def argmin(node: Conversion) -> Value:
    return _place(node, ops.Argmin)


def _place(node: Conversion, row: type[OperatorDesc]) -> Value:
    """The first of equal elements, or with ``select_last_index`` the last."""
    x = node[0]
    axes = _from_the_front(node, (node.attribute("axis", 0),))
    kept, sizes = _output_sizes(node, axes)
    if x.sizes[axes[0]] == 0 and 0 not in kept:
        raise node.invalid(f"there must be elements along axis {axes[0]} to choose one of", x.sizes)
    last = node.attribute("select_last_index", 0)
    y = node.launch(
        row,
        x,
        output_tensor=node.new(kept, np.dtype(np.int64)),
        axes=axes,
        axis_direction=AxisDirection.DECREASING if last else AxisDirection.INCREASING,
    )
    return node.reshape(y, sizes)


def _from_the_front(node: Conversion, axes: Iterable[int]) -> tuple[int, ...]:
    """The axes in order, counted from the front."""
    chosen = sorted(node.axis(axis, node[0].rank) for axis in axes)
    if len(set(chosen)) < len(chosen):
        raise node.invalid("axes may name a dimension only once", chosen)
    return tuple(chosen)


def _output_sizes(node: Conversion, axes: tuple[int, ...]) -> tuple[Sizes, Sizes]:
    """The sizes with the axes as 1, and as the model wants them: without those if ``keepdims`` is 0."""
    sizes = node[0].sizes
    kept = tuple(1 if axis in axes else size for axis, size in enumerate(sizes))
    if node.attribute("keepdims", 1):
        return kept, kept
    return kept, tuple(size for axis, size in enumerate(sizes) if axis not in axes)
