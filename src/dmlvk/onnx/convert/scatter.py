"""Copies of a tensor in which a tensor of indices says what is replaced. Where ONNX leaves the order of updates open, the
last one of those for one place counts; an update with an index out of range, which ONNX forbids, is dropped."""

from __future__ import annotations

from dmlvk import ops
from dmlvk.enums import TensorDataType
from dmlvk.onnx.conversion import Conversion
from dmlvk.onnx.registry import converts
from dmlvk.onnx.values import Value
from dmlvk.schema import NUMERIC

_ANY = (TensorDataType.FLOAT64, *NUMERIC)


@converts("Scatter", 9, types=_ANY)
@converts("ScatterElements", 11, 13, 16, 18, types=_ANY)
def scatter_elements(node: Conversion) -> Value:
    """Along the other axes there may be fewer indices than elements: then the rest is copied first."""
    x, indices, updates = _inputs(node)
    axis = node.axis(node.attribute("axis", 0), x.rank)
    if indices.rank != x.rank or any(
        own < wanted for at, (own, wanted) in enumerate(zip(x.sizes, indices.sizes, strict=True)) if at != axis
    ):
        raise node.invalid(f"indices of sizes {indices.sizes} for an input of sizes {x.sizes}")
    if updates.sizes != indices.sizes:
        raise node.invalid(f"updates of sizes {updates.sizes} for indices of sizes {indices.sizes}")
    if 0 in indices.sizes:
        return x
    fewer = [(at, size) for at, size in enumerate(indices.sizes) if at != axis and size < x.sizes[at]]
    y = node.copy(x) if fewer else node.new(x.sizes, x.dtype)
    part = y
    for at, size in fewer:
        x, part = x.shorten(at, size), part.shorten(at, size)
    node.launch(ops.ScatterElements, x, indices, updates, output_tensor=part, axis=axis)
    return y


@converts("ScatterND", 11, 13, 16, 18, types=_ANY)
def scatter_nd(node: Conversion) -> Value:
    """Each tuple along the last dimension of the indices chooses a block."""
    x, indices, updates = _inputs(node)
    *array, length = indices.sizes or (0,)
    if not 1 <= length <= x.rank:
        raise node.invalid(f"tuples of {length} indices for an input of sizes {x.sizes}")
    if updates.sizes != (*array, *x.sizes[length:]):
        raise node.invalid(f"updates of sizes {updates.sizes} for indices {indices.sizes} of an input {x.sizes}")
    if 0 in updates.sizes:
        return x
    count = max(x.rank, indices.rank, updates.rank)
    values = [value.broadcast_to((*(1,) * (count - value.rank), *value.sizes)) for value in (x, indices, updates)]
    counts = {"input_dimension_count": x.rank, "indices_dimension_count": indices.rank}
    y = node.launch(ops.ScatterNd, *values, output_tensor=node.new(values[0].sizes, x.dtype), **counts)
    return node.reshape(y, x.sizes)


def _inputs(node: Conversion) -> tuple[Value, Value, Value]:
    """Of a node that replaces: DirectML has no scatter that adds, multiplies or compares."""
    reduction = node.attribute("reduction", "none")
    if reduction != "none":
        raise node.unsupported(f"reduction is {reduction!r}, DirectML's scatters only replace")
    return node[0], node[1], node[2]
