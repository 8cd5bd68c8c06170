"""The rules of blocks of images, Fold and Unfold."""

from __future__ import annotations

import math
from dataclasses import dataclass

from dmlvk.kernels.common.rule import Rule, always
from dmlvk.kernels.common.shapes import Coalesced, coalesce


@dataclass(frozen=True)
class BlockDimension:
    """A spatial dimension of an image and its blocks, or several that are as one.

    Attributes:
        size: The size of the image.
        window, stride, dilation, start: The sliding window; the padding before the image.
        blocks: The number of windows.
        step: The step of the image in memory.
    """

    size: int
    window: int
    stride: int
    dilation: int
    start: int
    blocks: int
    step: int

    @property
    def whole(self) -> bool:
        """Whether blocks are the image's elements, one for one."""
        return self.window == 1 and self.start == 0 and self.stride == 1 and self.blocks == self.size


@dataclass(frozen=True)
class FoldProblem:
    """Blocks of images as the kernels see them.

    Attributes:
        bits: The bits of an element.
        kept: N and C, or both as one; steps of the image and of its columns.
        dimensions: The spatial ones, merged.
        tap_step, block_step: The columns' steps from one element of a window to the next and from one block to the next.
    """

    bits: int
    kept: Coalesced
    dimensions: tuple[BlockDimension, ...]
    tap_step: int
    block_step: int

    @property
    def in_rows(self) -> bool:
        """Whether a line of blocks is contiguous in the columns, and what it takes in the image."""
        line = self.dimensions[-1]
        return line.blocks == 1 or (line.stride == 1 and line.step == 1 and self.block_step == 1)

    @property
    def columns(self) -> Coalesced:
        """The columns' dimensions, merged, and their steps."""
        window, blocks = (math.prod(getattr(own, name) for own in self.dimensions) for name in ("window", "blocks"))
        steps = (*self.kept.strides[1], self.tap_step, self.block_step)
        return coalesce((*self.kept.sizes, window, blocks), [steps])

    @property
    def packed(self) -> bool:
        """Whether the columns' elements follow each other."""
        return self.columns.strides == ((1,),)


FOLD = (
    Rule(
        "outputs",
        when=always,
        possible=always,
        because="any blocks: an invocation adds what covers its output, without atomics; one read and one write of each "
        "byte, neighbours side by side. H200, 3x3 of 56x56 in float32: 4140 GB/s, at stride 2 1430",
    ),
)

UNFOLD = (
    Rule(
        "rows",
        when=lambda p, caps: p.packed or p.dimensions[-1].blocks * p.bits >= 256,
        possible=lambda p, caps: p.in_rows,
        because="lines of blocks are contiguous runs of the image's: words of the output, each shifted together from two of "
        "the image, so that a line's place is found once a word. H200, 3x3 of 56x56: float32 in 123 us against 217, float16 "
        "70 against 219",
    ),
    Rule("elements", when=always, possible=always, because="any strides: one element at a time"),
)
