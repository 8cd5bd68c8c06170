"""Kernels of rows (``glsl/include/rows.glsl``) whose invocations move several items, as those of a GPU do where there are
many: a CPU's move one, so no other test of theirs runs that here."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from crossed import crossed

import dmlvk
from dmlvk import PaddingMode, TensorDataType, TensorDesc
from dmlvk.kernels.common.plan import Dispatch
from dmlvk.kernels.copy import lowering as copy
from dmlvk.kernels.lowering import lower
from dmlvk.spec import ops
from dmlvk.spec.schema import OperatorDesc
from dmlvk.verify.cases import all_cases, movement
from dmlvk.verify.cases.layouts import GuardedTensor
from dmlvk.verify.cases.model import Case, any_bits, indices_around
from dmlvk.verify.cases.problem import Problem, Variation
from dmlvk.verify.check import check_problem

T = TensorDataType
ROWS, COLUMNS = 37, 461
"""What most problems move: of bytes a number of words that several workgroups share, the last of them not all of it."""


def slice1(data_type: T, step: int) -> OperatorDesc:
    """Here and below: rows of so many times as many elements; with 2 units are two elements."""
    return ops.Slice1(
        input_tensor=TensorDesc(data_type, (ROWS, (COLUMNS + 1) * step)),
        input_window_offsets=(0, step),
        input_window_sizes=(ROWS, COLUMNS * step),
        input_window_strides=(1, 1),
    )


def slice_grad(data_type: T, step: int) -> OperatorDesc:
    return ops.SliceGrad(
        input_gradient_tensor=TensorDesc(data_type, (ROWS // 2, COLUMNS * step)),
        output_gradient_tensor=TensorDesc(data_type, (ROWS, (COLUMNS + 2) * step)),
        input_window_offsets=(0, step),
        input_window_sizes=(ROWS - 1, COLUMNS * step),
        input_window_strides=(2, 1),
    )


def padded(data_type: T, step: int, mode: PaddingMode) -> OperatorDesc:
    return ops.Padding1(
        input_tensor=TensorDesc(data_type, (ROWS - 2, COLUMNS * step)),
        padding_mode=mode,
        padding_value_data_type=data_type,
        padding_value=7,
        start_padding=(1, 3 * step),
        end_padding=(1, 5 * step),
    )


def padding(data_type: T, step: int) -> OperatorDesc:
    return padded(data_type, step, PaddingMode.CONSTANT)


def reflection(data_type: T, step: int) -> OperatorDesc:
    return padded(data_type, step, PaddingMode.REFLECTION)


def reversal(data_type: T, step: int) -> OperatorDesc:
    return ops.ReverseSubsequences(
        input_tensor=TensorDesc(data_type, (9, 11, 171 * step)),
        sequence_lengths_tensor=TensorDesc(T.UINT32, (9, 1, 171 * step), (1, 0, 0)),
        axis=1,
    )


def gather(data_type: T, step: int) -> OperatorDesc:
    return ops.Gather(
        input_tensor=TensorDesc(data_type, (19, COLUMNS * step)),
        indices_tensor=TensorDesc(T.INT32, (1, ROWS)),
        axis=0,
        index_dimensions=1,
    )


def unfold(data_type: T, step: int) -> OperatorDesc:
    """Blocks of an odd number in all."""
    return ops.Unfold(
        input_tensor=TensorDesc(data_type, (1, 3, 17, 43)),
        window_sizes=(3, 3),
        strides=(1, 1),
        dilations=(1, 1),
        start_padding=(0, 2),
        end_padding=(0, 0),
    )


DESCS = (slice1, slice_grad, padding, reflection, reversal, gather, unfold)
DOMAINS = {"indices_tensor": indices_around(19), "sequence_lengths_tensor": movement.lengths}


def problem_of(desc: Any, *, packed: bool) -> Problem:
    """A problem with random inputs. One that is not packed has a gap after each row of the output."""
    rng = np.random.default_rng(7)
    inputs = []
    for slot in desc.input_slots():
        tensor = GuardedTensor(slot.tensor, 0)
        values = DOMAINS.get(slot.field.name, any_bits)(rng, slot.tensor.sizes, slot.tensor.data_type)
        own = tuple(slice(0, 1) if step == 0 else slice(None) for step in slot.tensor.effective_strides)
        tensor.view()[...] = values[own]
        inputs.append(tensor)
    (name,) = (spec.name for spec in desc.fields if spec.kind.is_output)
    given = getattr(desc, name)
    sizes = desc.inferred_output_sizes()[0] if given is None else given.sizes
    *_, inner = sizes
    row = inner if packed else inner + 2 | 1  # so that rows start anywhere in a word
    strides = tuple(row * int(np.prod(sizes[axis + 1 : -1])) for axis in range(len(sizes) - 1))
    output = TensorDesc(inputs[0].desc.data_type, sizes, (*strides, 1))
    return Problem(desc.replace(**{name: output}), tuple(inputs), (GuardedTensor(output, 16),))


def run(device: dmlvk.Device, problem: Problem, rule: str, unit: str, constants: dict[str, int]) -> None:
    """Runs the problem by a rule, which is held to give a kernel of such units with such constants."""
    row = type(problem.desc)
    (dispatch,) = lower(problem.desc, device.capabilities, force=rule).dispatches
    assert isinstance(dispatch, Dispatch)
    assert dict(dispatch.kernel.variant) == {"ROWS": str(int(rule == "rows")), "T": unit}
    found = dict(dispatch.kernel.constants)
    assert {name: found[name] for name in constants} == constants
    x = problem.inputs[0]
    assert x is not None
    entry = all_cases()[row]
    outcome = check_problem(device, entry, Variation(Case("", {}), x.desc.data_type, "", rule=rule), problem)
    assert outcome.passed, f"{outcome.detail}\n{problem.desc}"


@pytest.fixture
def many(device: dmlvk.Device, monkeypatch: pytest.MonkeyPatch) -> dmlvk.Device:
    """A device that moves everything as a GPU moves long rows, of which there are many."""
    units, words = copy.unit_items, copy.word_items
    monkeypatch.setattr(device, "capabilities", dataclasses.replace(device.capabilities, is_cpu=False))
    monkeypatch.setattr(copy, "unit_items", lambda bits, count, caps: units(bits, 2**30, caps))
    monkeypatch.setattr(copy, "word_items", lambda row_words, count, caps: words(2**10, 2**30, caps))
    return device


Make = Callable[[T, int], OperatorDesc]


@pytest.mark.parametrize(("make", "packed"), crossed(DESCS, [True, False]))
def test_two_words_an_invocation(many: dmlvk.Device, make: Make, packed: bool) -> None:
    for data_type, unit in ((T.UINT8, "UINT8"), (T.FLOAT16, "UINT16"), (T.INT32, "UINT32")):
        problem = problem_of(make(data_type, 1), packed=packed)
        run(many, problem, "rows", unit, {"ITEMS": 2, "PACKED": int(packed)})


@pytest.mark.parametrize("make", DESCS, ids=lambda make: make.__name__)
def test_several_units_an_invocation(many: dmlvk.Device, make: Make) -> None:
    rule = "elements" if make is unfold else "units"
    for data_type, unit in ((T.UINT8, "UINT8"), (T.FLOAT16, "UINT16"), (T.INT32, "UINT32"), (T.FLOAT64, "BITS64")):
        run(many, problem_of(make(data_type, 1), packed=False), rule, unit, {"ITEMS": 4})
    if make not in (unfold, reflection):  # whose units are elements
        run(many, problem_of(make(T.FLOAT64, 2), packed=True), rule, "BITS128", {"ITEMS": 2})
