"""The times of all runs of a session that profiles, and the file that they end in."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from dmlvk.engine.profile import StepReport, chrome_trace


class Timeline:
    """Runs one after the other, from now on.

    Attributes:
        start_ns: When it began, by ``time.monotonic_ns``.
    """

    def __init__(self) -> None:
        self.start_ns = time.monotonic_ns()
        self._steps: list[StepReport] = []

    def add(self, steps: Sequence[StepReport]) -> None:
        """Adds a run that has just ended, with the times of its kernels."""
        length = max((span.end for step in steps for span in step.times or ()), default=0.0)
        began = (time.monotonic_ns() - self.start_ns) * 1e-9 - length
        for step in steps:
            times = tuple(span._replace(start=span.start + began, end=span.end + began) for span in step.times or ())
            self._steps.append(replace(step, times=times))

    def write(self, prefix: str, device: str) -> str:
        """Writes them in Chrome's trace format; returns the file's name, the prefix with the time of day.

        Raises:
            OSError: the file cannot be written.
        """
        path = Path(f"{prefix}{time.strftime('%Y-%m-%d_%H-%M-%S')}.json")
        path.write_text(chrome_trace(device, self._steps), encoding="utf-8")
        return str(path)
