"""The weights that a decoder network has: what each is called and how large it is."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Final

from dmlvk.llm.config import ModelConfig, Weights
from dmlvk.spec.block_formats import BlockFormat
from dmlvk.spec.enums import TensorDataType
from dmlvk.spec.errors import ModelError, UnsupportedError

Sizes = tuple[int, ...]
PLAIN_TYPES: Final = {"F32": TensorDataType.FLOAT32, "F16": TensorDataType.FLOAT16, "BF16": TensorDataType.UINT16}
"""The formats that have a number for each element; of BF16 the bits."""


def check_tensors(weights: Weights) -> None:
    """Sees whether a model has the weights that its numbers ask for, and no others.

    Raises:
        ModelError: one is missing, or has other sizes.
        UnsupportedError: there is one that the network would leave out, or of a format for which there is no kernel.
    """
    given = weights.tensors
    wanted = dict(_wanted(weights.config, given))
    missing = [name for name in wanted if name not in given]
    if missing:
        raise ModelError(f"the model has no tensor {', '.join(missing[:4])}")
    for name, sizes in wanted.items():
        if given[name].sizes != sizes:
            raise ModelError(f"tensor {name} must have the sizes {sizes}; got {given[name].sizes}")
    formats = {*PLAIN_TYPES, *(own.name for own in BlockFormat if not own.is_apart)}
    for name, tensor in given.items():
        if tensor.type not in (formats if len(tensor.sizes) > 1 else PLAIN_TYPES):
            raise UnsupportedError(f"tensor {name} has the format {tensor.type}; there are kernels for {sorted(formats)}")
    unread = [name for name in given if name not in wanted]
    if unread:
        raise UnsupportedError(f"an architecture {weights.config.architecture.name} with {', '.join(unread[:4])}")


def _wanted(config: ModelConfig, given: Collection[str]) -> Iterator[tuple[str, Sizes]]:
    """The names and sizes of all weights; of what a file may have or not, those that are given."""
    width, row = config.width, config.architecture
    yield "output_norm.weight", (width,)
    yield "token_embd.weight", (config.vocabulary, width)
    if "output.weight" in given:
        yield from _product("output", config.vocabulary, width, given)
    queries, keys = (count * config.head_size for count in (config.heads, config.key_heads))
    for layer in range(config.layers):
        name = f"blk.{layer}"
        norms = {"attn_norm": width, "ffn_norm": width}
        if row.post_norms:
            norms |= {"post_attention_norm": width, "post_ffw_norm": width}
        if row.head_norms:
            norms |= {"attn_q_norm": config.head_size, "attn_k_norm": config.head_size}
        for norm, size in norms.items():
            yield f"{name}.{norm}.weight", (size,)
        products = {"attn_output": (width, queries), "ffn_down": (width, config.hidden)}
        if f"{name}.attn_qkv.weight" in given:
            products["attn_qkv"] = (queries + 2 * keys, width)
        else:
            products |= {"attn_q": (queries, width), "attn_k": (keys, width), "attn_v": (keys, width)}
        if f"{name}.ffn_gate.weight" in given:
            products |= {"ffn_gate": (config.hidden, width), "ffn_up": (config.hidden, width)}
        else:
            products["ffn_up"] = (2 * config.hidden, width)
        for product, sizes in products.items():
            yield from _product(f"{name}.{product}", *sizes, given)


def _product(name: str, columns: int, depth: int, given: Collection[str]) -> Iterator[tuple[str, Sizes]]:
    yield f"{name}.weight", (columns, depth)
    if f"{name}.bias" in given:
        yield f"{name}.bias", (columns,)
