"""Run the models of tests/data/models.json as ONNX Runtime saves them after its optimiser, at each of its levels.

    python tools/run_saved_models.py [--write] [--timeout SECONDS] [NAME]...

ONNX Runtime's CPU saves each model whose file is there at the levels basic, extended and all; dmlvk loads what was saved and
runs it on the inputs of ``run_models.py``. The outputs must be those of the original model in ONNX Runtime, within the
model's tolerance. Each model runs in a process of its own; smaller ones come first. ``--write`` puts the outcomes into the
record, beside those of models that did not run. Exit status 1 where a model was not right at some level.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, Final

import onnxruntime
from fetch_models import is_present, target
from models_page import SAVED, listed, name_of, read_saved
from onnxruntime import GraphOptimizationLevel
from run_models import MismatchError, compare, device_name, feeds_of, reference_of

import dmlvk
from dmlvk.onnx import InferenceSession, SessionOptions

LEVELS: Final = {
    "basic": GraphOptimizationLevel.ORT_ENABLE_BASIC,
    "extended": GraphOptimizationLevel.ORT_ENABLE_EXTENDED,
    "all": GraphOptimizationLevel.ORT_ENABLE_ALL,
}


def save(row: dict[str, Any], level: str, folder: Path) -> Path:
    """The file that ONNX Runtime saves of a model at a level."""
    path = folder / f"{level}.onnx"
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.graph_optimization_level = LEVELS[level]
    options.optimized_model_filepath = str(path)
    onnxruntime.InferenceSession(str(target(row)), options, providers=["CPUExecutionProvider"])
    return path


def run_saved(row: dict[str, Any], device: dmlvk.Device) -> dict[str, float | str]:
    """For each level the largest difference as a share of what is allowed, or why the model is not right."""
    options = SessionOptions(float64_as_float32=row.get("float64_as_float32", False))
    feeds = feeds_of(row, InferenceSession(target(row), device, options).get_inputs())
    wanted = reference_of(row, feeds)
    outcomes: dict[str, float | str] = {}
    with tempfile.TemporaryDirectory() as folder:
        for level in LEVELS:
            try:
                session = InferenceSession(save(row, level, Path(folder)), device, options)
                given = {info.name: feeds[info.name] for info in session.get_inputs()}  # it drops what is not read
                outcomes[level] = float(f"{compare(row, session.run(None, given), wanted):.2g}")
            except (MismatchError, dmlvk.DmlvkError) as error:
                outcomes[level] = str(error)
    return outcomes


def run_apart(row: dict[str, Any], timeout: float) -> dict[str, float | str]:
    """``run_saved`` in a process of its own."""
    command = [sys.executable, __file__, "--alone", name_of(row)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=timeout, check=False)
    except subprocess.TimeoutExpired:
        return dict.fromkeys(LEVELS, f"takes longer than {timeout:.0f} s")
    if done.returncode:
        *_, reason = ["no reason given", *done.stderr.strip().splitlines()]
        return dict.fromkeys(LEVELS, reason)
    outcomes: dict[str, float | str] = json.loads(done.stdout.splitlines()[-1])
    return outcomes


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="put the models into the record")
    parser.add_argument("--timeout", type=float, default=900, metavar="SECONDS", help="for each model (900)")
    parser.add_argument("--alone", action="store_true", help="run one model in this process, and print its outcomes as JSON")
    parser.add_argument("names", nargs="*", metavar="NAME")
    arguments = parser.parse_args()
    rows = [row for row in listed().values() if is_present(row)]
    if arguments.names:
        rows = [row for row in rows if {row["file"], name_of(row)} & set(arguments.names)]
    if not rows:
        parser.error("no such model, or its file is not there")
    if arguments.alone:
        print(json.dumps(run_saved(rows[0], dmlvk.Device())))
        return 0
    record, wrong = read_saved(), 0
    record |= {"device": device_name(), "onnxruntime": onnxruntime.__version__}
    for row in sorted(rows, key=lambda row: int(row["size"])):
        outcomes = run_apart(row, arguments.timeout)
        wrong += any(isinstance(outcome, str) for outcome in outcomes.values())
        print(name_of(row), *(f"{level}: {outcome}" for level, outcome in outcomes.items()), sep="  ", flush=True)
        record["models"][name_of(row)] = outcomes
        if arguments.write:
            record["models"] = {name: record["models"][name] for name in listed() if name in record["models"]}
            SAVED.write_text(f"{json.dumps(record, indent=1, ensure_ascii=False)}\n", encoding="utf-8")
    print(f"{len(rows) - wrong} of {len(rows)} models are right at all levels")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
