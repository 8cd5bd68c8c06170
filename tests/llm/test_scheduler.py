"""Requests that join and leave on a device: an answer's bits are its own."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
from counting_model import byte_tokenizer
from language_models import VOCABULARY, write_model

import dmlvk
from dmlvk.llm.decoder import Decoder
from dmlvk.llm.gguf_file import load_gguf
from dmlvk.llm.model import Model
from dmlvk.llm.scheduler import Request, Scheduler, Update

TOKENS = np.random.default_rng(8).integers(0, VOCABULARY, 90).tolist()
PROMPTS = [TOKENS[:37], TOKENS[50:53], [*TOKENS[:30], 5], TOKENS[60:80], TOKENS[:37], [7]]
OPTIONS: list[dict[str, Any]] = [
    {"temperature": 1.5, "seed": 3},
    {},
    {"temperature": 1.0, "top_k": 20, "seed": 9, "repetition_penalty": 1.3},
    {"temperature": 2.0, "top_p": 0.9, "seed": 1},
    {"temperature": 1.5, "seed": 3},
    {"temperature": 1.0, "min_p": 0.02, "seed": 4},
]


class Told(Request):
    """A request that keeps what it is told."""

    def __init__(self, model: Model, number: int, count: int | None = None) -> None:
        job = model.job(PROMPTS[number], count or 7 + number, ignore_ends=True, **OPTIONS[number])
        super().__init__(job, self.hear)
        self.tokens: list[Any] = []
        self.is_over = False

    def hear(self, update: Update) -> None:
        assert not self.is_over, "nobody is told of steps behind an end"
        self.is_over = update.ended != ""
        self.tokens += update.pieces


@pytest.mark.parametrize("kind", ["F32", pytest.param("Q8_0", marks=pytest.mark.full)])
def test_answers_have_the_same_tokens_alone_and_among_others(device: dmlvk.Device, tmp_path: Path, kind: str) -> None:
    weights = load_gguf(write_model(tmp_path / "model.gguf", "llama", kind))
    model = Model(Decoder(device, weights, capacity=64, sequences=3), byte_tokenizer())
    scheduler = Scheduler(model.decoder, piece=8)
    expected = []
    for number in range(len(PROMPTS)):
        request = Told(model, number)
        scheduler.submit([request])
        while scheduler.is_busy:
            scheduler.round()
        expected.append(request.tokens)
    again = Scheduler(model.decoder, piece=8)  # which does not know what the cache holds
    requests = []
    for number in range(len(PROMPTS)):
        requests.append(Told(model, number))
        again.submit(requests[-1:])
        again.round()
        again.round()
    leaver = Told(model, 3)
    again.submit([leaver])
    again.round()
    leaver.cancel()
    while again.is_busy:
        again.round()
    assert [request.tokens for request in requests] == expected
    assert [len(tokens) for tokens in expected] == [7 + number for number in range(len(PROMPTS))]
    assert expected[0] == expected[4][:7]


def test_answers_do_not_depend_on_how_far_the_device_goes_ahead(
    device: dmlvk.Device, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of those that join, leave and end while steps have been begun."""
    weights = load_gguf(write_model(tmp_path / "model.gguf", "llama"))
    model = Model(Decoder(device, weights, capacity=128, sequences=2), byte_tokenizer())
    begun = Mock(side_effect=model.decoder.begin_steps)
    monkeypatch.setattr(model.decoder, "begin_steps", begun)

    def answers(most: int) -> list[list[Any]]:
        monkeypatch.setattr("dmlvk.llm.scheduler._SECONDS_AHEAD", 1e6)
        monkeypatch.setattr("dmlvk.llm.scheduler._MOST_AHEAD", most)
        scheduler = Scheduler(model.decoder, piece=8)
        requests, leaver = [Told(model, number, 40 + number) for number in range(len(PROMPTS))], Told(model, 3, 60)
        scheduler.submit([requests[0], leaver])
        coming = iter(requests[1:])
        for number in range(40):
            scheduler.round()
            if number == 9:
                leaver.cancel()
            if number in (10, 11, 17, 24, 28):
                scheduler.submit([next(coming)])
        while scheduler.is_busy:
            scheduler.round()
        return [request.tokens for request in requests]

    expected = answers(1)
    assert not begun.called and [len(tokens) for tokens in expected] == [40 + number for number in range(len(PROMPTS))]
    assert answers(3) == expected and begun.called
    assert answers(8) == expected


def test_a_request_is_not_lost_where_memory_is(
    device: dmlvk.Device, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It waits until it has a sequence, and is told of a failure from then on."""
    weights = load_gguf(write_model(tmp_path / "model.gguf", "llama"))
    model = Model(Decoder(device, weights, capacity=64), byte_tokenizer())
    scheduler = Scheduler(model.decoder, piece=8)
    request = Told(model, 1)
    scheduler.submit([request])
    with monkeypatch.context() as patched:
        patched.setattr("dmlvk.llm.scheduler.common_length", Mock(side_effect=MemoryError))
        scheduler.round()
    assert scheduler.load.waiting == 1
    while scheduler.is_busy:
        scheduler.round()
    assert len(request.tokens) == 8


def test_what_an_interrupt_leaves_in_the_cache_is_not_kept(
    device: dmlvk.Device, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C just when a sequence has got another one's beginning, in place of its own tokens."""
    weights = load_gguf(write_model(tmp_path / "model.gguf", "llama"))
    model, other = (Model(Decoder(device, weights, capacity=64, sequences=2), byte_tokenizer()) for _ in range(2))
    first, second = TOKENS[:50], TOKENS[50:70]

    def answers(model: Model, *prompts: list[int]) -> list[Any]:
        return list(model.generate_batch(prompts, 6, ignore_ends=True))

    answers(model, first)
    answers(model, second)
    share = model.decoder.share

    def interrupted(*given: int) -> None:
        share(*given)
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(model.decoder, "share", interrupted)
        with pytest.raises(KeyboardInterrupt):
            answers(model, [*first, 1], [*first, 2])
    assert answers(model, [*second, 3]) == answers(other, [*second, 3])
