"""Writes the measured figures as Markdown, from ``bench/results/h200.json``: ``docs/performance.md``, and a part of it in
``README.md`` between two marks. The page also has those of ``h200-models.json`` and ``h200-webgpu.json`` there.

python -m bench.table [--check]
"""

from __future__ import annotations

import argparse
import json
import math
import pathlib
import sys
from typing import Any

from bench.models import page as models_page

ROOT = pathlib.Path(__file__).resolve().parent.parent
RESULTS = ROOT / "bench/results/h200.json"
WEBGPU = ROOT / "bench/results/h200-webgpu.json"
MODELS = ROOT / "bench/results/h200-models.json"
PAGE = ROOT / "docs/performance.md"
README = ROOT / "README.md"
MARKS = ("<!-- python -m bench.table writes this -->\n", "<!-- up to here -->\n")
TYPES = ("FLOAT32", "FLOAT16")
HEADLINES = (
    "floor modulus",
    "ActivationRelu",
    "ActivationGelu",
    "add and relu",
    "dequantize",
    "transpose",
    "NCHW to NHWC",
    "join, rows",
    "slice, columns from 1",
    "padding, height and width",
    "tile 1x2",
    "gather along 0 of 262144x1024",
    "scatter rows, 33554432",
    "row sum",
    "column sum 16384x8192",
    "arg-max of rows",
    "softmax 16384x8192",
    "softmax over channels",
    "layer norm, last axis",
    "instance norm, axes",
    "one-group norm",
    "batch norm, NCHW 32",
    "average pooling 3x3 stride 1 NCHW",
    "bilinear 2x NCHW",
    "ROI align 1000",
    "ROI align gradient of images NCHW",
    "max pooling gradient 2x2 stride 2 NCHW",
    "max pooling gradient 3x3 stride 1 NCHW 32",
    "batch norm gradient, NCHW",
    "batch norm training gradient, NCHW 32",
    "gradient of bilinear 2x NCHW 32x64",
    "Adam 1x1",
    "cumulative sum, last axis",
    "top-k 100 of 4096",
    "GEMM depth 4096",
    "GEMM depth 8192",
    "GEMM depth 4093",
    "GEMM depth 512",
    "GEMM depth 16384 1x16384",
    "integer product with kept B depth 4096",
    "convolution 3x3 256 to 256 channels",
    "depthwise 3x3 256 to 256 channels",
    "attention FLOAT16",
    "attention, BERT-base",
    "Lstm FLOAT32 hidden 512",
    "Gru FLOAT32 hidden 512",
)
"""How the problems begin that README shows."""
INTEGERS = tuple(
    (f"integer product with kept B depth {size} INT8 {size}x{size}", f"GEMM depth {size} FLOAT16 {size}x{size}", 1.2)
    for size in (4096, 8192)
)
"""A problem, another one of as many operations, and how many times as fast as that the first one is meant to be."""


def _goal(row: dict[str, Any]) -> str:
    parts = [f"{row['copy_target']:.2f} of copy"] * bool(row["copy_target"])
    parts += [f"{row['target']:.2f} x"] * bool(row["target"])
    return ", ".join(parts)


def missed(row: dict[str, Any]) -> bool:
    """Whether a measured row is below one of its targets."""
    return bool(row["ratio"] < row["target"] or row["copy_share"] < row["copy_target"])


def figures(row: dict[str, Any] | None) -> str:
    """A row's cells: GB/s, share of the copy bandwidth, ratio to PyTorch; bold where it missed its target."""
    if row is None:
        return "| | |"
    mark = "**" if missed(row) else ""
    share = f"{row['copy_share']:.2f}"
    same_size = row["same_size_copy_share"]
    if abs(same_size - row["copy_share"]) >= 0.02:
        share += f" ({same_size:.2f})"
    return f"{row['gb_per_s']:.0f} | {mark}{share}{mark} | {mark}{row['ratio']:.2f}{mark}"


def arithmetic(row: dict[str, Any]) -> bool:
    """Whether operations are what counts in a measured row, not bytes."""
    return bool(row.get("operations")) and not row["copy_target"]


def geometric_means(rows: list[dict[str, Any]]) -> dict[str, tuple[int, float, float]]:
    """How many problems each group has, the geometric mean of their ratios, and its target."""
    found: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        if row.get("group"):
            found.setdefault(row["group"], []).append(row)
    return {
        name: (len(group), math.exp(sum(math.log(row["ratio"]) for row in group) / len(group)), group[0]["group_target"])
        for name, group in found.items()
    }


