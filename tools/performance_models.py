"""The measured models as Markdown, for ``performance_page``."""

from __future__ import annotations

from statistics import geometric_mean
from typing import Any

from dmlvk_bench.results import Results, best_rival

GOAL, START_GOAL, MEMORY_GOAL = 2.0, 0.5, 1.2
"""Times as fast as WebGPU on the geometric mean of the files; seconds to a first result at the second start; peak memory
beyond the weights, as a multiple of the largest live set."""

_INTRODUCTION = """
## Whole models

Beside the same rivals in the same process, on the same inputs, outputs compared before a time counted. A time is that of a
run as its caller sees it, inputs handed over from and outputs read into the host's memory: the median of at least 20 after a
warm-up.
*Kernels* is the GPU's part of another run, from the start of the first to the end of the last, timestamps between them
included. PyTorch's eager and graph are the faster ones of NCHW and NHWC, without TF32; WebGPU's is the faster one of plain
runs and of recorded commands. Whose outputs are off by more than 1e-4 of the largest number (1e-2 in float16 and for
`common_old.onnx`, which is quantized) has no figure. Weights are random{exceptions}, the same ones for all. What misses its
target is bold.
"""

_FILES = """
The ten largest models of `tests/data/models.json`: as fast as WebGPU or faster on {ahead} of the {count} that it runs;
geometric mean {mean} x, target {goal:.2f} x.
"""

_START = """
A first result of ResNet-50, float32, batch 1, from the start of Python: {first:.2f} s with empty caches of
pipelines and byte code, {second} s the second time ({parts}).
"""

_MEMORY = """
Device memory: weights, the arena of everything else, the most that was in use, and that beyond the weights and the kernels'
parameters (64 KiB or a few) as a multiple of the largest set of tensors that live at the same time; target {goal:.1f}.
"""


def ratio(row: dict[str, Any]) -> float | None:
    """Times as fast as WebGPU; None where that does not run the model."""
    rival = best_rival(row, "WebGPU")
    return None if rival is None else rival["ms"] / row["ms"]


def ratios(rows: list[dict[str, Any]]) -> list[float]:
    """The figures of the models that WebGPU runs."""
    return [found for row in rows if (found := ratio(row)) is not None]


def memory_share(row: dict[str, Any]) -> float:
    """Peak memory beyond the weights and the kernels' parameters as a multiple of the largest live set."""
    return float((row["peak_bytes"] - row["weights_bytes"] - row["parameters_bytes"]) / row["live_bytes"])


def bold(text: str, missed: bool) -> str:
    """A figure, bold where it missed its target."""
    return f"**{text}**" if missed else text


def _ms(figures: dict[str, Any] | None) -> str:
    return "" if figures is None else f"{figures['ms']:.2f}"


def networks(results: Results) -> list[dict[str, Any]]:
    """The rows that have a target of their own."""
    return [row for row in results.models if row["target_ms"] is not None]


def files(results: Results) -> list[dict[str, Any]]:
    """The others."""
    return [row for row in results.models if row["target_ms"] is None]


def network_table(results: Results) -> list[str]:
    """The networks' times."""
    lines = [
        "| | ms | kernels ms | dispatches | PyTorch eager ms | graph ms | WebGPU ms | target ms |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for row in networks(results):
        rivals = (best_rival(row, begins) for begins in ("PyTorch eager", "PyTorch graph", "WebGPU"))
        ours = f"{bold(_ms(row), row['ms'] > row['target_ms'])} | {row['gpu_ms']:.2f} | {row['dispatches']}"
        lines.append(f"| {row['model']} | {ours} | {' | '.join(map(_ms, rivals))} | {row['target_ms']:g} |")
    return lines


def file_table(results: Results) -> list[str]:
    """The files' times, and a line about all of them before."""
    rows = files(results)
    if not rows:
        return []
    times = ratios(rows)
    mean = geometric_mean(times)
    ahead = sum(found >= 1 for found in times)
    lines = [_FILES.format(ahead=ahead, count=len(times), mean=bold(f"{mean:.2f}", mean < GOAL), goal=GOAL)]
    lines += [
        "| | ms | kernels ms | dispatches | first run s | WebGPU ms | its first run s | nodes on its CPU | x WebGPU |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for row in rows:
        rival, found = best_rival(row, "WebGPU"), ratio(row)
        theirs = "does not run it | |" if rival is None else f"{rival['ms']:.2f} | {rival['first_s']:.2f} |"
        left = row.get("webgpu_cpu_nodes", {})
        nodes = sum(left.values()) if isinstance(left, dict) else ""
        shown = "" if found is None else bold(f"{found:.2f}", found < 1)
        ours = f"{row['ms']:.2f} | {row['gpu_ms']:.2f} | {row['dispatches']} | {row['first_s']:.2f}"
        lines.append(f"| {row['model']} | {ours} | {theirs} {nodes} | {shown} |")
    return lines


def memory_table(results: Results) -> list[str]:
    """Device memory, in MB."""
    lines = [
        _MEMORY.format(goal=MEMORY_GOAL),
        "| | weights MB | arena MB | peak MB | of live |",
        "| --- | --- | --- | --- | --- |",
    ]
    for row in results.models:
        share = memory_share(row)
        sizes = " | ".join(f"{row[name] / 1e6:.1f}" for name in ("weights_bytes", "activation_bytes", "peak_bytes"))
        lines.append(f"| {row['model']} | {sizes} | {bold(f'{share:.2f}', share > MEMORY_GOAL)} |")
    return lines


def start_line(results: Results) -> str:
    """How long a first result takes."""
    first, second = results.starts
    parts = ", ".join(f"{name} {second[name]:.2f}" for name in ("imports", "device", "session", "run"))
    taken = bold(f"{second['total']:.2f}", second["total"] > START_GOAL)
    return _START.format(first=first["total"], second=taken, parts=parts)


def section(results: Results) -> list[str]:
    """The lines of the page."""
    own = [row["model"] for row in results.models if not row["random_weights"]]
    exceptions = f" (those of {', '.join(own)} are its own)" if own else ""
    introduction = _INTRODUCTION.format(exceptions=exceptions)
    starts = [start_line(results)] if results.starts else []
    return [introduction, *network_table(results), *file_table(results), *starts, *memory_table(results)]


def misses(results: Results) -> int:
    """How many figures of the section are bold."""
    rows = files(results)
    missed = [row["ms"] > row["target_ms"] for row in networks(results)]
    missed += [found < 1 for found in ratios(rows)]
    missed += [geometric_mean(ratios(rows)) < GOAL] * bool(rows)
    missed += [memory_share(row) > MEMORY_GOAL for row in results.models]
    missed += [start["total"] > START_GOAL for start in results.starts[1:]]
    return sum(missed)
