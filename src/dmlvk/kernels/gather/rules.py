"""The rules of gathers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from dmlvk.kernels.common.rule import Rule, always
from dmlvk.kernels.common.shapes import Coalesced
from dmlvk.kernels.copy.rules import UNITS_BECAUSE, WORDS_BECAUSE, words_pay
from dmlvk.spec.tensor import packed_strides


class ChosenDimension(NamedTuple):
    """A dimension of an input that indices are for: its size, and its stride in units."""

    size: int
    stride: int


@dataclass(frozen=True)
class GatherProblem:
    """A gather as its kernel sees it: rows of units, each of an element's bits or several elements'.

    Attributes:
        bits: The bits of a unit.
        rows: The dimensions of the output that each have a place of their own, in the order in which it lies in memory,
            merged; strides of the input in units, of the indices in elements, and of the output in units.
        size: Units of a row, all of them beside the place that its indices name.
        steps: The steps from one of them to the next in the input and in the output.
        chosen: The dimension that each index of a tuple chooses in.
        index_step: The step from an index of a tuple to the next, in elements.
        input_bytes: The bytes of the input.
    """

    bits: int
    rows: Coalesced
    size: int
    steps: tuple[int, int]
    chosen: tuple[ChosenDimension, ...]
    index_step: int
    input_bytes: int

    @property
    def in_rows(self) -> bool:
        """Whether rows are contiguous in both."""
        return self.steps == (1, 1)

    @property
    def is_even(self) -> bool:
        """Whether units of twice the size have places of their own."""
        x, _, output = self.rows.strides
        places = (self.size, *x, *output, *(dimension.stride for dimension in self.chosen))
        return self.in_rows and all(place % 2 == 0 for place in places)

    @property
    def output_is_packed(self) -> bool:
        """Whether the output's rows follow each other."""
        return (*self.rows.strides[2], self.steps[1]) == packed_strides((*self.rows.sizes, self.size))

    @property
    def row_bytes(self) -> int:
        """The bytes of a row that is contiguous in both."""
        return self.size * self.bits // 8


GATHER = (
    Rule(
        "rows",
        when=lambda p, caps: words_pay(p.bits, p.row_bytes, len(p.rows.sizes), caps),
        possible=lambda p, caps: p.in_rows and p.input_bytes <= caps.storage_buffer_bytes,
        because=f"{WORDS_BECAUSE}; gathered rows of 773 float16: 221 us against 378",
    ),
    Rule("units", when=always, possible=always, because=UNITS_BECAUSE),
)
