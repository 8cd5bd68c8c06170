"""Tiny language models as GGUF files, and what they compute: a reference in float32, from the same weights."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import numpy.typing as npt

from dmlvk.llm.config import Weights, WeightTensor

Array = npt.NDArray[Any]

VOCABULARY, CONTEXT = 96, 128
LLAMA: dict[str, Any] = {"block_count": 2, "embedding_length": 64, "feed_forward_length": 96, "context_length": CONTEXT}
LLAMA |= {"attention.head_count": 4, "attention.head_count_kv": 2, "attention.layer_norm_rms_epsilon": 1e-5}
MODELS: dict[str, dict[str, Any]] = {
    "llama": LLAMA | {"rope.freq_base": 5000.0},
    "qwen2": LLAMA | {"rope.freq_base": 1e6},
    "qwen3": LLAMA | {"rope.freq_base": 1e6, "attention.key_length": 32, "attention.value_length": 32},
    "gemma2": LLAMA
    | {"attention.sliding_window": 5, "attn_logit_softcapping": 5.0, "final_logit_softcapping": 3.0}
    | {"attention.key_length": 32, "attention.value_length": 32},
    "gemma3": LLAMA
    | {"block_count": 7, "attention.sliding_window": 4, "rope.freq_base": 1e6}
    | {"rope.scaling.type": "linear", "rope.scaling.factor": 8.0, "attention.key_length": 32, "attention.value_length": 32},
    "phi3": LLAMA | {"attention.sliding_window": 6, "rope.dimension_count": 12},
}
"""The keys of a tiny model of each architecture, without the architecture's name in front."""


