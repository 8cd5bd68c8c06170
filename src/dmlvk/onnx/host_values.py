"""The values of a graph that the host knows, or must know, before a plan is made."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final, NamedTuple

from dmlvk.onnx.control import Body, flattened
from dmlvk.onnx.host_nodes import may_run_on_host, needs_shape_only
from dmlvk.onnx.model import Node
from dmlvk.onnx.program import find_driven
from dmlvk.onnx.registry import find_row

_EXACT: Final = frozenset(
    {
        *("Abs", "Add", "Cast", "Ceil", "Clip", "Concat", "Expand", "Floor", "Gather", "GatherElements", "GatherND"),
        *("Identity", "Max", "Min", "Mod", "Mul", "Neg", "ReduceMax", "ReduceMin", "Reshape", "Round", "Slice", "Split"),
        *("Squeeze", "Sub", "Transpose", "Unsqueeze", "Where"),
    }
)
"""Operators that move numbers, choose among them or round once: host and device give the same bits."""


def is_shape_arithmetic(node: Node, known: set[str]) -> bool:
    """Whether the host computes the node's outputs of shapes and constants."""
    return needs_shape_only(node) or (may_run_on_host(node) and all(name in known for name in node.inputs if name))


def is_always_driven(node: Node) -> bool:
    """Whether only the host can drive the node."""
    row = find_driven(node)
    return row is not None and row.always


def read_by_driver(node: Node) -> set[str]:
    """Inputs that the host reads where it drives the node."""
    row = find_driven(node)
    return set() if row is None else {name for index, name in enumerate(node.inputs) if name and index in row.host_inputs}


def wanted_on_host(
    inputs: Mapping[str, bool],
    nodes: Sequence[Node],
    outputs: Iterable[str],
    bodies: Mapping[Node, Mapping[str, Body]],
    *,
    branches: bool = True,
) -> frozenset[str]:
    """Inputs that converters must know before the run, such as the shape of a Reshape or the condition of an If, or from
    which only such values follow, and that nothing else reads; scalars, such as the length of a Range, whatever else reads
    them. Each of their values has a plan of its own.

    Args:
        inputs: Name -> whether it is a scalar.
        nodes: The nodes that may read them.
        outputs: The graph's outputs.
        bodies: The bodies of the nodes that have some.
        branches: Whether the condition of an If is such a value, lest the host drives it. In a loop it is not: a plan for
            each value may be a plan for each round.
    """
    wanted: set[str] = set()
    leading: set[str] = set()  # what leads to a wanted value, other readers or not
    other = {*outputs}
    for node in reversed([*flattened(nodes, bodies)]):
        row = find_row(node)
        made = {name for name in node.outputs if name}
        may_precede = may_run_on_host(node) and not needs_shape_only(node) and not is_always_driven(node)
        precedes = may_precede and made <= wanted and made.isdisjoint(other)
        leads = may_precede and not made.isdisjoint(leading)
        for body in bodies.get(node, {}).values():
            other.update(body.outputs)
        decided = read_by_driver(node) if branches and node.op_type == "If" else set()
        for index, name in enumerate(node.inputs):
            is_wanted = name in decided or (row is not None and index in row.host_inputs)
            (wanted if precedes or is_wanted else other).add(name)
            if leads or is_wanted:
                leading.add(name)
    scalars = {name for name, is_scalar in inputs.items() if is_scalar}
    return frozenset(name for name in inputs if name in (wanted - other) | (leading & scalars))


class Ahead(NamedTuple):
    """The nodes of a body, parted.

    Attributes:
        host: Nodes that the host computes before all others, of what it is handed and of values from around the body.
        others: The other nodes, which read what those make.
    """

    host: tuple[Node, ...]
    others: tuple[Node, ...]


def computed_ahead(
    nodes: Sequence[Node],
    outputs: Collection[str],
    bodies: Mapping[Node, Mapping[str, Body]],
    constants: Collection[str],
    given: Collection[str],
    unused_name: Callable[[str], str],
) -> Ahead:
    """Parts the nodes of a body that runs in rounds, so that the host need not read what each round computes: numbers that
    it wants, such as the sizes of a box, it computes itself of values that are the same for all rounds, such as all boxes.
    What the device wants as well is computed there, too.

    Args:
        nodes: The nodes of the body.
        outputs: What is read of them outside.
        bodies: The bodies of those that have some.
        constants: Names that the host knows.
        given: Names of tensors from around the body, and of numbers that it is handed.
        unused_name: Makes a name that no value has.
    """
    known, from_outside = {*constants, *given}, {*given}
    can: set[Node] = set()
    for node in nodes:
        reads = {*filter(None, node.inputs)}
        if node not in bodies and node.op_type in _EXACT and may_run_on_host(node) and reads <= known:
            known.update(node.outputs)
            if not reads.isdisjoint(from_outside):
                from_outside.update(node.outputs)
                can.add(node)
    wanted: set[str] = set()
    for node in reversed(nodes):
        if node not in bodies:
            wanted |= _wanted_of(node, wanted)
    host = dict.fromkeys(node for node in nodes if node in can and not wanted.isdisjoint(node.outputs))
    copies = {name: unused_name(f"{name}/host") for node in host for name in node.outputs if name}
    needed = {*outputs}
    kept: list[Node] = []
    for node in reversed(nodes):
        if node not in host or not needed.isdisjoint(node.outputs):
            if node not in bodies and node not in host:
                node = _reading(node, copies, _wanted_of(node, wanted))
            needed.update(node.inputs, *(inner.inputs for inner in flattened([node], bodies)))
            needed.update(*(body.outputs for body in bodies.get(node, {}).values()))
            kept.append(node)
    ahead = (replace(_reading(node, copies, node.inputs), outputs=_named(node.outputs, copies)) for node in host)
    return Ahead(tuple(ahead), tuple(reversed(kept)))


def _wanted_of(node: Node, wanted: set[str]) -> set[str]:
    """The inputs of a node that the host wants: those that its converter must know, and what leads to what is wanted."""
    leads = may_run_on_host(node) and not needs_shape_only(node) and not wanted.isdisjoint(node.outputs)
    row = find_row(node)
    known = () if row is None else row.host_inputs
    return {name for index, name in enumerate(node.inputs) if name and (leads or index in known)}


def _reading(node: Node, copies: Mapping[str, str], names: Collection[str]) -> Node:
    """A node that reads copies of some of its inputs, which are part of the same one in reports."""
    inputs = tuple(copies.get(name, name) if name in names else name for name in node.inputs)
    return node if inputs == node.inputs else replace(node, inputs=inputs, whole=node.whole or node)


def _named(names: Iterable[str], copies: Mapping[str, str]) -> tuple[str, ...]:
    return tuple(copies.get(name, name) for name in names)
