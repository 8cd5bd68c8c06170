"""Attention by a state in float64, a row at a time."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmlvk.spec.ops.linear_attention import LinearAttention
from dmlvk.verify.oracle import Scaled

Array = NDArray[Any]


def linear_attention(
    desc: LinearAttention,
    query: Array,
    key: Array,
    value: Array,
    past: Array | None,
    decay: Array | None,
    rate: Array | None,
) -> tuple[Scaled, Scaled]:
    """Errors count at the size of all terms that have come together in the state."""
    batch, rows, heads, _ = query.shape
    group = heads // key.shape[2]
    query, key, value = (x.astype(np.float64) for x in (query, key, value))
    state = np.zeros((batch, key.shape[2], key.shape[3], value.shape[3])) if past is None else past.astype(np.float64)
    size = np.abs(state)
    output = np.zeros((batch, rows, heads, value.shape[3]))
    magnitude = np.zeros_like(output)
    for row in range(rows):
        if decay is not None:
            kept = np.exp(decay[:, row].astype(np.float64))[..., None]
            state, size = kept * state, kept * size
        k, v = key[:, row, :, :, None], value[:, row, :, None]
        new, terms = v, np.abs(v)
        if rate is not None:
            part = rate[:, row].astype(np.float64)[..., None, None]
            new = part * (v - (k * state).sum(axis=2, keepdims=True))
            terms = np.abs(part) * (np.abs(v) + (np.abs(k) * size).sum(axis=2, keepdims=True))
        state, size = state + k * new, size + np.abs(k) * terms
        own = np.repeat(state, group, axis=1), np.repeat(size, group, axis=1)
        q = query[:, row, :, :, None]
        output[:, row] = desc.scale * (q * own[0]).sum(axis=2)
        magnitude[:, row] = abs(desc.scale) * (np.abs(q) * own[1]).sum(axis=2)
    return Scaled(output, magnitude), Scaled(state, size)
