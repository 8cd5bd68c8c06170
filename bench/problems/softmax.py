"""Softmax and its relatives."""

from __future__ import annotations

from typing import Any

import dmlvk
from bench.problems.model import FLOAT16, FLOAT32, FLOATS, Problem, tensors_problem
from dmlvk import TensorDataType, TensorDesc

_SINGLE_PASS = 0.85
"""Share of the copy bandwidth where rows fit on the chip: one read and one write, as a copy has."""
_TWO_PASSES = 0.6
"""Where they do not: two reads and one write."""


def _softmax(
    name: str, data_type: TensorDataType, sizes: tuple[int, ...], axis: int, goal: dict[str, float], *, log: bool = False
) -> Problem:
    def rival(torch: Any, x: Any) -> Any:
        return torch.nn.functional.log_softmax(x, axis) if log else torch.softmax(x, axis)

    row = dmlvk.ActivationLogSoftmax1 if log else dmlvk.ActivationSoftmax1
    tensor = TensorDesc(data_type, sizes)
    return tensors_problem(name, row, (tensor, tensor), rival, goal, axes=(axis,))


def _hardmax(sizes: tuple[int, ...]) -> Problem:
    def rival(torch: Any, x: Any) -> Any:
        return torch.zeros_like(x).scatter_(1, x.argmax(1, keepdim=True), 1.0)

    tensor = TensorDesc(FLOAT32, sizes)
    goal = {"target": 1.0, "copy_target": _SINGLE_PASS}
    return tensors_problem("hardmax", dmlvk.ActivationHardmax1, (tensor, tensor), rival, goal, axes=(1,))


def _lp(data_type: TensorDataType, sizes: tuple[int, ...], axis: int) -> Problem:
    def rival(torch: Any, x: Any) -> Any:
        return torch.nn.functional.normalize(x, 2.0, axis, 1e-5)

    tensor = TensorDesc(data_type, sizes)
    goal = {"target": 1.0, "copy_target": _SINGLE_PASS}
    name = f"L2 normalization, axis {axis}"
    return tensors_problem(name, dmlvk.LpNormalization, (tensor, tensor), rival, goal, axis=axis, epsilon=1e-5, p=2)


def problems() -> list[Problem]:
    """Every problem, in the order of the report."""
    found = []
    for data_type in FLOATS:
        found += [
            _softmax("softmax", data_type, (16384, 8192), 1, {"target": 2.0}),
            _softmax("log-softmax", data_type, (16384, 8192), 1, {"target": 1.0, "copy_target": _SINGLE_PASS}, log=True),
            _softmax("softmax over channels", data_type, (8, 1000, 64, 64), 1, {"target": 1.0, "copy_target": _SINGLE_PASS}),
        ]
    single, double = {"target": 1.0, "copy_target": _SINGLE_PASS}, {"target": 1.0, "copy_target": _TWO_PASSES}
    return [
        *found,
        _softmax("softmax", FLOAT32, (65536, 1000), 1, single),
        _softmax("softmax, attention", FLOAT16, (8, 16, 512, 64), 3, {"target": 1.0}),
        _softmax("softmax, short rows", FLOAT32, (2**20, 64), 1, single),
        _softmax("softmax, short odd rows", FLOAT32, (2**22, 10), 1, {"target": 1.0}),
        _softmax("softmax, axis 0", FLOAT32, (16384, 8192), 0, double),
        _softmax("softmax, long rows", FLOAT32, (1024, 131072), 1, double),
        _softmax("softmax, few long rows", FLOAT32, (4, 2**24), 1, double),
        _softmax("softmax, few long columns", FLOAT32, (2**22, 16), 0, double),
        _hardmax((16384, 8192)),
        _lp(FLOAT32, (16384, 8192), 1),
        _lp(FLOAT16, (64, 512, 56, 56), 1),
    ]
