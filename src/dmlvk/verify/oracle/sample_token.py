"""The choice of a token: tokens sorted by their distances from the best, and a number drawn for their probabilities' sum."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmlvk.spec.enums import TensorDataType
from dmlvk.spec.ops.random import RandomGenerator
from dmlvk.spec.ops.sample_token import SampleToken
from dmlvk.spec.tensor import TensorDesc
from dmlvk.verify.oracle.random import random_generator

Array = NDArray[Any]

_BLOCK = RandomGenerator(
    input_state_tensor=TensorDesc(TensorDataType.UINT32, (6,)), output_tensor=TensorDesc(TensorDataType.UINT32, (4,))
)


def _uniform(seed: tuple[int, int], count: int) -> float:
    """A number from 0 to 1."""
    words, _ = random_generator(_BLOCK, np.array((count, 0, 0, 0, *seed), np.uint32))
    return float(words[0]) * 2.0**-64 + float(words[1]) * 2.0**-32


def _token(logits: Array, controls: Array, history: Array, count: int) -> int:
    words = [int(word) for word in controls]
    inverse, furthest, penalty, reward = struct.unpack("<4f", struct.pack("<4I", words[0], *words[3:6]))
    top_k, part, window = words[1], words[2], words[6]
    values = np.where(np.isnan(logits), -np.inf, logits).astype(np.float32)
    if penalty != 1:
        tokens = history[: min(count, len(history))]
        tokens = np.unique(tokens[max(len(tokens) - window, 0) :])
        tokens = tokens[(tokens >= 0) & (tokens < len(values))]
        own = values[tokens]
        values[tokens] = own * np.where(own > 0, np.float32(reward), np.float32(penalty))
    presence, frequency = np.array(words[10:12], np.uint32).view(np.float32)
    if presence or frequency:
        answer = history[words[12] : min(count, len(history))]
        tokens, times = np.unique(answer[(answer >= 0) & (answer < len(values))], return_counts=True)
        values[tokens] = (values[tokens] - presence) - frequency * times.astype(np.float32)
    best = values.max()
    if inverse == 0:
        return int(np.argmax(values))
    with np.errstate(invalid="ignore"):
        distances = np.where(values == best, np.float32(0), best - values)
    order = np.argsort(distances, kind="stable")
    order = order[distances[order] <= furthest]
    if top_k:
        order = order[:top_k]
    sums = np.cumsum(np.exp(-distances[order].astype(np.float64) * inverse))
    if part:
        sums = sums[: int(np.searchsorted(sums, sums[-1] * part * 2.0**-32)) + 1]
    drawn = _uniform((words[7], words[8]), count) * sums[-1]
    return int(order[min(int(np.searchsorted(sums, drawn, side="right")), len(sums) - 1)])


def sample_token(
    desc: SampleToken, logits: Array, controls: Array, history: Array, lengths: Array
) -> tuple[Array, Array, Array]:
    """What is not written is undefined: a sequence that does not take part, and all but one element of a history."""
    counts = np.maximum(lengths.astype(np.int64), 0) + desc.pending
    active = controls[:, 9] != 0
    rows = zip(logits, controls, history, counts, active, strict=True)
    tokens = np.array([_token(*row) if takes_part else 0 for *row, takes_part in rows], np.int32)
    undefined = np.ones(history.shape, bool)
    for row in np.flatnonzero(active & (counts < history.shape[1])):
        undefined[row, counts[row]] = False
    new_history = np.broadcast_to(tokens[:, None], history.shape)
    new_lengths = (np.maximum(lengths, 0) + 1).astype(np.int32)
    return (
        np.ma.array(tokens, mask=~active),
        np.ma.array(new_history, mask=undefined),
        np.ma.array(new_lengths, mask=~active),
    )
