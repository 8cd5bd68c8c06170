"""The way from a manifest row to a launch, and from another operator's plan to a part of one's own."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import pytest

import dmlvk.kernels
from dmlvk.devices.capabilities import Capabilities
from dmlvk.kernels.common.dispatch import make_dispatch
from dmlvk.kernels.common.parts import chosen_plan, placed
from dmlvk.kernels.common.plan import Plan, Range, Source, input_range, output_range
from dmlvk.kernels.lowering import lower
from dmlvk.kernels.manifest import KERNELS
from dmlvk.spec import ops
from dmlvk.spec.enums import TensorDataType
from dmlvk.spec.tensor import TensorDesc

KERNELS_FOLDER = Path(dmlvk.kernels.__path__[0])
GIVEN: dict[str, Any] = {
    "variant": {"U": "FLOAT16", "T": "FLOAT32", "LANES": True},
    "constants": {"OPERATION": True, "RANK": 2},
}
BINDINGS = (input_range(0), output_range())


def unary(bindings: tuple[Range, ...] = BINDINGS, **changes: Any) -> Any:
    """A launch of the unary kernel, its parameters all 0."""
    params = {member.name: 0 for member in KERNELS["elementwise_unary"].members}
    return make_dispatch("elementwise_unary", bindings, (1, 2, 3), **{**params, **GIVEN, **changes})


def test_a_dispatch_has_the_rows_macros_in_its_order_and_plain_numbers() -> None:
    made = unary()
    assert made.kernel.variant == (("LANES", "1"), ("T", "FLOAT32"), ("U", "FLOAT16"))
    assert repr(made.kernel.constants) == "(('OPERATION', 1), ('RANK', 2))", "in the order given, as plain integers"
    assert (made.bindings, made.grid, made.kernel.subgroup_size) == (BINDINGS, (1, 2, 3), 0)


@pytest.mark.parametrize(
    "wrong",
    [
        {"bindings": (input_range(0),)},
        {"variant": {"T": "FLOAT32", "U": "FLOAT16"}},
        {"variant": {**GIVEN["variant"], "V": "FLOAT32"}},
        {"constants": {"OPERATIONS": 1}},
        {"nosuchparameter": 1},
    ],
    ids=str,
)
def test_what_the_row_does_not_have_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(AssertionError, match="elementwise_unary"):
        unary(**wrong)


def test_a_part_lies_where_the_whole_puts_it() -> None:
    x = TensorDesc(TensorDataType.FLOAT32, (4, 8))
    relu = ops.ActivationRelu(input_tensor=x, output_tensor=x)
    part = chosen_plan(relu, Capabilities())
    assert part == lower(relu, Capabilities())
    (launch,) = placed(part, inputs=(Range(Source.TEMPORARY, 0, 256, 128),), outputs=(output_range(1),))
    assert launch.bindings == (Range(Source.TEMPORARY, 0, 256, 128), output_range(1))


def test_temporary_memory_of_a_part_begins_where_the_whole_says() -> None:
    made = unary((Range(Source.TEMPORARY, 0, 16, 32), Range(Source.OUTPUT, 0, 8, 4)))
    (launch,) = placed(Plan((made,)), inputs=(), outputs=(Range(Source.OUTPUT, 2, 64),), temporary=512)
    assert launch.bindings == (Range(Source.TEMPORARY, 0, 528, 32), Range(Source.OUTPUT, 2, 72, 4))


def test_a_part_that_keeps_something_is_refused() -> None:
    with pytest.raises(AssertionError, match="OWNED_BY_DML"):
        placed(Plan((), persistent_bytes=4), inputs=(), outputs=())


def test_no_family_makes_dispatches_by_hand() -> None:
    for path in KERNELS_FOLDER.rglob("*.py"):
        if path.parent.name == "common":
            continue
        calls = [node.func for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)]
        named = {call.id for call in calls if isinstance(call, ast.Name)}
        assert not named & {"Dispatch", "KernelVariant"}, f"{path}: make_dispatch holds a launch against its row"
