"""The rules of multi-head attention."""

from __future__ import annotations

import math
from typing import NamedTuple

from dmlvk.devices.capabilities import SUBGROUPS, Capabilities
from dmlvk.kernels.attention.matrix_tiles import matrix_shape, parts_pay
from dmlvk.kernels.attention.problem import AttentionProblem
from dmlvk.kernels.attention.tiles import attention_block, blocks_pay
from dmlvk.kernels.common.cooperative_matrix import cooperative_matrix, matrices_pay
from dmlvk.kernels.common.rule import Condition, Rule, always
from dmlvk.spec.size import is_plain

PARTS_TOGETHER = 16
"""The most parts of the keys whose sums are brought together at once."""
ATTENTION_SPLIT_KEYS = 256
"""Fewest keys that a part of them should have."""


_WIDEST_OF_MATRICES, _WIDEST_OF_TILES = 256, 128
"""The widest heads that the kernels of matrices have, and those that the tiles in float32 are good for."""
_WIDEST_OF_FEW_TILES = 160
"""The widest heads that matrices are good for in tiles of which half of the processors have none."""
_FEWEST_OF_PRODUCTS = 96
"""Queries, and keys, from which on wider ones are products of their own."""
_MOST_HALF_KEYS = 1 << 15
"""Keys of FLOAT16 heads that are products of their own, at most: where all of more weigh as much, FLOAT16 has the weights
with 9 bits or fewer."""
_MOST_SCALE = 2.0**61
"""The kernels of matrices count scores in powers of 2, log2(e) times as large. With this scale a product of two rows of 128
FLOAT16 is below 2^100, and nothing that is finite becomes infinite on the way."""
MOST_MASK_FILTER = 2.0**126
"""What is added to scores so small counts as no more than this there. The sum is that number alone, as with any larger one,
and against another score it is as good as infinite."""


def _halves(problem: AttentionProblem, caps: Capabilities) -> bool:
    """Whether cooperative matrices can be read where the operands lie, and scores stay in range."""
    aligned = problem.bits == 16 and problem.words and not problem.unpadded
    return aligned and problem.heads <= caps.workgroup_counts[1] and abs(problem.scale) <= _MOST_SCALE


def _matrices(*, reductions: bool) -> Condition:
    """Whether subgroups can multiply matrices, and with reductions make factors of what they found."""

    def possible(problem: AttentionProblem, caps: Capabilities) -> bool:
        if not _halves(problem, caps) or (reductions and "matrix_reductions" not in caps.features):
            return False
        found = matrix_shape(problem, caps, reductions=reductions)
        return found is not None and (not reductions or found[1].n == found[1].k)

    return possible


def _tiles(problem: AttentionProblem, caps: Capabilities) -> bool:
    return caps.features >= SUBGROUPS and problem.heads <= caps.workgroup_counts[1]


def _products(problem: AttentionProblem, caps: Capabilities) -> bool:
    """Whether scores may be written, in FLOAT32, as products of up to four dimensions."""
    scores = 4 * problem.heads * problem.group * problem.keys  # of a query; queries come in blocks, where sizes are known
    known = is_plain((problem.heads, problem.group, problem.queries, problem.keys))
    has_room = (scores if known else scores * problem.queries) <= caps.storage_buffer_bytes
    halves = (
        not problem.bias and problem.keys <= _MOST_HALF_KEYS and cooperative_matrix(caps, "float16", "float32") is not None
    )
    return problem.plain and (problem.bits == 32 or halves) and 1 in (problem.batch, problem.group) and has_room


