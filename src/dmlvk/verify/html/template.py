"""Pages from templates."""

from __future__ import annotations

import pathlib
from typing import Any, Final

import jinja2

from dmlvk.verify.html import palette

FOLDER: Final = pathlib.Path(__file__).parent / "templates"


def number(value: float) -> str:
    """A figure with three digits that count, and thousands as 1,234."""
    if value == 0 or value != value or value in (float("inf"), float("-inf")):
        return f"{value:g}"
    if abs(value) >= 100:
        return f"{value:,.0f}"
    digits = 2 if abs(value) < 10 else 1
    return f"{value:.{digits}f}" if abs(value) >= 0.1 else f"{value:.2g}"


def render(template: pathlib.Path, **values: Any) -> str:
    """A page.

    Args:
        template: Its file, which may extend and include those of ``FOLDER``; what it writes of values is escaped.
        values: The values that the template shows.
    """
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader((template.parent, FOLDER)),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["number"] = number
    environment.filters["colour_of"] = palette.colour_of
    style = palette.style_sheet() + (FOLDER / "style.css").read_text(encoding="utf-8")
    script = (FOLDER / "script.js").read_text(encoding="utf-8")
    return str(environment.get_template(template.name).render(style=style, script=script, **values))
