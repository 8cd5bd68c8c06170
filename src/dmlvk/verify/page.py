"""The accuracy card as one HTML page."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

from dmlvk.html.words import number
from dmlvk.verify.card import Card, Entry
from dmlvk.verify.html.figure import axes, paint, svg
from dmlvk.verify.html.template import FOLDER, render

TYPES: Final = {
    "FLOAT32": "f32",
    "FLOAT16": "f16",
    "FLOAT64": "f64",
    "INT64": "i64",
    "INT32": "i32",
    "INT16": "i16",
    "INT8": "i8",
    "INT4": "i4",
    "UINT64": "u64",
    "UINT32": "u32",
    "UINT16": "u16",
    "UINT8": "u8",
    "UINT4": "u4",
}
"""The columns of the heat map, and what heads them."""

CLASSES: Final = {
    "ulp-exact": "bit-exact, as it has to be",
    "ulp-0": "at most 0.5 ULP",
    "ulp-1": "at most 1",
    "ulp-2": "at most 2",
    "ulp-4": "at most 4",
    "ulp-more": "more, and allowed",
    "ulp-failed": "failed",
    "ulp-unsupported": "cannot run here",
}
"""The classes of errors, by the style sheet's names."""

_LIMITS: Final = (("ulp-0", 0.5), ("ulp-1", 1.0), ("ulp-2", 2.0), ("ulp-4", 4.0), ("ulp-more", math.inf))


class Type(NamedTuple):
    """A column: a data type's name, and a short one."""

    name: str
    short: str


class Cell(NamedTuple):
    """A cell: its class, what it shows, and what is said of it."""

    kind: str
    text: str
    tip: str


class Family(NamedTuple):
    """The heat map of a family: an operator's cells stand below the types, None where it has no such type.

    ``ran``, ``missing`` and ``failed`` count cells, ``largest`` is the largest error that passed, in words, "" for none.
    """

    name: str
    types: list[Type]
    operators: list[tuple[str, list[Cell | None]]]
    ran: int
    missing: int
    failed: int
    largest: str


class HeatMap(NamedTuple):
    """All families, and of each class that occurs its name, what it means, and how many cells have it."""

    families: list[Family]
    classes: list[tuple[str, str, int]]


def heat_map(card: Card) -> HeatMap:
    """A card's errors by family, operator and type: families and operators by name, those families first in which something
    failed."""
    by_family: dict[str, dict[str, dict[str, Entry]]] = {}
    for entry in card.entries:
        by_family.setdefault(entry.family, {}).setdefault(entry.operator, {})[entry.data_type] = entry
    families = []
    for name, operators in sorted(by_family.items()):
        entries = [entry for types in operators.values() for entry in types.values()]
        present = {entry.data_type for entry in entries}
        types = [*(known for known in TYPES if known in present), *sorted(present - TYPES.keys())]
        rows = [(operator, [_cell(found.get(kind)) for kind in types]) for operator, found in sorted(operators.items())]
        failed = sum(not entry.passed for entry in entries)
        largest = max((entry.max_ulp for entry in entries if entry.passed), default=0.0)
        columns = [Type(kind, TYPES.get(kind, kind.lower())) for kind in types]
        ran = sum(not entry.unsupported for entry in entries)
        words = number(largest) if largest else ""
        families.append(Family(name.replace("_", " "), columns, rows, ran, len(entries) - ran, failed, words))
    families.sort(key=lambda family: not family.failed)
    counts = dict.fromkeys(CLASSES, 0)
    for entry in card.entries:
        counts[_class(entry)] += 1
    return HeatMap(families, [(kind, CLASSES[kind], count) for kind, count in counts.items() if count])


def page(card: Card) -> str:
    """The card as a page that needs no other file."""
    ran = [entry for entry in card.entries if not entry.unsupported]
    failed = [entry for entry in card.entries if not entry.passed]
    missing = len(card.entries) - len(ran)
    summary = (
        f"{len(failed)} of {len(ran)} operators and types failed" if failed else f"all {len(ran)} operators and types passed"
    )
    summary += f"; {missing} cannot run on this device" if missing else ""
    reasons: dict[str, list[str]] = {}
    for entry in card.entries:
        if reason := entry.unsupported or entry.partly:
            reasons.setdefault(reason, []).append(f"{entry.operator} {entry.data_type}")
    summary += f"; it ended before all was run: {card.stopped}" if card.stopped else ""
    rules = sorted({rule for entry in ran for rule in entry.rules})
    verdict = "PASS" if card.passed else "FAIL"
    return render(
        FOLDER / "verify.html",
        title=f"{verdict}: accuracy of {card.machine.device}",
        command="python -m dmlvk verify --html",
        card=card,
        verdict=verdict,
        summary=summary,
        time=f"{card.seconds:.0f} s, {card.pipelines:,} pipelines",
        failures=[card.report(entry) if entry.failure else f"{entry.operator} {entry.data_type}" for entry in failed],
        tiles=list(_tiles(ran, rules)) if ran else [],
        families=heat_map(card),
        distribution=_distribution(ran),
        capabilities=[(name.replace("_", " "), _values(value)) for name, value in card.capabilities.items()],
        unsupported=sorted(reasons.items(), key=lambda item: -len(item[1])),
        rules=rules,
    )


