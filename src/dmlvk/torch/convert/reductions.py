"""Reductions over dimensions, the places of extremes, running sums, and softmax."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

import numpy as np
import torch

from dmlvk.engine.values import Value
from dmlvk.graph.views import Sizes
from dmlvk.spec import ops
from dmlvk.spec.enums import ReduceFunction
from dmlvk.spec.ops.reduction import of_nothing
from dmlvk.spec.schema import OperatorDesc
from dmlvk.torch.conversion import Conversion, Number
from dmlvk.torch.convert.elementwise import BOOL, minus, negated, over, wide
from dmlvk.torch.registry import converter

_INDEX: Final = np.dtype(np.int64)
Dimensions = int | Sequence[int] | None


def dimensions(x: Value, chosen: Dimensions, *, none_is_all: bool = True) -> tuple[int, ...]:
    """Dimensions counted from the front, in order; none are all of them."""
    given = () if chosen is None else (chosen,) if isinstance(chosen, int) else tuple(chosen)
    if not given and none_is_all:
        return tuple(range(x.rank))
    return tuple(sorted(axis % max(x.rank, 1) for axis in given)) if x.rank else ()


def kept_sizes(x: Value, axes: Sequence[int]) -> Sizes:
    """The sizes with those of some dimensions as 1."""
    return tuple(1 if axis in axes else size for axis, size in enumerate(x.sizes))


def reduced(node: Conversion, x: Value, function: ReduceFunction, axes: Sequence[int]) -> Value:
    """A function over some dimensions, which stay with size 1."""
    sizes = kept_sizes(x, axes)
    if any(x.sizes[axis] == 0 for axis in axes):
        number = math.nan if function == ReduceFunction.AVERAGE else of_nothing(function, x.data_type)
        return node.fill(sizes, x.dtype.type(number))
    of_one_itself = function not in (ReduceFunction.SUM_SQUARE, ReduceFunction.L1, ReduceFunction.L2)
    if of_one_itself and all(x.sizes[axis] == 1 for axis in axes):
        return x
    return node.launch(ops.Reduce, x, output_tensor=node.new(sizes, x.dtype), function=function, axes=tuple(axes))


def _result(node: Conversion, x: Value, function: ReduceFunction, axes: Sequence[int]) -> Value:
    return node.reshape(reduced(node, x, function, axes), node.sizes)


@converter("aten.sum.default", "aten.sum.dim_IntList")
def total(
    node: Conversion, x: Value, dim: Dimensions = None, keepdim: bool = False, *, dtype: torch.dtype | None = None
) -> Value:
    return _result(node, node.tensor(x, node.dtype), ReduceFunction.SUM, dimensions(x, dim))


@converter("aten.mean.default", "aten.mean.dim")
def mean(
    node: Conversion, x: Value, dim: Dimensions = None, keepdim: bool = False, *, dtype: torch.dtype | None = None
) -> Value:
    return _result(node, node.tensor(x, node.dtype), ReduceFunction.AVERAGE, dimensions(x, dim))


@converter("aten.prod.default")
def product(node: Conversion, x: Value, *, dtype: torch.dtype | None = None) -> Value:
    return _result(node, node.tensor(x, node.dtype), ReduceFunction.MULTIPLY, dimensions(x, None))


@converter("aten.prod.dim_int")
def product_along(node: Conversion, x: Value, dim: int, keepdim: bool = False, *, dtype: torch.dtype | None = None) -> Value:
    return _result(node, node.tensor(x, node.dtype), ReduceFunction.MULTIPLY, dimensions(x, dim))


@converter("aten.amax.default", "aten.max.default")
def amax(node: Conversion, x: Value, dim: Dimensions = None, keepdim: bool = False) -> Value:
    return _result(node, x, ReduceFunction.MAX, dimensions(x, dim))


@converter("aten.amin.default", "aten.min.default")
def amin(node: Conversion, x: Value, dim: Dimensions = None, keepdim: bool = False) -> Value:
    return _result(node, x, ReduceFunction.MIN, dimensions(x, dim))


@converter("aten.any.default", "aten.any.dim", "aten.any.dims")
def any_true(node: Conversion, x: Value, dim: Dimensions = None, keepdim: bool = False) -> Value:
    return node.cast(_any(node, node.cast(x, BOOL), dim), node.dtype)


@converter("aten.all.default", "aten.all.dim", "aten.all.dims")
def all_true(node: Conversion, x: Value, dim: Dimensions = None, keepdim: bool = False) -> Value:
    return node.cast(negated(node, _any(node, negated(node, node.cast(x, BOOL)), dim)), node.dtype)


def _any(node: Conversion, x: Value, dim: Dimensions) -> Value:
    """Whether any truth value is true; of none it is not."""
    axes = dimensions(x, dim, none_is_all=dim is None)
    if any(x.sizes[axis] == 0 for axis in axes):
        return node.fill(node.sizes, np.bool_(False))
    return _result(node, x, ReduceFunction.MAX, axes)


@converter("aten.var.correction", "aten.var.dim")
def variance(
    node: Conversion, x: Value, dim: Dimensions = None, correction: Number | None = None, keepdim: bool = False
) -> Value:
    return node.reshape(node.cast(spread(node, wide(node, x), dimensions(x, dim), correction)[0], node.dtype), node.sizes)


@converter("aten.var_mean.correction")
def variance_and_mean(
    node: Conversion, x: Value, dim: Dimensions = None, *, correction: Number | None = None, keepdim: bool = False
) -> tuple[Value, Value]:
    dtype, sizes = node.results[0]
    made = spread(node, wide(node, x), dimensions(x, dim), correction)
    first, last = (node.reshape(node.cast(value, dtype), sizes) for value in made)
    return first, last


def spread(node: Conversion, x: Value, axes: Sequence[int], correction: Number | None) -> tuple[Value, Value]:
    """Variance and mean over dimensions, which stay with size 1; what divides is the count less the correction, of None
    1."""
    count = math.prod(x.sizes[axis] for axis in axes)
    middle = reduced(node, x, ReduceFunction.AVERAGE, axes)
    squares = reduced(node, minus(node, x, middle), ReduceFunction.SUM_SQUARE, axes)
    degrees = max(count - (1 if correction is None else correction), 0)
    return over(node, squares, node.tensor(degrees, x.dtype)), middle


@converter("aten.argmax.default")
def argmax(node: Conversion, x: Value, dim: int | None = None, keepdim: bool = False) -> Value:
    return _place(node, ops.Argmax, x, dim)


@converter("aten.argmin.default")
def argmin(node: Conversion, x: Value, dim: int | None = None, keepdim: bool = False) -> Value:
    return _place(node, ops.Argmin, x, dim)


def _place(node: Conversion, row: type[OperatorDesc], x: Value, dim: int | None) -> Value:
    """The place of an extreme along a dimension, or among all elements, row-major."""
    flat = node.reshape(x, (math.prod(x.sizes),)) if dim is None or not x.rank else x
    return node.reshape(_places(node, row, flat, 0 if flat is not x else (dim or 0) % x.rank), node.results[-1][1])


def _places(node: Conversion, row: type[OperatorDesc], x: Value, axis: int) -> Value:
    y = node.new(kept_sizes(x, (axis,)), _INDEX)
    return node.launch(row, x, output_tensor=y, axes=(axis,))


@converter("aten.max.dim")
def max_along(node: Conversion, x: Value, dim: int, keepdim: bool = False) -> tuple[Value, Value]:
    return _extreme(node, ReduceFunction.MAX, ops.Argmax, x, dim)


@converter("aten.min.dim")
def min_along(node: Conversion, x: Value, dim: int, keepdim: bool = False) -> tuple[Value, Value]:
    return _extreme(node, ReduceFunction.MIN, ops.Argmin, x, dim)


def _extreme(node: Conversion, function: ReduceFunction, row: type[OperatorDesc], x: Value, dim: int) -> tuple[Value, Value]:
    line = x if x.rank else node.reshape(x, (1,))
    axes = dimensions(line, dim)
    sizes = node.results[0][1]
    return node.reshape(reduced(node, line, function, axes), sizes), node.reshape(_places(node, row, line, axes[0]), sizes)


@converter("aten.cumsum.default")
def cumsum(node: Conversion, x: Value, dim: int, *, dtype: torch.dtype | None = None) -> Value:
    return _accumulated(node, ops.CumulativeSummation, x, dim)


@converter("aten.cumprod.default")
def cumprod(node: Conversion, x: Value, dim: int, *, dtype: torch.dtype | None = None) -> Value:
    return _accumulated(node, ops.CumulativeProduct, x, dim)


def _accumulated(node: Conversion, row: type[OperatorDesc], x: Value, dim: int) -> Value:
    x = node.tensor(x, node.dtype)
    narrow = x.dtype.kind in "iu" and x.dtype.itemsize < 4
    line = node.cast(x if x.rank else node.reshape(x, (1,)), np.dtype(np.int32)) if narrow else x
    line = line if line.rank else node.reshape(line, (1,))
    y = node.launch(row, line, output_tensor=node.new(line.sizes, line.dtype), axis=dim % line.rank)
    return node.reshape(node.cast(y, x.dtype), x.sizes)


@converter("aten._softmax.default")
def softmax(node: Conversion, x: Value, dim: int, half_to_float: bool) -> Value:
    return _normalized(node, ops.ActivationSoftmax1, x, dim, half_to_float)


@converter("aten._log_softmax.default")
def log_softmax(node: Conversion, x: Value, dim: int, half_to_float: bool) -> Value:
    return _normalized(node, ops.ActivationLogSoftmax1, x, dim, half_to_float)


def _normalized(node: Conversion, row: type[OperatorDesc], x: Value, dim: int, half_to_float: bool) -> Value:
    x = node.tensor(x, node.dtype) if half_to_float else x
    if x.dtype == np.float64:
        return _normalized_doubles(node, x, dim, row is ops.ActivationLogSoftmax1)
    line = x if x.rank else node.reshape(x, (1,))
    y = node.launch(row, line, output_tensor=node.new(line.sizes, line.dtype), axes=(dim % line.rank,))
    return node.reshape(y, x.sizes)


def _normalized_doubles(node: Conversion, x: Value, dim: int, logarithm: bool) -> Value:
    """The same of FLOAT64, which DirectML's operator does not take."""
    axes = dimensions(x, dim)
    apart = minus(node, x, reduced(node, x, ReduceFunction.MAX, axes))
    parts = node.elementwise(ops.ElementWiseExp, apart)
    whole = reduced(node, parts, ReduceFunction.SUM, axes)
    return minus(node, apart, node.elementwise(ops.ElementWiseLog, whole)) if logarithm else over(node, parts, whole)
