"""docs/adding-a-graph-pass.md shows a pass as it really is in the sources: all of it."""

from __future__ import annotations

import re

from guides import ROOT, additions, assert_the_sources_hold, guide

from dmlvk.graph.passes import PASSES
from dmlvk.graph.step_graph import StepGraph

PAGE = guide("adding-a-graph-pass.md")
ADDED = additions(PAGE)


def test_the_sources_hold_what_the_diff_adds() -> None:
    assert_the_sources_hold(ADDED)


def test_the_page_shows_the_whole_pass() -> None:
    path = next(iter(ADDED))
    functions = (ROOT / path).read_text().count("\ndef ")
    assert sum(line.startswith("def ") for line in ADDED[path]) == functions


def test_the_pass_is_in_the_list_by_its_name() -> None:
    (name, function) = re.findall(r'^\+    Pass\("(\w+)", ".*", (\w+)\),$', PAGE, re.MULTILINE)[0]
    assert {item.name: item.run.__name__ for item in PASSES}[name] == function


def test_what_the_page_calls_exists() -> None:
    methods = set(re.findall(r"`graph\.(\w+)", PAGE))
    assert len(methods) >= 6
    for name in methods:
        assert hasattr(StepGraph, name), name
