"""Pages from templates."""

from __future__ import annotations

import pathlib
from typing import Any, Final

import jinja2

from dmlvk.html import palette
from dmlvk.html.page import page
from dmlvk.html.words import number

FOLDER: Final = pathlib.Path(__file__).parent / "templates"


def render(template: pathlib.Path, *, title: str, command: str, **values: Any) -> str:
    """A page.

    Args:
        template: The file of its content, which may import those of ``FOLDER``; what it writes of values is escaped.
        title: What a browser's tab shows.
        command: The command that made it.
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
    return page(title, command, environment.get_template(template.name).render(**values))
