"""Every Vulkan function that may fail, and every allocation of the native module, made to fail in every scenario.

    python tests/faults/sweep.py [--short] [--only SCENARIO]... [--function NAME]... [--places N] [--allocations N]
                                 [--jobs N] [--results FOLDER] [--write]

For each scenario the calls of each function are counted first. Then, for the N-th call of it and each error that the
Vulkan specification allows it, a new scenario is made, whose N-th call alone, or every one from there on, fails. What is
wrong is printed, and makes the exit status 1: anything but an error of dmlvk's own or the right result, a crash or a hang,
a leak, a message of the validation layer, wrong bits afterwards. ``--write`` puts the table of outcomes into
docs/faults.md; ``--short`` tries every error of every function once, for the suite. With ``--results`` a sweep may be ended
and goes on where it was: the folder keeps what the faults of each function in each scenario ended in.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import dataclasses
import itertools
import json
import os
import pathlib
import queue
import random
import selectors
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent import futures
from dataclasses import dataclass
from typing import IO, Any, Final, TypeVar

sys.path.insert(0, str(pathlib.Path(__file__).parent))

import layer
import registry
from scenarios import SCENARIOS

PAGE: Final = pathlib.Path(__file__).parents[2] / "docs" / "faults.md"
BEGIN, END = "<!-- sweep -->\n", "<!-- end of sweep -->\n"
PATIENCE: Final = 120.0
"""Seconds after which a worker hangs."""
FOR_GOOD: Final = 1 << 40
NANOBIND: Final = "Critical nanobind error: nanobind: malloc() failed!"
"""With which nanobind ends a process that has no memory for its notes of Python objects."""
T = TypeVar("T")
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
        # Mesa's layer that orders devices takes what a call that failed has not written for names, and crashes.
        self._environment = {**os.environ, **layer.environment(), "NODEVICE_SELECT": "1"}
        self._process: subprocess.Popen[str] | None = None
        self._cache = tempfile.TemporaryDirectory()
        self._said = pathlib.Path(self._cache.name, "said")

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
            environment = {**self._environment, "DMLVK_CACHE_DIR": self._cache.name}
            command = [sys.executable, str(pathlib.Path(__file__).with_name("worker.py"))]
            pipe = subprocess.PIPE
            with self._said.open("w") as said:
                self._process = subprocess.Popen(
                    command, env=environment, stdin=pipe, stdout=pipe, stderr=said, text=True, bufsize=1
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
        self.end()
        said = self._said.read_text()
        if not answered:
            return {"outcome": "hang", "fired": 1, "problems": [f"a hang of the process, which said {said}"]}
        if NANOBIND in said:
            return {"outcome": "end in nanobind", "fired": 1, "problems": []}
        return {"outcome": "crash", "fired": 1, "problems": [f"a crash of the process, which said {said}"]}


def _pipes(process: subprocess.Popen[str]) -> tuple[IO[str], IO[str]]:
    assert process.stdin is not None and process.stdout is not None
    return process.stdin, process.stdout


def places(calls: int, most: int) -> list[int]:
    """Which calls fail: all, or so many of them, spread evenly from the first to the last."""
    if calls <= most:
        return list(range(1, calls + 1))
    return sorted({1 + round(place * (calls - 1) / max(most - 1, 1)) for place in range(most)})


def faults(calls: Mapping[str, int], most: int, most_allocations: int) -> Iterator[Fault]:
    """All faults of a scenario with these calls, of each function at so many places at most."""
    for command in (*registry.commands(), registry.ALLOCATION):
        for result in command.faults if command.name in calls else ():
            for first in places(calls[command.name], most_allocations if command is registry.ALLOCATION else most):
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
    wrong: int = 0

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


def short(chosen: Mapping[str, Sequence[Fault]]) -> dict[str, list[Fault]]:
    """One fault of each function and result, drawn from all scenarios that need no process of their own."""
    groups: dict[tuple[str, str], list[tuple[str, Fault]]] = {}
    for scenario, found in chosen.items():
        for fault in found if not SCENARIOS[scenario].fresh else ():
            groups.setdefault((fault.function, fault.result), []).append((scenario, fault))
    draw = random.Random(3)
    drawn: dict[str, list[Fault]] = {scenario: [] for scenario in chosen}
    for group in groups.values():
        scenario, fault = draw.choice(group)
        drawn[scenario].append(fault)
    return drawn


def count(scenario: str, worker: Worker) -> dict[str, Any]:
    """What a scenario gives when nothing fails, with its calls."""
    if SCENARIOS[scenario].fresh:
        worker.end()
    else:
        worker.ask({"scenario": scenario})  # what a process makes once is not counted
    return worker.ask({"scenario": scenario})


def try_all(row: Row, chosen: Sequence[Fault], wanted: Mapping[str, Any], worker: Worker) -> None:
    """Tries the faults of one function in one scenario, and prints what is wrong."""
    for fault in chosen:
        if SCENARIOS[row.scenario].fresh:
            worker.end()
        answer = worker.ask({"scenario": row.scenario, "wanted": wanted, **dataclasses.asdict(fault)})
        row.outcomes[answer["outcome"]] += 1
        if answer["problems"]:
            row.wrong += 1
            print(f"{row.scenario}: {fault} -> {answer['outcome']}: {'; '.join(answer['problems'])}", flush=True)


def kept(folder: pathlib.Path | None, scenario: str) -> dict[str, Row]:
    """What an earlier sweep has found of a scenario, by function."""
    if folder is None or not (path := folder / f"{scenario}.json").exists():
        return {}
    rows = [Row(**{**row, "outcomes": collections.Counter(row["outcomes"])}) for row in json.loads(path.read_text())]
    return {row.function: row for row in rows}


def keep(folder: pathlib.Path | None, scenario: str, rows: Iterable[Row]) -> None:
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{scenario}.json").write_text(json.dumps([vars(row) for row in rows]))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--short", action="store_true", help="some of them, for the suite")
    parser.add_argument("--only", action="append", choices=SCENARIOS, help="this scenario; may be repeated")
    parser.add_argument("--function", action="append", help="faults of this function alone; may be repeated")
    parser.add_argument("--places", type=int, default=1 << 30, help="calls of a function that fail in a scenario, at most")
    parser.add_argument("--allocations", type=int, help="as --places, of allocations; as many if not given")
    parser.add_argument("--jobs", type=int, default=1, help="how many processes try faults at a time")
    parser.add_argument("--results", type=pathlib.Path, help="a folder of results, which are not found anew")
    parser.add_argument("--write", action="store_true", help="put the table into docs/faults.md")
    given = parser.parse_args()

    given.allocations = given.allocations or given.places
    scenarios = list(given.only or SCENARIOS)
    idle: queue.SimpleQueue[Worker] = queue.SimpleQueue()

    def with_worker(work: Callable[[Worker], T]) -> T:
        worker = idle.get()
        try:
            return work(worker)
        finally:
            idle.put(worker)

    with contextlib.ExitStack() as stack:
        for _ in range(given.jobs):
            idle.put(stack.enter_context(Worker()))
        pool = stack.enter_context(futures.ThreadPoolExecutor(given.jobs))
        known = {name: kept(given.results, name) for name in scenarios}
        wanted = dict(pool.map(lambda name: (name, with_worker(lambda worker: count(name, worker))), scenarios))
        chosen = {name: list(faults(wanted[name]["calls"], given.places, given.allocations)) for name in scenarios}
        if given.function:
            chosen = {name: [item for item in found if item.function in given.function] for name, found in chosen.items()}
        if given.short:
            chosen = short(chosen)

        def try_scenario(name: str, worker: Worker) -> None:
            rows = known[name]
            for function, found in itertools.groupby(chosen[name], key=lambda fault: fault.function):
                if function not in rows:
                    row = Row(name, function, wanted[name]["calls"][function])
                    try_all(row, list(found), wanted[name], worker)
                    rows[function] = row
                    keep(given.results, name, rows.values())

        list(pool.map(lambda name: with_worker(lambda worker: try_scenario(name, worker)), scenarios))
    rows = [row for name in scenarios for row in known[name].values()]
    wrong = sum(row.wrong for row in rows)
    assert rows, "the Vulkan loader has not loaded the layer"
    text = table(rows)
    total = f"{sum(row.injected for row in rows):,} faults, {wrong} of them with something wrong"
    print(f"{text}\n{total}")
    if given.write:
        head, _, rest = PAGE.read_text().partition(BEGIN)
        command = " ".join(["sweep.py", *sys.argv[1:]])
        PAGE.write_text(f"{head}{BEGIN}\n{total} (`{command}`).\n\n{text}\n{END}{rest.partition(END)[2]}")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
