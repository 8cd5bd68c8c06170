"""Softmax and its relatives."""

from __future__ import annotations

from typing import Any

import dmlvk
from dmlvk.spec.enums import TensorDataType
from dmlvk.spec.tensor import TensorDesc
from dmlvk_bench.problems.model import FLOAT16, FLOAT32, FLOATS, Problem, tensors_problem
from dmlvk_bench.problems.scale import Scale, Sizes

_SINGLE_PASS = 0.85
"""Share of the copy bandwidth where rows fit on the chip: one read and one write, as a copy has."""
_TWO_PASSES = 0.6
"""Share of the copy bandwidth where rows do not fit on the chip: two reads and one write."""


def _softmax(
    scale: Scale,
    name: str,
    data_type: TensorDataType,
    sizes: Sizes,
    axis: int,
    goal: dict[str, float],
    *,
    log: bool = False,
    free: tuple[int, ...] = (0,),
) -> Problem:
    """``free``: the dimensions that become smaller with the scale."""
    sizes = scale.fit(sizes, *free)

    def rival(torch: Any, x: Any) -> Any:
        return torch.nn.functional.log_softmax(x, axis) if log else torch.softmax(x, axis)

    row = dmlvk.ActivationLogSoftmax1 if log else dmlvk.ActivationSoftmax1
    tensor = TensorDesc(data_type, sizes)
    return tensors_problem(name, row, (tensor, tensor), rival, goal, axes=(axis,))


def _hardmax(scale: Scale, sizes: Sizes) -> Problem:
    sizes = scale.fit(sizes, 0)

    def rival(torch: Any, x: Any) -> Any:
        return torch.zeros_like(x).scatter_(1, x.argmax(1, keepdim=True), 1.0)

    tensor = TensorDesc(FLOAT32, sizes)
    goal = {"target": 1.0, "copy_target": _SINGLE_PASS}
    return tensors_problem("hardmax", dmlvk.ActivationHardmax1, (tensor, tensor), rival, goal, axes=(1,))


def _lp(scale: Scale, data_type: TensorDataType, sizes: Sizes, axis: int) -> Problem:
    sizes = scale.fit(sizes, *((0,) if len(sizes) == 2 else (0, 1)))

    def rival(torch: Any, x: Any) -> Any:
        return torch.nn.functional.normalize(x, 2.0, axis, 1e-5)

    tensor = TensorDesc(data_type, sizes)
    goal = {"target": 1.0, "copy_target": _SINGLE_PASS}
    name = f"L2 normalization, axis {axis}"
    return tensors_problem(name, dmlvk.LpNormalization, (tensor, tensor), rival, goal, axis=axis, epsilon=1e-5, p=2)


def problems(scale: Scale) -> list[Problem]:
    """Every problem, in the order of the report."""
    found = []
    single, double = {"target": 1.0, "copy_target": _SINGLE_PASS}, {"target": 1.0, "copy_target": _TWO_PASSES}
    for data_type in FLOATS:
        found += [
            _softmax(scale, "softmax", data_type, (16384, 8192), 1, {"target": 2.0}),
            _softmax(
                scale, "log-softmax", data_type, (16384, 8192), 1, {"target": 1.0, "copy_target": _SINGLE_PASS}, log=True
            ),
            _softmax(scale, "softmax over channels", data_type, (8, 1000, 64, 64), 1, single, free=(0, 2)),
        ]
        # Rows of a vocabulary, which start on 16-byte words and do not.
        found += [_softmax(scale, "softmax", data_type, (4096, size), 1, {"target": 1.5}) for size in (50000, 50257)]
    return [
        *found,
        _softmax(scale, "softmax", FLOAT32, (65536, 1000), 1, single),
        _softmax(scale, "softmax, attention", FLOAT16, (8, 16, 512, 64), 3, {"target": 1.0}, free=(0, 1, 2)),
        _softmax(scale, "softmax, short rows", FLOAT32, (2**20, 64), 1, single),
        _softmax(scale, "softmax, short odd rows", FLOAT32, (2**22, 10), 1, {"target": 1.0}),
        _softmax(scale, "softmax, axis 0", FLOAT32, (16384, 8192), 0, double, free=(0, 1)),
        _softmax(scale, "softmax, long rows", FLOAT32, (1024, 131072), 1, double),
        _softmax(scale, "softmax, few long rows", FLOAT32, (4, 2**24), 1, double, free=(1,)),
        _softmax(scale, "softmax, few long columns", FLOAT32, (2**22, 16), 0, double),
        _hardmax(scale, (16384, 8192)),
        _lp(scale, FLOAT32, (16384, 8192), 1),
        _lp(scale, FLOAT16, (64, 512, 56, 56), 1),
    ]
