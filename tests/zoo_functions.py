"""Functions that the tests of the zoo run in processes of their own."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator


def answers(value: object) -> Iterator[object]:
    yield value


def answers_twice() -> Iterator[int]:
    yield 1
    yield 2


def fails() -> Iterator[int]:
    try:
        {}["layer"]
    except KeyError as error:
        raise ValueError("cannot go on") from error
    yield 1


def dies() -> Iterator[int]:
    print("out of words", flush=True)
    os._exit(3)
    yield 1


def dies_when_it_may_go() -> Iterator[int]:
    try:
        yield 1
    finally:
        os._exit(4)


def hangs() -> Iterator[int]:
    time.sleep(3600)
    yield 1


def answers_and_hangs() -> Iterator[int]:
    yield 1
    time.sleep(3600)
