"""Philox4x32-10, in Python's integers for the counter and numpy's 64 bits for the products."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmlvk.spec.ops.random import RandomGenerator

Array = NDArray[Any]

_WORD = 0xFFFFFFFF
_MULTIPLIERS = 0xD2511F53, 0xCD9E8D57
_KEY_STEPS = 0x9E3779B9, 0xBB67AE85
_ROUNDS = 10


def _words(counters: list[int]) -> list[Array]:
    return [np.array([counter >> 32 * i & _WORD for counter in counters], np.uint64) for i in range(4)]


def random_generator(desc: RandomGenerator, state: Array) -> tuple[Array, Array]:
    *counter_words, first_key, second_key = (int(word) for word in state.reshape(-1))
    counter = sum(word << 32 * i for i, word in enumerate(counter_words))
    sizes = desc.tensor("output_tensor").sizes
    elements = desc.tensor("output_tensor").element_count
    blocks = -(-elements // 4)

    c0, c1, c2, c3 = _words([(counter + i) % 2**128 for i in range(blocks)])
    key = first_key, second_key
    for _ in range(_ROUNDS):
        first, second = (c * np.uint64(m) for c, m in zip((c0, c2), _MULTIPLIERS, strict=True))
        c0, c2 = second >> 32 ^ c1 ^ np.uint64(key[0]), first >> 32 ^ c3 ^ np.uint64(key[1])
        c1, c3 = second & _WORD, first & _WORD
        key = (key[0] + _KEY_STEPS[0]) & _WORD, (key[1] + _KEY_STEPS[1]) & _WORD
    bits = np.stack([c0, c1, c2, c3], axis=1).reshape(-1)[:elements]

    after = (counter + blocks) % 2**128
    new_state = [*(after >> 32 * i & _WORD for i in range(4)), first_key, second_key]
    return bits.astype(np.uint32).reshape(sizes), np.array(new_state, np.uint32).reshape(state.shape)
