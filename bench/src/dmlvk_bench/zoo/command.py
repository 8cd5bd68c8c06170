"""``python -m dmlvk bench zoo``: exports the architectures, runs the files, and keeps a row a file.

A file is exported and checked in one go, several files at once. Times are taken afterwards: of several files at once all
ways to compute them are prepared, then each is timed while nothing else runs. The folder keeps what each stage found, so
that a command can go on where another ended.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import math
import pathlib
import time
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from statistics import geometric_mean
from typing import Any, Final, NamedTuple

from dmlvk.cli.output import INTERRUPTED, Output
from dmlvk.directml.device import Device
from dmlvk.engine.progress import UntilInterrupted
from dmlvk.spec.errors import MissingPackageError
from dmlvk.verify import machine
from dmlvk_bench.names import BESIDE, EXPORTERS, STAGES
from dmlvk_bench.zoo.processes import Job, each, start_server

Row = dict[str, Any]
Key = tuple[str, str]
"""Architecture and exporter."""
Task = tuple[str, Key]
"""A stage of a file."""

_SECONDS: Final = {"export": 400, "check": 300, "time": 400}
"""After so long a file's process counts as hanging."""
_FUNCTIONS: Final = {
    "export": "dmlvk_bench.zoo.export:export",
    "check": "dmlvk_bench.zoo.worker:check",
    "time": "dmlvk_bench.zoo.worker:measure",
}


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
        exporters: Some of ``EXPORTERS``.
        rivals: Some of ``BESIDE``.
        seconds: After so long the command ends.
        missing: Whether only that is checked and timed of which the folder has no result.
        lean: Whether right files are deleted that will not be timed.
    """

    out: Output
    folder: pathlib.Path
    only: str
    stages: tuple[str, ...]
    jobs: int
    device: str | None
    commit: str
    exporters: tuple[str, ...] = EXPORTERS
    rivals: tuple[str, ...] = BESIDE
    seconds: float = math.inf
    missing: bool = False
    lean: bool = False


def run(options: Options) -> int:
    """Does the stages that the options name; returns the exit status: 1 where an output is wrong or a file does not run.

    Ctrl-C ends it with the rows that there are.

    Raises:
        MissingPackageError: PyTorch is not installed.
    """
    until = time.monotonic() + options.seconds
    start_server()
    try:
        from dmlvk_bench.zoo.architectures import architectures
    except ImportError as error:
        raise MissingPackageError(
            f"the zoo needs the package {error.name}: pip install torch torchvision transformers"
        ) from None

    wanted = [one for one in architectures() if not options.only or options.only in (one.name, one.kind)]
    described = dataclasses.asdict(machine.describe(Device(options.device), options.commit))
    zoo = _Zoo(options, {one.name: one.kind for one in wanted}, described["commit"], until)

    def found() -> dict[str, Any]:
        return {"machine": described, "rows": list(zoo.rows.values())}

    done = UntilInterrupted(zoo.done())
    for _ in done:
        if options.out.file is not None:  # after each: whatever ends the run takes no row with it
            options.out.write(found())
    print("\n".join(summary(zoo.rows.values())))
    options.out.write(found())
    return INTERRUPTED if done.interrupted else int(any(not row["right"] for row in zoo.rows.values() if "right" in row))


class _Zoo:
    """The files of a command.

    Args:
        options: What to do.
        kinds: The architectures, each with its kind.
        commit: What computes.
        until: The end, a time of ``time.monotonic``.

    Attributes:
        rows: What is known of each file.
    """

    def __init__(self, options: Options, kinds: Mapping[str, str], commit: str, until: float) -> None:
        self._options, self._commit, self._until = options, commit, until
        self._kinds = kinds
        self._keys = [(name, exporter) for name in kinds for exporter in options.exporters]
        self._found: dict[Task, Row] = {
            task: json.loads(self._file(*task).read_text(encoding="utf-8"))
            for task in itertools.product(STAGES, self._keys)
            if self._file(*task).exists()
        }
        self.rows: dict[Key, Row] = {}
        for key in self._keys:
            self._tell(key)

    def done(self) -> Iterator[Key]:
        """Does the stages; gives the key of each row that grew. What there is no time for says so."""
        order = [(name, exporter) for name in _mixed(list(self._kinds)) for exporter in self._options.exporters]
        unchecked = {key for key in order if self._is_wanted("check", key)}
        for task in itertools.product(("check", "time"), unchecked):  # times of other results mean nothing
            self._found.pop(task, None)
            self._file(*task).unlink(missing_ok=True)
        yield from self._exported_and_checked(order, unchecked)
        for key in order:
            if ("export", key) not in self._found:
                self._leave_out("export", key)
            elif key in unchecked and self._is_exported(key) and ("check", key) not in self._found:
                self._leave_out("check", key)
        if "time" in self._options.stages:
            chosen = [key for key in self._chosen(order) if self._is_wanted("time", key)]
            yield from self._timed(chosen)
            for key in chosen:
                if ("time", key) not in self._found:
                    self._leave_out("time", key)

    def _exported_and_checked(self, order: Sequence[Key], unchecked: Set[Key]) -> Iterator[Key]:
        waiting: deque[Task] = deque()
        for key in order:
            to_export = ("export", key) not in self._found or (key in unchecked and self._is_gone(key))
            if to_export and "export" in self._options.stages:
                waiting.append(("export", key))
            elif key in unchecked and self._is_exported(key) and not self._is_gone(key):
                waiting.append(("check", key))
        for job in each(waiting, self._started, self._options.jobs, self._until):
            stage, key = job.task
            failed = {"not_exported": job.error} if stage == "export" else {"right": False, "error": job.error}
            self._keep(job.task, failed if job.error else job.found)
            if stage == "export" and key in unchecked and self._is_exported(key):
                waiting.appendleft(("check", key))
            elif self._options.lean:
                self._delete_beside(key[0])
            yield key

    def _timed(self, chosen: Sequence[Key]) -> Iterator[Key]:
        for start in range(0, len(chosen), self._options.jobs):
            waiting: deque[Task] = deque(("time", key) for key in chosen[start : start + self._options.jobs])
            ready: list[Job[Task]] = []
            try:
                for job in each(waiting, self._started, self._options.jobs, self._until, stays=True):
                    ready.append(job)
                for job in ready:  # they wait: the one that is told on computes alone
                    if not job.error and not job.go_on(self._until):
                        continue
                    self._keep(job.task, {"right": False, "error": job.error} if job.error else job.found)
                    yield job.task[1]
            finally:
                for job in ready:
                    job.close()
                for job in ready:
                    job.end()

    def _started(self, task: Task) -> Job[Task]:
        """A task's process."""
        stage, (name, exporter) = task
        folder, device = self._file(*task).parent, self._options.device
        folder.mkdir(parents=True, exist_ok=True)
        arguments = {
            "export": (name, exporter, folder),
            "check": (folder, device),
            "time": (folder, device, self._options.rivals),
        }
        return Job(task, _FUNCTIONS[stage], arguments[stage], folder / f"{stage}.log", _SECONDS[stage])

    def _file(self, stage: str, key: Key) -> pathlib.Path:
        """The file of what a stage found."""
        return self._options.folder.joinpath(*key, f"{stage}.json")

    def _is_wanted(self, stage: str, key: Key) -> bool:
        return stage in self._options.stages and not (self._options.missing and (stage, key) in self._found)

    def _is_exported(self, key: Key) -> bool:
        return "not_exported" not in self._found.get(("export", key), {"not_exported": ""})

    def _is_gone(self, key: Key) -> bool:
        """Whether the model of a file that was exported is deleted."""
        return self._is_exported(key) and not (self._file("export", key).parent / "model.onnx").exists()

    def _chosen(self, order: Sequence[Key]) -> list[Key]:
        """The files to time."""
        return _one_each([key for key in order if self._is_exported(key) and not self._is_gone(key)], self.rows)

    def _keep(self, task: Task, row: Row) -> None:
        """Keeps what a stage found, in the folder too."""
        stage, key = task
        self._found[task] = row if stage == "export" else row | {"commit": self._commit}
        self._file(*task).write_text(json.dumps(self._found[task]), encoding="utf-8")
        self._tell(key)
        print(f"{key[0]:42} {key[1]:12} {_words(row)}", flush=True)

    def _tell(self, key: Key) -> None:
        """Makes a file's row of what is known; of what an earlier commit computed it names the commit."""
        row: Row = {"architecture": key[0], "kind": self._kinds[key[0]], "exporter": key[1]}
        for stage in STAGES:
            row |= self._found.get((stage, key), {})
        if row.get("commit") == self._commit:
            del row["commit"]
        self.rows[key] = row

    def _leave_out(self, stage: str, key: Key) -> None:
        asked = stage in self._options.stages and not (stage == "check" and self._is_gone(key))
        why = f"{self._options.seconds:g} s were over" if asked else "nothing there"
        self.rows[key]["left_out"] = f"{stage}: {why}"

    def _delete_beside(self, name: str) -> None:
        """Deletes the right files of an architecture that will not be timed, once all of them are checked."""
        keys = [(name, exporter) for exporter in self._options.exporters]
        failed = [key for key in keys if ("export", key) in self._found and not self._is_exported(key)]
        if all(key in failed or ("check", key) in self._found for key in keys):
            chosen = self._chosen(keys)
            for key in keys:
                if key not in chosen and self.rows[key].get("right"):
                    for file in self._file("export", key).parent.glob("model.onnx*"):
                        file.unlink()


