"""docs/adding-an-operator.md shows an operator as it really is in the sources: all of it, in few lines."""

from __future__ import annotations

import pathlib
import re

from dmlvk.spec import ops as _ops  # noqa: F401  # fills the registry
from dmlvk.spec.schema import REGISTRY, class_name

ROOT = pathlib.Path(__file__).parent.parent.parent
PAGE = (ROOT / "docs" / "adding-an-operator.md").read_text()
MOST_FILES, MOST_LINES = 4, 12
EVERY_OPERATOR = "src/dmlvk/spec/enums.py"
"""Lists DirectML's operators, whether they are implemented or not."""


def additions() -> dict[str, list[str]]:
    """The diff of the page: the added lines by file."""
    (diff,) = re.findall(r"^```diff\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    found: dict[str, list[str]] = {}
    for line in diff.splitlines():
        assert line.startswith("+"), "the diff adds and does nothing else"
        if line.startswith("+++ "):
            found[line[4:]] = []
        else:
            list(found.values())[-1].append(line[1:])
    return found


def operator_name() -> str:
    (name,) = re.findall(r"^\+class (\w+)\(", PAGE, re.MULTILINE)
    assert isinstance(name, str)
    return name


def test_the_diff_is_small() -> None:
    added = additions()
    assert 0 < len(added) <= MOST_FILES
    assert sum(map(len, added.values())) <= MOST_LINES


def test_the_sources_hold_what_the_diff_adds() -> None:
    for path, lines in additions().items():
        block = "\n".join(["", *lines, ""])
        assert block in (ROOT / path).read_text(), f"{path} does not hold {lines}"


def test_the_diff_is_all_there_is_of_the_operator() -> None:
    operator = next(kind for kind in REGISTRY if class_name(kind) == operator_name())
    names = re.compile(rf"\b({operator_name()}|{operator.name.lower()}|(OP_)?{operator.name})\b")
    shown = additions()
    for folder in ("src/dmlvk", "glsl", "tools"):
        for path in sorted((ROOT / folder).rglob("*")):
            relative = path.relative_to(ROOT).as_posix()
            # A converter from ONNX is another matter than the operator.
            if path.suffix not in (".py", ".glsl", ".comp") or relative == EVERY_OPERATOR or "/onnx/" in relative:
                continue
            for line in path.read_text().splitlines():
                assert not names.search(line) or line in shown.get(relative, ()), f"{relative}: {line}"
