"""Products of matrices."""

from __future__ import annotations

import math
from typing import Final

import numpy as np

from dmlvk.engine.values import Value
from dmlvk.spec import ops
from dmlvk.spec.enums import ReduceFunction
from dmlvk.torch.conversion import Conversion, Number
from dmlvk.torch.convert.elementwise import plus, scaled, times
from dmlvk.torch.convert.reductions import reduced
from dmlvk.torch.registry import converter

_MOST_PRODUCTS: Final = 2**24
"""The most products of whole numbers that are kept at a time to be added up, as there is no operator for these."""


@converter("aten.mm.default", "aten.bmm.default")
def matmul(node: Conversion, a: Value, b: Value) -> Value:
    return multiplied(node, a, b)


@converter("aten.mv.default")
def matrix_vector(node: Conversion, a: Value, b: Value) -> Value:
    return node.reshape(multiplied(node, a, node.reshape(b, (*b.sizes, 1))), node.sizes)


@converter("aten.dot.default", "aten.vdot.default")
def dot(node: Conversion, a: Value, b: Value) -> Value:
    return node.reshape(multiplied(node, node.reshape(a, (1, *a.sizes)), node.reshape(b, (*b.sizes, 1))), ())


@converter("aten.addbmm.default")
def addbmm(node: Conversion, c: Value, a: Value, b: Value, *, beta: Number = 1, alpha: Number = 1) -> Value:
    """The sum of the products of a stack is one product of matrices side by side."""
    count, rows, inner = a.sizes
    wide = node.reshape(a.transpose((1, 0, 2)), (rows, count * inner))
    return addmm(node, c, wide, node.reshape(b, (count * inner, b.sizes[2])), beta=beta, alpha=alpha)


@converter("aten.addmm.default", "aten.baddbmm.default")
def addmm(node: Conversion, c: Value, a: Value, b: Value, *, beta: Number = 1, alpha: Number = 1) -> Value:
    """beta c + alpha a b. With a beta of 0 what c holds does not count, be it NaN."""
    if node.dtype.kind != "f":
        product = multiplied(node, a, b)
        product = product if alpha == 1 else times(node, product, node.tensor(alpha, product.dtype))
        return product if beta == 0 else plus(node, product, times(node, c, node.tensor(beta, c.dtype)))
    if 0 in node.sizes or not a.sizes[-1]:
        return scaled(node, c.broadcast_to(node.sizes), float(beta)) if beta else node.fill(node.sizes, node.dtype.type(0))
    c_tensor = c.broadcast_to(node.sizes) if beta else None
    y = node.new(node.sizes, node.dtype)
    return node.launch(ops.Gemm, a, b, c_tensor, output_tensor=y, alpha=float(alpha), beta=float(beta))


def multiplied(node: Conversion, a: Value, b: Value, factor: float = 1.0) -> Value:
    """The product of two matrices, or of two stacks of them of equal sizes, times a factor. A sum of no products is 0."""
    sizes = (*a.sizes[:-1], b.sizes[-1])
    if not a.sizes[-1] or 0 in sizes:
        return node.fill(sizes, a.dtype.type(0))
    if a.dtype.kind != "f":
        assert factor == 1.0, "whole numbers are not scaled"
        return _multiplied_whole(node, a, b)
    batch = a.sizes[:-2]
    if len(batch) > 2:
        count = math.prod(batch)
        a, b = (node.reshape(value, (count, *value.sizes[-2:])) for value in (a, b))
    y = node.new((*a.sizes[:-1], b.sizes[-1]), a.dtype)
    return node.reshape(node.launch(ops.Gemm, a, b, output_tensor=y, alpha=factor), sizes)


def _multiplied_whole(node: Conversion, a: Value, b: Value) -> Value:
    """The product of matrices of whole numbers: all products, and their sums."""
    dtype = a.dtype
    sizes = (*a.sizes, b.sizes[-1])
    if math.prod(sizes) > _MOST_PRODUCTS:
        raise node.unsupported(f"a product of integer matrices with {math.prod(sizes)} terms is not supported")
    kind = dtype if dtype.itemsize >= 4 else np.dtype(f"{dtype.kind}4")
    columns, rows = (node.cast(value, kind) for value in (a, b))
    columns = node.reshape(columns, (*a.sizes, 1)).broadcast_to(sizes)
    rows = node.reshape(rows, (*b.sizes[:-2], 1, *b.sizes[-2:])).broadcast_to(sizes)
    axis = len(sizes) - 2
    sums = reduced(node, times(node, columns, rows), ReduceFunction.SUM, (axis,))
    return node.cast(node.reshape(sums, (*a.sizes[:-1], b.sizes[-1])), dtype)
