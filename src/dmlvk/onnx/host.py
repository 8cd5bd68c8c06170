"""What runs on the host, and only this: nodes whose inputs are all known before the run.

That is constant folding when the model is loaded and shape arithmetic when a plan for certain shapes is made. Each node
goes through ONNX's own reference implementation; no node that reads computed data ever comes here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
import onnx.helper
import onnx.reference
from onnx.reference.op_run import RuntimeContextError

from dmlvk.errors import ModelError, UnsupportedNodeError
from dmlvk.onnx.model import Array, Node

SHAPE_OPERATORS: Final = frozenset({"Shape", "Size"})
"""Operators of ONNX's own domain that need their input's shape only."""

_RANDOM: Final = frozenset(
    {"RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike", "Multinomial", "Bernoulli"}
)


def may_run_on_host(node: Node) -> bool:
    """Whether the node's outputs follow from its inputs alone, so that they can be computed once and for all."""
    return not node.has_subgraph and not (node.domain == "" and node.op_type in _RANDOM)


def shape_of(node: Node, sizes: Sequence[int]) -> Array:
    """The output of a Shape or Size node for an input of these sizes."""
    if node.op_type == "Size":
        return np.array(np.prod(sizes, dtype=np.int64))
    start, end = node.attributes.get("start", 0), node.attributes.get("end", len(sizes))
    return np.array(tuple(sizes)[slice(start, end)], np.int64)


class HostEvaluator:
    """Evaluates single nodes with ``onnx.reference``; the result types are the reference's.

    Args:
        opsets: The model's, domain -> version.
    """

    def __init__(self, opsets: Mapping[str, int]) -> None:
        self._opsets = [onnx.helper.make_opsetid(domain, version) for domain, version in opsets.items()]
        self._evaluators: dict[Node, onnx.reference.ReferenceEvaluator] = {}

    def evaluate(self, node: Node, inputs: Sequence[Array | None]) -> list[Array]:
        """The node's outputs.

        Raises:
            UnsupportedNodeError: the reference does not implement the operator, or the result is no tensor.
            ModelError: the node's inputs do not fit it.
        """
        feeds = {name: array for name, array in zip(node.inputs, inputs, strict=True) if array is not None}
        try:
            if node not in self._evaluators:
                self._evaluators[node] = onnx.reference.ReferenceEvaluator(self._single(node))
            results: Any = self._evaluators[node].run(None, feeds)
        except (NotImplementedError, RuntimeContextError, onnx.defs.SchemaError) as error:
            reason = f"its inputs are known before the run, but onnx.reference cannot evaluate it: {error}"
            raise UnsupportedNodeError(node.name, node.op_type, node.domain, node.version, reason) from error
        except Exception as error:  # whatever the reference implementation trips over in a broken node
            raise ModelError(f"node {node.name!r} ({node.op_type}) cannot be evaluated: {error}") from error
        if any(isinstance(result, (list, dict)) or result is None for result in results):
            reason = "it makes a sequence or map of constants, and only tensors are supported"
            raise UnsupportedNodeError(node.name, node.op_type, node.domain, node.version, reason)
        return [np.asarray(result) for result in results]

    def _single(self, node: Node) -> onnx.ModelProto:
        names = dict.fromkeys(name for name in node.inputs if name)
        graph = onnx.helper.make_graph(
            [node.proto],
            node.name,
            [onnx.helper.make_empty_tensor_value_info(name) for name in names],
            [onnx.helper.make_empty_tensor_value_info(name) for name in node.outputs if name],
        )
        return onnx.helper.make_model(graph, opset_imports=self._opsets)
