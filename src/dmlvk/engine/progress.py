"""How far the loading of a model is, for whoever waits for it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

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
        phase: Of ``PHASES``.
        total: How much there is to do; the phase is left out where that is nothing.
    """

    def __init__(self, progress: Progress, phase: str, total: int) -> None:
        self._progress, self._phase, self._total, self._done = progress, phase, total, 0
        self(0)

    def __call__(self, more: int = 1) -> None:
        """So much more is done."""
        self._done += more
        if self._total:
            self._progress(self._phase, self._done, self._total)
