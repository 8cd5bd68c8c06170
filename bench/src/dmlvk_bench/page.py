"""A benchmark's results as one HTML page."""

from __future__ import annotations

import pathlib
import re
from collections.abc import Iterator
from statistics import geometric_mean
from typing import Any, Final, NamedTuple

from dmlvk.html import palette
from dmlvk.html.words import number
from dmlvk.verify.card import Card
from dmlvk.verify.html.template import render
from dmlvk.verify.page import heat_map
from dmlvk_bench import figures, headline
from dmlvk_bench.results import ProblemRow, Results

TEMPLATE: Final = pathlib.Path(__file__).parent / "templates" / "bench.html"

CEILINGS: Final = {
    "copy_gb_per_s": ("GB/s", "copied on the device"),
    **{
        name: ("TOP/s" if "_top_" in name else "TFLOP/s", f"{words} arithmetic" if "," not in words else words)
        for name, words in figures.ROOFS.items()
    },
    "upload_gb_per_s": ("GB/s", "from the host to the device"),
    "download_gb_per_s": ("GB/s", "from the device to the host"),
}
"""The unit and the words of each field of ``Ceilings``."""


class Score(NamedTuple):
    """Our standing beside a rival: problems in which we are at least as fast, all problems, the ratios' geometric mean."""

    rival: str
    colour: str
    ahead: int
    problems: int
    mean: float


class Bar(NamedTuple):
    """A model's time with one implementation; ``share`` is of the longest bar, in percent, ``error`` why there is none."""

    name: str
    colour: str
    ms: float
    share: float
    error: str


class Model(NamedTuple):
    """A model beside its rivals: what is said of it, its bars, ours first, and where the target stands, 0 for none."""

    name: str
    note: str
    bars: list[Bar]
    target_ms: float
    target_share: float
    verdict: str
    missed: bool


def page(results: Results, card: Card | None = None) -> str:
    """The results as a page that needs no other file.

    Args:
        results: A run's.
        card: The accuracy of the same device, for the heat map.
    """
    scores = list(_scores(results))
    missed = sorted(
        (row for row in results.problems if row.agrees and results.missed(row)), key=lambda r: _shortfall(results, r)
    )
    judged = [row for row in headline.rows(results) if row.verdict in (headline.MET, headline.MISSED)]
    parts: dict[str, list[headline.HeadlineRow]] = {}
    for row in sorted(judged, key=lambda row: row.verdict != headline.MISSED):
        parts.setdefault(row.part, []).append(row)
    return render(
        TEMPLATE,
        title=f"dmlvk on {results.machine.device}: measured",
        command="python -m dmlvk bench --html",
        results=results,
        card=card,
        scores=scores,
        ceilings=[
            (getattr(results.ceilings, name), unit, words)
            for name, (unit, words) in CEILINGS.items()
            if getattr(results.ceilings, name)
        ],
        wrong=[row for row in results.problems if not row.agrees],
        wrong_rivals=[
            (row, palette.TITLES.get(name, name), rival)
            for row in results.problems
            for name, rival in row.rivals.items()
            if not rival.agrees
        ],
        wrong_models=[
            (row["model"], name, rival["difference"])
            for row in results.models
            for name, rival in row.get("rivals", {}).items()
            if "error" not in rival and not rival["agrees"]
        ],
        aimed=sum(bool(row.target or row.copy_target) for row in results.problems),
        missed=missed,
        judged={part: parts[part] for part in dict.fromkeys(row.part for row in judged)},
        targets=len(judged),
        met=sum(row.verdict == headline.MET for row in judged),
        groups=sorted(results.group_means().items(), key=lambda item: item[1][1] / (item[1][2] or 1.0)),
        roofline=figures.roofline(results),
        copies=figures.copy_shares(results),
        ratios=[(palette.TITLES.get(name, name), figures.ratios(results, name)) for name in _rivals(results)],
        launches=_launches({**results.launches, **{row.name: row.us for row in results.host}}),
        models=[_model(row) for row in results.models],
        rivals=_rivals(results),
        versions=[(palette.TITLES.get(name, name), version) for name, version in results.rivals.items()],
        titles=palette.TITLES,
        limits={"copy_gb_per_s": "copy", **figures.ROOFS},
        families=heat_map(card) if card is not None else None,
    )


def _rivals(results: Results) -> list[str]:
    """Names of the rivals that ran one of the problems, in the order of the results."""
    ran = {name for row in results.problems for name in row.rivals}
    return [name for name in {**results.rivals, **dict.fromkeys(sorted(ran))} if name in ran]


def _scores(results: Results) -> Iterator[Score]:
    for name in _rivals(results):
        rows = [row for row in results.problems if row.agrees and name in row.rivals and row.rivals[name].agrees]
        ratios = [row.rivals[name].ratio for row in rows]
        if ratios:
            ahead = sum(ratio >= 1 for ratio in ratios)
            title = palette.TITLES.get(name, name)
            yield Score(title, palette.colour_of(name), ahead, len(ratios), geometric_mean(ratios))


def _shortfall(results: Results, row: ProblemRow) -> float:
    """The least share of a target that a row reaches."""
    parts = [row.ratio / row.target] if row.target and row.ratio is not None else []
    return min([*parts, results.copy_share(row) / row.copy_target if row.copy_target else 1.0])


def _launches(launches: dict[str, float]) -> dict[str, Any]:
    """The times of launches for a page: those of lists of dispatches as a table by their length, and all others."""
    counted: dict[str, dict[int, float]] = {}
    others = []
    for name, us in launches.items():
        if found := re.fullmatch(r"(\d+) (dependent|independent)", name):
            counted.setdefault(found[2], {})[int(found[1])] = us
        else:
            colour = palette.colour_of(name)
            others.append((name, us, "ours" if colour == "other" else colour))
    return {"counts": sorted({count for row in counted.values() for count in row}), "rows": counted, "others": others}


def _model(row: dict[str, Any]) -> Model:
    """A row of the results' models."""
    found = {"dmlvk": row, **row.get("rivals", {})}
    times = {name: of["ms"] for name, of in found.items() if "error" not in of and (of is row or of["agrees"])}
    target = row.get("target_ms") or 0.0
    longest = max([target, *times.values()], default=0.0) or 1.0
    bars = []
    for name, of in sorted(found.items(), key=lambda item: (item[1] is not row, times.get(item[0], float("inf")))):
        colour = "ours" if of is row else palette.colour_of(name)
        if name in times:
            bars.append(Bar(name, colour, times[name], times[name] / longest * 100, ""))
        else:
            bars.append(Bar(name, colour, 0.0, 0.0, of.get("error") or f"wrong by {number(of['difference'])}"))
    ours = times.get("dmlvk")
    rivals = {name: ms for name, ms in times.items() if name != "dmlvk"}
    verdict, missed = "", ours is None
    if ours is not None and rivals:
        best = min(rivals, key=rivals.__getitem__)
        verdict, missed = f"{rivals[best] / ours:.2f} × {best}", rivals[best] < ours
    if ours is not None and target:
        verdict += f"{', ' if verdict else ''}{'above' if ours > target else 'within'} the target of {target:g} ms"
        missed = missed or ours > target
    notes = [f"kernels {number(row['gpu_ms'])} ms"] if row.get("gpu_ms") else []
    notes += [f"{row['dispatches']} dispatches"] if "dispatches" in row else []
    notes += ["random weights"] if row.get("random_weights") else []
    return Model(row["model"], ", ".join(notes), bars, target, target / longest * 100, verdict, missed)
