"""The rules of products with weights in blocks, and of rows of such tables."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from dmlvk.devices.capabilities import Capabilities
from dmlvk.kernels.common.cooperative_matrix import cooperative_matrix, matrices_pay
from dmlvk.kernels.common.cooperative_tile import CooperativeTile, cooperative_tile
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
_ROUND = 2
"""Latencies of a round that no other workgroup hides: of its loads and of its barriers."""
_FLAT_ROWS, _FLAT_EACH = 32, 8
"""The rows of tiles up to which each processor has several workgroups, and how many: one has 4 KiB of weights on its way."""
_TILED_ROWS = 32
"""Rows from which on tiles pay: those that invocations sum read all of the input again for every four columns."""
_LEAST_ROUNDS = 2
"""The fewest rounds of a part."""


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


class MatrixParts(NamedTuple):
    """Tiles of matrices: the workgroups that cover the output, into how many parts sums are split, the rounds of each."""

    tile: CooperativeTile
    workgroups: int
    parts: int
    rounds: int


def matrix_parts(rows: int, columns: int, depth: int, caps: Capabilities) -> MatrixParts:
    """The tiles of a product. Those of few rows wait for weights, and take several workgroups on each processor."""
    tile = cooperative_tile(rows, columns, 1, caps, b_along_depth=True)
    workgroups, rounds = tile.tiles(rows, columns), -(-depth // tile.depth)
    wanted = caps.model.workgroups(_FLAT_EACH if tile.rows <= _FLAT_ROWS else 1)
    parts = min(wanted // workgroups, rounds // _LEAST_ROUNDS) if 2 * workgroups <= wanted else 1
    each = -(-rounds // max(parts, 1))
    return MatrixParts(tile, workgroups, -(-rounds // each), each)


def _matrices_are_faster(problem: BlockProblem, caps: Capabilities) -> bool:
    """Whether tiles of matrices, which unpack a weight once for many rows, take less time by the device's model than
    rows that are multiplied one by one. Neither is faster than one read of the weights."""
    sizes = problem.rows, problem.columns, problem.depth, problem.nbytes
    return matrices_pay(caps, "float16") and bool(decided(_are_faster, caps, sizes))


def _are_faster(caps: Capabilities, sizes: tuple[int, int, int, int]) -> bool:
    model, (rows, columns, depth, nbytes) = caps.model, sizes
    each = columns * depth / (model.products_per_microsecond * model.processors)
    read = nbytes / model.bytes_per_microsecond
    by_rows = max(read, each * (rows + _UNPACKED * -(-rows // MOST_ROWS)))
    parts = matrix_parts(rows, columns, depth, caps)
    waves = max(parts.workgroups * parts.parts / (_FLAT_EACH * model.processors), 1)
    waiting = waves * parts.rounds * _ROUND * model.latency_microseconds
    merge = model.dispatch_microseconds if parts.parts > 1 else 0.0
    return max(read / _MATRIX_SPEED, each * _STAGED / _MATRIX_SPEED, waiting) + merge < by_rows


BLOCK_GEMM = (
    Rule(
        "cooperative",
        when=_matrices_are_faster,
        possible=_cooperative,
        because="float16 factors, or float32 ones that may be rounded to it, and so many rows that reading weights would "
        "wait for their products: by the model of an H200 from 6 rows of 58 million weights on; not measured yet",
    ),
    Rule(
        "tiled",
        when=lambda problem, caps: not caps.is_cpu and problem.rows >= _TILED_ROWS,
        possible=always,
        because="many rows that no matrices may multiply, on a GPU: tile by tile, a weight unpacked once for a tile of rows",
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
