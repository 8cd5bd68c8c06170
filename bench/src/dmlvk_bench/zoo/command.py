"""``python -m dmlvk bench zoo``: exports the architectures, runs the files, and keeps a row a file.

What a folder has already is not exported again, so that a run can go on where another ended.
"""

from __future__ import annotations

import concurrent.futures
import dataclasses
import functools
import json
import pathlib
import re
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import geometric_mean
from typing import Any, Final, NamedTuple

from dmlvk.cli.output import INTERRUPTED, Output
from dmlvk.directml.device import Device
from dmlvk.engine.progress import UntilInterrupted
from dmlvk.spec.errors import MissingPackageError
from dmlvk.verify import machine

Row = dict[str, Any]
Key = tuple[str, str]
"""Architecture and exporter."""

_SECONDS: Final = {"export": 400, "check": 300, "time": 400}
"""After so long a file's process counts as hanging."""
RIVALS: Final = ("eager", "graph", "webgpu")


@dataclass(frozen=True)
class Options:
    """What to do.

    Attributes:
        out: The place of the text and of JSON.
        folder: The place of the exported files.
        only: One architecture, or one kind of them; "" for all.
        stages: Some of ``STAGES``.
        jobs: The number of files at once.
        device: The device, as ``Device`` takes it.
        commit: What was built.
    """

    out: Output
    folder: pathlib.Path
    only: str
    stages: tuple[str, ...]
    jobs: int
    device: str | None
    commit: str


def run(options: Options) -> int:
    """Does the stages that the options name; returns the exit status: 1 where an output is wrong or a file does not run.

    Ctrl-C ends it with the rows that there are.

    Raises:
        MissingPackageError: PyTorch is not installed.
    """
    try:
        from dmlvk_bench.zoo.architectures import architectures
        from dmlvk_bench.zoo.export import EXPORTERS
    except ImportError as error:
        raise MissingPackageError(
            f"the zoo needs the package {error.name}: pip install torch torchvision transformers"
        ) from None

    wanted = [one for one in architectures() if not options.only or options.only in (one.name, one.kind)]
    files = [(one, exporter) for one in wanted for exporter in EXPORTERS]
    rows: dict[Key, Row] = {
        (one.name, exporter): {"architecture": one.name, "kind": one.kind, "exporter": exporter} for one, exporter in files
    }
    described = dataclasses.asdict(machine.describe(Device(options.device), options.commit))

    def found() -> dict[str, Any]:
        return {"machine": described, "rows": list(rows.values())}

    done = UntilInterrupted(_done(options, rows))
    for _ in done:
        if options.out.file is not None:  # after each: whatever ends the run takes no row with it
            options.out.write(found())
    print("\n".join(summary(rows.values())))
    options.out.write(found())
    return INTERRUPTED if done.interrupted else int(any(not row["right"] for row in rows.values() if "right" in row))


def _done(options: Options, rows: dict[Key, Row]) -> Iterator[Key]:
    """Does the stages and adds to the rows what comes of them; gives the key of each that grew."""
    folders = {(name, exporter): options.folder / name / exporter for name, exporter in rows}
    if "export" in options.stages:
        missing = [key for key, folder in folders.items() if not (folder / "export.json").exists()]
        for _ in _each(missing, options.jobs, lambda key: _export(*key, folders[key])):
            pass
    for key, folder in folders.items():
        if (folder / "export.json").exists():
            rows[key] |= json.loads((folder / "export.json").read_text())
        else:
            rows[key]["not_exported"] = _why(folder)
        yield key
    for stage in ("check", "time"):
        if stage in options.stages:
            ready = [key for key in rows if "not_exported" not in rows[key]]
            if stage == "time":
                ready = _one_each(ready, rows)
            for key, row in _each(ready, options.jobs, functools.partial(_row, folders, stage, options.device)):
                rows[key] |= row
                yield key


def _one_each(keys: Sequence[Key], rows: Mapping[Key, Row]) -> list[Key]:
    """One file of each architecture: the newer exporter's, if it is right or the only one."""
    best: dict[str, Key] = {}
    for name, exporter in sorted(keys, key=lambda key: (rows[key].get("right") is not False, key[1] == "dynamo")):
        best[name] = name, exporter
    return [key for key in keys if key in best.values()]


def _export(name: str, exporter: str, folder: pathlib.Path) -> str:
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "log").open("w") as log:
        arguments = [sys.executable, "-m", "dmlvk_bench.zoo.export", name, exporter, str(folder)]
        try:
            subprocess.run(arguments, stdout=log, stderr=log, timeout=_SECONDS["export"], check=False)
        except subprocess.TimeoutExpired:
            log.write(f"\nexporting took longer than {_SECONDS['export']} s\n")
    return "exported" if (folder / "export.json").exists() else f"not exported: {_why(folder)}"


