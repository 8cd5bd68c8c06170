"""Whether the rules choose well: every rule that could run a problem is timed. Where the chosen one is more than 5 % slower
than the best, that is said."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from dmlvk.directml.device import Device
from dmlvk.kernels.lowering import possible_rules
from dmlvk_bench.measure import Loaded, chosen_rule
from dmlvk_bench.problems.model import Problem
from dmlvk_bench.timing import Pace

SLACK: Final = 1.05
"""The chosen rule may take so many times as long as the best one before a sweep reports it."""
HOPELESS: Final = 4
"""A rule whose single execution takes so many times as long as the best one's is not timed further."""
_STARTING: Final = 1e-4
"""Seconds in which no rule is hopeless: starting what runs alone takes some microseconds, too."""


@dataclass(frozen=True)
class SweepRow:
    """A problem under one rule.

    Attributes:
        problem: Its name.
        rule: The rule that ran.
        chosen: Whether the rules choose it.
        us: Microseconds of one execution; of a hopeless rule, of a single run.
        gb_per_s: Bytes that must move, over the time.
        tflop_per_s: Operations over the time.
    """

    problem: str
    rule: str
    chosen: bool
    us: float
    gb_per_s: float
    tflop_per_s: float

    def __str__(self) -> str:
        speed = f"{self.tflop_per_s:7.2f} TFLOP/s" if self.tflop_per_s else f"{self.gb_per_s:6.0f} GB/s"
        return f"{self.problem:56} {self.rule:>20}{'*' if self.chosen else ' '} {self.us:9.1f} us {speed}"


def sweep(device: Device, problem: Problem, pace: Pace) -> list[SweepRow]:
    """A row for each rule that could run a problem, the chosen one first.

    Raises:
        UnsupportedError: the device cannot run it.
        OutOfDeviceMemoryError: there is no room for it.
    """
    inputs = problem.inputs()
    chosen = chosen_rule(device, problem)
    rows: list[SweepRow] = []
    for rule in sorted(possible_rules(problem.desc, device.capabilities), key=lambda rule: rule != chosen):
        loaded = Loaded(device, problem, inputs, rule)
        loaded.run()
        seconds = loaded.run()
        best = min((row.us * 1e-6 for row in rows), default=seconds)
        if not is_hopeless(seconds, best):
            seconds = loaded.time(pace).seconds
        gb_per_s, tflop_per_s = problem.bytes_moved / seconds * 1e-9, problem.operations / seconds * 1e-12
        rows.append(SweepRow(problem.name, rule, rule == chosen, seconds * 1e6, gb_per_s, tflop_per_s))
        del loaded  # its memory goes before the next one's comes
    return rows


def is_hopeless(single: float, best: float) -> bool:
    """Whether a rule that takes so many seconds alone cannot be as fast as the best one."""
    return single > HOPELESS * best + _STARTING


def slower_than_possible(rows: Sequence[SweepRow]) -> Iterable[str]:
    """A line for each problem of a sweep whose chosen rule is more than 5 % slower than the best."""
    for chosen in (row for row in rows if row.chosen):
        best = min((row for row in rows if row.problem == chosen.problem), key=lambda row: row.us)
        if chosen.us > SLACK * best.us:
            yield (
                f"{chosen.problem}: {chosen.rule} is chosen and takes {chosen.us:.1f} us, "
                f"{chosen.us / best.us:.2f} times the {best.us:.1f} us of {best.rule}"
            )
