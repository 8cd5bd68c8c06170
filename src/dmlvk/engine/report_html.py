"""Steps and nodes as HTML: a table of what each became and took, their operators, and memory over a run."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final
from xml.etree.ElementTree import Element

from dmlvk.engine.profile import StepReport
from dmlvk.html.elements import Content, bar, element, number_cell, shortened, table
from dmlvk.html.words import number, size

MOST_ROWS: Final = 1000
"""The most rows of a page's table: a phone shows no more, and nobody reads them."""
_FEW: Final = 10
_MOST_POINTS: Final = 240
_MOST_KINDS: Final = 12
_WIDTH, _HEIGHT = 360, 130
_TOP, _BOTTOM = 24, 18
"""Room for a figure's words."""


@dataclass
class NodeRow:
    """A node of a network with all steps that it became.

    Attributes:
        name, op_type: The node.
        became: What it became, in words, where it has no steps.
        steps: Its steps; of a loop in a profile, those of every round.
        home: The node whose step does its work, "" where it has its own or needs none.
    """

    name: str
    op_type: str
    became: str = ""
    steps: list[StepReport] = field(default_factory=list)
    home: str = ""

    @property
    def seconds(self) -> float:
        """Time of its kernels on the device; 0 without a profile."""
        return sum(step.seconds or 0.0 for step in self.steps)

    def words(self) -> str:
        """What it became."""
        if not self.steps:
            return self.became
        operators = ", ".join(dict.fromkeys(step.operator for step in self.steps))
        merged = dict.fromkeys(name for step in self.steps for name in step.merged)
        does = f" with the work of {', '.join(merged)}" if merged else ""
        once = " (once, before the first run)" if all(step.runs_once for step in self.steps) else ""
        return operators + does + once

    def kernels(self) -> str:
        """The kernels of its steps, each with how often it is launched."""
        counts = Counter(kernel for step in self.steps for kernel in step.kernels)
        return ", ".join(kernel if count == 1 else f"{kernel} × {count}" for kernel, count in counts.items())


def rows_of(steps: Iterable[StepReport]) -> dict[str, NodeRow]:
    """The nodes that have steps, by name."""
    rows: dict[str, NodeRow] = {}
    for step in steps:
        rows.setdefault(step.node, NodeRow(step.node, step.op_type)).steps.append(step)
    return rows


def node_table(rows: Sequence[NodeRow], most: int, *, linked: bool = False, **attributes: str) -> Element:
    """A table of nodes.

    Args:
        rows: The nodes; those that took longest come first where there are times.
        most: The most that it shows.
        linked: Whether a node leads to that of which it is part: where there is no other table with the same ids.
        attributes: The attributes of the table.
    """
    whole = sum(row.seconds for row in rows)
    longest = max((row.seconds for row in rows), default=0.0)
    shown = sorted(rows, key=lambda row: -row.seconds)[:most]
    places = {row.name: index for index, row in enumerate(shown)}
    timed = ("\tµs", "\tshare") if whole else ()
    lines = []
    for index, row in enumerate(shown):
        name = element(
            "span", shortened(row.name), " ", element("small", row.op_type), id=f"node{index}" if linked else None
        )
        times: tuple[Content, ...] = ()
        if whole and row.steps:
            times = _times(row.seconds, whole, longest)
        elif whole:
            times = (None, None)
        became: Content = shortened(row.words())
        if row.home:
            place = places.get(row.home)
            other = shortened(row.home)
            link = other if place is None or not linked else element("a", other, href=f"#node{place}")
            became = element("span", "part of ", link)
        launches = sum(len(step.kernels) for step in row.steps)
        nbytes = sum(step.bytes for step in row.steps)
        cells = (number_cell(str(launches), launches), number_cell(size(nbytes), nbytes)) if row.steps else (None, None)
        lines.append((name, *times, became, *cells, shortened(row.kernels())))
    return table(("node", *timed, "what it became", "\tlaunches", "\tbytes", "kernels"), lines, **attributes)


