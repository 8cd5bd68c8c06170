"""How far work is: a function that is told, a bar for whoever waits, and work that Ctrl-C may end before its end."""

from __future__ import annotations

import importlib
import shutil
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, Generic, Self, TextIO, TypeVar

from dmlvk.html.elements import element, markup

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
    """For callers who want no progress: does nothing."""


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
_SECONDS_BETWEEN_LINES: Final = 30.0


class ProgressBar:
    """One line of a terminal, or a bar in a notebook, rewritten as work goes on and erased at the end; where the stream is
    neither, a plain line every half minute.

    Args:
        total: All there is to do, in whatever unit ``update`` counts.
        patience: Seconds before it is first drawn on a terminal or in a notebook, for work that is often done sooner.
        stream: Standard error, or the notebook in which this runs, where not given.
        clock: Seconds.
    """

    def __init__(
        self,
        total: float,
        *,
        patience: float = 0.0,
        stream: TextIO | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._total = max(total, 1e-9)
        self._stream = sys.stderr if stream is None else stream
        self._terminal = self._stream.isatty()
        self._notebook = _Notebook.around() if stream is None else None
        self._clock = clock
        self._started = clock()
        self._rewritten = self._terminal or self._notebook is not None
        self._due = patience if self._rewritten else _SECONDS_BETWEEN_LINES
        self._drawn = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *reason: object) -> None:
        self.erase()

    def erase(self) -> None:
        """Takes the line away, for whoever prints one that stays; the next ``update`` draws it again."""
        if not self._rewritten or not self._drawn:
            return
        if self._notebook is not None:
            self._notebook.show("")
        else:
            self._stream.write("\r\x1b[K")
            self._stream.flush()
        self._drawn, self._due = False, 0.0

    def update(self, done: float, text: str) -> None:
        """So much is done, and this is what comes now. Draws at most ten times a second."""
        elapsed = self._clock() - self._started
        if elapsed < self._due:
            return
        self._due = elapsed + (_SECONDS_BETWEEN if self._rewritten else _SECONDS_BETWEEN_LINES)
        share = min(done / self._total, 1.0)
        left = f", {_minutes(elapsed / share - elapsed)} left" if share > 0 else ""
        line = f"{share:4.0%}  {_minutes(elapsed)}{left}  {text}"
        self._drawn = True
        if self._notebook is not None:
            bar = element("progress", max=1, value=round(share, 3), style="width:16em;vertical-align:middle")
            self._notebook.show(markup([element("div", bar, f" {line}")]))
            return
        if self._terminal:
            filled = round(_BAR * share)
            line = f"[{'#' * filled}{'.' * (_BAR - filled)}] {line}"
            self._stream.write("\r" + line[: shutil.get_terminal_size().columns - 1] + "\x1b[K")
        else:
            self._stream.write(f"{line}\n")
        self._stream.flush()


class _Notebook:
    """A place in the output of a notebook's cell, by IPython, which whoever runs a notebook has imported.

    Args:
        display: The module ``IPython.display``.
    """

    def __init__(self, display: Any) -> None:
        self._display = display
        self._place: Any = None

    @staticmethod
    def around() -> _Notebook | None:
        """The notebook in which this runs; None in any other program, IPython's own terminal among them."""
        ipython = sys.modules.get("IPython")
        shell = None if ipython is None else ipython.get_ipython()
        if getattr(shell, "kernel", None) is None:
            return None
        return _Notebook(importlib.import_module("IPython.display"))

    def show(self, html: str) -> None:
        """Shows this there, and nothing of what was there before."""
        shown = self._display.HTML(html)
        if self._place is None:
            self._place = self._display.display(shown, display_id=True)
        else:
            self._place.update(shown)


def _minutes(seconds: float) -> str:
    return f"{int(seconds) // 60}:{int(seconds) % 60:02d}"


Item = TypeVar("Item")


class UntilInterrupted(Generic[Item]):
    """Items, until Ctrl-C: what there is by then can be used.

    Args:
        items: Whoever makes them. What is done between them is interrupted as ever.

    Attributes:
        interrupted: Whether Ctrl-C ended it.
    """

    def __init__(self, items: Iterable[Item]) -> None:
        self._items = items
        self.interrupted = False

    def __iter__(self) -> Iterator[Item]:
        try:
            yield from self._items
        except KeyboardInterrupt:
            self.interrupted = True
