"""Random bits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import dmlvk
from dmlvk.spec.enums import TensorDataType
from dmlvk.spec.tensor import TensorDesc
from dmlvk.verify.cases.model import fixed
from dmlvk.verify.oracle.random import random_generator
from dmlvk_bench.problems.model import Arrays, Problem, nbytes
from dmlvk_bench.problems.scale import Scale

_UINT32 = TensorDataType.UINT32
_CHECKED = 2**16
"""Elements at either end that are compared with the oracle."""
_STATE = fixed(1, 0, 0, 0, 1234, 5678)
"""A counter that has just begun, of 128 bits, and a key."""


def _desc(elements: int) -> dmlvk.RandomGenerator:
    state = TensorDesc(_UINT32, (6,))
    return dmlvk.RandomGenerator(
        input_state_tensor=state, output_tensor=TensorDesc(_UINT32, (elements,)), output_state_tensor=state
    )


def _check(inputs: Arrays, outputs: Arrays) -> float:
    """The number of words at both ends, and of the new state, that differ from the oracle's. The counter's upper words are
    zeros."""
    (state,), (found, after) = inputs, outputs
    checked = min(_CHECKED, found.size)
    skipped = state.copy()
    skipped[0] += (found.size - checked) // 4
    first, _ = random_generator(_desc(checked), state)
    last, expected_state = random_generator(_desc(checked), skipped)
    wrong = [found[:checked] != first, found[-checked:] != last, after != expected_state]
    return float(sum(map(np.count_nonzero, wrong)))


def _random(scale: Scale, name: str, rival: Callable[..., Any]) -> Problem:
    """``rival`` is given torch, how many words and its device."""
    (elements,) = scale.fit((2**28,), 0)
    desc = _desc(elements)
    return Problem(
        f"random bits 2^{elements.bit_length() - 1}, against {name}",
        desc,
        lambda torch, state: rival(torch, elements, state.device),
        0.98,
        nbytes(desc.tensor("output_tensor")),
        domains={"input_state_tensor": _STATE},
        tolerance=0.0,
        check=_check,
    )


def problems(scale: Scale) -> list[Problem]:
    """Every problem, in the order of the report."""
    return [
        _random(
            scale,
            "torch.randint",
            lambda torch, count, device: torch.randint(-(2**31), 2**31, (count,), device=device, dtype=torch.int32),
        ),
        _random(scale, "torch.rand", lambda torch, count, device: torch.rand(count, device=device)),
    ]
