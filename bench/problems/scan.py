"""Running sums and products."""

from __future__ import annotations

from typing import Any

import dmlvk
from bench.problems.model import FLOAT16, FLOAT32, FLOATS, Problem, tensors_problem
from dmlvk import TensorDataType, TensorDesc

GOAL = {"target": 0.0, "copy_target": 0.5}
CHUNKS = {"target": 0.0, "copy_target": 0.3}


def _sum(
    name: str, data_type: TensorDataType, sizes: tuple[int, ...], axis: int, goal: dict[str, float] = GOAL, **more: Any
) -> Problem:
    tensor = TensorDesc(data_type, sizes)

    def rival(torch: Any, x: Any) -> Any:
        return torch.cumsum(x, axis, dtype=x.dtype)

    # Sums of standard normal numbers wander off by the square root of the length, and so does the rival's rounding.
    tolerance = 1e-4 if data_type is FLOAT32 else 1e-2
    return tensors_problem(
        name, dmlvk.CumulativeSummation, (tensor, tensor), rival, goal, axis=axis, tolerance=tolerance, **more
    )


def problems() -> list[Problem]:
    """Every problem, in the order of the report."""
    found = []
    for data_type in FLOATS:
        found += [
            _sum("cumulative sum, last axis", data_type, (16384, 8192), 1),
            _sum("cumulative sum, first axis", data_type, (16384, 8192), 0),
            _sum("cumulative sum, short rows", data_type, (2**22, 32), 1),
            _sum("cumulative sum, channels", data_type, (32, 256, 56, 56), 1),
        ]
    tensor = TensorDesc(FLOAT32, (16384, 8192))
    return [
        *found,
        _sum("cumulative sum, one row", FLOAT32, (10**8,), 0, CHUNKS),
        _sum("cumulative sum, few columns", FLOAT32, (2**21, 64), 0, CHUNKS),
        _sum("cumulative sum, odd rows", FLOAT16, (16384, 8191), 1),
        tensors_problem(
            "cumulative product, last axis",
            dmlvk.CumulativeProduct,
            (tensor, tensor),
            lambda torch, x: torch.cumprod(x, 1),
            GOAL,
            axis=1,
            tolerance=1e-2,
            fill={"input_tensor": lambda torch, sizes, kind: 1 + 1e-4 * torch.randn(sizes, dtype=kind)},
        ),
    ]
