"""Operators that only rename elements: views, which launch nothing."""

from __future__ import annotations

from collections.abc import Sequence

from dmlvk.engine.values import Value
from dmlvk.torch.registry import Conversion, converter


@converter("aten.view.default", "aten._unsafe_view.default", "aten.reshape.default", "aten.view_copy.default", moves=True)
@converter("aten.squeeze.default", "aten.squeeze.dim", "aten.squeeze.dims", "aten.unsqueeze.default", moves=True)
def view(node: Conversion, x: Value, *sizes: object) -> Value:
    return node.reshape(x, node.sizes)


@converter("aten.alias.default", "aten.detach.default", "aten.lift_fresh_copy.default", moves=True)
def alias(node: Conversion, x: Value) -> Value:
    return x


@converter("aten.clone.default", moves=True)
def clone(node: Conversion, x: Value, *, memory_format: object = None) -> Value:
    return x


@converter("aten.permute.default", moves=True)
def permute(node: Conversion, x: Value, dims: Sequence[int]) -> Value:
    return x.transpose([axis % x.rank for axis in dims])


@converter("aten.expand.default", moves=True)
def expand(node: Conversion, x: Value, sizes: Sequence[int], *, implicit: bool = False) -> Value:
    return x.broadcast_to(node.sizes)


@converter("aten._to_copy.default", "prims.convert_element_type.default")
def to_copy(node: Conversion, x: Value, dtype: object = None, **options: object) -> Value:
    """The second one is how PyTorch hands over a number that has changed since a graph was compiled, such as a rate that a
    scheduler lowers: as a tensor of FLOAT64."""
    return node.cast(x, node.dtype)


@converter("aten.copy.default")
def copy(node: Conversion, x: Value, source: Value, non_blocking: bool = False) -> Value:
    return node.cast(source, node.dtype).broadcast_to(node.sizes)


@converter("aten.t.default", "aten.numpy_T.default", moves=True)
def turned(node: Conversion, x: Value) -> Value:
    return x.transpose(tuple(reversed(range(x.rank))))


@converter("aten.transpose.int", moves=True)
def transpose(node: Conversion, x: Value, dim0: int, dim1: int) -> Value:
    order = [*range(x.rank)]
    if order:
        order[dim0], order[dim1] = order[dim1], order[dim0]
    return x.transpose(order)
