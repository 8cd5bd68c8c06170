"""The accuracy card: what a verification found on a device, by operator and type, and the file that keeps it."""

from __future__ import annotations

import dataclasses
import itertools
import json
import math
import pathlib
import shlex
from dataclasses import dataclass, field
from typing import Any

from dmlvk.html.elements import facts, notebook, table
from dmlvk.html.words import number
from dmlvk.spec.errors import InvalidArgumentError
from dmlvk.verify.machine import Machine

FORMAT = 1
"""The version of the file's format; a file with another number is refused."""
CTRL_C = "Ctrl-C"
"""What stopped a verification that its user ended."""
_MOST_FAILURES = 20
"""The most that a notebook shows."""


@dataclass(frozen=True)
class Failure:
    """The first run of an operator and type that was not as it should be.

    Attributes:
        case, layout, in_place, rule: The variation; ``rule`` is the one that ran.
        desc: The operator's desc in the words that ``python -m dmlvk explain`` takes.
        what: The fault, as a sentence without its full stop.
        output: The output's field; "" where no element is to blame.
        index: The index of its first wrong element.
        actual, expected: That element's value, with the fewest digits that tell it from others of its type.
        ulp, bound_ulp: Its error and what the tolerance allows.
        wrong, elements: The number of wrong elements, and of all elements of the output.
        worst_index, worst_ulp: The place and the size of the output's largest error.
        kernels: The kernels that ran, in order.
        same_bits: Whether two runs gave the same bits.
        only: The argument of ``python -m dmlvk verify OPERATOR --only`` that runs it again.
    """

    case: str
    layout: str
    in_place: str
    rule: str
    desc: str
    what: str
    output: str = ""
    index: tuple[int, ...] = ()
    actual: str = ""
    expected: str = ""
    ulp: float = 0.0
    bound_ulp: float = 0.0
    wrong: int = 0
    elements: int = 0
    worst_index: tuple[int, ...] = ()
    worst_ulp: float = 0.0
    kernels: str = ""
    same_bits: bool = True
    only: str = ""

    def element(self) -> str:
        """The first wrong element and the largest error, as a sentence without its end; "" where none is to blame."""
        if not self.output:
            return ""
        text = f"{self.output}{list(self.index)} is {self.actual}, expected {self.expected}: {self.ulp:.4g} ULP"
        if self.worst_ulp > self.ulp:
            text += f", the most is {self.worst_ulp:.4g} at {list(self.worst_index)}"
        return f"{text}, at most {self.bound_ulp:g} allowed"

    def sentence(self) -> str:
        """The fault in one line."""
        return "; ".join(filter(None, (self.what, self.element())))


@dataclass(frozen=True)
class Entry:
    """An operator and a data type.

    Attributes:
        operator: The row's class name.
        family: The file of ``dmlvk.spec.ops`` that declares it.
        data_type: The name of the data type, such as "FLOAT32".
        exact: Whether the tolerance is zero: every element has to be the expected one, or its very bits.
        max_ulp: The largest error of any element of any run.
        typical_ulp: The median over the runs of each run's median error of the elements.
        high_ulp: The median over the runs of each run's 99th percentile of the errors.
        bound_ulp: The largest error that the tolerance allows.
        same_bits: Whether every run gave the same bits twice.
        passed: Whether everything held.
        runs, dispatches, elements: Counts of each.
        rules: The kernel rules that ran.
        unsupported: Why the device cannot run it, where it cannot run any of it.
        partly: The number of runs that the device cannot do, and why, where it can do others; they are not among ``runs``.
        failure: The first, where something did not hold.
    """

    operator: str
    family: str
    data_type: str
    exact: bool
    max_ulp: float
    typical_ulp: float
    high_ulp: float
    bound_ulp: float
    same_bits: bool
    passed: bool
    runs: int
    dispatches: int
    elements: int
    rules: tuple[str, ...]
    unsupported: str = ""
    partly: str = ""
    failure: Failure | None = None

    @property
    def verdict(self) -> str:
        """The entry's result in a few words."""
        if not self.passed:
            return "FAILED"
        if self.unsupported:
            return f"unsupported: {self.unsupported}"
        return f"ok, but {self.partly}" if self.partly else "ok"


