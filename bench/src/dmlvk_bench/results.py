"""The results of a benchmark run: the file that ``python -m dmlvk bench --json`` writes, and everything else reads.

A file holds one run on one machine. Figures that were measured at the same time stand in one file, because only these can be
divided by each other.
"""

from __future__ import annotations

import dataclasses
import json
import pathlib
from dataclasses import dataclass, field
from statistics import geometric_mean
from typing import Any

from dmlvk.spec.errors import InvalidArgumentError
from dmlvk.verify.machine import Machine

FORMAT = 1
"""The version of the file's format; a file with another number is refused."""


@dataclass(frozen=True)
class Ceilings:
    """The most that the machine can do, measured first in the run; 0 where the device has no such way to compute.

    Attributes:
        copy_gb_per_s: Bytes read and written by a copy kernel.
        float32_tflop_per_s, float16_tflop_per_s: Multiply-adds, counted as two, in registers.
        int8_top_per_s: Packed 8-bit dot products, likewise.
        matrix_float16_tflop_per_s, matrix_int8_top_per_s: Cooperative matrices in registers; sums in float32, int32.
        upload_gb_per_s, download_gb_per_s: Host memory to a buffer and back, as a caller sees it.
    """

    copy_gb_per_s: float = 0.0
    float32_tflop_per_s: float = 0.0
    float16_tflop_per_s: float = 0.0
    int8_top_per_s: float = 0.0
    matrix_float16_tflop_per_s: float = 0.0
    matrix_int8_top_per_s: float = 0.0
    upload_gb_per_s: float = 0.0
    download_gb_per_s: float = 0.0


@dataclass(frozen=True)
class RivalTime:
    """A rival on the same numbers in the same run.

    Attributes:
        us: Median time of one execution, microseconds.
        spread: Distance of the quartiles, as a share of the median.
        ratio: Its time to ours: above 1 we are faster.
        difference: The largest of its outputs from the reference, relative to the largest number there.
        agrees: Whether that is within the problem's ``rival_tolerance``. A ratio to a wrong answer counts for nothing.
    """

    us: float
    spread: float
    ratio: float
    difference: float
    agrees: bool


@dataclass(frozen=True)
class ProblemRow:
    """A measured problem.

    Attributes:
        problem: Its name, unique in a file.
        suite: "ops", "matmul" or "conv".
        family: The file in ``dmlvk_bench.problems`` that declares it.
        operator: The desc's class name.
        data_type: The data type in the problem's name, such as "FLOAT32".
        rule: The kernel rule that ran.
        us: Median device time of one execution between timestamps, microseconds.
        host_us: Median host time of one, from submit to seen done, divided by the executions of a submission.
        spread: Distance of the quartiles of ``us``, as a share of it.
        bytes_moved: The bytes that any implementation must read and write.
        operations: Additions and multiplications; 0 where bytes are what counts.
        limit: The field of ``Ceilings`` that bounds it.
        share: The share of that limit that was reached.
        same_size_copy_share: The share of the bandwidth that the copy kernel reaches over as many bytes.
        target: Least ratio to PyTorch that is meant; 0 for none.
        copy_target: Least share of the copy bandwidth that is meant; 0 for none.
        group, group_target: Problems whose ratios' geometric mean has a target together.
        checked: The reference of the outputs before they were timed: "oracle", "torch", "check" (the problem's own),
            or "oracle, quick size", which looked at those of the same problem at the quick scale.
        difference: The largest from that, relative to the largest number there.
        agrees: Whether it is within the tolerance; what does not agree is not timed.
        rivals: The times of the rivals, by name.
        commit: The commit that was built, where rows of several runs were put together.
    """

    problem: str
    suite: str
    family: str
    operator: str
    data_type: str
    rule: str
    us: float
    host_us: float
    spread: float
    bytes_moved: int
    operations: int
    limit: str
    share: float
    same_size_copy_share: float
    target: float
    copy_target: float
    group: str
    group_target: float
    checked: str
    difference: float
    agrees: bool
    rivals: dict[str, RivalTime]
    commit: str = ""

    @property
    def gb_per_s(self) -> float:
        """Bytes that must move, over the time."""
        return self.bytes_moved / self.us * 1e-3 if self.us else 0.0

    @property
    def tflop_per_s(self) -> float:
        """Operations over the time."""
        return self.operations / self.us * 1e-6 if self.us else 0.0

    @property
    def ratio(self) -> float | None:
        """The ratio of PyTorch's time to ours, which ``target`` is about; None without it, or where either was wrong."""
        torch = self.rivals.get("torch")
        return torch.ratio if torch is not None and torch.agrees and self.agrees else None