def _class(entry: Entry) -> str:
    if entry.unsupported:
        return "ulp-unsupported"
    if not entry.passed:
        return "ulp-failed"
    return "ulp-exact" if entry.exact else next(name for name, limit in _LIMITS if entry.max_ulp <= limit)


def _cell(entry: Entry | None) -> Cell | None:
    if entry is None:
        return None
    kind, name = _class(entry), f"{entry.operator} {entry.data_type}"
    if entry.unsupported:
        return Cell(kind, "–", f"{name}\ncannot run here: {entry.unsupported}")
    failure = f"\nFAILED: {entry.failure.sentence()}" if entry.failure else f"\n{entry.partly}" if entry.partly else ""
    allowed = "0: exact" if entry.exact else f"{entry.bound_ulp:g}"
    errors = f"largest {number(entry.max_ulp)} ULP, 99 % {number(entry.high_ulp)}, typical {number(entry.typical_ulp)}"
    bits = "the same bits twice" if entry.same_bits else "NOT the same bits twice"
    work = f"{entry.runs:,} runs, {entry.dispatches:,} dispatches, {entry.elements:,} elements"
    tip = f"{name}{failure}\n{errors}; allowed {allowed}\n{bits}; {work}\nrules: {', '.join(entry.rules)}"
    return Cell(kind, {"ulp-exact": "=", "ulp-failed": "✕"}.get(kind, _short(entry.max_ulp)), tip)


def _short(ulp: float) -> str:
    """An error in at most four characters."""
    if ulp < 9.95:
        return f"{ulp:.1f}" if ulp else "0"
    return f"{ulp:.0f}" if ulp < 1000 else f"{ulp / 1000:.0f}k" if ulp < 1e6 else f"{ulp:.0e}".replace("e+0", "e")


def _tiles(ran: list[Entry], rules: list[str]) -> Iterator[tuple[str, str]]:
    exact = [entry for entry in ran if entry.exact]
    yield f"{len({entry.operator for entry in ran})}", "operators"
    yield f"{sum(entry.elements for entry in ran):,}", "elements compared"
    yield f"{sum(entry.runs for entry in ran):,}", "runs, each of them twice"
    yield f"{sum(entry.same_bits for entry in ran)} of {len(ran)}", "the same bits every time"
    yield f"{sum(entry.passed for entry in exact)} of {len(exact)}", "of those that have to be exact are"
    yield f"{len(rules)}", "kernel rules ran"


def _values(value: Any) -> list[str]:
    """A capability's value as words to show beside each other."""
    if isinstance(value, Mapping):
        return [f"{name.replace('_', ' ')} {', '.join(_values(item))}" for name, item in value.items()]
    if isinstance(value, list | tuple):
        return [text for item in value for text in _values(item)]
    if isinstance(value, bool):
        return ["yes" if value else "no"]
    return [f"{value:,}" if isinstance(value, int) else str(value)]


def _distribution(ran: list[Entry]) -> str:
    """The share of the operators with at most a given error, by floating type; "" if none may have any."""
    inexact = {entry.data_type for entry in ran if not entry.exact}
    kinds = [kind for kind in TYPES if kind.startswith("FLOAT") and kind in inexact]
    if not kinds:
        return ""
    colours = dict(zip(kinds, ("ours", "conv", "other"), strict=False))
    least = 0.01
    with axes(3.2) as (figure, plot):
        for kind in kinds:
            entries = [entry for entry in ran if entry.data_type == kind and not entry.exact]
            for dashes, what in (("-", "max_ulp"), ("--", "typical_ulp")):
                values = sorted(max(value, least) for entry in entries if math.isfinite(value := getattr(entry, what)))
                shares = [(index + 1) / len(entries) for index in range(len(values))]
                word = "largest" if what == "max_ulp" else "typical"
                plot.step(
                    [least, *values],
                    [0, *shares],
                    where="post",
                    linestyle=dashes,
                    color=paint(colours[kind]),
                    linewidth=1.6,
                    label=f"{kind.lower()}, {word}",
                )
        plot.set(xscale="log", ylim=(0, 1.02), xlabel="ULP", ylabel="share of the operators")
        ticks = [least, 0.1, 0.5, 1, 2, 4, 10, 100, 1000, 10000]
        end = max(plot.get_xlim()[1], 8)
        plot.set_xlim(least, end)
        plot.set_xticks([tick for tick in ticks if tick <= end], [f"{tick:g}" for tick in ticks if tick <= end])
        plot.minorticks_off()
        plot.grid(True)
        figure.legend(loc="outside upper left", ncols=2, handlelength=2.4)
        return svg(figure, "distribution", "Distribution of the largest and the typical error by data type")
