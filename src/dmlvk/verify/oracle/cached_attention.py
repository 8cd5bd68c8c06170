"""Attention over a cache in float64, a query at a time."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmlvk.spec.ops.cached_attention import CachedAttention
from dmlvk.verify.oracle import Scaled

Array = NDArray[Any]


def cached_attention(
    desc: CachedAttention,
    query: Array,
    key: Array,
    value: Array,
    lengths: Array,
    cosines: Array | None,
    sines: Array | None,
    positions: Array | None,
    past_key: Array | None,
    past_value: Array | None,
    bias: Array | None,
    sinks: Array | None,
    cache: tuple[Array, Array] | None = None,
) -> tuple[Scaled, Array, Array]:
    """Errors count at the size of the summed terms. ``cache`` is what the cache holds before, where there is no past."""
    batch, rows, heads, _ = query.shape
    group = heads // key.shape[2]
    keys, values = (np.zeros(desc.tensor(f"cache_{name}_tensor").sizes) for name in ("key", "value"))
    capacity = keys.shape[2]
    before = np.clip(lengths.astype(np.int64), 0, capacity)
    places = before[:, None] + np.arange(rows) if positions is None else positions
    query, key = (_turned(desc, x.astype(np.float64), places, cosines, sines) for x in (query, key))
    for whole, past, held, new in zip(
        (keys, values), (past_key, past_value), cache or (None, None), (key, value), strict=True
    ):
        if held is not None:
            whole[:] = held
        for entry, length in enumerate(before):
            if past is not None:
                whole[entry, :, :length] = past[entry, :, :length]
            whole[entry, :, length : length + rows] = new[entry, : capacity - length].swapaxes(0, 1)
    output = np.zeros((*query.shape[:3], values.shape[3]))
    magnitude = np.zeros_like(output)
    for entry, row, head in np.ndindex(batch, rows, heads):
        end = min(before[entry] + (row + 1 if desc.causal else rows), capacity)
        seen = slice(max(end - desc.window, 0) if desc.window else 0, end)
        own_keys, own_values = keys[entry, head // group, seen], values[entry, head // group, seen]
        scores = own_keys @ query[entry, row, head] * desc.scale
        sizes = np.abs(own_keys) @ np.abs(query[entry, row, head]) * abs(desc.scale)
        if desc.softcap:
            scores = desc.softcap * np.tanh(scores / desc.softcap)
        if bias is not None:
            scores = scores + bias[entry, head, row, seen]
            sizes = sizes + np.abs(bias[entry, head, row, seen])
        sink = -np.inf if sinks is None else float(sinks[head])
        peak = max(scores.max(), sink)
        weights = np.exp(scores - peak)
        weights /= weights.sum() + np.exp(sink - peak)
        output[entry, row, head] = weights @ own_values
        magnitude[entry, row, head] = (weights * (1 + sizes)) @ np.abs(own_values)
    return Scaled(output, magnitude), keys, values


def _turned(desc: CachedAttention, x: Array, places: Array, cosines: Array | None, sines: Array | None) -> Array:
    """The elements of each head turned by pairs."""
    if cosines is None or sines is None:
        return x
    pairs = cosines.shape[1]
    rows = np.clip(places, 0, len(cosines) - 1)
    c, s = (table.astype(np.float64)[rows][:, :, None] for table in (cosines, sines))
    first, second = (
        (slice(0, 2 * pairs, 2), slice(1, 2 * pairs, 2)) if desc.interleaved else (slice(pairs), slice(pairs, 2 * pairs))
    )
    result = x.copy()
    result[..., first] = x[..., first] * c - x[..., second] * s
    result[..., second] = x[..., first] * s + x[..., second] * c
    return result
