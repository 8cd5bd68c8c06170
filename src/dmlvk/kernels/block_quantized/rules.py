"""The rules of products with weights in blocks, and of rows of such tables."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from dmlvk.devices.capabilities import Capabilities
from dmlvk.kernels.block_quantized.manifest import CHUNK
from dmlvk.kernels.common.cooperative_matrix import cooperative_matrix, matrices_pay
from dmlvk.kernels.common.cooperative_tile import CooperativeTile, SecondFactor, cooperative_tile, fastest_parts
from dmlvk.kernels.common.rule import Rule, always, choose
from dmlvk.kernels.common.shapes import most_invocations, power_of_two
from dmlvk.kernels.root_mean_square.rules import DEVICE_CACHE, joins_a_product
from dmlvk.spec.size import decided

MOST_ROWS = 8
"""The most rows that an invocation of the schedule for vectors sums."""

_MULTIPLIED, _UNPACKED = 2.6, 2.5
"""Multiply-adds that take as long as those of a weight for each row, by vectors; and rows that take as long as its
unpacking, once for each group of them."""
_DOT = 3.0
"""The same for each row by dot products: a code is made a byte of four, and multiplied with each digit."""
_STAGED = 13.0
"""The same for a weight that is rounded to float16 and put into shared memory, once for each tile of rows."""
_MATRIX_SPEED = 0.75
"""Share of their time that tiles of matrices unpack: in the rest they wait and multiply."""
_ROUND = 2
"""Latencies of a round that no other workgroup hides: of its loads and of its barriers."""
_FLAT_ROWS, _FLAT_EACH = 32, 8
"""The rows of tiles up to which each processor has several workgroups, and how many: one has 4 KiB of weights on its way."""
_TILED_ROWS = 32
"""Rows from which on tiles pay: those that invocations sum read all of the input again for every four columns."""
_UNPACKING_LOSES = 0.9
"""What tiles of matrices lose by unpacking, beside the time of all products at the device's rate."""
_MOST_UNPACKED = 1 << 28
"""The most bytes of temporary memory that unpacked weights take."""
_LEAST_ROUNDS = 2
"""The fewest rounds of a part."""
STRIP_ROWS, STRIP_DEPTH = (16, 32), 128
"""Rows of a tile of strips, of few and of more; the depth of a round of each of its subgroups."""
_STRIP_COLUMNS, _WIDE_DEEP = (32, 64), 4
"""Columns of a strip; of the wider ones, which are for more rows, so many subgroups should give each processor enough."""
_MOST_DEEP = 8
"""The most subgroups of a strip."""
_STRIP_ROUNDS = 4
"""The fewest rounds of a part of their sums."""
_LEAST_DEEP = (2, 1)
"""The fewest, of tiles of few rows and of more: on an H100 (driver 580, 2026-11-27) 16 rows and 525 million weights in Q4_0
take 142 us by two and 160 by one."""
_STRIPS_EACH = (10, 6)
"""Subgroups on each processor that keep enough loads in flight, and of tiles of more rows, which take more registers."""
_FILLED = (8.0, 12.0)
"""Multiply-adds that take as long as those of a weight in a tile of strips, with its unpacking, by the tile's rows."""
_STRIP_START = 3.5
"""Latencies before the first products and after the last."""
_DOT_LOCAL, _MOST_DOT_LOCAL, _CPU_DOT_LOCAL = 256, 512, 32
"""The invocations of the schedule for dot products where a processor has several workgroups in turns. They share the digits
of a row: about one for each chunk."""
_ALONE_LOCAL, _ALONE_WORDS = (1024, 896), (24, 20)
"""The most invocations of a workgroup that has a processor for itself, and the most words of a quad, without a gate and with
one: more have no registers for what is on its way."""
_CHUNK_INVOCATIONS = CHUNK // 8
"""Neighbours that make the digits of a chunk together."""
_DOT_LANES = 128
"""The most lanes of four columns."""
_DOT_WAVE = 0.25
"""Share of a wave that keeps enough loads in flight."""


