"""``python -m dmlvk bench``: measures the device and whoever is to be beside it, and keeps what was found.

First the limits of the machine, then launches and what calls cost the host, then the problems of the suites, then whole
models: every figure stands beside limits of the same run. The file of results is written anew after each problem: whatever
ends the run takes no figure with it.
"""

from __future__ import annotations

import dataclasses
import importlib
import importlib.util
import pathlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from statistics import geometric_mean
from typing import Any, Final

from dmlvk.cli.output import INTERRUPTED, Output
from dmlvk.directml.device import Device
from dmlvk.engine.progress import ProgressBar
from dmlvk.spec.errors import InvalidArgumentError, OutOfDeviceMemoryError, UnsupportedError
from dmlvk.verify import machine
from dmlvk_bench import ceilings, headline, ladder, launches, rivals
from dmlvk_bench.measure import Bench
from dmlvk_bench.names import HEADLINE_SUITES, PROBLEM_SUITES, USUAL_SUITES
from dmlvk_bench.problems import all_problems
from dmlvk_bench.problems.model import Problem
from dmlvk_bench.problems.scale import FULL, MEDIUM, QUICK, Scale
from dmlvk_bench.results import ProblemRow, Results
from dmlvk_bench.sweep import SLACK, SweepRow, slower_than_possible, sweep
from dmlvk_bench.timing import QUICK as QUICK_PACE
from dmlvk_bench.timing import SOFTWARE, THOROUGH, Pace

KEPT: Final = "interrupted: what was measured is kept"
_HARDWARE: Final = FULL, THOROUGH
_SOFTWARE: Final = MEDIUM, SOFTWARE
_USED_BY: Final = {
    "only": (*PROBLEM_SUITES, "models", "shapes", "llm"),
    "against": (*PROBLEM_SUITES, "models", "launch"),
    "folder": ("models", "shapes"),
    "sweep": PROBLEM_SUITES,
    "llama_server": ("llm",),
}
"""The suites that an option means anything to."""


@dataclass(frozen=True)
class Options:
    """What to measure.

    Attributes:
        device: The device, as ``Device`` takes it.
        suite: Suites; none for the usual ones, or for all of the targets.
        only: Only the problems of this family, or with this in their name.
        against: Rivals.
        quick: Small problems and short times.
        headline: Only what the project's targets are about.
        sweep: Instead of all that, every rule that could run a problem.
        folder: The place of ONNX files for the suites models and shapes.
        llama_server: The place of llama.cpp's server, for the suite llm.
        html: A page to write.
        commit: What was built.
        out: The place of the text and of JSON.
    """

    out: Output
    device: str | None = None
    suite: tuple[str, ...] = ()
    only: str = ""
    against: tuple[str, ...] = ()
    quick: bool = False
    headline: bool = False
    sweep: bool = False
    folder: pathlib.Path | None = None
    llama_server: pathlib.Path | None = None
    html: pathlib.Path | None = None
    commit: str = ""

    @property
    def suites(self) -> tuple[str, ...]:
        """The suites to run."""
        return self.suite or (HEADLINE_SUITES if self.headline else USUAL_SUITES)

    def check(self) -> None:
        """Refuses an option that no suite uses.

        Raises:
            InvalidArgumentError: there is one.
        """
        for name, users in _USED_BY.items():
            value = getattr(self, name)
            if value and set(users).isdisjoint(self.suites):
                raise InvalidArgumentError(
                    f"must come with a suite that uses it: {', '.join(users)}", field=name, value=value
                )


