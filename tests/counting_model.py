"""A language model without a device: a decoder that counts stands in for it, and a tokenizer of bytes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np

from dmlvk.llm.chat_template import ChatTemplate
from dmlvk.llm.decoder import Told
from dmlvk.llm.model import Model
from dmlvk.llm.sampling import Sampling
from dmlvk.llm.tokenizer import Tokenizer


def letters() -> dict[int, str]:
    """The letters that byte-level tokenizers write bytes as."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = (byte for byte in range(256) if byte not in plain)
    return {byte: chr(byte) for byte in plain} | {byte: chr(256 + index) for index, byte in enumerate(others)}


def byte_tokens(**keys: Any) -> dict[str, Any]:
    """The metadata of a tokenizer with a token for each byte, one for "th", and an end."""
    written = letters()
    texts = [written[byte] for byte in range(256)] + ["th", "<|im_end|>"]
    metadata = {"model": "gpt2", "pre": "gpt-2", "tokens": texts, "token_type": [1] * 257 + [3], "merges": ["t h"], **keys}
    return {f"tokenizer.ggml.{name}": value for name, value in metadata.items()}


def byte_tokenizer(**keys: Any) -> Tokenizer:
    """The tokenizer of ``byte_tokens``."""
    return Tokenizer.of_metadata(byte_tokens(**keys))


class CountingDecoder:
    """The token after t is t + 1 for an even place, and that after its neighbour for others, of a text given ahead."""

    has_logprobs = True
    begins_steps = True

    def __init__(self, text: Sequence[int], capacity: int = 64, sequences: int = 1) -> None:
        self.text, self.capacity = list(text), capacity
        self.config: Any = type("Config", (), {"vocabulary": 258, "context": 1000})
        self.rows: list[list[int]] = [[] for _ in range(sequences)]
        self.fed: list[list[list[int]]] = []
        self.shared: list[tuple[int, int, int]] = []
        self.chosen = [0] * sequences
        self.ahead: list[int] = []
        self.pieces = [8]
        self.usual_piece = 8

    @property
    def lengths(self) -> list[int]:
        return [len(row) for row in self.rows]

    def feed(self, parts: Sequence[Sequence[int]], *, all_logits: bool = False) -> list[Any]:
        self.extend(parts)
        return [np.zeros((len(part), 258), np.float32) for part in parts]

    def extend(self, parts: Sequence[Sequence[int]], rows: int | None = None) -> None:
        self.fed.append([list(part) for part in parts])
        for row, part in zip(self.rows, parts, strict=True):
            row.extend(part)

    def step(self, sampling: Sequence[Sampling | None], tokens: Sequence[int] | None = None) -> Any:
        given = self.chosen if tokens is None else tokens
        for slot, own in enumerate(sampling):
            if own is not None:
                self.rows[slot].append(given[slot])
                assert len(self.rows[slot]) <= self.capacity
                self.chosen[slot] = self.text[len(self.rows[slot]) % len(self.text)]
        return np.array(self.chosen, np.int32)

    def step_told(self, sampling: Sequence[Sampling | None], tokens: Sequence[int] | None = None) -> tuple[Any, Told]:
        """The token that is chosen has half of the probability, the byte after it a quarter, and 7 none."""
        chosen = self.step(sampling, tokens)
        best = np.stack([chosen, (chosen + 1) % 258, np.full_like(chosen, 7)], 1)
        values = np.tile(np.float32([math.log(0.5), math.log(0.25), -math.inf]), (len(chosen), 1))
        return chosen, Told(values[:, :1], best, values)

    def begin_steps(self, sampling: Sequence[Sampling | None], count: int) -> Any:
        self.ahead.append(count)
        chosen = np.stack([self.step(sampling) for _ in range(count)])
        return SimpleNamespace(count=count, tokens=lambda: chosen)

    def truncate(self, sequence: int, length: int) -> None:
        assert length <= len(self.rows[sequence])
        del self.rows[sequence][length:]

    def share(self, source: int, target: int, length: int) -> None:
        self.shared.append((source, target, length))
        self.rows[target] = self.rows[source][:length]


def model(text: str | Sequence[int], **attributes: Any) -> tuple[Model, Any]:
    """A model whose answer to a prompt of n tokens is the text from place n on."""
    tokenizer = byte_tokenizer()
    decoder: Any = CountingDecoder(tokenizer.encode(text) if isinstance(text, str) else text, **attributes)
    return Model(decoder, tokenizer, ChatTemplate("{% for m in messages %}{{ m.content }}{% endfor %}", {})), decoder
