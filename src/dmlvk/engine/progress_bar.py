"""A progress bar for whoever waits at a terminal: how far it is, what is being done, how long it took and will take."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Callable
from typing import Final, Self, TextIO

_BAR: Final = 24
_SECONDS_BETWEEN: Final = 0.1


class ProgressBar:
    """One line of a terminal, rewritten as work goes on and erased at the end; nothing where the stream is none.

    Args:
        total: All there is to do, in whatever unit ``update`` counts.
        stream: Standard error where not given.
        clock: Seconds.
    """

    def __init__(self, total: float, *, stream: TextIO | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self._total = max(total, 1e-9)
        self._stream = sys.stderr if stream is None else stream
        self._shown = self._stream.isatty()
        self._clock = clock
        self._started = clock()
        self._drawn_at = -_SECONDS_BETWEEN

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *reason: object) -> None:
        self.erase()

    def erase(self) -> None:
        """Takes the line away, for whoever prints one that stays; the next ``update`` draws it again."""
        if self._shown:
            self._stream.write("\r\x1b[K")
            self._stream.flush()
            self._drawn_at = -_SECONDS_BETWEEN

    def update(self, done: float, text: str) -> None:
        """So much is done, and this is what comes now. Draws at most ten times a second."""
        elapsed = self._clock() - self._started
        if not self._shown or elapsed < self._drawn_at + _SECONDS_BETWEEN:
            return
        self._drawn_at = elapsed
        share = min(done / self._total, 1.0)
        left = f", {_minutes(elapsed / share - elapsed)} left" if share > 0 else ""
        filled = round(_BAR * share)
        line = f"[{'#' * filled}{'.' * (_BAR - filled)}] {share:4.0%}  {_minutes(elapsed)}{left}  {text}"
        self._stream.write("\r" + line[: shutil.get_terminal_size().columns - 1] + "\x1b[K")
        self._stream.flush()


def _minutes(seconds: float) -> str:
    return f"{int(seconds) // 60}:{int(seconds) % 60:02d}"
