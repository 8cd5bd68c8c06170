"""docs/troubleshooting.md: every public exception has its entry, and every message there is one that the code can say."""

from __future__ import annotations

import ast
import functools
import inspect
import pathlib
import re
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
import pytest

import dmlvk
from dmlvk import ElementWiseAdd, TensorDataType, TensorDesc
from dmlvk.engine.numpy_types import data_type_of
from dmlvk.spec import errors

ROOT = pathlib.Path(__file__).parent.parent.parent
PAGE = (ROOT / "docs" / "troubleshooting.md").read_text(encoding="utf-8")
SECTIONS: dict[str, str] = dict(re.findall(r"^## (.+?)\n(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL))
MESSAGES = [
    (title, message) for title, body in SECTIONS.items() for message in re.findall(r"^### `(.+)`$", body, re.MULTILINE)
]
GAP = "\0"
"""Stands for what differs in what is read from the sources; on the page it is three dots."""
RULES = ("InvalidArgumentError", "BindingError")
"""Their messages are made of operator and field, a rule, and the value."""


def text_of(node: ast.expr) -> str | None:
    """What a string literal says, with a gap for each expression in it."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(str(part.value) if isinstance(part, ast.Constant) else GAP for part in node.values)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        left, right = text_of(node.left), text_of(node.right)
        return None if left is None and right is None else (left or GAP) + (right or GAP)
    return None


PLACES = {"broken_rule": 0, "invalid": 0, "invalid_node": 1, "InvalidArgumentError": 0, "BindingError": 0, "constraint": 1}
PLACES |= {"Constraint": 1, "error": 1, "_error": 1}
"""The functions that take a rule, with its place among their arguments."""


def rules(node: ast.Assign | ast.Call) -> Iterator[str]:
    """What is handed on as a rule, or named ``rule``, as far as it is text."""
    texts: list[ast.expr] = []
    match node:
        case ast.Assign([ast.Name("rule")], ast.IfExp(_, one, other)):
            texts = [one, other]
        case ast.Assign([ast.Name("rule")], value):
            texts = [value]
        case ast.Call(ast.Attribute(ast.Name(owner), "error")) if owner.isupper():
            pass  # a limitation, which says what a device cannot do
        case ast.Call(ast.Name(name) | ast.Attribute(_, name), arguments) if name in PLACES:
            texts = arguments[PLACES[name] : PLACES[name] + 1]
    yield from (words for text in texts if (words := text_of(text)) and re.search("[a-z] [a-z]", words))


class Said(NamedTuple):
    """What the sources can say.

    Attributes:
        rules: The rules, each behind its file.
        spoken: The texts.
        gapped: A pattern for each text with a gap.
    """

    rules: list[str]
    spoken: set[str]
    gapped: list[re.Pattern[str]]


@functools.cache  # by the process that runs these tests, and not by each that collects them: it takes seconds
def said() -> Said:
    """Every text in the package's sources and, joined with gaps, every statement's in the native module's; and the rules."""
    texts: set[str] = set()
    found: list[str] = []
    for path in (ROOT / "src" / "dmlvk").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Constant | ast.JoinedStr | ast.BinOp) and (text := text_of(node)) is not None:
                texts.add(text)
            if isinstance(node, ast.Assign | ast.Call):
                found += (f"{path.relative_to(ROOT)}: {rule}" for rule in rules(node))
    for path in (ROOT / "native").glob("*.cpp"):
        for statement in path.read_text(encoding="utf-8").split(";\n"):
            literals = re.sub(r'"\s*\n\s*"', "", statement)
            if parts := re.findall(r'"((?:[^"\\]|\\.)*)"', literals):
                texts.add(GAP.join(parts) + GAP)
    spoken = {text for text in texts if len(text) > 6}
    return Said(found, spoken, [pattern(text, GAP) for text in spoken if GAP in text and len(text) > 16])


def pattern(message: str, gap: str = "...") -> re.Pattern[str]:
    """What a gap leaves open."""
    return re.compile(".*".join(map(re.escape, message.split(gap))), re.DOTALL)


def is_spoken(title: str, message: str) -> bool:
    """Whether some text of the sources begins with the message: without operator and field, which errors put before a rule,
    and without the value behind it."""
    rule = re.sub(r"; (expected \.\.\., )?got \.\.\.$", "", message)
    shortened = rule.partition(": ")[2] if title in RULES else rule.removeprefix("...: ")
    for words in (shortened, rule):
        wanted = pattern(words)
        if len(words.replace("...", "").strip()) > 6 and any(map(wanted.match, said().spoken)):
            return True
    return any(gapped.fullmatch(shortened) for gapped in said().gapped)


def test_every_exception_has_its_section() -> None:
    public = {name for name, item in vars(errors).items() if inspect.isclass(item) and issubclass(item, errors.DmlvkError)}
    assert public - SECTIONS.keys() == set()
    assert {title for title in SECTIONS if title.endswith("Error")} - public == set()


def test_every_section_says_something() -> None:
    assert len(MESSAGES) > 60
    for title, message in MESSAGES:
        _, _, rest = SECTIONS[title].partition(f"### `{message}`\n")
        assert len(rest.partition("###")[0].split()) >= 4, f"nothing is said about {message}"


@pytest.mark.slow  # it reads all of the code
@pytest.mark.parametrize(("title", "message"), MESSAGES, ids=[message for _, message in MESSAGES])
def test_the_code_can_say_it(title: str, message: str) -> None:
    assert is_spoken(title, message), "nothing in src/dmlvk or native begins with it"


@pytest.mark.slow
def test_what_nobody_says_is_found() -> None:
    for title, message in (
        ("NoDeviceError", "no Vulkan loader at all"),
        ("InvalidArgumentError", "Strides: one stride a dimension; got ..."),
        ("VulkanError", "...: VK_ERROR_NONSENSE"),
        ("UnsupportedNodeError", "the operator has no converters"),
    ):
        assert not is_spoken(title, message)


def test_every_rule_says_what_must_be() -> None:
    assert len(said().rules) > 400
    assert [rule for rule in said().rules if not re.search(r"\b(must|may|can)\b", rule)] == []


F32, F16 = TensorDataType.FLOAT32, TensorDataType.FLOAT16
A = TensorDesc(F32, (2, 3))


def addition(**fields: TensorDesc) -> None:
    ElementWiseAdd(**{"a_tensor": A, "b_tensor": A, "output_tensor": A, **fields}).validate()


RAISED: list[tuple[type[errors.DmlvkError], str, Callable[[], object]]] = [
    (errors.InvalidArgumentError, "Sizes: every size must be at least 1; got ...", lambda: TensorDesc(F32, (2, 0))),
    (errors.InvalidArgumentError, "DimensionCount: must be 1 to 8 dimensions; got ...", lambda: TensorDesc(F32, (1,) * 9)),
    (
        errors.InvalidArgumentError,
        "Strides: must have one stride for each dimension, none negative; got ...",
        lambda: TensorDesc(F32, (2,), strides=(-1,)),
    ),
    (
        errors.InvalidArgumentError,
        "TotalTensorSizeInBytes: must be a multiple of 4 below 2**64 and at least the ... bytes that sizes and strides "
        "imply; got ...",
        lambda: TensorDesc(F32, (2,), total_tensor_size_in_bytes=4),
    ),
    (
        errors.InvalidArgumentError,
        "...: all tensors must have the same sizes; expected ..., got ...",
        lambda: addition(b_tensor=TensorDesc(F32, (1, 3))),
    ),
    (
        errors.InvalidArgumentError,
        "...: all tensors must have the same data type; expected ..., got ...",
        lambda: addition(b_tensor=TensorDesc(F16, (2, 3))),
    ),
    (
        errors.InvalidArgumentError,
        "...: no two elements of an output may share memory; got ...",
        lambda: addition(output_tensor=TensorDesc(F32, (2, 3), strides=(0, 1))),
    ),
    (errors.InvalidArgumentError, "dtype: must be one of ...", lambda: data_type_of(np.dtype(complex))),
]


@pytest.mark.parametrize(("error", "message", "call"), RAISED, ids=[message for _, message, _ in RAISED])
def test_the_code_says_it(error: type[errors.DmlvkError], message: str, call: Callable[[], object]) -> None:
    assert (error.__name__, message) in MESSAGES
    with pytest.raises(error) as caught:
        call()
    assert type(caught.value) is error
    assert pattern(message).match(str(caught.value)), str(caught.value)


def test_a_comparison_says_what_came_and_what_was_expected() -> None:
    with pytest.raises(errors.InvalidArgumentError, match=r"same sizes; expected \(2, 3\), got \(1, 3\)$") as caught:
        addition(b_tensor=TensorDesc(F32, (1, 3)))
    assert (caught.value.field, caught.value.value, caught.value.expected) == ("BTensor", (1, 3), (2, 3))


def test_the_version_is_said_once() -> None:
    assert f'version = "{dmlvk.__version__}"' in (ROOT / "pyproject.toml").read_text()
