"""Copies of a tensor in which a tensor of indices says what is replaced, or what something is added to and the like.

Where ONNX leaves the order of updates open, the last one of those for one place counts; an update with an index out of
range, which ONNX forbids, is dropped.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from dmlvk.engine.scatters import joined, replaced
from dmlvk.onnx.conversion import Conversion
from dmlvk.onnx.convert.cast import cast_to
from dmlvk.onnx.convert.movement import joined as in_a_row
from dmlvk.onnx.convert.sampling import split
from dmlvk.onnx.model import Array, Node
from dmlvk.onnx.node_facts import NodeFacts
from dmlvk.onnx.registry import converts
from dmlvk.onnx.values import Value
from dmlvk.spec import ops
from dmlvk.spec.enums import TensorDataType
from dmlvk.spec.schema import NUMERIC, OperatorDesc

_ANY = (TensorDataType.FLOAT64, *NUMERIC)
_BOOL, _INT = np.dtype(np.bool_), np.dtype(np.int32)

_REDUCTIONS: dict[str, type[OperatorDesc]] = {
    "add": ops.ElementWiseAdd,
    "mul": ops.ElementWiseMultiply,
    "max": ops.ElementWiseMax,
    "min": ops.ElementWiseMin,
}


def _refuse_scatter(node: NodeFacts) -> None:
    reduction = node.attribute("reduction", "none")
    if reduction != "none":
        node.takes(0, NUMERIC, f"reduction {reduction!r} takes")


def _replaces(node: Node) -> bool:
    return bool(node.attributes.get("reduction", "none") == "none")


@converts("Scatter", 9, types=_ANY, moves=_replaces)
@converts("ScatterElements", 11, 13, 16, 18, types=_ANY, check=_refuse_scatter, moves=_replaces)
def scatter_elements(node: Conversion) -> Value:
    """Along the other axes there may be fewer indices than elements."""
    x, indices, updates = node[0], node[1], node[2]
    axis = node.axis(node.attribute("axis", 0), x.rank)
    if indices.rank != x.rank or any(
        own < wanted for at, (own, wanted) in enumerate(zip(x.sizes, indices.sizes, strict=True)) if at != axis
    ):
        rule = f"the sizes of the indices must be at most those of the input, {x.sizes}, except along axis {axis}"
        raise node.invalid(rule, indices.sizes)
    if updates.sizes != indices.sizes:
        raise node.invalid("the updates must have the sizes of the indices", updates.sizes, indices.sizes)
    if 0 in indices.sizes:
        return x
    row = _reduction(node)
    if row is not None:
        places = _places(node, (x.sizes[axis],))
        return joined(node, x, places, updates, row, axis)
    return replaced(node, x, indices, updates, axis)


@converts("ScatterND", 11, 13, 16, 18, types=_ANY, check=_refuse_scatter, moves=_replaces)
def scatter_nd(node: Conversion) -> Value:
    """Each tuple along the last dimension of the indices chooses a block. Known ones that make up a window, as exporters
    write an assignment to a slice, are a join of what is before, in and behind it."""
    x, indices, updates = node[0], node[1], node[2]
    *array, length = indices.sizes or (0,)
    if not 1 <= length <= x.rank:
        raise node.invalid(f"the last size of the indices must be from 1 to the {x.rank} dimensions of the input", length)
    if updates.sizes != (*array, *x.sizes[length:]):
        rule = f"the updates must fit the input {x.sizes} and the indices {indices.sizes}"
        raise node.invalid(rule, updates.sizes, (*array, *x.sizes[length:]))
    if 0 in updates.sizes:
        return x
    row = _reduction(node)
    known = None if row else node.constant(1)
    window = None if known is None else _window(known, x.sizes)
    if window is not None:
        return _with_window(node, x, *window, updates)
    if row is not None:
        blocks, block = math.prod(x.sizes[:length]), math.prod(x.sizes[length:])
        places = _places(node, x.sizes[:length])
        shape = (math.prod(array), block)
        y = joined(node, node.reshape(x, (blocks, block)), places, node.reshape(updates, shape), row, 0)
        return node.reshape(y, x.sizes)
    count = max(x.rank, indices.rank, updates.rank)
    values = [value.broadcast_to((*(1,) * (count - value.rank), *value.sizes)) for value in (x, indices, updates)]
    counts = {"input_dimension_count": x.rank, "indices_dimension_count": indices.rank}
    y = node.launch(ops.ScatterNd, *values, output_tensor=node.new(values[0].sizes, x.dtype), **counts)
    return node.reshape(y, x.sizes)


def _window(indices: Array, sizes: Sequence[int]) -> tuple[int, int] | None:
    """The dimension and the first place along it of a window that the tuples walk in row-major order, which has all that
    there is along the other dimensions; None where they walk something else."""
    *array, length = indices.shape
    if len(array) != length:
        return None
    numbers = np.where(indices < 0, indices + np.array(sizes[:length]), indices)
    starts = list(map(int, numbers[(0,) * length]))
    partial = [axis for axis, (own, size) in enumerate(zip(array, sizes, strict=False)) if own < size]
    axis = partial[0] if partial else 0
    if len(partial) > 1 or not 0 <= starts[axis] <= sizes[axis] - array[axis]:
        return None
    walked = np.moveaxis(np.indices(array), 0, -1) + np.array(starts)
    return (axis, starts[axis]) if np.array_equal(numbers, walked) else None


def _with_window(node: Conversion, x: Value, axis: int, start: int, updates: Value) -> Value:
    """x with a window along a dimension replaced. It stays as it lies in memory: an exporter's transposition before and
    after is a view."""
    end = start + updates.sizes[axis]
    order = sorted(range(x.rank), key=lambda axis: -x.strides[axis])
    pieces = []
    for first, behind in ((0, start), (end, x.sizes[axis])):
        ranges = [(0, size, 1) for size in x.sizes]
        ranges[axis] = first, behind - first, 1
        pieces.append(node.sliced(x, ranges))
    ordered = [piece.transpose(order) for piece in (pieces[0], updates, pieces[1])]
    return in_a_row(node, ordered, order.index(axis)).transpose([order.index(axis) for axis in range(x.rank)])


def _reduction(node: Conversion) -> type[OperatorDesc] | None:
    """The operator that joins an update with the element there; None if the update replaces it."""
    return _REDUCTIONS.get(node.attribute("reduction", "none"))


def _places(node: Conversion, sizes: tuple[int, ...]) -> Value | Array:
    """The indices as int32 from 0 on, those of ScatterND, which are tuples, as numbers of blocks (tuples, 1)."""
    tuples, known = node.node.op_type == "ScatterND", node.host(1)
    if math.prod(sizes) > np.iinfo(_INT).max:
        raise node.unsupported(f"the sizes {tuple(sizes)} have more elements than int32 can number")
    if known is not None:
        columns = [known[..., i].reshape(-1, 1) for i in range(len(sizes))] if tuples else [known]
        if any(((column < -size) | (column >= size)).any() for column, size in zip(columns, sizes, strict=True)):
            rule = f"indices must be inside the sizes {tuple(sizes)}; a negative one counts from the end"
            raise node.invalid(rule, [(column.min(), column.max()) for column in columns])
        columns = [np.where(column < 0, column + size, column) for column, size in zip(columns, sizes, strict=True)]
        numbers = np.ravel_multi_index(columns, sizes) if tuples else columns[0]
        return numbers.astype(_INT)
    indices = cast_to(node, node[1], _INT)
    if tuples:
        indices = node.reshape(indices, (math.prod(indices.sizes[:-1]), len(sizes)))
    total: Value | None = None
    for column, size in zip(split(node, indices, 1) if tuples else (indices,), sizes, strict=True):
        length = node.upload(np.array(size, _INT))
        negative = node.elementwise(ops.ElementWiseLogicalLessThan, column, node.upload(np.array(0, _INT)), dtype=_BOOL)
        from_the_end = node.elementwise(ops.ElementWiseAdd, column, length)
        column = node.elementwise(ops.ElementWiseIf, negative, from_the_end, column, dtype=_INT)
        if total is not None:
            column = node.elementwise(ops.ElementWiseAdd, node.elementwise(ops.ElementWiseMultiply, total, length), column)
        total = column
    assert total is not None, "an index has at least one number"
    return total
