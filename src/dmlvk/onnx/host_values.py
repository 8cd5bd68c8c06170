"""The values of a graph that the host knows, or must know, before a plan is made."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from dmlvk.onnx.control import Body, flattened
from dmlvk.onnx.host_nodes import may_run_on_host, needs_shape_only
from dmlvk.onnx.model import Node
from dmlvk.onnx.program import find_driven
from dmlvk.onnx.registry import find_row


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
