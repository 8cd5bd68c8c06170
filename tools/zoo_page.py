"""The page of the architectures of torchvision and transformers, made from ``bench/results/h200-zoo.json``, and beside it
``h200-zoo-graphs.json``: later kernels, with one exporter's files and beside CUDA graphs alone; and
``h200-zoo-float16.json``, some in float16, of the same run."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from fetch_models import ROOT

from dmlvk_bench.names import BESIDE
from dmlvk_bench.zoo.command import summary

RESULTS = ROOT / "bench" / "results" / "h200-zoo.json"
LATER = ROOT / "bench" / "results" / "h200-zoo-graphs.json"
HALVES = ROOT / "bench" / "results" / "h200-zoo-float16.json"

HEAD = """# Exported architectures

Architectures of torchvision and classes of transformers, with random weights, as PyTorch's two exporters write them.
Device: {device}, {driver}; PyTorch {torch}.
`python -m dmlvk bench --json bench/results/h200-zoo.json zoo --folder FOLDER --stages export,check,time` exports and runs
them. It can do so in parts: `--seconds` ends it with what there is, and with `--missing` another command goes on.

A file is right where every output is within 0.001 of what PyTorch's CPU computed, relative to the largest number in it; or
at most twice as far off as ONNX Runtime's CPU with the same file, if that is within 0.005; or within 0.001 of that. Of
detectors at most 2 % of the detections may differ in box, label, score or mask; 0.001 stands for these.

{summary}

Files of dynamo ran once more at commit {later[commit]} ({later[device]}, {later[driver]}, {date}), beside CUDA graphs alone,
until its time was over; the last column is of that run:

{later_summary}

Times are the caller's, arrays in and arrays out, in milliseconds. The columns of rivals say how many times ours theirs is; a
rival that is wrong stands in brackets.
Nothing else runs meanwhile: several files are made ready at a time, and then timed one after another.
Dispatches are those of a run, and host reads the times that it waits for computed values. "-": not exported or not timed;
the reasons are below the table, and of a wrong file how far others are off. One file of each architecture is timed{earlier}.

| architecture | kind | torchscript | dynamo | dispatches | host reads | ms | PyTorch eager | CUDA graph | WebGPU | \
CUDA graph, later |
| --- | --- | --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |
"""


IN_HALF = """
## In float16

Files of dynamo on {machine[device]}, {machine[driver]}, at commit {machine[commit]}; `--only float16` makes them. They are
compared with what PyTorch's CPU computes of the same weights in float32, and right within 0.02. A UNet has the size and the
parts of Stable Diffusion 1's, for two pictures of 64 x 64. Where PyTorch's own float16 is as far off, random weights
multiply each rounding.

{summary}

| architecture | right | dispatches | ms | CUDA graph |
| --- | --- | ---: | ---: | ---: |
"""

Row = dict[str, Any]


def page() -> str:
    """The page."""
    found = json.loads(RESULTS.read_text(encoding="utf-8"))
    rows: list[Row] = found["rows"]
    by_name: dict[str, dict[str, Row]] = {}
    for row in rows:
        by_name.setdefault(row["architecture"], {})[row["exporter"]] = row
    torch = next((row["torch"] for row in rows if "torch" in row), "")
    said = list(summary(rows))
    figures = _figures(said)
    reasons = [line for line in said if line not in figures]
    machine = found["machine"]
    later = json.loads(LATER.read_text(encoding="utf-8"))
    later_rows = {row["architecture"]: row for row in later["rows"] if "ms" in row}
    commits = sorted({row["commit"] for row in rows if "commit" in row})
    head = HEAD.format(
        device=machine["device"],
        driver=machine["driver"],
        torch=torch,
        summary=_listed(figures),
        earlier=f"; the others ran at commit {', '.join(commits)}" if commits else "",
        later=later["machine"],
        date=later["machine"]["date"][:10],
        later_summary=_listed(_figures(summary(later["rows"]))),
    )
    lines = [_line(files, later_rows.get(name)) for name, files in by_name.items()]
    return head + "".join(lines) + "\n" + "".join(f"- {line}\n" for line in reasons) + _in_half()


def _in_half() -> str:
    """The part of what runs in float16."""
    found = json.loads(HALVES.read_text(encoding="utf-8"))
    lines = []
    for row in sorted(found["rows"], key=lambda row: str(row["architecture"])):
        taken = f"{row['ms']:.2f}" if "ms" in row else "-"
        graph = _ratio(row if "ms" in row else None, "graph")
        cells = (row["architecture"], _verdict(row), str(row["dispatches"]), taken, graph)
        lines.append(f"| {' | '.join(cells)} |\n")
    wrong = [f"\n- {line}" for line in summary(found["rows"]) if line.startswith("wrong: ")]
    summed = _listed(_figures(summary(found["rows"])))
    return IN_HALF.format(machine=found["machine"], summary=summed) + "".join(lines) + "".join(wrong) + "\n" * bool(wrong)


def _figures(said: Iterable[str]) -> list[str]:
    """The lines of a summary that are about all files."""
    return [line for line in said if ": " not in line or line.split(":")[0] in BESIDE]


def _listed(lines: list[str]) -> str:
    return "\n".join(f"- {line}" for line in lines)


def _line(files: dict[str, Row], later: Row | None) -> str:
    """An architecture's line of the table: its times are those of the file that was timed, the better exporter's first."""
    any_row = next(iter(files.values()))
    timed = next((files[name] for name in ("dynamo", "torchscript") if "ms" in files.get(name, {})), None)
    ran = timed or next((row for row in files.values() if "dispatches" in row), {})
    cells = [
        any_row["architecture"],
        any_row["kind"],
        *(_verdict(files.get(name, {})) for name in ("torchscript", "dynamo")),
    ]
    cells += [*(str(ran.get(name, "-")) for name in ("dispatches", "host_reads")), f"{timed['ms']:.2f}" if timed else "-"]
    cells += [*(_ratio(timed, rival) for rival in BESIDE), _ratio(later, "graph")]
    return f"| {' | '.join(cells)} |\n"


def _verdict(row: Row) -> str:
    return {True: "right", False: "wrong", None: "-"}[row.get("right")]


def _ratio(row: Row | None, rival: str) -> str:
    theirs = row["rivals"].get(rival, {}) if row else {}
    if row is None or "ms" not in theirs:
        return "-"
    ratio = f"{theirs['ms'] / row['ms']:.2f}"
    return ratio if theirs["agrees"] else f"({ratio})"
