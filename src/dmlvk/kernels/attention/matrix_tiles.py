"""Tiles of attention by matrices of subgroups: the shapes that a workgroup may cover, and which is taken.

A ``way`` is one of ``glsl/attention_cooperative.comp``: "fragments" or "reductions", of which scores stay where they are, or
"cooperative"."""

from __future__ import annotations

import math
from typing import NamedTuple

from dmlvk.devices.capabilities import Capabilities, CooperativeMatrix
from dmlvk.kernels.attention.problem import AttentionProblem
from dmlvk.kernels.common.cooperative_matrix import cooperative_matrix
from dmlvk.spec.size import decided

_Fields = tuple[int, int, int, int, int, int, int]
"""Heads, rows, keys, those that a row sees on average, the elements of a head of keys and of values, and a bias' bytes."""
_CACHED = 1 << 25
"""Bytes of a bias that come from a cache. H200, whose cache holds 50 MiB."""


class Pace(NamedTuple):
    """The microseconds of a workgroup.

    Attributes:
        start: To start and to end.
        tile: For a tile of keys.
        wide: For 64 elements of a head in it.
    """

    start: float
    tile: float
    wide: float

    def microseconds(self, tiles: float, head: int) -> float:
        """What so many tiles of keys take."""
        return self.start + tiles * (self.tile + self.wide * head / 64)


class Paces(NamedTuple):
    """What a workgroup takes that has a processor for itself, and one of several.

    Attributes:
        alone, shared: The one and the other.
        at_once: The workgroups that a processor has at once: those of the next round wait for all of them.
        biased: The times as long that they take with a bias from a cache, and with one from memory.
    """

    alone: Pace
    shared: Pace
    at_once: int
    biased: tuple[float, float] = (1.12, 1.2)