@dataclass(frozen=True)
class BlockProblem:
    """A product with weights in blocks, as its rules see it.

    Attributes:
        rows, columns, depth: The rows and columns of the output, the terms of each sum.
        nbytes: The bytes of the packed weights.
        is_half: Whether the tensors are FLOAT16.
        half_factors: Whether factors of FLOAT32 may be rounded to it.
        whole: Whether rows of the input are whole words of 16 bytes.
        totals: The sums of a chunk's numbers of the input that offsets of the format need; 0 without offsets.
        quad_words: The words that four columns of a chunk are on their way to a product: codes, and what makes numbers of
            them.
    """

    rows: int
    columns: int
    depth: int
    nbytes: int
    is_half: bool
    half_factors: bool
    whole: bool
    totals: int
    quad_words: int


@dataclass(frozen=True)
class NormalizedProblem:
    """A product of rows that are normalized first, as its rules see it.

    Attributes:
        product: The product.
        quads: Quads of columns of the output.
        halves: 2 with a gate, whose output has half of the weights' columns, else 1.
        packed: Whether all rows are packed.
        row_bytes: The bytes that make an element of a row.
        bound: The bytes of the largest tensor of weights, as they come or packed.
    """

    product: BlockProblem
    quads: int
    halves: int
    packed: bool
    row_bytes: int
    bound: int


@dataclass(frozen=True)
class BlockGatherProblem:
    """Rows of a table in blocks, as their rule sees them: indices, numbers of a row."""

    count: int
    depth: int


def _cooperative(problem: BlockProblem, caps: Capabilities) -> bool:
    allowed = problem.is_half or problem.half_factors or caps.allow_half_precision
    return allowed and problem.whole and cooperative_matrix(caps, "float16", "float32") is not None


def _strips(problem: BlockProblem, caps: Capabilities) -> bool:
    return (
        _cooperative(problem, caps)
        and caps.matrix_fragments
        and caps.workgroup_invocations >= _MOST_DEEP * caps.subgroup_size
        and strip_parts(problem.rows, problem.columns, problem.depth, caps).shared_memory_bytes <= caps.shared_memory_bytes
    )


class MatrixParts(NamedTuple):
    """Tiles of matrices: the workgroups that cover the output, into how many parts sums are split, the rounds of each."""

    tile: CooperativeTile
    workgroups: int
    parts: int
    rounds: int


