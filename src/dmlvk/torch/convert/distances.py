"""Distances between points."""

from __future__ import annotations

import math

import numpy as np

from dmlvk.engine.values import Value
from dmlvk.spec import ops
from dmlvk.spec.enums import ReduceFunction
from dmlvk.torch.conversion import Conversion
from dmlvk.torch.convert.elementwise import compared, minus
from dmlvk.torch.convert.movement import taken
from dmlvk.torch.convert.reductions import reduced
from dmlvk.torch.registry import converter


@converter("aten._cdist_forward.default")
def cdist(node: Conversion, a: Value, b: Value, p: float, compute_mode: int | None) -> Value:
    """From each row of one stack of points to each of another."""
    rows, columns = a.sizes[-2], b.sizes[-2]
    a = node.reshape(a, (*a.sizes[:-1], 1, a.sizes[-1]))
    b = node.reshape(b, (*b.sizes[:-2], 1, *b.sizes[-2:]))
    sizes = (*node.sizes[:-2], rows, columns, a.sizes[-1])
    return node.reshape(_norm(node, minus(node, a.broadcast_to(sizes), b.broadcast_to(sizes)), p), node.sizes)


@converter("aten._pdist_forward.default")
def pdist(node: Conversion, x: Value, p: float = 2) -> Value:
    """Between all rows, each pair once."""
    first, last = (places.astype(np.int32) for places in np.triu_indices(x.sizes[0], 1))
    apart = minus(node, taken(node, x, node.upload(first), 0), taken(node, x, node.upload(last), 0))
    return node.reshape(_norm(node, apart, p), node.sizes)


def _norm(node: Conversion, x: Value, p: float) -> Value:
    """The norm over the last dimension."""
    axes = (x.rank - 1,)
    if p == 2:
        return reduced(node, x, ReduceFunction.L2, axes)
    if p == 1:
        return reduced(node, x, ReduceFunction.L1, axes)
    size = node.elementwise(ops.ElementWiseAbs, x)
    if p == 0:
        apart = node.cast(compared(node, ops.ElementWiseLogicalGreaterThan, size, 0.0), x.dtype)
        return reduced(node, apart, ReduceFunction.SUM, axes)
    if p == math.inf:
        return (
            reduced(node, size, ReduceFunction.MAX, axes) if x.sizes[-1] else reduced(node, size, ReduceFunction.SUM, axes)
        )
    powers = node.elementwise(ops.ElementWiseConstantPow, size, exponent=float(p))
    return node.elementwise(ops.ElementWiseConstantPow, reduced(node, powers, ReduceFunction.SUM, axes), exponent=1 / p)
