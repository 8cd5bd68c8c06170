"""What a session did with a model: which nodes the GPU ran, which the host, and the memory they took."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from dmlvk.onnx.network import NodeRecord


@dataclass(frozen=True)
class SessionReport:
    """A session's account of itself; the figures of nodes, dispatches and arena are those of the newest plan.

    Attributes:
        device: Name of the Vulkan device.
        input_shapes: What the newest plan is for; empty before there is one.
        gpu_nodes: Nodes that ran on the device.
        host_nodes: Nodes that ran on the host, each with why: constants folded at load, or shape arithmetic.
        removed_nodes: Nodes that needed no work, each with why: views, and what nothing reads.
        dispatches: Kernel launches of one run.
        weights_bytes: Device memory of constants, held once for all plans.
        activation_bytes: Length of the arena in which all plans keep their inputs, outputs, intermediate tensors and
            scratch.
        peak_device_bytes: The most device memory that was ever in use on the device, whatever used it.
        plans: Plans in the cache.
        planning_seconds: What the newest plan took to make: trace, pipelines, memory and recording.
    """

    device: str
    input_shapes: dict[str, tuple[int, ...]]
    gpu_nodes: tuple[NodeRecord, ...]
    host_nodes: tuple[NodeRecord, ...]
    removed_nodes: tuple[NodeRecord, ...]
    dispatches: int
    weights_bytes: int
    activation_bytes: int
    peak_device_bytes: int
    plans: int
    planning_seconds: float

    def to_dict(self) -> dict[str, Any]:
        """The fields as plain values, ready for JSON."""
        return dataclasses.asdict(self) | {
            name: [record._asdict() for record in getattr(self, name)]
            for name in ("gpu_nodes", "host_nodes", "removed_nodes")
        }

    def __str__(self) -> str:
        shapes = ", ".join(f"{name} {list(sizes)}" for name, sizes in self.input_shapes.items()) or "no plan made yet"
        lines = [
            f"device      {self.device}",
            f"inputs      {shapes}",
            f"on the GPU  {_summary(self.gpu_nodes)}; {self.dispatches} dispatches a run",
            f"on the host {_summary(self.host_nodes)}",
            f"removed     {_summary(self.removed_nodes)}",
            f"memory      weights {_size(self.weights_bytes)}, activations {_size(self.activation_bytes)}, "
            f"peak on the device {_size(self.peak_device_bytes)}",
            f"plans       {self.plans} in the cache, the newest made in {self.planning_seconds * 1e3:.0f} ms",
        ]
        return "\n".join(lines)


def _summary(records: Sequence[NodeRecord]) -> str:
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


def _size(nbytes: int) -> str:
    if nbytes < 1024:
        return f"{nbytes} B"
    return f"{nbytes / 2**10:.1f} KiB" if nbytes < 2**20 else f"{nbytes / 2**20:.1f} MiB"
