"""Reductions: along the last axis, the first, all of them, some in between; many short rows and few long ones."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import dmlvk
from bench.problems.model import FLOATS, Problem, nbytes
from dmlvk import ReduceFunction, TensorDataType, TensorDesc

_COPY = 0.85


def _reduce(
    name: str,
    data_type: TensorDataType,
    sizes: tuple[int, ...],
    axes: tuple[int, ...],
    function: ReduceFunction = ReduceFunction.SUM,
    *,
    target: float = 0.0,
    copy_target: float = 0.0,
) -> Problem:
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
    # A sum of numbers around 0 is known to the rounding of its terms: relative to the largest of the sums.
    elements = math.prod(sizes) // math.prod(reduced)
    return Problem(
        f"{name} {data_type.name} {'x'.join(map(str, sizes))}",
        dmlvk.Reduce(function=function, input_tensor=x, output_tensor=y, axes=axes),
        rivals[function],
        target,
        nbytes(x, y),
        copy_target,
        # Of equal elements PyTorch may find another one; the tests compare the places.
        fill={"input_tensor": lambda torch, sizes, kind: _different(torch, sizes, kind)} if argument else {},
        tolerance=(1e-5 if data_type is TensorDataType.FLOAT32 else 2e-3) * max(1.0, elements / 2**24),
    )


def _different(torch: Any, sizes: tuple[int, ...], kind: Any) -> Any:
    """Numbers around 0, and in each row and column one that is the largest by far."""
    x = torch.randn(sizes, dtype=kind)
    rows, columns = sizes
    row = torch.arange(rows)
    x[row, row * 31 % columns] = 1000.0
    return x


def problems() -> list[Problem]:
    """Every problem, in the order of the report."""
    matrix, image = (16384, 8192), (64, 256, 128, 64)
    found = []
    for data_type in FLOATS:
        found += [
            _reduce("row sum", data_type, matrix, (1,), target=1.1),
            _reduce("column sum", data_type, matrix, (0,), copy_target=_COPY),
            _reduce("full sum", data_type, (1 << 28,), (0,), copy_target=_COPY),
            _reduce("arg-max of rows", data_type, matrix, (1,), ReduceFunction.ARGMAX, copy_target=_COPY),
            _reduce("maximum of rows", data_type, matrix, (1,), ReduceFunction.MAX, copy_target=_COPY),
            _reduce("L2 norm of rows", data_type, matrix, (1,), ReduceFunction.L2, copy_target=_COPY),
            _reduce("log-sum-exp of rows", data_type, matrix, (1,), ReduceFunction.LOG_SUM_EXP, copy_target=_COPY),
            _reduce("sum of 2^20 rows", data_type, (1 << 20, 128), (1,), copy_target=_COPY),
            _reduce("sum of 2^24 rows", data_type, (1 << 24, 8), (1,), copy_target=_COPY),
            _reduce("sum of odd rows", data_type, (131071, 1023), (1,), copy_target=_COPY),
            _reduce("sum of 8 rows", data_type, (8, 1 << 24), (1,), copy_target=_COPY),
            _reduce("sum of 3 columns", data_type, (1 << 25, 3), (0,), copy_target=_COPY),
            _reduce("sum over N, H, W", data_type, image, (0, 2, 3), copy_target=_COPY),
            _reduce("sum over C", data_type, image, (1,), copy_target=_COPY),
            _reduce("sum over N, H", data_type, image, (0, 2), copy_target=_COPY),
        ]
    return found
