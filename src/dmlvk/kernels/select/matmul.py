"""The rules of matrix multiplication."""

from __future__ import annotations

from dataclasses import dataclass

from dmlvk.kernels.caps import Capabilities
from dmlvk.kernels.select.rule import Rule, always

GEMM_VECTOR_ROWS = 4
"""Most rows (or columns) of a product that the schedule for vectors takes: it keeps one sum a row in registers."""


@dataclass(frozen=True)
class GemmProblem:
    """What the matrix product rules read: rows and columns of the output, terms of each sum, matrices."""

    rows: int
    columns: int
    depth: int
    batch: int


def _few_rows(problem: GemmProblem, caps: Capabilities) -> bool:
    return min(problem.rows, problem.columns) <= GEMM_VECTOR_ROWS and problem.batch <= caps.workgroup_counts[2]


def _rows(problem: GemmProblem, caps: Capabilities) -> bool:
    return problem.rows <= caps.workgroup_counts[1] and problem.batch <= caps.workgroup_counts[2]


GEMM = (
    Rule(
        "vector",
        when=lambda problem, caps: not caps.is_cpu,
        possible=_few_rows,
        because="at most 4 rows or columns, on a GPU: bound by one read of the other operand; 1x4096 by 4096x4096 on an "
        "H200 in 25 us, 2.7 TB/s (28 us with the columns contiguous)",
    ),
    Rule(
        "tiled",
        when=lambda problem, caps: not caps.is_cpu and problem.rows >= 16 and problem.columns >= 16,
        possible=_rows,
        because="rows and columns enough for tiles in shared memory, on a GPU: on an H200 30 TFLOP/s at 4096^3 and 23 at "
        "1024^3, in float32",
    ),
    Rule(
        "rows",
        when=lambda problem, caps: caps.is_cpu,
        possible=_rows,
        because="each value of B read serves 8 rows, without barriers: on lavapipe 256^3 in 7 ms of one core against 22 "
        "with tiles and 40 with an invocation an output",
    ),
    Rule("naive", when=always, possible=always, because="any product: one invocation an output"),
)