@dataclass(frozen=True)
class Card:
    """A verification.

    Attributes:
        machine: The machine that it was measured on.
        selection: "quick", "default" or "full".
        capabilities: The abilities that kernels relied on, from ``command.capabilities``: ``features`` that are on, those
            ``switched_off`` and ``missing``, subgroup sizes, limits, ``cooperative_matrices`` in words.
        seconds: The duration of the whole run.
        pipelines: The number of pipelines created.
        entries: One for each operator and data type, in the order of the operators' list.
        stopped: Why it ended before all was run, "" where it did not.
        unneeded: The driver's waivers that cover runs, none of which needed it.
    """

    machine: Machine
    selection: str
    capabilities: dict[str, Any]
    seconds: float
    pipelines: int
    entries: list[Entry] = field(default_factory=list)
    stopped: str = ""
    unneeded: list[str] = field(default_factory=list)

    @property
    def passed(self) -> bool:
        """Whether verify came to its end and every entry passed."""
        return not self.stopped and all(entry.passed for entry in self.entries)

    @property
    def interrupted(self) -> bool:
        """Whether its user ended it before all was run."""
        return self.stopped == CTRL_C

    def _repr_html_(self) -> str:
        ran = [entry for entry in self.entries if not entry.unsupported]
        failed = [entry for entry in self.entries if not entry.passed]
        missing = len(self.entries) - len(ran)
        elements, runs = sum(entry.elements for entry in ran), sum(entry.runs for entry in ran)
        worst = max((entry for entry in ran if entry.passed), key=lambda entry: entry.max_ulp, default=None)
        known = facts(
            (
                ("device", self.machine.device),
                ("driver", self.machine.driver),
                ("selection", f"{self.selection}, {self.seconds:.0f} s"),
                ("operators and types", f"{len(ran)} ran, {len(failed)} failed, {missing} cannot run here"),
                ("compared", f"{elements:,} elements of {runs:,} runs"),
                ("largest error", f"{number(worst.max_ulp)} ULP: {worst.operator} {worst.data_type}" if worst else ""),
                ("ended early", self.stopped),
            )
        )
        lines = ((entry.operator, entry.data_type, entry.failure.sentence() if entry.failure else "") for entry in failed)
        wrong = table(("operator", "type", "what failed"), itertools.islice(lines, _MOST_FAILURES)) if failed else None
        return notebook("Accuracy card:", "PASS" if self.passed else "FAIL", known, wrong)

    def as_json(self) -> dict[str, Any]:
        """The entry for JSON; an infinite error is null."""
        found: dict[str, Any] = _without_infinity({"format": FORMAT, **dataclasses.asdict(self)})
        return found

    def write(self, path: pathlib.Path) -> None:
        """The card as JSON, one line for each entry."""
        whole = self.as_json()
        lines = ",\n  ".join(json.dumps(entry, allow_nan=False) for entry in whole.pop("entries"))
        head = json.dumps(whole, indent=1, allow_nan=False).removesuffix("\n}")
        path.write_text(f'{head},\n "entries": [\n  {lines}\n ]\n}}\n', encoding="utf-8")

    def report(self, entry: Entry) -> str:
        """An entry's failure as it can be pasted into an issue: what ran where, what came out, and how to see it again."""
        failure, machine = entry.failure, self.machine
        assert failure is not None, "there is something to report"
        place = failure.layout + f", in place on {failure.in_place}" * bool(failure.in_place)
        lines = (
            (f"{entry.operator} {entry.data_type}", failure.what),
            ("case", f"{failure.case}, {place}"),
            ("rule", failure.rule + f", kernels {failure.kernels}" * bool(failure.kernels)),
            ("desc", f"python -m dmlvk explain {entry.operator} {failure.desc}"),
            ("first", failure.element()),
            ("two runs", "gave the same bits" if failure.same_bits else "gave different bits"),
            ("device", f"{machine.device} ({machine.type}), uuid {machine.uuid}"),
            ("driver", f"{machine.driver}, Vulkan {machine.api_version}"),
            ("mask", machine.mask),
            (
                "versions",
                f"dmlvk {machine.dmlvk} {machine.commit}".rstrip() + f", Python {machine.python}, {machine.system}",
            ),
            ("again", f"python -m dmlvk verify {entry.operator} --only {shlex.quote(failure.only)}"),
        )
        return "\n".join(
            f"{name}: {text}" if not turn else f"  {name:8} {text}" for turn, (name, text) in enumerate(lines) if text
        )


def _without_infinity(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_infinity(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_without_infinity(item) for item in value]
    return None if value == math.inf else value


def _with_infinity(item: dict[str, Any]) -> dict[str, Any]:
    return {key: math.inf if value is None and key.endswith("ulp") else value for key, value in item.items()}


def read(path: pathlib.Path) -> Card:
    """The file's card.

    Raises:
        InvalidArgumentError: it is no file of this format.
        OSError: it cannot be read.
    """
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        if found.pop("format") != FORMAT:
            raise KeyError("format")
        entries = []
        for item in found.pop("entries"):
            failure = item.pop("failure")
            if failure is not None:
                places = {name: tuple(failure[name]) for name in ("index", "worst_index")}
                failure = Failure(**{**_with_infinity(failure), **places})
            entries.append(Entry(**{**_with_infinity(item), "rules": tuple(item["rules"])}, failure=failure))
        return Card(machine=Machine(**found.pop("machine")), entries=entries, **found)
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        rule = f"must be an accuracy card, format {FORMAT}, as verify --json writes it ({type(error).__name__}: {error})"
        raise InvalidArgumentError(rule, field="card", value=str(path)) from None
