"""The rules of quantization and its inverse."""

from __future__ import annotations

from dataclasses import dataclass

from dmlvk.kernels.common.rule import Rule, always
from dmlvk.kernels.common.shapes import Coalesced, group_lanes
from dmlvk.spec.tensor import packed_strides


@dataclass(frozen=True)
class QuantizationProblem:
    """Quantizations and their inverses, as their kernels see them.

    Attributes:
        bits: The bits of an element of the input and of the output.
        walk: The dimensions in the order in which the output lies in memory, those of blocks split in two, merged; steps
            of the input, the scale, the zero point and the output in elements.
    """

    bits: tuple[int, int]
    walk: Coalesced

    @property
    def lanes(self) -> int:
        """Elements that an invocation handles at once where it can: 16 to make bytes of, so that what it makes of one scale
        serves many."""
        return 16 if self.bits[1] == 8 else group_lanes(*self.bits)

    @property
    def packed(self) -> bool:
        """Whether input and output lie packed, in the order of the walk."""
        packed = packed_strides(self.walk.sizes)
        return self.walk.strides[0] == packed and self.walk.strides[-1] == packed


QUANTIZATION = (
    Rule(
        "groups",
        when=always,
        possible=lambda p, caps: p.packed,
        because="input and output lie packed in one order: whole words of both move, whatever the blocks of the scales are",
    ),
    Rule(
        "elements",
        when=always,
        possible=always,
        because="any strides: one element, or one word of 4-bit ones where their dimensions nest, at a time",
    ),
)
