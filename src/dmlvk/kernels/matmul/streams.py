"""Tiles of products whose second factor goes from memory straight to matrices (``glsl/gemm_streamed.comp``), and which is
the fastest by the device's model."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from dmlvk.devices.capabilities import Capabilities
from dmlvk.kernels.common.cooperative_tile import fastest_microseconds
from dmlvk.spec.size import decided

MATRIX = 16
"""The rows, columns and terms of a matrix whose elements' places are known."""
WORD = 8
"""The elements that are loaded at a time."""
PACKED_DEPTH = 128
"""The terms that the packed factor is padded to a multiple of."""


def packed_bytes(columns: int, depth: int) -> int:
    """The bytes of the packed factor: whole matrices, and zeros to the end of a round."""
    return 2 * -(-columns // MATRIX) * MATRIX * -(-depth // PACKED_DEPTH) * PACKED_DEPTH


class StreamedTile(NamedTuple):
    """The cover of a tile by a workgroup: its rows and columns, the terms of a round, the block of each subgroup, and the
    tiles of the first factor that are in shared memory at a time."""

    rows: int
    columns: int
    depth: int
    block_rows: int
    block_columns: int
    buffers: int

    @property
    def subgroups(self) -> int:
        """The subgroups of a workgroup."""
        return self.rows // self.block_rows * (self.columns // self.block_columns)

    @property
    def shared_bytes(self) -> int:
        """Shared memory: lines of 16-byte words and one of padding, or the sums of 16 rows of each block."""
        staged = self.buffers * self.rows * (self.depth // WORD + 1)
        return 16 * max(staged, self.subgroups * MATRIX * (self.block_columns // 4 + 1))

    def tiles(self, rows: int, columns: int) -> int:
        """The number of tiles that cover a matrix."""
        return -(-rows // self.rows) * -(-columns // self.columns)

    def constants(self, subgroup_size: int) -> dict[str, int]:
        """The constants of ``gemm_streamed`` that say the shape."""
        return {
            "LOCAL_SIZE_X": subgroup_size * self.subgroups,
            "TILE_M": self.rows,
            "TILE_N": self.columns,
            "TILE_K": self.depth,
            "SUB_M": self.block_rows,
            "SUB_N": self.block_columns,
            **dict.fromkeys(("MAT_M", "MAT_N", "MAT_K"), MATRIX),
            "BUFFERS": self.buffers,
        }


class _Kind(NamedTuple):
    """A tile that may be chosen.

    Attributes:
        tile: The tile.
        waits: What a round takes at least, in latencies.
        speed: The share of a processor's rate of matrices that its rounds reach.
        resident: The workgroups that a processor takes at a time.
    """

    tile: StreamedTile
    waits: float
    speed: float
    resident: int


_KINDS = (
    _Kind(StreamedTile(64, 256, 128, 64, 32, 1), 0, 0.557, 1),
    _Kind(StreamedTile(48, 128, 128, 48, 32, 1), 2.65, 0.453, 2),
    _Kind(StreamedTile(48, 128, 256, 48, 16, 1), 2.94, 0.388, 2),
    _Kind(StreamedTile(32, 128, 128, 32, 32, 2), 2.01, 0.367, 3),
    _Kind(StreamedTile(32, 128, 256, 32, 16, 2), 2.86, 0.863, 1),
    _Kind(StreamedTile(32, 64, 256, 32, 16, 2), 2.81, 0.300, 2),
    _Kind(StreamedTile(16, 32, 256, 16, 16, 2), 2.08, 0.184, 7),
)
"""H200 (driver 580, 2026-11-30), fitted to 490 ways of 50 products of 8 to 4096 rows, weights in no cache, within 6.5 %
(root of the mean square). Of the ways of each product the one that is chosen took 0.4 % longer than the fastest, geometric
mean. The first is bound by its matrices alone. Larger ones were tried for large products, 4096^3 (2026-11-30): 128 x 256 in
blocks of 64 x 64 333 TFLOP/s, with two tiles of the first factor, which are asked for ahead as B is, up to 341, in blocks
of 64 x 32 343; both factors through shared memory 349. Where half of B was read twice instead of all once it was 383: what
they wait for is the second cache."""
_USUAL = _KINDS[3].tile
"""Where the rate of matrices is not known."""
_START = 1
"""Rounds that a workgroup takes longer, in which it waits for its first loads and writes."""
_PARTS = (1, 2, 3, 4, 6, 8, 12, 16)
_PART_ROUNDS = 2
"""The fewest rounds of a part of a split sum."""
_LATER_START = 2.8
"""Latencies that other tiles take longer to start and to end, which is not in their times. Of those 50 products 33 stream.
Of these 30 were timed in the parts that are chosen: all but one took 0.4 to 5.2 us less (384x1152 of depth 384 0.03 more).
Of the others 256x1024 of 1024 would gain 0.7."""
_FEWEST_ROWS = 33
_FEW_OUTPUTS = 1280
"""The outputs for each processor from which on streams are faster than tiles of few rows, but for long sums: with 64 rows
and depth 768, 3072 columns 6.7 and 7.8 us, 768 columns 5.8 and 5.5; with 32 rows 3072 columns 6.4 and 6.1."""
_LONG_DEPTH = 2048
"""64x768 of depth 3072 9.5 and 10.5 us, 64x1024 of 4096 10.8 and 11.1; 49x1024 of 1024 6.8 and 6.6."""


def streams_fit(caps: Capabilities) -> bool:
    """Whether a device takes every one of the tiles."""
    most = max(kind.tile.subgroups for kind in _KINDS) * caps.subgroup_size
    shared = max(kind.tile.shared_bytes for kind in _KINDS)
    return most <= caps.workgroup_invocations and shared <= caps.shared_memory_bytes


def streams_pay(rows: int, columns: int, depth: int, matrices: int, caps: Capabilities) -> bool:
    """Whether a product is faster so than in other tiles of matrices, by the device's model."""
    return bool(decided(_are_streams_faster, caps, (rows, columns, depth, matrices)))


def _are_streams_faster(caps: Capabilities, sizes: tuple[int, int, int, int]) -> bool:
    rows, columns, depth, matrices = sizes
    if caps.is_cpu or caps.model.half_products_per_microsecond is None or rows < _FEWEST_ROWS:
        return False
    others = fastest_microseconds(caps, sizes)
    if others is None:
        return depth >= _LONG_DEPTH or rows * columns * matrices >= _FEW_OUTPUTS * caps.model.processors
    own = min(time for time, _, _ in _choices(caps, sizes, merged=False))
    return own < others + _LATER_START * caps.model.latency_microseconds


def streamed_parts(
    rows: int, columns: int, depth: int, matrices: int, caps: Capabilities, *, merged: bool = False
) -> tuple[StreamedTile, int]:
    """The fastest tile by the device's model, and into how many parts the product is split. ``merged``: a dispatch that is
    there anyway adds the parts."""
    tile, parts = decided(_fastest, caps, (rows, columns, depth, matrices), merged)
    return StreamedTile(*tile), parts


def _fastest(caps: Capabilities, sizes: tuple[int, int, int, int], merged: bool) -> tuple[tuple[int, ...], int]:
    _, tile, parts = min(_choices(caps, sizes, merged=merged), key=lambda choice: choice[0])
    return (*tile,), parts


def _choices(
    caps: Capabilities, sizes: tuple[int, int, int, int], *, merged: bool
) -> Iterator[tuple[float, StreamedTile, int]]:
    """The tiles and parts that a product may have, with their microseconds but for a dispatch's start; at least one."""
    rows, columns, depth, matrices = sizes
    model, rate = caps.model, caps.model.half_products_per_microsecond
    if rate is None:
        yield 0.0, _USUAL, 1
        return
    terms = -(-depth // PACKED_DEPTH) * PACKED_DEPTH
    for tile, waits, speed, resident in _KINDS:
        if terms % tile.depth:
            continue
        rounds, tiles = terms // tile.depth, tile.tiles(rows, columns) * matrices
        busy = tile.rows * tile.columns * tile.depth / (rate * speed)
        for parts in _PARTS:
            if parts > 1 and rounds < parts * _PART_ROUNDS:
                break
            waves = -(-tiles * parts // model.processors)
            each = max(-(-waves // resident) * waits * model.latency_microseconds, waves * busy)
            time = (-(-rounds // parts) + _START) * each
            if parts > 1:
                time += 8 * rows * columns * matrices * parts / model.bytes_per_microsecond
                time += 0 if merged else model.dispatch_microseconds
            yield time, tile, parts
