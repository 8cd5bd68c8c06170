"""Tiles of products by cooperative matrices, for every family that has some; see ``glsl/include/cooperative_tile.glsl``."""

from __future__ import annotations

import enum
from collections.abc import Iterable
from typing import NamedTuple

from dmlvk.devices.capabilities import Capabilities, CooperativeMatrix
from dmlvk.kernels.common.plan import Range
from dmlvk.kernels.common.shapes import WORD_BITS
from dmlvk.kernels.common.terms import WordAccess
from dmlvk.spec.enums import TensorDataType
from dmlvk.spec.size import decided
from dmlvk.spec.tensor import element_bits

WORD = WORD_BITS // 16
"""Elements that are staged at a time."""


class CooperativeTile(NamedTuple):
    """The cover of a tile by a workgroup: its rows and columns, the depth staged at a time, the block of each subgroup, how
    many tiles there are in shared memory at a time, over how many steps the loads of a further one are spread (0: before the
    first), and how many are on their way from memory at a time."""

    rows: int
    columns: int
    depth: int
    block_rows: int
    block_columns: int
    buffers: int = 1
    spread: int = 1
    ahead: int = 1

    @property
    def subgroups(self) -> int:
        """The subgroups of a workgroup."""
        return self.rows // self.block_rows * (self.columns // self.block_columns)

    @property
    def shared_bytes(self) -> int:
        """The most shared memory, whichever way the factors lie: lines of 16-byte words and one of padding."""
        along = (self.rows + self.columns) * (self.depth // WORD + 1)
        across = self.depth * ((self.rows + self.columns) // WORD + 2)
        return 16 * max(along, across) * self.buffers

    def is_shared_evenly(self, invocations: int) -> bool:
        """Whether so many of them stage as many words each, of either factor."""
        return not any(size * self.depth // WORD % invocations for size in (self.rows, self.columns))

    def tiles(self, rows: int, columns: int) -> int:
        """The number of tiles that cover a matrix."""
        return -(-rows // self.rows) * -(-columns // self.columns)


_SQUARE, _DEEP_SQUARE = CooperativeTile(64, 64, 64, 32, 32), CooperativeTile(64, 64, 128, 32, 32)
_WIDEST = CooperativeTile(128, 256, 48, 64, 64, spread=2)
_LARGE_SQUARE = CooperativeTile(128, 128, 64, 64, 64)
_TILES = (
    _WIDEST,
    _LARGE_SQUARE,
    CooperativeTile(64, 128, 64, 32, 32),
    CooperativeTile(32, 64, 128, 16, 32),
    CooperativeTile(32, 64, 64, 16, 32),
    CooperativeTile(16, 64, 128, 16, 16, spread=0),
    CooperativeTile(16, 64, 64, 16, 16, spread=0),
)
"""Largest first. On an H200 in float16, TFLOP/s: 338 with the first at 4096^3 and 317 with the second, 262 with tiles of
128 x 256 x 32 and 250 with blocks of 64 x 32; at 1024^3 135 with the third and 126 with 64 x 64; 16 x 8192 by 8192 x 16384
at 3.5 TB/s with 16 x 64 x 128, at 2.4 with 16 x 64 x 64."""
_BETWEEN = (
    CooperativeTile(192, 128, 64, 48, 64),
    CooperativeTile(128, 160, 64, 32, 80),
    CooperativeTile(96, 128, 64, 48, 64),
    _SQUARE,
)
"""Further tiles, of which the model says where they are the best."""


class _Patient(NamedTuple):
    """A tile that stands for another where workgroups are few and wait for memory: it has more on the way. ``most``: the
    workgroups for each processor up to which it is faster."""

    tile: CooperativeTile
    instead: CooperativeTile
    most: float


_PATIENT = (
    _Patient(CooperativeTile(16, 64, 128, 16, 16, spread=0), CooperativeTile(16, 64, 256, 16, 16, spread=0, ahead=2), 1.5),
    _Patient(CooperativeTile(32, 64, 128, 16, 32), CooperativeTile(32, 64, 128, 16, 32, ahead=2), 1.0),
    _Patient(_SQUARE, _DEEP_SQUARE._replace(ahead=2), 2.0),
    _Patient(CooperativeTile(64, 128, 64, 32, 32), CooperativeTile(64, 128, 64, 32, 32, ahead=2), 1.5),
)
"""H200 (driver 580, 2026-11-28), float16 weights that were in no cache, us with the first tile and with the second, where
workgroups are 12 to 128: 128 x 768 of depth 768 7.4 and 5.8, 49 x 1024 of 1024 9.0 and 6.7, 16 x 1024 of 1024 8.9 and 6.6;
197 x 768 of 768 7.7 and 7.0, 512 x 512 of 2048 15.3 and 13.7, 256 x 1024 of 1024 9.5 and 8.6; 64 x 3072 of 768 12.2 and 8.6;
197 x 3072 of 768 13.0 and 12.3, 1024 x 1024 of 1024 15.2 and 14.5. Where they are more: 64 x 3072 of 768, 192 of them, 8.3
and 7.7, 128 x 2304 of 768, 288, 10.3 and 11.3; 197 x 2304 of 768, 252, 9.3 and 9.6; 64 x 14336 of 4096, 448, 53 and 54; 197
x 768 of 3072, 168, 16.0 and 15.6. Convolutions took the same or 1 % longer so, and keep their own tiles. BERT-base, 128
words, 0.80 and 0.77 ms, in two runs. With its weights read by a dispatch beside the step before, a product alone took 0.5 to
2.8 us less, but BERT and ViT-B/16 as long as without."""
_PATIENT_ROUNDS = 2
"""The fewest rounds of such a tile."""


class FewRowsTile(NamedTuple):
    """A tile for products of few rows.

    Attributes:
        tile: The tile.
        resident: The workgroups of it that a processor takes at a time.
        uneven: The tile that stands for it where some processors would have one more than others, which wait for them.
        many: The tile where there are more than all processors take at a time.
    """

    tile: CooperativeTile
    resident: int
    uneven: CooperativeTile | None = None
    many: CooperativeTile | None = None


_FEW_ROWS_TILES = (
    FewRowsTile(CooperativeTile(16, 64, 128, 16, 16, spread=0), 4),
    FewRowsTile(CooperativeTile(32, 64, 128, 16, 32), 2, many=CooperativeTile(32, 128, 128, 32, 32)),
    FewRowsTile(_DEEP_SQUARE, 2, uneven=CooperativeTile(64, 128, 64, 32, 32)),
)
"""For products whose rows one of them covers. They wait for memory, so that as many workgroups read as there is room for,
but no more: what begins when others have ended reads alone. H200 (driver 580, 2026-11-28), float16 weights that were in no
cache, us so and as the fewest workgroups that give each processor one or two: 16 x 4096 of depth 4096 15 (17), of 14336 34
(39), 16 x 6144 of 4096 20 (32), 16 x 16384 of 16384 129 (149); 32 x 4096 of 4096 17 (30), of 14336 40 (95); 64 x 4096 of
4096 19 (31), of 14336 47 (99), 64 x 14336 of 4096 48 (74). Six that were measured with transposed weights, too, took the
same within 3 %."""
_EVEN = 0.8
"""The share of the time in which some processors work that all do, with which workgroups are shared out evenly."""
_WIDE_RESIDENT = 2
"""The workgroups of a wider tile that a processor takes at a time. The same rows, which all workgroups read from the second
cache, are read half as often. H200 (driver 580, 2026-11-29), us so and before, transposed and not: 48 x 11008 of depth 4096,
which are 172 workgroups or, in three parts, 258 wider ones, 38 (47) and 36 (47), 64 x 11008 39 (48) and 37 (48), 64 x 10240
of 8192 63 (92) and 61 (92), 64 x 6144 of 4096 27 (29) and 26 (29); 32 x 11008, in two parts, 32 (37) and 32 (37); 32 x 32000
of 4096, where there is no room for 500, 66 (85) and 64 (93), of 2048 36 (52) and 35 (53), 24 x 28672 of 8192 115 (153) and
113 (161), the last six in 1.03 to 1.15 times what a copy of the weights takes."""
_FEW_ROWS_ROUNDS = 16
"""The fewest rounds of such a product: 16 x 1024 of depth 1024, which has 8, takes 7.1 us whole and 7.8 in two parts."""
_FEW_ROWS_PART_ROUNDS = 4
"""The fewest rounds of one of its parts: 16 x 768 of depth 3072 takes 9.8 us in 6 parts, 10.9 in 4 and 12.5 in 3."""
_MERGED_PART_ROUNDS = 2
"""The fewest rounds of a part that is added by a dispatch which is there anyway."""
_MERGED_WORKGROUPS = 1.5
"""The workgroups for each processor with which a larger tile is as good there. H200 (driver 580, 2026-11-29), float16:
BERT-base, with its products of 128 x 768 of depth 768 before normalizations as 96 workgroups 0.748 ms, in two parts 0.721,
in three 0.710, in six, of one round each, 0.741; with 32 rows a tile in three 0.725, with 64 in six 0.731. ViT-B/16, of 197
rows, 0.857 ms with 84 workgroups; in three parts 0.845 with 32 rows a tile, 0.846 with 16, 0.855 with 64; in two 0.849 and
0.851."""
_WIDEST_ALONG_DEPTH = 128
_LARGE_SQUARE_ALONG_DEPTH = _LARGE_SQUARE._replace(spread=2)
"""For a second factor whose neighbours lie along the depth. H200 (driver 580, 2026-11-29), us with loads in one step and in
two, in four runs each: 2048 x 14336 of depth 4096 749 to 769 and 728 to 739, 4096^3 438 and 426; 128 x 14336 in two parts
65.5 and 65.5. With the other factor 435 and 444 at 4096^3."""
_WIDEST_AHEAD = _WIDEST._replace(ahead=2)
"""For factors of 16 bits in whole words; others have no registers for it. H200 (driver 580, 2026-11-29), us with one tile on
the way and with two, in four runs: 4096^3 404 to 415 and 396 to 404, 2048 x 14336 of depth 4096 711 to 724 and 702 to 712,
8192^3 3,146 to 3,181 and 3,126 to 3,173. Tried with all of these tiles and not faster: two subgroups for each block, each
half of a round's depth; one set of a step's matrices; a round's first matrices loaded before the last round's are
multiplied, which spills."""
_IN_MANY_REGISTERS = {
    (128, 128): CooperativeTile(128, 128, 64, 64, 32),
    (96, 128): CooperativeTile(96, 128, 64, 48, 32),
}
"""The tiles of so many rows and columns where what is on its way takes twice the registers, as two words do for each 8
elements that lie in them: they have more invocations. H200 (driver 580, 2026-11-29), float16, us with blocks of 64 x 64 and
of 64 x 32: 4096 x 4100 of depth 4100 1,396 and 767, 2048 x 1024 of depth 4097 258 and 99, 512 x 50257 of depth 768 265 and
249."""
_CPU_TILE = CooperativeTile(16, 32, 16, 8, 16)
"""Small, because a CPU's driver takes long to compile a large one's unrolled loops; no rule chooses it
there."""
_TILES_EACH = 15 / 16
"""Tiles for each processor that keep a device busy."""


def _fitting(caps: Capabilities, tiles: Iterable[CooperativeTile] = _TILES) -> list[CooperativeTile]:
    """Those of the tiles that a device takes."""
    return [
        tile
        for tile in tiles
        if tile.shared_bytes <= caps.shared_memory_bytes
        and tile.subgroups * caps.subgroup_size <= caps.workgroup_invocations
        and tile.is_shared_evenly(tile.subgroups * caps.subgroup_size)
    ]


def _is_used(tile: CooperativeTile, rows: int, columns: int) -> bool:
    """Whether half of a tile is in use."""
    return rows * 2 > tile.rows and columns * 2 > tile.columns


def cooperative_tile(
    rows: int, columns: int, matrices: int, caps: Capabilities, *, b_along_depth: bool = False
) -> CooperativeTile:
    """The largest tile of which half is in use and that still gives the device enough workgroups, else the smallest that
    fits so many rows. Of those that differ in depth alone, the deepest that fits shared memory.

    The widest is not for a second factor whose neighbours lie along the depth: on an H200 275 TFLOP/s at 4096^3 against
    336 with the next.
    """
    if caps.is_cpu:
        return _CPU_TILE
    fitting = [tile for tile in _fitting(caps) if not (b_along_depth and tile.columns > _WIDEST_ALONG_DEPTH)]
    used = [tile for tile in fitting if _is_used(tile, rows, columns)]
    for tile in used:
        if tile.tiles(rows, columns) * matrices >= caps.model.workgroups(_TILES_EACH):
            return tile
    smallest = (used or fitting)[-1]
    return next(tile for tile in fitting if (tile.rows, tile.columns) == (smallest.rows, smallest.columns))


class _Speed(NamedTuple):
    """The share of a processor's rate of matrices that tiles reach, with one workgroup on it and with several, the most
    parts of the depth with which they are a choice, and the most workgroups on it."""

    alone: float
    together: float
    parts: int
    resident: int = 2


class SecondFactor(enum.IntEnum):
    """How a product's second factor lies: its neighbours across the depth, or along it, or that in blocks of few bits."""

    ACROSS_DEPTH = 0
    ALONG_DEPTH = 1
    IN_BLOCKS = 2


_ANY_SPEEDS = {
    (192, 128): _Speed(0.50, 0.50, 2, 1),
    (128, 160): _Speed(0.45, 0.45, 1, 1),
    (96, 128): _Speed(0.39, 0.45, 4),
    (64, 128): _Speed(0.33, 0.38, 4),
    (64, 64): _Speed(0.24, 0.31, 4, 3),
    (32, 64): _Speed(0.20, 0.205, 1, 4),
}
_SPEEDS = (
    {(128, 256): _Speed(0.555, 0.56, 1), (128, 128): _Speed(0.42, 0.54, 4), **_ANY_SPEEDS},
    {(128, 128): _Speed(0.41, 0.55, 4), **_ANY_SPEEDS},
    {(128, 128): _Speed(0.23, 0.41, 4), (64, 128): _Speed(0.19, 0.27, 8)},
)
"""For each kind of a second factor. Measured on an H100 (driver 580, 2026-11-27) without a dispatch's start, which all have:
264 products of 77 to 4096 rows with the weights of BERT, ViT, Stable Diffusion and language models; of blocks (2026-11-26)
48 to 512 rows and weights in Q4_0."""
_FEW_ROWS = (64, 64, 32)
"""The most rows that the device's memory bounds, not its arithmetic, for each kind."""
_PART_ROUNDS = 8
"""The fewest rounds of a part of a split sum: fewer are not worth its start and its trip through memory."""
_BUSY = 0.5
"""Workgroups for each processor from which on times were measured: what has fewer takes smaller tiles."""
_SURELY = 1.03
"""Parts are taken where they would still pay if they took so much longer."""
_MERGE_BANDWIDTH = 1.16
"""The speed of the dispatch that adds parts, which are partly in caches, beside a copy's."""


def parted_tile(
    rows: int,
    columns: int,
    depth: int,
    matrices: int,
    caps: Capabilities,
    *,
    b_along_depth: bool,
    patient: bool = True,
    merged: bool = False,
) -> tuple[CooperativeTile, int]:
    """The tile for a product that may be split along the depth, and into how many parts it then is. ``patient``: one of
    ``_PATIENT`` may be taken. ``merged``: a dispatch that is there anyway adds the parts.

    Few rows that have a tile of their own have parts that fill the device once. Of others it is the fastest by the device's
    model, where that knows the rate of matrices and the product has more than 64 rows, which bounds it by arithmetic: few
    large tiles in parts are faster than more smaller ones. H100, 256x4096 of depth 14336 in 100 us with 64 tiles of 128x128
    in four parts, in 113 with 32 of 128x256; 1576x768 of depth 768 in 13 with 102 tiles of 96x128, in 18 with 150 of 64x128.
    """
    few = decided(_few_rows_parts, caps, rows, columns, depth, matrices)
    if few is not None:
        return CooperativeTile(*few[0]), few[1]
    second = SecondFactor.ALONG_DEPTH if b_along_depth else SecondFactor.ACROSS_DEPTH
    chosen = fastest_parts(rows, columns, depth, matrices, caps, second, merged=merged)
    tile, parts = chosen or _filling_parts(rows, columns, depth, matrices, caps, b_along_depth=b_along_depth)
    spread = decided(_spread_parts, caps, rows, columns, depth, matrices) if merged and parts == 1 else None
    if spread is not None:
        return CooperativeTile(*spread[0]), spread[1]
    if b_along_depth and tile == _LARGE_SQUARE:
        tile = _LARGE_SQUARE_ALONG_DEPTH
    if not patient:
        return tile, parts
    return CooperativeTile(*decided(_patient, caps, (*tile,), (rows, columns, depth, matrices * parts))), parts


def _filling_parts(
    rows: int, columns: int, depth: int, matrices: int, caps: Capabilities, *, b_along_depth: bool
) -> tuple[CooperativeTile, int]:
    """The tile by its size alone, in parts where its workgroups do not fill half of the device."""
    tile = cooperative_tile(rows, columns, matrices, caps, b_along_depth=b_along_depth)
    workgroups = tile.tiles(rows, columns) * matrices
    to_fill = caps.model.workgroups(1)  # a workgroup of cooperative matrices is a whole processor's
    if 2 * workgroups > to_fill:
        return tile, 1
    return tile, max(min(to_fill * 2 // workgroups, -(-depth // tile.depth) // _PART_ROUNDS), 1)


def _patient(caps: Capabilities, tile: tuple[int, ...], sizes: tuple[int, int, int, int]) -> tuple[int, ...]:
    """The tile, or that which stands for it: for rows, columns, depth, and matrices with their parts."""
    rows, columns, depth, matrices = sizes
    own = next((row for row in _PATIENT if row.tile == tile), None)
    if own is None or depth < _PATIENT_ROUNDS * own.instead.depth or not _fitting(caps, (own.instead,)):
        return tile
    few = own.tile.tiles(rows, columns) * matrices <= own.most * caps.model.processors
    return (*own.instead,) if few else tile


def _few_rows_parts(
    caps: Capabilities, rows: int, columns: int, depth: int, matrices: int
) -> tuple[tuple[int, ...], int] | None:
    """The smallest tile that has all of a product's few rows, and into how many parts the product is split; None where there
    is no such tile, where the device has no room for all of its workgroups at once, and for short sums."""
    found = next((row for row in _FEW_ROWS_TILES if rows <= row.tile.rows), None)
    if caps.is_cpu or found is None or not _fitting(caps, (found.tile,)):
        return None
    processors, rounds = caps.model.processors, -(-depth // found.tile.depth)
    tiles = found.tile.tiles(rows, columns) * matrices
    most = found.resident * processors // tiles
    if rounds < _FEW_ROWS_ROUNDS:
        return None
    if most == 0:
        wide = found.many
        fits = wide is not None and _fitting(caps, (wide,))
        if wide is None or not fits or wide.tiles(rows, columns) * matrices > _WIDE_RESIDENT * processors:
            return None
        return tuple(wide), 1
    parts = min(most, rounds // _FEW_ROWS_PART_ROUNDS)
    if tiles * parts <= processors or _is_even(tiles * parts, processors):
        return tuple(found.tile), parts
    others = [(found.tile, parts + 1)]
    if found.uneven is not None and _fitting(caps, (found.uneven,)):
        wide_tiles = found.uneven.tiles(rows, columns) * matrices
        others.insert(0, (found.uneven, max(_WIDE_RESIDENT * processors // wide_tiles, 1)))
    for tile, more in others:
        is_long = depth >= more * _FEW_ROWS_PART_ROUNDS * found.tile.depth
        if is_long and _is_even(tile.tiles(rows, columns) * matrices * more, processors):
            return tuple(tile), more
    return tuple(found.tile), parts


def _is_even(workgroups: int, processors: int) -> bool:
    return workgroups >= _EVEN * processors * -(-workgroups // processors)


def _spread_parts(
    caps: Capabilities, rows: int, columns: int, depth: int, matrices: int
) -> tuple[tuple[int, ...], int] | None:
    """The largest tile for few rows, whatever the product's are, that keeps a device busy in short parts, or else the
    smallest, and into how many parts the product is split; None where there is no room for two at once."""
    found = []
    for own, resident, *_ in _FEW_ROWS_TILES[::-1]:
        tiles = own.tiles(rows, columns) * matrices
        parts = min(resident * caps.model.processors // tiles, -(-depth // own.depth) // _MERGED_PART_ROUNDS)
        if not caps.is_cpu and parts > 1 and _fitting(caps, (own,)):
            found.append((tuple(own), parts))
            if tiles * parts >= _MERGED_WORKGROUPS * caps.model.processors:
                break
    return found[-1] if found else None


def fastest_parts(
    rows: int,
    columns: int,
    depth: int,
    matrices: int,
    caps: Capabilities,
    second: SecondFactor,
    *,
    merged: bool = False,
) -> tuple[CooperativeTile, int] | None:
    """The fastest tile by the device's model, and into how many parts the product is split; None where the model does not
    know the rate of matrices, and for few rows. ``merged``: see ``parted_tile``."""
    chosen = decided(_fastest_parts, caps, int(second), (rows, columns, depth, matrices), merged)
    return None if chosen is None else (CooperativeTile(*chosen[0]), chosen[1])


def fastest_microseconds(caps: Capabilities, sizes: tuple[int, int, int, int]) -> float | None:
    """What a product of so many rows, columns, terms and matrices takes so, but for a dispatch's start; None where the model
    does not say."""
    found = _timed_parts(caps, SecondFactor.ACROSS_DEPTH, sizes, merged=False)
    return min(time for time, _, _ in found) if found else None


def _fastest_parts(
    caps: Capabilities, second: int, sizes: tuple[int, int, int, int], merged: bool
) -> tuple[tuple[int, ...], int] | None:
    found = _timed_parts(caps, second, sizes, merged=merged)
    if not found:
        return None
    _, tile, parts = min(found, key=lambda choice: choice[0])
    return tuple(tile), parts


def _timed_parts(
    caps: Capabilities, second: int, sizes: tuple[int, int, int, int], *, merged: bool
) -> list[tuple[float, CooperativeTile, int]]:
    """The tiles and parts that a product may have, with their microseconds but for a dispatch's start."""
    rows, columns, depth, matrices = sizes
    model = caps.model
    rate = model.half_products_per_microsecond
    if caps.is_cpu or rate is None or rows <= _FEW_ROWS[second] or columns <= 64:
        return []
    found: list[tuple[float, CooperativeTile, int]] = []
    for tile in _fitting(caps, (*_TILES, *_BETWEEN)):
        speed = _SPEEDS[second].get((tile.rows, tile.columns))
        if speed is None or not _is_used(tile, rows, columns):
            continue
        rounds = -(-depth // tile.depth)
        for parts in range(1, speed.parts + 1):
            if parts > 1 and rounds < parts * _PART_ROUNDS:
                break
            workgroups = tile.tiles(rows, columns) * matrices * parts
            if workgroups < _BUSY * model.processors:
                continue
            each = tile.rows * tile.columns * tile.depth * -(-rounds // parts) / rate
            full, rest = divmod(workgroups, speed.resident * model.processors)
            last = -(-rest // model.processors)
            time = (full * speed.resident + last) * each / speed.together
            if last == 1:
                time += each / speed.alone - each / speed.together
            if parts > 1:
                moved = 8 * rows * columns * matrices * parts / (_MERGE_BANDWIDTH * model.bytes_per_microsecond)
                time = _SURELY * (time + (0 if merged else model.dispatch_microseconds) + moved)
            found.append((time, tile, parts))
    return found


def staged_tile(tile: CooperativeTile, caps: Capabilities, *, whole_words: bool) -> CooperativeTile:
    """The tile that stands for another where factors are 16 bits wide, by whether all of them are read in whole words. The
    tile itself where a device does not take the other."""
    if whole_words:
        return _WIDEST_AHEAD if tile == _WIDEST else tile
    instead = _IN_MANY_REGISTERS.get((tile.rows, tile.columns), tile)
    return instead if _fitting(caps, (instead,)) else tile


def cooperative_constants(tile: CooperativeTile, matrix: CooperativeMatrix, caps: Capabilities) -> dict[str, int]:
    """The constants of ``terms.COOPERATIVE_TILE`` but for the factors' directions."""
    return {
        "LOCAL_SIZE_X": tile.subgroups * caps.subgroup_size,
        "TILE_M": tile.rows,
        "TILE_N": tile.columns,
        "TILE_K": tile.depth,
        "SUB_M": tile.block_rows,
        "SUB_N": tile.block_columns,
        "MAT_M": matrix.m,
        "MAT_N": matrix.n,
        "MAT_K": matrix.k,
        "BUFFERS": tile.buffers,
        "SPREAD": tile.spread,
        **({"AHEAD": tile.ahead} if tile.ahead > 1 else {}),
    }


def whole_words(
    data_type: TensorDataType, place: Range, strides: tuple[int, ...], inner: int, size: int, *, along_depth: bool
) -> bool:
    """Whether a factor whose elements are neighbours in dimension ``inner``, of so many, can be read in words of 8.

    Across the depth a word may reach past the end, into what follows in the last 16 bytes of the tensor.
    """
    bits = element_bits(data_type)
    aligned = WORD_BITS // bits
    starts = all(step % aligned == 0 for dimension, step in enumerate(strides) if dimension != inner)
    ends = size % WORD == 0 or (not along_depth and aligned == WORD)
    return strides[inner] == 1 and starts and place.offset % 16 == 0 and ends


def word_access(
    data_type: TensorDataType, place: Range, strides: tuple[int, ...], inner: int, size: int, *, along_depth: bool
) -> WordAccess:
    """How a factor is read whose elements are neighbours in dimension ``inner``, of so many."""
    if whole_words(data_type, place, strides, inner, size, along_depth=along_depth):
        return WordAccess.WORDS
    return WordAccess.SHIFTED if strides[inner] == 1 and element_bits(data_type) == 16 else WordAccess.ELEMENTS
