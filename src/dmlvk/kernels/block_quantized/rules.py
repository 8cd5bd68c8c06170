"""The rules of products with weights in blocks, and of rows of such tables."""

from __future__ import annotations

from dataclasses import dataclass

from dmlvk.devices.capabilities import Capabilities
from dmlvk.devices.model import DeviceModel
from dmlvk.kernels.common.cooperative_matrix import cooperative_matrix, matrices_pay
from dmlvk.kernels.common.rule import Rule, always
from dmlvk.spec.size import decided

MOST_ROWS = 8
"""The most rows that an invocation of the schedule for vectors sums."""

_UNPACKED = 2.5
"""Multiply-adds that take as long as the unpacking of a weight, once for each group of rows."""
_STAGED = 5.0
"""The same for a weight that is rounded to float16 and put into shared memory, once for each tile of rows."""
_MATRIX_SPEED = 0.75
"""Share of their time that tiles of matrices unpack: in the rest they wait and multiply."""


@dataclass(frozen=True)
class BlockProblem:
    """A product with weights in blocks, as its rules see it.

    Attributes:
        rows, columns, depth: The rows and columns of the output, the terms of each sum.
        nbytes: The bytes of the packed weights.
        is_half: Whether the tensors are FLOAT16.
        whole: Whether rows of the input are whole words of 16 bytes.
    """

    rows: int
    columns: int
    depth: int
    nbytes: int
    is_half: bool
    whole: bool


@dataclass(frozen=True)
class BlockGatherProblem:
    """Rows of a table in blocks, as their rule sees them: indices, numbers of a row."""

    count: int
    depth: int


def _cooperative(problem: BlockProblem, caps: Capabilities) -> bool:
    allowed = problem.is_half or caps.allow_half_precision
    return allowed and problem.whole and cooperative_matrix(caps, "float16", "float32") is not None


def _matrices_are_faster(problem: BlockProblem, caps: Capabilities) -> bool:
    """Whether tiles of matrices, which unpack a weight once for many rows, take less time by the device's model than
    rows that are multiplied one by one. Neither is faster than one read of the weights."""
    sizes = problem.rows, problem.columns, problem.depth, problem.nbytes
    return matrices_pay(caps, "float16") and bool(decided(_are_faster, caps.model, sizes))


def _are_faster(model: DeviceModel, sizes: tuple[int, int, int, int]) -> bool:
    rows, columns, depth, nbytes = sizes
    each = columns * depth / (model.products_per_microsecond * model.processors)
    read = nbytes / model.bytes_per_microsecond
    by_rows = max(read, each * (rows + _UNPACKED * -(-rows // MOST_ROWS)))
    return max(read, each * _STAGED) / _MATRIX_SPEED < by_rows


BLOCK_GEMM = (
    Rule(
        "cooperative",
        when=_matrices_are_faster,
        possible=_cooperative,
        because="float16 factors, or float32 ones that may be rounded to it, and so many rows that reading weights would "
        "wait for their products: by the model of an H200 from 5 rows on; not measured yet",
    ),
    Rule(
        "vector",
        when=always,
        possible=always,
        because="bound by one read of the weights: invocations side by side load 16 bytes of each of four columns",
    ),
)

BLOCK_GATHER = (
    Rule("eights", when=always, possible=always, because="an invocation has eight codes, whose scale it finds itself"),
)
