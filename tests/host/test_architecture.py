"""Imports point one way, each layer only at those below it, and only ``runtime`` touches the native module."""

from __future__ import annotations

import ast
import functools
import pathlib
import re

import dmlvk

SOURCE = pathlib.Path(dmlvk.__file__).parent

LAYERS: tuple[tuple[str, ...], ...] = (
    ("spec", "html"),
    ("devices",),
    ("kernels",),
    ("graph",),
    ("runtime",),
    ("engine",),
    ("directml",),
    ("arguments", "images"),
    ("empty_calls",),
    ("eager_calls", "graph_methods"),
    ("eager", "builder"),
    ("xp",),
    ("pydirectml",),
    ("onnx",),
    ("llm", "ort", "dxdispatch", "torch"),
    ("serving",),
    ("ray",),
    ("verify", "doctor"),
    ("cli",),
    ("__main__",),
)
"""The rooms from the bottom up. A module may import from the rows below its own and from its own package."""

DOORS = ("directml", "eager", "builder", "pydirectml", "onnx", "llm", "ort", "dxdispatch", "torch", "ray")
"""What a user imports to describe networks; each translates into steps for the engine."""
ALLOWED: dict[str, frozenset[str]] = {
    "builder": frozenset({"directml.device", "directml.operator"}),  # Function.operator is a compiled operator of DirectML's
    "pydirectml": frozenset({"builder", "directml.device"}),  # it is another spelling of dmlvk.Graph
    "onnx": frozenset({"directml.device"}),  # a session opens a Device
    "ort": frozenset(  # a part of ONNX Runtime's graph is a model, and what runs it a session
        {
            *("directml.device", "onnx", "onnx.control", "onnx.functions", "onnx.host_nodes", "onnx.model"),
            *("onnx.network", "onnx.node_facts", "onnx.program", "onnx.registry", "onnx.weights"),
            *("onnx.external", "onnx.saved_by_runtime"),
        }
    ),
    "torch": frozenset({"directml.device"}),  # its options choose a Device
    "llm": frozenset({"directml.device", "onnx.session"}),  # a decoder may be an ONNX file
    "ray": frozenset(  # its actors run the sessions and models of other doors
        {
            *("directml.device", "llm.model", "onnx.batches", "onnx.external", "onnx.folder", "onnx.options"),
            "onnx.session",
        }
    ),
    "dxdispatch": frozenset(  # its files say which of DirectML's calls to make, and name ONNX models
        {
            "directml.command",
            "directml.device",
            "directml.operator",
            "directml.ready_operator",
            "directml.serialized_graph",
            "onnx.iobinding",
            "onnx.model",
            "onnx.options",
            "onnx.session",
        }
    ),
}
"""Modules of other doors that a door may import, and why."""

PUBLIC = "__init__"
"""dmlvk/__init__.py only gathers public names; nothing inside the package imports from it."""


def layer_of(module: str) -> int:
    for level, names in enumerate(LAYERS):
        if module in names:
            return level
    raise AssertionError(f"dmlvk.{module} has no place in LAYERS")


@functools.cache
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


def modules() -> dict[str, pathlib.Path]:
    """Every module by its name inside the package."""
    found = {}
    for path in SOURCE.rglob("*.py"):
        parts = path.relative_to(SOURCE).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def imported_modules(path: pathlib.Path, known: dict[str, pathlib.Path]) -> set[str]:
    """The modules of the package that a file imports, those for type checkers among them."""
    found = set()
    for name in imports(path):
        module = name if name in known else name.rpartition(".")[0]
        if module in known:
            found.add(module)
    return found


def test_doors_stay_apart() -> None:
    known = modules()
    for module, path in known.items():
        own = module.split(".")[0]
        if own in DOORS:
            others = {name for name in imported_modules(path, known) if name.split(".")[0] in set(DOORS) - {own}}
            assert others <= ALLOWED.get(own, frozenset()), f"{module} imports {others}"


def test_the_engine_knows_no_door() -> None:
    paths = list((SOURCE / "engine").rglob("*.py"))
    assert len(paths) > 15
    for path in paths:
        text = path.read_text().lower()
        for word in ("onnx", "protobuf", "pytorch", "dml_graph"):
            assert word not in text, f"{path.name} says {word!r}"


def test_no_circles_of_imports() -> None:
    """Neither inside a room nor between rooms, imports for type checkers included."""
    known = modules()
    edges = {name: imported_modules(path, known) - {name} for name, path in known.items()}
    while True:
        free = {name for name, targets in edges.items() if targets.isdisjoint(edges)}
        if not free:
            break
        edges = {name: targets for name, targets in edges.items() if name not in free}
    assert not edges, f"in a circle, or above one: {sorted(edges)}"


def test_a_class_has_a_name_of_its_own() -> None:
    """In all rooms below the doors. A door may have a name of the library that it stands for, and words of its own."""
    shared = {name for names in LAYERS[: LAYERS.index(("engine",)) + 1] for name in names}
    places: dict[str, list[str]] = {}
    for module, path in modules().items():
        if module.split(".")[0] in shared:
            for node in ast.parse(path.read_text()).body:
                if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                    places.setdefault(node.name, []).append(module)
    assert len(places) > 400
    assert not {name: found for name, found in places.items() if len(found) > 1}
