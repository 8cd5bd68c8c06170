"""A model that many threads ask, without a device."""

from __future__ import annotations

import queue
import threading
from typing import Any

import pytest
from counting_model import CountingDecoder, byte_tokenizer
from counting_model import model as counting

import dmlvk
from dmlvk.llm.model import Model
from dmlvk.llm.scheduler import Request, Update
from dmlvk.llm.service import Service

LONG = 60
"""Seconds that nothing here takes."""


class Asked:
    """A request whose updates another thread waits for."""

    def __init__(self, service: Service, prompt: str, most: int = 5, **options: Any) -> None:
        self._updates: queue.Queue[Update] = queue.Queue()
        self.request = Request(service.model.job(prompt, most, **options), self._updates.put)

    def next(self) -> Update:
        return self._updates.get(timeout=LONG)

    def rest(self) -> tuple[str, str]:
        """The text, and why it ended."""
        text = ""
        while True:
            update = self.next()
            text += "".join(map(str, update.pieces))
            if update.ended:
                return text, update.ended


class HeldDecoder(CountingDecoder):
    """Steps wait until they may."""

    def __init__(self, text: str, **attributes: Any) -> None:
        super().__init__(byte_tokenizer().encode(text), **attributes)
        self.may_step = threading.Event()
        self.failure: Exception | None = None

    def step(self, sampling: Any, tokens: Any = None) -> Any:
        assert self.may_step.wait(LONG)
        if self.failure is not None:
            raise self.failure
        return super().step(sampling, tokens)


def held() -> tuple[Model, HeldDecoder]:
    decoder = HeldDecoder("abcdefgh", sequences=2)
    return Model(decoder, byte_tokenizer()), decoder  # type: ignore[arg-type]


def test_many_threads_ask_one_model() -> None:
    service = Service(lambda: counting("abcdefgh", sequences=3)[0])
    found: dict[int, tuple[str, str]] = {}

    def ask(number: int) -> None:
        asked = Asked(service, "x" * (1 + number % 5))
        service.submit([asked.request])
        found[number] = asked.rest()

    threads = [threading.Thread(target=ask, args=[number]) for number in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LONG)
    assert found == {number: (("abcdefgh" * 2)[1 + number % 5 :][:5], "length") for number in range(12)}
    assert service.load[:2] == (0, 0)
    service.close()


def test_what_is_cancelled_or_closed_is_told_so() -> None:
    model, decoder = held()
    service = Service(lambda: model)
    first, second, third = (Asked(service, text, 9) for text in ("x", "xx", "xxx"))
    service.submit([first.request, second.request, third.request])
    third.request.cancel()
    decoder.may_step.set()
    assert third.rest()[1] == "cancelled"
    for asked in (first, second):
        assert asked.rest()[1] == "length"
    decoder.may_step.clear()
    fourth = Asked(service, "x", 9)
    service.submit([fourth.request])
    closing = threading.Thread(target=service.close)
    closing.start()
    decoder.may_step.set()
    assert fourth.rest()[1] in ("failed", "length"), "closed in the middle, or finished before"
    closing.join(LONG)
    with pytest.raises(dmlvk.StateError, match="the service is closed"):
        service.submit([fourth.request])
    with pytest.raises(dmlvk.StateError, match="the service is closed"):
        _ = service.model


def test_after_a_lost_device_the_model_is_loaded_anew() -> None:
    model, decoder = held()
    may_load, models = threading.Event(), [model, counting("12345678")[0]]

    def load() -> Model:
        if len(models) == 1:
            assert may_load.wait(LONG)
        return models.pop(0)

    service = Service(load)
    asked = Asked(service, "x")
    service.submit([asked.request])
    decoder.failure = dmlvk.DeviceLostError("lost")
    decoder.may_step.set()
    assert asked.next() == Update((), 0, "failed", decoder.failure)
    with pytest.raises(dmlvk.StateError):
        service.submit([Request(asked.request.job, print)])
    may_load.set()
    with service._changed:
        assert service._changed.wait_for(lambda: service.is_ready and service.model is not model, LONG)
    again = Asked(service, "x")
    service.submit([again.request])
    assert again.rest() == ("23456", "length")
    service.close()


def test_a_model_that_cannot_be_loaded_anew_is_a_failure() -> None:
    model, decoder = held()
    loads = iter([model])
    service = Service(lambda: next(loads))
    asked = Asked(service, "x")
    service.submit([asked.request])
    decoder.failure = dmlvk.DeviceLostError("lost")
    decoder.may_step.set()
    assert asked.rest()[1] == "failed"
    service._thread.join(LONG)
    assert isinstance(service.failure, StopIteration) and not service.is_ready
    with pytest.raises(dmlvk.StateError, match="the model is not there"):
        _ = service.model


def test_a_fault_of_the_program_is_a_failure_and_no_silence() -> None:
    service = Service(lambda: counting("abcdefgh")[0])

    def faulty(_: Update) -> None:
        raise ZeroDivisionError

    asked = Asked(service, "xx")
    with service._changed:  # so that both are there before the first round
        service.submit([Request(service.model.job("x", 5), faulty), asked.request])
    assert asked.rest() == ("", "failed")
    service._thread.join(LONG)
    assert isinstance(service.failure, ZeroDivisionError) and not service.is_ready
