"""The rules of sampling."""

from __future__ import annotations

from dataclasses import dataclass

from dmlvk.kernels.common.rule import Rule, always


@dataclass(frozen=True)
class SamplingProblem:
    """A choice of tokens, as its kernels see it.

    Attributes:
        sequences: The sequences.
        vocabulary: The tokens that each is chosen from.
    """

    sequences: int
    vocabulary: int


SAMPLING = (
    Rule(
        "histograms",
        when=always,
        possible=always,
        because="many workgroups count the tokens and their masses by their distances from the best; the one that counts "
        "last looks only at the bins where top-k, top-p and chance end, so that nothing is sorted",
    ),
)
