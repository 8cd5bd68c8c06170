"""Operators that stand for graphs of others, put in their place when a model is loaded: those with a graph written here, and
those without a converter that onnx defines as functions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final, NamedTuple

import onnx
import onnx.defs
import onnx.helper
import onnx.inliner
import onnx.parser

from dmlvk.onnx.control import names_of, rename, unused
from dmlvk.onnx.host_nodes import may_run_on_host
from dmlvk.onnx.model import Array, Node, read_initializer, read_node
from dmlvk.onnx.node_facts import unsupported_node
from dmlvk.onnx.program import find_driven
from dmlvk.onnx.registry import find_counting, find_row
from dmlvk.onnx.types import infer_types

_OPSETS: Final = {"": 17}
"""The opsets of the graphs that are written here."""
_CALLED: Final = "dmlvk/definition"
"""The domain of the function that stands for an operator while it is put in its place."""

_SUPPRESSION: Final = """
suppression (float[B,N,4] boxes, float[B,C,N] scores, int64[1] most, float[1] overlap, float[1] least) => (int64[K,3] y)
<float low = {-3.4028234e38}, int64 last = {2}, float half = {0.5}, int64[1] none = {0}, float[1] zero = {0},
 int64[1] at0 = {0}, int64[1] at1 = {1}, int64[1] at2 = {2}>
{
    columns = Transpose <perm = [0, 2, 1]> (boxes)
    c0, c1, c2, c3 = Split <axis = 1> (columns)
    CORNERS
    top = Min (ya, yb)
    bottom = Max (ya, yb)
    left = Min (xa, xb)
    right = Max (xa, xb)
    height = Sub (bottom, top)
    width = Sub (right, left)
    area = Mul (height, width)
    is_enough = Greater (scores, LEAST)
    start = Where (is_enough, scores, low)
    sizes = Shape (scores)
    count = Gather (sizes, last)
    wanted = Squeeze (MOST)
    rounds = Min (wanted, count)
    end, places, found = Loop (rounds, , start) <body = choose (int64 i, bool goes_on, float[B,C,N] rest)
        => (bool more, float[B,C,N] less, int64[B,C,1] place, bool[B,C,1] is_one)
    {
        best = ReduceMax <axes = [2]> (rest)
        is_one = Greater (best, low)
        place = ArgMax <axis = 2> (rest)
        whole = Shape (rest)
        tops = Expand (top, whole)
        bottoms = Expand (bottom, whole)
        lefts = Expand (left, whole)
        rights = Expand (right, whole)
        areas = Expand (area, whole)
        t = GatherElements <axis = 2> (tops, place)
        b = GatherElements <axis = 2> (bottoms, place)
        l = GatherElements <axis = 2> (lefts, place)
        r = GatherElements <axis = 2> (rights, place)
        a = GatherElements <axis = 2> (areas, place)
        lower = Min (bottom, b)
        higher = Max (top, t)
        h = Sub (lower, higher)
        nearer = Min (right, r)
        farther = Max (left, l)
        w = Sub (nearer, farther)
        h0 = Relu (h)
        w0 = Relu (w)
        common = Mul (h0, w0)
        both = Add (area, a)
        union = Sub (both, common)
        ratio = Div (common, union)
        overlaps = Greater (ratio, OVERLAP)
        kept = Where (overlaps, low, rest)
        lows = Min (best, low)
        less = ScatterElements <axis = 2> (kept, place, lows)
        most_left = ReduceMax <keepdims = 0> (less)
        more = Greater (most_left, low)
    }>
    in_order = Transpose <perm = [1, 2, 0, 3]> (places)
    are_ones = Transpose <perm = [1, 2, 0, 3]> (found)
    coordinates = NonZero (are_ones)
    rows = Transpose <perm = [1, 0]> (coordinates)
    numbers = GatherND (in_order, rows)
    batch_and_class = Slice (rows, at0, at2, at1)
    box = Unsqueeze (numbers, at1)
    y = Concat <axis = 1> (batch_and_class, box)
}
"""
"""NonMaxSuppression: in each round, the best of the boxes that are left of every batch and class is chosen, and those that
overlap it too much go. Rows of what is chosen come in the order of batches, classes and rounds."""

_CORNERS: Final = "ya = Identity (c0) xa = Identity (c1) yb = Identity (c2) xb = Identity (c3)"
_CENTERS: Final = """
    rx = Mul (c2, half) ry = Mul (c3, half)
    xa = Sub (c0, rx) xb = Add (c0, rx) ya = Sub (c1, ry) yb = Add (c1, ry)
"""


class Expansion(NamedTuple):
    """The graph that stands for a node.

    Attributes:
        nodes: The nodes in order.
        constants: The constants that they read, by name.
        types: ONNX's number of the element type by value that they make, as far as it is known.
    """

    nodes: tuple[Node, ...]
    constants: Mapping[str, Array]
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
    if (node.domain, node.op_type) != ("", "NonMaxSuppression") or node.version not in (10, 11):
        return None if _is_itself(node) else _by_definition(node, types, taken)
    inputs = [*node.inputs, *[""] * (5 - len(node.inputs))]
    text = _SUPPRESSION.replace("CORNERS", _CENTERS if node.attributes.get("center_point_box", 0) else _CORNERS)
    text = text.replace("MOST", "most" if inputs[2] else "none").replace("OVERLAP", "overlap" if inputs[3] else "zero")
    graph = onnx.parser.parse_graph(text.replace("LEAST", "least" if inputs[4] else "low"))
    names = {item.name: name for item, name in zip(graph.input, inputs, strict=True)}
    names.update((item.name, name) for item, name in zip(graph.output, node.outputs, strict=True))
    return _in_place(node, graph, names, _OPSETS, types, taken)


def _is_itself(node: Node) -> bool:
    """Whether something runs the node as it is."""
    rows = (find_row(node), find_counting(node), find_driven(node))
    return any(row is not None for row in rows) or may_run_on_host(node)


def _by_definition(node: Node, types: Mapping[str, int], taken: set[str]) -> Expansion | None:
    """The nodes of the function by which onnx defines an operator, if it does."""
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
    """A graph's nodes and constants under names of the model; ``names`` are those of its inputs and outputs that differ."""
    outside = {*names, *node.inputs, *node.outputs}
    made = [*(tensor.name for tensor in graph.initializer), *(name for item in graph.node for name in item.output)]
    names |= {name: unused(f"{node.outputs[0]}/{name}", taken) for name in made if name and name not in outside}
    rename(graph, names)
    codes = {name: types[name] for name in node.inputs if name in types}
    codes |= {item.name: item.data_type for item in graph.initializer}
    infer_types(graph.node, opsets, codes)
    nodes = (replace(read_node(item, opsets), whole=node.whole or node) for item in graph.node)
    return Expansion(tuple(nodes), {item.name: read_initializer(item) for item in graph.initializer}, codes)