def _why(folder: pathlib.Path) -> str:
    """Why an export failed: the last line of its log that names an error."""
    log = folder / "log"
    text = log.read_text(errors="replace") if log.exists() else ""
    lines = re.sub(r"\x1b\[[0-9;]*m", "", text).strip().splitlines()  # an exporter writes in colours
    named = [line for line in lines if re.match(r"[\w.]*(Error|Exception|Unsupported\w*)\b", line)]
    return (named or lines or ["not tried"])[-1][:300]


def _row(folders: Mapping[Key, pathlib.Path], stage: str, device: str | None, key: Key) -> Row:
    """What a worker says of a file."""
    arguments = [sys.executable, "-m", "dmlvk_bench.zoo.worker", str(folders[key]), stage, device or ""]
    try:
        ended = subprocess.run(arguments, capture_output=True, text=True, timeout=_SECONDS[stage], check=False)
    except subprocess.TimeoutExpired:
        return {"right": False, "error": f"took longer than {_SECONDS[stage]} s"}
    lines = ended.stdout.strip().splitlines()
    if ended.returncode or not lines:
        said = ended.stderr.strip().splitlines()
        return {"right": False, "error": f"the process ended with {ended.returncode}: {said[-1][:200] if said else ''}"}
    row: Row = json.loads(lines[-1])
    return row


def _each(keys: Sequence[Key], jobs: int, work: Callable[[Key], Any]) -> Iterator[tuple[Key, Any]]:
    """What the work gives for each key, several at a time, printed as it comes. What Ctrl-C finds waiting is not begun."""
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        futures = {pool.submit(work, key): key for key in keys}
        try:
            for future in concurrent.futures.as_completed(futures):
                key = futures[future]
                found = future.result()
                print(f"{key[0]:42} {key[1]:12} {_words(found)}", flush=True)
                yield key, found
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


def _words(found: Any) -> str:
    if not isinstance(found, dict):
        return str(found)
    if "error" in found:
        return f"BROKEN {found['broken']}" if "broken" in found else f"FAILED {found['error']}"
    beside = found.get("rivals", {})
    times = [f"{found['ms']:.2f} ms"] if "ms" in found else []
    times += [f"{name} {row['ms']:.2f}" if "ms" in row else f"{name} failed" for name, row in beside.items()]
    verdict = f"{'right' if found['right'] else 'WRONG'} off {found['difference']:.1e}"
    return f"{verdict}, {found['dispatches']} dispatches {' '.join(times)}"


class Counts(NamedTuple):
    """How many of the files that ran are right, and of the architectures that they are of."""

    right_files: int
    files: int
    right_architectures: int
    architectures: int


class Speed(NamedTuple):
    """A rival's time as a multiple of ours: the geometric mean over the models that both compute right, how many these are,
    and of how many of them the rival is the faster one."""

    mean: float
    models: int
    faster: int


def counts(rows: Iterable[Row]) -> Counts:
    """What is right."""
    ran = [row for row in rows if "right" in row]
    architectures = {row["architecture"] for row in ran}
    wrong = {row["architecture"] for row in ran if not row["right"]}
    return Counts(sum(row["right"] for row in ran), len(ran), len(architectures - wrong), len(architectures))


def speed(rows: Iterable[Row], rival: str) -> Speed | None:
    """How fast a rival is; None where none of its times counts."""
    pairs = [(row["rivals"][rival], row["ms"]) for row in rows if row.get("right") and rival in row.get("rivals", {})]
    ratios = [theirs["ms"] / ours for theirs, ours in pairs if theirs.get("agrees")]
    return Speed(geometric_mean(ratios), len(ratios), sum(ratio < 1 for ratio in ratios)) if ratios else None


def summary(rows: Iterable[Row]) -> Iterable[str]:
    """The lines at the end: how many files are right, and how fast they are beside whoever is right too."""
    rows = list(rows)
    right = counts(rows)
    files = f"{right.right_files} of {right.files} files"
    yield f"{files} are right, of {right.right_architectures} of {right.architectures} architectures"
    for rival in RIVALS:
        if found := speed(rows, rival):
            times = f"{found.mean:.2f} times our time (geometric mean of {found.models})"
            yield f"{rival}: {times}, {found.faster} faster than we are"
    for row in rows:
        if not row.get("right", True):
            yield f"wrong: {row['architecture']} {row['exporter']}: {row.get('error') or _how_far(row)}"
        elif "not_exported" in row:
            yield f"not exported: {row['architecture']} {row['exporter']}: {row['not_exported']}"
        elif "broken" in row:
            yield f"ONNX Runtime refuses it, too: {row['architecture']} {row['exporter']}: {row['broken']}"


def _how_far(row: Row) -> str:
    """How far a wrong file is off, and how far others are."""
    others = {"ONNX Runtime's CPU": row.get("onnxruntime_difference")}
    others |= {name: theirs.get("difference") for name, theirs in row.get("rivals", {}).items()}
    known = [f"{name} {difference:.1e}" for name, difference in others.items() if difference is not None]
    return ", ".join([f"off {row['difference']:.1e}", *known])
