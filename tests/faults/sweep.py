"""Every Vulkan function that may fail, made to fail in every scenario.

    python tests/faults/sweep.py [--short] [--only SCENARIO]... [--write]

For each scenario the calls of each function are counted first. Then, for the N-th call of it and each error that the
Vulkan specification allows it, a new scenario is made, whose N-th call alone, or every one from there on, fails. What is
wrong is printed, and makes the exit status 1: anything but an error of dmlvk's own or the right result, a crash or a hang,
a leak, a message of the validation layer, wrong bits afterwards. ``--write`` puts the table of outcomes into
docs/faults.md; ``--short`` tries every error of every function twice or so, for the suite.
"""

from __future__ import annotations

import argparse
import collections
import dataclasses
import json
import os
import pathlib
import random
import selectors
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import IO, Any, Final

sys.path.insert(0, str(pathlib.Path(__file__).parent))

import layer
import registry
from scenarios import SCENARIOS

PAGE: Final = pathlib.Path(__file__).parents[2] / "docs" / "faults.md"
BEGIN, END = "<!-- sweep -->\n", "<!-- end of sweep -->\n"
PLACES: Final = 8
"""At most so many calls of one function in one scenario are made to fail, spread evenly over all."""
PATIENCE: Final = 120.0
"""Seconds after which a worker hangs."""
FOR_GOOD: Final = 1 << 40
ONCE: Final = frozenset({"VK_ERROR_DEVICE_LOST", "VK_TIMEOUT", "VK_INCOMPLETE"})
"""Results that are not given for good: a lost device stays lost anyway, the others ask for another call."""


@dataclass(frozen=True)
class Fault:
    """``times`` calls of a function from the ``first`` on answer ``result``."""

    function: str
    first: int
    times: int
    result: str

    def __str__(self) -> str:
        calls = f"call {self.first}" if self.times == 1 else f"calls from {self.first} on"
        return f"{self.function}, {calls}: {self.result}"


class Worker:
    """A process with the layer, started when it is first asked, and anew after a crash or a hang."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None
        self._cache = tempfile.TemporaryDirectory()

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()
        self._cache.cleanup()

    def end(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None

    def ask(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """The worker's answer; where none comes, "crash" or "hang" as the outcome."""
        if self._process is None:
            environment = {**os.environ, **layer.environment(), "DMLVK_CACHE_DIR": self._cache.name}
            command = [sys.executable, str(pathlib.Path(__file__).with_name("worker.py"))]
            self._process = subprocess.Popen(
                command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
            )
        given, taken = _pipes(self._process)
        given.write(json.dumps(request) + "\n")
        given.flush()
        with selectors.DefaultSelector() as selector:
            selector.register(taken, selectors.EVENT_READ)
            answered = bool(selector.select(PATIENCE))
        line = taken.readline() if answered else ""
        if line:
            return dict(json.loads(line))
        what = "crash" if answered else "hang"
        self.end()
        return {"outcome": what, "fired": 1, "problems": [f"a {what} of the process"]}


def _pipes(process: subprocess.Popen[str]) -> tuple[IO[str], IO[str]]:
    assert process.stdin is not None and process.stdout is not None
    return process.stdin, process.stdout


def places(calls: int) -> list[int]:
    """Which calls fail: all, or PLACES of them from the first to the last."""
    if calls <= PLACES:
        return list(range(1, calls + 1))
    return sorted({1 + round(place * (calls - 1) / (PLACES - 1)) for place in range(PLACES)})


def faults(calls: Mapping[str, int]) -> Iterator[Fault]:
    """All faults of a scenario with these calls."""
    for command in registry.commands():
        for result in command.faults if command.name in calls else ():
            for first in places(calls[command.name]):
                yield Fault(command.name, first, 1, result)
                if result not in ONCE:
                    yield Fault(command.name, first, FOR_GOOD, result)


@dataclass
class Row:
    """The table's line of one function in one scenario."""

    scenario: str
    function: str
    calls: int
    outcomes: collections.Counter[str] = dataclasses.field(default_factory=collections.Counter)

    @property
    def injected(self) -> int:
        return self.outcomes.total() - self.outcomes["not reached"]


def table(rows: Sequence[Row]) -> str:
    """The lines of the page: what each scenario's faults ended in, then what those of each function did."""
    lines = []
    for title, key in (("scenario", lambda row: row.scenario), ("function", lambda row: f"`{row.function}`")):
        groups: dict[str, list[Row]] = {}
        for row in rows:
            groups.setdefault(key(row), []).append(row)
        lines += [f"| {title} | calls | faults | outcomes |", "| --- | ---: | ---: | --- |"]
        for name, members in sorted(groups.items(), key=lambda item: item[0] if title == "function" else ""):
            outcomes = sum((row.outcomes for row in members), collections.Counter())
            del outcomes["not reached"]
            said = ", ".join(f"{outcome} {count:,}" for outcome, count in outcomes.most_common())
            calls, injected = sum(row.calls for row in members), sum(row.injected for row in members)
            lines.append(f"| {name} | {calls:,} | {injected:,} | {said} |")
        lines.append("")
    return "\n".join(lines)


def short(chosen: list[tuple[str, Fault]]) -> list[tuple[str, Fault]]:
    """Two faults of each function and result, drawn from all scenarios, in the scenarios' order."""
    groups: dict[tuple[str, str], list[int]] = {}
    for number, (scenario, fault) in enumerate(chosen):
        if not SCENARIOS[scenario].fresh:
            groups.setdefault((fault.function, fault.result), []).append(number)
    draw = random.Random(3)
    return [
        chosen[number]
        for number in sorted(place for group in groups.values() for place in draw.sample(group, min(2, len(group))))
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--short", action="store_true", help="some of them, for the suite")
    parser.add_argument("--only", action="append", choices=SCENARIOS, help="this scenario; may be repeated")
    parser.add_argument("--write", action="store_true", help="put the table into docs/faults.md")
    given = parser.parse_args()

    rows: dict[tuple[str, str], Row] = {}
    wrong = 0
    with Worker() as worker:
        wanted: dict[str, dict[str, Any]] = {}
        chosen: list[tuple[str, Fault]] = []
        for scenario in given.only or SCENARIOS:
            if SCENARIOS[scenario].fresh:
                worker.end()
            else:
                worker.ask({"scenario": scenario})  # what a process makes once is not counted
            wanted[scenario] = worker.ask({"scenario": scenario})
            calls = wanted[scenario].pop("calls")
            chosen += [(scenario, fault) for fault in faults(calls)]
            rows |= {(scenario, name): Row(scenario, name, count) for name, count in calls.items()}
        for scenario, fault in short(chosen) if given.short else chosen:
            if SCENARIOS[scenario].fresh:
                worker.end()
            request = {"scenario": scenario, "wanted": wanted[scenario], **dataclasses.asdict(fault)}
            answer = worker.ask(request)
            rows[scenario, fault.function].outcomes[answer["outcome"]] += 1
            if answer["problems"]:
                wrong += 1
                print(f"{scenario}: {fault} -> {answer['outcome']}: {'; '.join(answer['problems'])}", flush=True)
    text = table([row for row in rows.values() if row.injected])
    print(text)
    injected = sum(row.injected for row in rows.values())
    print(f"{injected:,} faults, {wrong} of them with something wrong")
    if given.write:
        head, _, rest = PAGE.read_text().partition(BEGIN)
        PAGE.write_text(f"{head}{BEGIN}\n{text}\n{END}{rest.partition(END)[2]}")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
