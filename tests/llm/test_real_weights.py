"""A model that people use beside the reference: what it writes, a token at a time."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from language_models import Reference

import dmlvk
from dmlvk.llm.decoder import Decoder
from dmlvk.llm.gguf_file import load_gguf
from dmlvk.llm.sampling import Sampling
from dmlvk.llm.tokenizer import Tokenizer

pytestmark = pytest.mark.network

PROMPTS = """\
The capital of France is
Once upon a time there was a
Water boils at a temperature of
def fibonacci(n):
The three primary colours are
In 1969, the first people
To bake bread you need flour,
Dear Sir or Madam,
The theory of evolution says that
SELECT name FROM users WHERE
A good way to learn a language is
The largest planet of the solar system
My favourite season is autumn because
The recipe is simple: first,
Photosynthesis is the process by which
If it rains tomorrow, we
The stock market fell sharply after
Four score and seven years ago
The difference between a virus and a bacterium
She opened the door and saw
""".splitlines()
ROUNDING = 1e-3
"""The difference of two logits, of about 20, that the order of float32's sums may turn round."""


@pytest.mark.full
def test_greedy_answers_are_those_of_the_reference(device: dmlvk.Device, model_path: Callable[[str], Path]) -> None:
    """The reference reads what the decoder has written: each token must be the best one, or within rounding of it."""
    compare(device, model_path("SmolLM2-135M-Instruct.Q4_1.gguf"), 200)


def compare(device: dmlvk.Device, path: Path, count: int) -> int:
    """How many tokens were not the reference's first choice, all of them within rounding of it."""
    weights = load_gguf(path)
    tokenizer = Tokenizer.of_metadata(weights.metadata)
    texts = [tokenizer.encode(prompt) for prompt in PROMPTS]
    decoder = Decoder(device, weights, capacity=max(map(len, texts)) + count, sequences=len(texts))
    decoder.feed([text[:-1] for text in texts])
    start = [text[-1] for text in texts]
    written = np.stack([decoder.step([Sampling()] * len(texts), None if index else start) for index in range(count)])
    turned = 0
    reference = Reference(weights, decoder.capacity)
    for text, chosen in zip(texts, written.T.tolist(), strict=True):
        logits = reference.renewed().feed(text + chosen[:-1])[len(text) - 1 :]
        behind = logits.max(-1) - logits[np.arange(count), chosen]
        assert behind.max() < ROUNDING, (tokenizer.decode(text), behind.argmax(), behind.max())
        turned += int((behind > 0).sum())
    return turned
