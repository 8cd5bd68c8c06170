"""The rules of suppression."""

from __future__ import annotations

from dataclasses import dataclass

from dmlvk.kernels.common.rule import Rule, always


@dataclass(frozen=True)
class SuppressionProblem:
    """A suppression, as its kernels see it.

    Attributes:
        groups: Batches times classes, each of which is chosen from by itself.
        boxes: The boxes of each.
        room: The most that each may have chosen.
    """

    groups: int
    boxes: int
    room: int


SUPPRESSION = (
    Rule(
        "chunks",
        when=always,
        possible=always,
        because="two dispatches for each few thousand boxes, best first, of all batches and classes together: one compares "
        "every two of them, and them with what is chosen already, the other chooses by bits alone",
    ),
)
