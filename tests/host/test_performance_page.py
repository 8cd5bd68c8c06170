"""docs/performance.md is what bench/table.py makes of the measured results."""

from __future__ import annotations

import json
import pathlib
import subprocess
import sys
from typing import Any

import pytest

from bench import run, table
from bench.models import page as models_page

ROOT = pathlib.Path(__file__).parent.parent.parent
PAGE = (ROOT / "docs" / "performance.md").read_text()


def test_the_page_is_current() -> None:
    done = subprocess.run([sys.executable, "-m", "bench.table", "--check"], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr or "run python -m bench.table"


def test_every_problem_that_missed_a_target_is_bold() -> None:
    rows = json.loads((ROOT / "bench/results/h200.json").read_text())["problems"]
    below = [row for row in rows if row["ratio"] < row["target"] or row["copy_share"] < row["copy_target"]]
    assert f"{len(rows)} problems, {len(below)} below a target" in PAGE
    compared = [*table.geometric_means(rows).values(), *table.own_ratios(rows).values()]
    groups = [ratio < target for _, ratio, target in compared]
    behind = [model for model in json.loads(table.WEBGPU.read_text())["models"] if model["ratio"] <= 1]
    models = models_page.misses(json.loads(table.MODELS.read_text())) if table.MODELS.exists() else 0
    assert PAGE.count("**") == 4 * len(below) + 2 * sum(groups) + 2 * len(behind) + 2 * models


def _row(problem: str, ratio: float, **more: Any) -> dict[str, Any]:
    plain = {"us": 10.0, "gb_per_s": 2.0, "copy_share": 0.5, "same_size_copy_share": 0.5, "copy_target": 0.0, "target": 0.9}
    return {"problem": problem, "chosen": True, "ratio": ratio, **plain, **more}


def test_problems_of_many_operations_have_a_table_of_their_own_and_their_group_a_mean() -> None:
    layer = {"operations": 10**9, "tflop_per_s": 12.34, "group": "layers", "group_target": 0.8}
    rows = [_row("add", 1.0), _row("conv a", 0.5, **layer), _row("conv b", 2.0, **layer)]
    rows.append(_row("gemv", 1.0, operations=10**9, tflop_per_s=1.0, copy_target=0.4))
    lines = table.arithmetic_table(rows)
    assert "| conv a | 10.0 | **12.3** | **0.50** | 0.90 x |" in lines
    assert "| conv b | 10.0 | 12.3 | 2.00 | 0.90 x |" in lines
    assert lines[-1] == "Geometric mean of the 2 layers: 1.00 x PyTorch; target 0.80 x."
    assert table.arithmetic_table(rows, ("conv a",))[-1] == lines[-1], "of all, whatever is shown"
    assert [line.split("|")[1].strip() for line in table.table(rows)[2:]] == ["add", "gemv"]


def test_integers_are_compared_with_our_own_float16() -> None:
    name, other, _ = table.INTEGERS[0]
    rows = [_row(name, 1.0, operations=1, tflop_per_s=110.0), _row(other, 1.0, operations=1, tflop_per_s=100.0)]
    assert table.arithmetic_table(rows)[-1] == f"*{name}*: **1.10** x our *{other}*; target 1.20 x."


@pytest.mark.parametrize(("best", "reported"), [(10.0, False), (9.6, False), (9.5, True)])
def test_a_sweep_reports_choices_that_are_more_than_five_percent_off(best: float, reported: bool) -> None:
    rows: list[dict[str, Any]] = [
        {"problem": "p", "rule": "taken", "chosen": True, "us": 10.0},
        {"problem": "p", "rule": "other", "chosen": False, "us": best},
        {"problem": "q", "rule": "taken", "chosen": True, "us": 1.0},
    ]
    lines = run.slower_than_possible(rows)
    assert [line.startswith("p: taken is chosen") and "of other" in line for line in lines] == [True] * reported


def test_one_node_models_have_a_section() -> None:
    models = [
        {"model": "conv", "us": 2.0, "tflop_per_s": 12.34, "rival_us": 8.0, "ratio": 4.0},
        {"model": "gemm", "us": 2.0, "tflop_per_s": 1.0, "rival_us": 0.5, "ratio": 0.25},
    ]
    lines = table.one_node_section({"onnxruntime": "1.2.3", "date": "2026-11-21T00:00", "commit": "abc", "models": models})
    assert "Ahead on 1 of 2, by\na geometric mean of 1.00 x" in lines[0]
    assert lines[-2:] == ["| conv | 2.0 | 12.3 | 8.0 | 4.00 |", "| gemm | 2.0 | 1 | 0.5 | **0.25** |"]
