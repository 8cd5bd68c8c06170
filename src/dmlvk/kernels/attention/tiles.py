"""Tiles of attention without matrices: the shapes that a workgroup may cover, and which is the fastest."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

from dmlvk.devices.capabilities import Capabilities
from dmlvk.kernels.attention.manifest import BLOCK_SIDE
from dmlvk.kernels.attention.problem import AttentionProblem
from dmlvk.spec.size import decided

_Fields = tuple[int, int, int, int, int]
"""Heads, rows, keys, and the elements of a head of keys and of values."""


class AttentionTileShape(NamedTuple):
    """The cover of a tile by a workgroup; see ``glsl/attention_tiles.comp``. ``depth`` divides ``keys``."""

    invocations: int
    rows: int
    keys: int
    depth: int


class AttentionTile(NamedTuple):
    """A tile for a problem on a device.

    Attributes:
        shape: Its cover. A device of small subgroups has fewer invocations.
        across: The invocations along keys and columns.
        step: How far apart these are: 2 where subgroups have room for it, so that two neighbours share keys and columns.
        columns: The columns of the values that the sums in registers hold.
        head: The elements of a head of queries in shared memory, in whole chunks; 0 where each chunk stages its own.
    """

    shape: AttentionTileShape
    across: int
    step: int
    columns: int
    head: int

    @property
    def shared_memory_bytes(self) -> int:
        """The shared memory of a workgroup."""
        _, rows, keys, depth = self.shape
        lines = keys if self.head else keys + rows
        stage = max(lines * (depth // 4 + 1), depth * self.columns // 4)
        queries = rows * (self.head // 4 + 1) if self.head else 1
        return 16 * (2 * stage + rows * (keys // 4 + 1) + queries)


class AttentionBlock(NamedTuple):
    """A tile whose invocations have blocks of 8 rows by 8 keys; see ``glsl/attention_blocks.comp``.

    Attributes:
        rows, keys: The rows and keys of a tile.
        widest: The widest heads that it is meant for, so that sums fit registers.
        time: As ``_TIMES`` has it.
    """

    rows: int
    keys: int
    widest: int
    time: float

    @property
    def invocations(self) -> int:
        """The invocations of a workgroup."""
        return self.rows * self.keys // BLOCK_SIDE**2

    def columns(self, value_size: int) -> int:
        """The columns of the values, in whole quads of the invocations along them."""
        step = self.keys // BLOCK_SIDE * 4
        return -(-value_size // step) * step

    def shared_memory_bytes(self, value_size: int) -> int:
        """The shared memory of a workgroup."""
        row_pitch, key_pitch = self.rows // 4 + 1, self.keys // 4 + 1
        stage = BLOCK_DEPTH * max(row_pitch + key_pitch, self.columns(value_size) // 4)
        return 16 * (2 * stage + self.keys * row_pitch)


_TIMES = {
    64: (2, 0.0643, 0.1335),
    56: (2, 0.0655, 0.148),
    48: (2, 0.068, 0.135),
    40: (3, 0.07, 0.136),
    32: (3, 0.0705, 0.1465),
    24: (3, 0.0895, 0.164),
    16: (3, 0.128, 0.215),
    8: (3, 0.235, 0.375),
}
"""Of tiles of so many rows, how many a processor has at once, and the microseconds that one of several takes for a row and
64 keys, for up to 64 columns of values and for more. From an H200 (2026-11-29), with 12 to 96 heads of 77 to 577 rows of 64
to 128 elements; of 27 such problems the best tile was chosen for 23, and one 3 to 11 % slower for four. 96 heads of 197 rows
of 64 take 44 us with 40 rows, 52 with 32 and 62 with 64 (PyTorch 52)."""
_ALONE = 0.6
"""What a tile takes longer that a processor has alone, as a share."""
_KEY_TIMES = {64: (1.0, 1.0), 80: (1.035, 1.15), 32: (1.15, 1.15)}
"""The time of a key in tiles of so many beside one in those of 64, for up to 64 columns of values and for more."""
_SHAPES = (
    *(AttentionTileShape(128, rows, 64, 16) for rows in _TIMES),
    AttentionTileShape(128, 40, 80, 16),
    AttentionTileShape(128, 32, 32, 16),
)
"""The tiles, of which every device has the last. With 8 scores by 8 an invocation the sums of this kernel spill: blocks are
for that."""
_CPU_SHAPE = AttentionTileShape(64, 16, 32, 4)
"""Small, because a CPU's driver takes seconds to compile unrolled loops."""
_DEPTH_WITH_QUERIES = 8
"""The depth where each chunk stages its own queries. H100, 32 heads of 2048 rows of 128: 30.6 TFLOP/s, with 16 27.9."""
BLOCK_DEPTH = 8
"""The elements of heads, or the keys, that blocks stage at once."""
ATTENTION_BLOCKS = (
    AttentionBlock(128, 64, widest=64, time=0.0598),
    AttentionBlock(64, 128, widest=128, time=0.112),
    AttentionBlock(16, 16, widest=16, time=math.inf),
)
"""From the fastest to one that devices with subgroups of 4 can run, too, of heads so narrow that a CPU's driver compiles it
in seconds. That was measured on no GPU and is not chosen."""


