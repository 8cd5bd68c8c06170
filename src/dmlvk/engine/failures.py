"""Failures that leave nothing taken, whoever keeps the exception."""

from __future__ import annotations

import functools
import traceback
from collections.abc import Callable
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")


def frees_what_it_made(function: Callable[P, R]) -> Callable[P, R]:
    """Decorates a function that fails where memory runs out.

    An exception holds the local variables of all functions that it came through, and these hold buffers, operators and
    recordings: a notebook that shows the last exception would keep them, and the next try would find no memory either.
    """

    @functools.wraps(function)
    def call(*args: P.args, **named: P.kwargs) -> R:
        try:
            return function(*args, **named)
        except MemoryError as error:  # OutOfDeviceMemoryError and OutOfHostMemoryError among them
            traceback.clear_frames(error.__traceback__)
            raise

    return call
