"""Copies of a session on several devices, and work that is done on all of them at once."""

from __future__ import annotations

import queue
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


class Turns:
    """Which of several copies nobody has.

    Args:
        count: The copies.
    """

    def __init__(self, count: int) -> None:
        self._free: queue.SimpleQueue[int] = queue.SimpleQueue()
        for number in range(count):
            self._free.put(number)

    @contextmanager
    def free(self) -> Iterator[int]:
        """The number of a copy that nobody else is given meanwhile; waits until there is one."""
        number = self._free.get()
        try:
            yield number
        finally:
            self._free.put(number)


def in_order(work: Callable[[Item], Result], items: Iterable[Item], threads: int) -> Iterator[Result]:
    """What work makes of each item, in the order of the items, done in several threads. Items are taken as they are needed,
    two for each thread ahead. An error comes in its item's place and ends it; what has not begun then is not begun."""
    waiting: deque[Future[Result]] = deque()
    with ThreadPoolExecutor(threads, thread_name_prefix="dmlvk-run") as pool:
        try:
            for item in items:
                waiting.append(pool.submit(work, item))
                if len(waiting) == 2 * threads:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            for future in waiting:
                future.cancel()
