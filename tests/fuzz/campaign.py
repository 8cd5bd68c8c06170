"""Runs of a fuzzer: attempt after attempt, each from a generator of its own, so that any of them can be made again alone."""

from __future__ import annotations

import collections
import random
import resource
import signal
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Final

SECONDS: Final = 10.0
"""Processor time that one attempt may take: far more than any needs, also on a busy machine."""
MEMORY: Final = 6 << 30
"""Bytes of address space of a process of ``python -m fuzz``."""
SEEDS: Final = Path(__file__).parent / "seeds"

Attempt = Callable[[random.Random], tuple[str, str]]
"""From a generator of random numbers to the attempt as text and what came of it: a word, such as "refused". Whatever it
raises is a fault, ``Fault`` where the attempt itself finds one."""


class Fault(Exception):
    """An attempt ended as none may.

    Attributes:
        text: The attempt, so that it can be made again.
    """

    def __init__(self, text: str, what: str) -> None:
        super().__init__(what)
        self.text = text


class Overtime(BaseException):
    """An attempt takes too long. No ``Exception``, so that nothing takes it for a refusal."""


@dataclass
class Account:
    """What came of a run.

    Attributes:
        outcomes: The number of attempts that came to each word.
        faults: By kind (the exception, and where it was raised), the numbers of the attempts, and the first as text.
        slowest: The seconds of the slowest attempt, and its number.
    """

    outcomes: collections.Counter[str] = field(default_factory=collections.Counter)
    faults: dict[str, tuple[list[int], str]] = field(default_factory=dict)
    slowest: tuple[float, int] = (0.0, 0)

    def __str__(self) -> str:
        count = self.outcomes.total() + sum(len(numbers) for numbers, _ in self.faults.values())
        parts = [f"{count} attempts", *(f"{number} {word}" for word, number in sorted(self.outcomes.items()))]
        return f"{', '.join(parts)}, {len(self.faults)} kinds of faults; slowest {self.slowest[0]:.2f} s ({self.slowest[1]})"


def run(attempt: Attempt, seed: int, numbers: range, seconds: float = float("inf")) -> Iterator[tuple[int, Account]]:
    """Makes attempts, and gives after each its number and the account so far.

    Args:
        attempt: What is tried.
        seed, numbers: Attempt N of a seed is the same in every run.
        seconds: The time after which no further attempt begins.
    """
    account, end = Account(), time.monotonic() + seconds
    for number in numbers:
        if time.monotonic() >= end:
            return
        start = time.process_time()
        try:
            with _limited():
                outcome = attempt(random.Random(f"{seed}/{number}"))[1]
            account.outcomes[outcome] += 1
        except (Exception, Overtime) as error:
            kind, text = described(error)
            account.faults.setdefault(kind, ([], text))[0].append(number)
        account.slowest = max(account.slowest, (time.process_time() - start, number))
        yield number, account


def described(error: BaseException) -> tuple[str, str]:
    """A fault's kind, equal for faults of one cause as far as can be told, and its attempt as text."""
    found = error.__cause__ if isinstance(error, Fault) and error.__cause__ is not None else error
    frames = [frame for frame in traceback.extract_tb(found.__traceback__) if "/tests/fuzz/" not in frame.filename]
    where = " < ".join(f"{Path(frame.filename).name}:{frame.lineno}" for frame in frames[:-4:-1])
    return f"{type(found).__name__} at {where}" if where else str(error), f"{str(found)[:300]}: {getattr(error, 'text', '')}"


def limit_memory() -> None:
    """Lets allocations fail before the machine runs out of memory."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


@contextmanager
def _limited() -> Iterator[None]:
    """Interrupts what takes longer than ``SECONDS`` of processor time."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise Overtime(f"takes more than {SECONDS:g} s")

    before = signal.signal(signal.SIGVTALRM, interrupt)
    signal.setitimer(signal.ITIMER_VIRTUAL, SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)
