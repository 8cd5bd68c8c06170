"""Graphs with operators that have no converter, where the user lets PyTorch run these on the host."""

from __future__ import annotations

from typing import Any

import torch
from torch import fx
from torch.fx.passes.split_module import split_module

from dmlvk.runtime.device import ComputeDevice
from dmlvk.torch.calls import DeviceGraph
from dmlvk.torch.facts import WRITES, TensorFacts, device_nodes, facts_of, is_foreign, operator_name
from dmlvk.torch.memory import is_on_device, to_host
from dmlvk.torch.report import FALLBACKS, note


class MixedGraph:
    """A graph in parts that take turns: on the device, and operators without a converter in PyTorch on the host.

    Args:
        device: The device.
        module: The graph, of core operators.
        kind: What the graph is for, as reports name it.
        kept_from: The outputs from which on all stay where they are. None if there are none.

    Attributes:
        device: As given.
    """

    def __init__(self, device: ComputeDevice, module: fx.GraphModule, kind: str, kept_from: int | None) -> None:
        self.device = device
        parts, hosted = _parts(module.graph)
        (returned,) = (node.args[0] for node in module.graph.nodes if node.op == "output")
        facts = [facts_of(node.meta.get("val")) if isinstance(node, fx.Node) else None for node in returned]
        last = len(facts) if kept_from is None else kept_from
        self._brought = [index < last and isinstance(own, TensorFacts) and own.is_on_host for index, own in enumerate(facts)]
        self._whole = split_module(module, module, lambda node: parts.get(node, 0))
        for number in {*parts.values()}:
            name = f"submod_{number}"
            if (own := getattr(self._whole, name, None)) is not None:
                setattr(self._whole, name, _Hosted(own) if number in hosted else _OnDevice(own, device, kind))

    def __call__(self, args: list[Any]) -> list[Any]:
        """The outputs for some inputs; empties the list of these."""
        given = [*args]
        args.clear()
        with torch.no_grad():
            made = self._whole(*given)
        return [_brought(item) if wanted else item for item, wanted in zip(made, self._brought, strict=True)]


def _parts(graph: fx.Graph) -> tuple[dict[fx.Node, int], set[int]]:
    """The part of each node, and the parts that PyTorch runs."""
    parts: dict[fx.Node, int] = {}
    hosted: set[int] = set()
    part = 0
    asked = {*device_nodes(graph)}
    changes = {node for node in graph.nodes if node.op == "call_function" and operator_name(node) == WRITES}
    for node in graph.nodes:
        if node.op != "call_function":
            continue
        if node in asked and is_foreign(node) != (part in hosted):
            hosted.update((part + 1,) * (part not in hosted))
            part += 1
        elif node in changes and part in hosted:  # what is on the device is changed there
            part += 1
        parts[node] = part
    return parts, hosted


def _brought(item: Any) -> Any:
    return to_host(item) if isinstance(item, torch.Tensor) and is_on_device(item) else item


class _OnDevice(torch.nn.Module):  # type: ignore[misc]  # PyTorch's types are not followed
    """A part on the device; what it makes stays there."""

    def __init__(self, module: fx.GraphModule, device: ComputeDevice, kind: str) -> None:
        super().__init__()
        (returned,) = (node.args[0] for node in module.graph.nodes if node.op == "output")
        self._is_alone = isinstance(returned, fx.Node)
        self._graph = DeviceGraph(device, module, kind, 0)
        note(self._graph)

    def forward(self, *args: Any) -> Any:
        made = self._graph([*args])
        return made[0] if self._is_alone else tuple(made)


class _Hosted(torch.nn.Module):  # type: ignore[misc]
    """Operators that PyTorch runs on the host; what they make goes to the device when a part there reads it."""

    def __init__(self, module: fx.GraphModule) -> None:
        super().__init__()
        self._module = module
        self._names = [operator_name(node) for node in device_nodes(module.graph)]

    def forward(self, *args: Any) -> Any:
        for name in self._names:
            FALLBACKS[name] = FALLBACKS.get(name, 0) + 1
        return self._module(*map(_brought, args))
