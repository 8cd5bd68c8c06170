"""Ctrl-C at any moment: SIGINT while scenarios work, whose every later run must be right.

    python tests/faults/interrupts.py [--runs 10000] [--seed 1] [--only SCENARIO]...
    python tests/faults/interrupts.py --steps N [--only SCENARIO]...

Each run makes a scenario on a device that many share, works, and is sent a real SIGINT after a random time, or, every other
run, at a random call of Vulkan. Then the work and whatever ran before it is done once more and compared. The exceptions stay
alive, as in a notebook. What is wrong is printed, and makes the exit status 1. SIGTERM ends it after a run.

With ``--steps`` nothing is left to chance: KeyboardInterrupt is raised at each place of the work at which Python looks for
signals, or at N of them, spread evenly, each time on a device of its own, which must go afterwards with all that was on it.
"""

from __future__ import annotations

import argparse
import collections
import faulthandler
import gc
import os
import pathlib
import random
import signal
import sys
import threading
import time
from dataclasses import dataclass
from types import FrameType
from typing import Any

sys.path.insert(0, str(pathlib.Path(__file__).parent))

import layer
from scenarios import SCENARIOS, Scenario
from steps import Steps
from sweep import places as spread
from worker import counted, digest, leaks, place, problems_after, unexpected, watch

import dmlvk
from dmlvk.runtime.device import validation_messages

RUNS_OF_A_DEVICE = 100
KEPT = 50
PATIENCE = 120.0


@dataclass
class Expected:
    """What a scenario gives undisturbed, and how long and how many calls it takes."""

    again: str
    seconds: float
    calls: int


class Interrupter:
    """Lets SIGINT raise KeyboardInterrupt only while work is under way, so that none comes too late."""

    def __init__(self, faults: layer.Layer) -> None:
        self._faults = faults
        self._armed = False
        signal.signal(signal.SIGINT, self._on_signal)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if self._armed:
            self._armed = False
            raise KeyboardInterrupt

    def run(self, scenario: Scenario, *, seconds: float = 0.0, call: int = 0) -> BaseException | None:
        """Works, with a signal after so many seconds or at that call, and returns what was raised."""
        try:
            self._armed = True
            if call:
                self._faults.interrupt_call(call)
            else:
                self._faults.interrupt_after(seconds)
            scenario.work()
        except BaseException as error:
            return error
        finally:
            self._armed = False
            self._faults.interrupt_after(0)
            self._faults.count()
        return None


def expected(faults: layer.Layer, kind: type[Scenario], device: dmlvk.Device) -> Expected:
    for _ in range(2):
        scenario = made(kind, device)
        faults.count()
        start = time.perf_counter()
        scenario.work()
        seconds = time.perf_counter() - start
        calls = sum(faults.calls().values())
    return Expected(digest(scenario.again()), seconds, calls)


def made(kind: type[Scenario], device: dmlvk.Device) -> Scenario:
    return kind() if kind.own_device else kind(device)


def interrupt(names: list[str], runs: int, seed: int) -> int:
    """How many runs something is wrong with."""
    faults = layer.Layer()
    interrupter = Interrupter(faults)
    draw = random.Random(seed)
    kinds = {name: SCENARIOS[name] for name in names}
    device = dmlvk.Device()
    wanted = {name: expected(faults, kind, device) for name, kind in kinds.items()}
    kept: collections.deque[BaseException] = collections.deque(maxlen=KEPT)
    outcomes: collections.Counter[tuple[str, str]] = collections.Counter()
    wrong = 0
    ending = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: ending.set())
    done = 0
    for run in range(runs):
        if ending.is_set():
            break
        done += 1
        faulthandler.dump_traceback_later(PATIENCE, exit=True)
        if run % RUNS_OF_A_DEVICE == 0:
            device = dmlvk.Device()
        name = draw.choice(list(kinds))
        want = wanted[name]
        scenario = made(kinds[name], device)
        if run % 2 and want.calls:
            where = f"at call {(call := draw.randint(1, want.calls))}"
            error = interrupter.run(scenario, call=call)
        else:
            where = f"after {(seconds := draw.uniform(1e-6, 1.2 * want.seconds)) * 1e3:.2f} ms"
            error = interrupter.run(scenario, seconds=seconds)
        problems = []
        if error is not None and not isinstance(error, KeyboardInterrupt):
            problems.append(f"{type(error).__name__}: {error} at {place(error)}")
        if error is not None:
            kept.append(error)
        try:
            if digest(scenario.again()) != want.again:
                problems.append("wrong bits afterwards")
        except BaseException as later:
            problems.append(f"afterwards {type(later).__name__}: {later} at {place(later)}")
        problems += validation_messages()
        outcomes[name, "finished" if error is None else "interrupted"] += 1
        if problems:
            wrong += 1
            inside = f", interrupted at {place(error)}" if error is not None else ""
            print(f"{name}, run {run}, {where}{inside}: {'; '.join(problems)}", flush=True)
    faulthandler.cancel_dump_traceback_later()
    del device, scenario, error
    kept.clear()
    for kind in kinds.values():
        kind.forget_device()
    if leaked := leaks(faults, {}):
        wrong += 1
        print(f"leaks {leaked}")
    swallowed = sum("KeyboardInterrupt" in said for said in unexpected)
    if others := [said for said in unexpected if "KeyboardInterrupt" not in said]:
        wrong += 1
        print("\n".join(others))
    print("| scenario | runs | interrupted |\n| --- | ---: | ---: |")
    for name in kinds:
        interrupted = outcomes[name, "interrupted"]
        print(f"| {name} | {outcomes[name, 'finished'] + interrupted:,} | {interrupted:,} |")
    total = sum(count for (_, outcome), count in outcomes.items() if outcome == "interrupted")
    print(f"{done:,} runs, {total:,} interrupted, {swallowed} interrupts lost in finalisers, {wrong} with something wrong")
    return wrong


