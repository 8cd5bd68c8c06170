"""The rules of matrix multiplication."""

from __future__ import annotations

from dataclasses import dataclass

from dmlvk.devices.capabilities import SUBGROUPS, Capabilities
from dmlvk.kernels.common.cooperative_matrix import cooperative_matrix, matrices_pay
from dmlvk.kernels.common.cooperative_tile import parted_tile
from dmlvk.kernels.common.rule import Rule, always, choose
from dmlvk.kernels.common.shapes import most_invocations, within_rounds
from dmlvk.kernels.matmul.streams import MATRIX, packed_bytes, streamed_parts, streams_fit, streams_pay
from dmlvk.kernels.matmul.tiles import TiledProduct, parts_pay
from dmlvk.kernels.root_mean_square.rules import PROCESSOR_CACHE, joins_a_product

QUAD = 4
"""Columns, and terms of a sum, that an invocation of the schedule for vectors has at once."""
GEMM_VECTOR_ROWS = 4
"""Most rows (or columns) of a product that the schedule for vectors takes: it keeps one sum a row in registers."""
GEMM_STAGED_ROWS = 8
"""Most rows (or columns) of a product that the staged schedule takes: with more, sums leave the registers, or these leave
room for too few workgroups. H200 (driver 580, 2026-11-29), 16 rows by 16384x16384: 334 us at best, in tiles 296; two teams
of invocations with 8 rows each, which read the same lines, 367, and with 5 of 10 rows 277."""
_STAGED_DEPTH = 256
"""The fewest terms of a sum with which it is faster than tiles: of 256 4.4 us and 6.1, of 128, 32 matrices, 17.7 and
15.5."""
_MOST_KEPT = 1 << 24
"""The bytes of a factor up to which it is packed. Other sizes of the same model may read it as it is, as single tokens of a
language model do, whose weights are the largest: two copies of those leave no room. And they gain least: the kernel as it
was first tried took 35.1 us for 256x4096 of depth 4096, other tiles 38.0, and 19.1 for 64x4096 of 4096, other tiles 19.9."""
_MANY_COLUMNS = 256
"""Columns for each processor with which it has four tiles of few rows, as many as it takes, each of the whole depth."""


@dataclass(frozen=True)
class GemmProblem:
    """A matrix product, as its rules see it: rows and columns of the output, terms of each sum, matrices, whether the
    tensors are FLOAT16, whether a clip with a ScaleBias is fused, whether the factors are BFLOAT16, whether columns of the
    second factor are neighbours of 16 bits in lines that start anywhere, whether all matrices have the same second factor
    and rows of the first in whole words, and whether the second is OWNED_BY_DML."""

    rows: int
    columns: int
    depth: int
    batch: int
    is_half: bool = False
    scales_clip: bool = False
    is_bfloat16: bool = False
    starts_anywhere: bool = False
    may_stream: bool = False
    is_kept: bool = False


@dataclass(frozen=True)
class NormalizedGemmProblem:
    """A product of rows that are normalized first, as its rules see it.

    Attributes:
        product: The product, with a gate of the columns behind it.
        packed: Whether all rows are packed.
        row_bytes: The bytes that make an element of a row.
    """

    product: GemmProblem
    packed: bool
    row_bytes: int


@dataclass(frozen=True)
class GemmNormalizationProblem:
    """A product whose rows are normalized behind it, as its rules see it.

    Attributes:
        product: The product.
        b_along_depth: Whether neighbours of the second factor lie along the depth.
        packed: Whether what is written is packed, and what each column is multiplied with or shifted by.
    """

    product: GemmProblem
    b_along_depth: bool
    packed: bool


