"""Formats of weights in blocks: numbers of a few bits, the codes, which a scale of their block makes numbers of.

A number is scale * (code - zero point) + minimum, in float32; a format has what it needs of that. A format is a row of data:
which bits of a file are codes, scales, zero points and minimums. Operators are given the bytes of the file.
"""

from __future__ import annotations

import enum
from typing import Final, NamedTuple


class CodeOrder(enum.IntEnum):
    """Where the codes of a block lie. The block's codes are counted in chunks of 32."""

    BYTES = 0
    """A byte each."""
    NEIGHBOURS = 1
    """Codes 2 i and 2 i + 1 are the low and the high half of byte i."""
    HALVES = 2
    """Codes i and i + 16 are the halves of byte i; fifth bits are a word of 32 bits."""
    CHUNKS = 3
    """Codes i of two neighbouring chunks are the halves of byte i of 32; bit c of byte i of 32 is the fifth of chunk c."""
    SIXES = 4
    """Codes i of chunks c and c + 2 of four are halves of a byte i of 64; of 32, i has two more bits for each chunk."""


class ScaleKind(enum.IntEnum):
    """What a scale is."""

    FLOAT16 = 0
    BFLOAT16 = 1
    FLOAT32 = 2
    SIXES = 3
    """A whole number of 6 bits times a FLOAT16 of all blocks of a group; so are minimums, times another one."""
    BYTES = 4
    """A signed byte times a FLOAT16 of all blocks of a group."""

    @property
    def grouped(self) -> bool:
        """Whether blocks have a FLOAT16 in common."""
        return self in (ScaleKind.SIXES, ScaleKind.BYTES)


class OffsetKind(enum.IntEnum):
    """What a block has beside its scale."""

    NONE = 0
    """Nothing: the zero point is the middle of the codes."""
    ZERO_POINT = 1
    """A zero point that is a code."""
    REAL = 2
    """A zero point of the scale's type."""
    MINIMUM = 3
    """A number of the scale's type that is added. The zero point is 0."""
    LESS = 4
    """A number as the scale is, which is subtracted. The zero point is 0."""


class BlockLayout(NamedTuple):
    """What the bytes of a format mean.

    Attributes:
        bits: Bits of a code.
        block: Codes with a scale in common.
        group: Codes whose bytes lie together: a block, or all those with a FLOAT16 in common. 0: codes lie by themselves.
        nbytes: The bytes of a group.
        order: Where codes lie.
        codes: The first byte of the codes, or of their low four bits.
        high: The first byte of their further bits.
        scales: The first byte of the scales; of those that are grouped, of their whole numbers.
        factors: The first byte of the FLOAT16 that blocks have in common.
        scale, offset: What these are.
        signed: Whether codes are in two's complement.
    """

    bits: int
    block: int
    group: int
    nbytes: int
    order: CodeOrder
    codes: int
    high: int
    scales: int
    factors: int
    scale: ScaleKind
    offset: OffsetKind
    signed: bool = False


class BlockFormat(enum.IntEnum):
    """A format, with GGUF's name and number. The last two have tensors of their own for scales and zero points, as operators
    of ONNX Runtime do."""

    Q4_0 = 2
    Q4_1 = 3
    Q5_0 = 6
    Q5_1 = 7
    Q8_0 = 8
    Q4_K = 12
    Q5_K = 13
    Q6_K = 14
    APART_4 = 104
    """4 bits, two codes a byte, the low half first."""
    APART_8 = 108
    """8 bits."""

    @property
    def layout(self) -> BlockLayout:
        """What its bytes mean. Of a format APART the operator knows the block, the scale, the offset, and the sign."""
        return _LAYOUTS[self]

    @property
    def is_apart(self) -> bool:
        """Whether scales have a tensor of their own."""
        return self in (BlockFormat.APART_4, BlockFormat.APART_8)

    def row_bytes(self, depth: int) -> int:
        """The bytes of a row of so many codes, the last group filled up. Not of a format APART."""
        return -(-depth // self.layout.group) * self.layout.nbytes


_O, _S, _X = CodeOrder, ScaleKind, OffsetKind
_LAYOUTS: Final = {
    BlockFormat.Q4_0: BlockLayout(4, 32, 32, 18, _O.HALVES, 2, 0, 0, 0, _S.FLOAT16, _X.NONE),
    BlockFormat.Q4_1: BlockLayout(4, 32, 32, 20, _O.HALVES, 4, 0, 0, 0, _S.FLOAT16, _X.MINIMUM),
    BlockFormat.Q5_0: BlockLayout(5, 32, 32, 22, _O.HALVES, 6, 2, 0, 0, _S.FLOAT16, _X.NONE),
    BlockFormat.Q5_1: BlockLayout(5, 32, 32, 24, _O.HALVES, 8, 4, 0, 0, _S.FLOAT16, _X.MINIMUM),
    BlockFormat.Q8_0: BlockLayout(8, 32, 32, 34, _O.BYTES, 2, 0, 0, 0, _S.FLOAT16, _X.NONE, signed=True),
    BlockFormat.Q4_K: BlockLayout(4, 32, 256, 144, _O.CHUNKS, 16, 0, 4, 0, _S.SIXES, _X.LESS),
    BlockFormat.Q5_K: BlockLayout(5, 32, 256, 176, _O.CHUNKS, 48, 16, 4, 0, _S.SIXES, _X.LESS),
    BlockFormat.Q6_K: BlockLayout(6, 16, 256, 210, _O.SIXES, 0, 128, 192, 208, _S.BYTES, _X.NONE),
    BlockFormat.APART_4: BlockLayout(4, 0, 0, 0, _O.NEIGHBOURS, 0, 0, 0, 0, _S.FLOAT16, _X.NONE),
    BlockFormat.APART_8: BlockLayout(8, 0, 0, 0, _O.BYTES, 0, 0, 0, 0, _S.FLOAT16, _X.NONE),
}
