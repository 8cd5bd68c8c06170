"""Run DxDispatch's published models, unchanged, and compare what they compute.

    python tools/run_dxdispatch.py CHECKOUT [--write]

CHECKOUT is one of github.com/microsoft/DirectML. The outputs of each dispatch are compared with the operators' float64
oracles, within what their cases tolerate, and those of ONNX models and serialised graphs with ONNX Runtime's CPU.
``--write`` puts the outcomes into ``tests/data/dxdispatch.json`` and into the table of ``docs/dxdispatch.md``. Exit status 1
where one is wrong.
"""

from __future__ import annotations

import argparse
import json
import pathlib
import re
import tempfile
from typing import Any, Final

import numpy as np
import numpy.typing as npt

ROOT: Final = pathlib.Path(__file__).parent.parent
RECORD: Final = ROOT / "tests" / "data" / "dxdispatch.json"
PAGE: Final = ROOT / "docs" / "dxdispatch.md"
_TABLE: Final = re.compile(r"(?<=## The published examples\n\n).*", re.DOTALL)
_SOURCE: Final = "https://github.com/microsoft/DirectML/tree/{commit}/DxDispatch/models"
_CLOSE: Final = 1e-5

Array = npt.NDArray[Any]


def table(record: dict[str, Any]) -> str:
    """The outcomes as the page has them."""
    right = [item for item in record["models"] if item["compared"]]
    refused = [item for item in record["models"] if not item["compared"]]
    lines = [
        f"Of the {len(record['models'])} models of [DxDispatch's folder]({_SOURCE.format(**record)}) "
        f"{len(right)} run unchanged and give what they should; {len(refused)} are refused. Device: {record['device']}.",
        "",
        "| model | what runs | compared with | largest error |",
        "| --- | --- | --- | --- |",
    ]
    lines += [f"| `{item['model']}` | {item['what']} | {item['compared']} | {item['error']} |" for item in right]
    lines += [f"| `{item['model']}` | {item['what']} | refused | |" for item in refused]
    return "\n".join([*lines, "", "`tools/run_dxdispatch.py --write` makes this table."]) + "\n"


