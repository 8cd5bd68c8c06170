"""The graphs inside nodes: the branches of an If and the bodies of loops; and how a trace follows a loop.

What a body makes gets a new name when the model is loaded, so that every value of the model has a name of its own and one
table of values does for all of a trace.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

import numpy as np
import onnx

from dmlvk.onnx.conversion import Conversion
from dmlvk.onnx.model import Array, Node, element_type, read_initializer, read_node
from dmlvk.onnx.node_facts import unsupported_node
from dmlvk.onnx.program import find_driven
from dmlvk.onnx.values import Value
from dmlvk.spec import ops
from dmlvk.spec.errors import UnsupportedNodeError

_LONGEST: Final = {"Scan": 2**16, "Loop": 2**11}
"""The most nodes that a trace makes of a loop: its body's, once for each round. The host drives one with more. The rounds of
a Loop may be others in each run, which then waits for a plan of all of them."""


class LongLoopError(UnsupportedNodeError):
    """A Loop or a Scan has too many rounds for a trace to follow.

    Attributes:
        loop: The node.
    """

    def __init__(self, node: Node, rounds: int, size: int) -> None:
        reason = f"{rounds} rounds are too many for a plan of its body of {size} nodes"
        super().__init__(node.name, node.op_type, node.domain, node.version, reason)
        self.loop = node


@dataclass(frozen=True, eq=False)
class Body:
    """A graph inside a node.

    Attributes:
        nodes: Its nodes in order.
        inputs: Names of what the node hands to it.
        outputs: Names of what it hands back, its own or of values outside.
        constants: Its initializers.
        types: The types of its inputs and outputs, as far as the file has them.
    """

    nodes: tuple[Node, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    constants: Mapping[str, Array]
    types: Mapping[str, onnx.TypeProto]


def has_bodies(node: Node) -> bool:
    """Whether the node is one whose bodies are known what to do with."""
    return node.has_subgraph and find_driven(node) is not None


def can_be_traced(node: Node) -> bool:
    """Whether a trace may follow the bodies: of an If, of a Loop, and of a Scan without batches."""
    return node.op_type in ("If", "Loop") or (node.op_type == "Scan" and node.version > 8)


def control_inputs(node: Node) -> list[str]:
    """Inputs that must be known where a trace follows the node's bodies: the condition of an If, rounds and condition of a
    Loop. A Loop's body must make known conditions of them, too."""
    count = {"If": 1, "Loop": 2}.get(node.op_type, 0)
    return [name for name in node.inputs[:count] if name]


def check_rounds(node: Node, body: Body, rounds: int, steps: int = 0) -> None:
    """Refuses rounds of which a trace would become too long, or whose steps are so many.

    Raises:
        LongLoopError: there are too many.
    """
    if max(rounds * len(body.nodes), steps) > _LONGEST[node.op_type]:
        raise LongLoopError(node, rounds, len(body.nodes))


def handed_number(types: Mapping[str, onnx.TypeProto], name: str, number: np.generic) -> Array:
    """A number that a Loop hands to its body: of one dimension where the file says so of the input, else a scalar."""
    proto = types.get(name)
    has_dimension = proto is not None and len(proto.tensor_type.shape.dim) == 1
    return np.full(1 if has_dimension else (), number)


def stack_of_nothing(node: Node, types: Mapping[str, onnx.TypeProto], name: str, axis: int = 0) -> Array:
    """What is stacked of an output of a loop's body where there are no rounds: of the sizes that the file has for it.

    Raises:
        UnsupportedNodeError: the file does not say its type.
    """
    proto = types.get(name, onnx.TypeProto())
    found, dtype = element_type(proto.tensor_type.elem_type)
    if dtype is None:
        raise unsupported_node(node, f"it has no rounds, and the file says that {name!r}, which they would make, is {found}")
    sizes = [item.dim_value for item in proto.tensor_type.shape.dim]
    sizes.insert(axis if axis >= 0 else axis + len(sizes) + 1, 0)
    return np.zeros(sizes, dtype)


