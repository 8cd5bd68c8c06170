"""Runs the operators' cases on a device and holds every result against the oracle.

Every tensor lies between guard bytes, every run is done twice, and the device's own counter shows that the GPU did it.
``python -m dmlvk verify`` and the tests both call ``check_trials``.
"""

from __future__ import annotations

import collections
import dataclasses
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dmlvk.directml.device import Device
from dmlvk.directml.ready_operator import ReadyOperator
from dmlvk.engine.explanation import words
from dmlvk.kernels.common.plan import BlockCopy, Plan
from dmlvk.kernels.lowering import check_data_types, lower
from dmlvk.runtime.memory import Buffer, BufferBinding
from dmlvk.spec.errors import DeviceLostError, DmlvkError, UnsupportedError
from dmlvk.spec.schema import OperatorDesc
from dmlvk.spec.tensor import TensorDesc
from dmlvk.verify.card import Failure
from dmlvk.verify.cases.layouts import GuardedTensor, unflagged
from dmlvk.verify.cases.model import EXACT, OperatorCases, Tolerance
from dmlvk.verify.cases.problem import Problem, Variation, build, fields_of, slot_name
from dmlvk.verify.oracle import Scaled, oracle
from dmlvk.verify.runs import Selection, Trial, chosen_rule, trials
from dmlvk.verify.waivers import Waiver, waiver_of, waivers_of

_AHEAD: Final = 512
"""Runs whose pipelines are created in other threads while the first of them is made: some 200 pipelines."""


@dataclass(frozen=True)
class Outcome:
    """The result of one run of one variation.

    Attributes:
        operator: The row's class name.
        variation: The variation that ran.
        rule: The rule that ran.
        max_ulp: The largest error of any output element, in ULP of its type.
        typical_ulp, high_ulp: The median and the 99th percentile of the errors of all output elements.
        bound_ulp: The largest that the tolerances of its outputs allow.
        same_bits: Whether both times gave the same bytes.
        dispatches: The number of dispatches of the first run.
        elements: The number of elements of all outputs.
        unsupported: Why the device cannot run it, where it cannot, or the waiver that excuses what came of it.
        failure: The failed check; None if all held.
        lost_device: Whether the device is gone since.
        waiver: The waiver that covers the run, needed or not.
    """

    operator: str
    variation: Variation
    rule: str
    max_ulp: float = 0.0
    typical_ulp: float = 0.0
    high_ulp: float = 0.0
    bound_ulp: float = 0.0
    same_bits: bool = True
    dispatches: int = 0
    elements: int = 0
    unsupported: str = ""
    failure: Failure | None = None
    lost_device: bool = False
    waiver: Waiver | None = None

    @property
    def passed(self) -> bool:
        """Whether the run found nothing wrong; also one that the device cannot do."""
        return self.failure is None

    @property
    def detail(self) -> str:
        """The failed check, with the first wrong element; "" when passed."""
        return "" if self.failure is None else self.failure.sentence()


class Run(NamedTuple):
    """The result of one execution.

    Attributes:
        buffers: The bytes of the output slots after the run.
        dispatches: The number that the device counted.
        planned: The number that the plan launches, without copies of bytes onto themselves.
    """

    buffers: list[NDArray[np.uint8] | None]
    dispatches: int
    planned: int


class Execution:
    """A problem compiled and bound, which runs as often as wanted.

    Args:
        device: The device that runs it.
        problem: The operator with its tensors.
        rule: The rule of its family to use instead of the one that would be chosen.
        plan: The plan of the desc, if it has been lowered already.

    Attributes:
        operator: The compiled operator.

    Raises:
        InvalidArgumentError, UnsupportedError: as ``ReadyOperator``.
    """

    def __init__(self, device: Device, problem: Problem, rule: str = "", plan: Plan | None = None) -> None:
        self._device, self._outputs = device, problem.outputs
        self._buffers: dict[GuardedTensor, Buffer] = {}
        for tensor in problem.inputs + problem.outputs:
            if tensor is not None and tensor not in self._buffers:
                self._buffers[tensor] = device.create_buffer(tensor.data.nbytes)
                if tensor not in problem.outputs:
                    self._buffers[tensor].write(tensor.data)
        inputs, outputs = (list(map(self._binding, tensors)) for tensors in (problem.inputs, problem.outputs))
        plan = plan or _lowered(device, problem.desc, rule)
        self.operator = ReadyOperator(device, problem.desc, rule, inputs, plan=plan)
        self._commands = device.create_command_list()
        self.operator.record(self._commands, inputs, outputs)
        in_place = bool(problem.outputs) and problem.outputs[0] in problem.inputs
        launches = self.operator.compiled.plan.dispatches
        self._planned = sum(not (in_place and isinstance(launch, BlockCopy)) for launch in launches)

    def _binding(self, tensor: GuardedTensor | None) -> BufferBinding | None:
        if tensor is None:
            return None
        return BufferBinding(self._buffers[tensor], tensor.offset, tensor.desc.total_tensor_size_in_bytes)

    def run(self) -> Run:
        """Fills what it writes anew, and runs it. Inputs and scratch are as the last time has left them."""
        for tensor in self._outputs:
            if tensor is not None:
                self._buffers[tensor].write(tensor.data)
        before = self._device.dispatches
        self._device.execute(self._commands)
        counted = self._device.dispatches - before
        buffers = [None if tensor is None else self._buffers[tensor].read() for tensor in self._outputs]
        return Run(buffers, counted, self._planned)


