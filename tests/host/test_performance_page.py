"""docs/performance.md is what bench/table.py makes of the measured results."""

from __future__ import annotations

import json
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).parent.parent.parent
PAGE = (ROOT / "docs" / "performance.md").read_text()


def test_the_page_is_current() -> None:
    done = subprocess.run([sys.executable, "-m", "bench.table", "--check"], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr or "run python -m bench.table"


def test_every_problem_that_missed_a_target_is_bold() -> None:
    rows = json.loads((ROOT / "bench/results/h200.json").read_text())["problems"]
    below = [row for row in rows if row["ratio"] < row["target"] or row["copy_share"] < row["copy_target"]]
    assert f"{len(rows)} problems, {len(below)} below a target" in PAGE
    assert PAGE.count("**") == 4 * len(below)
