"""The report of a session: the nodes that the device ran, those that the host ran, and the memory and time they took."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final
from xml.etree.ElementTree import Element

from dmlvk.engine.report import RunReport
from dmlvk.engine.report_html import NodeRow, rows_of
from dmlvk.engine.trace import Label
from dmlvk.html.elements import element, number_cell, shortened, table
from dmlvk.html.words import size

IN_ONNX_RUNTIME: Final = "in ONNX Runtime"
"""What the reason of a node begins with that ONNX Runtime ran."""


@dataclass(frozen=True, kw_only=True)
class SessionReport(RunReport):
    """A session's account of itself; the figures of nodes and dispatches are those of the last run, or of the plan that was
    made before there is one.

    Attributes:
        model: The file's name; of a model that comes from none, that of its graph.
        input_shapes: The shapes of the inputs, by name; empty before there is a run or a plan.
        gpu_nodes: Nodes that ran on the device, some with why: what the host read for them, or constants that were computed
            once, when the session was made, and take nothing of a run.
        host_nodes: Nodes that ran on the host, each with why: constants folded at load, shape arithmetic, control flow
            and sequences around the device's graphs, or what ONNX Runtime ran, with the bytes that it moved.
        removed_nodes: Nodes that needed no work, each with why: views, and what nothing reads.
        host_reads: Times that the host waited for computed values, of which it reads many at once, to go on with the run.
    """

    made_by = "InferenceSession.profile"

    model: str
    input_shapes: dict[str, tuple[int, ...]]
    gpu_nodes: tuple[Label, ...]
    host_nodes: tuple[Label, ...]
    removed_nodes: tuple[Label, ...]
    host_reads: int

    def to_dict(self) -> dict[str, Any]:
        """The fields as plain values, ready for JSON."""
        return (
            dataclasses.asdict(self)
            | {
                name: [record._asdict() for record in getattr(self, name)]
                for name in ("gpu_nodes", "host_nodes", "removed_nodes")
            }
            | {
                "gpu_seconds": self.gpu_seconds,
                "steps": [
                    dataclasses.asdict(step)
                    | {
                        "times": None if step.times is None else [time._asdict() for time in step.times],
                        "seconds": step.seconds,
                        "share_of_copy": self.share_of_copy(step),
                    }
                    for step in self.steps
                ],
            }
        )

    def __str__(self) -> str:
        shapes = ", ".join(f"{name} {list(sizes)}" for name, sizes in self.input_shapes.items()) or "no plan made yet"
        lines = [
            f"device      {self.device}",
            f"inputs      {shapes}",
            f"on the GPU  {_summary(self.gpu_nodes)}; {self.dispatches} dispatches a run",
            f"on the host {_summary(self.host_nodes)}" + (f"; {self.host_reads} reads a run" if self.host_reads else ""),
            f"removed     {_summary(self.removed_nodes)}",
            f"memory      weights {size(self.weights_bytes)}, activations {size(self.activation_bytes)} "
            f"(at one step at most {size(self.largest_live_bytes)}), peak on the device {size(self.peak_device_bytes)}",
            f"plans       {self.plans} in the cache, the newest made in {self.planning_seconds * 1e3:.0f} ms",
        ]
        lines += [
            f"            {node.name} ({node.op_type}) {node.reason}; "
            f"{size(node.from_device)} from the device, {size(node.to_device)} to it"
            for node in self.host_nodes
            if node.reason.startswith(IN_ONNX_RUNTIME)
        ]
        return "\n".join(lines)

    # -- as HTML

    @property
    def _name(self) -> str:
        return self.model

    def _facts(self) -> list[tuple[str, str]]:
        shapes = ", ".join(f"{name} {list(sizes)}" for name, sizes in self.input_shapes.items())
        return [*super()._facts(), ("inputs", shapes)]

    def _totals(self) -> Iterable[tuple[str, str]]:
        yield from super()._totals()
        if self.host_reads:
            yield f"{self.host_reads:,}", "times the host waited for values to go on"

    def _rows(self) -> list[NodeRow]:
        rows = rows_of(self.steps)
        homes = {name: step.node for step in self.steps for name in step.merged}
        found = []
        for place, labels in self._places():
            for label in labels:
                became = f"{place}: {label.reason}" if label.reason else place
                row = rows.pop(label.name, None) or NodeRow(label.name, label.op_type, became)
                row.home = "" if row.steps else homes.get(label.name, "")
                found.append(row)
        return found + list(rows.values())  # what is left are parts of functions

    def _places(self) -> Iterable[tuple[str, tuple[Label, ...]]]:
        return (("on the device", self.gpu_nodes), ("on the host", self.host_nodes), ("no work", self.removed_nodes))

    def _further(self) -> Iterable[Element]:
        groups: dict[tuple[str, str], list[Label]] = {}
        for place, labels in self._places():
            for label in labels:
                groups.setdefault((place, label.reason), []).append(label)
        lines = []
        for (place, reason), group in groups.items():
            kinds = ", ".join(f"{count} {kind}" for kind, count in Counter(label.op_type for label in group).most_common())
            moved = sum(label.from_device + label.to_device for label in group)
            carried = f"; {size(moved)} from and to the device" if moved else ""
            lines.append((place, shortened(reason), number_cell(f"{len(group):,}"), shortened(kinds) + carried))
        if lines:
            places = table(("where", "why", "\tnodes", "operators"), lines)
            yield element("section", element("h2", "Where the nodes ran"), element("div", places, class_="scroll short"))


def _summary(records: Sequence[Label]) -> str:
    """ "3 nodes (shape arithmetic: 2 Shape, 1 Gather)"."""
    reasons: dict[str, Counter[str]] = {}
    for record in records:
        reasons.setdefault(record.reason, Counter())[record.op_type] += 1
    parts = []
    for reason, counts in reasons.items():
        listed = ", ".join(f"{count} {op_type}" for op_type, count in counts.most_common())
        parts.append(f"{reason}: {listed}" if reason else listed)
    noun = "node" if len(records) == 1 else "nodes"
    return f"{len(records)} {noun}" + (f" ({'; '.join(parts)})" if parts else "")
