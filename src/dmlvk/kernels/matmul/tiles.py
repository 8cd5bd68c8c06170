"""Tiles of a matrix product: the shapes that a workgroup may cover, and which is the fastest by the device's model."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator
from typing import Any, NamedTuple

from dmlvk.devices.capabilities import Capabilities
from dmlvk.spec.size import decided, is_plain


class ProductTile(NamedTuple):
    """The cover of a tile by a slice of a workgroup: invocations along columns and rows, and the block that each has in
    registers; see ``product_tile.glsl``."""

    local_x: int
    local_y: int
    block_rows: int
    block_columns: int

    @property
    def rows(self) -> int:
        """The rows of the tile."""
        return self.local_y * self.block_rows

    @property
    def columns(self) -> int:
        """The columns of the tile."""
        return self.local_x * self.block_columns

    def shared_bytes(self, depth: int) -> int:
        """Shared memory of two tiles a factor, whose rows are padded by a quad."""
        return 2 * depth * (self.rows + self.columns + 8) * 4

    def tiles(self, rows: int, columns: int) -> int:
        """The number of tiles that cover a matrix."""
        return -(-rows // self.rows) * -(-columns // self.columns)

    @property
    def invocations(self) -> int:
        """The invocations of a slice."""
        return self.local_x * self.local_y


class Tiles(NamedTuple):
    """Tiles for a product.

    Attributes:
        shape: The shape of a tile.
        depth: The terms of the sums that a round of a slice multiplies.
        slices: Teams of invocations of a workgroup that share the rounds.
        parts: Parts that the rounds are split into, whose sums another dispatch adds.
    """

    shape: ProductTile
    depth: int
    slices: int
    parts: int

    @property
    def constants(self) -> dict[str, int]:
        """The constants of ``terms.PRODUCT_TILE``."""
        return {
            "LOCAL_SIZE_X": self.shape.invocations * self.slices,
            "SLICES": self.slices,
            "TILE_M": self.shape.rows,
            "TILE_N": self.shape.columns,
            "TILE_K": self.depth,
            "BLOCK_M": self.shape.block_rows,
            "BLOCK_N": self.shape.block_columns,
        }


class _Kind(NamedTuple):
    """Tiles that may be chosen, as measured on an H100, whose processors issue for 128 invocations at a time (2026-11-27).
    All became up to 10 % faster (H200, 2026-11-29), but with speeds that say so, what was chosen took longer: 128 x 14336 of
    depth 4096, in tiles of 128 x 128, 377 us and not 354, 128 x 3072 of 768 28 and not 24.

    Attributes:
        shape: The shape of a tile.
        depth: The terms of a round.
        slices: Teams of invocations that share the rounds.
        speed: The share of a processor's peak that these tiles reach.
        together: Workgroups that a processor runs in the time of one, which is too small for it or waits too long alone.
        most: Most workgroups of a processor with which these tiles are worth it; no limit where None. More hide each other's
            waiting without slices, or have no room for each other's registers.
        only_quads: Whether both factors must be read four elements at a time: the largest tiles leave no registers where
            they are not, and the others that say so were measured with no other factors.
    """

    shape: ProductTile
    depth: int
    slices: int
    speed: float
    together: int
    most: int | None = None
    only_quads: bool = False


FEW_ROWS = 16
"""Rows up to which a product may take flat tiles."""
_FLAT = ProductTile(16, 4, 4, 8)
_LARGE = ProductTile(8, 16, 8, 16)
_KINDS = (
    _Kind(_LARGE, 8, 1, 0.75, 2, only_quads=True),
    _Kind(ProductTile(16, 8, 8, 8), 16, 1, 0.68, 1),
    _Kind(ProductTile(8, 8, 8, 8), 16, 1, 0.635, 2),
    _Kind(ProductTile(8, 8, 8, 8), 16, 2, 0.62, 1, 2),
    _Kind(ProductTile(16, 4, 8, 8), 16, 1, 0.61, 2, only_quads=True),
    _Kind(ProductTile(16, 4, 8, 8), 16, 2, 0.62, 1, 2, only_quads=True),
    _Kind(ProductTile(8, 8, 8, 4), 16, 1, 0.55, 2),
    _Kind(ProductTile(8, 8, 8, 4), 16, 2, 0.51, 1, 4),
    _Kind(ProductTile(8, 8, 4, 8), 16, 2, 0.525, 1, 4, only_quads=True),
    _Kind(ProductTile(16, 8, 4, 4), 32, 1, 0.52, 1),
    _Kind(ProductTile(8, 8, 4, 4), 32, 2, 0.43, 1, 2),
    _Kind(ProductTile(8, 8, 4, 4), 32, 1, 0.47, 2),
)
_FLAT_KIND = _Kind(_FLAT, 16, 1, 0.47, 2)
_DEEPER = {_FLAT: 32, _LARGE: 16}
"""The terms of a round where columns lie along the depth, so that a line's piece is longer."""
_PARTS = (2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256)
"""The parts that a sum may be split into. No more, because each output's are added by one invocation."""
_FEW_PARTS = 12
_LEAST_ROUNDS = (2, 4)
"""The fewest rounds of a slice of a part, where parts are few and where they are more: fewer are not worth its start and its
trip through memory, nor more sums to add one after the other."""
_SPLIT_WAVES = 8
"""The workgroups on each processor up to which more parts may pay."""
_START = 1
"""Rounds that a workgroup takes longer, in which it waits for its first loads and writes."""
_WAITED = 0.5
"""Latencies that a round takes at least beside its multiplication, of which the share _HIDDEN passes meanwhile."""
_HIDDEN = 0.05
_MERGE_DISPATCHES = 1.3
"""The time of the dispatch that adds parts, in dispatches, besides that of the memory that it moves."""
_MERGE_BANDWIDTH = 1.06
"""The speed of the dispatch that adds parts, which are partly in caches, beside a copy's."""
CPU_TILES = Tiles(ProductTile(8, 4, 4, 4), 4, 1, 1)
"""Small, because a CPU's driver takes seconds to compile a large block's unrolled loops."""
_CPU_PARTS = 2


