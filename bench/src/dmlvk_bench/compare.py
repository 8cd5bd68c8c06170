"""The figures that changed between two runs by more than the noise of both: ``python -m dmlvk bench compare A B``.

Two runs on one GPU are compared by their times. Where the devices differ, or are a CPU whose other work slows them, they are
compared by their shares of the limits that each run measured for itself; launches and models have none and are not judged.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dmlvk.spec.errors import InvalidArgumentError
from dmlvk.verify.machine import Machine
from dmlvk_bench.results import HostRow, ProblemRow, Results

LEAST_CHANGE = 0.05
"""The share by which two runs of the same build differ on an idle GPU, whatever their spreads say."""
LEAST_CHANGE_OF_SHARES = 0.25
"""The share by which the shares of limits differ: they hold two limits, which were measured seconds earlier."""
LEAST_CHANGE_OF_LAUNCHES = 0.15
"""The share by which times differ in which the host takes part, such as those of launches."""


@dataclass(frozen=True)
class Change:
    """One figure in both runs.

    Attributes:
        name: The problem, launch list or model.
        before, after: The figure of the first and of the second run, in ``unit``.
        unit: "us", "ms", or "of the limit".
        slowdown: The second run's time over the first one's: above 1 it is slower.
        noise: The change, as a share, that means nothing here.
    """

    name: str
    before: float
    after: float
    unit: str
    slowdown: float
    noise: float

    @property
    def moved(self) -> bool:
        """Whether it is beyond the noise, either way."""
        return max(self.slowdown, 1 / self.slowdown) > 1 + self.noise

    def __str__(self) -> str:
        way = f"{self.slowdown:.2f} x as slow" if self.slowdown > 1 else f"{1 / self.slowdown:.2f} x as fast"
        figures = f"{self.before:.4g} -> {self.after:.4g} {self.unit}"
        return f"{self.name}: {way}, {figures} (noise {self.noise:.0%})"


@dataclass(frozen=True)
class Comparison:
    """Two runs.

    Attributes:
        changes: Every figure that both have, the worst slowdown first.
        wrong: Problems whose outputs agreed in the first run and do not in the second.
        gone, new: Problems that only the first, only the second run has.
        notes: Lines for the head of a report: how the machines differ, how figures were compared.
    """

    changes: tuple[Change, ...]
    wrong: tuple[str, ...]
    gone: tuple[str, ...]
    new: tuple[str, ...]
    notes: tuple[str, ...]

    @property
    def slower(self) -> tuple[Change, ...]:
        """The changes that are slower beyond the noise, the worst first."""
        return tuple(change for change in self.changes if change.moved and change.slowdown > 1)

    @property
    def faster(self) -> tuple[Change, ...]:
        """The changes that are faster beyond the noise, the best first."""
        return tuple(change for change in reversed(self.changes) if change.moved and change.slowdown < 1)

    @property
    def good(self) -> bool:
        """Whether nothing got slower or wrong."""
        return not self.slower and not self.wrong

    def lines(self) -> Iterator[str]:
        """The report."""
        yield from self.notes
        for title, items in (("WRONG now", self.wrong), ("slower", self.slower), ("faster", self.faster)):
            if items:
                yield f"{title}:"
                yield from (f"  {item}" for item in items)
        for title, names in (("only in the first", self.gone), ("only in the second", self.new)):
            if names:
                yield f"{title}: {', '.join(names[:8])}" + (f" and {len(names) - 8} more" if len(names) > 8 else "")
        still = sum(not change.moved for change in self.changes)
        yield (
            f"{len(self.changes)} figures in both runs: {len(self.slower)} slower, {len(self.faster)} faster, "
            f"{still} within the noise"
        )


def compare(before: Results, after: Results) -> Comparison:
    """Compares two runs, figure by figure.

    Raises:
        InvalidArgumentError: the runs have no problem, launch, call of the host or model in common.
    """
    by_share = before.machine.type == "cpu" or before.machine.device != after.machine.device
    old, new = ({row.problem: row for row in results.problems} for results in (before, after))
    common = [name for name in old if name in new]
    timed = [name for name in common if old[name].us and new[name].us]
    changes = [_of_shares(old[name], new[name]) if by_share else _of_times(old[name], new[name]) for name in timed]
    if not by_share:
        changes += _of_launches(before.launches, after.launches)
        changes += _of_host(before.host, after.host)
        changes += _of_models(before.models, after.models)
    wrong = tuple(name for name in common if old[name].agrees and not new[name].agrees)
    if not changes and not wrong:
        raise InvalidArgumentError(
            "must have a figure in common with the first file", field="results", value=after.machine.date
        )
    return Comparison(
        tuple(sorted(changes, key=lambda change: -change.slowdown)),
        wrong,
        tuple(name for name in old if name not in new),
        tuple(name for name in new if name not in old),
        tuple(_notes(before, after, changes, by_share=by_share)),
    )


def _of_times(before: ProblemRow, after: ProblemRow) -> Change:
    noise = max(LEAST_CHANGE, before.spread + after.spread)
    return Change(before.problem, before.us, after.us, "us", after.us / before.us, noise)


def _of_shares(before: ProblemRow, after: ProblemRow) -> Change:
    noise = max(LEAST_CHANGE_OF_SHARES, before.spread + after.spread)
    slowdown = before.share / after.share if before.share and after.share else after.us / before.us
    return Change(before.problem, before.share, after.share, "of the limit", slowdown, noise)


def _of_launches(before: Mapping[str, float], after: Mapping[str, float]) -> Iterator[Change]:
    for name, microseconds in before.items():
        if name in after:
            slowdown = after[name] / microseconds
            yield Change(f"launch, {name}", microseconds, after[name], "us", slowdown, LEAST_CHANGE_OF_LAUNCHES)


def _of_host(before: Sequence[HostRow], after: Sequence[HostRow]) -> Iterator[Change]:
    new = {row.name: row for row in after}
    for row in before:
        if row.name in new:
            other = new[row.name]
            noise = max(LEAST_CHANGE_OF_LAUNCHES, row.spread + other.spread)
            yield Change(f"host, {row.name}", row.us, other.us, "us", other.us / row.us, noise)


def _of_models(before: list[dict[str, Any]], after: list[dict[str, Any]]) -> Iterator[Change]:
    new = {row["model"]: row for row in after if "ms" in row}
    for row in before:
        if "ms" in row and row["model"] in new:
            other = new[row["model"]]
            noise = max(LEAST_CHANGE_OF_LAUNCHES, row["spread"] + other["spread"])
            yield Change(row["model"], row["ms"], other["ms"], "ms", other["ms"] / row["ms"], noise)


def _notes(before: Results, after: Results, changes: list[Change], *, by_share: bool) -> Iterator[str]:
    """Lines that say how the two runs differ: machine, driver, commit, scale."""
    for title, results in (("first ", before), ("second", after)):
        machine = results.machine
        built = f"commit {machine.commit or 'unknown'}"
        yield f"{title}  {machine.device}, {machine.driver}, {built}, {results.scale}, {machine.date}"
    if before.scale != after.scale:
        yield "the problems differ in scale: only those of the same name are compared"
    for name in _differing(before.machine, after.machine):
        yield f"{name} differs: {getattr(before.machine, name)!r} and {getattr(after.machine, name)!r}"
    if by_share:
        yield "compared by shares of each run's own limits; launches, the host and models are not judged"
    old, new = before.ceilings.copy_gb_per_s, after.ceilings.copy_gb_per_s
    if old and new:
        yield f"copy bandwidth {old:.4g} -> {new:.4g} GB/s"
    if len(changes) >= 5:
        yield f"all figures together: {statistics.median(change.slowdown for change in changes):.2f} x as slow (median)"


def _differing(before: Machine, after: Machine) -> Iterator[str]:
    """Fields of the machine on which figures depend."""
    for name in ("device", "driver", "mask", "system", "python"):
        if getattr(before, name) != getattr(after, name):
            yield name
