"""Runs the operators' cases on a device and holds every result against the oracle.

Each case is crossed with the operator's data types, with the layouts and in-place inputs that it allows and with every
rule that could choose its kernel. Every tensor lies between guard bytes, every run is done twice, and the device's own
counter shows that the GPU did it. ``python -m dmlvk verify`` and the tests both call ``verify_operator``.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dmlvk.cases.layouts import GuardedTensor, unflagged
from dmlvk.cases.model import EXACT, Case, OperatorCases
from dmlvk.cases.problem import Problem, Variation, build, fields_of, slot_name, variations
from dmlvk.errors import UnsupportedError
from dmlvk.execution.binding import BufferBinding
from dmlvk.execution.device import Device
from dmlvk.execution.direct import ReadyOperator
from dmlvk.kernels.lowering import explain, possible_rules
from dmlvk.kernels.plan import BlockCopy
from dmlvk.oracle import Scaled, oracle
from dmlvk.runtime.memory import Buffer
from dmlvk.schema import OperatorDesc
from dmlvk.tensor import TensorDesc


@dataclass(frozen=True)
class Outcome:
    """What one run of one variation showed.

    Attributes:
        operator: The row's class name.
        variation: What was run.
        max_ulp: The largest error of any output element, in ULP of its type.
        passed: Whether everything held.
        detail: What did not, with the first offending element; "" when passed.
        dispatches: How many dispatches the device ran for it.
        unsupported: Why the device cannot run it, where it cannot; then nothing was run.
    """

    operator: str
    variation: Variation
    max_ulp: float
    passed: bool
    detail: str = ""
    dispatches: int = 0
    unsupported: str = ""


class Run(NamedTuple):
    """What one execution gave.

    Attributes:
        buffers: Those of the output slots as they are afterwards.
        dispatches: What the device counted.
        planned: What the plan launches, without copies of bytes onto themselves.
    """

    buffers: list[NDArray[np.uint8] | None]
    dispatches: int
    planned: int


def run(device: Device, problem: Problem, rule: str = "") -> Run:
    """Runs the problem once through the binding table."""
    buffers: dict[GuardedTensor, Buffer] = {}
    for tensor in problem.inputs + problem.outputs:
        if tensor is not None and tensor not in buffers:
            buffers[tensor] = device.create_buffer(tensor.data.nbytes)
            buffers[tensor].write(tensor.data)

    def binding(tensor: GuardedTensor | None) -> BufferBinding | None:
        if tensor is None:
            return None
        return BufferBinding(buffers[tensor], tensor.offset, tensor.desc.total_tensor_size_in_bytes)

    inputs, outputs = (list(map(binding, tensors)) for tensors in (problem.inputs, problem.outputs))
    operator = ReadyOperator(device, problem.desc, rule, inputs)
    commands = device.create_command_list()
    operator.record(commands, inputs, outputs)
    before = device.dispatches
    device.execute(commands)
    results = [None if t is None else buffers[t].read() for t in problem.outputs]
    launches = operator.compiled.plan.dispatches
    in_place = bool(problem.outputs) and problem.outputs[0] in problem.inputs
    planned = sum(not (in_place and isinstance(launch, BlockCopy)) for launch in launches)
    return Run(results, device.dispatches - before, planned)


def check(device: Device, entry: OperatorCases, variation: Variation) -> Outcome:
    """Runs one variation twice and compares it with the oracle."""
    return check_problem(device, entry, variation, build(entry.operator, variation))


def check_problem(device: Device, entry: OperatorCases, variation: Variation, problem: Problem) -> Outcome:
    """Runs a problem, which the variation describes and whose rule it gives, twice and compares it with the oracle."""
    name = entry.operator.__name__
    try:
        results, dispatches, planned = run(device, problem, variation.rule)
    except UnsupportedError as error:
        return Outcome(name, variation, 0.0, True, unsupported=error.reason)
    again = run(device, problem, variation.rule).buffers
    expected = _expected(problem)
    tolerance = entry.tolerance
    if entry.rule_tolerance:
        tolerance = entry.rule_tolerance.get(variation.rule or _chosen(problem.desc, device), tolerance)
    worst = 0.0
    detail = "" if dispatches == planned else f"the device counted {dispatches} dispatches, the plan has {planned}"
    for tensor, data, second, wanted in zip(problem.outputs, results, again, expected, strict=True):
        if tensor is None or data is None or second is None:
            continue
        limit = tolerance.get(tensor.desc.data_type, EXACT)
        actual = tensor.view(data)
        errors = bit_errors(actual, wanted) if limit.bits else ulp_errors(actual, wanted, limit.magnitude)
        largest = float(errors.max(initial=0.0))
        worst = max(worst, largest)
        if not np.array_equal(data, second):
            detail = detail or "two runs differ"
        if stray := tensor.stray_bytes(data):
            detail = detail or f"{stray} bytes outside the output were written"
        if largest > limit.ulp:
            at = np.unravel_index(int(errors.argmax()), errors.shape)
            value = wanted.value if isinstance(wanted, Scaled) else wanted
            detail = detail or (
                f"{errors[at]:.4g} ULP (at most {limit.ulp:g}) at {tuple(map(int, at))}: "
                f"{actual[at]!r}, expected {value[at]!r}"
            )
    return Outcome(name, variation, worst, not detail, detail, dispatches)


def verify_operator(
    device: Device, entry: OperatorCases, cases: Iterable[Case] | None = None, *, quick: bool = False
) -> Iterator[Outcome]:
    """Every variation of an operator's cases, each also under every other rule that might have chosen its kernel, unless the
    operator's ``every_rule`` says that its kernels are tried with another one.

    Args:
        device: Where to run.
        entry: The operator's cases.
        cases: Only these of them.
        quick: Only quick cases, packed and strided, as the rules choose.
    """
    for variation in variations(entry, cases, quick=quick):
        yield check(device, entry, variation)
        if quick or variation.in_place or not entry.every_rule:
            continue
        desc = build(entry.operator, variation).desc
        chosen = _chosen(desc, device)
        for rule in possible_rules(desc, device.capabilities):
            if rule != chosen:
                yield check(device, entry, dataclasses.replace(variation, rule=rule))


def _chosen(desc: OperatorDesc, device: Device) -> str:
    return next(rule.name for rule, holds in explain(desc, device.capabilities) if holds)


def ulp_errors(actual: NDArray[Any], expected: NDArray[Any] | Scaled, magnitude: float = 0.0) -> NDArray[np.float64]:
    """Each element's distance from the expected value in ULP of its type, infinite where only one is NaN or infinite.

    Args:
        actual: What came out.
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
