"""Determinants by elimination."""

from __future__ import annotations

import math

import numpy as np

from dmlvk.graph.views import Sizes
from dmlvk.onnx.conversion import Conversion
from dmlvk.onnx.registry import converts
from dmlvk.onnx.values import Value
from dmlvk.spec import ops
from dmlvk.spec.enums import AxisDirection
from dmlvk.spec.schema import FLOATS

_BOOL, _PLACE = np.dtype(np.bool_), np.dtype(np.uint32)
_MOST_ROWS = 256


@converts("Det", 11, 22, types=FLOATS)
def determinant(node: Conversion) -> Value:
    """Gauss's elimination with the largest element of a column as its pivot: about a dozen launches a row, each over the
    whole stack of matrices. A kernel would keep small matrices in registers and read them once."""
    x = node[0]
    if x.rank < 2 or x.sizes[-1] != x.sizes[-2]:
        raise node.invalid("the input must be a stack of square matrices", x.sizes)
    *batch, rows, _ = x.sizes
    if rows > _MOST_ROWS:
        raise node.unsupported(f"matrices of {rows} rows are not supported, only of at most {_MOST_ROWS}")
    count = math.prod(batch)
    if not rows:
        return node.fill(tuple(batch), x.dtype.type(1))
    rest, product = node.reshape(x, (count, rows, rows)), None
    while rest.sizes[1] > 1:
        pivot, rest = _eliminated(node, rest)
        product = pivot if product is None else node.elementwise(ops.ElementWiseMultiply, product, pivot)
    product = rest if product is None else node.elementwise(ops.ElementWiseMultiply, product, rest)
    return node.reshape(product, tuple(batch))


def _eliminated(node: Conversion, a: Value) -> tuple[Value, Value]:
    """The pivot of the first column (matrices, 1, 1), negative where rows are exchanged for it, and what remains of the
    other columns (matrices, rows - 1, rows - 1)."""
    count, rows, _ = a.sizes
    one = (count, 1, 1)
    place = node.launch(
        ops.Argmax,
        node.elementwise(ops.ElementWiseAbs, a.shorten(2, 1)),
        output_tensor=node.new(one, _PLACE),
        axes=(1,),
        axis_direction=AxisDirection.INCREASING,
    )
    places = place.broadcast_to((count, 1, rows))
    row = node.launch(ops.GatherElements, a, places, output_tensor=node.new(places.sizes, a.dtype), axis=1)
    others = node.launch(ops.ScatterElements, a, places, a.shorten(1, 1), output_tensor=node.new(a.sizes, a.dtype), axis=1)
    pivot = row.shorten(2, 1)
    below = _window(node, others, (0, 1, 0), (count, rows - 1, 1))
    inner = _window(node, others, (0, 1, 1), (count, rows - 1, rows - 1))
    along = _window(node, row, (0, 0, 1), (count, 1, rows - 1))
    zero = node.upload(np.zeros((), a.dtype))
    nothing = node.elementwise(ops.ElementWiseLogicalEquals, pivot, zero, dtype=_BOOL)
    share = node.elementwise(ops.ElementWiseDivide, below, pivot)
    share = node.elementwise(ops.ElementWiseIf, nothing, zero, share, dtype=a.dtype)
    taken = node.elementwise(ops.ElementWiseMultiply, share, along)
    first = node.elementwise(ops.ElementWiseLogicalEquals, place, node.upload(np.zeros((), _PLACE)), dtype=_BOOL)
    minus = node.elementwise(ops.ElementWiseNegate, pivot)
    signed = node.elementwise(ops.ElementWiseIf, first, pivot, minus, dtype=a.dtype)
    return signed, node.elementwise(ops.ElementWiseSubtract, inner, taken)


def _window(node: Conversion, x: Value, offsets: Sizes, sizes: Sizes) -> Value:
    return node.launch(
        ops.Slice1,
        x,
        output_tensor=node.new(sizes, x.dtype),
        input_window_offsets=offsets,
        input_window_sizes=sizes,
        input_window_strides=(1, 1, 1),
    )
