"""Recurrent networks of more steps than the host prepares dispatches for: a dispatch takes a block of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import dmlvk
from dmlvk.kernels.lowering import explain, lower
from dmlvk.kernels.recurrent import lowering as recurrent

Array = npt.NDArray[Any]
DIRECTIONS = dmlvk.RecurrentNetworkDirection
GATES = {"rnn": 1, "gru": 3, "lstm": 4}
FUNCTIONS = {"rnn": 1, "gru": 2, "lstm": 3}


def network(
    device: dmlvk.Device, name: str, direction: Any, data_type: Any = np.float32, lengths: Array | None = None, **more: Any
) -> tuple[Array, ...]:
    """21 steps of 2 sequences of 5 numbers, 36 units: all outputs."""
    rng = np.random.default_rng(3)
    directions = 2 if direction == DIRECTIONS.BIDIRECTIONAL else 1

    def numbers(*sizes: int) -> Array:
        return rng.uniform(-0.2, 0.2, sizes).astype(data_type)

    rows = GATES[name] * 36
    operands = [numbers(1, 21, 2, 5), numbers(1, directions, rows, 5), numbers(1, directions, rows, 36)]
    state = {"hidden_init_tensor": numbers(1, directions, 2, 36)}
    if lengths is not None:
        state["sequence_lengths_tensor"] = lengths
    outputs = ["output_sequence_tensor", "output_single_tensor"] + ["output_cell_single_tensor"] * (name == "lstm")
    activations = (dmlvk.ActivationTanh(),) * FUNCTIONS[name] * directions
    found = getattr(dmlvk.eager, name)(
        *operands, **state, **more, direction=direction, activation_descs=activations, outputs=outputs, device=device
    )
    return tuple(map(np.asarray, found))


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> dmlvk.Device:
    """A device for 20 launches, with blocks of 5 steps at most."""
    monkeypatch.setattr(recurrent, "most_steps", lambda problem, caps, resident: 5)
    return dmlvk.Device(max_launches=20)


KINDS: Any = {
    "rnn": ("rnn", {}),
    "lstm": ("lstm", {}),
    "gru": ("gru", {"linear_before_reset": True}),
    "gru of two products": ("gru", {}),
}


@pytest.mark.parametrize(
    ("kind", "resident", "is_divided"),
    [
        ("lstm", True, False),
        ("gru of two products", True, True),
        ("rnn", False, False),
        ("lstm", False, True),
        ("gru", False, True),
        ("gru of two products", False, False),
    ],
)
def test_blocks_of_steps_give_what_steps_give(
    few: dmlvk.Device, monkeypatch: pytest.MonkeyPatch, kind: str, resident: bool, is_divided: bool
) -> None:
    if not resident:
        monkeypatch.setattr("dmlvk.kernels.recurrent.rules.resident_shape", lambda problem, caps: None)
    if is_divided:
        monkeypatch.setattr(recurrent, "projected_steps", lambda problem, caps: 8)
    name, more = KINDS[kind]
    before = few.dispatches
    direction = DIRECTIONS.BIDIRECTIONAL if is_divided else DIRECTIONS.BACKWARD
    found = network(few, name, direction, **more)
    assert few.dispatches - before < 20
    for one, other in zip(found, network(dmlvk.Device(), name, direction, **more), strict=True):
        np.testing.assert_allclose(one, other, rtol=0, atol=2e-6)


def test_sequences_of_their_own_lengths(few: dmlvk.Device) -> None:
    lengths = np.array([13, 0], np.uint32).reshape(1, 1, 1, 2)
    found = network(few, "rnn", DIRECTIONS.BIDIRECTIONAL, lengths=lengths)
    for one, other in zip(found, network(dmlvk.Device(), "rnn", DIRECTIONS.BIDIRECTIONAL, lengths=lengths), strict=True):
        np.testing.assert_allclose(one, other, rtol=0, atol=2e-6)


def _desc(steps: int, hidden: int) -> dmlvk.Lstm:
    def tensor(*sizes: int) -> dmlvk.TensorDesc:
        return dmlvk.TensorDesc(dmlvk.TensorDataType.FLOAT32, sizes)

    return dmlvk.Lstm(
        input_tensor=tensor(1, steps, 1, 4),
        weight_tensor=tensor(1, 1, 4 * hidden, 4),
        recurrence_tensor=tensor(1, 1, 4 * hidden, hidden),
        output_single_tensor=tensor(1, 1, 1, hidden),
        activation_descs=(dmlvk.ActivationTanh(),) * 3,
    )


@pytest.mark.parametrize(("hidden", "rule", "most"), [(24, "whole", 2000), (300, "block", 16384)])
def test_a_million_steps_are_few_launches(hidden: int, rule: str, most: int) -> None:
    """Of a CPU, whose driver ends long loops. 128 MiB hold the products of a part of them only."""
    caps = dmlvk.Device().capabilities
    desc = _desc(10**6, hidden)
    assert next(found.name for found, holds in explain(desc, caps) if holds) == rule
    assert len(lower(desc, caps).dispatches) < most
