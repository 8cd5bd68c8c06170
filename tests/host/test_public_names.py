"""dir() of the package and of its public modules is what docs/api.md lists."""

from __future__ import annotations

import pathlib
import re
import subprocess
import sys

import pytest

import dmlvk
import dmlvk.eager
import dmlvk.llm
import dmlvk.onnx
import dmlvk.xp
from dmlvk.onnx.names import NAMES, Standing
from dmlvk.spec.enums import OperatorType
from dmlvk.spec.schema import REGISTRY

ROOT = pathlib.Path(__file__).parent.parent.parent
PAGE = (ROOT / "docs" / "api.md").read_text(encoding="utf-8")
PAGES = [ROOT / "README.md", *(path for path in sorted((ROOT / "docs").glob("*.md")) if not path.name.startswith("adding-"))]
SECTIONS: dict[str, str] = dict(re.findall(r"^## (.+?)\n(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL))
OPERATORS = {row.__name__ for row in REGISTRY.values()}


def listed(*titles: str) -> list[str]:
    """The names in the first columns of the sections' tables."""
    return [name for title in titles for name in re.findall(r"^\| `(\w+)` \| .+ \|$", SECTIONS[title], re.MULTILINE)]


def test_the_package_has_what_is_documented() -> None:
    names = listed(*(title for title in SECTIONS if not title.startswith("dmlvk.")))
    assert len(names) == len(set(names))
    assert dir(dmlvk) == sorted({*names, *OPERATORS})
    assert {*dmlvk.__all__, "onnx", "__version__"} == set(dir(dmlvk)), "a star import needs no extra"
    assert len(dmlvk.__all__) == len(set(dmlvk.__all__))


def test_the_onnx_door_has_what_is_documented() -> None:
    """Its own names, and ONNX Runtime's, which have a page of their own; a star import leaves out what is refused."""
    assert dir(dmlvk.onnx) == sorted({*listed("dmlvk.onnx"), *NAMES[""]})
    accepted = {name for name, row in NAMES[""].items() if row.standing is not Standing.REFUSED}
    assert sorted(dmlvk.onnx.__all__) == sorted({*listed("dmlvk.onnx"), *accepted})


def test_the_language_models_have_what_is_documented() -> None:
    assert dir(dmlvk.llm) == sorted(dmlvk.llm.__all__) == sorted(listed("dmlvk.llm"))


def test_the_door_of_pytorch_has_what_is_documented() -> None:
    """Read and not imported, which takes seconds and makes a device of PyTorch's."""
    code = (ROOT / "src" / "dmlvk" / "torch" / "__init__.py").read_text(encoding="utf-8")
    (names,) = re.findall(r"^__all__ = \[(.*?)^\]", code, re.MULTILINE | re.DOTALL)
    assert re.findall(r'"(\w+)"', names) == sorted(listed("dmlvk.torch"))
    assert "def __dir__() -> list[str]:\n    return list(__all__)" in code


def test_the_eager_door_has_a_function_for_each_operator() -> None:
    names = {operator.name.lower() for operator in OperatorType} - {"invalid"}
    assert set(dir(dmlvk.eager)) == names
    assert {getattr(dmlvk.eager, name).__name__ for name in names} == names


def test_the_arrays_have_what_is_documented() -> None:
    page = (ROOT / "docs" / "arrays.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| [\w ]+ \| (`.+) \|$", page.split("## What is not there")[0], re.MULTILINE)
    names = [name for row in rows for name in re.findall(r"`(\w+)`", row)]
    assert len(names) == len(set(names))
    assert dir(dmlvk.xp) == sorted(names)
    assert all(hasattr(dmlvk.xp, name) for name in names)


def test_the_number_of_operators_is_true() -> None:
    assert f"[{len(OPERATORS)} operators]" in SECTIONS["Operators"]


EVERYTHING = """
import importlib, pkgutil, sys, types, dmlvk

for module in pkgutil.walk_packages(dmlvk.__path__, "dmlvk."):
    if module.name != "dmlvk.__main__":
        importlib.import_module(module.name)
modules = {name for name in dir(dmlvk) if isinstance(getattr(dmlvk, name), types.ModuleType)}
assert modules == {"eager", "onnx", "pydirectml", "xp"}, modules
assert callable(dmlvk.devices)
for line in sys.stdin.read().splitlines():
    page, name = line.split()
    try:
        pkgutil.resolve_name(name)
    except (AttributeError, ImportError) as error:
        raise AssertionError(f"{page} names {name}") from error
"""


@pytest.mark.slow
def test_names_stay_what_they_are_whatever_else_is_imported() -> None:
    """The package dmlvk.devices has the name of a public function.

    Pages name what there is; the guides for additions are left out, as they name what is to be added. Both are seen in one
    process, since importing PyTorch and Ray takes most of the time.
    """
    said = [
        f"{path.name} {name}"
        for path in PAGES
        for name in sorted(set(re.findall(r"\bdmlvk(?:\.[A-Za-z]\w*)+", path.read_text(encoding="utf-8"))))
    ]
    subprocess.run([sys.executable, "-c", EVERYTHING], input="\n".join(said), text=True, check=True)