def _products_pay(problem: AttentionProblem, caps: Capabilities) -> bool:
    """Whether there is no kernel of tiles, or none that is good for heads so wide."""
    if caps.is_cpu or not _tiles(problem, caps):
        return problem.bits == 32
    widest = max(problem.head_size, problem.value_size)
    if problem.bits == 16:
        tiles = problem.heads * -(-problem.rows // 64)
        most = _WIDEST_OF_FEW_TILES if 2 * tiles <= caps.model.processors else _WIDEST_OF_MATRICES
        is_wide = widest > most and matrices_pay(caps, "float16")
    else:
        is_wide = widest > _WIDEST_OF_TILES
    return is_wide and min(problem.queries, problem.keys) >= _FEWEST_OF_PRODUCTS


_FEWEST_OF_MATRICES = 16
"""The rows from which on matrices are used for all keys in one part."""


def _few_rows(problem: AttentionProblem, caps: Capabilities) -> bool:
    """Whether tiles of rows alone would leave processors idle."""
    few = problem.heads * -(-problem.rows // 64) < caps.model.processors
    return not caps.is_cpu and few and problem.keys >= 2 * ATTENTION_SPLIT_KEYS


def _matrix_parts_pay(problem: AttentionProblem, caps: Capabilities) -> bool:
    """Whether matrices with reductions are faster with the keys shared out. Of so few rows that no other rule of matrices
    has them, and where the device's model does not say, wherever processors would be idle."""
    if matrices_pay(caps, "float16") and problem.rows >= _FEWEST_OF_MATRICES:
        pays = parts_pay(problem, caps, reductions=True)
        if pays is not None:
            return pays
    return _few_rows(problem, caps)


def _blocks(problem: AttentionProblem, caps: Capabilities) -> bool:
    return _tiles(problem, caps) and not problem.unpadded and attention_block(problem, caps) is not None


def _parts(possible: Condition) -> Condition:
    """Whether a schedule is possible with the keys shared out."""
    return lambda problem, caps: possible(problem, caps) and not problem.unpadded and problem.keys > 64


class WorkgroupShape(NamedTuple):
    """A tile of a workgroup that multiplies matrices as a whole; see ``glsl/attention_workgroup.comp``.

    Attributes:
        invocations: The invocations of the workgroup.
        rows, keys: The rows and keys of a tile.
        widest, narrower: The heads that it is meant for: no wider than the one, so that sums fit registers, and wider than
            the other.
    """

    invocations: int
    rows: int
    keys: int
    widest: int
    narrower: int


WORKGROUP_SHAPES = (
    WorkgroupShape(128, 128, 64, widest=64, narrower=0),
    WorkgroupShape(128, 128, 32, widest=96, narrower=64),
    WorkgroupShape(128, 128, 16, widest=128, narrower=96),
)
"""H200 (driver 580, 2026-11-29), 64 heads of 2048 rows, us by these and by the best other of 128 or 256 invocations, 64 to
256 rows and 16 to 64 keys: of 64 elements 253 and 268, 80 334 and 354, 96 371 and 433, 128 528 and 563."""
_FEWEST_ROWS = 128
"""The fewest queries, and keys, of which what a tile has to do beside its keys is little."""
_FEWEST_TILES = 3
"""The tiles for each processor from which on it pays."""
_NARROW = 80
"""The widest heads of which reductions are as fast wherever all queries see all keys."""
_QUERIES_OF_PADDING = 8
"""The fewest queries for each row that pads a tile, with which it pays. H200 (driver 580, 2026-11-30), 96 heads of 197 rows
of 64 elements, for which tiles have 256, 15.8 us so, 11.4 by reductions."""


def workgroup_shape(problem: AttentionProblem, caps: Capabilities) -> tuple[WorkgroupShape, int] | None:
    """The tile of a workgroup that multiplies matrices as a whole, and the columns of its narrowest matrix; None where no
    shape is possible."""
    head, value = problem.head_size, problem.value_size
    for shape in WORKGROUP_SHAPES:
        for matrix in caps.workgroup_matrices:
            narrow = math.lcm(matrix.n, matrix.k)
            sizes = (shape.rows, matrix.m), (shape.keys, narrow), (head, matrix.k), (value, matrix.n)
            if (
                (matrix.invocations, matrix.operands, matrix.sums) == (shape.invocations, "float16", "float32")
                and not any(size % step for size, step in sizes)
                and shape.narrower < max(head, value) <= shape.widest
            ):
                return shape, narrow
    return None


def _of_workgroups(problem: AttentionProblem, caps: Capabilities) -> bool:
    """Whether a workgroup can multiply matrices as a whole."""
    return (
        _halves(problem, caps)
        and problem.bare
        and "cooperative_matrix2" in caps.features
        and workgroup_shape(problem, caps) is not None
        and problem.heads * problem.group <= caps.workgroup_counts[1]
    )


def _workgroups_pay(problem: AttentionProblem, caps: Capabilities) -> bool:
    """Whether all processors have several tiles of many keys, which reductions do not add up as fast."""
    found = workgroup_shape(problem, caps)
    if found is None or not matrices_pay(caps, "float16"):
        return False
    if problem.plain and max(problem.head_size, problem.value_size) <= _NARROW:
        return False
    shape, _ = found
    row_tiles = -(-problem.queries // shape.rows)
    padding = row_tiles * shape.rows - problem.queries
    if min(problem.queries, problem.keys) < _FEWEST_ROWS or _QUERIES_OF_PADDING * padding > problem.queries:
        return False
    return problem.heads * problem.group * row_tiles >= _FEWEST_TILES * caps.model.processors


ATTENTION = (
    Rule(
        "reductions split",
        when=_matrix_parts_pay,
        possible=_parts(_matrices(reductions=True)),
        because="few rows and many keys: the keys are shared out, or few workgroups would read them all. H200 (driver 580, "
        "2026-11-30), us so, in one part, of PyTorch: 12 heads of 128 rows and 2048 keys of 64 15.6, 28.5 and 22.2; "
        "8 of 64 rows and 1024 keys 11.1, 16.4 and 13.1; 8 of 256 and 1024 of 128 17.4, 26.9 and 16.9; but 12 of 512 "
        "and 512 16.7, 10.9 and 9.1",
    ),
    Rule(
        "products",
        when=_products_pay,
        possible=_products,
        because="float32 where there are no subgroups for tiles, and on a processor: lavapipe, 12 heads of 128 rows of "
        "64, 6.1 ms, where tiles take 11.8. On an H100 tiles take 8.1 us and products 10.8; of 1214 rows 210 and 253, of "
        "64 x 3 heads of 49 rows of 32 8.8 and 17, with a bias 29 and 53; of 8 heads of 1500 rows 183 and 195. And heads "
        "that are too wide for those kernels. H200 (driver 580, 2026-11-29), us so and by the best of them: FLOAT16, one "
        "head of 4096 rows of 512 190 and 3,059 (PyTorch 339), of 1024 25 and 209, 16 of 512 rows of 320 50 and 460, 16 "
        "of 128 of 384 13 and 51; in few tiles, 8 of 256 rows of 192 14.1 and 19.5, of 256 14.7 and 25.9, but 16 of 160 "
        "18.9 and 16.6; FLOAT32, 16 of 1024 of 136 318 and 759, of 160 325 and 819 (PyTorch 378), with a bias 389 and 939, "
        "one of 4096 of 512 794 and 2,825 (PyTorch 922), 32 of 128 of 136 22 and 28, 2 of 64 of 136 7.8 and 6.6",
    ),
    Rule(
        "workgroup",
        when=_workgroups_pay,
        possible=_of_workgroups,
        because="float16 in many tiles, of wide heads or where queries see only keys before them: a workgroup multiplies "
        "matrices as a whole. H200 (driver 580, 2026-11-30), us so and by reductions: 32 heads of 4096 rows of 128 "
        "1,006 and 1,030, of 2048 277 and 270, 16 of 1024 44 and 38, 16 of 4096 of 96 361 and 371, but of 64 32 "
        "heads of 4096 rows 461 and 437, 64 of 2048 244 and 235, 12 of 512 14.6 and 10.8, of 80 32 of 2048 168 and "
        "163. Where no query sees a later key, 4 heads to one of keys: of 128 128 heads of 512 rows 63 and 69, of "
        "2048 550 and 604, of 130 21.5 and 18.9, 32 of 1024 60 and 51; of 64 32 of 4096 254 and 286, 128 of 512 37 "
        "and 43; of 80 64 of 1024 61 and 69",
    ),
    Rule(
        "reductions",
        when=lambda problem, caps: matrices_pay(caps, "float16") and problem.rows >= _FEWEST_OF_MATRICES,
        possible=_matrices(reductions=True),
        because="float16 where matrices can be reduced along rows and become factors in place: scores never leave "
        "registers. H200 (driver 580, 2026-11-30), us so and of PyTorch: 12 heads of 512 rows of 64 10.9 and 9.3, of 197 "
        "7.7 and 7.6, 8 of 1500 33 and 20, 64 of 2048 235 and 152; 16 of 1024 of 128 38 and 19, 16 of 2048 of 256 347 and "
        "107",
    ),
    Rule(
        "cooperative split",
        when=_few_rows,
        possible=_parts(_matrices(reductions=False)),
        because="the first of these without reductions: 113 us",
    ),
    Rule(
        "cooperative",
        when=lambda problem, caps: matrices_pay(caps, "float16") and problem.rows >= _FEWEST_OF_MATRICES,
        possible=_matrices(reductions=False),
        because="float16 where subgroups multiply matrices: scores pass through shared memory only. H200: 176 TFLOP/s where "
        "reductions have 220, and 10 us where they have 7.5",
    ),
    Rule(
        "split",
        when=_few_rows,
        possible=_parts(_tiles),
        because="the same without matrices. H200, one row in 8 x 32 heads, 8 of keys, 4096 keys of 128 in float32: 175 us, "
        "1.5 TB/s (PyTorch 1512)",
    ),
    Rule(
        "blocks",
        when=blocks_pay,
        possible=_blocks,
        because="many rows in float32: an invocation's scores are 8 by 8, for which it reads shared memory two thirds as "
        "often. H200 (2026-11-29), us so, by tiles of step 1, of PyTorch: 64 heads of 2048 rows of 64 1,950, 2,081 and "
        "2,024; 32 of 2048 of 128 1,823, 2,247 and 1,554; 128 of 1024 of 80 1,550, 1,777 and 1,426",
    ),
    Rule(
        "tiles",
        when=always,
        possible=_tiles,
        because="tiles in float32 whose scores never leave the processor: each key and value read once a tile of rows. "
        "H200 (2026-11-29), us so and of PyTorch: 12 heads of 128 rows of 64, 7.1 and 15.6; 96 of 197 44 and 52; 96 of 512 "
        "203 and 203; 20 of 4096 2,481 and 2,549; 96 of 197 of 128 83 and 77",
    ),
    Rule(
        "naive",
        when=always,
        possible=always,
        because="any attention: one invocation an element of the output. H200, 2 x 4 heads of 193 rows and 333 keys of 64: "
        "797 us where tiles take 36",
    ),
)
