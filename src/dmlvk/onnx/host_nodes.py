"""The nodes that run on the host, and only they: all their inputs are known before a plan is made.

That is the folding of constants when the model is loaded and shape arithmetic when a plan for certain shapes is made, both
by the rules of ``shape_arithmetic``. What has no rule there runs on the device. No node that reads computed data ever comes
here, but for what the host has read back to know a shape or the like.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import takewhile, zip_longest
from typing import Final

import numpy as np

from dmlvk.onnx import shape_arithmetic
from dmlvk.onnx.limits import Limits
from dmlvk.onnx.model import Array, Node, constant_of
from dmlvk.spec.errors import ModelError

_SHAPE_OPERATORS: Final = frozenset({"Shape", "Size"})
"""Operators of ONNX's own domain that need their input's shape only."""

_RANDOM: Final = frozenset(
    {"RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike", "Multinomial", "Bernoulli"}
)

_SMALL: Final = 1 << 16
"""Elements of which no two tensors broadcast to too many."""
_GROWING: Final = frozenset({"ConstantOfShape", "Expand", "Gather", "GatherElements", "GatherND", "Range", "Tile"})
"""Operators that may make far more elements than they read, even of few."""


def may_run_on_host(node: Node) -> bool:
    """Whether the host can compute the node's outputs of its inputs alone, whatever they are."""
    return (node.domain, node.op_type) == ("", "Constant") or needs_shape_only(node) or shape_arithmetic.has_rule(node)


def needs_shape_only(node: Node) -> bool:
    """Whether the node's outputs follow from the shape of its input."""
    return node.domain == "" and node.op_type in _SHAPE_OPERATORS


def always_makes_the_same(node: Node) -> bool:
    """Whether the node's outputs follow from its inputs alone, so that they can be computed once and for all."""
    return not node.has_subgraph and not (node.domain == "" and node.op_type in _RANDOM)


def shape_of(node: Node, sizes: Sequence[int]) -> Array:
    """The output of a Shape or Size node for an input of these sizes."""
    if node.op_type == "Size":
        return shape_arithmetic.whole_numbers((math.prod(sizes),)).reshape(())
    start, end = node.attributes.get("start", 0), node.attributes.get("end", len(sizes))
    return shape_arithmetic.whole_numbers(tuple(sizes)[slice(start, end)])


class HostEvaluator:
    """Evaluates single nodes, and keeps account of how much they make of less: a file of a few bytes must not fill the
    memory. No arithmetic with shapes comes near the limit; models whose weights are constants to fill in do, ONNX's light
    VGG-19 with 144 million elements."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._grown: dict[Node, int] = {}

    def evaluate(self, node: Node, inputs: Sequence[Array | None]) -> list[Array] | None:
        """The outputs of a node that may run on the host; None where their types are such that only the device has them.

        Raises:
            UnsupportedNodeError: they are larger than what may be made here.
            NotPlainError: sizes that record are among the inputs, and it can be evaluated of plain numbers only.
            ModelError: the node's inputs do not fit it.
        """
        if node.op_type == "Constant":
            return [constant_of(node)]
        if needs_shape_only(node):
            assert inputs[0] is not None, "ONNX's checker has seen to required inputs"
            return [shape_of(node, inputs[0].shape)]
        if not shape_arithmetic.has_types(node, inputs):
            return None
        present = [array for array in inputs if array is not None]
        may_grow = node.op_type in _GROWING or any(array.size > _SMALL for array in present)
        if may_grow and not any(map(shape_arithmetic.records, present)):
            self._check_size(node, inputs)
        return shape_arithmetic.evaluate(node, inputs)

    def _check_size(self, node: Node, inputs: Sequence[Array | None]) -> None:
        try:
            elements = _made_elements(node, inputs)
        except (ArithmeticError, LookupError, TypeError, ValueError) as error:
            raise ModelError(f"node {node.name!r} ({node.op_type}) does not fit its inputs: {error}") from error
        if elements > sum(array.size for array in dict(zip(node.inputs, inputs, strict=True)).values() if array is not None):
            # Nodes come in the same order for each plan: what this one and those after it made was for another.
            self._grown = dict(takewhile(lambda item: item[0] is not node, self._grown.items()))
            self._limits.check_host_elements(node, elements, sum(self._grown.values()))
            self._grown[node] = elements


def _made_elements(node: Node, inputs: Sequence[Array | None]) -> int:
    """The elements that a node makes, where they may be more than it reads; else those of its inputs' broadcast sizes."""
    arrays = [np.empty(0) if array is None else array for array in inputs]
    sizes = [array.shape for array in arrays]
    numbers = [array.reshape(-1).tolist() if array.size <= 64 and array.dtype.kind in "iuf" else [] for array in arrays]
    match node.op_type:
        case "ConstantOfShape":
            return int(math.prod(numbers[0]))
        case "Expand":
            return int(math.prod(max(pair) for pair in zip_longest(sizes[0][::-1], numbers[1][::-1], fillvalue=1)))
        case "Tile":
            return int(math.prod(sizes[0]) * math.prod(numbers[1]))
        case "Range":
            start, limit, delta = (number for (number,) in numbers)
            return max(0, round((limit - start) / delta))
        case "Concat":
            return sum(map(math.prod, sizes))
        case "Gather":
            axis = node.attributes.get("axis", 0)
            return int(math.prod(sizes[0]) // max(sizes[0][axis], 1) * math.prod(sizes[1]))
        case "GatherElements" | "ScatterElements":
            return math.prod(sizes[1])
        case "GatherND":
            own = node.attributes.get("batch_dims", 0) + sizes[1][-1]
            return math.prod(sizes[1][:-1]) * math.prod(sizes[0][own:])
        case "ScatterND":
            return math.prod(sizes[0])
        case _:  # elementwise operators, and those that make no more than they read
            shapes = [size for size, array in zip(sizes, inputs, strict=True) if array is not None]
            return int(math.prod(max(axes) for axes in zip_longest(*(shape[::-1] for shape in shapes), fillvalue=1)))
