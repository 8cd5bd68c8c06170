"""The numbers of a model from the keys of a GGUF file."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from dmlvk.llm.architecture import ARCHITECTURES, Architecture
from dmlvk.llm.config import ModelConfig, Numbers, Rotation
from dmlvk.spec.errors import ModelError, UnsupportedError

_MISSING: Final = object()


class _Keys:
    """The keys of a model's architecture."""

    def __init__(self, metadata: Mapping[str, Any], prefix: str) -> None:
        self._metadata, self._prefix = metadata, prefix

    def get(self, name: str, default: Any = _MISSING) -> Any:
        """The value of a key.

        Raises:
            ModelError: it is missing, and there is no default.
        """
        value = self._metadata.get(f"{self._prefix}.{name}", default)
        if value is _MISSING:
            raise ModelError(f"the file has no key {self._prefix}.{name}")
        return value

    def same(self, name: str, default: Any = _MISSING) -> int:
        """A whole number that is the same for each layer.

        Raises:
            UnsupportedError: it is not.
        """
        found = np.unique(self.get(name, default))
        if found.size != 1:
            raise UnsupportedError(f"{self._prefix}.{name} differs between layers, {found.tolist()}, which is not supported")
        return int(found[0])


def config_of(metadata: Mapping[str, Any], factors: Mapping[str, Numbers], vocabulary: int) -> ModelConfig:
    """The numbers of a model.

    Args:
        metadata: What a file says, by GGUF's keys.
        factors: Its tensors with factors of rotations, by their names without "rope_" and ".weight".
        vocabulary: Rows of its embeddings.

    Raises:
        UnsupportedError: an architecture without a row, or a trait that the network does not have.
        ModelError: a key that a model must have is missing, or has a value that makes no sense.
    """
    name = metadata.get("general.architecture", "")
    if name not in ARCHITECTURES:
        raise UnsupportedError(f"architecture {name!r} is not supported, only {', '.join(ARCHITECTURES)}")
    row, keys = ARCHITECTURES[name], _Keys(metadata, name)
    if keys.get("expert_count", 0):
        raise UnsupportedError(f"architecture {name!r} with experts is not supported")
    heads, width, layers = keys.same("attention.head_count"), keys.get("embedding_length"), keys.get("block_count")
    key_heads = keys.same("attention.head_count_kv", heads)
    head_size = keys.get("attention.key_length", width // max(heads, 1))
    if min(heads, key_heads, head_size, layers) < 1 or heads % key_heads:
        raise ModelError(f"{heads} heads of queries, {key_heads} of keys, of {head_size} elements, make no attention")
    if keys.get("attention.value_length", head_size) != head_size:
        raise UnsupportedError(f"{name}: heads of values that are not as large as those of keys are not supported")
    windows = _windows(row, keys, layers)
    everywhere, local = _rotation(keys, head_size, factors), None
    if base := keys.get("rope.freq_base_swa", row.local_base):
        local = Rotation(_frequencies(base, keys.get("rope.dimension_count", head_size)))
    divisor = width // heads if layers == row.widest_layers else head_size
    return ModelConfig(
        architecture=row,
        vocabulary=vocabulary,
        layers=layers,
        width=width,
        heads=heads,
        key_heads=key_heads,
        head_size=head_size,
        hidden=keys.same("feed_forward_length"),
        context=keys.get("context_length"),
        epsilon=keys.get("attention.layer_norm_rms_epsilon"),
        attention_scale=keys.get("attention.scale", 0.0) or 1 / math.sqrt(divisor),
        attention_softcap=keys.get("attn_logit_softcapping", 0.0),
        output_softcap=keys.get("final_logit_softcapping", 0.0),
        windows=windows,
        rotations=tuple(local if window and local else everywhere for window in windows),
    )


def _windows(row: Architecture, keys: _Keys, layers: int) -> tuple[int, ...]:
    """For each layer how many rows it sees; 0 for all. A pattern in the file is a period or says of each layer whether it
    has the window."""
    if row.window_period == 1:
        return (0,) * layers
    window = keys.get("attention.sliding_window", 0)
    pattern = keys.get("attention.sliding_window_pattern", row.window_period)
    if not isinstance(pattern, int):
        return tuple(window * bool(item) for item in pattern)[:layers]
    return tuple(window * (not pattern or (layer + 1) % pattern != 0) for layer in range(layers))


def _frequencies(base: float, dimensions: int) -> Numbers:
    return base ** (-np.arange(0, dimensions, 2) / dimensions)


def _rotation(keys: _Keys, head_size: int, factors: Mapping[str, Numbers]) -> Rotation:
    """The rotation of the layers that see all rows."""
    dimensions, base = keys.get("rope.dimension_count", head_size), keys.get("rope.freq_base", 10000.0)
    original = keys.get("rope.scaling.original_context_length", 0) or keys.get("context_length")
    attention_factor = keys.get("rope.scaling.attn_factor", 1.0) or 1.0
    plain = _frequencies(base, dimensions)
    kind = keys.get("rope.scaling.type", "none")
    factor = keys.get("rope.scaling.factor", 0.0) or keys.get("rope.scale_linear", 0.0) or 1.0
    if "factors_long" in factors:
        short, long = (plain / factors.get(f"factors_{name}", 1.0) for name in ("short", "long"))
        return Rotation(short, attention_factor, long, original)
    plain = plain / factors.get("freqs", 1.0)
    if kind == "yarn":
        fast, slow = (keys.get(f"rope.scaling.yarn_beta_{name}", beta) for name, beta in (("fast", 32.0), ("slow", 1.0)))
        scale = keys.get("rope.scaling.yarn_attn_factor", attention_factor) * (1 + 0.1 * math.log(factor))
        return Rotation(_stretched(plain, base, dimensions, factor, original, (fast, slow)), scale)
    if kind not in ("none", "linear"):
        raise UnsupportedError(f"rotations scaled by {kind!r} are not supported without their factors")
    return Rotation(plain / factor, attention_factor)


def _stretched(
    plain: Numbers, base: float, dimensions: int, factor: float, original: int, turns: tuple[float, float]
) -> Numbers:
    """YaRN's frequencies: pairs that turn often within the original context stay, those that turn seldom are slower by the
    factor, and between the two it goes over from one to the other.

    Args:
        plain: The frequencies as they were.
        base, dimensions: What they were made of.
        factor: How much longer contexts are.
        original: Rows of the original context.
        turns: From how many turns on a pair stays, and up to how many it is slower.
    """
    fast, slow = (dimensions * math.log(original / (count * 2 * math.pi)) / (2 * math.log(base)) for count in turns)
    low, high = max(math.floor(fast), 0), min(math.ceil(slow), dimensions - 1)
    share = np.clip((np.arange(dimensions // 2) - low) / max(high - low, 0.001), 0, 1)
    return plain * (1 - share) + plain / factor * share
