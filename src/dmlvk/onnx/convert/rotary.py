"""Rotary embedding, as ONNX's operator and ONNX Runtime's own ask for it."""

from __future__ import annotations

import numpy as np

from dmlvk.onnx.conversion import Conversion
from dmlvk.onnx.node_facts import NodeFacts
from dmlvk.onnx.registry import MICROSOFT, Declared, converts
from dmlvk.onnx.values import Value
from dmlvk.spec import ops
from dmlvk.spec.ops.rotary import RotaryEmbedding
from dmlvk.spec.schema import FLOATS

_ROTARY = Declared(4, 1, ("interleaved", "is_packed_batching", "num_heads", "rotary_embedding_dim", "scale"))


def _refuse_rotary(node: NodeFacts) -> None:
    node.takes(2, node.as_first(FLOATS))
    for name, plain in (("is_packed_batching", 0), ("scale", 1.0)):
        if node.attribute(name, plain) != plain:
            raise node.unsupported(f"{name} {node.attribute(name, plain)} is not supported, only {plain}")


@converts("RotaryEmbedding", 1, types=FLOATS, domain=MICROSOFT, check=_refuse_rotary, declared=_ROTARY)
def rotary_embedding_of_runtime(node: Conversion) -> Value:
    """One position is that of the first row."""
    x, positions, cosines, sines = (node[index] for index in range(4))
    apart = _rows_first(node, x, 2 * cosines.sizes[1])
    batch, rows = apart.sizes[:2]
    if positions.rank == 1:
        positions = node.elementwise(ops.ElementWiseAdd, positions, counted(node, rows, positions.dtype))
    y = rotated(node, apart, positions.broadcast_to((batch, rows)), cosines, sines, bool(node.attribute("interleaved", 0)))
    return y.transpose((0, 2, 1, 3)) if x.rank == 4 else node.reshape(y, x.sizes)


def _refuse_unlike_tables(node: NodeFacts) -> None:
    for index in (1, 2):
        node.takes(index, node.as_first(FLOATS))


@converts("RotaryEmbedding", 23, types=FLOATS, check=_refuse_unlike_tables)
def rotary_embedding(node: Conversion) -> Value:
    """Without positions, the tables have a row for each of the input's."""
    x, cosines, sines = node[0], node[1], node[2]
    apart = _rows_first(node, x, 0)
    turned = node.attribute("rotary_embedding_dim", 0) or apart.sizes[3]
    if 2 * cosines.sizes[-1] != turned:
        rule = f"the last size of the tables must be half of the {turned} elements of a head that are turned"
        raise node.invalid(rule, cosines.sizes)
    y = rotated(node, apart, node.get(3), cosines, sines, bool(node.attribute("interleaved", 0)))
    return y.transpose((0, 2, 1, 3)) if x.rank == 4 else node.reshape(y, x.sizes)


def _rows_first(node: Conversion, x: Value, size: int) -> Value:
    """The input as (batch, rows, heads, head size): heads stand before rows, or side by side in them, of so many elements
    unless the node says how many heads there are."""
    if x.rank == 4:
        return x.transpose((0, 2, 1, 3))
    if x.rank != 3:
        raise node.invalid("the input must have 3 or 4 dimensions", x.sizes)
    width, heads = x.sizes[2], node.attribute("num_heads", 0)
    size = width // heads if heads > 0 else size
    if not size or width % size:
        raise node.invalid("the heads must be given and divide the last dimension", heads, width)
    return node.reshape(x, (*x.sizes[:2], width // size, size))


def counted(node: Conversion, count: int, dtype: np.dtype[np.generic]) -> Value:
    """0, 1, 2 and so on."""
    y = node.new((count,), dtype)
    return node.launch(ops.FillValueSequence, output_tensor=y, value_data_type=y.data_type, value_start=0, value_delta=1)


def rotated(node: Conversion, x: Value, positions: Value | None, cosines: Value, sines: Value, interleaved: bool) -> Value:
    """The elements of each head turned by pairs.

    Args:
        node: The node.
        x: (batch, rows, heads, head size).
        positions: (batch, rows): rows of the tables, which have two dimensions then. Without it they have three, and a row
            for each of the input's.
        cosines, sines: Tables with a number for each pair. Where a head has more elements than they have pairs, the rest
            stays.
        interleaved: Whether a pair stands side by side; else its second element stands half of the pairs' elements behind.
    """
    rank = 3 if positions is None else 2
    if cosines.rank != rank or cosines.sizes != sines.sizes or 2 * cosines.sizes[-1] > x.sizes[3]:
        rule = (
            f"the tables must have {rank} dimensions, equal sizes, and pairs for at most the {x.sizes[3]} elements of a head"
        )
        raise node.invalid(rule, (cosines.sizes, sines.sizes))
    if positions is not None:
        cosines, sines = (node.reshape(table, (1, *table.sizes)) for table in (cosines, sines))
    return node.launch(
        RotaryEmbedding,
        x,
        cosines,
        sines,
        positions,
        output_tensor=node.new(x.sizes, x.dtype),
        interleaved=interleaved,
    )
