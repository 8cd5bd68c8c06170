"""A problem's row of the results: run, checked and only then timed, ours and the rivals on the same numbers."""

from __future__ import annotations

import contextlib
import dataclasses
import math
import statistics
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from dmlvk.directml.command import CommandList
from dmlvk.directml.device import Device
from dmlvk.directml.ready_operator import ReadyOperator
from dmlvk.kernels.common.plan import Dispatch, Plan
from dmlvk.kernels.lowering import explain
from dmlvk.kernels.manifest import KERNELS
from dmlvk.runtime.memory import Buffer, BufferBinding
from dmlvk.spec.enums import TensorDataType
from dmlvk.spec.formats import NumberFormat
from dmlvk.spec.schema import Slot
from dmlvk_bench.ceilings import copy_seconds
from dmlvk_bench.check import difference
from dmlvk_bench.problems import twin
from dmlvk_bench.problems.model import Problem
from dmlvk_bench.problems.scale import FULL, QUICK, Scale
from dmlvk_bench.results import Ceilings, ProblemRow, RivalTime
from dmlvk_bench.rivals.base import Array, Prepared, Rival, said
from dmlvk_bench.timing import Pace, Timed, recorded, sample, spread, time_executions

_LARGE: Final = 1 << 30
"""Bytes of which starting and draining a dispatch takes less than 1 %."""
_WRONG: Final = Timed(0.0, 0.0, 0.0, 0, False)
"""The time of a problem with a wrong output, which is not timed."""


class Loaded:
    """A compiled problem with its buffers on a device.

    Attributes:
        problem: The problem.

    Args:
        device: The device that runs it.
        problem: The problem to compile.
        inputs: The memory of each present input slot.
        rule: The rule to use instead of the one that is chosen.

    Raises:
        UnsupportedError: the device cannot run it.
        OutOfDeviceMemoryError: there is no room for it.
    """

    def __init__(self, device: Device, problem: Problem, inputs: Sequence[Array], rule: str = "") -> None:
        self.problem = problem
        self._device = device
        self._inputs = [_buffer(device, slot) for slot in problem.desc.input_slots()]
        for buffer, values in zip((b for b in self._inputs if b is not None), inputs, strict=True):
            buffer.write(values)
        self._operator = ReadyOperator(device, problem.desc, rule, _bindings(self._inputs))
        self._outputs = [_buffer(device, slot) for slot in problem.desc.output_slots()]

    @property
    def plan(self) -> Plan:
        """The plan that runs."""
        return self._operator.compiled.plan

    def record(self, commands: CommandList) -> None:
        """Records one execution."""
        self._operator.record(commands, _bindings(self._inputs), _bindings(self._outputs))

    def run(self) -> float:
        """Seconds of one execution; the first may be longer, because the driver compiles then."""
        return sample(recorded(self._device, self.record)).device

    def outputs(self) -> list[Array]:
        """The bytes of each present output slot."""
        return [buffer.read() for buffer in self._outputs if buffer is not None]

    def time(self, pace: Pace) -> Timed:
        """Times one execution."""
        return time_executions(self._device, self.record, pace)


def _buffer(device: Device, slot: Slot) -> Buffer | None:
    return None if slot.tensor is None else device.create_buffer(slot.tensor.total_tensor_size_in_bytes)


def _bindings(buffers: Sequence[Buffer | None]) -> list[BufferBinding | None]:
    return [None if buffer is None else BufferBinding(buffer) for buffer in buffers]


