"""The nodes that run on the host, and only they: all their inputs are known before a plan is made.

That is constant folding when the model is loaded and shape arithmetic when a plan for certain shapes is made. What is no
arithmetic of shapes goes through ONNX's own reference implementation; no node that reads computed data ever comes here, but
for what the host has read back to know a shape or the like.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import takewhile, zip_longest
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import onnx.helper

from dmlvk.onnx import shape_arithmetic
from dmlvk.onnx.model import Array, Node, plain_constant
from dmlvk.onnx.node_facts import unsupported_node
from dmlvk.spec.errors import ModelError

if TYPE_CHECKING:
    import onnx.reference

SHAPE_OPERATORS: Final = frozenset({"Shape", "Size"})
"""Operators of ONNX's own domain that need their input's shape only."""

_RANDOM: Final = frozenset(
    {"RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike", "Multinomial", "Bernoulli"}
)

_ON_DEVICE: Final = frozenset(
    {"AveragePool", "Conv", "ConvInteger", "ConvTranspose", "DFT", "DeformConv", "Einsum", "GRU", "GridSample", "LSTM"}
    | {"LpPool", "MaxPool", "MaxRoiPool", "MaxUnpool", "QLinearConv", "RNN", "Resize", "RoiAlign", "Upsample"}
)
"""Operators that go to the device, constants or not: the reference implementation runs them element by element in Python, or
what they make may be far larger than what they read."""

_LARGEST: Final = 1 << 28
"""Elements that nodes may make here of fewer, all in all: a file of a few bytes must not fill the memory. No arithmetic with
shapes comes near; models whose weights are constants to fill in do, ONNX's light VGG-19 with 144 million."""


def may_run_on_host(node: Node) -> bool:
    """Whether the node's outputs follow from its inputs alone, so that they can be computed once and for all; and not with
    a broadcast along an axis, as before opset 7, of which the reference reads only numpy's kind."""
    along_axis = {"axis", "broadcast"} <= node.attributes.keys()
    return not node.has_subgraph and not along_axis and not (node.domain == "" and node.op_type in _RANDOM | _ON_DEVICE)


def shape_of(node: Node, sizes: Sequence[int]) -> Array:
    """The output of a Shape or Size node for an input of these sizes."""
    if node.op_type == "Size":
        return shape_arithmetic.whole_numbers((math.prod(sizes),)).reshape(())
    start, end = node.attributes.get("start", 0), node.attributes.get("end", len(sizes))
    return shape_arithmetic.whole_numbers(tuple(sizes)[slice(start, end)])


