"""The page of PyTorch's operators and architectures, made from ``bench/results/lavapipe-torch.json``, and for architectures
in full size from ``h100-torch.json`` beside it."""

from __future__ import annotations

import json
import re
from collections import Counter
from typing import Any

from fetch_models import ROOT

RESULTS = ROOT / "bench" / "results" / "lavapipe-torch.json"
FULL = ROOT / "bench" / "results" / "h100-torch.json"

HEAD = """# PyTorch: operators and architectures

What ran through PyTorch's compiler on {device}: PyTorch {torch}, torchvision {torchvision} and transformers
{transformers}.

## Architectures

Random weights, in small sizes on {device}; and in the sizes that were published, in batches of two, on {full_device}
beside float32 and float64 of CUDA (of language models with more than some 0.6 billion parameters the widths, with fewer
layers). `tools/torch_architectures.py` runs them; `bench/results/lavapipe-torch.json` and `h100-torch.json` have the
commit of each row. A result is right where each output, and after a training step each gradient and each statistic, is
within 0.001 of float64, relative to the largest number in it, or at most four times as far from it as PyTorch's float32.
Nothing runs elsewhere: an operator without a converter is an error.
In a deep network a rounding may decide whether a number is above 0, and a gradient then goes elsewhere, in PyTorch's
float32 as in any other: one run of it does not say how far it is. So where a step is not right beside that run, up to
sixteen more are asked, of weights and inputs that are each one unit in the last place more or less or the same. A step
each of whose tensors is at most one and a half times as far as the farthest of those is "right (moved)".

{summary}

| architecture | inference | training step | inference, full size | training step, full size |
| --- | --- | --- | --- | --- |
"""

OPERATORS = """
## Operators

PyTorch's own samples of its operators (its OpInfo database, by `tools/torch_operators.py`), of commit {commit}, {date}.
A sample of a number type that is close to PyTorch's result by PyTorch's own tolerance, or at most four times as far from
float64, is right. "Refused" are samples that no converter takes; "failed" ended in another error. Where PyTorch leaves open
which of equal elements comes first, places are right that are different and have the same elements.

| run | operators | right | wrong | refused | failed |
| --- | ---: | ---: | ---: | ---: | ---: |
{runs}

### What is refused

{classes}

### Every operator

Counts are of right / wrong / refused / failed samples; "-" is of no sample, or of an operator that the run did not reach.

| operator | float32 | other types | gradients | why samples are refused |
| --- | --- | --- | --- | --- |
"""

_RUNS = (
    ("operators", "float32, up to three samples of each operator"),
    ("others", "float16, int64, uint8 and bool, one sample each"),
    ("gradients", "gradients of float32, up to three samples of each operator"),
)
_CLASSES = (
    (
        r"complex|fft|_conj|polar|sparse",
        "Complex, sparse and quantized tensors: no operator of the engine has such elements.",
    ),
    (
        r"follow from|truth values",
        "Sizes that follow from numbers on the device: the plan of a graph is made before it runs.",
    ),
    (
        r"linalg|cholesky|lu_unpack|qr|svd|eigh|ormqr|triangular|matrix_exp|householder|pinv|ldl",
        "Decompositions and solutions of linear algebra: nothing in DirectML's operators computes them.",
    ),
    (
        r"special_|bessel|polygamma|zeta|ndtri|igamma|gamma|erf",
        "Functions of mathematical physics that few models use, and float64 of some others.",
    ),
    (r"DML_OPERATOR|not supported|does not take", "Types and cases that an operator which is there does not take."),
    (r"", "Operators without a converter."),
)
_STATES = ("right", "wrong", "refused", "failed")
_MOVED = "right (moved)"


def page() -> str:
    """The page."""
    found, full = (json.loads(path.read_text(encoding="utf-8")) for path in (RESULTS, FULL))
    states: dict[str, dict[str, str]] = {}
    for rows, where in ((found["architectures"], ""), (full["architectures"], ", full size")):
        for row in rows:
            states.setdefault(row["name"], {})[row["kind"] + where] = _state(row)
    columns = [kind + where for where in ("", ", full size") for kind in ("inference", "training")]
    lines = []
    for kind in columns:
        counts = Counter(row[kind] for row in states.values() if kind in row)
        right = counts["right"] + counts[_MOVED]
        words = kind.replace("training", "training step").capitalize()
        said = f"- {words}: {right} of {sum(counts.values())} that were tried are right"
        lines.append(f"{said}, {counts[_MOVED]} of them beside moved numbers." if counts[_MOVED] else f"{said}.")
    versions = {name: found[name] for name in ("device", "torch", "torchvision", "transformers")}
    text = HEAD.format(summary="\n".join(lines), full_device=full["device"], **versions)
    for name, row in states.items():
        text += f"| {name} | {' | '.join(row.get(kind, '-') for kind in columns)} |\n"
    known: dict[str, dict[str, dict[str, Any]]] = {run: {row["name"]: row for row in found[run]} for run, _ in _RUNS}
    runs = []
    for run, words in _RUNS:
        totals = Counter[str]()
        for row in found[run]:
            totals.update(row["counts"])
        said = " | ".join(f"{totals[state]:,}" for state in _STATES)
        runs.append(f"| {words} | {len(found[run])} | {said} |")
    reasons = {name: _reason([rows[name] for rows in known.values() if name in rows]) for name in known["operators"]}
    classes: Counter[str] = Counter(_class(why) for why in reasons.values() if why)
    listed = "\n".join(f"- {words} {classes[words]} operators." for _, words in _CLASSES if classes[words])
    text += OPERATORS.format(runs="\n".join(runs), classes=listed, commit=found["commit"], date=found["date"])
    for name, why in reasons.items():
        cells = " | ".join(_counts(rows.get(name)) for rows in known.values())
        text += f"| {name} | {cells} | {why} |\n"
    return text


def _state(row: dict[str, Any]) -> str:
    state: str = row["state"]
    return _MOVED if state == "right" and "moved" in row else state


def _counts(row: dict[str, Any] | None) -> str:
    counts = {} if row is None else row["counts"]
    shown = " / ".join(str(counts.get(state, 0)) for state in _STATES)
    return shown if any(counts.get(state) for state in _STATES) else "-"


def _reason(rows: list[dict[str, Any]]) -> str:
    """Why some sample of an operator is refused, in a few words; "" where none is."""
    for row in rows:
        for kind, why in row["reasons"].items():
            if kind.startswith("refused"):
                text = re.sub(r"^sample \d+: ", "", why).split("; options=")[0]
                return text.replace("|", "/").replace("no converter for the operators ", "no converter: ")[:160]
    return ""


def _class(reason: str) -> str:
    return next(words for pattern, words in _CLASSES if re.search(pattern, reason))