def bodies_of(node: Node, taken: set[str]) -> dict[str, Body]:
    """The node's bodies by attribute.

    Args:
        node: One that has some.
        taken: Names of all values so far; those that the bodies make are added.
    """
    bodies = {}
    for attribute in node.proto.attribute:
        if attribute.type == onnx.AttributeProto.GRAPH:
            graph = onnx.GraphProto()
            graph.CopyFrom(attribute.g)
            prefix = f"{next(filter(None, node.outputs), node.name)}/{attribute.name}/"
            names = {name: unused(prefix + name, taken) for name in _made(graph)}
            rename(graph, names)
            bodies[attribute.name] = Body(
                nodes=tuple(read_node(item, node.opsets) for item in graph.node),
                inputs=tuple(item.name for item in graph.input),
                outputs=tuple(item.name for item in graph.output),
                constants={item.name: read_initializer(item) for item in graph.initializer},
                types={item.name: _copied(item.type) for item in (*graph.input, *graph.output)},
            )
    return bodies


def _copied(proto: onnx.TypeProto) -> onnx.TypeProto:
    """A part of a message keeps the whole of it in memory."""
    copy = onnx.TypeProto()
    copy.CopyFrom(proto)
    return copy


def without_bodies(node: Node) -> Node:
    """The node without its graphs, which may hold weights."""
    proto = onnx.NodeProto()
    proto.CopyFrom(node.proto)
    for attribute in proto.attribute:
        if attribute.type == onnx.AttributeProto.GRAPH:
            attribute.ClearField("g")
    attributes = {name: value for name, value in node.attributes.items() if not isinstance(value, onnx.GraphProto)}
    return replace(node, attributes=attributes, proto=proto)


def flattened(nodes: Iterable[Node], bodies: Mapping[Node, Mapping[str, Body]]) -> Iterator[Node]:
    """The nodes and those inside them, each after what it reads; a node comes after those of its bodies."""
    for node in nodes:
        for body in bodies.get(node, {}).values():
            yield from flattened(body.nodes, bodies)
        yield node


class Rounds(NamedTuple):
    """The rounds of a Scan.

    Attributes:
        number: How many there are.
        elements: Those of the scanned inputs for each round, in the order in which the body takes them; without rounds those
            of one that nothing computes, from which the sizes of outputs follow.
    """

    number: int
    elements: list[tuple[Value, ...]]


def scan_rounds(node: Conversion, body: Body) -> Rounds:
    """The rounds of a Scan."""
    count = node.attribute("num_scan_inputs", 0)
    states = len(body.inputs) - count
    if count < 1 or node.input_count != len(body.inputs) or not 0 <= states <= len(body.outputs):
        raise node.invalid(
            f"num_scan_inputs, {count}, must be at least 1, and the node must have as many inputs as its body",
            node.input_count,
            len(body.inputs),
        )
    axes = node.attribute("scan_input_axes", [0] * count)
    backwards = node.attribute("scan_input_directions", [0] * count)
    if len(axes) != count or len(backwards) != count:
        rule = "scan_input_axes and scan_input_directions must have an entry for each scanned input"
        raise node.invalid(rule, (len(axes), len(backwards)), (count, count))
    inputs = [node[states + index] for index in range(count)]
    axes = [node.axis(axis, x.rank) for axis, x in zip(axes, inputs, strict=True)]
    lengths = {x.sizes[axis] for axis, x in zip(axes, inputs, strict=True)}
    if len(lengths) != 1:
        raise node.invalid("all scanned inputs must have the same number of elements", sorted(lengths))
    (length,) = lengths
    if length == 0:
        stand_ins = (
            node.new((*x.sizes[:axis], *x.sizes[axis + 1 :]), x.dtype) for axis, x in zip(axes, inputs, strict=True)
        )
        return Rounds(0, [tuple(stand_ins)])
    check_rounds(node.node, body, length)
    pieces = [_elements(node, x, axis) for axis, x in zip(axes, inputs, strict=True)]
    ordered = (piece[::-1] if back else piece for piece, back in zip(pieces, backwards, strict=True))
    return Rounds(length, [*zip(*ordered, strict=True)])


