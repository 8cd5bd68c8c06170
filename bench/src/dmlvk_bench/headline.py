"""The headline: the project's performance targets, each beside what a run found.

The targets are the project's performance targets, set for one NVIDIA H200: what its hardware and driver allow, PyTorch
there, and models. Ratios are judged on every machine, figures with a unit on an H200 only.

A command that reproduces them measures the ceilings, the launches (``against`` with "torch" in it for PyTorch's), those
problems of ``all_problems(FULL)`` whose names ``problems`` gives and those models whose names ``models`` gives; ``table``
and ``markdown`` show what ``rows`` makes of the results. What was not measured says so.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from dmlvk_bench.launches import TORCH_GRAPH
from dmlvk_bench.models.networks import NETWORKS, TARGET_DEVICE
from dmlvk_bench.results import ProblemRow, Results

MET, MISSED, NOT_MEASURED, NOT_JUDGED = "met", "missed", "not measured", "not judged"
SLACK: Final = 0.05
"""The share by which a run may miss a ceiling: that was measured by other code, on another day."""


@dataclass(frozen=True)
class HeadlineRow:
    """A line of the headline.

    Attributes:
        part: The part of the table that the line is in.
        what: Was measured.
        target: The target in words.
        figure: The measured figure in words; "" where nothing was measured.
        ratio: The figure over what it is judged against, above 1 where it is better; None where there is no figure.
        verdict: MET, MISSED, NOT_MEASURED or NOT_JUDGED.
        note: Why, where that does not speak for itself.
    """

    part: str
    what: str
    target: str
    figure: str
    ratio: float | None
    verdict: str
    note: str = ""


def _speed(row: ProblemRow, us: float) -> str:
    """The speed that a time means for a problem: operations or bytes a second."""
    if row.operations:
        return f"{row.operations / us * 1e-6:.4g} {'TOP/s' if row.data_type.endswith('INT8') else 'TFLOP/s'}"
    return f"{row.bytes_moved / us * 1e-3:.0f} GB/s"


@dataclass(frozen=True)
class Target(ABC):
    """A line of the targets, and how it is judged.

    Attributes:
        part: The part of the table that the line is in.
        what: Is measured.
    """

    part: str
    what: str

    @property
    @abstractmethod
    def words(self) -> str:
        """The target in words, as the report prints it."""

    @property
    def problems(self) -> tuple[str, ...]:
        """Names of the problems that it is about."""
        return ()

    @abstractmethod
    def row(self, results: Results) -> HeadlineRow:
        """The headline's line: the target beside the figure of a run."""

    def _row(self, figure: str, ratio: float | None, verdict: str, note: str = "") -> HeadlineRow:
        return HeadlineRow(self.part, self.what, self.words, figure, ratio, verdict, note)

    def _absolute(self, results: Results, figure: str, ratio: float, *, met: bool, note: str = "") -> HeadlineRow:
        """The line of a figure with a unit, which is judged on ``TARGET_DEVICE`` alone."""
        if TARGET_DEVICE not in results.machine.device:
            return self._row(figure, ratio, NOT_JUDGED, f"the target is an {TARGET_DEVICE}'s")
        return self._row(figure, ratio, MET if met else MISSED, note)


@dataclass(frozen=True)
class Ceiling(Target):
    """A target that is the most a device allows, or a share of that; a run may miss it by ``slack``.

    Attributes:
        of: The figure in a run, 0 where it has none.
        best: The figure that other means reached.
        unit: The unit of both figures.
        is_time: Whether less is better.
        problem: The name of the one whose row the figure is from; "" for none.
        slack: The share by which a run may miss it.
    """

    of: Callable[[Results], float]
    best: float
    unit: str
    is_time: bool = False
    problem: str = ""
    slack: float = SLACK

    @property
    def words(self) -> str:
        """The target in words, as the report prints it."""
        if not self.slack:
            return f"at {'most' if self.is_time else 'least'} {self.best:g} {self.unit}"
        return f"{self.best:g} {self.unit}, {'+' if self.is_time else '-'}{self.slack:.0%}"

    @property
    def problems(self) -> tuple[str, ...]:
        """Names of the problems that it is about."""
        return (self.problem,) if self.problem else ()

    def row(self, results: Results) -> HeadlineRow:
        """The headline's line: the target beside the figure of a run."""
        found = self.of(results)
        if not found:
            return self._row("", None, NOT_MEASURED)
        ratio = self.best / found if self.is_time else found / self.best
        return self._absolute(results, f"{found:.4g} {self.unit}", ratio, met=ratio >= 1 - self.slack)