def partial_bytes(matrices: int, rows: int, columns: int) -> int:
    """The bytes of the partial sums of one part of a split product: float32, whole quads of columns."""
    return 16 * matrices * rows * -(-columns // 4)


def _few_rows(problem: GemmProblem, caps: Capabilities) -> bool:
    return min(problem.rows, problem.columns) <= GEMM_VECTOR_ROWS and caps.features >= SUBGROUPS


def _staged_rows(problem: GemmProblem, caps: Capabilities) -> bool:
    return min(problem.rows, problem.columns) <= GEMM_STAGED_ROWS and caps.features >= SUBGROUPS


def _splittable(problem: GemmProblem, caps: Capabilities) -> bool:
    orders = (problem.rows, problem.columns), (problem.columns, problem.rows)
    fits = all(2 * partial_bytes(problem.batch, *order) <= caps.storage_buffer_bytes for order in orders)
    return problem.depth > 32 and fits


def _cooperative(problem: GemmProblem, caps: Capabilities) -> bool:
    factors = "bfloat16" if problem.is_bfloat16 else "float16" if problem.is_half or caps.allow_half_precision else ""
    return not problem.scales_clip and cooperative_matrix(caps, factors, "float32") is not None


def _streamed(problem: GemmProblem, caps: Capabilities) -> bool:
    matrix = cooperative_matrix(caps, "float16", "float32")
    is_known = caps.matrix_fragments and matrix is not None and {matrix.m, matrix.n, matrix.k} == {MATRIX}
    fits = packed_bytes(problem.columns, problem.depth) <= caps.storage_buffer_bytes
    return problem.may_stream and not problem.scales_clip and is_known and fits and streams_fit(caps)


def _streams_pay(problem: GemmProblem, caps: Capabilities) -> bool:
    is_small = packed_bytes(problem.columns, problem.depth) <= _MOST_KEPT
    if not (problem.is_kept and is_small and matrices_pay(caps, "float16")):
        return False
    return streams_pay(problem.rows, problem.columns, problem.depth, problem.batch, caps)


def _matrices_pay(problem: GemmProblem, caps: Capabilities) -> bool:
    return matrices_pay(caps, "float16") and problem.columns >= 16 and problem.depth >= 16


def _vectors_pay(problem: GemmProblem, caps: Capabilities) -> bool:
    """Whether few rows are faster without matrices, which read columns in words, wherever they start."""
    if caps.is_cpu or not (problem.starts_anywhere and _matrices_pay(problem, caps) and _cooperative(problem, caps)):
        return not caps.is_cpu
    in_one_part = problem.columns * problem.batch >= _MANY_COLUMNS * caps.model.processors
    return problem.rows <= 2 and not in_one_part


def _parts_pay(problem: GemmProblem, caps: Capabilities, *, merged: bool = False) -> bool:
    """Whether parts of the sums side by side are faster, whichever way round the product is computed. ``merged``: another
    dispatch is there anyway, and adds them."""
    short, long = sorted((problem.rows, problem.columns))
    return parts_pay(TiledProduct(short, long, problem.depth, problem.batch, merged=merged), caps)


def _naive(problem: GemmProblem, caps: Capabilities) -> bool:
    return within_rounds(problem.depth, caps)


def _rows(problem: GemmProblem, caps: Capabilities) -> bool:
    fits = problem.rows <= caps.workgroup_counts[1] and problem.batch <= caps.workgroup_counts[2]
    return fits and within_rounds(-(-problem.depth // QUAD), caps)


GEMM = (
    Rule(
        "vector",
        when=_vectors_pay,
        possible=_few_rows,
        because="at most 4 rows or columns, on a GPU: bound by one read of the other operand; 1 and 4 rows by float32 "
        "16384x16384 on an H200 in 243 and 245 us, 4.4 TB/s (transposed in 253 and 260); 8 rows take three times as long. "
        "Float16 columns in lines that start anywhere, us so and by matrices (H200, driver 580, 2026-11-29): 1 and 4 rows "
        "by 768x50257 41 and 27, 61 and 27, 1 row by 1600x50257 78 and 50, by 4097x8193 23 and 30",
    ),
    Rule(
        "streamed",
        when=_streams_pay,
        possible=_streamed,
        because="FLOAT16 whose second factor is OWNED_BY_DML, as weights are, and laid out for matrices at initialisation: "
        "where tiles are few shared memory passes one factor, not two, and more loads are on their way. H200 (driver 580, "
        "2026-11-30), weights in no cache, us so and by the next rule: 197x3072 of depth 768 9.4 and 12.3, 197x768 of 3072 "
        "11.7 and 15.2, 128x3072 of 768 7.8 and 8.8, 512x3072 of 768 12.8 and 18.0, 1024x768 of 768 9.2 and 11.9, 256x4096 "
        "of 1024 12.8 and 15.5, 2048x1024 of 1024 17.1 and 21.1; but 128x768 of 768 5.9 and 5.6, 1024x3072 of 768 22.6 and "
        "20.6",
    ),
    Rule(
        "cooperative",
        when=_matrices_pay,
        possible=_cooperative,
        because="float16 or bfloat16 factors, or float32 ones that may be rounded, on a device with such matrices: on an "
        "H200 340 TFLOP/s at 4096^3, where tiles have 46 in float32, and 155 at 1024^3; 16x16384 of depth 16384 at 4.2 TB/s",
    ),
    Rule(
        "staged",
        when=lambda problem, caps: not caps.is_cpu and problem.depth >= _STAGED_DEPTH,
        possible=_staged_rows,
        because="at most 8 rows or columns, on a GPU, where matrices do not pay: the other operand is read once, as by "
        "the rule vector, and rows pass through shared memory. H200 (driver 580, 2026-11-29), float32, us so and by "
        "tiles: 8 rows by 16384x16384 256 and 294, transposed 259 and 379, by 4096x14336 62 and 73, 62 and 102, by "
        "768x3072 7.9 and 11.4, 8.3 and 11.8, by 768x768 6.4 and 8.6, by 768x50257 52 and 68; 5 rows by 11008x4096 48 and "
        "55, 52 and 76",
    ),
    Rule(
        "split",
        when=lambda problem, caps: not caps.is_cpu and _parts_pay(problem, caps),
        possible=_splittable,
        because="few tiles and long sums, on a GPU: parts of the sums in parallel; on an H100 128x768 of depth 3072 in 25 "
        "us (40 whole), 197x768 of depth 3072 in 36 (62); on an H200 16x16384 of depth 16384 in 307, 3.5 TB/s",
    ),
    Rule(
        "rows",
        when=lambda problem, caps: caps.is_cpu,
        possible=_rows,
        because="each value of B read serves 8 to 32 rows, without barriers, and reads are of 64 bits where they can be. "
        "lavapipe (Mesa 22.3, two cores, 2026-11-30), 128x768 of depth 768 in 23 ms, transposed in 17; with one column an "
        "invocation and 8 rows, which took a third of the time of tiles, in 105 and 94",
    ),
    Rule(
        "tiled",
        when=always,
        possible=always,
        because="any product, tile by tile through shared memory, by slices of a workgroup where tiles are few: on an H200 "
        "50 TFLOP/s at 4096^3 and at 8192^3, 47 at 64 times 512^3, 41 at 4093^3 and 40 at 1024^3, in float32",
    ),
    Rule("naive", when=always, possible=_naive, because="one invocation an output: what the others are checked against"),
)

GEMM_GATE = (
    Rule(
        "vector",
        when=lambda problem, caps: not caps.is_cpu,
        possible=lambda problem, caps: problem.rows <= GEMM_VECTOR_ROWS,
        because="at most 4 rows, on a GPU: an invocation has columns of both halves, and the gate is the product's end",
    ),
    Rule("apart", when=always, possible=always, because="the product as any other is made, and a chain behind it"),
)
"""The rules of products with a gate."""


def _is_one_dispatch(problem: NormalizedGemmProblem, caps: Capabilities) -> bool:
    fits = problem.product.rows <= GEMM_VECTOR_ROWS and problem.product.depth % QUAD == 0
    return problem.packed and fits and caps.features >= SUBGROUPS


def _is_worth_it(problem: NormalizedGemmProblem, caps: Capabilities) -> bool:
    """Whether rows are read again for all quads in less time than a dispatch before them takes."""
    product = problem.product
    read = -(-product.columns // QUAD) * product.rows * product.depth * problem.row_bytes
    return not caps.is_cpu and joins_a_product(caps, read, PROCESSOR_CACHE)


NORMALIZED_GEMM = (
    Rule(
        "joined",
        when=_is_worth_it,
        possible=_is_one_dispatch,
        because="at most 4 rows, not too many columns, on a GPU: squares are added up beside the products, and quads of a "
        "processor find rows in its cache. H100 (driver 580, 2026-11-27), FLOAT16, a token of 8 layers of the 1B shape 622 "
        "us so and 685 apart, of 6 of the 3B shape 694 and 744, of 4 of the 8B shape 867 and 880; 32,000 logits take 6 to "
        "17 us longer so",
    ),
    Rule("apart", when=always, possible=always, because="a normalization of all rows, then the product of them"),
)
"""The rules of products of rows that are normalized first."""

_MOST_MERGED = 4
"""The most quads of a row that an invocation has: each takes 16 registers."""


def _can_merge(problem: GemmNormalizationProblem, caps: Capabilities) -> bool:
    product = problem.product
    quads = product.columns // QUAD
    fits = product.columns % QUAD == 0 and quads <= _MOST_MERGED * most_invocations(caps)
    return problem.packed and fits and _splittable(product, caps) and caps.features >= SUBGROUPS


def rule_in_parts(product: GemmProblem, caps: Capabilities) -> str:
    """The rule by which a product is made whose parts a normalization adds. What streams in one part has parts of other
    tiles: 197x768 of depth 768 in ViT-B/16, with the normalization, 11.8 to 12.8 us so and 12.7 to 14.0 in parts that
    stream; in a chain of its own 9.6 and 9.3 (H200, driver 580, 2026-11-30)."""
    chosen = choose(GEMM, product, caps).name
    sizes = product.rows, product.columns, product.depth, product.batch
    if chosen == "streamed" and streamed_parts(*sizes, caps)[1] == 1:
        return "cooperative"
    return chosen


def _is_in_parts(problem: GemmNormalizationProblem, caps: Capabilities) -> bool:
    """Whether a product is faster in parts, given that a dispatch which normalizes its rows is there to add them."""
    product = problem.product
    rule = rule_in_parts(product, caps)
    sizes = product.rows, product.columns, product.depth, product.batch
    if rule == "streamed":
        return True
    if rule == "cooperative":
        return parted_tile(*sizes, caps, b_along_depth=problem.b_along_depth, merged=True)[1] > 1
    return rule in ("split", "tiled") and not caps.is_cpu and _parts_pay(product, caps, merged=True)


GEMM_NORMALIZATION = (
    Rule(
        "merged",
        when=_is_in_parts,
        possible=_can_merge,
        because="a product in parts: what adds them has whole rows, and normalizes them; and since it is there anyway, more "
        "products are in parts. H200 (driver 580, 2026-11-29), layers one behind the other, weights in no cache, us so and "
        "apart: FLOAT16 128x768 of depth 768 11.8 and 12.4, of 3072 26.6 and 29.0, 197x768 of 768 12.2 and 14.1, 2048x1024 "
        "of 4096 190 and 190; FLOAT32 128x768 of 768 15.2 and 20.2, of 3072 58.9 and 62.9; of 33 shapes none took longer",
    ),
    Rule("apart", when=always, possible=always, because="the product as any other is made, and a normalization behind it"),
)
"""The rules of products whose rows are normalized behind them."""

GEMM_DOUBLE = (
    Rule(
        "double",
        when=always,
        possible=always,
        because="FLOAT64: tile by tile through shared memory, 16 sums an invocation",
    ),
)
"""The rule of products of FLOAT64."""
