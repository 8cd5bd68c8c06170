"""The rules of multi-head attention."""

from __future__ import annotations

from dmlvk.devices.capabilities import SUBGROUPS, Capabilities
from dmlvk.kernels.attention.matrix_tiles import in_place, matrix_shape, parts_pay
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


def _matrices(way: str) -> Condition:
    """Whether subgroups can multiply matrices, and make factors of what they found in this way."""

    def possible(problem: AttentionProblem, caps: Capabilities) -> bool:
        knows = caps.matrix_fragments or way != "fragments"
        can = "matrix_reductions" in caps.features or not in_place(way)
        if not (_halves(problem, caps) and knows and can):
            return False
        found = matrix_shape(problem, caps, way)
        return found is not None and (not in_place(way) or found[1].n == found[1].k)

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


def _are_rows_of_matrices(problem: AttentionProblem, caps: Capabilities) -> bool:
    return matrices_pay(caps, "float16") and problem.rows >= _FEWEST_OF_MATRICES


def _few_rows(problem: AttentionProblem, caps: Capabilities) -> bool:
    """Whether tiles of rows alone would leave processors idle."""
    few = problem.heads * -(-problem.rows // 64) < caps.model.processors
    return not caps.is_cpu and few and problem.keys >= 2 * ATTENTION_SPLIT_KEYS


def _fragment_parts_pay(problem: AttentionProblem, caps: Capabilities) -> bool:
    """Whether matrices whose fragments are known are faster with the keys shared out. Of so few rows that no other rule of
    matrices has them, and where the device's model does not say, wherever processors would be idle."""
    if _are_rows_of_matrices(problem, caps):
        pays = parts_pay(problem, caps, "fragments")
        if pays is not None:
            return pays
    return _few_rows(problem, caps)


def _blocks(problem: AttentionProblem, caps: Capabilities) -> bool:
    return _tiles(problem, caps) and not problem.unpadded and attention_block(problem, caps) is not None


def _parts(possible: Condition) -> Condition:
    """Whether a schedule is possible with the keys shared out."""
    return lambda problem, caps: possible(problem, caps) and not problem.unpadded and problem.keys > 64


ATTENTION = (
    Rule(
        "fragments split",
        when=_fragment_parts_pay,
        possible=_parts(_matrices("fragments")),
        because="few rows and many keys: the keys are shared out, or few workgroups would read them all. H200 (driver 580, "
        "2026-11-30), us so, in one part, of PyTorch: 12 heads of 128 rows and 2048 keys of 64 13.4, 27.2 and 22.2; "
        "8 of 64 rows and 1024 keys 9.4, 15.6 and 13.1; 8 of 256 and 1024 of 128 15.9, 26.6 and 16.9; 16 of 512 and 4096 "
        "49 and 51",
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
        "fragments",
        when=_are_rows_of_matrices,
        possible=_matrices("fragments"),
        because="float16 where it is known where elements of matrices lie, and scores become a factor in place: they never "
        "leave registers. H200 (driver 580, 2026-11-30), us so and of PyTorch: 12 heads of 512 rows of 64 10.2 and 9.3, of "
        "197 7.3 and 7.6, 8 of 1500 29.6 and 20.2, 64 of 2048 218 and 152; 32 of 2048 of 80 141 and 106; 16 of 1024 of 128 "
        "37.5 and 18.8, 32 of 2048 of 256 612 and 233. Where no query sees a later key, 4 heads to one of keys, us so and "
        "by the matrices of a workgroup of VK_NV_cooperative_matrix2: of 128 128 heads of 512 rows 52 and 63, of 2048 "
        "473 and 548, of 130 15.9 and 21.5; of 64 32 of 4096 252 and 253, 128 of 512 34 and 37; of 80 64 of 1024 51 and 61",
    ),
    Rule(
        "reductions split",
        when=_few_rows,
        possible=_parts(_matrices("reductions")),
        because="the first of these where that is not known, but matrices can be reduced along rows",
    ),
    Rule(
        "reductions",
        when=_are_rows_of_matrices,
        possible=_matrices("reductions"),
        because="the same in one part. H200 (driver 580, 2026-11-30), us so, where the loop looked for peaks, and with "
        "fragments: 32 heads of 4096 rows of 128 1,025 and 839, 32 of 2048 of 80 162 and 141",
    ),
    Rule(
        "cooperative split",
        when=_few_rows,
        possible=_parts(_matrices("cooperative")),
        because="the first of these with neither: 113 us",
    ),
    Rule(
        "cooperative",
        when=_are_rows_of_matrices,
        possible=_matrices("cooperative"),
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
