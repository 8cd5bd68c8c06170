"""What is known of a node when a model is loaded: its attributes, which inputs and outputs it has, and types.

Sizes and values of inputs are not known then. What is wrong with the rest, a row's ``check`` refuses when the model is
loaded, and never a run.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import numpy as np

from dmlvk.onnx.model import ElementKind, Node, element_type, format_of
from dmlvk.spec.errors import ModelError, UnsupportedNodeError, broken_rule
from dmlvk.spec.formats import Scheme


class NodeFacts:
    """What is known of a node before the sizes of its inputs are.

    Args:
        node: The node.
        kinds: The kinds of elements of its inputs by index, as far as they are known; None for one that no device tensor can
            have.

    Attributes:
        node: The node.
        kinds: As given.
    """

    def __init__(self, node: Node, kinds: Mapping[int, ElementKind | None]) -> None:
        self.node = node
        self.kinds = kinds

    def attribute(self, name: str, default: Any) -> Any:
        """An attribute, or its default."""
        return self.node.attributes.get(name, default)

    def element_type(self, name: str, default: np.dtype[Any] | None = None, *, narrow: bool = False) -> np.dtype[Any]:
        """numpy's type for an attribute that names a type; the default where it is absent or 0. For one with which nothing
        computes, float32 stands, and ``StandIns`` rounds what is made, unless a caller knows ``narrow`` ones itself."""
        code = self.attribute(name, 0)
        if not code and default is not None:
            return default
        found, dtype = element_type(code)
        if dtype is None:
            raise self.unsupported(f"{name} is {found}, which no device tensor can hold")
        kind = format_of(dtype)
        if narrow or kind is None:
            return dtype
        if kind.layout.scheme is Scheme.INTEGER:
            raise self.unsupported(f"{name} is {found}, which can only be converted to and from other types")
        return np.dtype(np.float32)

    def has(self, index: int) -> bool:
        """Whether an optional input is there."""
        return index < len(self.node.inputs) and self.node.inputs[index] != ""

    def wants(self, output: int) -> bool:
        """Whether the model uses an optional output."""
        return output < len(self.node.outputs) and self.node.outputs[output] != ""

    def takes(self, index: int, kinds: Collection[ElementKind], where: str = "") -> None:
        """Refuses the node if an input is known to have another type.

        Args:
            index: The input.
            kinds: What it may have.
            where: What of the node rules out others, such as "mode 'linear' needs".
        """
        if index not in self.kinds or self.kinds[index] in kinds:
            return
        found = self.kinds[index]
        name = "of a type that no device tensor can have" if found is None else found.name
        which = "its first input" if index == 0 else f"input {index}"
        listed = ", ".join(item.name for item in kinds)
        raise self.unsupported(f"{which} is {name}; {where or 'the data types that have kernels are'} {listed}")

    def as_first(self, kinds: Collection[ElementKind]) -> Collection[ElementKind]:
        """The kind of the first input's elements, all of some kinds where it is not known: what must be of the same type."""
        first = self.kinds.get(0)
        return kinds if first is None else (first,)

    def unsupported(self, reason: str) -> UnsupportedNodeError:
        """The exception for what this node asks for and dmlvk cannot do."""
        return unsupported_node(self.node, reason)

    def invalid(self, rule: str, value: object, expected: object = None) -> ModelError:
        """The exception for a node that no implementation could run; see ``invalid_node``."""
        return invalid_node(self.node, rule, value, expected)


def unsupported_node(node: Node, reason: str) -> UnsupportedNodeError:
    """The exception for what a node asks for and dmlvk cannot do."""
    return UnsupportedNodeError(node.name, node.op_type, node.domain, node.version, reason)


def invalid_node(node: Node, rule: str, value: object, expected: object = None) -> ModelError:
    """The exception for a node that breaks a rule of its operator, so that no implementation could run it.

    Args:
        node: The node.
        rule: What must be, such as "mode must be 'DCR' or 'CRD'".
        value: The value that breaks it.
        expected: The value that would not; None where the rule says it all.
    """
    return ModelError(f"node {node.name!r} ({node.op_type}): {broken_rule(rule, value, expected)}")


def invalid_axis(node: Node, axis: int, rank: int) -> ModelError:
    """The exception for an axis that a tensor of ``rank`` dimensions does not have."""
    return invalid_node(node, f"an axis must be from {-rank} to {rank - 1} for {rank} dimensions", axis)
