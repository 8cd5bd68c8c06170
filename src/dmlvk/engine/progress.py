"""How far work is, for whoever waits for it: a function that is told, and a bar for a terminal."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Callable
from typing import Final, Self, TextIO

Progress = Callable[[str, int, int], None]
"""Told of the phase, how much of it is done, and how much there is to do: at the start, with 0 done, then as it goes on.
First the model is parsed, then its constants are folded; for each plan pipelines are compiled, while weights are uploaded. A
phase without work is left out. Pipelines are counted, and bytes of weights; the other phases are one piece. It is called in
the thread that loads the model or runs it; what it raises ends that."""

PARSING: Final = "parsing"
FOLDING: Final = "folding"
COMPILING: Final = "compiling pipelines"
UPLOADING: Final = "uploading"
PHASES: Final = (PARSING, FOLDING, COMPILING, UPLOADING)


def silent(phase: str, done: int, total: int) -> None:
    """Tells nobody."""


class Count:
    """One phase as it goes on.

    Args:
        progress: Who is told.
        phase: The phase, one of ``PHASES``.
        total: The amount of work; a phase with none is left out.
    """

    def __init__(self, progress: Progress, phase: str, total: int) -> None:
        self._progress, self._phase, self._total, self._done = progress, phase, total, 0
        self(0)

    def __call__(self, more: int = 1) -> None:
        """Notes that so much more is done."""
        self._done += more
        if self._total:
            self._progress(self._phase, self._done, self._total)


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
