"""Times the device's work, once its clocks have settled.

An idle GPU runs at a fraction of its clock and takes a tenth of a second to leave it, so times count only from where they
stay the same. What is measured is the device's own time, between a timestamp before and one after all executions of a
recorded list: timestamps between them would keep them from following each other closely. Host time, from submit to seen
done, is that of the same submissions.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, TypeVar

from dmlvk.directml.command import CommandList
from dmlvk.directml.device import Device

S = TypeVar("S")

REPEATS: Final = 50
"""Executions in one submission: its 15 microseconds are then below 0.2 % of what is measured."""
SETTLED: Final = 0.02
"""The medians of two windows of a warm-up may differ by such a share, and the clocks are called settled."""


@dataclass(frozen=True)
class Pace:
    """How long to warm up and to take samples.

    Attributes:
        warm_up: Seconds of work before any window counts.
        window: Seconds of work in a window whose median is compared with that of the one before.
        longest: Seconds after which a warm-up ends, settled or not.
        samples: Fewest that are taken afterwards.
        seconds: Seconds of samples at least, where each is quick.
        submission: Seconds that the executions in one submission take together; what takes longer is executed alone.
        patience: Seconds of samples after which three are enough.
    """

    warm_up: float
    window: float
    longest: float
    samples: int
    seconds: float
    submission: float
    patience: float


THOROUGH: Final = Pace(warm_up=0.2, window=0.05, longest=1.5, samples=9, seconds=0.05, submission=0.03, patience=3.0)
"""The pace for figures that are kept."""
SINGLE: Final = Pace(warm_up=0.2, window=0.05, longest=1.5, samples=20, seconds=0.1, submission=0.0, patience=3.0)
"""The pace for figures that are kept, where each sample is one execution."""
NEXT: Final = Pace(warm_up=0.06, window=0.03, longest=1.0, samples=15, seconds=0.08, submission=0.0, patience=2.0)
"""The pace for figures that are kept of many models, each a moment after the last, so that the clocks are up."""
SOFTWARE: Final = Pace(warm_up=0.0, window=0.05, longest=0.2, samples=9, seconds=0.05, submission=0.03, patience=0.5)
"""The pace of a CPU's driver, whose clocks are up already: a problem takes it a large part of a second."""
QUICK: Final = Pace(warm_up=0.0, window=0.0, longest=0.0, samples=3, seconds=0.0, submission=0.005, patience=0.3)
"""The pace that only shows that everything works."""


class Sample(NamedTuple):
    """One submission: seconds on the device, and from submit to seen done on the host."""

    device: float
    host: float


@dataclass(frozen=True)
class Timed:
    """The time of one execution.

    Attributes:
        seconds: Median on the device; on the host where the device's queue has no timestamps.
        host_seconds: Median from submit to seen done, divided by the executions in a submission.
        spread: Distance of the quartiles of ``seconds``, as a share of it.
        samples: The number of submissions that were timed.
        by_device: Whether ``seconds`` comes from timestamps.
    """

    seconds: float
    host_seconds: float
    spread: float
    samples: int
    by_device: bool


def settled_samples(
    run: Callable[[], S], seconds: Callable[[S], float], pace: Pace, clock: Callable[[], float] = time.perf_counter
) -> list[S]:
    """The results of runs after a warm-up that lasts until two successive windows have the same median.

    Args:
        run: One sample.
        seconds: The seconds of a sample, which are compared.
        pace: How long to warm up and to take samples.
        clock: Seconds now.
    """
    started = clock()
    before = 0.0
    while (elapsed := clock() - started) < pace.longest:
        window = [seconds(run())]
        end = started + elapsed + pace.window
        while clock() < end:
            window.append(seconds(run()))
        middle = statistics.median(window)
        if clock() - started >= pace.warm_up and abs(middle - before) <= SETTLED * middle:
            break
        before = middle
    samples: list[S] = []
    started = clock()
    while True:
        samples.append(run())
        elapsed = clock() - started
        if len(samples) >= 3 and (elapsed > pace.patience or (len(samples) >= pace.samples and elapsed >= pace.seconds)):
            return samples


def spread(times: list[float]) -> float:
    """Distance of the quartiles of at least two times, as a share of their median."""
    low, middle, high = statistics.quantiles(times, n=4, method="inclusive")
    return (high - low) / middle


def sample(commands: CommandList) -> Sample:
    """One submission of a list. Its device time is from its first timestamp to its last, and its host time without any."""
    started = time.perf_counter()
    commands.submit()
    commands.wait()
    host = time.perf_counter() - started
    taken = commands.timestamps()
    return Sample(taken[-1] * 1e-9 if taken else host, host)


def recorded(device: Device, record: Callable[[CommandList], Any], executions: int = 1) -> CommandList:
    """A list of executions between two timestamps, where the device has such.

    Args:
        device: The device that runs the list.
        record: Records one execution.
        executions: The number of executions in the list.
    """
    commands = device.create_command_list()
    if device.has_timestamps:
        commands.timestamp()
    for _ in range(executions):
        record(commands)
    if device.has_timestamps:
        commands.timestamp()
    return commands


def time_list(commands: CommandList, executions: int, pace: Pace) -> Timed:
    """Times one execution of a recorded list.

    Args:
        commands: A list from ``recorded``.
        executions: The number of executions in it.
        pace: How long to warm up and to take samples.
    """
    samples = settled_samples(lambda: sample(commands), lambda one: one.device, pace)
    times = [one.device / executions for one in samples]
    host = statistics.median(one.host for one in samples) / executions
    return Timed(statistics.median(times), host, spread(times), len(samples), commands.device.has_timestamps)


def repeats(single: float, pace: Pace) -> int:
    """Executions in a submission of what takes so many seconds alone."""
    return max(1, min(REPEATS, int(pace.submission / max(single, 1e-9))))


def time_executions(device: Device, record: Callable[[CommandList], Any], pace: Pace) -> Timed:
    """Times one execution, with up to ``REPEATS`` of them in one submission.

    Args:
        device: The device that runs it.
        record: Records one execution.
        pace: How long to warm up and to take samples.
    """
    once = recorded(device, record)
    sample(once)  # the driver may compile at the first execution
    executions = repeats(sample(once).device, pace)
    commands = recorded(device, record, executions) if executions > 1 else once
    return time_list(commands, executions, pace)
