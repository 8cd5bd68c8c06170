"""Verify dmlvk on every driver that runs on a processor, and compare what passes.

    python tools/verify_drivers.py [DRIVER]... [--default] [--profile NAME] [OPERATOR]...

Drivers are those of tools/setup_drivers.py, which unpacks what is missing; all where none is named. Each runs the quick
cases of ``python -m dmlvk verify`` (or, with --default, more), a few operators a process, because these drivers keep
the code of every pipeline. build/drivers/DRIVER.txt is the pass list: an operator, a data type and its verdict a line. Exit
status 1 where anything failed that no waiver excuses (src/dmlvk/verify/waivers.json): so lists differ in no more than
what a device lacks and what is waived.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence

from setup_drivers import CACHE, DRIVERS, ROOT, Launch, Unavailable

from dmlvk.verify.card import Card, Entry, read
from dmlvk.verify.cases import all_cases

TARGET = ROOT / "build" / "drivers"
AT_ONCE = 8
"""Operators of a process: SwiftShader's pipelines take some 15 MB each."""
MOST_SECONDS = 540
"""For one process. A compiler that does not come to an end is a failure, until a waiver says so."""

PassList = dict[str, str]
"""Verdicts by operator and data type."""


def environment(name: str, launch: Launch, profile: str) -> dict[str, str]:
    """The environment of a driver, with caches of its own."""
    caches = CACHE / "drivers" / name
    caches.mkdir(parents=True, exist_ok=True)
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("DMLVK_", "LD_LIBRARY", "VK_"))}
    own = {"DMLVK_CACHE_DIR": str(caches), "MESA_SHADER_CACHE_DIR": str(caches), "DMLVK_PROFILE": profile}
    return kept | own | dict(launch.environment)


def python(launch: Launch) -> list[str]:
    """The command line of this Python under a driver's loader, which has to be told where the environment is."""
    if not launch.loader:
        return [sys.executable]
    return [*launch.loader, "--argv0", sys.executable, os.path.realpath(sys.executable)]


def cards(name: str, launch: Launch, operators: Sequence[str], options: argparse.Namespace) -> Iterator[Card | str]:
    """The card of each process, or why there is none."""
    path = TARGET / f"{name}-card.json"
    amount = [] if options.default else ["--quick"]
    variables = environment(name, launch, options.profile)
    for first in range(0, len(operators), AT_ONCE):
        some = operators[first : first + AT_ONCE]
        path.unlink(missing_ok=True)
        command = [*python(launch), "-m", "dmlvk", "verify", *amount, *some, "--json", str(path)]
        try:
            done = subprocess.run(command, env=variables, capture_output=True, text=True, timeout=MOST_SECONDS)
            why = f"status {done.returncode}: {done.stderr.strip()[-300:]}"
        except subprocess.TimeoutExpired:
            why = f"no end after {MOST_SECONDS} s"
        yield read(path) if path.exists() else f"{' '.join(some)}: {why}"
    path.unlink(missing_ok=True)


def verdict(entry: Entry) -> str:
    """An entry of a card in a line."""
    if entry.failure is None:
        return entry.verdict
    return f"{entry.verdict}: {entry.failure.only}: {entry.failure.sentence()}"


def pass_list(name: str, operators: Sequence[str], options: argparse.Namespace) -> PassList:
    """Verifies a driver, and prints which of its waivers are not needed."""
    found: PassList = {}
    for card in cards(name, DRIVERS[name](), operators, options):
        if isinstance(card, str):
            some, _, why = card.partition(":")
            found[some] = f"FAILED:{why}"
            continue
        found.update((f"{entry.operator} {entry.data_type}", verdict(entry)) for entry in card.entries)
        for waiver in card.unneeded:
            print(f"{name}: not needed in these runs: the waiver of {waiver}", flush=True)
    lines = [f"{key}: {text}\n" for key, text in found.items()]
    (TARGET / f"{name}.txt").write_text("".join(lines), encoding="utf-8")
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description="Verify dmlvk on every driver that runs on a processor.")
    parser.add_argument("names", nargs="*", metavar="NAME", help="drivers and operators; default all")
    parser.add_argument("--default", action="store_true", help="the default selection of runs instead of the quick cases")
    parser.add_argument("--profile", default="", help="a lesser device, as DMLVK_PROFILE takes it")
    options = parser.parse_args()
    TARGET.mkdir(parents=True, exist_ok=True)
    entries = [entry for entry in all_cases().values() if options.default or any(case.quick for case in entry.cases)]
    having = [entry.operator.__name__ for entry in entries]
    if unknown := set(options.names) - DRIVERS.keys() - set(having):
        parser.error(
            f"neither a driver ({', '.join(DRIVERS)}) nor an operator with such cases: {', '.join(sorted(unknown))}"
        )
    operators = [name for name in having if name in options.names] or having
    failed = False
    for name in [name for name in DRIVERS if name in options.names] or list(DRIVERS):
        try:
            found = pass_list(name, operators, options)
        except Unavailable as reason:
            print(f"{name}: cannot be had: {reason}", flush=True)
            failed = True
            continue
        wrong = [f"  {key}: {text}" for key, text in found.items() if text.startswith("FAILED")]
        counts = {
            "ok": sum(text.startswith("ok") for text in found.values()),
            "unsupported": sum(text.startswith("unsupported") for text in found.values()),
            "waived in part or whole": sum("waived: " in text for text in found.values()),
            "failed": len(wrong),
        }
        print(f"{name}: " + ", ".join(f"{count} {what}" for what, count in counts.items()), *wrong, sep="\n", flush=True)
        failed = failed or bool(wrong)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
