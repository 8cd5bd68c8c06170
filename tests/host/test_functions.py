"""Operators as functions: what a wrong name is answered with, and what type checkers are told."""

from __future__ import annotations

import ast
import inspect
import pathlib
from collections.abc import Callable

import generate_stubs
import pytest

import dmlvk
from dmlvk import eager
from dmlvk.arguments import Arguments
from dmlvk.graph_methods import GraphMethods
from dmlvk.spec.functions import EAGER_OPTIONS, rows_by_name
from dmlvk.spec.schema import FieldKind


@pytest.mark.parametrize(
    ("asked", "answered"),
    [
        ("softmax", ["activation_softmax1", "activation_log_softmax1"]),
        ("conv", ["convolution", "convolution_integer", "quantized_linear_convolution"]),
        ("element_wise_substract", ["element_wise_subtract"]),
        ("matmul", []),
    ],
)
def test_a_wrong_name_is_answered_with_near_ones(asked: str, answered: list[str]) -> None:
    for owner, call in (("dmlvk.eager", lambda: getattr(eager, asked)), ("a Graph", lambda: getattr(GraphMethods(), asked))):
        with pytest.raises(AttributeError) as caught:
            call()
        said, _, near = str(caught.value).partition("; did you mean ")
        assert said == f"{owner} has no operator {asked!r}"
        assert near.removesuffix("?").split(", ")[: len(answered) or 1] == (answered or [""])


def test_a_wrong_argument_is_answered_with_near_ones() -> None:
    row = dmlvk.ActivationSoftmax1
    with pytest.raises(TypeError, match=r"^activation_softmax1\(\) has no argument 'axis'; did you mean axes\?$"):
        Arguments(row, (None,), {"axis": (1,)}, EAGER_OPTIONS)


def stub_functions(path: pathlib.Path) -> dict[str, list[ast.FunctionDef]]:
    """The functions of a stub with all their overloads, those of a class too."""
    found: dict[str, list[ast.FunctionDef]] = {}
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.FunctionDef):
            found.setdefault(node.name, []).append(node)
    return found


def parameters(function: ast.FunctionDef) -> list[tuple[str, str | None]]:
    """Names and defaults, None for none; the names of keywords begin with a star."""
    arguments = function.args
    assert all(item.annotation is not None for item in arguments.args + arguments.kwonlyargs if item.arg != "self")
    missing: list[ast.expr | None] = [None] * (len(arguments.args) - len(arguments.defaults))
    pairs = list(zip(arguments.args, missing + list(arguments.defaults), strict=True))
    named = zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
    return [(item.arg, None if value is None else ast.unparse(value)) for item, value in pairs if item.arg != "self"] + [
        ("*" + item.arg, None if value is None else ast.unparse(value)) for item, value in named
    ]


@pytest.mark.parametrize(
    ("stub", "function"),
    [("eager.pyi", lambda name: getattr(eager, name)), ("graph_methods.pyi", lambda name: getattr(GraphMethods(), name))],
)
def test_the_stub_of_a_function_is_what_runs(
    stub: str, function: Callable[[str], Callable[..., object]], tmp_path: pathlib.Path
) -> None:
    generate_stubs.write(tmp_path)
    functions = stub_functions(tmp_path / stub)
    assert functions.keys() == rows_by_name().keys()
    for name, overloads in functions.items():
        wanted = [
            (
                "*" * (item.kind is item.KEYWORD_ONLY) + item.name,
                None if item.default is item.empty else generate_stubs.default_text(item.default),
            )
            for item in inspect.signature(function(name)).parameters.values()
        ]
        text = inspect.getdoc(function(name)) or ""
        assert [item for item, _ in wanted if f"\n    {item.lstrip('*')}: " not in text] == [], (
            f"{name} documents all arguments"
        )
        documented = text.partition("\n\n")[0]
        for overload in overloads:
            narrow = {"*outputs", "*output_sizes"} if len(overloads) > 1 else set()  # an overload may ask for these
            pairs = zip(parameters(overload), wanted, strict=True)
            assert all(has == own or (has == (own[0], None) and own[0] in narrow) for has, own in pairs), name
            assert overload.returns is not None and ast.unparse(overload.returns) != "Any", name
            assert ast.get_docstring(overload) == documented, name


def test_every_kind_of_attribute_has_a_type() -> None:
    attributes = {spec.kind for row in rows_by_name().values() for spec in row.fields if not spec.kind.is_tensor}
    assert attributes == generate_stubs.ATTRIBUTES.keys() | {FieldKind.ENUM}
