"""The numbers and the weights of a language model: what a file says of it, as the network needs it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from dmlvk.llm.architecture import Architecture

Numbers = npt.NDArray[np.float64]


class Rotation(NamedTuple):
    """A rotary embedding: pairs of a head's elements turn with the position.

    Attributes:
        frequencies: Radians a position, for each pair; what a head has more than these pairs stays as it is.
        scale: What cosines and sines are multiplied with.
        long_frequencies: The frequencies of a cache with more than ``original`` rows, where these are others.
        original: The rows for which the model was made before it was made for more; 0 without other frequencies.
    """

    frequencies: Numbers
    scale: float = 1.0
    long_frequencies: Numbers | None = None
    original: int = 0

    def tables(self, capacity: int) -> tuple[Numbers, Numbers]:
        """Cosines and sines of a cache with so many rows: (rows, pairs)."""
        long = self.long_frequencies if capacity > self.original else None
        angles = np.arange(capacity)[:, None] * (self.frequencies if long is None else long)
        return np.cos(angles) * self.scale, np.sin(angles) * self.scale


@dataclass(frozen=True, eq=False)
class ModelConfig:
    """The numbers of a model.

    Attributes:
        architecture: Its row of the table of architectures.
        vocabulary: Tokens.
        layers: Layers.
        width: Elements of a row between layers.
        heads, key_heads: Heads of queries, and of keys and values; a whole number of the first share one of the second.
        head_size: Elements of a head.
        hidden: Elements of a row in the feed-forward part.
        context: The most rows that the model was made for.
        epsilon: What norms add to the mean of squares.
        attention_scale: What scores are multiplied with.
        attention_softcap, output_softcap: Scores, and logits, x become cap * tanh(x / cap); 0 for none.
        windows: For each layer, how many of the newest rows a query sees, its own among them; 0 for all.
        rotations: For each layer, its rotary embedding.
    """

    architecture: Architecture
    vocabulary: int
    layers: int
    width: int
    heads: int
    key_heads: int
    head_size: int
    hidden: int
    context: int
    epsilon: float
    attention_scale: float
    attention_softcap: float
    output_softcap: float
    windows: tuple[int, ...]
    rotations: tuple[Rotation, ...]


@dataclass(frozen=True, eq=False)
class WeightTensor:
    """A weight as a file has it.

    Attributes:
        type: The name of its format, such as "Q4_0", as GGUF has it.
        sizes: Elements a dimension, the last one contiguous.
        data: Its bytes, which may be a view of a file.
    """

    type: str
    sizes: tuple[int, ...]
    data: npt.NDArray[np.uint8]


@dataclass(frozen=True, eq=False)
class Weights:
    """A model as it is loaded: its numbers and its weights, and what else its file says.

    Attributes:
        config: Its numbers.
        tensors: Its weights, by GGUF's names.
        metadata: What else the file says, by GGUF's keys: its tokenizer, and its chat template.
    """

    config: ModelConfig
    tensors: Mapping[str, WeightTensor]
    metadata: Mapping[str, Any]
