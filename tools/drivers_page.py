"""The pass lists of drivers, and the page that is made of them.

    python tools/drivers_page.py NAME CARD...

NAME is the list's, bench/results/drivers/NAME.json. A CARD is what ``python -m dmlvk verify --quick --json CARD`` wrote, in
a checkout or where a wheel is installed; several are the parts of one run.
"""

from __future__ import annotations

import dataclasses
import json
import pathlib
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from setup_drivers import ROOT

from dmlvk.verify.card import Card, Entry, read
from dmlvk.verify.waivers import all_waivers

FOLDER = ROOT / "bench" / "results" / "drivers"

VERDICTS = ("ok", "partly", "refused", "waived", "failed")
"""What becomes of an operator with a data type: all runs are right; some are, and the device cannot do the others; it can do
none; a waiver excuses some; some are wrong."""

HEAD = """# Drivers

What passes on which driver: `python -m dmlvk verify --quick`, on drivers and on [lesser devices](devices.md) that masks make
of some of them. A pair is an operator and a data type. *Partly*: the device lacks what some of its runs need. *Refused*: it
lacks the data type or a feature, and dmlvk says so. A [waiver](accuracy.md#waivers) names a fault of the driver.

What two of them can do, both do right, but for what the last column names.

| | driver | mask | measured | pairs | right | partly | refused | waived | failed | but for |
| --- | --- | --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | --- |
"""

FOOT = """
The lists are `bench/results/drivers/*.json`, a line an operator. `make drivers` runs all drivers of processors anew;
[development](development.md) says how a list is made of a run elsewhere.
"""


@dataclass(frozen=True)
class PassList:
    """What passed on a driver.

    Attributes:
        device, driver, mask, system, dmlvk, commit, date: As ``dmlvk.verify.machine.Machine`` has them.
        selection: The selection of runs.
        operators: The data types of each operator, parted by blanks, by verdict.
    """

    device: str
    driver: str
    mask: str
    system: str
    dmlvk: str
    commit: str
    date: str
    selection: str
    operators: dict[str, dict[str, str]]

    @staticmethod
    def of(cards: Sequence[Card]) -> PassList:
        """The list of a run, which may be in parts."""
        operators: dict[str, dict[str, str]] = {}
        for card in cards:
            for entry in card.entries:
                own = operators.setdefault(entry.operator, {})
                own[verdict(entry)] = f"{own.get(verdict(entry), '')} {entry.data_type}".strip()
        machine = dataclasses.asdict(cards[-1].machine)
        kept = {name: machine[name] for name in ("device", "driver", "mask", "system", "dmlvk", "commit", "date")}
        return PassList(**kept, selection=cards[-1].selection, operators=operators)

    def write(self, path: pathlib.Path) -> None:
        """The list as JSON, a line for each operator."""
        head: dict[str, Any] = dataclasses.asdict(self)
        lines = ",\n  ".join(f"{json.dumps(name)}: {json.dumps(own)}" for name, own in head.pop("operators").items())
        text = json.dumps(head, indent=1).removesuffix("\n}")
        path.write_text(f'{text},\n "operators": {{\n  {lines}\n }}\n}}\n', encoding="utf-8")

    def pairs(self) -> dict[tuple[str, str], str]:
        """The verdict of each operator and data type."""
        return {
            (operator, data_type): found
            for operator, own in self.operators.items()
            for found, data_types in own.items()
            for data_type in data_types.split()
        }


def verdict(entry: Entry) -> str:
    """An entry's result in one of the words of ``VERDICTS``."""
    if not entry.passed:
        return "failed"
    if "waived: " in entry.unsupported + entry.partly:
        return "waived"
    return "refused" if entry.unsupported else "partly" if entry.partly else "ok"


def lists() -> dict[str, PassList]:
    """Every list that is kept, by name: first those without a mask."""
    found = {path.stem: PassList(**json.loads(path.read_text(encoding="utf-8"))) for path in sorted(FOLDER.glob("*.json"))}
    return dict(sorted(found.items(), key=lambda item: bool(item[1].mask)))


def _excepted(own: PassList) -> str:
    """The waivers and the failures of a list in words."""
    pairs = own.pairs()
    failed = [f"{operator} {data_type} failed" for (operator, data_type), found in pairs.items() if found == "failed"]
    waived = {operator for (operator, _), found in pairs.items() if found == "waived"}
    causes = [f"{item.operator} {item.runs}: {item.cause}" for item in all_waivers() if item.operator in waived]
    return "; ".join([*failed, *causes]) or "nothing"


def page() -> str:
    """The page's text."""
    rows = []
    for name, own in lists().items():
        counts = Counter(own.pairs().values())
        measured = f"dmlvk {own.dmlvk} of {own.commit}, {own.date[:10]}"
        cells = (name, f"{own.device}, {own.driver.strip()}", own.mask, measured, str(counts.total()))
        rows.append("| " + " | ".join([*cells, *(str(counts[kind]) for kind in VERDICTS), _excepted(own)]) + " |\n")
    return HEAD + "".join(rows) + FOOT


def main(arguments: list[str]) -> int:
    if len(arguments) < 2:
        sys.exit(__doc__)
    name, *cards = arguments
    FOLDER.mkdir(parents=True, exist_ok=True)
    PassList.of([read(pathlib.Path(path)) for path in cards]).write(FOLDER / f"{name}.json")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
