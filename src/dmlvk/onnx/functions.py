"""Operators without a converter that onnx defines as functions: their nodes, put in their place when a model is loaded."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final, NamedTuple

import onnx
import onnx.defs
import onnx.helper
import onnx.inliner

from dmlvk.onnx.control import names_of, rename, unused
from dmlvk.onnx.host_nodes import may_run_on_host
from dmlvk.onnx.model import Node, read_node
from dmlvk.onnx.node_facts import unsupported_node
from dmlvk.onnx.program import find_driven
from dmlvk.onnx.registry import find_counting, find_row
from dmlvk.onnx.types import infer_types

_CALLED: Final = "dmlvk/definition"
"""The domain of the function that stands for an operator while it is put in its place."""


class Expansion(NamedTuple):
    """The graph that stands for a node.

    Attributes:
        nodes: The nodes in order.
        types: ONNX's number of the element type by value that they make, as far as it is known.
    """

    nodes: tuple[Node, ...]
    types: Mapping[str, int]


def expanded(node: Node, types: Mapping[str, int], taken: set[str]) -> Expansion | None:
    """The nodes that stand for a node; None for one that stands for itself.

    Args:
        node: Any node.
        types: ONNX's number of the element type by value, as far as it is known.
        taken: Names of all values so far; those that the nodes make are added.

    Raises:
        ModelError: what onnx defines does not fit the node's inputs.
        UnsupportedNodeError: nothing runs the node, and onnx has a function for others of its operator only.
    """
    if _is_itself(node):
        return None
    try:
        schema = onnx.defs.get_schema(node.op_type, node.opsets.get(node.domain, 0), node.domain)
    except onnx.defs.SchemaError:
        return None
    call = onnx.NodeProto()
    call.CopyFrom(node.proto)
    outside = _apart(call)
    function = _function(schema, node, call, types)
    if function is None:
        return None
    call.domain = function.domain = _CALLED
    function.name = call.op_type
    call.attribute.extend(
        attribute.default_value
        for name, attribute in schema.attributes.items()
        if name not in node.attributes and attribute.default_value.name
    )
    inputs, outputs = (
        [onnx.ValueInfoProto(name=name) for name in dict.fromkeys(names) if name] for names in (call.input, call.output)
    )
    opsets = {**node.opsets, **{item.domain: item.version for item in function.opset_import}, _CALLED: 1}
    model = onnx.helper.make_model(
        onnx.helper.make_graph([call], node.name, inputs, outputs),
        functions=[function],
        opset_imports=[onnx.helper.make_opsetid(*item) for item in opsets.items()],
    )
    return _in_place(node, onnx.inliner.inline_local_functions(model).graph, outside, opsets, types, taken)


def _is_itself(node: Node) -> bool:
    """Whether something runs the node as it is."""
    rows = (find_row(node), find_counting(node), find_driven(node))
    return any(row is not None for row in rows) or may_run_on_host(node)


def _apart(call: onnx.NodeProto) -> dict[str, str]:
    """Gives all values in a node's graphs names that no function has and that onnx's text can have: it puts these graphs
    into the function as they are, and by way of text.

    Returns:
        The names so far of what the graphs read from outside, by the new one.
    """
    outside: dict[str, str] = {}
    for attribute in call.attribute:
        if attribute.type == onnx.AttributeProto.GRAPH:
            own, read = names_of(attribute.g)
            names = {name: f"{attribute.name}__{index}" for index, name in enumerate(sorted(own | read))}
            rename(attribute.g, names)
            outside |= {names[name]: name for name in read}
    return outside


def _function(schema: Any, node: Node, call: onnx.NodeProto, types: Mapping[str, int]) -> onnx.FunctionProto | None:
    """The function that defines an operator, of nodes of the newest opset up to the model's; None if there is none."""
    # Any: onnx's stubs do not have what a schema says of its function.
    most = node.opsets.get(node.domain, 0)
    versions = [version for version in schema.function_opset_versions if version <= most]
    if versions:
        return onnx.FunctionProto.FromString(schema.get_function_with_opset_version(versions[-1]))
    versions = [version for version in schema.context_dependent_function_opset_versions if version <= most]
    if not versions:
        return None
    unknown = [name for name in node.inputs if name and name not in types]
    if unknown:  # onnx's native code, which makes the function, reads them without a look
        raise unsupported_node(
            node, f"it has no converter, and its definition asks for the type of {unknown[0]!r}, which is unknown"
        )
    kinds = [onnx.TypeProto() for _ in node.inputs]
    for name, kind in zip(node.inputs, kinds, strict=True):
        if name:
            kind.tensor_type.elem_type = types[name]
    written = schema.get_context_dependent_function_with_opset_version(
        versions[-1], call.SerializeToString(), [kind.SerializeToString() for kind in kinds]
    )
    function = onnx.FunctionProto.FromString(written)
    if not function.node:
        raise unsupported_node(node, "it has no converter, and onnx defines no function for its attributes and types")
    return function


def _in_place(
    node: Node,
    graph: onnx.GraphProto,
    names: dict[str, str],
    opsets: Mapping[str, int],
    types: Mapping[str, int],
    taken: set[str],
) -> Expansion:
    """A graph's nodes under names of the model; ``names`` are those of its inputs and outputs that differ."""
    outside = {*names, *node.inputs, *node.outputs}
    made = [name for item in graph.node for name in item.output]
    names |= {name: unused(f"{node.outputs[0]}/{name}", taken) for name in made if name and name not in outside}
    rename(graph, names)
    codes = {name: types[name] for name in node.inputs if name in types}
    infer_types(graph.node, opsets, codes)
    nodes = (replace(read_node(item, opsets), whole=node.whole or node) for item in graph.node)
    return Expansion(tuple(nodes), codes)
