"""Matrix multiplication."""

from __future__ import annotations

import math

from dmlvk.graph.views import Sizes
from dmlvk.onnx.conversion import Conversion
from dmlvk.onnx.registry import converts
from dmlvk.onnx.values import Value
from dmlvk.spec import ops
from dmlvk.spec.enums import MatrixTransform
from dmlvk.spec.schema import FLOATS, ScaleBias

_GEMM_DIMENSIONS = 4


@converts("Gemm", 6, 7, 9, 11, 13, types=FLOATS, doubles=True)
def gemm(node: Conversion) -> Value:
    return general_product(node)


def general_product(node: Conversion) -> Value:
    """What the attributes of a Gemm describe. C broadcasts to the output, by zero strides. A sum of no products is 0: then C
    is all there is."""
    a, b, c = node[0], node[1], node.get(2)
    if a.rank != 2 or b.rank != 2:
        raise node.invalid("A and B must have 2 dimensions", (a.sizes, b.sizes))
    transforms = [MatrixTransform(bool(node.attribute(name, 0))) for name in ("transA", "transB")]
    (rows, inner), (other, columns) = (
        value.sizes[::-1] if transform else value.sizes for value, transform in zip((a, b), transforms, strict=True)
    )
    if inner != other:
        rule = f"of A {a.sizes} and B {b.sizes}, B must have as many rows as A has columns, after transA and transB"
        raise node.invalid(rule, other, inner)
    y = node.new((rows, columns), a.dtype)
    if c is not None:
        if node.broadcast(c, y)[0].sizes != y.sizes:
            raise node.invalid(f"the sizes of C must broadcast to those of the output, {y.sizes}", c.sizes)
        c = c.broadcast_to(y.sizes)
    beta = float(node.attribute("beta", 1.0))
    if not inner:
        return node.fill(y.sizes, y.dtype.type(0)) if c is None else _scaled(node, c, beta)
    return node.launch(
        ops.Gemm,
        a,
        b,
        c,
        output_tensor=y,
        trans_a=transforms[0],
        trans_b=transforms[1],
        alpha=float(node.attribute("alpha", 1.0)),
        beta=beta,
    )


def _scaled(node: Conversion, value: Value, factor: float) -> Value:
    y = node.new(value.sizes, value.dtype)
    return node.launch(ops.ElementWiseIdentity, value, output_tensor=y, scale_bias=ScaleBias(factor, 0.0))


@converts("MatMul", 1, 9, 13, types=FLOATS, doubles=True)
def matmul(node: Conversion) -> Value:
    return product(node, node[0], node[1])


def product(node: Conversion, a: Value, b: Value, factor: float = 1.0) -> Value:
    """numpy's matmul times a factor: a vector counts as one row or one column; leading dimensions broadcast."""
    left, right, tail = as_matrices(node, a, b)
    y = multiply(node, left, right, factor)
    return node.reshape(y, (*y.sizes[:-2], *tail))


def as_matrices(node: Conversion, a: Value, b: Value) -> tuple[Value, Value, Sizes]:
    """Two operands with a vector as one row or one column, and the sizes that follow the leading ones in their product."""
    if not a.rank or not b.rank:
        raise node.invalid("neither A nor B may be a scalar", (a.sizes, b.sizes))
    left = node.reshape(a, (1, *a.sizes)) if a.rank == 1 else a
    right = node.reshape(b, (*b.sizes, 1)) if b.rank == 1 else b
    if left.sizes[-1] != right.sizes[-2]:
        rule = f"of A {a.sizes} and B {b.sizes}, B must have as many rows as A has columns"
        raise node.invalid(rule, right.sizes[-2], left.sizes[-1])
    return left, right, (() if a.rank == 1 else left.sizes[-2:-1]) + (() if b.rank == 1 else right.sizes[-1:])


def multiply(node: Conversion, a: Value, b: Value, factor: float = 1.0) -> Value:
    """The product of two stacks of matrices whose leading dimensions broadcast, times a factor. A sum of no products is
    0."""
    rows, columns = a.sizes[-2], b.sizes[-1]
    if not a.sizes[-1]:
        batch = node.broadcast(_first_of_matrices(a), _first_of_matrices(b))[0].sizes
        return node.fill((*batch, rows, columns), a.dtype.type(0))
    shared = b.rank == 2 and a.reshape((math.prod(a.sizes[:-1]), a.sizes[-1]))
    if shared:
        # Every matrix of A meets the same B: one tall matrix, which fills a tile better than many small ones.
        y = node.new((shared.sizes[0], columns), a.dtype)
        return node.reshape(node.launch(ops.Gemm, shared, b, output_tensor=y, alpha=factor), (*a.sizes[:-1], columns))
    batch = node.broadcast(_first_of_matrices(a), _first_of_matrices(b))[0].sizes
    a, b = a.broadcast_to((*batch, *a.sizes[-2:])), b.broadcast_to((*batch, *b.sizes[-2:]))
    if len(batch) > _GEMM_DIMENSIONS - 2:
        count = math.prod(batch)
        a, b = node.reshape(a, (count, *a.sizes[-2:])), node.reshape(b, (count, *b.sizes[-2:]))
    y = node.new((*a.sizes[:-1], columns), a.dtype)
    return node.reshape(node.launch(ops.Gemm, a, b, output_tensor=y, alpha=factor), (*batch, rows, columns))


def _first_of_matrices(value: Value) -> Value:
    """The leading dimensions alone."""
    return Value(value.storage, value.dtype, value.sizes[:-2], value.strides[:-2])
