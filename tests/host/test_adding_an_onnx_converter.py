"""docs/adding-an-onnx-converter.md shows a converter as it really is in the sources: all of it, in few lines."""

from __future__ import annotations

import re

from guides import ROOT, additions, assert_the_sources_hold, guide, lines_that_name

from dmlvk.onnx import convert  # noqa: F401  # fills the table
from dmlvk.onnx.registry import ROWS

PAGE = guide("adding-an-onnx-converter.md")
ADDED = additions(PAGE)
MOST_LINES = 6


def operator_name() -> str:
    (name,) = re.findall(r'^\+@converts\("(\w+)"', PAGE, re.MULTILINE)
    assert isinstance(name, str)
    return name


def test_the_addition_is_small_and_stands_in_the_sources() -> None:
    assert len(ADDED) == 2
    assert sum(map(len, ADDED.values())) <= MOST_LINES
    assert_the_sources_hold(ADDED)


def test_the_shared_body_stands_in_the_converters_file() -> None:
    (body,) = re.findall(r"^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    (converter, *_) = ADDED
    assert body in (ROOT / converter).read_text()


def test_the_addition_is_all_there_is_of_the_operator() -> None:
    named = lines_that_name(re.compile(rf'"{operator_name()}"'), "src/dmlvk/onnx", "tests/onnx")
    named.pop("src/dmlvk/onnx/shape_arithmetic.py")  # the host's rule, which the page speaks of
    assert named.keys() == ADDED.keys()
    for path, lines in named.items():
        assert set(lines) <= set(ADDED[path])


def test_every_version_on_the_page_is_a_row_with_a_case() -> None:
    (line,) = re.findall(rf'^\+@converts\("{operator_name()}", ([\d, ]+), types', PAGE, re.MULTILINE)
    versions = {int(version) for version in line.split(",")}
    assert versions == {since for _, op_type, since in ROWS if op_type == operator_name()}
    shown = {int(version) for version in re.findall(rf'^\+    Case\("{operator_name()}", (\d+)', PAGE, re.MULTILINE)}
    assert shown == versions