@dataclass(frozen=True)
class Beside(Target):
    """A problem beside PyTorch on the same numbers in the same run.

    Attributes:
        problem: Its name.
        least: Ratio of PyTorch's time to ours.
        most_time: The target as a share of PyTorch's time, where it was set so; 0 where it was set as a ratio.
    """

    problem: str
    least: float
    most_time: float = 0.0

    @property
    def words(self) -> str:
        """The target in words, as the report prints it."""
        return f"at most {self.most_time:g} x PyTorch's time" if self.most_time else f"at least {self.least:g} x PyTorch"

    @property
    def problems(self) -> tuple[str, ...]:
        """Names of the problems that it is about."""
        return (self.problem,)

    def row(self, results: Results) -> HeadlineRow:
        """The headline's line: the target beside the figure of a run."""
        found = next((row for row in results.problems if row.problem == self.problem), None)
        if found is None:
            return self._row("", None, NOT_MEASURED, results.skipped.get(self.problem, ""))
        if not found.agrees:
            return self._row("", None, MISSED, f"the output is off by {found.difference:.1e}")
        rival = found.rivals.get("torch")
        if rival is None:
            why = results.failures.get("torch", {}).get(self.problem) or results.missing.get("torch") or "without PyTorch"
            return self._row(self._speed(found, found.us), None, NOT_MEASURED, why)
        figure = f"{self._speed(found, found.us)}, PyTorch {self._speed(found, rival.us)}"
        if not rival.agrees:
            return self._row(figure, None, NOT_JUDGED, f"PyTorch's output is off by {rival.difference:.1e}")
        return self._row(figure, rival.ratio, MET if rival.ratio >= self.least else MISSED)

    def _speed(self, row: ProblemRow, us: float) -> str:
        return f"{us:.0f} us" if self.most_time else _speed(row, us)


@dataclass(frozen=True)
class Launches(Target):
    """Dispatches that do next to nothing.

    Attributes:
        launch: The name in ``Results.launches``.
        most: Microseconds.
        beside: PyTorch's name there.
    """

    launch: str
    most: float
    beside: str

    @property
    def words(self) -> str:
        """The target in words, as the report prints it."""
        return f"at most {self.most:g} us"

    def row(self, results: Results) -> HeadlineRow:
        """The headline's line: the target beside the figure of a run."""
        found, rival = results.launches.get(self.launch, 0.0), results.launches.get(self.beside, 0.0)
        if not found:
            return self._row("", None, NOT_MEASURED)
        figure = f"{found:.0f} us" + (f", PyTorch {rival:.0f} us" if rival else "")
        ratio = (rival or self.most) / found
        return self._absolute(results, figure, ratio, met=found <= self.most)


@dataclass(frozen=True)
class Model(Target):
    """A run of a model, inputs handed over and outputs read; its ratio is to the fastest rival.

    Attributes:
        what: Its name in the results.
        most: Milliseconds.
    """

    most: float

    @property
    def words(self) -> str:
        """The target in words, as the report prints it."""
        return f"at most {self.most:g} ms"

    def row(self, results: Results) -> HeadlineRow:
        """The headline's line: the target beside the figure of a run."""
        found = next((row for row in results.models if row["model"] == self.what), None)
        if found is None:
            return self._row("", None, NOT_MEASURED)
        if "ms" not in found:
            return self._row("", None, MISSED, str(found.get("error", "")))
        rivals = {name: rival for name, rival in found.get("rivals", {}).items() if "ms" in rival and rival["agrees"]}
        best = min(rivals, key=lambda name: float(rivals[name]["ms"]), default="")
        ms = float(found["ms"])
        figure = f"{ms:.2f} ms" + (f", {best} {rivals[best]['ms']:.2f} ms" if best else "")
        disagree = [name for name, rival in found.get("rivals", {}).items() if not rival.get("agrees", True)]
        if disagree and not rivals:
            return self._row(figure, None, MISSED, f"the outputs differ from those of {', '.join(disagree)}")
        ratio = (float(rivals[best]["ms"]) if best else self.most) / ms
        return self._absolute(results, figure, ratio, met=ms <= self.most)


CEILINGS, RIVALS, MODELS = "What the device allows", "Beside PyTorch", "Models"
RATES, SHAPES = "Matrices and copies", "Beside PyTorch: products, convolutions, attention and rows of other shapes"


