"""Elements of HTML, in which no text is ever taken for markup, and what pages and notebooks make of them."""

from __future__ import annotations

import pathlib
from collections.abc import Iterable, Sequence
from typing import Final
from xml.etree.ElementTree import Element, tostring

Content = Element | str | None
"""A child of an element; None for nothing."""

_LONGEST: Final = 160
_STYLE: Final = pathlib.Path(__file__).parent / "notebook.css"


def element(tag: str, *children: Content, **attributes: str | float | None) -> Element:
    """An element.

    Args:
        tag: Its name.
        children: What is in it.
        attributes: Its attributes; ``class_`` is ``class``, ``data_value`` is ``data-value``, and None leaves one out.
    """
    given = {name.rstrip("_").replace("_", "-"): value for name, value in attributes.items()}
    made = Element(tag, {name: str(value) for name, value in given.items() if value is not None})
    for child in children:
        if isinstance(child, Element):
            made.append(child)
        elif child and len(made):
            made[-1].tail = (made[-1].tail or "") + child
        elif child:
            made.text = (made.text or "") + child
    return made


def markup(elements: Iterable[Element]) -> str:
    """The elements as HTML."""
    return "\n".join(tostring(item, "unicode", method="html") for item in elements)


def shortened(text: str) -> str:
    """A text without its middle where it is longer than anybody reads."""
    half = _LONGEST // 2
    return text if len(text) <= _LONGEST else f"{text[:half]} … {text[-half:]}"


def facts(pairs: Iterable[tuple[str, Content]]) -> Element:
    """Names with what they stand for; those that stand for nothing are left out."""
    rows = (element("div", element("dt", name), element("dd", value)) for name, value in pairs if value not in (None, ""))
    return element("dl", *rows, class_="identity")


def number_cell(text: str, value: float | None = None) -> Element:
    """A cell of a table with a number.

    Args:
        text: What it shows.
        value: What it is sorted by.
    """
    return element("td", text, class_="n", data_value=value)


def table(head: Sequence[str], rows: Iterable[Sequence[Content]], **attributes: str | None) -> Element:
    """A table, whose rows are named by their first cell.

    Args:
        head: The names of the columns; that of one with numbers begins with a tab.
        rows: What is in the cells; a ``td`` is a cell already.
        attributes: The attributes of the table.
    """
    heads = (element("th", name.lstrip("\t"), scope="col", class_="n" if name.startswith("\t") else None) for name in head)
    lines = (element("tr", element("th", first, scope="row"), *(_cell(item) for item in rest)) for first, *rest in rows)
    return element("table", element("thead", element("tr", *heads)), element("tbody", *lines), **attributes)


def _cell(item: Content) -> Element:
    return item if isinstance(item, Element) and item.tag == "td" else element("td", item)


def bar(share: float) -> Element:
    """A bar, as long as a share of the whole width."""
    return element("div", element("i", class_="of-ours", style=f"width:{100 * share:.1f}%"), class_="track")


def notebook(kind: str, name: str, *parts: Element | None) -> str:
    """What a notebook shows of an object; letters and colours are those of the notebook.

    Args:
        kind: What it is.
        name: Which one it is.
        parts: What is known of it.
    """
    title = element("p", element("b", kind), " " + shortened(name))
    style = element("style", _STYLE.read_text(encoding="utf-8"))
    return markup([element("div", style, title, *parts, class_="dmlvk")])
