"""How long a run takes."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

WARM_UP_SECONDS = 0.7
SECONDS = 0.3
LEAST_RUNS = 20


@dataclass(frozen=True)
class Timing:
    """Of several runs.

    Attributes:
        ms: Median.
        spread: Distance of the quartiles, as a share of the median.
        runs: How many.
    """

    ms: float
    spread: float
    runs: int


def timed(run: Callable[[], object], *, quick: bool = False) -> Timing:
    """Times runs after a warm-up; ``quick`` does two runs and no warm-up, to see that everything works."""
    end = time.perf_counter() + (0.0 if quick else WARM_UP_SECONDS)
    while time.perf_counter() < end:
        run()
    times: list[float] = []
    end = time.perf_counter() + (0.0 if quick else SECONDS)
    while len(times) < (2 if quick else LEAST_RUNS) or time.perf_counter() < end:
        started = time.perf_counter()
        run()
        times.append(time.perf_counter() - started)
    middle = statistics.median(times)
    low, _, high = statistics.quantiles(times, n=4)
    return Timing(middle * 1e3, (high - low) / middle, len(times))