def _rate(problem: str, value: Callable[[ProblemRow], float]) -> Callable[[Results], float]:
    """A problem's figure; 0 where the run has none that is right."""

    def find(results: Results) -> float:
        return next((value(row) for row in results.problems if row.problem == problem and row.agrees), 0.0)

    return find


def _ceiling(what: str, problem: str, best: float, unit: str) -> Ceiling:
    """A target that is the best figure of a problem's row, in GB/s, TFLOP/s or TOP/s."""

    def value(row: ProblemRow) -> float:
        return row.gb_per_s if unit == "GB/s" else row.tflop_per_s

    return Ceiling(CEILINGS, what, _rate(problem, value), best, unit, problem=problem)


def _at_least(problem: str, least: float, unit: str) -> Ceiling:
    """A problem's rate, or with ``_COPIES`` its share of the copy bandwidth, that is not to be missed at all."""
    if unit == _COPIES:
        return Ceiling(RATES, problem, _rate(problem, lambda row: row.share), least, unit, problem=problem, slack=0.0)
    return replace(_ceiling(problem, problem, least, unit), part=RATES, slack=0.0)


def _shapes(least: float, *problems: str) -> tuple[Target, ...]:
    """Problems that have the same target beside PyTorch, each a line under its own name."""
    return tuple(Beside(SHAPES, problem, problem, least) for problem in problems)


def _further(kind: str) -> Callable[[Results], float]:
    """Microseconds of each dispatch but the first of a list of 1000."""

    def find(results: Results) -> float:
        one, many = (results.launches.get(f"{count} {kind}", 0.0) for count in (1, 1000))
        return (many - one) / 999 if one and many else 0.0

    return find


def _both(what: str, problem: str, least: float, most_time: float = 0.0) -> tuple[Target, Target]:
    """A problem in float32 and in float16."""
    kinds = (("float32", "FLOAT32"), ("float16", "FLOAT16"))
    float32, float16 = (Beside(RIVALS, f"{what}, {name}", problem.format(kind), least, most_time) for name, kind in kinds)
    return float32, float16


_GEMM, _CONVOLUTION = "GEMM depth {0} {1} {0}x{0}", "convolution 3x3 256 to 256 channels {} {} 32x56x56"
_GEMM_OF_BITS: Final = "GEMM of bits depth {0} BFLOAT16 {0}x{0}"
_COPIES: Final = "of the copy bandwidth"

_PRODUCTS: Final = {
    kind: [
        f"GEMM{way} depth {depth} {kind} {rows}x{columns}"
        for rows, depth, columns in ((128, 4096, 14336), (256, 14336, 4096), (512, 4096, 4096), (2048, 4096, 14336))
        for way in ("", " B transposed")
    ]
    for kind in ("FLOAT32", "FLOAT16")
}
_SMALL_PRODUCTS: Final = {
    kind: [f"GEMM depth 1000 {kind} 1000x1000", f"GEMM depth 64 {kind} 192x128x128"] for kind in ("FLOAT32", "FLOAT16")
}
_ATTENTION_OF_FEW_ROWS: Final = (
    *("b8 h12 q77 k77 d64", "b8 h12 q512 k512 d64", "b8 h16 q1024 k1024 d80"),
    "b8 h12 q1500 k1500 d96",
)
_ATTENTION_OF_MANY_ROWS: Final = (
    *("b2 h8 q4096 k4096 d40", "b2 h8 q4096 k77 d40", "b2 h16 q8192 k8192 d128"),
    "b4 h8 q2048 k2048 d256",
)
_ATTENTION_IN_FLOAT32: Final = (
    *("b4 h16 q2048 k2048 d64", "b2 h8 q4096 k77 d40", "b8 h12 q197 k197 d64", "b64 h3 q49 k49 d32"),
    *("b8 h12 q512 k512 d64", "b1 h20 q1500 k1500 d64", "b1 h32 q2048 k2048 d128"),
)
_JOINED: Final = ("32x256x56x56", "32x448x28x28")

