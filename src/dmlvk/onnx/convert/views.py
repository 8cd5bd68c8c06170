"""Operators that only rename elements: views, which launch nothing."""

from __future__ import annotations

import math

import numpy as np

from dmlvk.graph.views import broadcast_sizes
from dmlvk.onnx.conversion import Conversion
from dmlvk.onnx.model import FORMATS, FOUR_BITS, ElementKind
from dmlvk.onnx.registry import always, converts
from dmlvk.onnx.values import Value
from dmlvk.spec.enums import TensorDataType
from dmlvk.spec.schema import NUMERIC

_ANY = (TensorDataType.FLOAT64, *NUMERIC)
_BITS: tuple[ElementKind, ...] = (*_ANY, *FOUR_BITS, *FORMATS)
"""The types of what is read where it lies, two elements in a byte too."""


@converts("Identity", 1, 13, 14, 16, 19, 21, 23, 24, 25, types=_BITS)
def identity(node: Conversion) -> Value:
    return node[0]


@converts("Reshape", 5, 13, 14, 19, 21, 23, 24, 25, types=_BITS, host_inputs=(1,))
def reshape(node: Conversion) -> Value:
    """0 keeps a size (unless ``allowzero``), -1 is what remains."""
    x, wanted = node[0], node.known(1).tolist()
    keeps = not node.attribute("allowzero", 0)
    if keeps and any(size == 0 and i >= x.rank for i, size in enumerate(wanted)):
        raise node.invalid(f"a 0 in the shape must stand for a dimension of the input, {x.sizes}", wanted)
    sizes = [x.sizes[i] if size == 0 and keeps else size for i, size in enumerate(wanted)]
    if sizes.count(-1) == 1:
        known = math.prod(size for size in sizes if size != -1)
        sizes[sizes.index(-1)] = math.prod(x.sizes) // known if known else 0
    if any(size < 0 for size in sizes) or math.prod(sizes) != math.prod(x.sizes):
        raise node.invalid(f"the shape must hold the {math.prod(x.sizes)} elements of the sizes {x.sizes}", wanted)
    return node.reshape(x, tuple(sizes))


@converts("Flatten", 1, 9, 11, 13, 21, 23, 24, 25, types=_BITS)
def flatten(node: Conversion) -> Value:
    x, axis = node[0], node.attribute("axis", 1)
    if not -x.rank <= axis <= x.rank:
        raise node.invalid(f"axis must be from {-x.rank} to {x.rank}", axis)
    axis = axis + x.rank if axis < 0 else axis
    return node.reshape(x, (math.prod(x.sizes[:axis]), math.prod(x.sizes[axis:])))


@converts("Squeeze", 1, 11, 13, 21, 23, 24, 25, types=_BITS, host_inputs=(1,))
def squeeze(node: Conversion) -> Value:
    x, axes = node[0], _axes(node)
    if axes is None:
        dropped = {axis for axis, size in enumerate(x.sizes) if size == 1}
    else:
        dropped = {node.axis(axis, x.rank) for axis in axes}
        if any(x.sizes[axis] != 1 for axis in dropped):
            raise node.invalid(f"axes must name dimensions of size 1 of {x.sizes}", axes)
    return node.reshape(x, tuple(size for axis, size in enumerate(x.sizes) if axis not in dropped))


@converts("Unsqueeze", 1, 11, 13, 21, 23, 24, 25, types=_BITS, host_inputs=(1,))
def unsqueeze(node: Conversion) -> Value:
    x, axes = node[0], _axes(node) or ()
    rank = x.rank + len(axes)
    added = {node.axis(axis, rank) for axis in axes}
    if len(added) != len(axes):
        raise node.invalid("axes may name a dimension only once", axes)
    sizes = iter(x.sizes)
    return node.reshape(x, tuple(1 if axis in added else next(sizes) for axis in range(rank)))


@converts("Transpose", 1, 13, 21, 23, 24, 25, types=_ANY, moves=always)
def transpose(node: Conversion) -> Value:
    """A strided view; what needs packed elements makes the copy."""
    x = node[0]
    permutation = node.attribute("perm", list(range(x.rank))[::-1])
    if sorted(permutation) != list(range(x.rank)):
        raise node.invalid(f"perm must name each of the {x.rank} dimensions once", permutation)
    return x.transpose(permutation)


@converts("Expand", 8, 13, types=_ANY, moves=always, host_inputs=(1,))
def expand(node: Conversion) -> Value:
    """numpy's broadcasting in both directions, by zero strides."""
    x, wanted = node[0], tuple(node.known(1).tolist())
    sizes = broadcast_sizes(x.sizes, wanted)
    if sizes is None:
        raise node.invalid(
            f"the sizes {x.sizes} must broadcast with the shape: equal or 1, from the last dimension on", wanted
        )
    return x.broadcast_to(sizes)


def _axes(node: Conversion) -> tuple[int, ...] | None:
    """The axes, an attribute before opset 13 and an input since; None where they are absent."""
    axes = node.host(1) if node.node.version >= 13 else node.attribute("axes", None)
    return None if axes is None else tuple(int(axis) for axis in np.atleast_1d(axes))
