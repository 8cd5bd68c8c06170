"""What ran where: ``dmlvk.torch.report()``."""

from __future__ import annotations

import weakref
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from torch._dynamo.utils import counters

from dmlvk.engine.trace import Label
from dmlvk.torch.calls import DeviceGraph

_graphs: weakref.WeakSet[DeviceGraph] = weakref.WeakSet()
_order: list[weakref.ref[DeviceGraph]] = []


def note(graph: DeviceGraph) -> None:
    """Has reports name a graph as long as it lives."""
    if graph not in _graphs:
        _graphs.add(graph)
        _order.append(weakref.ref(graph))


@dataclass(frozen=True)
class GraphReport:
    """One graph.

    Attributes:
        kind: What it is for: inference, forward, backward.
        runs: How often it has run.
        dispatches: Launches of kernels in its last run.
        device_nodes: What became operators on the device.
        host_nodes: What the host computed, each with why: arithmetic with sizes, and operators that PyTorch ran.
        removed_nodes: What needed no work, each with why.
    """

    kind: str
    runs: int
    dispatches: int
    device_nodes: tuple[Label, ...]
    host_nodes: tuple[Label, ...]
    removed_nodes: tuple[Label, ...]


@dataclass(frozen=True)
class Report:
    """All graphs that are alive.

    Attributes:
        graphs: The graphs, in the order in which they were compiled.
        fallbacks: How often PyTorch has run each operator that has no converter.
        graph_breaks: How often PyTorch's compiler went on in a new graph, by the first line of its reason.
    """

    graphs: tuple[GraphReport, ...]
    fallbacks: Mapping[str, int]
    graph_breaks: Mapping[str, int]

    def __str__(self) -> str:
        lines = []
        for graph in self.graphs:
            counts = f"{len(graph.device_nodes)} nodes on the device, {len(graph.host_nodes)} on the host"
            lines.append(f"{graph.kind}: {graph.runs} runs, {graph.dispatches} dispatches in the last; {counts}")
        lines += [f"PyTorch ran {name} {count} times" for name, count in self.fallbacks.items()]
        lines += [f"graph break, {count} times: {reason}" for reason, count in self.graph_breaks.items()]
        return "\n".join(lines) or "no graph has been compiled"


FALLBACKS: dict[str, int] = {}
"""How often PyTorch has run each operator that has no converter."""


def report() -> Report:
    """What the graphs that are alive have done."""
    graphs = []
    for graph in filter(None, (reference() for reference in _order)):
        account = graph.account
        graphs.append(
            GraphReport(
                graph.kind,
                graph.runs,
                account.dispatches,
                account.device_labels,
                account.host_labels,
                account.removed_labels,
            )
        )
    breaks: Counter[str] = Counter()
    for reason, count in counters["graph_break"].items():
        breaks[reason.partition("\n")[0]] += count
    return Report(tuple(graphs), dict(FALLBACKS), breaks)
