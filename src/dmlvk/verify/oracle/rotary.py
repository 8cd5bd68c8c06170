"""Rotary embedding in float64."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmlvk.spec.ops.rotary import RotaryEmbedding
from dmlvk.verify.oracle import Scaled

Array = NDArray[Any]


def rotary_embedding(desc: RotaryEmbedding, x: Array, cosines: Array, sines: Array, positions: Array | None) -> Scaled:
    """Errors count at the size of the two terms of a turned element."""
    batch, rows, _, _ = x.shape
    _, places, pairs = cosines.shape
    chosen = np.broadcast_to(np.arange(rows), (batch, rows)) if positions is None else np.clip(positions, 0, places - 1)
    x = x.astype(np.float64)
    step = 2 if desc.interleaved else 1
    first = slice(0, step * pairs, step)
    second = slice(1, 2 * pairs, 2) if desc.interleaved else slice(pairs, 2 * pairs)
    value, magnitude = x.copy(), np.abs(x)
    for entry in range(batch):
        own = entry if len(cosines) > 1 else 0
        c, s = (table[own, chosen[entry]].astype(np.float64)[:, None] for table in (cosines, sines))
        a, b = x[entry, ..., first], x[entry, ..., second]
        value[entry, ..., first], value[entry, ..., second] = a * c - b * s, a * s + b * c
        magnitude[entry, ..., first] = np.abs(a * c) + np.abs(b * s)
        magnitude[entry, ..., second] = np.abs(a * s) + np.abs(b * c)
    return Scaled(value, magnitude)
