"""Running sums and products."""

from __future__ import annotations

from typing import Any

import dmlvk
from dmlvk.spec.enums import TensorDataType
from dmlvk.spec.tensor import TensorDesc
from dmlvk.verify.cases.model import uniform
from dmlvk_bench.problems.data import tiled
from dmlvk_bench.problems.model import FLOAT16, FLOAT32, FLOATS, Problem, tensors_problem
from dmlvk_bench.problems.scale import Scale, Sizes

GOAL = {"target": 0.0, "copy_target": 0.5}
CHUNKS = {"target": 0.0, "copy_target": 0.3}


def _sum(
    scale: Scale,
    name: str,
    data_type: TensorDataType,
    sizes: Sizes,
    axis: int,
    goal: dict[str, float] = GOAL,
    free: tuple[int, ...] = (0,),
) -> Problem:
    sizes = scale.fit(sizes, *free)
    tensor = TensorDesc(data_type, sizes)

    def rival(torch: Any, x: Any) -> Any:
        return torch.cumsum(x, axis, dtype=x.dtype)

    # Sums of standard normal numbers wander off by the square root of the length, and so does the rival's rounding.
    tolerance = 1e-4 if data_type is FLOAT32 else 1e-2
    return tensors_problem(name, dmlvk.CumulativeSummation, (tensor, tensor), rival, goal, axis=axis, tolerance=tolerance)


def problems(scale: Scale) -> list[Problem]:
    """Every problem, in the order of the report."""
    found = []
    for data_type in FLOATS:
        found += [
            _sum(scale, "cumulative sum, last axis", data_type, (16384, 8192), 1),
            _sum(scale, "cumulative sum, first axis", data_type, (16384, 8192), 0),
            _sum(scale, "cumulative sum, short rows", data_type, (2**22, 32), 1),
            _sum(scale, "cumulative sum, channels", data_type, (32, 256, 56, 56), 1, free=(0, 1)),
        ]
    tensor = TensorDesc(FLOAT32, scale.fit((16384, 8192), 0))
    return [
        *found,
        _sum(scale, "cumulative sum, one row", FLOAT32, (10**8,), 0, CHUNKS),
        _sum(scale, "cumulative sum, few columns", FLOAT32, (2**21, 64), 0, CHUNKS),
        _sum(scale, "cumulative sum, odd rows", FLOAT16, (16384, 8191), 1),
        tensors_problem(
            "cumulative product, last axis",
            dmlvk.CumulativeProduct,
            (tensor, tensor),
            lambda torch, x: torch.cumprod(x, 1),
            GOAL,
            axis=1,
            tolerance=1e-2,
            domains={"input_tensor": tiled(uniform(0.9998, 1.0002))},
        ),
    ]
