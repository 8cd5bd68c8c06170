"""Random bits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import dmlvk
from bench.problems.model import Problem, nbytes
from dmlvk import TensorDataType, TensorDesc
from dmlvk.oracle.random import random_generator

_UINT32 = TensorDataType.UINT32
_ELEMENTS = 2**28
_CHECKED = 2**16
"""Elements at either end that are compared with the oracle."""


def _desc(elements: int) -> dmlvk.RandomGenerator:
    state = TensorDesc(_UINT32, (6,))
    return dmlvk.RandomGenerator(
        input_state_tensor=state, output_tensor=TensorDesc(_UINT32, (elements,)), output_state_tensor=state
    )


def _check(torch: Any, arrays: list[np.ndarray[Any, Any]], outputs: list[Any]) -> float:
    """How many words of both ends, and of the new state, differ from the oracle's. The counter's upper words are zeros."""
    state = arrays[0].view(np.uint32)
    skipped = state.copy()
    skipped[0] += (_ELEMENTS - _CHECKED) // 4
    found, after = (tensor.cpu().numpy().view(np.uint32) for tensor in outputs)
    first, _ = random_generator(_desc(_CHECKED), state)
    last, expected_state = random_generator(_desc(_CHECKED), skipped)
    wrong = [found[:_CHECKED] != first, found[-_CHECKED:] != last, after != expected_state]
    return float(sum(map(np.count_nonzero, wrong)))


def _seed(torch: Any, sizes: tuple[int, ...], kind: Any) -> Any:
    return torch.tensor([1, 0, 0, 0, 1234, 5678], dtype=kind).reshape(sizes)


def _random(name: str, rival: Callable[..., Any]) -> Problem:
    desc = _desc(_ELEMENTS)
    return Problem(
        f"random bits 2^28, against {name}",
        desc,
        rival,
        0.98,
        nbytes(desc.tensor("output_tensor")),
        fill={"input_state_tensor": _seed},
        tolerance=0.0,
        check=_check,
    )


def problems() -> list[Problem]:
    """Every problem, in the order of the report."""
    return [
        _random(
            "torch.randint",
            lambda torch, state: torch.randint(-(2**31), 2**31, (_ELEMENTS,), device="cuda", dtype=torch.int32),
        ),
        _random("torch.rand", lambda torch, state: torch.rand(_ELEMENTS, device="cuda")),
    ]
