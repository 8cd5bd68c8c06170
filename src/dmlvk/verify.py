"""Runs the operators' cases on a device and holds every result against the oracle.

Each case is crossed with the operator's data types, with the layouts and in-place inputs that it allows and with every
rule that could choose its kernel. Every tensor lies between guard bytes, every run is done twice, and the device's own
counter shows that the GPU did it. ``python -m dmlvk verify`` and the tests both call ``verify_operator``.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmlvk.cases.layouts import LAYOUTS, GuardedTensor, place, unflagged
from dmlvk.cases.model import EXACT, Case, OperatorCases, generator, normal
from dmlvk.enums import TensorDataType
from dmlvk.errors import UnsupportedError
from dmlvk.execution.binding import BufferBinding
from dmlvk.execution.device import Device
from dmlvk.execution.direct import ReadyOperator
from dmlvk.kernels.lowering import explain, possible_rules
from dmlvk.oracle import Scaled, oracle
from dmlvk.runtime.memory import Buffer
from dmlvk.schema import FieldKind, OperatorDesc, Slot
from dmlvk.tensor import TensorDesc


@dataclass(frozen=True)
class Variation:
    """One way to run a case: its data type, how the tensors lie, which input the output shares, which rule is forced."""

    case: Case
    data_type: TensorDataType
    layout: str
    in_place: str = ""
    rule: str = ""

    def __str__(self) -> str:
        parts = [self.case.name, self.data_type.name, self.layout]
        parts += [f"in place on {self.in_place}"] * bool(self.in_place) + [f"rule {self.rule}"] * bool(self.rule)
        return ", ".join(parts)


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


@dataclass(frozen=True)
class Problem:
    """A case made concrete: the desc and the guarded tensors of its slots (None where absent), inputs filled."""

    desc: OperatorDesc
    inputs: tuple[GuardedTensor | None, ...]
    outputs: tuple[GuardedTensor | None, ...]


def variations(entry: OperatorCases, cases: Iterable[Case] | None = None, *, quick: bool = False) -> Iterator[Variation]:
    """Every variation of an operator's cases (or of the given ones) but for forced rules."""
    for case in entry.cases if cases is None else cases:
        if quick and not case.quick:
            continue
        for data_type in case.only or entry.crossed_types:
            layouts = LAYOUTS if case.layouts else LAYOUTS[:1]
            for layout in layouts[:2] if quick else layouts:
                yield Variation(case, data_type, layout)
            for name in entry.operator.in_place if case.layouts and not quick else ():
                if name in case.inputs:
                    yield Variation(case, data_type, "packed", name)
                    yield Variation(case, data_type, "strided", name)


def build(operator: type[OperatorDesc], variation: Variation, place: Callable[..., GuardedTensor] = place) -> Problem:
    """Makes the desc and fills the inputs, the same bits each time. ``place`` lays out the tensors."""
    case = variation.case
    rng = generator(operator.__name__, case.name, variation.data_type.name)
    tensors: dict[str, GuardedTensor] = {}
    for turn, name in enumerate(_input_names(operator, case)):
        if name in case.inputs:
            data_type = case.data_types.get(name, variation.data_type)
            sizes = case.inputs[name]
            written = name == variation.in_place
            tensors[name] = place(data_type, sizes, variation.layout, turn, is_output=written)
            domain = case.domains.get(name) or case.domains.get("") or normal
            tensors[name].view()[...] = _broadcastable(tensors[name].desc, domain(rng, sizes, data_type))
    draft = operator(**_fields({name: tensor.desc for name, tensor in tensors.items()}), **case.attributes)
    output_specs = [spec for spec in operator.fields if spec.kind is FieldKind.OUTPUT_TENSOR]
    inferred = None if case.outputs else draft.inferred_output_sizes()
    for turn, spec in enumerate(output_specs, start=len(draft.input_slots())):
        if inferred is None and spec.name not in case.outputs:
            continue
        sizes = case.outputs[spec.name] if inferred is None else inferred[output_specs.index(spec)]
        if variation.in_place and turn == len(draft.input_slots()):
            tensors[spec.name] = tensors[variation.in_place]
        else:
            data_type = case.data_types.get(spec.name, variation.data_type)
            tensors[spec.name] = place(data_type, sizes, variation.layout, turn, is_output=True)
    desc = operator(**_fields({name: tensor.desc for name, tensor in tensors.items()}), **case.attributes)
    return Problem(
        desc,
        tuple(tensors.get(_name(slot)) for slot in desc.input_slots()),
        tuple(tensors.get(_name(slot)) for slot in desc.output_slots()),
    )


def run(device: Device, problem: Problem, rule: str = "") -> tuple[list[NDArray[np.uint8] | None], int]:
    """Runs the problem once through the binding table: the buffers of the output slots as they are afterwards, and the
    dispatches that the device counted."""
    operator = ReadyOperator(device, problem.desc, rule)
    buffers: dict[GuardedTensor, Buffer] = {}
    for tensor in problem.inputs + problem.outputs:
        if tensor is not None and tensor not in buffers:
            buffers[tensor] = device.create_buffer(tensor.data.nbytes)
            buffers[tensor].write(tensor.data)

    def binding(tensor: GuardedTensor | None) -> BufferBinding | None:
        if tensor is None:
            return None
        return BufferBinding(buffers[tensor], tensor.offset, tensor.desc.total_tensor_size_in_bytes)

    commands = device.create_command_list()
    operator.record(commands, list(map(binding, problem.inputs)), list(map(binding, problem.outputs)))
    before = device.dispatches
    device.execute(commands)
    results = [None if t is None else buffers[t].read() for t in problem.outputs]
    return results, device.dispatches - before