HEADLINE: Final[tuple[Target, ...]] = (
    Ceiling(CEILINGS, "copy, read and written", lambda results: results.ceilings.copy_gb_per_s, 4247, "GB/s"),
    _ceiling("float32 add, 3 x 1 GiB", "add FLOAT32 268435456", 4375, "GB/s"),
    _ceiling("float32 layer norm of rows of 8192", "layer norm, last axis FLOAT32 16384x8192", 4145, "GB/s"),
    Ceiling(
        CEILINGS,
        "one tiny dispatch, submitted and seen done",
        lambda results: results.launches.get("1 dependent", 0.0),
        16,
        "us",
        True,
    ),
    Ceiling(CEILINGS, "each further dispatch, behind a barrier", _further("dependent"), 1.75, "us", True),
    Ceiling(CEILINGS, "each further dispatch, without", _further("independent"), 0.17, "us", True),
    Ceiling(CEILINGS, "host to device, from a numpy array", lambda results: results.ceilings.upload_gb_per_s, 43, "GB/s"),
    Ceiling(CEILINGS, "device to host, into a numpy array", lambda results: results.ceilings.download_gb_per_s, 44, "GB/s"),
    _ceiling("GEMM float16, float32 sums, 4096", _GEMM.format(4096, "FLOAT16"), 294, "TFLOP/s"),
    _ceiling("GEMM int8, 4096", "integer product with kept B depth 4096 INT8 4096x4096", 460, "TOP/s"),
    Beside(RIVALS, "add, 1 GiB each, float32", "add FLOAT32 268435456", 0.98),
    Beside(RIVALS, "floor modulus, 1 GiB each, float32", "floor modulus FLOAT32 2^28", 0.98),
    *_both("layer norm 16384x8192", "layer norm, last axis {} 16384x8192", 1.5),
    *_both("softmax 16384x8192", "softmax {} 16384x8192", 2.0),
    *_both("row sum 16384x8192", "row sum {} 16384x8192", 1.1),
    *_both("transpose 16384x8192", "transpose {} 16384x8192", 3.0),
    *_both("instance norm 32x256x128x128", "instance norm, axes {{2,3}} {} 32x256x128x128", 2.0),
    *_both("group norm of one group, 32x256x128x128", "one-group norm, axes {{1,2,3}} {} 32x256x128x128", 10.0),
    *_both("ROI align, 1000 of 4x256x200x304 to 7x7", "ROI align {} 1000 of 4x256x200x304 to 7x7", 1 / 0.7, 0.7),
    *(Beside(RIVALS, f"GEMM {size}, float32", _GEMM.format(size, "FLOAT32"), 0.9) for size in (4096, 8192)),
    *(Beside(RIVALS, f"GEMM {size}, float16, float32 sums", _GEMM.format(size, "FLOAT16"), 0.6) for size in (4096, 8192)),
    *(Beside(RIVALS, f"GEMM {size}, bfloat16", _GEMM_OF_BITS.format(size), 0.6) for size in (4096, 8192)),
    Beside(RIVALS, "convolution 3x3, 256 to 256, 32x56x56, float32", _CONVOLUTION.format("NCHW", "FLOAT32"), 0.9),
    Beside(RIVALS, "the same, float16 NHWC", _CONVOLUTION.format("NHWC", "FLOAT16"), 0.5),
    Beside(RIVALS, "the same, float16 NCHW", _CONVOLUTION.format("NCHW", "FLOAT16"), 0.85),
    Beside(RIVALS, "attention b8 h32 s4096 d128, float16", "attention FLOAT16 b8 h32 q4096 k4096 d128", 0.4),
    Launches(RIVALS, "100 dependent tiny dispatches, replayed (PyTorch: a CUDA graph)", "100 dependent", 200, TORCH_GRAPH),
    *(_at_least(_GEMM.format(size, "FLOAT16"), 420, "TFLOP/s") for size in (4096, 8192)),
    _at_least("integer product with kept B depth 4096 INT8 4096x4096", 800, "TOP/s"),
    _at_least(_CONVOLUTION.format("NHWC", "FLOAT16"), 400, "TFLOP/s"),
    _at_least("attention FLOAT16 b8 h32 q4096 k4096 d128", 320, "TFLOP/s"),
    *(_at_least(f"GEMM depth 16384 {data_type} 16x16384", 0.95, _COPIES) for data_type in ("FLOAT32", "FLOAT16")),
    *_shapes(0.92, *_PRODUCTS["FLOAT32"], *_SMALL_PRODUCTS["FLOAT32"]),
    *_shapes(0.6, *_PRODUCTS["FLOAT16"]),
    *_shapes(0.75, *_SMALL_PRODUCTS["FLOAT16"]),
    *_shapes(0.75, "convolution 3x3 320 to 320 channels NCHW FLOAT16 2x64x64"),
    *_shapes(0.9, "convolution 1x1 512 to 512 channels NCHW FLOAT16 32x28x28"),
    *_shapes(1.0, "convolution 3x3 stride 2 256 to 256 channels NCHW FLOAT16 32x56x56"),
    *_shapes(1.0, "convolution 7x7 stride 2 3 to 64 channels NCHW FLOAT16 32x224x224"),
    *_shapes(0.9, "transposed convolution 4x4 stride 2 FLOAT32 8x256x64x64"),
    *_shapes(0.7, "transposed convolution 4x4 stride 2 FLOAT16 8x256x64x64", "convolution 3x3x3 FLOAT16 2x64x16x32x32"),
    *_shapes(
        0.75,
        *("attention FLOAT16 " + sizes for sizes in _ATTENTION_OF_FEW_ROWS),
        "attention, bias FLOAT16 b8 h12 q512 k512 d64",
        "attention, causal FLOAT16 b4 h32 q512 k512 d128",
    ),
    *_shapes(
        0.55,
        *("attention FLOAT16 " + sizes for sizes in _ATTENTION_OF_MANY_ROWS),
        "attention, grouped FLOAT16 b2 h32 q2048 k2048 d128",
        "attention, causal FLOAT16 b4 h32 q2048 k2048 d128",
    ),
    *_shapes(
        1.0,
        *("attention FLOAT32 " + sizes for sizes in _ATTENTION_IN_FLOAT32),
        "attention, BERT-base FLOAT32 b1 h12 q128 k128 d64",
        "attention, bias FLOAT32 b8 h12 q512 k512 d64",
    ),
    *_shapes(1.5, *(f"softmax {kind} 4096x{row}" for kind in ("FLOAT32", "FLOAT16") for row in (50000, 50257))),
    *_shapes(1.0, *(f"join, 3 along channels {kind} to {sizes}" for kind in ("FLOAT32", "FLOAT16") for sizes in _JOINED)),
    *_shapes(1.0, "maximum of all FLOAT32 268435456"),
    *(Model(MODELS, network.name, network.target_ms) for network in NETWORKS),
)
"""The project's performance targets, in their order."""