class HostEvaluator:
    """Evaluates single nodes with ``onnx.reference``; the result types are the reference's.

    Args:
        opsets: The model's, domain -> version.
    """

    def __init__(self, opsets: Mapping[str, int]) -> None:
        self._opsets = [onnx.helper.make_opsetid(domain, version) for domain, version in opsets.items()]
        self._evaluators: dict[Node, onnx.reference.ReferenceEvaluator] = {}
        self._grown: dict[Node, int] = {}

    def evaluate(self, node: Node, inputs: Sequence[Array | None]) -> list[Array]:
        """The node's outputs.

        Raises:
            UnsupportedNodeError: the reference does not implement the operator, the result is no tensor, or it is larger
                than what may be made here.
            NotPlainError: sizes that record are among the inputs, and it can be evaluated of plain numbers only.
            ModelError: the node's inputs do not fit it.
        """
        constant = plain_constant(node)
        if constant is not None:
            return [constant]
        made = shape_arithmetic.evaluate(node, inputs)
        if made is not None:
            return [made]
        if any(array is not None and shape_arithmetic.records(array) for array in inputs):
            raise shape_arithmetic.NotPlainError
        # Imported late: most models need it for nothing, and every session would wait for it.
        import onnx.reference
        from onnx.reference.op_run import RuntimeContextError

        feeds = {name: array for name, array in zip(node.inputs, inputs, strict=True) if array is not None}
        self._check_size(node, inputs)
        try:
            if node not in self._evaluators:
                self._evaluators[node] = onnx.reference.ReferenceEvaluator(self._single(node))
            results: Any = self._evaluators[node].run(None, feeds)
        except (NotImplementedError, RuntimeContextError, onnx.defs.SchemaError) as error:
            reason = f"its inputs are known before the run, but onnx.reference cannot evaluate it: {error}"
            raise unsupported_node(node, reason) from error
        except Exception as error:  # whatever the reference implementation trips over in a broken node
            raise ModelError(f"node {node.name!r} ({node.op_type}) cannot be evaluated: {error}") from error
        if any(isinstance(result, (list, dict)) or result is None for result in results):
            reason = "it makes a sequence or map of constants, and only tensors are supported"
            raise unsupported_node(node, reason)
        return [np.asarray(result) for result in results]

    def _check_size(self, node: Node, inputs: Sequence[Array | None]) -> None:
        try:
            elements = _made_elements(node, inputs)
        except (ArithmeticError, LookupError, TypeError, ValueError) as error:
            raise ModelError(f"node {node.name!r} ({node.op_type}) does not fit its inputs: {error}") from error
        if elements > sum(array.size for array in dict(zip(node.inputs, inputs, strict=True)).values() if array is not None):
            # Nodes come in the same order for each plan: what this one and those after it made was for another.
            self._grown = dict(takewhile(lambda item: item[0] is not node, self._grown.items()))
            if elements + sum(self._grown.values()) > _LARGEST:
                reason = f"it makes {elements} elements before the run; all such nodes together may make {_LARGEST}"
                raise unsupported_node(node, reason)
            self._grown[node] = elements

    def _single(self, node: Node) -> onnx.ModelProto:
        names = dict.fromkeys(name for name in node.inputs if name)
        graph = onnx.helper.make_graph(
            [node.proto],
            node.name,
            [onnx.helper.make_empty_tensor_value_info(name) for name in names],
            [onnx.helper.make_empty_tensor_value_info(name) for name in node.outputs if name],
        )
        return onnx.helper.make_model(graph, opset_imports=self._opsets)


def _made_elements(node: Node, inputs: Sequence[Array | None]) -> int:
    """The elements that a node makes, where they may be more than it reads; else those of its inputs' broadcast sizes."""
    arrays = [np.empty(0) if array is None else array for array in inputs]
    sizes = [array.shape for array in arrays]
    numbers = [array.reshape(-1).tolist() if array.size <= 64 and array.dtype.kind in "iuf" else [] for array in arrays]
    match node.op_type:
        case "ConstantOfShape" | "HannWindow" | "HammingWindow" | "BlackmanWindow":
            return int(math.prod(numbers[0]))
        case "MelWeightMatrix":
            return int(math.prod(numbers[0]) * math.prod(numbers[1]))
        case "AffineGrid" | "CenterCropPad":
            return int(math.prod(numbers[1]) * math.prod(sizes[0]))
        case "Expand":
            return int(math.prod(max(pair) for pair in zip_longest(sizes[0][::-1], numbers[1][::-1], fillvalue=1)))
        case "Tile":
            return int(math.prod(sizes[0]) * math.prod(numbers[1]))
        case "Range":
            start, limit, delta = (number for (number,) in numbers)
            return max(0, round((limit - start) / delta))
        case "OneHot":
            return math.prod(sizes[0]) * int(max(numbers[1]))
        case "Concat":
            return sum(map(math.prod, sizes))
        case "Pad":
            pads = numbers[1] if len(numbers) > 1 else node.attributes.get("pads", ())
            return int(math.prod(size + 2 * max(pads, default=0) for size in sizes[0]))
        case "Gather":
            axis = node.attributes.get("axis", 0)
            return int(math.prod(sizes[0]) // max(sizes[0][axis], 1) * math.prod(sizes[1]))
        case "MatMul" if all(sizes):
            return int(math.prod(sizes[0]) // max(sizes[0][-1], 1) * math.prod(sizes[1][-1:]))
        case _:  # elementwise operators, and those that make no more than they read
            shapes = [size for size, array in zip(sizes, inputs, strict=True) if array is not None]
            return int(math.prod(max(axes) for axes in zip_longest(*(shape[::-1] for shape in shapes), fillvalue=1)))