def check(device: Device, entry: OperatorCases, variation: Variation) -> Outcome:
    """Runs one variation twice and compares it with the oracle."""
    return check_problem(device, entry, variation, build(entry.operator, variation))


def check_problem(device: Device, entry: OperatorCases, variation: Variation, problem: Problem) -> Outcome:
    """Runs a problem, which the variation describes and whose rule it gives, twice and compares it with the oracle."""
    name = entry.operator.__name__
    try:
        results, dispatches = run(device, problem, variation.rule)
    except UnsupportedError as error:
        return Outcome(name, variation, 0.0, True, unsupported=error.reason)
    again, _ = run(device, problem, variation.rule)
    expected = _expected(problem)
    worst, detail = 0.0, "" if dispatches else "the device counted no dispatch"
    for tensor, data, second, wanted in zip(problem.outputs, results, again, expected, strict=True):
        if tensor is None or data is None or second is None:
            continue
        limit = entry.tolerance.get(tensor.desc.data_type, EXACT)
        actual = tensor.view(data)
        errors = ulp_errors(actual, wanted, limit.magnitude)
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
        chosen = next(rule.name for rule, holds in explain(desc, device.capabilities) if holds)
        for rule in possible_rules(desc, device.capabilities):
            if rule != chosen:
                yield check(device, entry, dataclasses.replace(variation, rule=rule))


def ulp_errors(actual: NDArray[Any], expected: NDArray[Any] | Scaled, magnitude: float = 0.0) -> NDArray[np.float64]:
    """Each element's distance from the expected value in ULP of its type, infinite where only one is NaN or infinite.

    Args:
        actual: What came out.
        expected: float64 for floating types, else the exact type; of the same shape.
        magnitude: ULPs are those of at least this value.
    """
    scale: NDArray[Any] = np.asarray(magnitude)
    if isinstance(expected, Scaled):
        scale = np.maximum(scale, expected.magnitude)
        expected = expected.value
    assert actual.shape == expected.shape, f"the oracle gives {expected.shape} for an output of {actual.shape}"
    if actual.dtype.kind != "f":
        return np.where(actual == expected.astype(actual.dtype), 0.0, np.inf)
    with np.errstate(over="ignore", invalid="ignore"):
        rounded = expected.astype(actual.dtype)
        size = np.maximum(np.abs(rounded.astype(np.float64)), scale)
        spacing = np.spacing(np.minimum(size, float(np.finfo(actual.dtype).max)).astype(actual.dtype)).astype(np.float64)
        difference = np.abs(actual.astype(np.float64) - expected) / np.abs(spacing)
    same = (actual == rounded) | (np.isnan(actual) & np.isnan(rounded))
    finite = np.isfinite(actual) & np.isfinite(rounded)
    return np.where(same, 0.0, np.where(finite, np.maximum(difference, 0.0), np.inf))


def _input_names(operator: type[OperatorDesc], case: Case) -> Iterator[str]:
    """What cases call the operator's inputs: every field, and of an array field the elements that this case has."""
    for spec in operator.fields:
        if spec.kind is FieldKind.INPUT_TENSOR:
            yield spec.name
        elif spec.kind is FieldKind.INPUT_TENSOR_ARRAY:
            names = (_name(Slot(spec, element, None)) for element in itertools.count())
            yield from itertools.takewhile(case.inputs.__contains__, names)


def _name(slot: Slot) -> str:
    is_array = slot.field.kind is FieldKind.INPUT_TENSOR_ARRAY
    return f"{slot.field.name}[{slot.element}]" if is_array else slot.field.name


def _fields(tensors: Mapping[str, TensorDesc]) -> dict[str, Any]:
    """The tensors as a desc takes them: the elements of an array, which come in order, as a tuple."""
    fields: dict[str, Any] = {}
    for name, tensor in tensors.items():
        field, bracket, _ = name.partition("[")
        fields[field] = (*fields.get(field, ()), tensor) if bracket else tensor
    return fields


def _broadcastable(desc: TensorDesc, values: NDArray[Any]) -> NDArray[Any]:
    """The values with every broadcast dimension reduced to its first entry, so that writing them is well defined."""
    index = tuple(slice(0, 1) if step == 0 else slice(None) for step in desc.effective_strides)
    return np.broadcast_to(values[index], values.shape)


def _expected(problem: Problem) -> tuple[NDArray[Any] | Scaled, ...]:
    function = oracle(type(problem.desc))
    assert function is not None, f"{type(problem.desc).__name__} has cases but no oracle"
    changes: dict[str, TensorDesc] = {}
    for slot in problem.desc.input_slots() + problem.desc.output_slots():
        if slot.tensor is not None:
            changes[_name(slot)] = unflagged(slot.tensor)
    arrays = [None if t is None else np.array(t.view()) for t in problem.inputs]
    with np.errstate(all="ignore"):
        result = function(problem.desc.replace(**_fields(changes)), *arrays)
    if isinstance(result, Scaled) or not isinstance(result, tuple):
        result = (result,)
    missing = len(problem.outputs) - len(result)
    return (*result, *(np.zeros(0),) * missing)
