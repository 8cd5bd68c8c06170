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
) -> tuple[Scaled, Scaled, Array]:
    """Errors count at the size of the summed terms, of turned keys too. ``cache`` is what the cache holds before, where
    there is no past."""
    batch, rows, heads, _ = query.shape
    group = heads // key.shape[2]
    keys, values = (np.zeros(desc.tensor(f"cache_{name}_tensor").sizes) for name in ("key", "value"))
    key_sizes = np.zeros_like(keys)
    capacity = keys.shape[2]
    before = np.clip(lengths.astype(np.int64), 0, capacity)
    places = before[:, None] + np.arange(rows) if positions is None else positions
    query, _ = _turned(desc, query.astype(np.float64), places, cosines, sines)
    key, turned_sizes = _turned(desc, key.astype(np.float64), places, cosines, sines)
    for whole, past, held, new in (
        (keys, past_key, cache and cache[0], key),
        (values, past_value, cache and cache[1], value),
        (key_sizes, None, None, turned_sizes),
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
    return Scaled(output, magnitude), Scaled(keys, key_sizes), values


def _turned(
    desc: CachedAttention, x: Array, places: Array, cosines: Array | None, sines: Array | None
) -> tuple[Array, Array]:
    """The elements of each head turned by pairs, and the size of the terms of each."""
    if cosines is None or sines is None:
        return x, np.abs(x)
    pairs = cosines.shape[1]
    rows = np.clip(places, 0, len(cosines) - 1)
    c, s = (table.astype(np.float64)[rows][:, :, None] for table in (cosines, sines))
    first, second = (
        (slice(0, 2 * pairs, 2), slice(1, 2 * pairs, 2)) if desc.interleaved else (slice(pairs), slice(pairs, 2 * pairs))
    )
    a, b = x[..., first], x[..., second]
    result, sizes = x.copy(), np.abs(x)
    result[..., first], result[..., second] = a * c - b * s, a * s + b * c
    sizes[..., first], sizes[..., second] = np.abs(a * c) + np.abs(b * s), np.abs(a * s) + np.abs(b * c)
    return result, sizes
