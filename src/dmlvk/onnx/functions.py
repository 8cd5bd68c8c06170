"""Operators that stand for graphs of others, put in their place when a model is loaded."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final, NamedTuple

import onnx
import onnx.parser

from dmlvk.onnx.control import rename, unused
from dmlvk.onnx.model import Array, Node, read_initializer, read_node

OPSETS: Final = {"": 17}
"""The opsets of the graphs that stand for operators."""

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
    """

    nodes: tuple[Node, ...]
    constants: Mapping[str, Array]


def expanded(node: Node, taken: set[str]) -> Expansion | None:
    """The nodes that stand for a node; None for one that stands for itself.

    Args:
        node: Any node.
        taken: Names of all values so far; those that the nodes make are added.
    """
    if (node.domain, node.op_type) != ("", "NonMaxSuppression") or node.version not in (10, 11):
        return None
    inputs = [*node.inputs, *[""] * (5 - len(node.inputs))]
    text = _SUPPRESSION.replace("CORNERS", _CENTERS if node.attributes.get("center_point_box", 0) else _CORNERS)
    text = text.replace("MOST", "most" if inputs[2] else "none").replace("OVERLAP", "overlap" if inputs[3] else "zero")
    return _in_place(node, text.replace("LEAST", "least" if inputs[4] else "low"), inputs, taken)


def _in_place(node: Node, text: str, inputs: list[str], taken: set[str]) -> Expansion:
    """A graph's nodes and constants under names of the model."""
    graph = onnx.parser.parse_graph(text)
    names = {item.name: name for item, name in zip(graph.input, inputs, strict=True)}
    names.update((item.name, name) for item, name in zip(graph.output, node.outputs, strict=True))
    made = [*(tensor.name for tensor in graph.initializer), *(name for item in graph.node for name in item.output)]
    names.update((name, unused(f"{node.outputs[0]}/{name}", taken)) for name in made if name not in names)
    rename(graph, names)
    nodes = (replace(read_node(item, OPSETS), whole=node) for item in graph.node)
    return Expansion(tuple(nodes), {item.name: read_initializer(item) for item in graph.initializer})