def _mixed(names: Sequence[str]) -> list[str]:
    """Names in such an order that the first of them, however many, come evenly from all of the list."""
    bits = max(len(names) - 1, 1).bit_length()
    order = sorted(range(len(names)), key=lambda index: int(f"{index:0{bits}b}"[::-1], 2))
    return [names[index] for index in order]


def _one_each(keys: Sequence[Key], rows: Mapping[Key, Row]) -> list[Key]:
    """One file of each architecture: the newer exporter's, if it is right or the only one."""
    best: dict[str, Key] = {}
    for name, exporter in sorted(
        keys, key=lambda key: (rows[key].get("right", "broken" not in rows[key]), key[1] == "dynamo")
    ):
        best[name] = name, exporter
    return [key for key in keys if key in best.values()]


def _words(found: Row) -> str:
    if "not_exported" in found:
        return f"not exported: {found['not_exported']}"
    if "difference" not in found and "error" not in found:
        return "exported"
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
    for rival in BESIDE:
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
    for why, number in Counter(row["left_out"] for row in rows if "left_out" in row).items():
        yield f"left out: {number} files, {why}"


def _how_far(row: Row) -> str:
    """How far a wrong file is off, and how far others are."""
    others = {"ONNX Runtime's CPU": row.get("onnxruntime_difference")}
    others["PyTorch from its float64"] = row.get("float64_difference")
    others |= {name: theirs.get("difference") for name, theirs in row.get("rivals", {}).items()}
    known = [f"{name} {difference:.1e}" for name, difference in others.items() if difference is not None]
    return ", ".join([f"off {row['difference']:.1e}", *known])