def matrix_parts(rows: int, columns: int, depth: int, caps: Capabilities) -> MatrixParts:
    """The tiles of a product. Those of few rows wait for weights, and take several workgroups on each processor."""
    fastest = fastest_parts(rows, columns, depth, 1, caps, SecondFactor.IN_BLOCKS)
    if fastest is not None:
        tile, parts = fastest
        rounds = -(-depth // tile.depth)
        return MatrixParts(tile, tile.tiles(rows, columns), parts, -(-rounds // parts))
    tile = cooperative_tile(rows, columns, 1, caps, b_along_depth=True)
    workgroups, rounds = tile.tiles(rows, columns), -(-depth // tile.depth)
    wanted = caps.model.workgroups(_FLAT_EACH if tile.rows <= _FLAT_ROWS else 1)
    each = -(-rounds // max(min(wanted // workgroups, rounds // _LEAST_ROUNDS), 1))
    return MatrixParts(tile, workgroups, -(-rounds // each), each)


class StripParts(NamedTuple):
    """Strips of columns: the rows of a tile, the columns of a strip, the subgroups that share its depth, the workgroups that
    cover the output, into how many parts sums are split, the rounds of each."""

    rows: int
    columns: int
    deep: int
    workgroups: int
    parts: int
    rounds: int

    @property
    def shared_memory_bytes(self) -> int:
        """The shared memory of a workgroup: the sums of each subgroup, and a word after each row."""
        return self.deep * self.rows * 4 * (self.columns + 4)


def strip_parts(rows: int, columns: int, depth: int, caps: Capabilities) -> StripParts:
    """The strips of a product: as many subgroups as keep enough loads in flight, those of a workgroup first, whose sums need
    no dispatch to be added."""
    tile, width, deep, parts = decided(_strip_shape, caps, (rows, columns, depth))
    rounds = -(-depth // (deep * STRIP_DEPTH))
    each = -(-rounds // parts)
    return StripParts(tile, width, deep, -(-rows // tile) * -(-columns // width), -(-rounds // each), each)


def _strip_shape(caps: Capabilities, sizes: tuple[int, int, int]) -> tuple[int, int, int, int]:
    rows, columns, depth = sizes
    more = rows > STRIP_ROWS[0]
    tile, wanted = STRIP_ROWS[more], caps.model.workgroups(_STRIPS_EACH[more])
    tiles, (narrow, wide) = -(-rows // tile), _STRIP_COLUMNS
    width = wide if more and tiles * -(-columns // wide) * _WIDE_DEEP >= wanted else narrow
    workgroups = tiles * -(-columns // width)
    wished = max(power_of_two(-(-wanted // workgroups)), _LEAST_DEEP[more])
    deep = min(wished, power_of_two(-(-depth // STRIP_DEPTH)), _MOST_DEEP)
    parts = (2 * wanted + workgroups * deep) // (2 * workgroups * deep)
    return tile, width, deep, max(min(parts, depth // (deep * STRIP_DEPTH * _STRIP_ROUNDS)), 1)


class DotShape(NamedTuple):
    """The workgroups of a product by dot products.

    Attributes:
        local: The invocations of each.
        lanes: How many of them share four columns.
        weights_first: Whether weights are asked for before the row that they are multiplied with.
    """

    local: int
    lanes: int
    weights_first: bool = True


def dot_shape(problem: BlockProblem, rows: int, quads: int, halves: int, caps: Capabilities) -> DotShape:
    """The workgroups of some rows of a problem with so many quads of columns of the output, each of 2 halves with a gate."""
    chunks, near = -(-problem.depth // CHUNK), caps.least_subgroup
    if caps.is_cpu:
        return DotShape(_CPU_DOT_LOCAL, near)
    alone = _one_for_each_processor(problem, rows * quads, halves, caps)
    if alone is not None:
        return alone
    local = min(max(_DOT_LOCAL, power_of_two(chunks)), _MOST_DOT_LOCAL, most_invocations(caps))
    to_fill = max(caps.model.invocations(_DOT_WAVE) // (quads * halves * rows), 1)
    return DotShape(local, max(min(power_of_two(to_fill), power_of_two(chunks), _DOT_LANES, local), near))


def _one_for_each_processor(problem: BlockProblem, quads: int, halves: int, caps: Capabilities) -> DotShape | None:
    """Workgroups of which each processor has one, so that it makes digits of the row once. None where they would be too
    large, or nobody knows how many processors there are.

    Measured on an H200 (driver 580, 2026-11-28) with a token's products of the 8B shape in Q4_0, us between timestamps,
    beside two to four workgroups a processor: 9.4 instead of 11.0, 8.2 of 8.7, 24.1 of 25.8, 14.0 of 15.5, while a gate's
    halves were loaded in turns. One workgroup more than there are processors took the third from 24 to 34. With more words
    of a quad it does not pay: with a gate 28.1 of 27.9 in Q4_1, 33 of 28 in Q4_K, 58 of 41 in Q6_K, 62 of 36 in Q8_0;
    without one 10.1 of 11.7, 8.5 of 9.2 and 15.2 of 16.9 in Q4_1, 12.0 of 11.5, 8.7 of 9.2 and 15.5 of 17.1 in Q4_K, 12.7
    of 13.1, 11.5 of 10.2 and 25 of 21 in Q8_0.
    """
    if not caps.model.is_known("processors") or not problem.is_half or problem.quad_words > _ALONE_WORDS[halves - 1]:
        return None
    near = caps.least_subgroup
    most = min(_ALONE_LOCAL[halves - 1], most_invocations(caps))
    teams = -(-quads // caps.model.processors)
    spans = min(most // (teams * near), _DOT_LANES // near)
    if spans < 1:
        return None
    needed = -(-problem.depth // (CHUNK * near))
    rounds = -(-needed // spans)
    lanes = -(-needed // rounds) * near
    return DotShape(teams * lanes, lanes, weights_first=False)


def _dot_products(problem: BlockProblem, caps: Capabilities) -> bool:
    """Whether the device has dot products of bytes, and room for the digits of a row and the sums of subgroups."""
    row = -(-problem.depth // CHUNK) * ((2 if problem.is_half else 3) * CHUNK + 4 + 4 * problem.totals)
    sums = 2 * 16 * max(_ALONE_LOCAL[0] // caps.least_subgroup, 1)
    fits = row + sums <= caps.shared_memory_bytes and caps.least_subgroup >= _CHUNK_INVOCATIONS
    return fits and problem.whole and "integer_dot_product" in caps.features


def _matrices_are_faster(problem: BlockProblem, caps: Capabilities) -> bool:
    """Whether tiles of matrices, which unpack a weight once for many rows, take less time by the device's model than
    rows that are multiplied one by one. Neither is faster than one read of the weights."""
    sizes = problem.rows, problem.columns, problem.depth, problem.nbytes
    return matrices_pay(caps, "float16") and bool(decided(_are_faster, caps, sizes))


def _by_rows(caps: Capabilities, sizes: tuple[int, int, int, int]) -> float:
    """The time of rows that are multiplied one by one."""
    model, (rows, columns, depth, nbytes) = caps.model, sizes
    vectors = _MULTIPLIED * (rows + _UNPACKED * -(-rows // MOST_ROWS))
    each = columns * depth / (model.products_per_microsecond * model.processors)
    has_dot = "integer_dot_product" in caps.features
    return max(nbytes / model.bytes_per_microsecond, each * (_DOT * rows if has_dot else vectors))


def _are_faster(caps: Capabilities, sizes: tuple[int, int, int, int]) -> bool:
    model, (rows, columns, depth, nbytes) = caps.model, sizes
    each = columns * depth / (model.products_per_microsecond * model.processors)
    read = nbytes / model.bytes_per_microsecond
    parts = matrix_parts(rows, columns, depth, caps)
    waves = max(parts.workgroups * parts.parts / (_FLAT_EACH * model.processors), 1)
    waiting = waves * parts.rounds * _ROUND * model.latency_microseconds
    merge = model.dispatch_microseconds if parts.parts > 1 else 0.0
    return max(read / _MATRIX_SPEED, each * _STAGED / _MATRIX_SPEED, waiting) + merge < _by_rows(caps, sizes)


def _strips_are_faster(problem: BlockProblem, caps: Capabilities) -> bool:
    """Whether strips take less time by the device's model than rows one by one. Tiles of matrices are not compared: for up
    to 32 rows they took longer, but for a few products with weights of 8 bits, which took up to a tenth less."""
    sizes = problem.rows, problem.columns, problem.depth, problem.nbytes
    return matrices_pay(caps, "float16") and bool(decided(_are_strips_faster, caps, sizes, problem.is_half))


def _are_strips_faster(caps: Capabilities, sizes: tuple[int, int, int, int], is_half: bool) -> bool:
    model, (rows, columns, depth, nbytes) = caps.model, sizes
    parts = strip_parts(rows, columns, depth, caps)
    products = _FILLED[rows > STRIP_ROWS[0]] * columns * depth / (model.products_per_microsecond * model.processors)
    time = max(nbytes / (_MATRIX_SPEED * model.bytes_per_microsecond), products) + _STRIP_START * model.latency_microseconds
    time += model.dispatch_microseconds * ((parts.parts > 1) + (not is_half))
    return rows <= STRIP_ROWS[1] and time < _by_rows(caps, sizes)


def _unpacked(problem: BlockProblem, caps: Capabilities) -> bool:
    nbytes = (2 if problem.is_half else 4) * problem.columns * (-(-problem.depth // 8) * 8)
    return nbytes <= min(_MOST_UNPACKED, caps.storage_buffer_bytes)


def _unpacking_pays(problem: BlockProblem, caps: Capabilities) -> bool:
    """Whether all weights are unpacked once in less time than tiles of matrices lose by unpacking them again and again."""
    sizes = problem.rows, problem.columns, problem.depth, problem.nbytes
    return (
        (problem.is_half or caps.allow_half_precision)
        and _cooperative(problem, caps)
        and matrices_pay(caps, "float16")
        and bool(decided(_gains, caps, sizes))
    )


def _gains(caps: Capabilities, sizes: tuple[int, int, int, int]) -> bool:
    model, (rows, columns, depth, nbytes) = caps.model, sizes
    if model.half_products_per_microsecond is None:
        return False
    products = rows * columns * depth / (model.half_products_per_microsecond * model.processors)
    unpacking = model.dispatch_microseconds + (nbytes + 2 * columns * depth) / model.bytes_per_microsecond
    return unpacking < _UNPACKING_LOSES * products


BLOCK_GEMM = (
    Rule(
        "unpacked",
        when=_unpacking_pays,
        possible=_unpacked,
        because="so many rows that all weights are unpacked once, to the input's type, and a product of matrices reads them "
        "faster than tiles unpack them again and again. On an H100 (driver 580, 2026-11-26) 59 million weights in Q4_0 take "
        "270 us so and 302 by cooperative for 512 rows, 2.64 and 3.28 ms for 8192; 117 million 494 and 521 us, 5.27 and "
        "6.76 ms; 17 million in Q4_K 221 and 315 us for 2048",
    ),
    Rule(
        "strips",
        when=_strips_are_faster,
        possible=_strips,
        because="up to 32 rows, where it is known which elements of a matrix an invocation has: it fills them with what it "
        "unpacks, which tiles take through shared memory. On an H100 (driver 580, 2026-11-27) 16 rows and 117 million "
        "weights in Q4_0 take 35 us so and 59 by cooperative, 59 million 18 and 31, 17 million 7.6 and 15; 2 and 4 rows and "
        "117 million 34, by dot products 30 and 50; 32 rows 46 and 78. Rows of float32 are rounded to float16 by a dispatch "
        "before: 16 of them and 525 million weights take 142 us, and 323 where each strip rounds them",
    ),
    Rule(
        "cooperative",
        when=_matrices_are_faster,
        possible=_cooperative,
        because="float16 factors, or float32 ones that may be rounded to it, and so many rows that reading weights would "
        "wait for their products. On an H100 (driver 580, 2026-11-25) 4 rows and 59 million weights in Q4_0 take 38 us so, "
        "26 by dot products and 34 by vectors; 16 rows 40 us so, and 100 by vectors; 64 rows with sums of "
        "14336 terms 49 us, in eight parts (2026-11-26)",
    ),
    Rule(
        "dot",
        when=lambda problem, caps: not caps.is_cpu and problem.rows < _TILED_ROWS,
        possible=_dot_products,
        because="few rows: codes and digits of the input are multiplied four at a time, which takes no longer than to "
        "read the weights. On an H100 (driver 580, 2026-11-25) a row and 117 million weights in Q4_0 take 28 us so, "
        "2.4 TB/s, and 36 by vectors; 59 million 17 and 21, 17 million 8.6 and 10; 16 rows of FLOAT32 and 525 million "
        "1.0 and 2.2 ms",
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
        because="on a processor, or without dot products of bytes: bound by one read of the weights and by their unpacking; "
        "invocations side by side load 16 bytes of each of four columns",
    ),
)


def _is_one_dispatch(problem: NormalizedProblem, caps: Capabilities) -> bool:
    return problem.packed and problem.bound <= caps.storage_buffer_bytes and _dot_products(problem.product, caps)


def _is_worth_it(problem: NormalizedProblem, caps: Capabilities) -> bool:
    """Whether all workgroups together read their rows in less time than a dispatch before them takes."""
    product = problem.product
    if caps.is_cpu or choose(BLOCK_GEMM, product, caps).name != "dot":
        return False
    return bool(decided(_reads_in_time, caps, (product, problem.quads, problem.halves, problem.row_bytes)))


def _reads_in_time(caps: Capabilities, sizes: tuple[BlockProblem, int, int, int]) -> bool:
    product, quads, halves, row_bytes = sizes
    shape = dot_shape(product, product.rows, quads, halves, caps)
    workgroups = product.rows * -(-quads * shape.lanes // shape.local)
    return joins_a_product(caps, workgroups * product.depth * row_bytes, DEVICE_CACHE)


NORMALIZED_BLOCK_GEMM = (
    Rule(
        "joined",
        when=_is_worth_it,
        possible=_is_one_dispatch,
        because="each workgroup of a product by dot products reads its row as a whole, and finds its mean square on the "
        "way. On an H100 (driver 580, 2026-11-26) a token of 16 layers of the 1B shape in Q4_0 takes 758 us so, 851 apart, "
        "of 4 of the 8B shape 387 and 403; four sequences of 4 layers of the 1B shape 325 and 337",
    ),
    Rule("apart", when=always, possible=always, because="a normalization of all rows, then the product of them"),
)

BLOCK_GATHER = (
    Rule("eights", when=always, possible=always, because="an invocation has eight codes, whose scale it finds itself"),
)