def step_through(names: list[str], places: int) -> int:
    """How many interrupts something is wrong with."""
    faults = layer.Layer()
    wrong_at_all = 0
    print("| scenario | places | interrupts | swallowed |\n| --- | ---: | ---: | ---: |", flush=True)
    for name in names:
        kind = SCENARIOS[name]
        wanted = [counted(faults, kind) for _ in range(2)][-1]  # what a process makes once is not counted
        whole = Steps(0)
        whole.run(kind())
        before = faults.live()
        wrong = swallowed = 0
        chosen = spread(whole.seen, places)
        for place_number in chosen:
            faulthandler.dump_traceback_later(PATIENCE, exit=True)
            steps, problems, ended = interrupt_step(kind, place_number, wanted)
            problems += [f"leaks {amount} {kind}" for kind, amount in leaks(faults, before).items()]
            problems += [said for said in unexpected if "KeyboardInterrupt" not in said] + validation_messages()
            unexpected.clear()
            before = faults.live()
            swallowed += not ended
            if problems:
                wrong += 1
                print(f"{name}, place {place_number}, {steps.place}: {'; '.join(problems)}", flush=True)
        faulthandler.cancel_dump_traceback_later()
        print(f"| {name} | {whole.seen:,} | {len(chosen):,} | {swallowed:,} |", flush=True)
        wrong_at_all += wrong
    print(f"{wrong_at_all} with something wrong")
    return wrong_at_all


def interrupt_step(kind: type[Scenario], at: int, wanted: dict[str, Any]) -> tuple[Steps, list[str], bool]:
    """The steps of a scenario's work, what is wrong while the error lives, and whether the interrupt ended the work."""
    scenario = kind()
    steps = Steps(at)
    error = steps.run(scenario)
    problems = []
    if error is not None and not isinstance(error, KeyboardInterrupt):
        problems.append(f"{type(error).__name__}: {error} at {place(error)}")
    problems += problems_after(scenario, wanted)
    ended = error is not None
    del error
    gc.collect()
    if (leaked := scenario.live_bytes() - wanted["live_bytes"]) > 0:
        problems.append(f"{leaked} bytes of buffers leak")
    return steps, problems, ended


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--steps", type=int, default=0, help="places of each scenario's work, at most, that are interrupted")
    parser.add_argument("--only", action="append", choices=SCENARIOS, help="this scenario; may be repeated")
    given = parser.parse_args()
    if os.environ.get("VK_INSTANCE_LAYERS") != layer.NAME:  # the loader reads it when the process begins to use Vulkan
        command = [sys.executable, __file__, *sys.argv[1:]]
        os.execve(sys.executable, command, {**os.environ, **layer.environment()})
    watch()
    gc.freeze()  # so that a collection looks at what a scenario made, not at every module
    names = given.only or [name for name, kind in SCENARIOS.items() if not kind.fresh]
    return int((step_through(names, given.steps) if given.steps else interrupt(names, given.runs, given.seed)) > 0)


if __name__ == "__main__":
    sys.exit(main())