def problems() -> tuple[str, ...]:
    """Names of the problems to measure, of ``all_problems(FULL)``."""
    return tuple(dict.fromkeys(name for target in HEADLINE for name in target.problems))


def models() -> tuple[str, ...]:
    """Names of the models to measure."""
    return tuple(target.what for target in HEADLINE if isinstance(target, Model))


def rows(results: Results) -> list[HeadlineRow]:
    """Every target beside what a run found, in their order."""
    return [target.row(results) for target in HEADLINE]


def table(found: Sequence[HeadlineRow]) -> str:
    """Rows as a terminal shows them, with the verdicts counted at the end."""
    lines = [_cells(row) for row in found]
    widths = [max(len(line[at]) for line in [_HEAD, *lines]) for at in range(len(_HEAD))]
    text: list[str] = []
    part = ""
    for row, line in zip(found, lines, strict=True):
        if row.part != part:
            part = row.part
            text += ["", _aligned((part, *_HEAD[1:]), widths)]
        text.append(_aligned(line, widths))
    return "\n".join([*text[1:], "", summary(found)])


def markdown(found: Sequence[HeadlineRow]) -> str:
    """Rows as a table of a page; what is missed is bold."""
    lines = [_HEAD, ("---",) * len(_HEAD)]
    part = ""
    for row in found:
        if row.part != part:
            part = row.part
            lines.append((f"**{part}**", *("",) * (len(_HEAD) - 1)))
        cells = _cells(row)
        lines.append((*cells[:-1], f"**{cells[-1]}**" if row.verdict == MISSED else cells[-1]))
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def summary(found: Sequence[HeadlineRow]) -> str:
    """The number of rows with each verdict, in words."""
    verdicts = [row.verdict for row in found]
    return ", ".join(f"{verdicts.count(verdict)} {verdict}" for verdict in (MET, MISSED, NOT_JUDGED, NOT_MEASURED))


_HEAD: Final = ("what", "target", "figure", "ratio", "verdict")


def _cells(row: HeadlineRow) -> tuple[str, ...]:
    verdict = f"{row.verdict}: {row.note}" if row.note else row.verdict
    return row.what, row.target, row.figure, "" if row.ratio is None else f"{row.ratio:.3f}", verdict


def _aligned(line: Sequence[str], widths: Sequence[int]) -> str:
    return "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
