"""Verify dmlvk on every driver that runs on a processor, and compare what passes.

    python tools/verify_drivers.py [DRIVER]... [--default] [--mask NAME] [--keep] [OPERATOR]...

Drivers are those of tools/setup_drivers.py, which unpacks what is missing; all where none is named. Each runs the quick
cases of ``python -m dmlvk verify`` (or, with --default, more), a few operators a process, because these drivers keep
the code of every pipeline. The pass list (tools/drivers_page.py) is build/drivers/DRIVER.json, masked DRIVER-MASK.json;
with --keep it lies in bench/results/drivers, of which the page of drivers is made. Exit status 1 where anything failed
that no waiver excuses (src/dmlvk/verify/waivers.json): so lists differ in no more than what a device lacks and what is
waived.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from drivers_page import FOLDER, VERDICTS, PassList
from setup_drivers import CACHE, DRIVERS, ROOT, Launch, Unavailable

from dmlvk.verify.card import Card, read
from dmlvk.verify.cases import all_cases

TARGET = ROOT / "build" / "drivers"
AT_ONCE = 8
"""Operators of a process: SwiftShader's pipelines take some 15 MB each."""
MOST_SECONDS = 540
"""For one process. A compiler that does not come to an end is a failure, until a waiver says so."""

MASKS: Mapping[str, Mapping[str, str]] = {
    "adreno": {"DMLVK_PROFILE": "adreno"},
    "mali": {"DMLVK_PROFILE": "mali"},
    "moltenvk": {"DMLVK_PROFILE": "moltenvk"},
    "vulkan13-minimum": {"DMLVK_PROFILE": "vulkan13-minimum"},
    "subgroups-said-128": {"DMLVK_CLAIMED_SUBGROUP_SIZE": "128"},
    "subgroups-said-64": {"DMLVK_CLAIMED_SUBGROUP_SIZE": "64"},
    "shared-memory-16k": {"DMLVK_LIMITS": "shared_memory_bytes=16384"},
    "no-8-and-16-bits": {"DMLVK_DISABLE": "8bit,16bit"},
    "no-float16": {"DMLVK_DISABLE": "float16"},
    "bindings-128m": {"DMLVK_LIMITS": "storage_buffer_bytes=134217728"},
    "grids-65535": {"DMLVK_LIMITS": "workgroup_counts=65535"},
}
"""Lesser devices, of real reports, by the variables that make them."""


def environment(name: str, launch: Launch, mask: str) -> dict[str, str]:
    """The environment of a driver, with caches of its own."""
    caches = CACHE / "drivers" / name
    caches.mkdir(parents=True, exist_ok=True)
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("DMLVK_", "LD_LIBRARY", "VK_"))}
    own = {"DMLVK_CACHE_DIR": str(caches), "MESA_SHADER_CACHE_DIR": str(caches)}
    return kept | own | dict(MASKS.get(mask, {})) | dict(launch.environment)


def python(launch: Launch) -> list[str]:
    """The command line of this Python under a driver's loader, which has to be told where the environment is."""
    if not launch.loader:
        return [sys.executable]
    return [*launch.loader, "--argv0", sys.executable, os.path.realpath(sys.executable)]


def cards(name: str, launch: Launch, operators: Sequence[str], options: argparse.Namespace) -> Iterator[Card | str]:
    """The card of each process, or why there is none."""
    path = TARGET / f"{name}-card.json"
    amount = [] if options.default else ["--quick"]
    variables = environment(name, launch, options.mask)
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


def passed(name: str, operators: Sequence[str], options: argparse.Namespace) -> bool:
    """Verifies a driver, writes its list, and prints what failed and which of its waivers are not needed."""
    found, wrong = [], []
    for card in cards(name, DRIVERS[name](), operators, options):
        if isinstance(card, str):
            wrong.append(card)
            continue
        found.append(card)
        wrong += [card.report(entry) for entry in card.entries if not entry.passed]
        for waiver in card.unneeded:
            print(f"{name}: not needed in these runs: the waiver of {waiver}", flush=True)
    if found:
        own = PassList.of(found)
        folder = FOLDER if options.keep else TARGET
        folder.mkdir(parents=True, exist_ok=True)
        own.write(folder / f"{'-'.join(filter(None, (name, options.mask)))}.json")
        counts = Counter(own.pairs().values())
        print(f"{name}: " + ", ".join(f"{counts[kind]} {kind}" for kind in VERDICTS), flush=True)
    print(*wrong, sep="\n", end="\n" * bool(wrong), flush=True)
    return not wrong


def main() -> int:
    parser = argparse.ArgumentParser(description="Verify dmlvk on every driver that runs on a processor.")
    parser.add_argument("names", nargs="*", metavar="NAME", help="drivers and operators; default all")
    parser.add_argument("--default", action="store_true", help="the default selection of runs instead of the quick cases")
    parser.add_argument("--mask", default="", choices=MASKS, help="a lesser device")
    parser.add_argument("--keep", action="store_true", help="write the lists that the page of drivers is made of")
    options = parser.parse_intermixed_args()
    TARGET.mkdir(parents=True, exist_ok=True)
    entries = [entry for entry in all_cases().values() if options.default or any(case.quick for case in entry.cases)]
    having = [entry.operator.__name__ for entry in entries]
    if unknown := set(options.names) - DRIVERS.keys() - set(having):
        parser.error(
            f"neither a driver ({', '.join(DRIVERS)}) nor an operator with such cases: {', '.join(sorted(unknown))}"
        )
    operators = [name for name in having if name in options.names] or having
    if options.keep and (options.default or operators != having):
        parser.error("--keep takes the quick cases of all operators")
    failed = False
    for name in [name for name in DRIVERS if name in options.names] or list(DRIVERS):
        try:
            failed = not passed(name, operators, options) or failed
        except Unavailable as reason:
            print(f"{name}: cannot be had: {reason}", flush=True)
            failed = True
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