def _tile_of(shape: AttentionTileShape, head_size: int, value_size: int, caps: Capabilities) -> AttentionTile | None:
    """A tile of a shape, with its queries in shared memory where there is room; None where there is none at all."""
    columns = 128 if value_size > 64 and shape.keys > 32 else 64 if value_size > 32 else 32
    across = min(columns // 4, 16, 1 << (caps.minimum_subgroup_size.bit_length() - 1))
    own = shape._replace(invocations=min(shape.invocations, shape.rows * across))
    if own.rows % (own.invocations // across) or own.invocations > caps.workgroup_invocations:
        return None
    step = 2 if 2 * across <= caps.minimum_subgroup_size and own.invocations % (2 * across) == 0 else 1
    head = -(-head_size // shape.depth) * shape.depth
    restaging = own._replace(depth=min(own.depth, _DEPTH_WITH_QUERIES))
    for tile in (AttentionTile(own, across, step, columns, head), AttentionTile(restaging, across, step, columns, 0)):
        if tile.shared_memory_bytes <= caps.shared_memory_bytes:
            return tile
    return None


def _waves(tiles: int, together: int, caps: Capabilities) -> float:
    """The tiles that the busiest processor has one after the other; those that it has alone count more."""
    each = -(-tiles // caps.model.processors)
    alone = each == 1 or (together == 2 and each % 2 == 1)
    return each + (_ALONE if alone else 0)


def _computed(keys: int, tile: int, depth: int) -> float:
    """The keys that are computed: whole tiles of scores, and whole chunks of values."""
    return (-(-keys // tile) * tile + -(-keys // depth) * depth) / 2


def _times(
    caps: Capabilities, split: bool, heads: int, rows: int, keys: int, head_size: int, value_size: int
) -> Iterator[tuple[AttentionTile, float]]:
    """The tiles that the device has room for, and the microseconds that each takes; at least one. Where keys are shared out,
    there are tiles for all processors."""
    for shape in (_CPU_SHAPE,) if caps.is_cpu else _SHAPES:
        tile = _tile_of(shape, head_size, value_size, caps)
        if tile is None:
            continue
        is_wide = tile.columns > 64
        together, *row_times = _TIMES[shape.rows]
        tiles = heads * -(-rows // shape.rows)
        waves = tiles / caps.model.processors if split else _waves(tiles, together, caps)
        key_time = _KEY_TIMES[shape.keys][is_wide] * _computed(keys, shape.keys, tile.shape.depth) / 64
        yield tile, -(-value_size // tile.columns) * waves * shape.rows * row_times[is_wide] * key_time


def _fastest(caps: Capabilities, split: bool, fields: _Fields) -> tuple[AttentionTile, float]:
    return min(_times(caps, split, *fields), key=lambda timed: timed[1])


def _fastest_tile(caps: Capabilities, split: bool, fields: _Fields) -> AttentionTile:
    return _fastest(caps, split, fields)[0]


def _fields(problem: AttentionProblem) -> _Fields:
    return problem.heads, problem.rows, problem.keys, problem.head_size, problem.value_size


def fastest_tile(problem: AttentionProblem, caps: Capabilities, *, split: bool) -> AttentionTile:
    """The tile with which the busiest processor is done first, where ``split`` with the keys shared out."""
    tile: AttentionTile = decided(_fastest_tile, caps, split, _fields(problem))
    return tile


def _block_of(head_size: int, value_size: int, caps: Capabilities) -> AttentionBlock | None:
    for shape in ATTENTION_BLOCKS:
        if (
            max(head_size, value_size) <= shape.widest
            and shape.keys // 4 <= caps.minimum_subgroup_size
            and shape.invocations <= caps.workgroup_invocations
            and shape.shared_memory_bytes(value_size) <= caps.shared_memory_bytes
        ):
            return shape
    return None


def attention_block(problem: AttentionProblem, caps: Capabilities) -> AttentionBlock | None:
    """The first shape of blocks that the device has room for; None where there is none."""
    return _block_of(problem.head_size, problem.value_size, caps)


def _are_blocks_faster(caps: Capabilities, fields: _Fields) -> bool:
    heads, rows, keys, head_size, value_size = fields
    shape = _block_of(head_size, value_size, caps)
    if shape is None or caps.is_cpu:
        return False
    waves = _waves(heads * -(-rows // shape.rows), 2, caps)  # registers leave room for two
    time = waves * shape.rows * shape.time * _computed(keys, shape.keys, BLOCK_DEPTH) / 64
    return time < _fastest(caps, False, fields)[1]


def blocks_pay(problem: AttentionProblem, caps: Capabilities) -> bool:
    """Whether blocks are done before the fastest tiles."""
    return bool(decided(_are_blocks_faster, caps, _fields(problem)))
