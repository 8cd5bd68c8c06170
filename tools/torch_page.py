"""The page of PyTorch's operators and architectures, made from ``bench/results/lavapipe-torch.json``."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

from fetch_models import ROOT

RESULTS = ROOT / "bench" / "results" / "lavapipe-torch.json"

HEAD = """# PyTorch: operators and architectures

What ran through PyTorch's compiler on {device}: PyTorch {torch}, torchvision {torchvision} and transformers
{transformers}.

## Architectures

Random weights and small sizes (`tools/torch_architectures.py`). A result is right where each output, and after a training
step each gradient and each statistic, is within 0.001 of float64, relative to the largest number in it, or at most four
times as far from it as PyTorch's float32. Nothing runs elsewhere: an operator without a converter is an error.
In a deep network a rounding may decide whether a number is above 0, and a gradient then goes elsewhere: such a
step counts as wrong here.

{summary}

| architecture | inference | training step |
| --- | --- | --- |
"""

OPERATORS = """
## Operators

PyTorch's own samples of each of {count} operators (its OpInfo database, by `tools/torch_operators.py`): up to three of
float32, and one each of float16, int64, uint8 and bool. {totals}.
"Refused" are samples that no converter takes, among them complex, sparse and float64 ones; "failed" ended in another error.
Where the order of equal elements is open, as in `sort`, another order than PyTorch's counts as wrong here.

| operator | right | wrong | refused | failed |
| --- | ---: | ---: | ---: | ---: |
"""

_STATES = ("right", "wrong", "refused", "failed")


def page() -> str:
    """The page."""
    found = json.loads(RESULTS.read_text(encoding="utf-8"))
    states: dict[str, dict[str, str]] = {}
    for row in found["architectures"]:
        states.setdefault(row["name"], {})[row["kind"]] = row["state"]
    lines = []
    for kind, words in (("inference", "Inference"), ("training", "A training step")):
        counts = Counter(row[kind] for row in states.values() if kind in row)
        lines.append(f"- {words}: {counts['right']} of {sum(counts.values())} that were tried are right.")
    versions = {name: found[name] for name in ("device", "torch", "torchvision", "transformers")}
    text = HEAD.format(summary="\n".join(lines), **versions)
    text += "".join(
        f"| {name} | {row.get('inference', '-')} | {row.get('training', '-')} |\n" for name, row in states.items()
    )
    operators: list[dict[str, Any]] = found["operators"]
    totals: Counter[str] = Counter()
    for row in operators:
        totals.update(row["counts"])
    said = ", ".join(f"{totals[state]:,} {state}" for state in _STATES)
    text += OPERATORS.format(count=len(operators), totals=f"In all: {said}")
    for row in operators:
        text += f"| {row['name']} | {' | '.join(str(row['counts'].get(state, 0)) for state in _STATES)} |\n"
    return text