def tensors_of(name: str, keys: dict[str, Any], rng: np.random.Generator) -> dict[str, Array]:
    """Random weights, by name."""
    width, hidden, heads = keys["embedding_length"], keys["feed_forward_length"], keys["attention.head_count"]
    size = keys.get("attention.key_length", width // heads)
    queries, rows = heads * size, keys["attention.head_count_kv"] * size
    sizes: dict[str, tuple[int, ...]] = {"token_embd.weight": (VOCABULARY, width), "output_norm.weight": (width,)}
    if not name.startswith("gemma"):
        sizes["output.weight"] = (VOCABULARY, width)
    for layer in range(keys["block_count"]):
        own: dict[str, tuple[int, ...]] = {"attn_norm": (width,), "ffn_norm": (width,)}
        own |= {"attn_output": (width, queries), "ffn_down": (width, hidden)}
        if name == "phi3":
            own |= {"attn_qkv": (queries + 2 * rows, width), "ffn_up": (2 * hidden, width)}
        else:
            own |= {"attn_q": (queries, width), "attn_k": (rows, width), "attn_v": (rows, width)}
            own |= {"ffn_gate": (hidden, width), "ffn_up": (hidden, width)}
        if name in ("qwen3", "gemma3"):
            own |= {"attn_q_norm": (size,), "attn_k_norm": (size,)}
        if name.startswith("gemma"):
            own |= {"post_attention_norm": (width,), "post_ffw_norm": (width,)}
        sizes |= {f"blk.{layer}.{part}.weight": item for part, item in own.items()}
        if name == "qwen2":
            sizes |= {
                f"blk.{layer}.attn_{part}.bias": (count,) for part, count in zip("qkv", (queries, rows, rows), strict=True)
            }
    return {
        part: (
            1 + 0.1 * rng.standard_normal(item) if "norm" in part else rng.standard_normal(item) * item[-1] ** -0.5
        ).astype(np.float32)
        for part, item in sizes.items()
    }


def quantized(values: Array, kind: str, rng: np.random.Generator) -> Array:
    """Weights in a format; K types, for which the package has no way there, are random bytes with small scales."""
    wanted = gguf.GGMLQuantizationType[kind]
    try:
        return gguf.quantize(values, wanted)
    except NotImplementedError:
        count, nbytes = gguf.GGML_QUANT_SIZES[wanted]
        blocks = rng.integers(0, 256, (values.size // count, nbytes), np.uint8)
        scales = {"Q4_K": (0, 2), "Q5_K": (0, 2), "Q6_K": (208,)}[kind]
        for place in scales:
            small = (rng.uniform(0.5, 1, len(blocks)) * 1e-3).astype(np.float16)
            blocks[:, place : place + 2] = small[:, None].view(np.uint8)
        return blocks.reshape(*values.shape[:-1], -1)


def write_model(
    path: Path, name: str, kind: str = "F32", seed: int = 0, tokenizer: Mapping[str, Any] | None = None, **more: Any
) -> Path:
    """A GGUF file with a tiny model whose matrices have a format; ``more`` are other keys, and tensors.

    Args:
        tokenizer: Texts and lists that describe a tokenizer, by names that begin with "tokenizer.".
    """
    rng = np.random.default_rng(seed)
    keys = MODELS[name] | {key.replace("__", "."): value for key, value in more.items() if not isinstance(value, np.ndarray)}
    tensors = tensors_of(name, keys, rng) | {
        f"{key}.weight": item for key, item in more.items() if isinstance(item, np.ndarray)
    }
    writer = gguf.GGUFWriter(path, name)
    for key, value in keys.items():
        add = {int: writer.add_uint32, float: writer.add_float32, str: writer.add_string}[type(value)]
        add(f"{name}.{key}", value)
    for key, value in (tokenizer or {}).items():
        add = (
            writer.add_array
            if isinstance(value, list)
            else writer.add_uint32
            if isinstance(value, int)
            else writer.add_string
        )
        add(key, value)
    for part, values in tensors.items():
        if values.ndim == 1:
            writer.add_tensor(part, values)
        else:
            writer.add_tensor(part, quantized(values, kind, rng), raw_dtype=gguf.GGMLQuantizationType[kind])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def dequantized(tensor: WeightTensor) -> Array:
    """A weight in float32."""
    rows = tensor.data.reshape(tensor.sizes[0], -1) if len(tensor.sizes) > 1 else tensor.data
    kind = gguf.GGMLQuantizationType[tensor.type]
    plain = {"F32": np.float32, "F16": np.float16}.get(tensor.type)
    if plain is not None:
        return tensor.data.view(plain).reshape(tensor.sizes).astype(np.float32)
    return gguf.dequantize(rows, kind).reshape(tensor.sizes)


class Reference:
    """What a decoder computes, in float32, with the cache of one sequence.

    Args:
        weights: The model.
        capacity: Rows of the cache.
    """

    def __init__(self, weights: Weights, capacity: int = CONTEXT) -> None:
        self.config = weights.config
        self._weights = {name: dequantized(tensor) for name, tensor in weights.tensors.items()}
        self._tables = [
            [table.astype(np.float32) for table in rotation.tables(capacity)] for rotation in self.config.rotations
        ]
        self._cache: list[list[Array]] = [[] for _ in range(self.config.layers)]
        self.length = 0

    def renewed(self) -> Reference:
        """The same model with an empty cache."""
        self._cache = [[] for _ in self._cache]
        self.length = 0
        return self

    def feed(self, tokens: list[int]) -> Array:
        """Appends tokens; the logits of each."""
        config, weights = self.config, self._weights
        row = config.architecture
        x = weights["token_embd.weight"][tokens]
        if row.scaled_embeddings:
            x = x * np.float32(config.width**0.5)
        for layer in range(config.layers):
            y = self._attention(self._norm(x, f"blk.{layer}.attn_norm"), layer)
            x = x + (self._norm(y, f"blk.{layer}.post_attention_norm") if row.post_norms else y)
            y = self._feed_forward(self._norm(x, f"blk.{layer}.ffn_norm"), layer)
            x = x + (self._norm(y, f"blk.{layer}.post_ffw_norm") if row.post_norms else y)
        self.length += len(tokens)
        x = self._norm(x, "output_norm")
        logits = x @ weights.get("output.weight", weights["token_embd.weight"]).T
        return _capped(logits, config.output_softcap)

    def _norm(self, x: Array, name: str) -> Array:
        return (
            x / np.sqrt((x * x).mean(-1, keepdims=True) + np.float32(self.config.epsilon)) * self._weights[f"{name}.weight"]
        )

    def _product(self, x: Array, name: str) -> Array:
        return x @ self._weights[f"{name}.weight"].T + self._weights.get(f"{name}.bias", np.float32(0))

    def _feed_forward(self, x: Array, layer: int) -> Array:
        name = f"blk.{layer}.ffn"
        up = self._product(x, f"{name}_up")
        gate, up = (self._product(x, f"{name}_gate"), up) if f"{name}_gate.weight" in self._weights else np.split(up, 2, -1)
        if self.config.architecture.activation == "silu":
            gate = gate / (1 + np.exp(-gate))
        else:
            gate = gate / 2 * (1 + np.tanh(np.float32((2 / np.pi) ** 0.5) * (gate + np.float32(0.044715) * gate**3)))
        return self._product(gate * up, f"{name}_down")

    def _attention(self, x: Array, layer: int) -> Array:
        config, name, count = self.config, f"blk.{layer}.attn", len(x)
        if f"{name}_qkv.weight" in self._weights:
            counts = np.cumsum([config.heads, config.key_heads]) * config.head_size
            query, key, value = np.split(self._product(x, f"{name}_qkv"), counts, -1)
        else:
            query, key, value = (self._product(x, f"{name}_{part}") for part in "qkv")
        query, key, value = (part.reshape(count, -1, config.head_size) for part in (query, key, value))
        if config.architecture.head_norms:
            query, key = self._norm(query, f"{name}_q_norm"), self._norm(key, f"{name}_k_norm")
        query, key = self._turned(query, layer), self._turned(key, layer)
        past = self._cache[layer]
        past[:] = [np.concatenate(both) for both in zip(past, (key, value), strict=True)] if past else [key, value]
        keys, values = (np.repeat(part, config.heads // config.key_heads, 1) for part in past)
        scores = query.swapaxes(0, 1) @ keys.transpose(1, 2, 0) * np.float32(config.attention_scale)
        scores = _capped(scores, config.attention_softcap)
        distance = np.arange(self.length, self.length + count)[:, None] - np.arange(self.length + count)
        seen = (distance >= 0) & (distance < (config.windows[layer] or np.inf))
        scores = np.where(seen, scores, -np.inf)
        shares = np.exp(scores - scores.max(-1, keepdims=True))
        y = (shares / shares.sum(-1, keepdims=True) @ values.swapaxes(0, 1)).swapaxes(0, 1)
        return self._product(y.reshape(count, -1), f"{name}_output")

    def _turned(self, x: Array, layer: int) -> Array:
        cosines, sines = (table[self.length : self.length + len(x), None] for table in self._tables[layer])
        pairs = cosines.shape[-1]
        x = x.copy()
        if self.config.architecture.interleaved:
            one, other = x[..., 0 : 2 * pairs : 2], x[..., 1 : 2 * pairs : 2]
        else:
            one, other = x[..., :pairs], x[..., pairs : 2 * pairs]
        one[...], other[...] = one * cosines - other * sines, one * sines + other * cosines
        return x


def _capped(x: Array, cap: float) -> Array:
    return np.float32(cap) * np.tanh(x / np.float32(cap)) if cap else x