def stacked_outputs(node: Conversion, states: int, rounds: int) -> list[Value]:
    """The outputs of a loop that are stacked, of its body's outputs; the node's inputs are the states, then each round's
    outputs, or without rounds those of one that nothing computes."""
    count = (node.input_count - states) // max(rounds, 1)
    axes = node.attribute("scan_output_axes", [0] * count)
    backwards = node.attribute("scan_output_directions", [0] * count)
    if len(axes) != count or len(backwards) != count:
        rule = "scan_output_axes and scan_output_directions must have an entry for each output of the body"
        raise node.invalid(rule, (len(axes), len(backwards)), (count, count))
    made = []
    for index, (axis, back) in enumerate(zip(axes, backwards, strict=True)):
        pieces = [node[states + number * count + index] for number in range(max(rounds, 1))]
        if rounds == 0:
            sizes, axis = pieces[0].sizes, node.axis(axis, pieces[0].rank + 1)
            made.append(node.new((*sizes[:axis], 0, *sizes[axis:]), pieces[0].dtype))
            continue
        made.append(_stacked(node, pieces[::-1] if back else pieces, axis))
    return made


def _elements(node: Conversion, x: Value, axis: int) -> list[Value]:
    """The elements along an axis, of one rank less."""
    sizes = (*x.sizes[:axis], *x.sizes[axis + 1 :])
    if x.sizes[axis] == 1:
        return [node.reshape(x, sizes)]
    pieces = tuple(node.new(x.shorten(axis, 1).sizes, x.dtype) for _ in range(x.sizes[axis]))
    node.launch(ops.Split, x, output_tensors=pieces, axis=axis)
    return [node.reshape(piece, sizes) for piece in pieces]


def _stacked(node: Conversion, pieces: list[Value], axis: int) -> Value:
    first = pieces[0]
    if any((piece.sizes, piece.dtype) != (first.sizes, first.dtype) for piece in pieces):
        rule = "an output of the body must have the same sizes and type in every round"
        raise node.invalid(rule, [(piece.sizes, piece.dtype) for piece in pieces])
    axis = node.axis(axis, first.rank + 1)
    sizes = (*first.sizes[:axis], 1, *first.sizes[axis:])
    rows = tuple(node.reshape(piece, sizes) for piece in pieces)
    if len(rows) == 1:
        return rows[0]
    y = node.new((*first.sizes[:axis], len(rows), *first.sizes[axis:]), first.dtype)
    return node.launch(ops.Join, input_tensors=rows, output_tensor=y, axis=axis)


def _made(graph: onnx.GraphProto) -> list[str]:
    """Names that the graph defines."""
    own = [item.name for item in (*graph.input, *graph.initializer)]
    return [*dict.fromkeys(own + [name for node in graph.node for name in node.output if name])]


def unused(name: str, taken: set[str]) -> str:
    """The name, or one like it that is not taken; it is from then on."""
    while name in taken:
        name += "_"
    taken.add(name)
    return name


def names_of(graph: onnx.GraphProto) -> tuple[set[str], set[str]]:
    """The names that a graph and those inside it define, and those that they read from outside."""
    own, read = {*_made(graph)}, {item.name for item in graph.output}
    for node in graph.node:
        read.update(filter(None, node.input))
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.GRAPH:
                inner, outer = names_of(attribute.g)
                own |= inner
                read |= outer
    return own, read - own


def rename(graph: onnx.GraphProto, names: Mapping[str, str]) -> None:
    """Renames values in a graph and in those inside it."""
    for item in (*graph.input, *graph.initializer, *graph.output):
        item.name = names.get(item.name, item.name)
    for node in graph.node:
        for values in (node.input, node.output):
            values[:] = [names.get(name, name) for name in values]
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.GRAPH:
                rename(attribute.g, names)  # one that hides an outer value is renamed like it and hides it still
