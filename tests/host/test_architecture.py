"""Imports point one way, each layer only at those below it, and only ``runtime`` touches the native module."""

from __future__ import annotations

import ast
import pathlib
import re

import dmlvk

SOURCE = pathlib.Path(dmlvk.__file__).parent

LAYERS: tuple[tuple[str, ...], ...] = (
    ("spec",),
    ("devices",),
    ("kernels",),
    ("graph",),
    ("runtime",),
    ("engine",),
    ("directml",),
    ("arguments",),
    ("eager_calls", "graph_methods"),
    ("eager", "builder"),
    ("onnx",),
    ("verify",),
    ("cli",),
    ("__main__",),
)
"""From the bottom up. A module may import from the rows below its own and from its own package."""

PUBLIC = "__init__"
"""dmlvk/__init__.py only gathers public names; nothing inside the package imports from it."""


def layer_of(module: str) -> int:
    for level, names in enumerate(LAYERS):
        if module in names:
            return level
    raise AssertionError(f"dmlvk.{module} has no place in LAYERS")


def imports(path: pathlib.Path) -> list[str]:
    """Every module of dmlvk that a file imports, at any depth of the file, as "package.module"."""
    found = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            found += [f"{node.module}.{alias.name}" for alias in node.names]
    return [name.removeprefix("dmlvk.") for name in found if name.startswith("dmlvk.")]


def test_imports_point_down() -> None:
    for path in SOURCE.rglob("*.py"):
        own = path.relative_to(SOURCE).parts[0].removesuffix(".py")
        if own == PUBLIC:
            continue
        for name in imports(path):
            target = name.split(".")[0]
            allowed = target == own or layer_of(target) < layer_of(own)
            assert allowed, f"{path.relative_to(SOURCE)} imports dmlvk.{name}, which is not below it"


def test_the_package_knows_no_other_distribution() -> None:
    for path in SOURCE.rglob("*.py"):
        assert not re.search(r"^\s*(import|from) dmlvk_", path.read_text(), re.MULTILINE), path


def test_only_the_runtime_imports_the_native_module() -> None:
    for path in SOURCE.rglob("*.py"):
        if path.relative_to(SOURCE).parts[0] != "runtime":
            assert not any("_native" in name for name in imports(path)), path


def test_rows_and_rules_need_neither_numpy_nor_a_gpu() -> None:
    for package in ("spec", "devices", "kernels"):
        for path in (SOURCE / package).rglob("*.py"):
            assert not re.search(r"^\s*(import|from) (numpy|dmlvk\.runtime)", path.read_text(), re.MULTILINE), path


def test_rules_name_no_vendor() -> None:
    paths = list((SOURCE / "kernels").glob("*/rules.py"))
    assert paths
    for path in paths:
        lines = path.read_text().lower().splitlines()
        conditions = "\n".join(line for line in lines if "because" not in line)
        for vendor in ("nvidia", "intel", "radeon", "adreno", "mali", "llvmpipe"):
            assert not re.search(rf"\b{vendor}\b", conditions), f"{path}: {vendor}"
