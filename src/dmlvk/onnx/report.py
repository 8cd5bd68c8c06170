"""What a session did with a model: which nodes the GPU ran, which the host, and the memory and time they took."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from dmlvk.engine.profile import StepReport, chrome_trace
from dmlvk.onnx.network import NodeRecord
from dmlvk.spec.errors import StateError


@dataclass(frozen=True)
class SessionReport:
    """A session's account of itself; the figures of nodes and dispatches are those of the last run, or of the plan that was
    made before there is one.

    Attributes:
        device: Name of the Vulkan device.
        input_shapes: What was fed; empty before there is a run or a plan.
        gpu_nodes: Nodes that ran on the device, some with what the host read for them.
        host_nodes: Nodes that ran on the host, each with why: constants folded at load, shape arithmetic, or control flow
            and sequences around the device's graphs.
        removed_nodes: Nodes that needed no work, each with why: views, and what nothing reads.
        dispatches: Kernel launches of the run, those of every round of a loop.
        weights_bytes: Device memory of constants, held once for all plans.
        activation_bytes: Length of the arena in which all plans keep their inputs, outputs, intermediate tensors and
            scratch.
        largest_live_bytes: The most bytes of inputs, outputs, intermediate tensors and scratch that any step of the newest
            run's plans needs at the same time: no arena could be smaller.
        peak_device_bytes: The most device memory that was ever in use on the device, whatever used it. Loading takes no more
            than the weights in the end, unless a single one that is repacked is larger than all that comes after it.
        staging_bytes: Host memory for what goes to the device and comes back: a fixed size for each device.
        plans: Plans in the cache.
        planning_seconds: What the run's plans took to make: trace, pipelines, memory and recording.
        steps: The operators of the run's plans in order, those of each plan once; in a profile those of every round, with
            times.
        copy_bandwidth: Bytes a second that the device reads and writes when it copies a large tensor, measured at its first
            profile; None without a profile.
    """

    device: str
    input_shapes: dict[str, tuple[int, ...]]
    gpu_nodes: tuple[NodeRecord, ...]
    host_nodes: tuple[NodeRecord, ...]
    removed_nodes: tuple[NodeRecord, ...]
    dispatches: int
    weights_bytes: int
    activation_bytes: int
    largest_live_bytes: int
    peak_device_bytes: int
    staging_bytes: int
    plans: int
    planning_seconds: float
    steps: tuple[StepReport, ...]
    copy_bandwidth: float | None = None

    def share_of_copy(self, step: StepReport) -> float | None:
        """How fast a step moves its bytes, as a share of a copy's speed: what is left to gain where memory is its limit.
        More than 1 where its tensors lie in caches. None where arithmetic is its limit, and without a profile."""
        if not (step.seconds and self.copy_bandwidth and step.is_memory_bound):
            return None
        return step.bytes / step.seconds / self.copy_bandwidth

    @property
    def gpu_seconds(self) -> float | None:
        """From the start of a profiled run's first kernel to the end of its last; None without a profile."""
        if any(step.times is None for step in self.steps):
            return None
        return max((time.end for step in self.steps for time in step.times or ()), default=0.0)

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

    def table(self) -> str:
        """The operators of a profile, those that took longest first: time, share of the time of all, what they moved and
        computed a second, the former as a share of a copy's speed where memory is the limit, and where they come from.
        Shares of the time are of the sum of all times: kernels may overlap.

        Raises:
            StateError: the report is no profile's.
        """
        self._require_times()
        whole = sum(step.seconds or 0.0 for step in self.steps)
        lines = [f"{'time us':>10} {'share':>6} {'GB/s':>7} {'of copy':>7} {'GFLOP/s':>8}  operator: kernels, node"]
        for step in sorted(self.steps, key=lambda step: -(step.seconds or 0.0)):
            seconds = step.seconds or 0.0
            share = f"{seconds / whole:.1%}" if whole else ""
            moved = f"{step.bytes / seconds / 1e9:.2f}" if seconds else ""
            computed = f"{step.flops / seconds / 1e9:.2f}" if seconds and step.flops is not None else ""
            of_copy = self.share_of_copy(step)
            copied = "" if of_copy is None else f"{of_copy:.0%}"
            kernels = " ".join(step.kernels) or "none"
            lines.append(
                f"{seconds * 1e6:10.1f} {share:>6} {moved:>7} {copied:>7} {computed:>8}  {step.operator}: {kernels}, "
                f"{step.op_type} {step.node}"
            )
        return "\n".join(lines)

    def chrome_trace(self) -> str:
        """A profile as a Chrome trace, JSON that Perfetto opens.

        Raises:
            StateError: the report is no profile's.
        """
        self._require_times()
        return chrome_trace(self.device, self.steps)

    def _require_times(self) -> None:
        if self.gpu_seconds is None:
            raise StateError("the report has no times: InferenceSession.profile makes one that has")

    def __str__(self) -> str:
        shapes = ", ".join(f"{name} {list(sizes)}" for name, sizes in self.input_shapes.items()) or "no plan made yet"
        lines = [
            f"device      {self.device}",
            f"inputs      {shapes}",
            f"on the GPU  {_summary(self.gpu_nodes)}; {self.dispatches} dispatches a run",
            f"on the host {_summary(self.host_nodes)}",
            f"removed     {_summary(self.removed_nodes)}",
            f"memory      weights {_size(self.weights_bytes)}, activations {_size(self.activation_bytes)} "
            f"(at one step at most {_size(self.largest_live_bytes)}), peak on the device {_size(self.peak_device_bytes)}",
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