@dataclass(frozen=True)
class HostRow:
    """The host's time for a call.

    Attributes:
        name: The name of the call, such as "a chain of sums by a session".
        dispatches: The number of dispatches of a call.
        us: Microseconds until the call returns, the median.
        spread: Distance of the quartiles of the times, as a share of ``us``.
    """

    name: str
    dispatches: int
    us: float
    spread: float

    def __str__(self) -> str:
        each = self.us / self.dispatches
        return f"{self.name:56} {self.dispatches:5} dispatches {self.us:9.1f} us of the host, {each:7.2f} us a dispatch"


@dataclass(frozen=True)
class ShapeRow:
    """The cost of sizes that a session has not met before.

    Attributes:
        model: The model's name.
        dispatches: The number of dispatches of a run.
        new_ms: A run of such sizes, the median.
        seen_ms: A run of the same sizes again, the median.
        planning_ms: The host's part of a run of such sizes, before the device has anything to do, the median.
        least_planning_ms: The least of it: what it takes where each operator has a recipe, and nothing else keeps the
            processors busy.
        shares: The share of each phase in a run of such sizes, by the phase's name, as a profiler sees them.
    """

    model: str
    dispatches: int
    new_ms: float
    seen_ms: float
    planning_ms: float
    least_planning_ms: float
    shares: dict[str, float]

    @property
    def us_a_dispatch(self) -> float:
        """The microseconds of host time that new sizes cost, for each dispatch."""
        return 1e3 * self.planning_ms / max(self.dispatches, 1)

    def __str__(self) -> str:
        phases = ", ".join(f"{name} {share:.0%}" for name, share in self.shares.items())
        return (
            f"{self.model:40} {self.dispatches:4} dispatches: new sizes {self.new_ms:8.2f} ms, seen {self.seen_ms:8.2f} ms, "
            f"the host's part {self.planning_ms:6.2f} ms (at least {self.least_planning_ms:.2f}), "
            f"{self.us_a_dispatch:6.1f} us a dispatch ({phases})"
        )


@dataclass(frozen=True)
class LanguageRow:
    """A model as it was measured.

    Attributes:
        model: Its name, with the type of its weights.
        batch: Sequences that were continued together.
        weight_bytes: Bytes of its weights.
        device_bytes: Bytes that it took on the device, as announced.
        prompt_tokens, new_tokens: Tokens of each sequence.
        prompt_per_s, new_per_s: Tokens a second of all sequences together.
        rivals: The same two numbers of others, by name.
    """

    model: str
    batch: int
    weight_bytes: int
    device_bytes: int
    prompt_tokens: int
    new_tokens: int
    prompt_per_s: float
    new_per_s: float
    rivals: dict[str, dict[str, float]] = field(default_factory=dict)

    def __str__(self) -> str:
        read = self.weight_bytes * self.new_per_s / self.batch * 1e-9
        beside = [
            f"{name}: prompt x{self.prompt_per_s / own['prompt_per_s']:.2f}, new x{self.new_per_s / own['new_per_s']:.2f}"
            for name, own in self.rivals.items()
        ]
        line = (
            f"{self.model + f', batch {self.batch}':32} prompt of {self.prompt_tokens} {self.prompt_per_s:10.1f} tokens/s, "
            f"{self.new_tokens} new {self.new_per_s:9.1f} tokens/s, weights read at {read:7.1f} GB/s"
        )
        return "; ".join([line, *beside])


