"""THE table of architectures: what of a decoder network is one's own, a row each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal


@dataclass(frozen=True)
class Architecture:
    """What a family of models has of its own. All have norms by the root of the mean square, grouped heads, rotary
    embeddings and a gated feed-forward part. Biases, factors of rotations and an output matrix apart from the embeddings are
    there where a file has them, and matrices that read the same rows are one where a file has them so.

    Attributes:
        name: The name in files.
        activation: What the gate goes through.
        interleaved: Whether the two elements that turn together are neighbours; else they stand half of them apart.
        head_norms: Whether each head's queries and keys are normalised before they turn.
        post_norms: Whether what attention and the feed-forward part give is normalised before it is added.
        scaled_embeddings: Whether embeddings are multiplied with the root of their width.
        window_period: Of so many layers the last one sees all rows, the others a window, where the file has one; 0 if all
            layers see the window, 1 if none does.
        local_base: The base of the rotations of layers with a window, which nothing scales; 0 if it is that of the others.
        widest_layers: A model with so many layers divides scores by the root of width / heads, not of a head's size: what
            files do not say.
    """

    name: str
    activation: Literal["silu", "gelu"] = "silu"
    interleaved: bool = False
    head_norms: bool = False
    post_norms: bool = False
    scaled_embeddings: bool = False
    window_period: int = 1
    local_base: float = 0.0
    widest_layers: int = 0


ARCHITECTURES: Final[Mapping[str, Architecture]] = {
    row.name: row
    for row in (
        Architecture("llama", interleaved=True),
        Architecture("qwen2"),
        Architecture("qwen3", head_norms=True),
        Architecture("gemma2", "gelu", post_norms=True, scaled_embeddings=True, window_period=2, widest_layers=46),
        Architecture(
            "gemma3",
            "gelu",
            head_norms=True,
            post_norms=True,
            scaled_embeddings=True,
            window_period=6,
            local_base=10000.0,
            widest_layers=62,
        ),
        Architecture("phi3", window_period=0),
    )
}
"""The architectures, by name."""
