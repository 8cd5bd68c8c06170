"""The rules of fills."""

from __future__ import annotations

from dataclasses import dataclass

from dmlvk.kernels.common.rule import Rule, always
from dmlvk.kernels.common.shapes import WORD_BITS, Coalesced
from dmlvk.spec.enums import TensorDataType
from dmlvk.spec.tensor import element_bits


@dataclass(frozen=True)
class FillProblem:
    """Fills, as their kernels see them.

    Attributes:
        data_type: The kernel's T: the unsigned type of the output's element size, UINT32 for 64-bit elements.
        halves: Elements of T in an element of the output.
        walk: The dimensions in the order in which the output lies in memory, merged; steps of the position, the source
            and the output, all in elements.
    """

    data_type: TensorDataType
    halves: int
    walk: Coalesced

    @property
    def word_elements(self) -> int:
        """Elements of the output in a 16-byte word."""
        return WORD_BITS // (element_bits(self.data_type) * self.halves)

    @property
    def whole_words(self) -> bool:
        """Whether every row of the output is contiguous and starts on a word."""
        *outer, inner = self.walk.strides[-1]
        return inner == 1 and all(step % self.word_elements == 0 for step in outer)


FILL = (
    Rule(
        "words",
        when=always,
        possible=lambda p, caps: p.whole_words,
        because="rows of the output lie contiguous and start on 16-byte words: fewest instructions a byte written",
    ),
    Rule("elements", when=always, possible=always, because="any strides: one element at a time"),
)
