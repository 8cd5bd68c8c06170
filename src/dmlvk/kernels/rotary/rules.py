"""The rules of rotary embedding."""

from __future__ import annotations

from dataclasses import dataclass

from dmlvk.kernels.common.rule import Rule, always


@dataclass(frozen=True)
class RotaryProblem:
    """A rotary embedding, as its kernel sees it.

    Attributes:
        chunks: Groups of four pairs, and of four elements that stay, of all heads.
        quads: Whether they lie in aligned groups of four elements, in all tensors.
    """

    chunks: int
    quads: bool


ROTARY = (
    Rule(
        "pairs",
        when=always,
        possible=always,
        because="an invocation turns four pairs and finds their cosines and sines itself: each element is read and written "
        "once, where products, sums and rows gathered from tables are four to ten dispatches",
    ),
)
