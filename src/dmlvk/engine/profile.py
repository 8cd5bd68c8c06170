"""Reports of a plan's operators: kernels, bytes, arithmetic and, in a run with timestamps, time on the GPU."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from dmlvk.engine.operator import PreparedOperator
from dmlvk.graph.step import Step
from dmlvk.runtime.recorder import DispatchTiming

_LEAST_INTENSITY: Final = 4
"""Operations a byte below which memory is the limit; an H200 does 12 in float32, a CPU about as many."""


class KernelTime(NamedTuple):
    """The time span of a kernel.

    Attributes:
        kernel: Its name.
        start, end: Seconds from the start of the run's first.
    """

    kernel: str
    start: float
    end: float


@dataclass(frozen=True)
class StepReport:
    """One operator of a plan.

    Attributes:
        node, op_type: The name and operator type, as the door labels them, of the node that asked for it.
        operator: DirectML's operator; of a chain of them, all.
        kernels: The kernels and copies that one run launches for it, or its only run.
        bytes: The bytes of its operands and results, each slot once.
        flops: Multiplications and additions of a matrix product or a convolution, on padding too; None for other
            operators.
        times: The times of its kernels in a profiled run, of those that needed a launch; None without a profile.
        merged: The names of other nodes whose work it does, or some of it.
        runs_once: Whether what it computes is the same in every run, and was computed before the first.
        live_bytes: The bytes of inputs, outputs, intermediate tensors and scratch that are in use while it runs.
    """

    node: str
    op_type: str
    operator: str
    kernels: tuple[str, ...]
    bytes: int
    flops: int | None
    times: tuple[KernelTime, ...] | None = None
    merged: tuple[str, ...] = ()
    runs_once: bool = False
    live_bytes: int = 0

    @property
    def is_memory_bound(self) -> bool:
        """Whether it does so little arithmetic that memory is its limit: less than what any device can do in the time in
        which it moves the bytes."""
        return self.flops is None or self.flops < _LEAST_INTENSITY * self.bytes

    @property
    def seconds(self) -> float | None:
        """Time of its kernels on the device, None without a profile."""
        return None if self.times is None else sum(time.end - time.start for time in self.times)


class RunStep(NamedTuple):
    """A step of a compiled graph.

    Attributes:
        step: The step.
        operator: Its operator.
        live_bytes: The bytes of the arena that are in use while it runs.
    """

    step: Step
    operator: PreparedOperator
    live_bytes: int


def step_report(run: RunStep, timings: Iterable[DispatchTiming] | None = None) -> StepReport:
    """The report of a step.

    Args:
        run: The step.
        timings: The times of its commands, if they were timed.
    """
    step = run.step
    slots = zip((*step.desc.input_slots(), *step.desc.output_slots()), (*step.inputs, *step.outputs), strict=True)
    return StepReport(
        node=step.origin.name,
        op_type=step.origin.op_type,
        operator=step.desc.title,
        kernels=tuple(launch.name for launch in run.operator.plan.dispatches),
        bytes=sum(slot.tensor.total_tensor_size_in_bytes for slot, storage in slots if slot.tensor and storage),
        flops=step.desc.flops(),
        merged=tuple(origin.name for origin in step.merged),
        runs_once=step.runs_once,
        live_bytes=run.live_bytes,
        times=None
        if timings is None
        else tuple(KernelTime(timing.kernel, timing.start * 1e-9, timing.end * 1e-9) for timing in timings),
    )


class _Span(NamedTuple):
    name: str
    start: float
    end: float
    arguments: dict[str, Any]


def chrome_trace(device: str, steps: Sequence[StepReport]) -> str:
    """A profile in Chrome's trace format, as JSON, which Perfetto and chrome://tracing open: one row of nodes and one of
    kernels, and more of each where several ran at the same time.

    Args:
        device: The device's name, for the title of the rows.
        steps: The steps of a profile.
    """
    nodes, kernels = [], []
    for step in steps:
        about = {"node": step.node, "op_type": step.op_type, "operator": step.operator, "bytes": step.bytes}
        if step.flops is not None:
            about["flops"] = step.flops
        times = step.times or ()
        if times:
            first, last = min(time.start for time in times), max(time.end for time in times)
            nodes.append(_Span(f"{step.op_type} {step.node}", first, last, about))
        kernels += [_Span(time.kernel, time.start, time.end, {"node": step.node}) for time in times]
    events: list[dict[str, Any]] = [_named("process_name", 0, device)]
    row = 0
    for title, spans in (("nodes", nodes), ("kernels", kernels)):
        for lane in _lanes(spans):
            events.append(_named("thread_name", row, title))
            events += [
                {
                    "name": span.name,
                    "cat": title,
                    "ph": "X",
                    "ts": round(span.start * 1e6, 3),
                    "dur": round(round(span.end * 1e6, 3) - round(span.start * 1e6, 3), 3),
                    "pid": 0,
                    "tid": row,
                    "args": span.arguments,
                }
                for span in lane
            ]
            row += 1
    return json.dumps({"traceEvents": events, "displayTimeUnit": "ns"}, indent=0)


def _named(what: str, row: int, name: str) -> dict[str, Any]:
    return {"name": what, "ph": "M", "pid": 0, "tid": row, "args": {"name": name}}


def _lanes(spans: Iterable[_Span]) -> list[list[_Span]]:
    """The spans in rows in each of which none overlaps another: a trace's row can only nest them."""
    lanes: list[list[_Span]] = []
    for span in sorted(spans, key=lambda span: span.start):
        lane = next((lane for lane in lanes if lane[-1].end <= span.start), None)
        if lane is None:
            lanes.append([span])
        else:
            lane.append(span)
    return lanes
