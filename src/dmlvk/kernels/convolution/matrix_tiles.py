"""Tiles of convolutions by cooperative matrices, by the device's model."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import NamedTuple

from dmlvk.devices.capabilities import Capabilities
from dmlvk.kernels.common.cooperative_tile import CooperativeTile, cooperative_tile, parted_tile
from dmlvk.spec.size import decided


class MatrixTile(NamedTuple):
    """A tile, and what an H100 makes of it.

    Attributes:
        tile: The tile, whose rows are pixels and whose columns are output channels.
        resident: The workgroups that a processor takes at a time.
        alone: The share of its rate of matrices that one workgroup reaches on a processor.
        together: The share that as many as it takes reach.
        start: What each wave of workgroups takes besides its products, in latencies: to fill the first tiles, and to store.
    """

    tile: CooperativeTile
    resident: int
    alone: float
    together: float
    start: float

    def microseconds(self, workgroups: int, depth: int, caps: Capabilities, rate: float) -> float:
        """The time of so many workgroups, each of which adds up so much of the depth, besides that of the dispatch."""
        products = self.tile.rows * self.tile.columns * -(-depth // self.tile.depth) * self.tile.depth / rate
        start = self.start * caps.model.latency_microseconds
        waves, rest = divmod(workgroups, self.resident * caps.model.processors)
        time = waves * (start + self.resident * products / self.together)
        if rest:
            each = -(-rest // caps.model.processors)
            time += start + each * products / min(self.together, each * self.alone)
        return time


MATRIX_TILES = (
    MatrixTile(CooperativeTile(128, 256, 48, 64, 64, spread=2), 1, 0.60, 0.60, 10),
    MatrixTile(CooperativeTile(192, 128, 64, 48, 64, ahead=2), 1, 0.58, 0.58, 10),
    MatrixTile(CooperativeTile(128, 160, 64, 32, 80), 1, 0.48, 0.48, 6),
    MatrixTile(CooperativeTile(128, 128, 64, 64, 64), 2, 0.42, 0.55, 12),
    MatrixTile(CooperativeTile(96, 128, 64, 48, 64), 2, 0.50, 0.50, 8),
    MatrixTile(CooperativeTile(128, 64, 64, 64, 32), 2, 0.34, 0.41, 6),
    MatrixTile(CooperativeTile(64, 128, 64, 32, 64), 2, 0.40, 0.40, 6),
    MatrixTile(CooperativeTile(64, 64, 64, 32, 32), 3, 0.32, 0.32, 4),
    MatrixTile(CooperativeTile(32, 64, 128, 16, 32), 4, 0.16, 0.18, 2),
    MatrixTile(CooperativeTile(128, 16, 64, 32, 16), 3, 0.11, 0.17, 4),
)
"""Largest first. The numbers are fitted to 170 times of the convolutions of ResNet-50, of batch 1 and 32, and of four more
which an H100 took under driver 580, without bias: they are within 8 % on the average. Of 32 problems the choice takes as
long as the best tile that was measured, or up to 8 % longer: 3x3 over 32x128x28x28 27 us (with tiles of 128x128 38), over
32x256x14x14 30 (45), over 32x512x7x7 35 in 5 parts (55), over 1x512x7x7 11 in 8 parts (20).
H200 (driver 580, 2026-11-29), tiles of 192x128 with one on the way and with two: 3x3 stride 2 over 32x256x56x56 124.5 and
120.5 us, over 2x320x64x64 63.9 and 61.2; the widest tile was no faster so."""
_PARTS = range(1, 10)
"""The parts of the depth that were measured."""
_PART_ROUNDS = 2
"""The fewest rounds of a part."""
_MERGE_BANDWIDTH = 1.16
"""The speed of the dispatch that adds parts, which are partly in caches, beside a copy's."""


class MatrixChoice(NamedTuple):
    """Tiles for a product.

    Attributes:
        tile: The tile.
        parts: Parts that the depth is split into, whose sums another dispatch adds.
        microseconds: The time that this would take by the device's model.
    """

    tile: CooperativeTile
    parts: int
    microseconds: float


def product_tile(
    pixels: int, outputs: int, depth: int, groups: int, caps: Capabilities, *, b_along_depth: bool
) -> tuple[CooperativeTile, int]:
    """The fastest tile for so many pixels, outputs and terms of a group, and into how many parts the terms are split: by the
    device's model, where it knows the rate of matrices, else as a matrix product has them."""
    chosen = decided(_timeless_choice, caps, pixels, outputs, depth, groups)
    if chosen is not None:
        return CooperativeTile(*chosen[0]), chosen[1]
    return parted_tile(pixels, outputs, depth, groups, caps, b_along_depth=b_along_depth, patient=False)


def plane_tile(outputs: int, pixels: int, groups: int, caps: Capabilities) -> CooperativeTile:
    """The tile for a product whose columns are the pixels of planes. The widest is none for them: H100, 512 channels of
    32x28x28 to 512 in 60 us, with tiles of 128x128 in 54."""
    return cooperative_tile(outputs, pixels, groups, caps, b_along_depth=True)


def matrix_choice(pixels: int, outputs: int, depth: int, groups: int, caps: Capabilities) -> MatrixChoice | None:
    """The fastest tiles that the device takes, by its model; None where it does not know the rate of matrices."""
    possible = _possible(pixels, outputs, depth, groups, caps)
    return min(possible, key=lambda choice: choice.microseconds, default=None)


@functools.lru_cache(maxsize=1024)
def _timeless_choice(
    caps: Capabilities, pixels: int, outputs: int, depth: int, groups: int
) -> tuple[tuple[int, ...], int] | None:
    choice = matrix_choice(pixels, outputs, depth, groups, caps)
    return None if choice is None else (tuple(choice.tile), choice.parts)


def _possible(pixels: int, outputs: int, depth: int, groups: int, caps: Capabilities) -> Iterator[MatrixChoice]:
    model = caps.model
    rate = model.half_products_per_microsecond
    if caps.is_cpu or rate is None:
        return
    for row in MATRIX_TILES:
        tile = row.tile
        invocations = tile.subgroups * caps.subgroup_size
        if tile.shared_bytes > caps.shared_memory_bytes or invocations > caps.workgroup_invocations:
            continue
        if not tile.is_shared_evenly(invocations):
            continue
        rounds = -(-depth // tile.depth)
        tiles = tile.tiles(pixels, outputs) * groups
        for parts in _PARTS:
            nbytes = 4 * parts * pixels * outputs * groups
            if parts > 1 and (rounds < parts * _PART_ROUNDS or nbytes > caps.storage_buffer_bytes):
                break
            each = -(-rounds // parts)
            time = model.dispatch_microseconds + row.microseconds(tiles * parts, each * tile.depth, caps, rate)
            if parts > 1:
                time += model.dispatch_microseconds + 2 * nbytes / (_MERGE_BANDWIDTH * model.bytes_per_microsecond)
            yield MatrixChoice(tile, -(-rounds // each), time)
