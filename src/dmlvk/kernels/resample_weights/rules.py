"""The rules of the weights of a resampling."""

from __future__ import annotations

from dataclasses import dataclass

from dmlvk.kernels.common.rule import Rule, always


@dataclass(frozen=True)
class WeightsProblem:
    """The weights of a resampling, as their kernel sees them.

    Attributes:
        reach: The elements on either side of a position that count.
    """

    reach: int


RESAMPLE_WEIGHTS = (
    Rule(
        "weights",
        when=always,
        possible=always,
        because="an invocation computes one weight: a matrix is small beside the images that it is multiplied with",
    ),
)