@dataclass(frozen=True)
class Results:
    """A run.

    Attributes:
        machine: The machine that it ran on.
        scale: "full", "medium" or "quick": how large the problems were; see ``dmlvk_bench.problems.scale``.
        rivals: Version of each that took part, by name: "torch", "onnxruntime", "ncnn".
        missing: Why those that were asked for did not.
        ceilings: The limits of the machine.
        launches: Microseconds of replayed lists of tiny dispatches, by "1 dependent", "100 independent" and so on; "rival"
            entries begin with the rival's name.
        ladder: TFLOP/s of a float16 product by rung, in the order of ``dmlvk_bench.ladder``; none without matrices.
        host: The rows of the suite host.
        problems: The rows of the suites ops, matmul and conv.
        models: The rows of the suite models, as ``dmlvk_bench.models.measure`` makes them.
        shapes: The rows of the suite shapes.
        language: The rows of the suite llm.
        starts: Seconds of a first and a second start of a process that runs a model.
        skipped: Problems that the device cannot run, and why.
        failures: For each rival, the problems that it could not run although it has the operation, and why.
        complete: Whether everything that was asked for was measured; not so while a run goes on, or where it was ended.
        clock: "device", or "host" where its queue has no timestamps: whose ``us`` of the problems are.
    """

    machine: Machine
    scale: str
    rivals: dict[str, str] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)
    ceilings: Ceilings = field(default_factory=Ceilings)
    launches: dict[str, float] = field(default_factory=dict)
    ladder: dict[str, float] = field(default_factory=dict)
    host: list[HostRow] = field(default_factory=list)
    problems: list[ProblemRow] = field(default_factory=list)
    models: list[dict[str, Any]] = field(default_factory=list)
    shapes: list[ShapeRow] = field(default_factory=list)
    language: list[LanguageRow] = field(default_factory=list)
    starts: list[dict[str, float]] = field(default_factory=list)
    skipped: dict[str, str] = field(default_factory=dict)
    failures: dict[str, dict[str, str]] = field(default_factory=dict)
    complete: bool = True
    clock: str = "device"

    def copy_share(self, row: ProblemRow) -> float:
        """A row's share of the copy bandwidth, which ``copy_target`` is about."""
        return row.gb_per_s / self.ceilings.copy_gb_per_s if self.ceilings.copy_gb_per_s else 0.0

    def missed(self, row: ProblemRow) -> bool:
        """Whether a row is below a target that this run can tell about, or wrong."""
        below_rival = row.ratio is not None and row.ratio < row.target
        return not row.agrees or below_rival or self.copy_share(row) < row.copy_target

    def group_means(self) -> dict[str, tuple[int, float, float]]:
        """For each group that ran beside PyTorch: its number of problems, the geometric mean of their ratios, its target."""
        found: dict[str, list[ProblemRow]] = {}
        for row in self.problems:
            if row.group and row.ratio is not None:
                found.setdefault(row.group, []).append(row)
        return {
            name: (len(rows), geometric_mean([row.ratio or 0.0 for row in rows]), rows[0].group_target)
            for name, rows in found.items()
        }

    def as_json(self) -> dict[str, Any]:
        """The results for JSON."""
        return {"format": FORMAT, **dataclasses.asdict(self)}

    def write(self, path: pathlib.Path) -> None:
        """Writes the results as JSON. A reader finds these results or those before, never a part."""
        whole = path.with_name(path.name + ".part")
        whole.write_text(json.dumps(self.as_json(), indent=1) + "\n", encoding="utf-8")
        whole.replace(path)


def best_rival(model: dict[str, Any], begins: str) -> dict[str, Any] | None:
    """Of a row of ``Results.models`` the fastest rival whose name begins so, of those that ran and agreed."""
    found = [rival for name, rival in model["rivals"].items() if name.startswith(begins) and rival.get("agrees")]
    return min(found, key=lambda rival: float(rival["ms"]), default=None)


def read(path: pathlib.Path) -> Results:
    """The file's results.

    Raises:
        InvalidArgumentError: it is no file of this format.
        OSError: it cannot be read.
    """
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        if found.pop("format") != FORMAT:
            raise KeyError("format")
        problems = [
            ProblemRow(**{**row, "rivals": {name: RivalTime(**of) for name, of in row["rivals"].items()}})
            for row in found.pop("problems")
        ]
        machine, ceilings = Machine(**found.pop("machine")), Ceilings(**found.pop("ceilings"))
        host = [HostRow(**row) for row in found.pop("host", [])]  # files of before that suite have none
        shapes = [ShapeRow(**row) for row in found.pop("shapes", [])]
        language = [LanguageRow(**row) for row in found.pop("language", [])]
        return Results(
            machine=machine, ceilings=ceilings, host=host, problems=problems, shapes=shapes, language=language, **found
        )
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        rule = f"must be a file of results, format {FORMAT}, as bench --json writes it ({type(error).__name__}: {error})"
        raise InvalidArgumentError(rule, field="results", value=str(path)) from None
