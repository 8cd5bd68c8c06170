"""Formats of numbers with which no operator of DirectML's computes. A tensor holds their bits, as integers."""

from __future__ import annotations

import enum
from typing import Final, NamedTuple

from dmlvk.spec.enums import TensorDataType


class Scheme(enum.IntEnum):
    """How bits stand for a number."""

    FLOATING = 0
    """A sign, an exponent and a fraction, as in IEEE 754."""
    EXPONENT = 1
    """A biased exponent alone: a power of two."""
    INTEGER = 2
    """A whole number, in two's complement where it has a sign."""


class Layout(NamedTuple):
    """What the bits of a format mean.

    Attributes:
        scheme: Which of the following there are.
        bits: How many there are.
        signed: Whether there are negative numbers.
        mantissa: Bits after the point.
        bias: The number that is added to the exponent to get its bits.
        largest: Bits of the largest number.
        infinity: Bits of what is beyond it where that is not cut to it.
        nan: Bits of what is no number.
    """

    scheme: Scheme
    bits: int
    signed: bool
    mantissa: int
    bias: int
    largest: int
    infinity: int
    nan: int


class NumberFormat(enum.IntEnum):
    """A format, with ONNX's name. The values are none of ``TensorDataType``, so that one table may have both."""

    BFLOAT16 = 101
    FLOAT8E4M3FN = 102
    FLOAT8E4M3FNUZ = 103
    FLOAT8E5M2 = 104
    FLOAT8E5M2FNUZ = 105
    FLOAT8E8M0 = 106
    FLOAT4E2M1 = 107
    FLOAT6E2M3 = 108
    FLOAT6E3M2 = 109
    INT4 = 110
    UINT4 = 111
    INT2 = 112
    UINT2 = 113

    @property
    def layout(self) -> Layout:
        """What its bits mean."""
        return _LAYOUTS[self]

    @property
    def carrier(self) -> TensorDataType:
        """The data type of a tensor with its bits."""
        return _CARRIERS.get(self, TensorDataType.UINT8)


_LAYOUTS: Final = {
    NumberFormat.BFLOAT16: Layout(Scheme.FLOATING, 16, True, 7, 127, 0x7F7F, 0x7F80, 0x7FC0),
    NumberFormat.FLOAT8E4M3FN: Layout(Scheme.FLOATING, 8, True, 3, 7, 0x7E, 0x7F, 0x7F),
    NumberFormat.FLOAT8E4M3FNUZ: Layout(Scheme.FLOATING, 8, True, 3, 8, 0x7F, 0x80, 0x80),
    NumberFormat.FLOAT8E5M2: Layout(Scheme.FLOATING, 8, True, 2, 15, 0x7B, 0x7C, 0x7F),
    NumberFormat.FLOAT8E5M2FNUZ: Layout(Scheme.FLOATING, 8, True, 2, 16, 0x7F, 0x80, 0x80),
    NumberFormat.FLOAT8E8M0: Layout(Scheme.EXPONENT, 8, False, 0, 127, 0xFE, 0xFF, 0xFF),
    # These three have neither infinity nor NaN, which becomes -0.
    NumberFormat.FLOAT4E2M1: Layout(Scheme.FLOATING, 4, True, 1, 1, 0x07, 0x07, 0x08),
    NumberFormat.FLOAT6E2M3: Layout(Scheme.FLOATING, 6, True, 3, 1, 0x1F, 0x1F, 0x20),
    NumberFormat.FLOAT6E3M2: Layout(Scheme.FLOATING, 6, True, 2, 3, 0x1F, 0x1F, 0x20),
    NumberFormat.INT4: Layout(Scheme.INTEGER, 4, True, 0, 0, 7, 0, 0),
    NumberFormat.UINT4: Layout(Scheme.INTEGER, 4, False, 0, 0, 15, 0, 0),
    NumberFormat.INT2: Layout(Scheme.INTEGER, 2, True, 0, 0, 1, 0, 0),
    NumberFormat.UINT2: Layout(Scheme.INTEGER, 2, False, 0, 0, 3, 0, 0),
}

_CARRIERS: Final = {
    NumberFormat.BFLOAT16: TensorDataType.UINT16,
    NumberFormat.FLOAT4E2M1: TensorDataType.UINT4,
    NumberFormat.INT4: TensorDataType.INT4,
    NumberFormat.UINT4: TensorDataType.UINT4,
}


class FormatRounding(enum.IntEnum):
    """How a number that a format lacks becomes one that it has."""

    NEAREST = 0
    """To the nearest. Halves to even; of whole numbers that are not cut to the range, and of powers of two, away from 0."""
    UP = 1
    DOWN = 2
