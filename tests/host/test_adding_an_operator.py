"""docs/adding-an-operator.md shows an operator as it really is in the sources: all of it, in few lines."""

from __future__ import annotations

import re

from guides import ROOT, additions, assert_the_sources_hold, guide, lines_that_name

from dmlvk.spec import ops as _ops  # noqa: F401  # fills the registry
from dmlvk.spec.enums import OperatorType
from dmlvk.spec.schema import REGISTRY, class_name

PAGE = guide("adding-an-operator.md")
ADDED = additions(PAGE)
MOST_FILES, MOST_LINES = 4, 12
EVERY_OPERATOR = "src/dmlvk/spec/enums.py"
"""Lists DirectML's operators, whether they are implemented or not."""
PYTHONS_NAMES = ("src/dmlvk/engine/array_functions.py", "src/dmlvk/builder.py")
"""Say which operators are numpy's functions, and Python's signs between expressions."""


def operator_name() -> str:
    (name,) = re.findall(r"^\+class (\w+)\(", PAGE, re.MULTILINE)
    assert isinstance(name, str)
    return name


def test_the_diff_is_small() -> None:
    assert 0 < len(ADDED) <= MOST_FILES
    assert sum(map(len, ADDED.values())) <= MOST_LINES


def test_the_sources_hold_what_the_diff_adds() -> None:
    assert_the_sources_hold(ADDED)


def test_the_diff_is_all_there_is_of_the_operator() -> None:
    operator = next(kind for kind in REGISTRY if class_name(kind) == operator_name())
    names = re.compile(rf"\b({operator_name()}|{operator.name.lower()}|(OP_)?{operator.name})\b")
    for path, lines in lines_that_name(names, "src/dmlvk", "glsl", "tools").items():
        # A converter from ONNX or PyTorch is another matter than the operator, and so are a function of numpy's and a sign
        # of Python's.
        if path not in (EVERY_OPERATOR, *PYTHONS_NAMES) and not re.search(r"/(onnx|torch/convert)/", path):
            assert set(lines) <= set(ADDED.get(path, ())), path


def test_all_of_directml_s_operators_are_there_so_that_a_new_one_is_a_row_of_our_own() -> None:
    assert set(REGISTRY) == set(OperatorType) - {OperatorType.INVALID}
    named = re.findall(r"`((?:tests|spec|kernels|verify)/[\w/]+(?:\.py|/))`", PAGE)
    assert {"spec/ops/rotary.py", "kernels/rotary/", "verify/cases/rotary.py"} <= {*named}
    for path in named:
        assert any((ROOT / folder / path).exists() for folder in ("", "src/dmlvk")), path
