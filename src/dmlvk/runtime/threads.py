"""Threads that an interrupt cannot leave half started."""

from __future__ import annotations

import threading
from collections.abc import Callable


def start_thread(name: str, work: Callable[[], object]) -> threading.Thread:
    """Starts a thread that does some work. Where an exception ends this call, KeyboardInterrupt for one, nothing keeps the
    work alive: ``Thread.start`` notes the thread first, and never forgets one that it did not come to start.

    Raises:
        RuntimeError: the system has no more threads.
    """
    given = [work]
    try:
        thread = threading.Thread(target=_do, args=(given,), name=name)
        thread.start()
    except BaseException:
        given.clear()
        raise
    return thread


def _do(given: list[Callable[[], object]]) -> None:
    try:
        work = given.pop()
    except IndexError:  # called off
        return
    work()