def own_ratios(rows: list[dict[str, Any]]) -> dict[str, tuple[str, float, float]]:
    """Of what is compared with ourselves, by problem: the other one, how many times as fast it is, and its target."""
    speeds = {row["problem"]: row["tflop_per_s"] for row in rows if arithmetic(row)}
    return {
        name: (other, speeds[name] / speeds[other], target)
        for name, other, target in INTEGERS
        if name in speeds and other in speeds
    }


def arithmetic_table(rows: list[dict[str, Any]], begins: tuple[str, ...] = ("",)) -> list[str]:
    """A Markdown table of the rows that begin so and in which operations count, and lines about all of these: one for each
    group, and one for each that is compared with ourselves."""
    shown = [row for row in rows if arithmetic(row) and row["problem"].startswith(begins)]
    if not shown:
        return []
    lines = ["| | us | TFLOP/s | x PyTorch | target |", "| --- | --- | --- | --- | --- |"]
    for row in shown:
        mark = "**" if missed(row) else ""
        speed = f"{mark}{row['tflop_per_s']:.3g}{mark} | {mark}{row['ratio']:.2f}{mark}"
        lines.append(f"| {row['problem']} | {row['us']:.1f} | {speed} | {_goal(row)} |")
    for name, (count, mean, target) in geometric_means(rows).items():
        lines += ["", f"Geometric mean of the {count} {name}: {_marked(mean, target)} x PyTorch; target {target:.2f} x."]
    for name, (other, ratio, target) in own_ratios(rows).items():
        lines += ["", f"*{name}*: {_marked(ratio, target)} x our *{other}*; target {target:.2f} x."]
    return lines


def _marked(ratio: float, target: float) -> str:
    """A ratio, bold where it missed its target."""
    return f"**{ratio:.2f}**" if ratio < target else f"{ratio:.2f}"