def run(device: Device, problem: Problem, rule: str = "") -> Run:
    """Runs the problem once through the binding table."""
    return Execution(device, problem, rule).run()


def check(device: Device, entry: OperatorCases, variation: Variation) -> Outcome:
    """Runs one variation twice and compares it with the oracle."""
    return check_problem(device, entry, variation, build(entry.operator, variation))


def check_problem(
    device: Device, entry: OperatorCases, variation: Variation, problem: Problem, plan: Plan | None = None
) -> Outcome:
    """Runs a problem twice and compares it with the oracle. What dmlvk or the driver refuse is a failure too.

    Args:
        device: The device that runs it.
        entry: Says what is tolerated.
        variation: Describes the problem and gives its rule.
        problem: The operator with its tensors.
        plan: The plan of the desc, if it has been lowered already.
    """
    name, rule = entry.operator.__name__, variation.rule or chosen_rule(problem.desc, device.capabilities)
    try:
        execution = Execution(device, problem, variation.rule, plan)
        results, dispatches, planned = execution.run()
        if execution.operator.compiled.plan.initialize:  # once per compiled operator, and it too has to be the same twice
            execution = Execution(device, problem, variation.rule, plan)
        again = execution.run().buffers
    except UnsupportedError as error:
        return Outcome(name, variation, rule, unsupported=error.reason)
    except DmlvkError as error:
        failure = _failure(problem, variation, rule, plan, [f"{type(error).__name__}: {error}"])
        return Outcome(name, variation, rule, failure=failure, lost_device=isinstance(error, DeviceLostError))
    ran = execution.operator.compiled.plan
    compared = _compared(entry.rule_tolerance.get(rule, entry.tolerance), problem, results)
    wrong = next((item for item in compared if item.wrong), None)
    stray = sum(item.tensor.stray_bytes(item.data) for item in compared)
    same = all(
        second is not None and np.array_equal(data, second)
        for data, second in zip(results, again, strict=True)
        if data is not None
    )
    what = []
    if wrong:
        what.append(f"{wrong.wrong} of {wrong.errors.size} elements are wrong")
    if not same:
        what.append("two runs differ")
    if stray:
        what.append(f"{stray} bytes outside the output were written")
    if dispatches != planned:
        what.append(f"the device counted {dispatches} dispatches, the plan has {planned}")
    errors = np.sort(np.concatenate([item.errors.ravel() for item in compared] or [np.zeros(0)]))
    return Outcome(
        name,
        variation,
        rule,
        max_ulp=percentile(errors, 1.0),
        typical_ulp=percentile(errors, 0.5),
        high_ulp=percentile(errors, 0.99),
        bound_ulp=max((item.limit.ulp for item in compared), default=0.0),
        same_bits=same,
        dispatches=dispatches,
        elements=errors.size,
        failure=_failure(problem, variation, rule, ran, what, wrong, same=same) if what else None,
    )


def percentile(ascending: Sequence[float] | NDArray[np.float64], share: float) -> float:
    """The least of the values that this share of them does not exceed; 0 of none."""
    return float(ascending[max(math.ceil(share * len(ascending)) - 1, 0)]) if len(ascending) else 0.0


