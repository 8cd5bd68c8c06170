"""The rules of the gradients of pooling."""

from __future__ import annotations

from dataclasses import dataclass

from dmlvk.devices.capabilities import Capabilities
from dmlvk.kernels.common.rule import Rule, always


@dataclass(frozen=True)
class PoolingGradientProblem:
    """A gradient of a pooling, as its rules see it.

    Attributes:
        whole: Whether a single window holds the whole input.
        tile_words: Registers that an invocation takes which makes the smallest tile of dx from all windows around it; None
            where the windows are those of volumes or their taps are apart.
    """

    whole: bool
    tile_words: int | None


GRADIENT_TILE_WORDS = 200
"""Most registers of elements, windows and results: with what else an invocation needs they stay below 255, the most that it
has."""


def _in_tiles(problem: PoolingGradientProblem, caps: Capabilities) -> bool:
    return problem.tile_words is not None and problem.tile_words <= GRADIENT_TILE_WORDS


_WINDOWS = "any window: each element of dx fetches the gradients of the windows that hold it"
_TILES = Rule(
    "lanes",
    when=always,
    possible=_in_tiles,
    because="small windows: an invocation makes a tile of dx and reads dy, and x of a maximum, in groups, each element once "
    "for all windows that share it: no index is written, and no memory is needed beside the tensors. H200, over "
    "32x256x56x56 in float32, PyTorch in brackets: maximum 2x2 with a step of 2 61 us (267), 3x3 with a step of 2 76 us "
    "(312), 3x3 156 us (415), which takes more arithmetic than memory; average 37 us (461), 37 us (548), 65 us (728)",
)

AVERAGE_POOLING_GRADIENT = (
    Rule(
        "broadcast",
        when=always,
        possible=lambda problem, caps: problem.whole,
        because="whole planes: dx is dy times one number, broadcast. H200, 128x2048x7x7 in float32: 19 us, PyTorch 195",
    ),
    _TILES,
    Rule("elements", when=always, possible=always, because=_WINDOWS),
)

MAX_POOLING_GRADIENT = (
    _TILES,
    Rule(
        "indices",
        when=always,
        possible=always,
        because=f"{_WINDOWS}. The forward kernel first finds the indices of the maxima, which are temporary memory, 4 bytes "
        "an element of dy, and beside them the maxima that it finds, too: without them each element would search all "
        "windows that hold it",
    ),
)
