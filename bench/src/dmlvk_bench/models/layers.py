"""The layers of networks. A network is declared once: ``OnnxLayers`` writes it as ONNX, ``TorchLayers`` computes it.

The layers are those that a PyTorch user names. An ONNX file spells some of them out, as exporters do: GELU and attention are
several nodes there, single functions of PyTorch.
"""

from __future__ import annotations

import math
import zlib
from typing import Any, Protocol, TypeVar

import numpy as np

Array = np.ndarray[Any, Any]
Value = TypeVar("Value")
EPSILON = 1e-5
MASKED = -10000.0
"""The number that is added to the score of a key that is masked; float16 holds it."""


class Weights:
    """Random weights by name, the same ones for whoever asks: each is made when it is first asked for, from its name."""

    def __init__(self) -> None:
        self._made: dict[str, Array] = {}

    def normal(self, name: str, sizes: tuple[int, ...], deviation: float, mean: float = 0.0) -> Array:
        """Normal float32 numbers."""
        if name not in self._made:
            rng = np.random.default_rng(zlib.crc32(name.encode()))
            values = rng.standard_normal(sizes, dtype=np.float32)
            values *= np.float32(deviation)
            values += np.float32(mean)
            self._made[name] = values
        return self._made[name]


class Layers(Protocol[Value]):
    """The layers, over values of whoever implements them. Weights are named by their layer."""

    def convolution(self, x: Value, name: str, inputs: int, outputs: int, kernel: int, stride: int) -> Value:
        """Square, padded by half the kernel, without bias."""

    def batch_norm(self, x: Value, name: str, channels: int, scale: float) -> Value:
        """Batch normalization with fixed statistics; its weights are around ``scale``."""

    def relu(self, x: Value) -> Value:
        """The positive part."""

    def tanh(self, x: Value) -> Value:
        """The hyperbolic tangent."""

    def gelu(self, x: Value) -> Value:
        """The exact one, by the error function."""

    def add(self, x: Value, y: Value) -> Value:
        """The sum."""

    def max_pooling(self, x: Value) -> Value:
        """3 x 3 with stride 2, padded by 1."""

    def image_means(self, x: Value) -> Value:
        """NCHW to NC."""

    def linear(self, x: Value, name: str, inputs: int, outputs: int) -> Value:
        """Along the last axis, with bias."""

    def embedding(self, indices: Value, name: str, count: int, width: int) -> Value:
        """Rows of a table."""

    def positions(self, name: str, count: int, width: int) -> Value:
        """All rows of a table, for a batch of one."""

    def layer_norm(self, x: Value, name: str, width: int) -> Value:
        """Along the last axis."""

    def mask_bias(self, mask: Value) -> Value:
        """The bias of the scores: MASKED where a mask, batch x sequence, is 0, and 0 where it is 1."""

    def attention(self, query: Value, key: Value, value: Value, bias: Value, heads: int, sequence: int, width: int) -> Value:
        """Attention over queries, keys and values of batch x sequence x heads * width each."""

    def first(self, x: Value) -> Value:
        """The first row of each sequence."""


def convolution_weights(weights: Weights, name: str, inputs: int, outputs: int, kernel: int) -> tuple[Array, ...]:
    """A filter that keeps the size of what relu left."""
    deviation = math.sqrt(2 / (inputs * kernel * kernel))
    return (weights.normal(f"{name}.weight", (outputs, inputs, kernel, kernel), deviation),)


def batch_norm_weights(weights: Weights, name: str, channels: int, scale: float) -> tuple[Array, ...]:
    """Scale, bias, mean and variance."""
    sizes = (channels,)
    return (
        weights.normal(f"{name}.weight", sizes, 0.1 * scale, scale),
        weights.normal(f"{name}.bias", sizes, 0.1),
        weights.normal(f"{name}.running_mean", sizes, 0.1),
        np.abs(weights.normal(f"{name}.running_var", sizes, 0.1, 1.0)),
    )


def linear_weights(weights: Weights, name: str, inputs: int, outputs: int) -> tuple[Array, ...]:
    """The matrix, outputs x inputs, and the bias."""
    return weights.normal(f"{name}.weight", (outputs, inputs), inputs**-0.5), weights.normal(f"{name}.bias", (outputs,), 0.1)


def layer_norm_weights(weights: Weights, name: str, width: int) -> tuple[Array, ...]:
    """Scale and bias."""
    return weights.normal(f"{name}.weight", (width,), 0.1, 1.0), weights.normal(f"{name}.bias", (width,), 0.1)


def table_weights(weights: Weights, name: str, count: int, width: int) -> tuple[Array, ...]:
    """An embedding."""
    return (weights.normal(f"{name}.weight", (count, width), 0.5),)