def verify_operators(
    device: Device,
    entries: Iterable[OperatorCases],
    selection: Selection = Selection.FULL,
    only: str = "",
) -> Iterator[Outcome]:
    """Makes the runs of operators' cases, as ``check_trials`` does.

    Args:
        device: The device that runs them.
        entries: The operators' cases.
        selection: The selection of their runs.
        only: Only runs whose variation, as text, contains this.
    """
    chosen = (trial for entry in entries for trial in trials(entry, device.capabilities, selection))
    return check_trials(device, (trial for trial in chosen if only in str(trial.variation)))


def check_trials(device: Device, chosen: Iterable[Trial]) -> Iterator[Outcome]:
    """Makes runs one after the other, while other threads create the pipelines of those that come next. A waiver of the
    device's driver excuses the runs that it covers."""
    waiting: collections.deque[tuple[Trial, Waiver | None, Plan | None]] = collections.deque()
    waivers = waivers_of(device.info.driver)

    def first() -> Outcome:
        trial, waiver, plan = waiting.popleft()
        name, variation = trial.entry.operator.__name__, trial.variation
        excused = Outcome(
            name, variation, trial.rule, unsupported=f"waived: {waiver.cause}" if waiver else "", waiver=waiver
        )
        if waiver is not None and not waiver.ends:
            return excused
        outcome = check_problem(device, trial.entry, variation, build(trial.entry.operator, variation), plan)
        if waiver is None or outcome.lost_device:
            return outcome
        return dataclasses.replace(outcome, waiver=waiver) if outcome.passed else excused

    for trial in chosen:
        waiver = waiver_of(waivers, trial.entry.operator.__name__, trial.variation)
        waiting.append((trial, waiver, _prepared(device, trial) if waiver is None or waiver.ends else None))
        if len(waiting) > _AHEAD:
            yield first()
    while waiting:
        yield first()


def _prepared(device: Device, trial: Trial) -> Plan | None:
    """The plan, its pipelines on their way; None of a desc that is refused, for the same reason once it is run."""
    try:
        plan = _lowered(device, trial.desc, trial.variation.rule)
    except DmlvkError:
        return None
    launches = plan.dispatches + plan.initialize
    device.prepare_kernels(device.pipeline(launch) for launch in launches if not isinstance(launch, BlockCopy))
    return plan


def _lowered(device: Device, desc: OperatorDesc, rule: str) -> Plan:
    """The plan of a desc, of the data types beyond DirectML's too."""
    desc.validate()
    check_data_types(desc, device.capabilities)
    return lower(desc, device.capabilities, force=rule)


class _Compared(NamedTuple):
    """An output, read back and held against the oracle."""

    field: str
    tensor: GuardedTensor
    data: NDArray[np.uint8]
    actual: NDArray[Any]
    wanted: NDArray[Any]
    errors: NDArray[np.float64]
    limit: Tolerance

    @property
    def wrong(self) -> int:
        """The number of elements whose error is over the limit."""
        return int(np.count_nonzero(self.errors > self.limit.ulp))


def _compared(tolerance: Any, problem: Problem, results: Sequence[NDArray[np.uint8] | None]) -> list[_Compared]:
    found = []
    slots = problem.desc.output_slots()
    for slot, tensor, data, wanted in zip(slots, problem.outputs, results, _expected(problem), strict=True):
        if tensor is None or data is None:
            continue
        limit = tolerance.get(tensor.desc.data_type, EXACT)
        actual = tensor.view(data)
        errors = (
            bit_errors(actual, wanted) if limit.bits else ulp_errors(actual, of_blocks(wanted, limit.block), limit.magnitude)
        )
        value = wanted.value if isinstance(wanted, Scaled) else wanted
        found.append(_Compared(slot_name(slot), tensor, data, actual, value, errors, limit))
    return found


def _failure(
    problem: Problem,
    variation: Variation,
    rule: str,
    plan: Plan | None,
    what: list[str],
    wrong: _Compared | None = None,
    *,
    same: bool = True,
) -> Failure:
    launches = plan.dispatches if plan is not None else ()
    kernels = [launch.name for launch in launches]
    element: dict[str, Any] = {}
    if wrong is not None:
        first, worst = (
            np.unravel_index(int(flat), wrong.errors.shape)
            for flat in ((wrong.errors > wrong.limit.ulp).argmax(), wrong.errors.argmax())
        )
        element = {
            "output": wrong.field,
            "index": tuple(map(int, first)),
            "actual": str(wrong.actual[first]),
            "expected": str(wrong.wanted[first]),
            "ulp": float(wrong.errors[first]),
            "bound_ulp": wrong.limit.ulp,
            "wrong": wrong.wrong,
            "elements": wrong.errors.size,
            "worst_index": tuple(map(int, worst)),
            "worst_ulp": float(wrong.errors[worst]),
        }
    return Failure(
        case=variation.case.name,
        layout=variation.layout,
        in_place=variation.in_place,
        rule=rule,
        desc=" ".join(words(problem.desc)),
        what="; ".join(what),
        kernels=", ".join(dict.fromkeys(kernels)),
        same_bits=same,
        only=str(variation),
        **element,
    )