class CooperativeShape(NamedTuple):
    """The cover of a tile by subgroups that multiply matrices; see ``glsl/attention_cooperative.comp``.

    Attributes:
        subgroups: The subgroups of a workgroup.
        blocks: Rows of matrices that each has.
        keys: The keys of a tile.
        widest, narrower: The heads that it is meant for: no wider than the one, and wider than the other. A subgroup's
            registers must hold the sums of its rows.
        held: Columns of queries that stay in matrices, where a head has as many; the others are in shared memory.
        together: Columns of matrices whose scores are made at once, where they stay in place.
        biased: Whether it is meant for scores with a bias, too.
        paces: What a workgroup takes; None where it was not measured.
    """

    subgroups: int
    blocks: int
    keys: int
    widest: int = 128
    narrower: int = 0
    held: int = 256
    together: int = 1
    biased: bool = True
    paces: Paces | None = None

    def sets(self, matrix: CooperativeMatrix, head: int, value: int, room: int, *, in_place: bool, bias: bool) -> int:
        """The tiles of keys and values that so many bytes of shared memory have at a time: two where there is room, which
        spare every other barrier. H200 (driver 580, 2026-11-30), us so and with one, 12 heads of 512 rows of 64 elements
        10.8 and 10.8, 32 of 4096 430 and 474, 8 of 1500 32.3 and 32.9."""
        two = self.shared_memory_bytes(matrix, head, value, in_place=in_place, bias=bias, sets=2)
        return 2 if two <= room else 1

    def shared_memory_bytes(
        self, matrix: CooperativeMatrix, head: int, value: int, *, in_place: bool, bias: bool = False, sets: int = 1
    ) -> int:
        """The shared memory of a workgroup, with heads of whole matrices, and so many tiles of keys and values."""
        rows = self.subgroups * self.blocks * matrix.m
        columns = min(self.keys, 32) if in_place else self.keys
        tiles, scores = sets * self.keys * (head // 8 + 1 + value // 8 + 1), rows * (columns // 4 + 1)
        words = max(tiles, scores) if in_place else tiles + scores
        if bias:
            words += rows * (self.keys // 8 + 1)
        if self.held < head:
            words += rows * ((head - self.held) // 8 + 1)
        return 16 * words + (0 if in_place else 4 * rows)


_LATE_BIAS = 1.32, 1.6
"""Of shapes with two blocks, which have no registers to ask for a tile's bias before the one before it has its weights. H200
(driver 580, 2026-11-30): with these factors the chosen one of four shapes was the fastest of 16 problems with a bias, and of
another one 0.3 % slower."""
_BLOCKS_OF_TWO = Paces(alone=Pace(3.45, 0.02, 1.091), shared=Pace(1.99, 0.084, 0.786), at_once=2)
_TWO_OF_HALF_THE_KEYS = Paces(alone=Pace(2.9, 0.052, 0.56), shared=Pace(1.75, 0.126, 0.315), at_once=2, biased=_LATE_BIAS)
_TWO_OF_WIDE_HEADS = Paces(alone=Pace(4.94, 0.1, 0.488), shared=Pace(4.56, 0.095, 0.335), at_once=2, biased=_LATE_BIAS)
_EIGHT_SUBGROUPS = Paces(alone=Pace(2.66, 0.211, 0.949), shared=Pace(2.66, 0.211, 0.949), at_once=1)
_FOUR_SUBGROUPS = Paces(alone=Pace(1.94, 0.027, 0.735), shared=Pace(1.5, 0.087, 0.531), at_once=3)
_HALF_THE_KEYS = Paces(alone=Pace(1.95, 0.069, 0.359), shared=Pace(0.89, 0.041, 0.272), at_once=3)
"""H200 (driver 580, 2026-11-30), fitted to 95 ways of 20 problems of 8 to 128 heads with 128 to 4096 rows and 77 to 4096
keys, of 40 to 128 elements, within 8 % (root of the mean square). Of the ways of 30 problems without a bias, 7 of them
causal, the one that is chosen took 0.4 % longer than the fastest, geometric mean, and 5 % at most."""
ATTENTION_SHAPES = {
    "fragments": (
        CooperativeShape(4, 2, 64, widest=80, biased=False, paces=_BLOCKS_OF_TWO),
        CooperativeShape(4, 2, 32, widest=96, together=2, paces=_TWO_OF_HALF_THE_KEYS),
        CooperativeShape(4, 2, 32, narrower=96, held=32, together=2, biased=False, paces=_TWO_OF_WIDE_HEADS),
        CooperativeShape(4, 2, 32, narrower=96, held=64, together=2, paces=_TWO_OF_WIDE_HEADS),
        CooperativeShape(8, 1, 64, paces=_EIGHT_SUBGROUPS),
        CooperativeShape(8, 1, 64, narrower=128, widest=160, together=2),
        CooperativeShape(4, 1, 64, paces=_FOUR_SUBGROUPS),
        CooperativeShape(4, 1, 32, paces=_HALF_THE_KEYS),
        CooperativeShape(4, 1, 32, narrower=128, widest=160),
        CooperativeShape(4, 1, 16, narrower=160, widest=192),
        CooperativeShape(8, 1, 16, narrower=192, widest=256, held=160),
        CooperativeShape(4, 1, 16, narrower=192, widest=256, held=128),
    ),
    "reductions": (
        CooperativeShape(4, 2, 64, widest=64),
        CooperativeShape(4, 2, 32, narrower=64, widest=96),
        CooperativeShape(8, 1, 64),
        CooperativeShape(4, 1, 64),
        CooperativeShape(4, 1, 32, widest=160),
        CooperativeShape(4, 1, 16, narrower=160, widest=192),
        CooperativeShape(4, 1, 16, narrower=192, widest=256, held=64),
    ),
    "cooperative": (
        CooperativeShape(4, 2, 32),
        CooperativeShape(4, 1, 64),
        CooperativeShape(2, 1, 64),
        CooperativeShape(4, 1, 32),
        CooperativeShape(2, 1, 32),
    ),
}
"""The shapes of each way; those that were not measured from the one with most rows to that with the fewest. H200 (driver
580, 2026-11-30), us by subgroups and keys, without fragments: of 160 elements 16 heads of 2048 rows 178 with 8 and 64, 198
with 8 and 32, 195 with 4 and 16, and of 256 rows 17.4 with 8 and 64, 13.9 with 4 and 32 or 16; of 192 16 of 2048 225 with 4
and 16, 248 with 4 and 32, 234 with 8 and 32, and 8 of 256 16.0, 19.2 and 21.5; of 256 16 of 2048 347 with 4 and 16, 405 with
8 and 32, and of 512 36 and 57. With fragments, 16 of 2048: 169, 223 and 328 (of 256 with half of the columns held, 338
with a quarter); 32 of 256 612 with 8 and 16, 648 with 4."""
_MERGE_START = 0.7
"""The microseconds of a dispatch that brings parts together, beside its start and what it reads: H200 (driver 580,
2026-11-30), fitted to 67 ways of 12 problems in 2 to 64 parts, within 10 %. With fragments three of four problems are shared
out as the fastest of 1, 2, 4 and 8 parts has it, and 8 heads of 64 rows and 1024 keys in 16 (8 take 9.4 us)."""
_PARTS = (2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)


def in_place(way: str) -> bool:
    """Whether scores stay where they are."""
    return way != "cooperative"


def whole_matrices(size: int, matrix: CooperativeMatrix) -> int:
    """A head's size, rounded up to the sizes that the matrix kernel has."""
    whole = math.lcm(matrix.n, matrix.k, 8)
    return -(-size // whole) * whole


def _fitting(problem: AttentionProblem, caps: Capabilities, way: str) -> tuple[CooperativeMatrix, tuple[int, ...]] | None:
    """The matrices to multiply, and the shapes that are meant for such heads and that the device has room for, as places in
    ``ATTENTION_SHAPES``; None where there is none."""
    matrix = cooperative_matrix(caps, "float16", "float32")
    if matrix is None:
        return None
    head, value = whole_matrices(problem.head_size, matrix), whole_matrices(problem.value_size, matrix)
    fitting = tuple(
        number
        for number, shape in enumerate(ATTENTION_SHAPES[way])
        if shape.narrower < max(head, value) <= shape.widest
        and (shape.biased or not problem.bias)
        and caps.subgroup_size % (shape.blocks * matrix.m) == 0
        and shape.keys % matrix.k == 0
        and shape.held % matrix.k == 0
        and shape.keys % (matrix.n * shape.together) == 0
        and shape.keys % (8 * caps.subgroup_size // (shape.blocks * matrix.m)) == 0
        and shape.subgroups * caps.subgroup_size <= caps.workgroup_invocations
        and shape.shared_memory_bytes(matrix, head, value, in_place=in_place(way), bias=problem.bias)
        <= caps.shared_memory_bytes
    )
    return (matrix, fitting) if fitting else None


def _fields(problem: AttentionProblem) -> _Fields:
    seen = problem.keys - (problem.queries - 1) // 2 if problem.causal else problem.keys
    sizes = problem.head_size, problem.value_size
    return problem.heads, problem.rows, problem.keys, seen, *sizes, problem.bias_bytes


def matrix_shape(
    problem: AttentionProblem, caps: Capabilities, way: str
) -> tuple[CooperativeShape, CooperativeMatrix] | None:
    """The shape of a tile, with the matrices to multiply; None where nothing fits."""
    found = _fitting(problem, caps, way)
    if found is None:
        return None
    matrix, fitting = found
    number = decided(_best_shape, caps, way, fitting, matrix.m, _fields(problem))
    return ATTENTION_SHAPES[way][number], matrix


def _best_shape(caps: Capabilities, way: str, fitting: tuple[int, ...], lines: int, fields: _Fields) -> int:
    """The fastest; of shapes that were not measured the one with most rows that gives the device enough workgroups, else the
    one with the fewest. ``lines``: the rows of a matrix."""
    shapes = ATTENTION_SHAPES[way]
    if all(shapes[number].paces for number in fitting):
        return min(fitting, key=lambda number: _microseconds(shapes[number], caps, lines, fields, 1))
    heads, rows = fields[:2]
    for number in fitting:
        if heads * -(-rows // (shapes[number].subgroups * shapes[number].blocks * lines)) >= caps.model.processors:
            return number
    return min(fitting, key=lambda number: shapes[number].subgroups * shapes[number].blocks)


def _microseconds(shape: CooperativeShape, caps: Capabilities, lines: int, fields: _Fields, parts: int) -> float:
    """What a dispatch takes but for its start, with the keys in so many parts."""
    assert shape.paces is not None, "it was measured"
    heads, rows, keys, seen, *sizes, bias_bytes = fields
    key_tiles = -(-keys // shape.keys)
    tiles = -(-key_tiles // parts)
    workgroups = heads * -(-rows // (shape.subgroups * shape.blocks * lines)) * parts
    longer = shape.paces.biased[bias_bytes > _CACHED] if bias_bytes else 1.0
    alone, shared = (longer * pace.microseconds(tiles, max(sizes)) for pace in (shape.paces.alone, shape.paces.shared))
    at_once = shape.paces.at_once
    if seen < keys and parts == 1:
        # Those with most tiles begin, others take their places as these end: all processors are busy until the last.
        each = longer * shape.paces.shared.microseconds(seen / shape.keys + 0.5, max(sizes))
        together = min(at_once, workgroups / caps.model.processors)
        return max(workgroups / caps.model.processors * each, (alone + max(alone, together * shared)) / 2)
    rounds, left = divmod(workgroups, at_once * caps.model.processors)
    last = max(alone, -(-left // caps.model.processors) * shared) if left else 0.0
    return rounds * max(alone, at_once * shared) + last


def matrix_parts(
    problem: AttentionProblem, caps: Capabilities, way: str
) -> tuple[CooperativeShape, CooperativeMatrix, int] | None:
    """The shape of a tile where keys are shared out, the matrices to multiply, and the parts, or 0 where shapes were not
    measured; None where nothing fits."""
    found = _fitting(problem, caps, way)
    if found is None:
        return None
    matrix, fitting = found
    number = _parted(fitting, way)
    if number is not None:
        parts = decided(_best_parts, caps, way, number, matrix.m, _fields(problem))
        return ATTENTION_SHAPES[way][number], matrix, parts
    number = decided(_best_shape, caps, way, fitting, matrix.m, _fields(problem))
    return ATTENTION_SHAPES[way][number], matrix, 0


def parts_pay(problem: AttentionProblem, caps: Capabilities, way: str) -> bool | None:
    """Whether the fastest tile takes longer than one whose keys are shared out, by the device's model; None where shapes
    were not measured."""
    found = _fitting(problem, caps, way)
    if found is None or _parted(found[1], way) is None:
        return None
    matrix, fitting = found
    return bool(decided(_are_parts_faster, caps, way, fitting, matrix.m, _fields(problem)))


def _parted(fitting: tuple[int, ...], way: str) -> int | None:
    """The shape whose parts were measured: of fewest rows, and most keys."""
    shapes = ATTENTION_SHAPES[way]
    if not all(shapes[number].paces for number in fitting):
        return None
    return min(fitting, key=lambda number: (shapes[number].subgroups * shapes[number].blocks, -shapes[number].keys))


def _times_of_parts(caps: Capabilities, shape: CooperativeShape, lines: int, fields: _Fields) -> dict[int, float]:
    """The parts that keys may be shared out in, each with the microseconds but for the first dispatch's start."""
    heads, rows, keys, _, _, value, _ = fields
    tiles = -(-keys // shape.keys)
    times = {}
    for wanted in _PARTS:
        parts = -(-tiles // -(-tiles // min(wanted, tiles)))
        moved = 8 * heads * rows * value * (parts + 2)  # parts are written and read, and there is the output
        merge = caps.model.dispatch_microseconds + _MERGE_START + moved / caps.model.bytes_per_microsecond
        times[parts] = _microseconds(shape, caps, lines, fields, parts) + merge
    return times


def _best_parts(caps: Capabilities, way: str, number: int, lines: int, fields: _Fields) -> int:
    times = _times_of_parts(caps, ATTENTION_SHAPES[way][number], lines, fields)
    return min(times, key=times.__getitem__)


def _are_parts_faster(caps: Capabilities, way: str, fitting: tuple[int, ...], lines: int, fields: _Fields) -> bool:
    whole, parted = _best_shape(caps, way, fitting, lines, fields), _parted(fitting, way)
    assert parted is not None, "shapes were measured"
    shapes = ATTENTION_SHAPES[way]
    time = min(_times_of_parts(caps, shapes[parted], lines, fields).values())
    return time < _microseconds(shapes[whole], caps, lines, fields, 1)