class TiledProduct(NamedTuple):
    """A product as its tiles see it: the sizes; whether the factors are read four elements at a time, and those of the
    columns along the depth (in pieces of 128 bytes then); and whether a dispatch that is there anyway adds parts."""

    rows: int
    columns: int
    depth: int
    matrices: int
    vector: bool = True
    columns_along_depth: bool = False
    merged: bool = False


def fastest_tiles(product: TiledProduct, caps: Capabilities, *, split: bool) -> Tiles:
    """The fastest tiles that the device takes, whose rounds are split where ``split``, by its model: each processor has its
    share of the workgroups, and a round of theirs takes what its products take, or a latency and what that does not hide.

    On an H100, 3,700 ways of 62 products, whose factors were not in its caches, took 6 % more or less in the median; what is
    chosen took 0.6 % longer than the best way in the geometric mean, as with the numbers of an H200.
    """
    tiles: Tiles = decided(_fastest_tiles, caps, split, tuple(product))
    return tiles


def whole_rounds(depth: int, terms: int) -> bool:
    """Whether sums are known to consist of whole rounds of so many terms, so that nothing ends within one. Sums whose length
    is open are not: a plan that holds for a growing cache is not made twice for it."""
    return is_plain(depth) and depth % terms == 0


def parts_pay(product: TiledProduct, caps: Capabilities) -> bool:
    """Whether the fastest tiles are split ones."""
    return bool(decided(_parts_are_faster, caps, tuple(product)))


@functools.lru_cache(maxsize=1024)
def _fastest(caps: Capabilities, split: bool, fields: tuple[Any, ...]) -> tuple[Tiles, float]:
    product = TiledProduct(*fields)
    if caps.is_cpu:
        return CPU_TILES._replace(parts=_CPU_PARTS if split else 1), 0.0
    return min(_choices(product, caps, split=split), key=lambda choice: choice[1])


def _fastest_tiles(caps: Capabilities, split: bool, fields: tuple[Any, ...]) -> Tiles:
    return _fastest(caps, split, fields)[0]


def _parts_are_faster(caps: Capabilities, fields: tuple[Any, ...]) -> bool:
    return _fastest(caps, True, fields)[1] < _fastest(caps, False, fields)[1]


def _choices(product: TiledProduct, caps: Capabilities, *, split: bool) -> Iterator[tuple[Tiles, float]]:
    """The tiles that the device takes, each with the microseconds that it would take but for its start, which all
    have; at least one."""
    model = caps.model
    rows, columns, depth, matrices = product[:4]
    merge = 8 * rows * columns * matrices / (_MERGE_BANDWIDTH * model.bytes_per_microsecond)
    kinds = (_FLAT_KIND, *_KINDS) if rows <= FEW_ROWS else _KINDS
    for shape, deepest, slices, speed, together, most, only_quads in kinds:
        if product.columns_along_depth:
            deepest = _DEEPER.get(shape, deepest)
        terms = _round_terms(shape, slices, deepest, depth, caps)
        if terms is None or (only_quads and not product.vector):
            continue
        tiles = shape.tiles(rows, columns) * matrices
        rounds = -(-depth // terms)
        busy = shape.rows * shape.columns * terms * slices / (model.products_per_microsecond * speed)
        alone = _WAITED * model.latency_microseconds + (1 - _HIDDEN) * together * busy
        for parts in _PARTS if split else (1,):
            if parts > 2 and rounds < parts * slices * _LEAST_ROUNDS[parts > _FEW_PARTS]:
                break
            waves = -(-tiles * parts // model.processors)
            if (most is not None and waves > most) or (parts > 2 and waves > _SPLIT_WAVES):
                break
            each = math.ceil(-(-rounds // parts) / slices)
            time = (each + _START) * max(alone, -(-waves // together) * together * busy)
            if parts > 1:
                time += parts * merge + (0 if product.merged else _MERGE_DISPATCHES * model.dispatch_microseconds)
            yield Tiles(shape, terms, slices, parts), time


def _round_terms(shape: ProductTile, slices: int, deepest: int, depth: int, caps: Capabilities) -> int | None:
    """The terms of a round: as many as fit in shared memory, but few more than there are; None where the device does not
    take the shape. What slices add in the end goes through the columns' part of shared memory."""
    if shape.invocations * slices > caps.workgroup_invocations:
        return None
    while deepest > 8 and (slices * shape.shared_bytes(deepest) > caps.shared_memory_bytes or deepest >= 2 * depth):
        deepest //= 2
    fits = slices * shape.shared_bytes(deepest) <= caps.shared_memory_bytes
    return deepest if fits and (slices == 1 or shape.rows <= 4 * deepest) else None
