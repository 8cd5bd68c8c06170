"""ResNet-50 and BERT-base, declared once, with random weights."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from dmlvk_bench.models.layers import Array, Layers, Value

BLOCKS = ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2))
"""ResNet-50's stages: inner channels, blocks, stride of the first."""
VOCABULARY, WIDTH, HEADS, DEPTH, INNER = 30522, 768, 12, 12, 3072
TARGET_DEVICE = "H200"
"""Part of the name of the device for which times are meant."""
SEQUENCE = 128


@dataclass(frozen=True)
class Network:
    """A network at one batch size and precision.

    Attributes:
        name: The network's name in the results.
        dtype: The type of its weights and of its arithmetic.
        batch: Images or sequences in a run.
        inputs: Type and sizes of each input, by name.
        outputs: Sizes of each output, by name.
        build: Given the layers and the inputs, the outputs.
        target_ms: A run is meant to take no longer on ``TARGET_DEVICE``.
    """

    name: str
    dtype: np.dtype[Any]
    batch: int
    inputs: Mapping[str, tuple[np.dtype[Any], tuple[int, ...]]]
    outputs: Mapping[str, tuple[int, ...]]
    build: Callable[..., tuple[Any, ...]]
    target_ms: float

    def feeds(self, seed: int) -> dict[str, Array]:
        """An array for each input."""
        rng = np.random.default_rng(seed)
        found: dict[str, Array] = {}
        for name, (dtype, sizes) in self.inputs.items():
            if dtype.kind == "f":
                found[name] = rng.standard_normal(sizes, dtype=np.float32).astype(dtype)
            elif name == "input_ids":
                found[name] = rng.integers(0, VOCABULARY, sizes)
            elif name == "token_type_ids":  # two sentences
                found[name] = np.broadcast_to(np.arange(sizes[-1]) >= sizes[-1] // 2, sizes).astype(dtype)
            else:  # the mask: an eighth of the sequence is padding
                found[name] = np.broadcast_to(np.arange(sizes[-1]) < sizes[-1] * 7 // 8, sizes).astype(dtype)
        return found


def resnet_50(layers: Layers[Value], x: Value) -> tuple[Value]:
    """ResNet-50 as torchvision has it: the stride of a block is that of its 3 x 3 convolution."""

    def normalized(x: Value, name: str, inputs: int, outputs: int, kernel: int, stride: int, scale: float = 1.0) -> Value:
        y = layers.convolution(x, f"{name}.conv", inputs, outputs, kernel, stride)
        return layers.batch_norm(y, f"{name}.bn", outputs, scale)

    x = layers.max_pooling(layers.relu(normalized(x, "stem", 3, 64, 7, 2)))
    channels = 64
    for stage, (width, blocks, first_stride) in enumerate(BLOCKS, 1):
        for block in range(blocks):
            name, stride = f"layer{stage}.{block}", first_stride if block == 0 else 1
            y = layers.relu(normalized(x, f"{name}.1", channels, width, 1, 1))
            y = layers.relu(normalized(y, f"{name}.2", width, width, 3, stride))
            # A small scale keeps the sum of all blocks from growing.
            y = normalized(y, f"{name}.3", width, 4 * width, 1, 1, 0.25)
            if block == 0:
                x = normalized(x, f"{name}.downsample", channels, 4 * width, 1, stride)
            x = layers.relu(layers.add(y, x))
            channels = 4 * width
    return (layers.linear(layers.image_means(x), "fc", channels, 1000),)


def bert_base(layers: Layers[Value], ids: Value, mask: Value, types: Value) -> tuple[Value, Value]:
    """The encoder and its pooler."""
    words = layers.embedding(ids, "embeddings.word", VOCABULARY, WIDTH)
    x = layers.add(words, layers.embedding(types, "embeddings.type", 2, WIDTH))
    x = layers.add(x, layers.positions("embeddings.position", SEQUENCE, WIDTH))
    x = layers.layer_norm(x, "embeddings.norm", WIDTH)
    bias = layers.mask_bias(mask)
    for index in range(DEPTH):
        name = f"layer{index}"
        query, key, value = (layers.linear(x, f"{name}.{part}", WIDTH, WIDTH) for part in ("query", "key", "value"))
        attended = layers.attention(query, key, value, bias, HEADS, SEQUENCE, WIDTH // HEADS)
        attended = layers.linear(attended, f"{name}.output", WIDTH, WIDTH)
        x = layers.layer_norm(layers.add(attended, x), f"{name}.norm1", WIDTH)
        y = layers.linear(layers.gelu(layers.linear(x, f"{name}.up", WIDTH, INNER)), f"{name}.down", INNER, WIDTH)
        x = layers.layer_norm(layers.add(y, x), f"{name}.norm2", WIDTH)
    return x, layers.tanh(layers.linear(layers.first(x), "pooler", WIDTH, WIDTH))


def _resnet(dtype: type, batch: int, target_ms: float) -> Network:
    kind = np.dtype(dtype)
    inputs = {"input": (kind, (batch, 3, 224, 224))}
    outputs = {"logits": (batch, 1000)}
    return Network(f"ResNet-50 {kind.name} batch {batch}", kind, batch, inputs, outputs, resnet_50, target_ms)


def _bert(dtype: type, target_ms: float) -> Network:
    kind = np.dtype(dtype)
    words = (np.dtype(np.int64), (1, SEQUENCE))
    inputs = {"input_ids": words, "attention_mask": words, "token_type_ids": words}
    outputs = {"last_hidden_state": (1, SEQUENCE, WIDTH), "pooler_output": (1, WIDTH)}
    return Network(f"BERT-base {kind.name} batch 1 sequence {SEQUENCE}", kind, 1, inputs, outputs, bert_base, target_ms)


NETWORKS = (
    _resnet(np.float32, 1, 2.2),
    _resnet(np.float32, 32, 11.0),
    _resnet(np.float16, 1, 1.3),
    _resnet(np.float16, 32, 6.0),
    _bert(np.float32, 3.0),
    _bert(np.float16, 1.5),
)
