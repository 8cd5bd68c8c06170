"""The rules of random numbers."""

from __future__ import annotations

from dataclasses import dataclass

from dmlvk.kernels.common.rule import Rule, always
from dmlvk.kernels.common.shapes import Coalesced


@dataclass(frozen=True)
class RandomProblem:
    """A generator of random words, as its kernel sees it.

    Attributes:
        elements: The elements of the output.
        walk: The dimensions of the output, merged, and its strides, in elements.
    """

    elements: int
    walk: Coalesced

    @property
    def whole_blocks(self) -> bool:
        """Whether every row of the output is contiguous and starts on 16 bytes, and several rows are whole blocks."""
        *outer, inner = self.walk.strides[0]
        return inner == 1 and not any(step % 4 for step in (*outer, *self.walk.sizes[-1:] * bool(outer)))


RANDOM = (
    Rule(
        "words",
        when=always,
        possible=lambda problem, caps: problem.whole_blocks,
        because="rows of the output lie contiguous and start on 16 bytes: a block is written in one access. "
        "H200: 2840 GB/s against 920 word by word",
    ),
    Rule("elements", when=always, possible=always, because="any strides: the four words of a block one by one"),
)