class WrongError(Exception):
    """A model computes something else than it should."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkout", type=pathlib.Path)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--commit", default="master", help="what is checked out, for the page")
    options = parser.parse_args()

    import dmlvk

    device = dmlvk.Device()
    models = []
    failed = False
    for path in sorted((options.checkout / "DxDispatch" / "models").glob("*.json")):
        if path.name == "_schema.json":
            continue
        try:
            models.append(outcome(device, path))
            print(*models[-1].values(), sep="  ")
        except (WrongError, dmlvk.DmlvkError) as error:
            failed = True
            print(f"{path.name}  FAILED  {type(error).__name__}: {error}")
    record = {"device": device.info.name, "commit": options.commit, "models": models}
    if options.write and not failed:
        RECORD.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
        PAGE.write_text(_TABLE.sub(lambda _: table(record), PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    return int(failed)


def outcome(device: Any, path: pathlib.Path) -> dict[str, str]:
    """Runs a model; returns what it is, what its results were compared with, and their largest error."""
    from dmlvk.dxdispatch.executor import Executor
    from dmlvk.dxdispatch.model import DispatchCommand, GraphDispatchable, OperatorDispatchable, read_model
    from dmlvk.dxdispatch.options import Options
    from dmlvk.spec.errors import UnsupportedError

    try:
        model = read_model(path)
    except UnsupportedError:
        return {"model": path.name, "what": "a shader in HLSL", "compared": "", "error": ""}
    with tempfile.TemporaryDirectory() as folder:
        executor = Executor(device, model, Options(output_folder=pathlib.Path(folder)), lambda _: None, _complain)
        found = {"model": path.name}
        worst = 0.0
        for command in model.commands:
            if not isinstance(command, DispatchCommand):
                executor.run(command)
                continue
            item = model.dispatchables[command.dispatchable]
            before = {name: _bytes(executor, name) for name, desc in model.resources.items() if desc.content is not None}
            executor.run(command)
            if isinstance(item, OperatorDispatchable):
                found |= {"what": item.desc.dml_name, "compared": "the float64 oracle"}
                worst = max(worst, _of_operator(executor, item, command, before))
                found["error"] = f"{worst:.2g} ULP"
            else:
                is_graph = isinstance(item, GraphDispatchable)
                found |= {"what": "a serialised graph" if is_graph else "an ONNX model", "compared": "ONNX Runtime"}
                source = next(item.path.parent.glob("*.onnx")) if is_graph else item.path
                worst = max(worst, _of_model(executor, source, command, before))
                found["error"] = f"{worst:.2g}"
        written = [command for command in model.commands if hasattr(command, "target")]
        if not all((pathlib.Path(folder) / command.target).stat().st_size for command in written):
            raise WrongError("a file was not written")
    return found


def _complain(line: str) -> None:
    raise WrongError(line)


def _bytes(executor: Any, name: str) -> Array:
    from dmlvk.dxdispatch.document import Place
    from dmlvk.dxdispatch.model import BindingSource

    found: Array = executor.buffers.raw(BindingSource(Place(None), name))
    return found


def _of_operator(executor: Any, item: Any, command: Any, before: dict[str, Array]) -> float:
    """The largest error of a dispatch's outputs in ULP.

    Raises:
        WrongError: it is larger than the operator's cases tolerate.
    """
    from dmlvk.verify.cases import all_cases
    from dmlvk.verify.cases.layouts import logical_view, unflagged
    from dmlvk.verify.cases.model import EXACT
    from dmlvk.verify.cases.problem import fields_of, slot_name
    from dmlvk.verify.check import ulp_errors
    from dmlvk.verify.oracle import oracle

    desc = item.desc
    bindings = {**item.bindings, **command.bindings}

    def view(slot: Any, data: Any) -> Array | None:
        sources = bindings.get(slot.field.dml_name)
        if slot.tensor is None or sources is None:
            return None
        source = sources[slot.element]
        return logical_view(slot.tensor, data(source.resource), executor.buffers.binding(source).offset)

    changes = {slot_name(slot): unflagged(slot.tensor) for slot in desc.input_slots() + desc.output_slots() if slot.tensor}
    function = oracle(type(desc))
    assert function is not None, f"{desc.dml_name} has no oracle"
    inputs = [view(slot, before.__getitem__) for slot in desc.input_slots()]
    with np.errstate(all="ignore"):
        wanted = function(desc.replace(**fields_of(changes)), *inputs)
    tolerance = all_cases()[type(desc)].tolerance
    worst = 0.0
    results = wanted if isinstance(wanted, tuple) and not hasattr(wanted, "magnitude") else (wanted,)
    for slot, expected in zip(desc.output_slots(), results, strict=False):
        actual = view(slot, lambda name: _bytes(executor, name))
        if actual is None:
            continue
        limit = tolerance.get(slot.tensor.data_type, EXACT)
        error = float(ulp_errors(actual, expected, limit.magnitude).max())
        if error > limit.ulp:
            raise WrongError(f"{command.dispatchable}: {error} ULP, more than {limit.ulp}")
        worst = max(worst, error)
    return worst


def _of_model(executor: Any, path: pathlib.Path, command: Any, before: dict[str, Array]) -> float:
    """The largest error of a dispatch's outputs, as a share of their largest magnitude.

    Raises:
        WrongError: it is larger than float32 explains.
    """
    import onnxruntime

    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    feeds = {}
    for info in session.get_inputs():
        (source,) = command.bindings[info.name]
        shape = source.shape or info.shape
        feeds[info.name] = before[source.resource].view(np.float32)[: int(np.prod(shape))].reshape(shape)
    worst = 0.0
    for info, expected in zip(session.get_outputs(), session.run(None, feeds), strict=True):
        (source,) = command.bindings[info.name]
        actual = _bytes(executor, source.resource).view(np.float32)[: expected.size].reshape(expected.shape)
        worst = max(worst, float(np.abs(actual - expected).max() / np.abs(expected).max()))
    if worst > _CLOSE:
        raise WrongError(f"{command.dispatchable}: {worst}, more than {_CLOSE}")
    return worst


if __name__ == "__main__":
    raise SystemExit(main())
