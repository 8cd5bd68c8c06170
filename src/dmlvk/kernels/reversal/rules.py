"""The rules of reversed subsequences."""

from __future__ import annotations

from dataclasses import dataclass

from dmlvk.kernels.common.rule import Rule, always
from dmlvk.kernels.common.shapes import Coalesced
from dmlvk.kernels.copy.rules import UNITS_BECAUSE, WORDS_BECAUSE, words_pay
from dmlvk.spec.tensor import packed_strides


@dataclass(frozen=True)
class ReversalProblem:
    """Reversals of beginnings of subsequences as their kernel sees them.

    Attributes:
        bits: The bits of a unit: an element, or several.
        walk: The dimensions over which rows are counted, in the order in which the output lies in memory, merged; steps of
            the input and the output in units, and of the lengths in elements.
        axis: The one of them that is the subsequences'.
        size: Units of a row: those that follow the axis where they share their length.
        steps: The steps from one of them to the next in the input and in the output.
    """

    bits: int
    walk: Coalesced
    axis: int
    size: int
    steps: tuple[int, int]

    @property
    def in_rows(self) -> bool:
        """Whether rows are contiguous in both."""
        return self.steps == (1, 1)

    @property
    def is_even(self) -> bool:
        """Whether units of twice the size have places of their own."""
        places = (self.size, *self.walk.strides[0], *self.walk.strides[1])
        return self.in_rows and all(place % 2 == 0 for place in places)

    @property
    def output_is_packed(self) -> bool:
        """Whether the output's rows follow each other."""
        return (*self.walk.strides[1], self.steps[1]) == packed_strides((*self.walk.sizes, self.size))

    @property
    def row_bytes(self) -> int:
        """The bytes of a row that is contiguous in both."""
        return self.size * self.bits // 8


REVERSAL = (
    Rule(
        "rows",
        when=lambda p, caps: words_pay(p.bits, p.row_bytes, len(p.walk.sizes), caps),
        possible=lambda p, caps: p.in_rows,
        because=f"what follows the axis shares its length; {WORDS_BECAUSE}",
    ),
    Rule("units", when=always, possible=always, because=UNITS_BECAUSE),
)
