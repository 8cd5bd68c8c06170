"""The rungs of a matrix product by cooperative matrices: plans of the same loop with more and more of what it does, so that
the cost of each part shows as the rate that is lost from one rung to the next.

H200, 4608^3 in tiles of 128 x 256 x 48, blocks of 64 x 64, TFLOP/s: 590 from registers, 528 from shared memory, 473 with the
barriers, 402 with the tiles written, 348 with loads from a cache, 332 with loads from memory, 334 with the output. No part
is the limit alone: loading matrices, two barriers, writing tiles and waiting for loads cost 53 to 71 each, memory behind the
cache 17, and the output nothing that shows."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from dmlvk.devices.capabilities import Capabilities
from dmlvk.kernels.common.cooperative_matrix import cooperative_matrix
from dmlvk.kernels.common.cooperative_tile import cooperative_constants, cooperative_tile
from dmlvk.kernels.common.dispatch import make_dispatch
from dmlvk.kernels.common.plan import Plan, input_range, output_range
from dmlvk.kernels.common.shapes import linear_grid

_RUNGS: Final = (
    ("registers", 0),
    ("shared memory", 1),
    ("and barriers", 2),
    ("and tiles written", 3),
)
_LEAST_SIZE: Final = 4096
"""Rows, columns and depth of the product on a GPU, at least."""
_CACHED_LINES: Final = 1024
"""Rows and columns of the factors, at least, that a cache of 50 MB holds beside each other."""


@dataclass(frozen=True)
class Rung:
    """A part of a product.

    Attributes:
        name: What it adds to the rung before.
        size: Rows, columns and depth of the product.
        plan: A dispatch of {2, size, size} float16, the factors, to ``output_bytes``.
        output_bytes: The bytes that it writes: for each subgroup the float32 sum of its matrices.
    """

    name: str
    size: int
    plan: Plan
    output_bytes: int

    @property
    def operations(self) -> int:
        """Multiplications and additions."""
        return 2 * self.size**3


def rungs(caps: Capabilities) -> list[Rung]:
    """Every rung with the tile that a large product has, from the fewest parts to all but the output; none where the device
    multiplies no matrices of float16 with float32 sums."""
    matrix = cooperative_matrix(caps, "float16", "float32")
    if matrix is None:
        return []
    tile = cooperative_tile(_LEAST_SIZE, _LEAST_SIZE, 1, caps)
    assert tile.buffers == 1, "the kernel has one"
    step = math.lcm(tile.rows, tile.columns, tile.depth)
    size = 3 * step if caps.is_cpu else -(-_LEAST_SIZE // step) * step
    cached = step if caps.is_cpu else -(-_CACHED_LINES // step) * step
    tiles = tile.tiles(size, size)
    constants = {**cooperative_constants(tile, matrix, caps), "A_ALONG_K": 1, "B_ALONG_K": 0}
    found = []
    for name, rung, lines in (
        *((*own, cached) for own in _RUNGS),
        ("and loads from a cache", 4, cached),
        ("and from memory", 4, size),
    ):
        made = make_dispatch(
            "peak_ladder",
            (input_range(0), output_range()),
            linear_grid(tiles, caps),
            caps.subgroup_size,
            variant={},
            constants={**constants, "RUNG": rung},
            size=size,
            lines=lines,
            nothing=0,
        )
        found.append(Rung(name, size, Plan((made,)), tiles * tile.subgroups * matrix.m * matrix.n * 4))
    return found