def run(options: Options) -> int:
    """Measures what the options say and prints it as it comes; returns the exit status: 1 where a result was wrong.

    Raises:
        InvalidArgumentError: an option would have no effect, or nothing is left to measure.
        DeviceLostError: the device was lost; what was measured before is in the file.
    """
    options.check()
    suites, against = options.suites, options.against
    pages = _Pages(options.out, options.html)
    device = Device(options.device)
    scale, pace = _SOFTWARE if device.info.type == "cpu" else _HARDWARE
    if options.quick:
        scale, pace = QUICK, QUICK_PACE
    problems = [
        problem for suite in PROBLEM_SUITES if suite in suites for problem in all_problems(scale, options.only, suite)
    ]
    if options.headline:
        if scale is not FULL:
            rule = "must be on a GPU: the targets are those of its sizes, which take minutes on a CPU"
            raise InvalidArgumentError(rule, field="headline", value=True)
        problems = [problem for problem in problems if problem.name in headline.problems()]
    if not problems and set(suites) <= set(PROBLEM_SUITES):
        words = f"must be a family of the suites {', '.join(suites)}, or part of a problem's name there"
        raise InvalidArgumentError(words, field="only", value=options.only)
    if options.sweep:
        return _sweep(device, problems, pace, options.out)
    found, missing = rivals.find(against, device, quick=options.quick)
    results = Results(
        machine.describe(device, options.commit),
        scale.name,
        rivals={name: rival.version for name, rival in found.items()},
        missing=missing,
        complete=False,
        clock="device" if device.has_timestamps else "host",
    )
    growing = _Run(device, scale, pace, results, found, pages)
    status = INTERRUPTED
    try:
        growing.limits()
        if "launch" in suites and (not options.only or options.suite):
            growing.launches()
        if "ladder" in suites and (not options.only or options.suite):
            growing.ladder()
        if "host" in suites and (not options.only or options.suite):
            growing.host(explicitly=bool(options.suite))
        growing.problems(problems)
        if "models" in suites:
            growing.models(options, explicitly=bool(options.suite))
        if "shapes" in suites:
            growing.shapes(options, explicitly=bool(options.suite))
        if "llm" in suites:
            growing.language(options)
        growing.results = dataclasses.replace(growing.results, complete=True)
        status = int(bool(wrong(growing.results)))
    except KeyboardInterrupt:
        print(KEPT)
    print("\n".join(summary(growing.results)))
    if options.headline:
        print(f"\n{headline.table(headline.rows(growing.results))}")
    pages.write(growing.results)
    return status


def wrong(results: Results) -> list[str]:
    """The problems whose outputs are wrong, and the models that do not run or that no rival agrees with: one that agrees
    shows that another one is off."""
    found = [row.problem for row in results.problems if not row.agrees]
    for row in results.models:
        agreed = [rival["agrees"] for rival in row["rivals"].values() if "agrees" in rival]
        if "error" in row or (agreed and not any(agreed)):
            found.append(row["model"])
    return found


def line(row: ProblemRow, results: Results) -> str:
    """A problem as it is printed."""
    if not row.agrees:
        return f"{row.problem:56} {row.rule:>13} WRONG: off {row.difference:.1e} by {row.checked}; not timed"
    if row.limit == "copy_gb_per_s":
        speed = f"{row.gb_per_s:8.1f} GB/s    {row.share:5.2f} of copy ({row.same_size_copy_share:.2f} of as many bytes)"
    else:
        unit = "TOP/s" if "top" in row.limit else "TFLOP/s"
        speed = f"{row.tflop_per_s:8.3f} {unit:7} {row.share:5.2f} of {row.limit.rpartition('_t')[0]}"
    beside = [f"{name} x{rival.ratio:.2f}{'' if rival.agrees else ' (WRONG)'}" for name, rival in row.rivals.items()]
    targets = [f"x{row.target:.2f}"] * bool(row.target) + [f"{row.copy_target:.2f} of copy"] * bool(row.copy_target)
    goal = f"{'BELOW' if results.missed(row) else 'target'} {' and '.join(targets)}" if targets else ""
    return ", ".join(
        [
            f"{row.problem:56} {row.rule:>13} {row.us:9.1f} us {speed}",
            *beside,
            *[goal] * bool(goal),
            f"off {row.difference:.0e}",
        ]
    )


