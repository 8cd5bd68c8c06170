"""Random bits: Random123's published answers, the state carried on, any layout, and what the bits look like.

The published answers of one block run in ``test_examples.py``, too."""

from __future__ import annotations

import dataclasses
from collections import Counter
from typing import Any

import numpy as np
import pytest
from drawing import draw_sizes, draw_tensor, examples
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

import dmlvk
from dmlvk import InvalidArgumentError, TensorDataType, TensorDesc, eager
from dmlvk.directml.ready_operator import ReadyOperator
from dmlvk.kernels.lowering import possible_rules
from dmlvk.runtime.memory import BufferBinding
from dmlvk.spec.errors import BindingError
from dmlvk.verify.cases import random as cases
from dmlvk.verify.cases.layouts import GuardedTensor
from dmlvk.verify.cases.model import Case
from dmlvk.verify.cases.problem import Variation, build
from dmlvk.verify.check import check_problem

Array = NDArray[Any]
T = TensorDataType
(ENTRY,) = cases.CASES
ALL_BITS = 0xFFFFFFFF


def random_bits(device: dmlvk.Device, state: list[int] | Array, *sizes: int) -> tuple[Array, Array]:
    """The bits, and the state after them."""
    results: tuple[Array, Array] = eager.random_generator(
        np.array(state, np.uint32).reshape(1, 1, 1, 6),
        outputs=("output_state_tensor",),
        output_sizes=(sizes, (1, 1, 1, 6)),
        output_data_types=(T.UINT32, T.UINT32),
        device=device,
    )
    return results[0], results[1].ravel()


@pytest.mark.quick
@pytest.mark.parametrize(
    ("state", "block"),
    [
        ([0] * 6, [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]),
        ([ALL_BITS] * 6, [0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD]),
        (
            [0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344, 0xA4093822, 0x299F31D0],
            [0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1],
        ),
    ],
    ids=["zeros", "ones", "digits of pi"],
)
def test_published_answers(device: dmlvk.Device, state: list[int], block: list[int]) -> None:
    assert random_bits(device, state, 4)[0].tolist() == block


@pytest.mark.parametrize(
    ("counter", "elements", "after"),
    [
        ([0, 0, 0, 0], 1, [1, 0, 0, 0]),
        ([0, 0, 0, 0], 4, [1, 0, 0, 0]),
        ([0, 0, 0, 0], 5, [2, 0, 0, 0]),
        ([ALL_BITS, 7, 0, 0], 4, [0, 8, 0, 0]),
        ([ALL_BITS - 1, ALL_BITS, 0, 0], 12, [1, 0, 1, 0]),
        ([ALL_BITS, ALL_BITS, ALL_BITS, 5], 8, [1, 0, 0, 6]),
        ([ALL_BITS] * 4, 9, [2, 0, 0, 0]),
    ],
)
def test_the_counter_moves_on(device: dmlvk.Device, counter: list[int], elements: int, after: list[int]) -> None:
    _, state = random_bits(device, [*counter, 11, 12], elements)
    assert state.tolist() == [*after, 11, 12]


def test_a_carried_state_continues_the_sequence(device: dmlvk.Device) -> None:
    start = [ALL_BITS - 3, ALL_BITS, ALL_BITS, 1, 2, 3]
    whole, end = random_bits(device, start, 40)
    first, state = random_bits(device, start, 4, 5)
    second, same_end = random_bits(device, state, 20)
    np.testing.assert_array_equal(np.concatenate([first.ravel(), second]), whole)
    assert same_end.tolist() == end.tolist()


def test_bits_look_random(device: dmlvk.Device) -> None:
    """No word twice but for birthdays, and each bit set half of the time, within five standard deviations."""
    bits, _ = random_bits(device, [0, 0, 0, 0, 42, 0], 2**16)
    assert len(Counter(bits.tolist())) > 2**16 - 10
    set_bits = np.unpackbits(bits.view(np.uint8)).reshape(-1, 32).sum(axis=0, dtype=np.int64)
    assert np.abs(set_bits - 2**15).max() < 5 * 2**7
    other, _ = random_bits(device, [0, 0, 0, 0, 43, 0], 2**16)
    assert np.count_nonzero(bits == other) < 5


@examples(20)
@given(data=st.data())
def test_any_layout_and_schedule(device: dmlvk.Device, data: st.DataObject) -> None:
    draw = data.draw
    state = (*(1,) * draw(st.integers(0, 7)), 6)
    outputs = {"output_tensor": draw_sizes(draw, each=st.sampled_from([1, 2, 3, 4, 5, 8, 16, 65, 260]))}
    if draw(st.booleans()):
        outputs["output_state_tensor"] = state
    counter = draw(st.lists(st.sampled_from([0, 7, ALL_BITS - 2, ALL_BITS]), max_size=4))
    case = Case(
        f"drawn #{draw(st.integers(0, 2**32 - 1))}",
        {"input_state_tensor": state},
        outputs=outputs,
        domains={"": cases.counting(*counter)},
    )
    variation = Variation(case, T.UINT32, "drawn")

    def place(kind: T, own: tuple[int, ...], layout: str, turn: int, *, is_output: bool) -> GuardedTensor:
        return draw_tensor(draw, kind, own, is_output=is_output)

    problem = build(ENTRY.operator, variation, place)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(device, "capabilities", dataclasses.replace(device.capabilities, is_cpu=draw(st.booleans())))
        rule = draw(st.sampled_from(possible_rules(problem.desc, device.capabilities)))
        outcome = check_problem(device, ENTRY, dataclasses.replace(variation, rule=rule), problem)
    assert outcome.passed, f"{outcome.variation}: {outcome.detail}\n{problem.desc}"


def desc(state: tuple[int, ...], output_state: tuple[int, ...] | None = None) -> dmlvk.RandomGenerator:
    return dmlvk.RandomGenerator(
        input_state_tensor=TensorDesc(T.UINT32, state),
        output_tensor=TensorDesc(T.UINT32, (7,)),
        output_state_tensor=None if output_state is None else TensorDesc(T.UINT32, output_state),
    )


@pytest.mark.parametrize(
    ("mistake", "field"),
    [
        (desc((1, 5)), "InputStateTensor"),
        (desc((2, 6)), "InputStateTensor"),
        (desc((6, 1)), "InputStateTensor"),
        (desc((1, 6), (6,)), "OutputStateTensor"),
        (desc((6,)).replace(generator_type=1), "Type"),
    ],
)
def test_mistakes_are_refused(device: dmlvk.Device, mistake: dmlvk.RandomGenerator, field: str) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        device.create_operator(mistake)
    assert caught.value.field == field
    assert caught.value.operator == "DML_OPERATOR_RANDOM_GENERATOR"


def test_the_states_may_not_share_their_bytes(device: dmlvk.Device) -> None:
    """Every invocation reads the state while the first ones write the new one."""
    state, output = (BufferBinding(device.create_buffer(size)) for size in (24, 28))
    commands = device.create_command_list()
    with pytest.raises(BindingError):
        ReadyOperator(device, desc((6,), (6,))).record(commands, [state], [output, state])
