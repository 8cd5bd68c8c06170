"""Figures as SVG that stands in a page: its text stays text, its colours follow the page's, and the same numbers give the
same bytes.

They are narrow, so that their letters can still be read on a phone; a desktop shows two beside each other.
"""

from __future__ import annotations

import io
import re
import xml.etree.ElementTree as xml
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from dmlvk.html import palette

WIDTH: Final = 4.4
"""Inches, at 72 units an inch: about as many units as a phone has pixels."""

_SVG: Final = "http://www.w3.org/2000/svg"
_XLINK: Final = "{http://www.w3.org/1999/xlink}"
_SETTINGS: Final[dict[Any, Any]] = {
    "svg.fonttype": "none",
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],
    "font.size": 9,
    "axes.labelsize": 9,
    "xtick.labelsize": 8.5,
    "ytick.labelsize": 8.5,
    "legend.fontsize": 8.5,
    "legend.frameon": False,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.8,
    "axes.axisbelow": True,
    "xtick.major.width": 0.8,
    "ytick.major.width": 0.8,
    "text.color": palette.COLOURS["ink"].light,
    "axes.labelcolor": palette.COLOURS["ink"].light,
    "axes.edgecolor": palette.COLOURS["muted"].light,
    "xtick.color": palette.COLOURS["muted"].light,
    "ytick.color": palette.COLOURS["muted"].light,
    "xtick.labelcolor": palette.COLOURS["ink"].light,
    "ytick.labelcolor": palette.COLOURS["ink"].light,
    "grid.color": palette.COLOURS["line"].light,
    "grid.linewidth": 0.6,
}


def paint(name: str) -> str:
    """A colour of the palette as Matplotlib takes it; ``svg`` puts the page's own in its place."""
    return palette.COLOURS[name].light


@contextmanager
def axes(height: float) -> Iterator[tuple[Figure, Axes]]:
    """A figure with one pair of axes, whose settings hold inside the ``with``, ``svg`` included.

    Args:
        height: Inches, of a width of ``WIDTH``.
    """
    with matplotlib.rc_context(_SETTINGS):
        figure = Figure(figsize=(WIDTH, height), layout="constrained")
        yield figure, figure.add_subplot()


def svg(
    figure: Figure, name: str, label: str, tips: Mapping[str, Sequence[str]] | None = None, *, alone: bool = False
) -> str:
    """A figure's SVG.

    Args:
        figure: Drawn inside ``axes``.
        name: Begins each of its ids, so that several figures share a page.
        label: A description for readers who cannot see the figure.
        tips: The text of each mark of a collection, in their order, by the collection's ``gid``.
        alone: Whether it is a file of its own, which then carries colours and paper, and not a part of a page.
    """
    matplotlib.rcParams["svg.hashsalt"] = name
    file = io.StringIO()
    figure.savefig(
        file, format="svg", transparent=True, metadata={"Date": None, "Creator": None, "Format": None, "Type": None}
    )
    root = xml.fromstring(file.getvalue())
    for mark in root.findall(f"{{{_SVG}}}metadata"):
        root.remove(mark)
    for gid, texts in (tips or {}).items():
        group = next(element for element in root.iter() if element.get("id") == gid)
        marks = [element for element in group.iter() if element.tag in (f"{{{_SVG}}}use", f"{{{_SVG}}}path")]
        marks = [mark for mark in marks if mark.get("id") is None]  # a shape that is defined once and used often has one
        for mark, text in zip(marks, texts, strict=True):
            xml.SubElement(mark, f"{{{_SVG}}}title").text = text
    for element in root.iter():
        element.tag = element.tag.removeprefix(f"{{{_SVG}}}")
        found = {key.removeprefix(_XLINK): value for key, value in element.attrib.items()}
        element.attrib.clear()
        element.attrib.update({key: _with_own_ids(name, key, value) for key, value in found.items()})
    del root.attrib["version"]
    if not alone:  # a page gives it the room that there is
        del root.attrib["width"], root.attrib["height"]
    root.set("role", "img")
    root.set("aria-label", label)
    if alone:
        style = xml.Element("style")
        style.text = palette.style_sheet() + "svg{background:var(--paper)} text{font-family:system-ui,sans-serif!important}"
        root.insert(0, style)
        root.set("xmlns", _SVG)
    text = xml.tostring(root, encoding="unicode")
    for colour, shades in palette.COLOURS.items():
        text = text.replace(f": {shades.light}", f": var(--{colour})")
    return text


def _with_own_ids(name: str, key: str, value: str) -> str:
    """An attribute's value, with the figure's name before each id that it is or refers to."""
    if key == "id":
        return f"{name}-{value}"
    return re.sub(r"^#|(?<=url\()#", f"#{name}-", value) if key != "style" else value
