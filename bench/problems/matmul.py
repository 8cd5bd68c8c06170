"""Matrix products."""

from __future__ import annotations

import math
from typing import Any

import dmlvk
from bench.problems.model import FLOAT16, FLOAT32, FLOATS, Problem, nbytes
from dmlvk import MatrixTransform, TensorDataType, TensorDesc


def _product(
    data_type: TensorDataType,
    rows: int,
    depth: int,
    columns: int,
    target: float,
    *,
    copy_target: float = 0.0,
    batch: int = 1,
    transposed: bool = False,
) -> Problem:
    """A product whose B is {columns, depth} where it is transposed."""

    def rival(torch: Any, a: Any, b: Any) -> Any:
        return a @ (b.transpose(-1, -2) if transposed else b)

    leading = (batch,) * (batch > 1)
    sizes = (rows, depth), (columns, depth) if transposed else (depth, columns), (rows, columns)
    a, b, y = (TensorDesc(data_type, (*leading, *matrix)) for matrix in sizes)
    desc = dmlvk.Gemm(a_tensor=a, b_tensor=b, output_tensor=y, trans_b=MatrixTransform(int(transposed)))
    return Problem(
        f"GEMM{' B transposed' * transposed} depth {depth} {data_type.name} {'x'.join(map(str, y.sizes))}",
        desc,
        rival,
        target,
        copy_target=copy_target,
        bytes_moved=nbytes(a, b, y),
        operations=2 * math.prod((batch, rows, depth, columns)),
        tolerance=1e-3 if data_type == FLOAT16 else 1e-5,
    )


def problems() -> list[Problem]:
    """Every problem, in the order of the report."""
    large = 16384
    found = [
        _product(FLOAT32, 4096, 4096, 4096, 0.9),
        _product(FLOAT32, 4096, 4096, 4096, 0.9, transposed=True),
        _product(FLOAT32, 8192, 8192, 8192, 0.9),
        _product(FLOAT32, 4093, 4093, 4093, 0.85),
        _product(FLOAT32, 1024, 1024, 1024, 0.9),
        _product(FLOAT32, 512, 512, 512, 0.9, batch=64),
        _product(FLOAT32, 32, 32, 32, 0.9, batch=4096),
        _product(FLOAT32, 256, large, 256, 0.9),
        _product(FLOAT32, 128, 768, 3072, 0.9),
        _product(FLOAT16, 4096, 4096, 4096, 0.6),
        _product(FLOAT16, 8192, 8192, 8192, 0.6),
        _product(FLOAT16, 1024, 1024, 1024, 0.7),
    ]
    for data_type in FLOATS:
        for rows in (1, 4, 8, 16):
            for transposed in (False, True):
                found.append(_product(data_type, rows, large, large, 0.9, copy_target=0.9, transposed=transposed))
        found.append(_product(data_type, large, large, 1, 0.9, copy_target=0.9))
    return found
