"""Outputs of a graph that share memory: PyTorch's compiler leaves it to its backends to give one tensor and views of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import fx


def _is_view(node: fx.Node) -> bool:
    """Whether a node gives a view of its first argument."""
    if node.op != "call_function" or not isinstance(node.target, torch._ops.OpOverload):
        return False
    schema = node.target._schema
    return (
        len(schema.returns) == 1
        and schema.returns[0].alias_info is not None
        and str(schema.returns[0].type) == "Tensor"
        and not schema.is_mutable
        and isinstance(node.args[0], fx.Node)
    )


def _way(node: fx.Node) -> list[fx.Node]:
    """The views that lead to a node, from the one of the tensor that is no view, which comes first."""
    way = [node]
    while _is_view(way[0]):
        (before, *_) = way[0].args
        assert isinstance(before, fx.Node), "a view is one of a node"
        way.insert(0, before)
    return way


class OutputViews:
    """The outputs of a graph that are views of one tensor which it makes, or the same tensor again. The graph is changed: it
    returns that tensor, and nothing for them.

    Args:
        module: The graph.

    Attributes:
        count: How many outputs the graph had.
    """

    def __init__(self, module: fx.GraphModule) -> None:
        (output,) = (node for node in module.graph.nodes if node.op == "output")
        returned: list[Any] = list(output.args[0]) if isinstance(output.args[0], list | tuple) else [output.args[0]]
        self.count = len(returned)
        ways = {index: _way(node) for index, node in enumerate(returned) if isinstance(node, fx.Node)}
        ways = {index: way for index, way in ways.items() if way[0].op == "call_function"}
        shared = {node for node, count in Counter(way[0] for way in ways.values()).items() if count > 1}
        self._ways: dict[int, tuple[int, list[fx.Node]]] = {}
        places: dict[fx.Node, int] = {}
        for index, (base, *views) in ways.items():
            if base not in shared or not isinstance(base.meta.get("val"), torch.Tensor):
                continue
            if not views and base not in places:
                places[base] = index
        for index, (base, *views) in ways.items():
            if base not in shared or places.get(base) == index or not isinstance(base.meta.get("val"), torch.Tensor):
                continue
            if base not in places:
                places[base] = len(returned)
                returned.append(base)
            self._ways[index] = (places[base], views)
            returned[index] = None
        if self._ways:
            output.args = (tuple(returned),)

    def filled(
        self, made: list[Any], number: Callable[[fx.Node, Mapping[fx.Node, Any]], Any], given: Mapping[Any, Any]
    ) -> Any:
        """All outputs, of what the graph has made.

        Args:
            made: What the graph has made, which is changed.
            number: Gives a size that a node computes, for some inputs.
            given: The inputs by their nodes.
        """
        for index, (place, views) in self._ways.items():
            tensor = made[place]
            before = None
            for view in views:
                before = view.args[0]

                def value(node: fx.Node, before: Any = before, tensor: Any = tensor) -> Any:
                    return tensor if node is before else number(node, given)

                target: Any = view.target
                tensor = target(*fx.map_arg(view.args, value), **fx.map_arg(view.kwargs, value))
            made[index] = tensor
        return made[: self.count]