class CopyCurve:
    """The bandwidth of the copy kernel at any number of bytes, with the cost of starting and draining a dispatch in it.

    Measured where it is asked for, at sizes half an octave apart, each once; between them times lie on a line.

    Args:
        device: The device that copies.
        pace: How long to warm up and to take samples.
        large: GB/s of copies too large for that to count.
    """

    def __init__(self, device: Device, pace: Pace, large: float) -> None:
        # Asked for after something was timed: clocks are up, and only whether they stay so is to be seen.
        self._device, self._pace, self._large = device, dataclasses.replace(pace, warm_up=0.0), large
        self._seconds: dict[int, float] = {}

    def gb_per_s(self, nbytes: int) -> float:
        """Read and written by a copy of so many bytes, both counted."""
        if nbytes >= _LARGE:
            return self._large
        step = max(0, math.floor(2 * math.log2(max(nbytes, 1) / 64)))
        low, high = (round(64 * 2 ** (at / 2)) // 8 * 8 for at in (step, step + 1))
        part = min(max((nbytes - low) / (high - low), 0.0), 1.0)
        seconds = self._time(low) * (1 - part) + (self._time(high) * part if part else 0.0)
        return nbytes / seconds * 1e-9

    def _time(self, nbytes: int) -> float:
        if nbytes not in self._seconds:
            self._seconds[nbytes] = copy_seconds(self._device, nbytes, self._pace)
        return self._seconds[nbytes]


class Bench:
    """Measures the problems of a run.

    Args:
        device: The device to measure.
        scale: The scale of the problems.
        pace: How long to warm up and to take samples.
        ceilings: The limits of the device.
        rivals: The rivals by name.
    """

    def __init__(self, device: Device, scale: Scale, pace: Pace, ceilings: Ceilings, rivals: Mapping[str, Rival]) -> None:
        self._device, self._scale, self._pace, self._ceilings, self._rivals = device, scale, pace, ceilings, rivals
        self._copies = CopyCurve(device, pace, ceilings.copy_gb_per_s)

    def measure(self, problem: Problem) -> ProblemRow:
        """The problem's row. What is wrong is not timed, and nobody beside it.

        Raises:
            UnsupportedError: the device cannot run it.
            OutOfDeviceMemoryError: there is no room for it.
        """
        inputs = problem.inputs()
        ours = Loaded(self._device, problem, inputs)
        ours.run()
        outputs = ours.outputs()
        prepared: dict[str, Prepared] = {}
        apart: dict[str, tuple[float, float]] = {}
        rivals: dict[str, RivalTime] = {}
        with contextlib.ExitStack() as stack:
            for name, rival in self._rivals.items():
                with _on_record(rival, problem):
                    if (ready := rival.prepare(problem, inputs)) is not None:
                        stack.callback(ready.close)
                        apart[name] = ready.compare(outputs)
                        prepared[name] = ready
            if self._scale is not QUICK and "torch" in apart:  # which is given the problem's check, too
                checked, off = "check" if problem.check else "torch", apart["torch"][0]
            else:
                checked, off = self._checked(problem, inputs, outputs)
            agrees = off <= problem.tolerance
            timed = ours.time(self._pace) if agrees else _WRONG
            for name, ready in prepared.items() if agrees else ():
                with _on_record(self._rivals[name], problem):
                    times, theirs = ready.time(), apart[name][1]
                    us = statistics.median(times)
                    good = theirs <= problem.rival_tolerance
                    rivals[name] = RivalTime(us * 1e6, spread(times), us / timed.seconds, _finite(theirs), good)
        return self._row(problem, ours.plan, timed, checked, off, rivals)

    def _checked(self, problem: Problem, inputs: Sequence[Array], outputs: Sequence[Array]) -> tuple[str, float]:
        """The way in which the outputs were checked where no rival does it, and the largest difference."""
        if self._scale is QUICK:
            return "oracle", difference(problem, inputs, outputs, by_oracle=True)
        if problem.check is not None:
            return "check", difference(problem, inputs, outputs, by_oracle=False)
        small = twin(problem, QUICK)
        given = small.inputs()
        loaded = Loaded(self._device, small, given)
        loaded.run()
        return "oracle, quick size", difference(small, given, loaded.outputs(), by_oracle=True)

    def _row(
        self, problem: Problem, plan: Plan, timed: Timed, checked: str, off: float, rivals: dict[str, RivalTime]
    ) -> ProblemRow:
        data_type = named_type(problem)
        meant = self._scale is FULL  # targets are those of the sizes that they were set for
        row = ProblemRow(
            problem=problem.name,
            suite=problem.suite,
            family=problem.family,
            operator=type(problem.desc).__name__,
            data_type=data_type,
            rule=chosen_rule(self._device, problem),
            us=timed.seconds * 1e6,
            host_us=timed.host_seconds * 1e6,
            spread=timed.spread,
            bytes_moved=problem.bytes_moved,
            operations=problem.operations,
            limit=limit(problem, plan, data_type, self._ceilings),
            share=0.0,
            same_size_copy_share=0.0,
            target=problem.target * meant,
            copy_target=problem.copy_target * meant,
            group=problem.group.name if problem.group else "",
            group_target=problem.group.target * meant if problem.group else 0.0,
            checked=checked,
            difference=_finite(off),
            agrees=off <= problem.tolerance,
            rivals=rivals,
        )
        if not row.agrees:
            return row
        most: float = getattr(self._ceilings, row.limit)
        reached = row.gb_per_s if row.limit == "copy_gb_per_s" else row.tflop_per_s
        return dataclasses.replace(
            row,
            share=reached / most if most else 0.0,
            same_size_copy_share=row.gb_per_s / self._copies.gb_per_s(row.bytes_moved),
        )


@contextlib.contextmanager
def _on_record(rival: Rival, problem: Problem) -> Iterator[None]:
    """Whatever a rival raises is its failure at the problem, and no end of the run."""
    try:
        yield
    except Exception as error:
        rival.failures[problem.name] = said(error)


def chosen_rule(device: Device, problem: Problem) -> str:
    """The name of the rule that runs a problem."""
    return next(rule.name for rule, holds in explain(problem.desc, device.capabilities) if holds)


def named_type(problem: Problem) -> str:
    """The data type that a problem's name has in it, else that of its first output."""
    types = {*TensorDataType.__members__, *NumberFormat.__members__}
    words = (word for word in problem.name.split() if word in types)
    outputs = (slot.tensor.data_type.name for slot in problem.desc.output_slots() if slot.tensor is not None)
    return next(words, "") or next(outputs)


def limit(problem: Problem, plan: Plan, data_type: str, ceilings: Ceilings) -> str:
    """The field of ``Ceilings`` that bounds a problem: the copy bandwidth, or where operations are what counts the rate of
    what the plan multiplies with: matrices, else the problem's type. Without matrices FLOAT16 may be computed in float32, so
    the higher rate counts; a device that has no rate for integers computes them at that of float32."""
    if not problem.operations or problem.copy_target:
        return "copy_gb_per_s"
    integers = data_type in ("INT8", "UINT8")
    if any("cooperative_matrix" in _features(launch) for launch in plan.dispatches if isinstance(launch, Dispatch)):
        return "matrix_int8_top_per_s" if integers else "matrix_float16_tflop_per_s"
    if integers and ceilings.int8_top_per_s:
        return "int8_top_per_s"
    halves = data_type == "FLOAT16" and ceilings.float16_tflop_per_s > ceilings.float32_tflop_per_s
    return "float16_tflop_per_s" if halves else "float32_tflop_per_s"


def _features(launch: Dispatch) -> tuple[str, ...]:
    return KERNELS[launch.kernel.kernel].required_features(launch.kernel.variant)


def _finite(value: float) -> float:
    """A number that JSON has; infinity and NaN become the largest."""
    return value if value <= sys.float_info.max else sys.float_info.max
