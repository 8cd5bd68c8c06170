"""Reductions: along the last axis, the first, all of them, some in between; many short rows and few long ones."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

import dmlvk
from dmlvk.spec.enums import ReduceFunction, TensorDataType
from dmlvk.spec.tensor import TensorDesc
from dmlvk.verify.cases.model import Array, uniform
from dmlvk_bench.problems.data import ordinary, tiled
from dmlvk_bench.problems.model import FLOATS, Problem, nbytes
from dmlvk_bench.problems.scale import Scale, Sizes

_COPY = 0.85
_PARTS = tiled(uniform(2**-14, 2**-13))
"""The terms of a sum of 2^28 numbers: float16 holds the sum, and it is known to more than the rounding of its terms."""


def _reduce(
    scale: Scale,
    name: str,
    data_type: TensorDataType,
    sizes: Sizes,
    axes: tuple[int, ...],
    function: ReduceFunction = ReduceFunction.SUM,
    *,
    target: float = 0.0,
    copy_target: float = 0.0,
    free: tuple[int, ...] = (0,),
) -> Problem:
    """``free``: the dimensions that become smaller with the scale."""
    sizes = scale.fit(sizes, *free)
    x = TensorDesc(data_type, sizes)
    reduced = tuple(1 if axis in axes else size for axis, size in enumerate(sizes))
    argument = function in (ReduceFunction.ARGMAX, ReduceFunction.ARGMIN)
    y = TensorDesc(TensorDataType.UINT32 if argument else data_type, reduced)
    rivals: dict[ReduceFunction, Callable[..., Any]] = {
        ReduceFunction.SUM: lambda torch, x: x.sum(axes, keepdim=True),
        ReduceFunction.MAX: lambda torch, x: x.amax(axes, keepdim=True),
        ReduceFunction.L2: lambda torch, x: x.norm(dim=axes, keepdim=True),
        ReduceFunction.LOG_SUM_EXP: lambda torch, x: x.logsumexp(axes, keepdim=True),
        ReduceFunction.ARGMAX: lambda torch, x: x.argmax(axes[0], keepdim=True),
    }
    # Of equal elements PyTorch may find another one; the tests compare the places.
    domain = _peaks if argument else _PARTS if y.element_count == 1 else ordinary
    # A sum of numbers around 0 is known to the rounding of its terms: relative to the largest of the sums.
    elements = 1 if domain is _PARTS else math.prod(sizes) // math.prod(reduced)
    return Problem(
        f"{name} {data_type.name} {'x'.join(map(str, sizes))}",
        dmlvk.Reduce(function=function, input_tensor=x, output_tensor=y, axes=axes),
        rivals[function],
        target,
        nbytes(x, y),
        copy_target,
        domains={"input_tensor": domain},
        tolerance=(1e-5 if data_type is TensorDataType.FLOAT32 else 2e-3) * max(1.0, elements / 2**24),
    )


def _peaks(rng: np.random.Generator, sizes: Sizes, data_type: TensorDataType) -> Array:
    """Numbers around 0, and in each row one that is the largest by far."""
    x = ordinary(rng, sizes, data_type)
    rows, columns = sizes
    row = np.arange(rows)
    x[row, row * 31 % columns] = 1000.0
    return x


def problems(scale: Scale) -> list[Problem]:
    """Every problem, in the order of the report."""
    matrix, image = (16384, 8192), (64, 256, 128, 64)
    found = []
    for data_type in FLOATS:
        found += [
            _reduce(scale, "row sum", data_type, matrix, (1,), target=1.1),
            _reduce(scale, "column sum", data_type, matrix, (0,), copy_target=_COPY, free=(1, 0)),
            _reduce(scale, "full sum", data_type, (1 << 28,), (0,), copy_target=_COPY),
            _reduce(scale, "maximum of all", data_type, (1 << 28,), (0,), ReduceFunction.MAX, target=1.0),
            _reduce(scale, "arg-max of rows", data_type, matrix, (1,), ReduceFunction.ARGMAX, copy_target=_COPY),
            _reduce(scale, "maximum of rows", data_type, matrix, (1,), ReduceFunction.MAX, copy_target=_COPY),
            _reduce(scale, "L2 norm of rows", data_type, matrix, (1,), ReduceFunction.L2, copy_target=_COPY),
            _reduce(scale, "log-sum-exp of rows", data_type, matrix, (1,), ReduceFunction.LOG_SUM_EXP, copy_target=_COPY),
            _reduce(scale, "sum of 2^20 rows", data_type, (1 << 20, 128), (1,), copy_target=_COPY),
            _reduce(scale, "sum of 2^24 rows", data_type, (1 << 24, 8), (1,), copy_target=_COPY),
            _reduce(scale, "sum of odd rows", data_type, (131071, 1023), (1,), copy_target=_COPY),
            _reduce(scale, "sum of 8 rows", data_type, (8, 1 << 24), (1,), copy_target=_COPY, free=(1,)),
            _reduce(scale, "sum of 3 columns", data_type, (1 << 25, 3), (0,), copy_target=_COPY),
            _reduce(scale, "sum over N, H, W", data_type, image, (0, 2, 3), copy_target=_COPY, free=(0, 1)),
            _reduce(scale, "sum over C", data_type, image, (1,), copy_target=_COPY, free=(0, 1)),
            _reduce(scale, "sum over N, H", data_type, image, (0, 2), copy_target=_COPY, free=(0, 1)),
        ]
    return found
