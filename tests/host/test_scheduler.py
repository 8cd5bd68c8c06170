"""Requests that join and leave a decoder, without a device: a decoder whose next token tells all that its cache holds."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from counting_model import CountingDecoder, byte_tokenizer
from hypothesis import given, settings
from hypothesis import strategies as st

import dmlvk
from dmlvk.llm.model import Model
from dmlvk.llm.scheduler import Request, Scheduler, Update, common_length


class TellingDecoder(CountingDecoder):
    """The next token is a function of all tokens of the cache, and of the seed: a wrong row changes the answer."""

    def __init__(self, sequences: int, capacity: int = 64) -> None:
        super().__init__("", capacity, sequences)
        self.rounds: list[str] = []

    def extend(self, parts: Sequence[Sequence[int]], rows: int | None = None) -> None:
        assert rows == 8 and all(len(part) <= rows for part in parts)
        self.rounds.append("piece")
        super().extend(parts, rows)

    def step(self, sampling: Sequence[Any], tokens: Sequence[int] | None = None) -> Any:
        self.rounds.append("step")
        given = self.chosen if tokens is None else list(tokens)
        self.chosen = [7] * len(self.rows)  # what sequences without sampling have chosen means nothing
        for place, (row, own) in enumerate(zip(self.rows, sampling, strict=True)):
            if own is not None:
                row.append(given[place])
                assert len(row) <= self.capacity
                self.chosen[place] = zlib.crc32(bytes(item % 256 for item in row), own.seed) % 250
        return np.array(self.chosen, np.int32)


class Told(Request):
    """A request that keeps what it is told."""

    def __init__(self, model: Model, prompt: Sequence[int], most: int = 6, **options: Any) -> None:
        super().__init__(model.job(prompt, most, **options), self.hear)
        self.updates: list[Update] = []

    def hear(self, update: Update) -> None:
        assert not self.ended, "nothing comes after the end"
        self.updates.append(update)

    @property
    def tokens(self) -> list[Any]:
        return [piece for update in self.updates for piece in update.pieces]

    @property
    def ended(self) -> str:
        return self.updates[-1].ended if self.updates else ""


def made(sequences: int, **options: Any) -> tuple[Scheduler, Model, TellingDecoder]:
    decoder = TellingDecoder(sequences)
    model = Model(decoder, byte_tokenizer())  # type: ignore[arg-type]
    return Scheduler(model.decoder, **options), model, decoder


def finish(scheduler: Scheduler) -> None:
    while scheduler.is_busy:
        scheduler.round()


def alone(prompt: Sequence[int], most: int = 6, **options: Any) -> list[Any]:
    scheduler, model, _ = made(1)
    request = Told(model, prompt, most, **options)
    scheduler.submit([request])
    finish(scheduler)
    return request.tokens


SHARED = list(range(40))
PROMPTS = st.builds(
    lambda common, own: [*SHARED[:common], *own],
    st.sampled_from([0, 3, 18, 30, 40]),
    st.lists(st.integers(0, 3), min_size=1, max_size=12),
)
ARRIVALS = st.lists(
    st.tuples(st.integers(0, 6), PROMPTS, st.integers(1, 9), st.integers(0, 2), st.sampled_from([None, None, 0, 1, 4])),
    min_size=1,
    max_size=8,
)


@settings(deadline=None, max_examples=60)
@given(sequences=st.integers(1, 4), arrivals=ARRIVALS)
def test_an_answer_does_not_depend_on_the_others(sequences: int, arrivals: list[Any]) -> None:
    """Requests come some rounds after each other, and some leave some rounds later."""
    scheduler, model, _ = made(sequences)
    requests, leaving, now = [], [], 0
    for pause, prompt, most, seed, leaves in arrivals:
        for _ in range(pause):
            scheduler.round()
            now += 1
            for due, request in leaving:
                if due == now:
                    request.cancel()
        requests.append(Told(model, prompt, most, seed=seed))
        scheduler.submit(requests[-1:])
        if leaves is not None:
            leaving.append((now + leaves, requests[-1]))
    finish(scheduler)
    for request, (_, prompt, most, seed, _) in zip(requests, arrivals, strict=True):
        expected = alone(prompt, most, seed=seed)
        if request.is_cancelled and request.ended == "cancelled":
            assert request.tokens == expected[: len(request.tokens)]
        else:
            assert request.tokens == expected and request.ended in ("length", "stop")
        assert sum(update.tokens for update in request.updates) == request.job.made
    assert scheduler.load[:2] == (0, 0)


def test_answers_go_on_while_a_long_prompt_is_read() -> None:
    scheduler, model, decoder = made(2)
    first, second = Told(model, [1, 2], 20), Told(model, list(range(3, 45)), 3)
    scheduler.submit([first])
    scheduler.round()
    scheduler.submit([second])
    del decoder.rounds[:]
    while not second.updates:
        scheduler.round()
    assert decoder.rounds == ["piece", "step"] * 6, "42 tokens but for the last one, 8 at a time"
    assert len(first.tokens) == 7 and second.tokens == alone(list(range(3, 45)), 1)


def test_requests_get_sequences_in_the_order_in_which_they_came() -> None:
    scheduler, model, _ = made(2)
    requests = [Told(model, [number], 2) for number in range(6)]
    scheduler.submit(requests)
    seen: list[int] = []
    while scheduler.is_busy:
        scheduler.round()
        seen += [number for number, request in enumerate(requests) if request.updates and number not in seen]
    assert seen == list(range(6))


def test_a_queue_has_an_end() -> None:
    scheduler, model, _ = made(1, most_waiting=2)
    scheduler.submit([Told(model, [1]), Told(model, [2])])
    with pytest.raises(dmlvk.QueueFullError, match="2 requests wait"):
        scheduler.submit([Told(model, [3]), Told(model, [4])])
    scheduler.submit([Told(model, [3])])
    assert scheduler.load[:3] == (3, 0, 1)
    scheduler.round()
    assert scheduler.load == (2, 1, 1, 1, 64)
    finish(scheduler)
    assert scheduler.load[:2] == (0, 0)


def test_prompts_that_begin_alike_are_read_once() -> None:
    scheduler, model, decoder = made(3)
    requests = [Told(model, [*SHARED, number], 4, seed=number) for number in range(3)]
    scheduler.submit(requests)
    finish(scheduler)
    assert sum(len(part) for parts in decoder.fed for part in parts) == len(SHARED)
    assert [request.reused for request in requests] == [0, 40, 40]
    assert [request.tokens for request in requests] == [alone([*SHARED, number], 4, seed=number) for number in range(3)]


def test_who_waits_for_a_beginning_goes_on_where_the_first_one_leaves() -> None:
    scheduler, model, _ = made(2)
    first, second = Told(model, SHARED), Told(model, [*SHARED, 1])
    scheduler.submit([first, second])
    scheduler.round()
    scheduler.round()
    scheduler.round()
    first.cancel()
    finish(scheduler)
    assert second.reused == 24 and second.tokens == alone([*SHARED, 1])
    assert first.ended == "cancelled" and not first.tokens


def test_only_what_was_read_as_a_prompt_is_used_again() -> None:
    scheduler, model, decoder = made(1)
    first = Told(model, [1, 2, 3], 5)
    scheduler.submit([first])
    finish(scheduler)
    assert decoder.lengths == [2], "of what was chosen nothing stays"
    again = Told(model, [1, 2, 3, *first.tokens, 9], 2)
    scheduler.submit([again])
    finish(scheduler)
    assert again.reused == 2 and again.tokens == alone([1, 2, 3, *first.tokens, 9], 2)


def test_a_short_beginning_does_not_cost_a_long_one() -> None:
    scheduler, model, decoder = made(2)
    for prompt in (SHARED, [*SHARED[:18], 99], SHARED):
        request = Told(model, prompt, 1)
        scheduler.submit([request])
        finish(scheduler)
    assert decoder.shared == [(0, 1, 18)] and request.reused == 39


@pytest.mark.parametrize(
    ("error", "works"), [(dmlvk.OutOfDeviceMemoryError("full"), True), (dmlvk.DeviceLostError("lost"), False)]
)
@pytest.mark.parametrize("method", ["extend", "step", "share"])
def test_a_failure_ends_whom_it_concerns(
    monkeypatch: pytest.MonkeyPatch, method: str, error: Exception, works: bool
) -> None:
    scheduler, model, decoder = made(2)
    running, joining, waiting = Told(model, SHARED, 9), Told(model, SHARED, 3), Told(model, [5, 6, 7])
    scheduler.submit([running, joining, waiting])

    def fails(*_: Any) -> None:
        raise error

    with monkeypatch.context() as patched:
        patched.setattr(decoder, method, fails)
        while not running.ended:
            scheduler.round()
    assert [(request.updates[-1].ended, request.updates[-1].error) for request in (running, joining)] == [
        ("failed", error)
    ] * 2
    assert scheduler.failure is (None if works else error)
    if works:
        finish(scheduler)
        assert waiting.tokens == alone([5, 6, 7])
    else:
        assert waiting.ended == "failed" and not scheduler.is_busy
        with pytest.raises(dmlvk.StateError, match="any more: lost"):
            scheduler.submit([Told(model, [1])])


def test_pieces_are_the_decoders() -> None:
    with pytest.raises(dmlvk.InvalidArgumentError, match="must be one of 8; got 9"):
        made(1, piece=9)


@given(st.lists(st.integers(0, 1), max_size=9), st.lists(st.integers(0, 1), max_size=9))
def test_common_length(first: list[int], second: list[int]) -> None:
    same = common_length(first, second)
    assert first[:same] == second[:same]
    assert same == min(len(first), len(second)) or first[same] != second[same]