def first_nodes(rows: Sequence[NodeRow]) -> Element | None:
    """The first lines of ``node_table``, folded away, as a notebook shows them; None where there are no nodes."""
    if not rows:
        return None
    words = f"{len(rows):,} node" + "s" * (len(rows) > 1)
    if len(rows) > _FEW:
        words += f", the {_FEW} that " + ("took longest" if any(row.seconds for row in rows) else "come first")
    nodes = element("div", node_table(rows, _FEW), class_="scroll")
    return element("details", element("summary", words), nodes)


def kind_table(rows: Iterable[NodeRow]) -> Element | None:
    """The operator types that took longest, with their shares of the time; None without a profile."""
    kinds: dict[str, list[float]] = {}
    for row in rows:
        if row.steps:
            kinds.setdefault(row.op_type, []).append(row.seconds)
    found = sorted(kinds.items(), key=lambda item: -sum(item[1]))
    if rest := found[_MOST_KINDS:]:
        found[_MOST_KINDS:] = [(f"{len(rest)} others", [time for _, own in rest for time in own])]
    whole = sum(sum(own) for _, own in found)
    if not whole:
        return None
    longest = max(sum(own) for _, own in found)
    lines = [(kind, number_cell(str(len(own))), *_times(sum(own), whole, longest)) for kind, own in found]
    return table(("operator", "\tnodes", "\tµs", "\tshare"), lines)


def _times(seconds: float, whole: float, longest: float) -> tuple[Element, Element]:
    """The cells of a time and of its share, with a bar as long as it is beside the longest."""
    share = seconds / whole
    return (
        number_cell(number(seconds * 1e6), seconds),
        element("td", f"{share:.1%}", bar(seconds / longest), class_="n share", data_value=share),
    )


def memory_figure(steps: Sequence[StepReport]) -> Element | None:
    """The bytes in use at each step of a run; None where there are none."""
    steps = [step for step in steps if not step.runs_once]
    most = max((step.live_bytes for step in steps), default=0)
    if not most:
        return None
    peak = next(index for index, step in enumerate(steps) if step.live_bytes == most)
    points = min(len(steps), _MOST_POINTS)
    edges = [index * len(steps) // points for index in range(points + 1)]
    heights = [max(step.live_bytes for step in steps[first:end]) for first, end in itertools.pairwise(edges)]
    low = _HEIGHT - _BOTTOM
    levels = [low - (low - _TOP) * height / most for height in heights]
    wide = _WIDTH / points
    path = "".join(f"V{level:.1f}H{(index + 1) * wide:.1f}" for index, level in enumerate(levels))
    where = (peak + 0.5) / len(steps) * _WIDTH
    anchor = "start" if where < _WIDTH / 3 else "end" if where > _WIDTH * 2 / 3 else "middle"
    words: dict[str, str] = {"font_size": "11", "fill": "currentColor"}
    return element(
        "figure",
        element("h3", "Memory over a run"),
        element(
            "svg",
            element("path", d=f"M0 {low}{path}V{low}Z", fill="#3d8fd1", fill_opacity=0.75),
            element("path", d=f"M0 {low}H{_WIDTH}", stroke="currentColor", stroke_opacity=0.5),
            element("path", d=f"M{where:.1f} {_TOP - 2}l-4 -6h8z", fill="currentColor"),
            element("text", size(most), x=round(where, 1), y=_TOP - 11, text_anchor=anchor, **words),
            element("text", "first step", x=0, y=_HEIGHT - 4, **words),
            element("text", "last", x=_WIDTH, y=_HEIGHT - 4, text_anchor="end", **words),
            viewBox=f"0 0 {_WIDTH} {_HEIGHT}",
            role="img",
            aria_label="Memory in use at each step of a run",
        ),
        element(
            "figcaption",
            f"Inputs, outputs, intermediate tensors and scratch. The most are in use at step {peak + 1} of {len(steps)}: "
            f"{shortened(steps[peak].node)} ({steps[peak].op_type}).",
        ),
    )