def ulp_errors(actual: NDArray[Any], expected: NDArray[Any] | Scaled, magnitude: float = 0.0) -> NDArray[np.float64]:
    """Each element's distance from the expected value in ULP of its type, infinite where only one is NaN or infinite.

    Args:
        actual: The device's result.
        expected: float64 for floating types, else the exact type; of the same shape. Integers that are masked are
            undefined, and any number is as good.
        magnitude: ULPs are those of at least this value.
    """
    scale: NDArray[Any] = np.asarray(magnitude)
    if isinstance(expected, Scaled):
        scale = np.maximum(scale, expected.magnitude)
        expected = expected.value
    assert actual.shape == expected.shape, f"the oracle gives {expected.shape} for an output of {actual.shape}"
    if actual.dtype.kind != "f":
        same = np.ma.getmaskarray(expected) | (actual == np.ma.getdata(expected).astype(actual.dtype))
        return np.where(same, 0.0, np.inf)
    with np.errstate(over="ignore", invalid="ignore"):
        rounded = expected.astype(actual.dtype)
        size = np.maximum(np.abs(rounded.astype(np.float64)), scale)
        spacing = np.spacing(np.minimum(size, float(np.finfo(actual.dtype).max)).astype(actual.dtype)).astype(np.float64)
        difference = np.abs(actual.astype(np.float64) - expected) / np.abs(spacing)
    same = (actual == rounded) | (np.isnan(actual) & np.isnan(rounded))
    finite = np.isfinite(actual) & np.isfinite(rounded)
    return np.where(same, 0.0, np.where(finite, np.maximum(difference, 0.0), np.inf))


def of_blocks(expected: NDArray[Any] | Scaled, block: int) -> NDArray[Any] | Scaled:
    """What is expected with the magnitudes that ``Tolerance.block`` says."""
    if block == 1 or not isinstance(expected, Scaled):
        return expected
    *outer, rows, columns = expected.magnitude.shape
    padded = np.zeros((*outer, -(-rows // block) * block, -(-columns // block) * block))
    padded[..., :rows, :columns] = expected.magnitude
    blocks = padded.reshape(*outer, padded.shape[-2] // block, block, padded.shape[-1] // block, block)
    blocks[...] = blocks.max(axis=(-3, -1), keepdims=True)
    return expected._replace(magnitude=padded[..., :rows, :columns])


def bit_errors(actual: NDArray[Any], expected: NDArray[Any] | Scaled) -> NDArray[np.float64]:
    """Infinite for each element that differs in any bit, of NaN the payload and of 0 the sign; both are of one type."""
    assert isinstance(expected, np.ndarray) and actual.dtype == expected.dtype, "the oracle moves the inputs' own elements"
    assert actual.shape == expected.shape, f"the oracle gives {expected.shape} for an output of {actual.shape}"
    unsigned = f"u{actual.dtype.itemsize}"
    return np.where(actual.view(unsigned) == expected.view(unsigned), 0.0, np.inf)


def _expected(problem: Problem) -> tuple[NDArray[Any] | Scaled, ...]:
    function = oracle(type(problem.desc))
    assert function is not None, f"{type(problem.desc).__name__} has cases but no oracle"
    changes: dict[str, TensorDesc] = {}
    for slot in problem.desc.input_slots() + problem.desc.output_slots():
        if slot.tensor is not None:
            changes[slot_name(slot)] = unflagged(slot.tensor)
    arrays = [None if t is None else np.array(t.view()) for t in problem.inputs]
    with np.errstate(all="ignore"):
        result = function(problem.desc.replace(**fields_of(changes)), *arrays)
    if isinstance(result, Scaled) or not isinstance(result, tuple):
        result = (result,)
    missing = len(problem.outputs) - len(result)
    return (*result, *(np.zeros(0),) * missing)