def table(rows: list[dict[str, Any]], begins: tuple[str, ...] = ("",)) -> list[str]:
    """A Markdown table of the rows that begin so and in which bytes count, those that differ in FLOAT32 and FLOAT16 alone
    side by side."""
    found: dict[str, dict[str, dict[str, Any]]] = {}
    for row in rows:
        if arithmetic(row):
            continue
        words = row["problem"].split(" ")
        kinds = [word for word in words if word in TYPES]
        # What changes the type names two, or another one: its figures stand in the first columns.
        kind = kinds[0] if len(kinds) == 1 and "cast" not in words and "quantize" not in row["problem"] else TYPES[0]
        name = row["problem"] if len(kinds) != 1 or "cast" in words else " ".join(w for w in words if w not in TYPES)
        if kinds and kind == kinds[-1]:
            name = name.replace({TYPES[0]: "268435456", TYPES[1]: "536870912"}[kind], "1 GiB")
        found.setdefault(name, {})[kind] = row
    lines = [
        "| | float32 GB/s | of copy | x PyTorch | float16 GB/s | of copy | x PyTorch | target |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for name, kinds_of in found.items():
        if not name.startswith(begins):
            continue
        goal = _goal(next(iter(kinds_of.values())))
        lines.append(f"| {name} | {figures(kinds_of.get(TYPES[0]))} | {figures(kinds_of.get(TYPES[1]))} | {goal} |")
    return lines


_INTRODUCTION = """# Performance

Generated by `python -m bench.table` from `bench/results/h200.json`; a test fails while it is stale.

{device}, driver {driver}, {date}; commit {commit}.
PyTorch's CUDA kernels ran in the same process on the same numbers, and both outputs were compared with float32
results before a time counted; random bits and coordinates, which cannot be, with what they should be. GB/s count one
read of each input and one write of each output, whatever was read twice; shares are of the copy bandwidth of the same
run, {copy:.0f} GB/s over 1 GiB, and in brackets, where it differs, of what the same copy kernel reaches over as many
bytes as the problem has: starting and draining a dispatch costs microseconds. What is below its target is bold.
"""

_ARITHMETIC = """
Where operations are what counts: TFLOP/s, or as many operations of integers, a multiply-add counted as two. PyTorch's
float32 is float32 (no TF32), and cuDNN takes the algorithm that it measures to be the fastest. Its times are those of
eager calls, between events: of problems of a few microseconds they hold its launches, as ours hold the barriers between
repeats of a recorded list.
"""

_ONE_NODE = """
## Beside ONNX Runtime's WebGPU provider

ONNX Runtime {onnxruntime}, {date}; commit {commit}. Each product and convolution of ResNet-50 and BERT-base is a float32
model of one node, in a session of ours and in one of the provider's on the same GPU. Inputs and outputs stay on the
device; a run's time is that of many, handed over one after another, launches included. Ahead on {ahead} of {count}, by
a geometric mean of {mean:.2f} x; what is not ahead is bold.
"""

_LAUNCHES = """
{count} problems, {missed} below a target.

One tiny dispatch, submitted and seen done from Python on a replayed list: {one:.1f} us; each further dependent one
{dependent:.2f} us, each independent one {independent:.2f} us.
"""


def one_node_section(results: dict[str, Any]) -> list[str]:
    """The lines about one-node models."""
    rows = results["models"]
    introduction = _ONE_NODE.format(
        onnxruntime=results["onnxruntime"],
        date=results["date"][:10],
        commit=results["commit"],
        ahead=sum(row["ratio"] > 1 for row in rows),
        count=len(rows),
        mean=math.exp(sum(math.log(row["ratio"]) for row in rows) / len(rows)),
    )
    lines = [introduction, "| | us | TFLOP/s | WebGPU us | x WebGPU |", "| --- | --- | --- | --- | --- |"]
    for row in rows:
        mark = "" if row["ratio"] > 1 else "**"
        figures = f"{row['us']:.1f} | {row['tflop_per_s']:.3g} | {row['rival_us']:.1f}"
        lines.append(f"| {row['model']} | {figures} | {mark}{row['ratio']:.2f}{mark} |")
    return lines


def page(results: dict[str, Any], one_node: dict[str, Any], models: dict[str, Any] | None) -> str:
    """The page, with a section about whole models where these have been measured."""
    rows = [row for row in results["problems"] if row["chosen"]]
    launch = results["launch_us"]
    introduction = _INTRODUCTION.format(
        device=results["device"],
        driver=results["driver"],
        date=results["date"][:10],
        commit=results["commit"],
        copy=max(results["copy_gb_per_s"], results["rival_copy_gb_per_s"]),
    )
    launches = _LAUNCHES.format(
        count=len(rows),
        missed=sum(map(missed, rows)),
        one=launch["1 dependent"],
        dependent=launch["1000 dependent"] / 1000,
        independent=launch["1000 independent"] / 1000,
    )
    operations = arithmetic_table(rows)
    whole = [] if models is None else models_page.section(models)
    lines = [introduction, *table(rows), *([_ARITHMETIC, *operations] if operations else []), launches]
    return "\n".join([*lines, *whole, *one_node_section(one_node), ""])


def readme(results: dict[str, Any], models: dict[str, Any] | None) -> str:
    """README with its part written anew."""
    rows = [row for row in results["problems"] if row["chosen"]]
    before, rest = README.read_text().split(MARKS[0])
    after = rest.split(MARKS[1])[1]
    launch = results["launch_us"]
    sentence = (
        f"{len(rows)} problems in all, {sum(map(missed, rows))} below a target. One tiny dispatch, submitted and seen done "
        f"from Python on a replayed list: {launch['1 dependent']:.0f} us; each\nfurther dependent one "
        f"{launch['1000 dependent'] / 1000:.1f} us, each independent one {launch['1000 independent'] / 1000:.2f} us.\n"
    )
    operations = arithmetic_table(rows, HEADLINES)
    whole = [] if models is None else [*models_page.headlines(models), ""]
    lines = "\n".join([*table(rows, HEADLINES), *(["", *operations] if operations else []), "", sentence, *whole])
    return before + MARKS[0] + lines + MARKS[1] + after


def main() -> int:
    """Writes both, or with --check says whether one is stale."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    results = json.loads(RESULTS.read_text())
    models = json.loads(MODELS.read_text()) if MODELS.exists() else None
    texts = {PAGE: page(results, json.loads(WEBGPU.read_text()), models), README: readme(results, models)}
    if parser.parse_args().check:
        return int(any(path.read_text() != text for path, text in texts.items()))
    for path, text in texts.items():
        path.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
