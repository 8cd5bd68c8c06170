"""Cases of ``ops.sample_token``: sequences that each choose in another way."""

from __future__ import annotations

from typing import Any

import numpy as np

from dmlvk.spec.enums import TensorDataType
from dmlvk.spec.ops.sample_token import CONTROL_WORDS, SampleToken, sampling_words
from dmlvk.verify.cases.model import NUMPY_TYPES, Array, Case, Domain, OperatorCases, fixed

_INT32 = TensorDataType.INT32
_WAYS: tuple[dict[str, Any], ...] = (
    {},
    {"temperature": 1.0, "seed": 1},
    {"temperature": 0.7, "top_k": 5, "seed": 2},
    {"temperature": 1.3, "top_p": 0.9, "seed": 3},
    {"temperature": 0.9, "top_k": 40, "top_p": 0.8, "min_p": 0.02, "seed": 2**40 + 4},
    {"temperature": 1.5, "repetition_penalty": 1.3, "seed": 5},
    {"repetition_penalty": 1e4, "repetition_window": 7},
    {"temperature": 2.0, "top_p": 0.0, "seed": 6},
    {"temperature": 1.0, "top_k": 2**20, "top_p": 0.999999, "seed": 7},
    {"presence_penalty": 3.3, "answer_start": 3},
    {"temperature": 1.0, "frequency_penalty": 1.7, "presence_penalty": -0.3, "answer_start": 1, "seed": 8},
    {"temperature": 0.8, "frequency_penalty": -0.9, "repetition_penalty": 1.2, "answer_start": 2**31, "seed": 9},
    {"frequency_penalty": 0.1},
    {"active": False},
)


def _logits(spread: float, step: float = 0.0) -> Domain:
    """Normal numbers, of which many are equal where they are whole multiples of a step; some are no numbers or infinite."""

    def domain(rng: np.random.Generator, sizes: tuple[int, ...], data_type: TensorDataType) -> Array:
        values = rng.standard_normal(sizes) * spread
        if step:
            values = np.round(values / step) * step
        values[rng.random(sizes) < 0.01] = -np.inf
        values[rng.random(sizes) < 0.01] = np.nan
        return values.astype(NUMPY_TYPES[data_type])

    return domain


def _case(name: str, vocabulary: int, logits: Domain, *, room: int = 12, pending: int = 0, quick: bool = False) -> Case:
    sequences = len(_WAYS)
    rows = tuple(word for way in _WAYS for word in sampling_words(**way))

    def history(rng: np.random.Generator, sizes: tuple[int, ...], data_type: TensorDataType) -> Array:
        return rng.integers(-1, vocabulary + 1, sizes).astype(np.int32)

    def lengths(rng: np.random.Generator, sizes: tuple[int, ...], data_type: TensorDataType) -> Array:
        return rng.integers(0, room, sizes, dtype=np.int32, endpoint=True)

    return Case(
        name,
        {
            "logits_tensor": (sequences, vocabulary),
            "controls_tensor": (sequences, CONTROL_WORDS),
            "history_tensor": (sequences, room),
            "lengths_tensor": (sequences,),
        },
        {"pending": pending},
        outputs={
            "output_tensor": (sequences,),
            "output_history_tensor": (sequences, room),
            "output_lengths_tensor": (sequences,),
        },
        data_types={
            "controls_tensor": TensorDataType.UINT32,
            **dict.fromkeys(("history_tensor", "lengths_tensor", "output_tensor"), _INT32),
            **dict.fromkeys(("output_history_tensor", "output_lengths_tensor"), _INT32),
        },
        domains={
            "logits_tensor": logits,
            "controls_tensor": fixed(*rows),
            "history_tensor": history,
            "lengths_tensor": lengths,
        },
        layouts=False,
        quick=quick,
    )


CASES = (
    OperatorCases(
        SampleToken,
        {},
        (
            _case("two chunks and a part", 2111, _logits(4.0), pending=1, quick=True),
            _case("many equal logits", 1500, _logits(2.0, 0.5)),
            _case("all equal", 3000, _logits(0.0)),
            _case("one token", 1, _logits(1.0)),
            _case("far apart", 4099, _logits(60.0), room=1),
            _case("close together", 1111, _logits(1e-3)),
            _case("a large vocabulary", 151_936, _logits(3.0), room=2048),
        ),
    ),
)
