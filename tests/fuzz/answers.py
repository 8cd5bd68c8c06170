"""Small descs that are like an operator's cases, run on a device: each result is the oracle's, within what the operator's
cases tolerate, under any rule that may choose the kernel.

Numbers that decide how large errors may be, such as an epsilon, stay those of the case.
"""

from __future__ import annotations

import functools
import itertools
import random
from typing import Any, Final

import numpy as np

import dmlvk
from dmlvk.kernels.lowering import check_data_types, lower, possible_rules
from dmlvk.spec.errors import InvalidArgumentError, UnsupportedError
from dmlvk.spec.schema import FieldKind, OperatorDesc
from dmlvk.spec.tensor import TensorDesc
from dmlvk.verify.cases import all_cases
from dmlvk.verify.cases.layouts import GuardedTensor
from dmlvk.verify.cases.model import Case, generator, normal
from dmlvk.verify.cases.problem import Problem, Variation, slot_name
from dmlvk.verify.check import check_problem
from fuzz import descs
from fuzz.campaign import Fault, Overtime
from fuzz.drafts import ROWS, read, spelt

_MOST_BYTES: Final = 1 << 17
"""Of all tensors of a desc that is run."""
_MOST_FLOPS: Final = 1 << 22
_CALLS: Final = 300
"""Calls that one device serves: a software device keeps the machine code of every pipeline."""
_KEPT: Final = (
    *(FieldKind.FLOAT, FieldKind.FLOAT_ARRAY, FieldKind.SCALAR_UNION, FieldKind.SCALE_BIAS),
    *(FieldKind.FUSED_ACTIVATION, FieldKind.OPERATOR_DESC_ARRAY),
)


def attempt(rng: random.Random) -> tuple[str, str]:
    """Drafts a desc, and runs it if it is valid and small."""
    name = rng.choice(tuple(ROWS))
    number = rng.randrange(len(descs.bases(name)))
    draft = descs.changed(descs.bases(name)[number], rng)
    for spec in ROWS[name].fields:
        if spec.kind in _KEPT:
            draft.arguments[spec.name] = descs.bases(name)[number].arguments[spec.name]
    for tensor in descs.tensors_of(draft):
        tensor.arguments["guaranteed_base_offset_alignment"] = 0  # tensors lie where their guard bytes leave them
    text = f"{number} {rng.random():.3f}: {spelt(draft)}"
    return text, judged(text)


def judged(text: str) -> str:
    """Runs a desc.

    Args:
        text: The number of the case that says what values inputs have, and a number from 0 to 1 that says which rule makes
            the plan; after ": " the desc in Python.

    Raises:
        Fault: the result is wrong, or there is none.
    """
    head, _, expression = text.partition(": ")
    number, chance = head.split()
    device = shared_device()
    try:
        desc = read(expression)
        desc.validate()
        check_data_types(desc, device.capabilities)
        if not _is_small(desc):
            return "large"
        rules = possible_rules(desc, device.capabilities)
        rule = rules[int(float(chance) * len(rules))]
        plan = lower(desc, device.capabilities, force=rule)
    except InvalidArgumentError:
        return "refused"
    except UnsupportedError:
        return "beyond the device"
    entry = all_cases()[type(desc)]
    case = entry.cases[int(number)]
    first = next(slot.tensor for slot in desc.output_slots() + desc.input_slots() if slot.tensor is not None)
    if first.data_type not in (case.only or entry.crossed_types):
        return "of another type"  # for which the cases tolerate nothing
    variation = Variation(case, first.data_type, "drafted", rule=rule)
    try:
        outcome = check_problem(device, entry, variation, _problem(desc, case), plan)
    except (Exception, Overtime) as error:
        raise Fault(text, f"{type(error).__name__}: {error}") from error
    if not outcome.passed:
        raise Fault(text, f"{type(desc).__name__}, {rule}: {outcome.detail}")
    return "right"


_calls = itertools.count()


def shared_device() -> dmlvk.Device:
    """The device of all attempts, now and then a new one."""
    return _device(next(_calls) // _CALLS)


@functools.lru_cache(1)
def _device(turn: int) -> dmlvk.Device:
    return dmlvk.Device()


def _is_small(desc: OperatorDesc) -> bool:
    tensors = [slot.tensor for slot in desc.input_slots() + desc.output_slots() if slot.tensor is not None]
    most = max(tensor.element_count for tensor in tensors)
    return (
        sum(tensor.total_tensor_size_in_bytes for tensor in tensors) <= _MOST_BYTES
        and most <= _MOST_BYTES
        and (desc.flops() or 0) <= _MOST_FLOPS
    )


def _problem(desc: OperatorDesc, case: Case) -> Problem:
    rng = generator(type(desc).__name__, case.name)
    tensors: dict[str, GuardedTensor] = {}
    for turn, slot in enumerate(desc.input_slots() + desc.output_slots()):
        if slot.tensor is not None:
            name = slot_name(slot)
            tensors[name] = GuardedTensor(slot.tensor, 16 * turn)
            if slot.field.kind.is_input:
                tensors[name].view()[...] = _values(rng, case, name, slot.tensor)
    return Problem(
        desc,
        tuple(tensors.get(slot_name(slot)) for slot in desc.input_slots()),
        tuple(tensors.get(slot_name(slot)) for slot in desc.output_slots()),
    )


def _values(rng: np.random.Generator, case: Case, name: str, tensor: TensorDesc) -> Any:
    """The values that the case has there, as many as the tensor needs; elements that share memory have the first one's."""
    domain = case.domains.get(name) or case.domains.get("") or normal
    try:
        values = domain(rng, tensor.sizes, tensor.data_type)
    except (ValueError, IndexError):  # it knows the case's own sizes alone
        values = np.resize(domain(rng, case.inputs[name], tensor.data_type), tensor.sizes)
    return values