def summary(results: Results) -> Iterable[str]:
    """The lines that are printed at the end of a run."""
    rows = [row for row in results.problems if row.agrees]
    for name in results.rivals:
        for suite in PROBLEM_SUITES:
            ratios = [row.rivals[name].ratio for row in rows if row.suite == suite and name in row.rivals]
            if ratios:
                faster = sum(ratio >= 1 for ratio in ratios)
                mean = geometric_mean(ratios)
                yield f"{suite}: x{mean:.2f} of {name}'s speed (geometric mean of {len(ratios)}, {faster} at least as fast)"
    for group, (count, mean, target) in results.group_means().items():
        goal = f" (target {target:.2f})" if target else ""
        yield f"geometric mean of {count} problems of {group}: x{mean:.2f}{goal}"
    for problem, why in results.skipped.items():
        yield f"not run: {problem}: {why}"
    for name, failures in results.failures.items():
        yield from (f"{name} failed at {problem}: {why}" for problem, why in failures.items())
    for name, why in results.missing.items():
        yield f"not there: {name}: {why}"
    missed = sum(map(results.missed, rows))
    names = wrong(results)
    verdict = f"WRONG: {', '.join(names)}" if names else "all right"
    unfinished = "" if results.complete else " before the run was ended"
    yield f"{len(results.problems)} problems, {missed} below a target, {len(results.models)} models{unfinished}: {verdict}"


class _Pages:
    """What results go to, beside the text. What a page needs is there before anything is measured."""

    def __init__(self, out: Output, html: pathlib.Path | None) -> None:
        self._out, self._html = out, html
        self._page = None if html is None else importlib.import_module("dmlvk_bench.page").page

    def keep(self, results: Results) -> None:
        """Writes the file of results."""
        if self._out.file is not None:
            results.write(self._out.file)

    def write(self, results: Results) -> None:
        """Writes all."""
        self.keep(results)
        if not self._out.has_text:
            self._out.write(results.as_json())
        if self._html is not None and self._page is not None:
            self._html.write_text(self._page(results), encoding="utf-8")


