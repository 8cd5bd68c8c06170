"""The table of ONNX Runtime's names is complete, and true of what is here.

What they do is compared in tests/onnx/test_runtime_calls.py.
"""

from __future__ import annotations

import enum
import types
from collections.abc import Iterator

import onnxruntime
import pytest

import dmlvk
import dmlvk.onnx
from dmlvk.onnx.names import NAMES, VERSION, Standing, standing_of

OWNERS = {"": onnxruntime} | {name: getattr(onnxruntime, name) for name in NAMES if name}
ENUMERATIONS = ("ExecutionMode", "ExecutionOrder", "GraphOptimizationLevel", "OrtDeviceVendorId")


def public(thing: object) -> set[str]:
    return {name for name in dir(thing) if name[0] != "_" and not isinstance(getattr(thing, name), types.ModuleType)}


def test_the_names_are_those_of_the_version() -> None:
    assert dmlvk.onnx.__version__ == VERSION == onnxruntime.__version__


@pytest.mark.parametrize("owner", NAMES)
def test_every_public_name_is_listed(owner: str) -> None:
    assert set(NAMES[owner]) == public(OWNERS[owner])


def test_every_class_is_listed_by_member_or_refused() -> None:
    classes = {name for name in public(onnxruntime) if isinstance(getattr(onnxruntime, name), type)}
    refused = {name for name, row in NAMES[""].items() if row.standing is Standing.REFUSED}
    assert classes == {*filter(None, NAMES), *ENUMERATIONS, *(refused & classes)}


@pytest.mark.parametrize("name", ENUMERATIONS)
def test_enumerations_have_the_same_members(name: str) -> None:
    own: type[enum.IntEnum] = getattr(dmlvk.onnx, name)
    assert {key: int(member) for key, member in own.__members__.items()} == {
        key: int(member) for key, member in getattr(onnxruntime, name).__members__.items()
    }


def rows(refused: bool) -> Iterator[tuple[str, str]]:
    for owner, names in NAMES.items():
        for name, row in names.items():
            if (row.standing is Standing.REFUSED) == refused and (owner, name) != (
                "SessionOptions",
                "optimized_model_filepath",
            ):
                yield owner, name


def test_what_is_not_refused_is_there() -> None:
    for owner, name in rows(refused=False):
        thing = getattr(dmlvk.onnx, owner) if owner else dmlvk.onnx
        fields = getattr(thing, "__dataclass_fields__", {})
        assert name in fields or hasattr(thing, name), (owner, name)


def test_what_is_refused_says_why() -> None:
    for owner, name in rows(refused=True):
        thing = getattr(getattr(dmlvk.onnx, owner) if owner else dmlvk.onnx, name)
        with pytest.raises(dmlvk.UnsupportedError, match=name) as error:
            thing()
        assert standing_of(owner, name).note in str(error.value)
        if isinstance(thing, type):
            assert not hasattr(thing, "a_member")


def test_every_row_but_the_same_says_more() -> None:
    assert all(row.note or row.standing is Standing.SAME for names in NAMES.values() for row in names.values())
