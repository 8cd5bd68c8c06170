"""Rotary embedding, as ONNX Runtime's own operators ask for it."""

from __future__ import annotations

import numpy as np

from dmlvk.onnx.conversion import Conversion
from dmlvk.onnx.convert.gather import taken
from dmlvk.onnx.convert.movement import joined
from dmlvk.onnx.node_facts import NodeFacts
from dmlvk.onnx.registry import MICROSOFT, Declared, converts
from dmlvk.onnx.values import Value
from dmlvk.spec import ops
from dmlvk.spec.schema import FLOATS

_ROTARY = Declared(4, 1, ("interleaved", "is_packed_batching", "num_heads", "rotary_embedding_dim", "scale"))


def _refuse_rotary(node: NodeFacts) -> None:
    node.takes(2, node.as_first(FLOATS))
    for name, plain in (("is_packed_batching", 0), ("scale", 1.0)):
        if node.attribute(name, plain) != plain:
            raise node.unsupported(f"{name} {node.attribute(name, plain)} is not supported, only {plain}")


@converts("RotaryEmbedding", 1, types=FLOATS, domain=MICROSOFT, check=_refuse_rotary, declared=_ROTARY)
def rotary_embedding(node: Conversion) -> Value:
    """Heads stand before rows, or side by side in them. One position is that of the first row."""
    x, positions = node[0], node[1]
    if x.rank not in (3, 4):
        raise node.invalid("the input must have 3 or 4 dimensions", x.sizes)
    batch, rows = x.sizes[0], x.sizes[1 if x.rank == 3 else 2]
    if positions.rank == 1:
        positions = node.elementwise(ops.ElementWiseAdd, positions, counted(node, rows, positions.dtype))
    positions = positions.broadcast_to((batch, rows))
    if x.rank == 4:
        y = rotated(node, x.transpose((0, 2, 1, 3)), positions, node[2], node[3], bool(node.attribute("interleaved", 0)))
        return y.transpose((0, 2, 1, 3))
    size = x.sizes[2] // heads if (heads := node.attribute("num_heads", 0)) else 2 * node[2].sizes[1]
    if not size or x.sizes[2] % size:
        raise node.invalid("the heads must divide the last dimension", heads, x.sizes[2])
    apart = node.reshape(x, (batch, rows, x.sizes[2] // size, size))
    y = rotated(node, apart, positions, node[2], node[3], bool(node.attribute("interleaved", 0)))
    return node.reshape(y, x.sizes)


def counted(node: Conversion, count: int, dtype: np.dtype[np.generic]) -> Value:
    """0, 1, 2 and so on."""
    y = node.new((count,), dtype)
    return node.launch(ops.FillValueSequence, output_tensor=y, value_data_type=y.data_type, value_start=0, value_delta=1)


def rotated(node: Conversion, x: Value, positions: Value, cosines: Value, sines: Value, interleaved: bool) -> Value:
    """The elements of each head turned by pairs.

    Args:
        node: The node.
        x: (batch, rows, heads, head size).
        positions: (batch, rows): rows of the tables.
        cosines, sines: Tables of a row for each position, with a number for each pair. Where a head has more elements than
            they have pairs, the rest stays.
        interleaved: Whether a pair stands side by side; else its second element stands half of the pairs' elements behind.
    """
    pairs = cosines.sizes[1]
    if cosines.sizes != sines.sizes or 2 * pairs > x.sizes[3]:
        rule = f"the tables must have equal sizes, and pairs for at most the {x.sizes[3]} elements of a head"
        raise node.invalid(rule, (cosines.sizes, sines.sizes))
    batch, rows, heads, size = x.sizes
    cosines, sines = (node.reshape(taken(node, table, positions, 0), (batch, rows, 1, pairs)) for table in (cosines, sines))
    turned, *rest = (x,) if size == 2 * pairs else _parts(node, x, (2 * pairs, size - 2 * pairs))
    if interleaved:
        both = node.reshape(turned, (batch, rows, heads, pairs, 2))
        first, second = (node.reshape(half, (batch, rows, heads, pairs)) for half in _parts(node, both, (1, 1)))
    else:
        first, second = _parts(node, turned, (pairs, pairs))

    made = []
    for row, one, other in ((ops.ElementWiseSubtract, first, second), (ops.ElementWiseAdd, second, first)):
        products = (node.elementwise(ops.ElementWiseMultiply, *pair) for pair in ((one, cosines), (other, sines)))
        made.append(node.elementwise(row, *products))
    if interleaved:
        side_by_side = joined(node, [node.reshape(half, (*half.sizes, 1)) for half in made], 4)
        made = [node.reshape(side_by_side, turned.sizes)]
    return joined(node, [*made, *rest], 3)


def _parts(node: Conversion, x: Value, sizes: tuple[int, int]) -> tuple[Value, Value]:
    """The first and the other elements along the last dimension."""
    first, second = (node.new((*x.sizes[:-1], size), x.dtype) for size in sizes)
    node.launch(ops.Split, x, output_tensors=(first, second), axis=x.rank - 1)
    return first, second
