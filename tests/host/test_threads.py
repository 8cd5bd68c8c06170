"""Threads of dmlvk's own."""

from __future__ import annotations

import threading
import weakref

import pytest

from dmlvk.runtime.threads import start_thread


class Worker:
    """What a thread would do, and keep alive."""

    def work(self) -> None:
        raise AssertionError("this thread does not start")


@pytest.mark.parametrize("raised", [KeyboardInterrupt, RuntimeError])
def test_a_thread_that_does_not_start_keeps_nothing(monkeypatch: pytest.MonkeyPatch, raised: type[BaseException]) -> None:
    def refuse(*_: object) -> None:
        raise raised

    monkeypatch.setattr(threading, "_start_new_thread", refuse)
    worker = Worker()
    with pytest.raises(raised) as caught:
        start_thread("never", worker.work)
    alive = weakref.ref(worker)
    del worker, caught
    assert alive() is None
