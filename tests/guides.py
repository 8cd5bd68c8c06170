"""Pages that show an addition as a diff, held to the sources: what the diff adds stands in the files that it names."""

from __future__ import annotations

import pathlib
import re

ROOT = pathlib.Path(__file__).parent.parent


def guide(name: str) -> str:
    """The text of a page of docs/."""
    return (ROOT / "docs" / name).read_text()


def additions(page: str) -> dict[str, list[str]]:
    """The added lines of the page's one diff, by file."""
    (diff,) = re.findall(r"^```diff\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    found: dict[str, list[str]] = {}
    for line in diff.splitlines():
        assert line.startswith("+"), "the diff adds and does nothing else"
        if line.startswith("+++ "):
            found[line[4:]] = []
        else:
            list(found.values())[-1].append(line[1:])
    return found


def assert_the_sources_hold(added: dict[str, list[str]]) -> None:
    """Every block of added lines stands in its file, line for line."""
    for path, lines in added.items():
        block = "\n".join(["", *lines, ""])
        assert block in (ROOT / path).read_text(), f"{path} does not hold {lines}"


def lines_that_name(names: re.Pattern[str], *folders: str) -> dict[str, list[str]]:
    """The lines of Python and GLSL under some folders that match, by file."""
    found: dict[str, list[str]] = {}
    for folder in folders:
        for path in sorted((ROOT / folder).rglob("*")):
            if path.suffix in (".py", ".glsl", ".comp"):
                lines = [line for line in path.read_text().splitlines() if names.search(line)]
                if lines:
                    found[path.relative_to(ROOT).as_posix()] = lines
    return found
