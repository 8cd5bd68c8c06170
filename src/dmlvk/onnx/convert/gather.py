"""Elements, rows and blocks chosen by a tensor of indices. ONNX says nothing of indices out of range, or forbids them; the
operators clamp them."""

from __future__ import annotations

from typing import Final

import numpy as np

from dmlvk.graph.views import Sizes
from dmlvk.onnx.conversion import Conversion
from dmlvk.onnx.model import Array
from dmlvk.onnx.registry import always, converts
from dmlvk.onnx.values import Value
from dmlvk.spec import ops
from dmlvk.spec.enums import TensorDataType
from dmlvk.spec.schema import NUMERIC, OperatorDesc

_MOST_PLACES: Final = 1024
"""The most known indices that are looked at for even steps."""
_ANY = (TensorDataType.FLOAT64, *NUMERIC)


@converts("Gather", 1, 11, 13, types=_ANY, moves=always)
def gather(node: Conversion) -> Value:
    """The indices' dimensions stand in the place of the axis. Known ones in even steps are a slice, mostly a view."""
    x = node[0]
    axis = node.axis(node.attribute("axis", 0), x.rank)
    indices = node.constant(1)
    places = None if indices is None else _range(indices, x.sizes[axis])
    if indices is None or places is None:
        return taken(node, x, node[1], axis)
    ranges = [(0, size, 1) for size in x.sizes]
    ranges[axis] = places
    return node.reshape(node.sliced(x, ranges), (*x.sizes[:axis], *indices.shape, *x.sizes[axis + 1 :]))


def _range(indices: Array, size: int) -> tuple[int, int, int] | None:
    """Start, count and step of indices of elements that there are, one after the other in even steps; None for others."""
    numbers = indices.reshape(-1)
    if not 1 <= numbers.size <= _MOST_PLACES:
        return None
    first, last = int(numbers[0]), int(numbers[-1])
    step = int(numbers[1]) - first if numbers.size > 1 else 1
    is_even = step > 0 and bool((np.diff(numbers) == step).all())
    if not is_even or (first < 0) != (last < 0) or not (-first <= size if first < 0 else last < size):
        return None
    return first + size if first < 0 else first, numbers.size, step


def taken(node: Conversion, x: Value, indices: Value, axis: int) -> Value:
    """The elements that indices choose along an axis."""
    sizes = (*x.sizes[:axis], *indices.sizes, *x.sizes[axis + 1 :])
    count = max(len(sizes), x.rank)
    place = {"axis": axis + count - x.rank, "index_dimensions": indices.rank}
    return _launch(node, ops.Gather, x, indices, sizes, count, place)


@converts("GatherElements", 11, 13, types=_ANY, moves=always)
def gather_elements(node: Conversion) -> Value:
    """Along the other axes there may be fewer indices than elements."""
    x, indices = node[0], node[1]
    axis = node.axis(node.attribute("axis", 0), x.rank)
    if indices.rank != x.rank or any(
        own < wanted for at, (own, wanted) in enumerate(zip(x.sizes, indices.sizes, strict=True)) if at != axis
    ):
        rule = f"the sizes of the indices must be at most those of the input, {x.sizes}, except along axis {axis}"
        raise node.invalid(rule, indices.sizes)
    for at, size in enumerate(indices.sizes):
        x = x if at == axis else x.shorten(at, size)
    return node.launch(ops.GatherElements, x, indices, output_tensor=node.new(indices.sizes, x.dtype), axis=axis)


@converts("GatherND", 11, 12, 13, types=_ANY, moves=always)
def gather_nd(node: Conversion) -> Value:
    """Each tuple along the last dimension of the indices chooses a block."""
    x, indices, batches = node[0], node[1], node.attribute("batch_dims", 0)
    if not 0 <= batches < min(x.rank, indices.rank):
        rule = f"batch_dims must be at least 0 and below the dimensions of {x.sizes} and {indices.sizes}"
        raise node.invalid(rule, batches)
    chosen = batches + indices.sizes[-1]
    if chosen > x.rank:
        rule = f"the last size of the indices must be at most the {x.rank - batches} dimensions left of {x.sizes}"
        raise node.invalid(rule, indices.sizes[-1])
    sizes = (*indices.sizes[:-1], *x.sizes[chosen:])
    if chosen == batches:  # each tuple, which says nothing, chooses all
        between = (1,) * (indices.rank - 1 - batches)
        return node.reshape(x, (*x.sizes[:batches], *between, *x.sizes[batches:])).broadcast_to(sizes)
    counts = {
        "input_dimension_count": x.rank,
        "indices_dimension_count": indices.rank,
        "batch_dimension_count": batches,
    }
    return _launch(node, ops.GatherNd1, x, indices, sizes, max(len(sizes), x.rank, indices.rank), counts)


def _launch(
    node: Conversion, row: type[OperatorDesc], x: Value, indices: Value, sizes: Sizes, count: int, fields: dict[str, int]
) -> Value:
    """Launches a row whose tensors all have ``count`` dimensions, which leading ones fill up."""

    def filled(own: Sizes) -> Sizes:
        return (*(1,) * (count - len(own)), *own)

    x, indices = (value.broadcast_to(filled(value.sizes)) for value in (x, indices))
    return node.reshape(node.launch(row, x, indices, output_tensor=node.new(filled(sizes), x.dtype), **fields), sizes)