class _Run:
    """A run as it grows.

    Attributes:
        results: The results so far.
    """

    def __init__(
        self,
        device: Device,
        scale: Scale,
        pace: Pace,
        results: Results,
        found: dict[str, rivals.Rival],
        pages: _Pages,
    ) -> None:
        self._device, self._scale, self._pace, self._rivals, self._pages = device, scale, pace, found, pages
        self._quick = scale is QUICK
        self.results = results
        print(f"{results.machine.device}, {results.machine.driver}; problems of scale {scale.name}")
        if results.clock == "host":
            print("the device has no timestamps: times are the host's, from submit to seen done")
        for name, version in results.rivals.items():
            print(f"beside {name} {version}")
        for name, why in results.missing.items():
            print(f"without {name}: {why}")

    def _found(self, **more: Any) -> None:
        """Adds to the results, and writes them."""
        self.results = dataclasses.replace(self.results, **more)
        self._pages.keep(self.results)

    def limits(self) -> None:
        """Measures what the machine can do at most."""
        limits = ceilings.measure(self._device, quick=self._quick)
        for name, value in dataclasses.asdict(limits).items():
            if value:
                kind, _, unit = name.rpartition("_t" if "_per_s" in name and "_t" in name else "_gb")
                unit = {"flop_per_s": "TFLOP/s", "op_per_s": "TOP/s"}.get(unit, "GB/s")
                print(f"{kind.replace('_', ' '):>16} {value:10.3f} {unit}")
        self._found(ceilings=limits)

    def launches(self) -> None:
        """Measures lists of tiny dispatches."""
        found = launches.measure(self._device, quick=self._quick, against=self._rivals)
        for name, microseconds in found.items():
            print(f"{name:>32} {microseconds:9.1f} us")
        self._found(launches=found)

    def ladder(self) -> None:
        """Measures the rungs of a matrix product."""
        found = ladder.measure(self._device, quick=self._quick)
        for name, rate in found.items():
            print(f"{name:>32} {rate:9.1f} TFLOP/s")
        self._found(ladder=found)

    def host(self, *, explicitly: bool) -> None:
        """Measures what calls cost the host."""
        if self._has_onnx("host", explicitly=explicitly):
            from dmlvk_bench import host

            for row in host.measure(self._device, quick=self._quick):
                print(row)
                self._found(host=[*self.results.host, row])

    def problems(self, problems: Sequence[Problem]) -> None:
        """Measures problems."""
        bench = Bench(self._device, self._scale, self._pace, self.results.ceilings, self._rivals)
        _each(problems, lambda problem: self._measured(bench, problem))

    def _measured(self, bench: Bench, problem: Problem) -> str:
        """Measures a problem, adds it to the results, and returns the line to print about it."""
        try:
            row = bench.measure(problem)
        except (UnsupportedError, OutOfDeviceMemoryError) as error:
            self._found(skipped={**self.results.skipped, problem.name: str(error)})
            return f"{problem.name:56} not run: {error}"
        failures = {name: dict(rival.failures) for name, rival in self._rivals.items() if rival.failures}
        self._found(problems=[*self.results.problems, row], failures=failures)
        return line(row, self.results)

    def models(self, options: Options, *, explicitly: bool) -> None:
        """Measures whole models."""
        if not self._has_onnx("models", explicitly=explicitly):
            return
        from dmlvk_bench.models import measure_all

        _, starts = measure_all(
            options.device,
            list(self._rivals),
            quick=self._quick,
            only=options.only,
            folder=options.folder,
            found=lambda row: self._found(models=[*self.results.models, row]),
        )
        self._found(starts=starts)

    def shapes(self, options: Options, *, explicitly: bool) -> None:
        """Measures what sizes cost that have not come before."""
        if not self._has_onnx("shapes", explicitly=explicitly):
            return
        from dmlvk_bench.models.shapes import measure_shapes

        for row in measure_shapes(options.device, options.only, options.folder):
            print(row)
            self._found(shapes=[*self.results.shapes, row])

    def language(self, options: Options) -> None:
        """Measures language models."""
        self._has("gguf", "llm", "llm", explicitly=True)
        from dmlvk_bench import language
        from dmlvk_bench.rivals import llama_server

        beside: dict[str, language.Rival] = {}
        if options.llama_server is not None:
            beside[llama_server.NAME] = llama_server.LlamaServer(options.llama_server).speeds
        for model in language.models(options.only, is_cpu=self._device.capabilities.is_cpu):
            try:
                for row in language.measure(self._device, model, beside):
                    print(row, flush=True)
                    self._found(language=[*self.results.language, row])
            except (UnsupportedError, OutOfDeviceMemoryError) as error:
                print(f"{model} not run: {error}", flush=True)
                self._found(skipped={**self.results.skipped, str(model): str(error)})

    def _has_onnx(self, suite: str, *, explicitly: bool) -> bool:
        return self._has("onnx", "onnx", suite, explicitly=explicitly)

    def _has(self, package: str, extra: str, suite: str, *, explicitly: bool) -> bool:
        """Whether the package is there that a suite needs; where it is not, the results say so.

        Raises:
            InvalidArgumentError: it is not there, and the suite was asked for explicitly.
        """
        if importlib.util.find_spec(package) is not None:
            return True
        why = f"the suite {suite} must have the package {package}: pip install 'dmlvk[{extra}]'"
        if explicitly:
            raise InvalidArgumentError(why, field="suite", value=suite)
        self._found(missing={**self.results.missing, suite: why})
        return False


def _sweep(device: Device, problems: Sequence[Problem], pace: Pace, out: Output) -> int:
    """Times every rule of the problems, prints them and says where another one than the chosen is faster."""
    rows: list[SweepRow] = []

    def measured(problem: Problem) -> str:
        found = sweep(device, problem, pace)
        rows.extend(found)
        return "\n".join(map(str, found))

    status = INTERRUPTED
    try:
        _each(problems, measured)
        status = 0
    except KeyboardInterrupt:
        print(KEPT)
    lines = list(slower_than_possible(rows))
    print("\n".join([*lines, f"{len(lines)} choices are more than {SLACK - 1:.0%} slower than the best rule"]))
    out.write([dataclasses.asdict(row) for row in rows])
    return status


def _each(problems: Sequence[Problem], measured: Callable[[Problem], str]) -> None:
    """Prints what is said of each problem, as soon as it is known, and on a terminal how far it is."""
    with ProgressBar(len(problems)) as bar:
        for number, problem in enumerate(problems):
            bar.update(number, problem.name)
            words = measured(problem)
            bar.erase()
            print(words, flush=True)
