"""Every row against the stored specification: names, kinds, optionality, types, dimensions, in-place, fusion.

A difference is either a bug or listed in DIFFERENCES with its reason.
"""

from __future__ import annotations

import json
import pathlib
from typing import Any

from together import together

from dmlvk.devices.capabilities import Capabilities
from dmlvk.kernels.common.registry import LOWERINGS
from dmlvk.kernels.lowering import lower
from dmlvk.spec import ops as _ops  # noqa: F401  # fills the registry
from dmlvk.spec.enums import OperatorType
from dmlvk.spec.schema import REGISTRY, FieldKind, OperatorDesc, class_name
from dmlvk.verify.cases import all_cases
from dmlvk.verify.cases.problem import Variation, build
from dmlvk.verify.oracle import oracle

DATA = pathlib.Path(__file__).parent.parent / "data" / "operators.json"
SPECIFICATION: dict[str, Any] = {entry["name"]: entry for entry in json.loads(DATA.read_text())["operators"]}

DIFFERENCES: dict[str, str] = {
    "ActivationHardSwish.in_place": "the page allows it, the schema does not flag it: we follow the page",
    "ActivationSwish.in_place": "the page allows it, the schema does not flag it: we follow the page",
    "ActivationHardSwish.fusable": "not in DirectML; what stands behind most convolutions of today costs nothing there",
    "ActivationSwish.fusable": "not in DirectML; what stands behind most convolutions of today costs nothing there",
    "ActivationGelu.in_place": "the schema flags it, the page is silent: we follow the schema",
    "ElementWiseIsInfinity.in_place": "the schema flags it, the page is silent, and no range holds both types: not in place",
    "Fold.data_types": "the page's column is empty: the types in which other operators add",
    "MultiheadAttention1.past_sequence_lengths_tensor.data_types": "floats on the page, INT32 in ONNX Runtime: both",
    "Unfold.data_types": "the page's column is empty: every type that the operators have which only move elements",
}

ROWS = sorted(REGISTRY.values(), key=lambda row: row.type)


def specified(row: type[OperatorDesc]) -> dict[str, Any]:
    return SPECIFICATION[row.type.dml_name]  # type: ignore[no-any-return]


def test_there_are_rows() -> None:
    assert len(ROWS) >= 20
    assert {row.__name__ for row in ROWS} >= {"MeanVarianceNormalization1", "ElementWiseModulusFloor", "RoiAlign"}


@together(list(OperatorType)[1:], lambda operator: operator.name)
def test_operator_types_are_the_specification(operator: OperatorType) -> None:
    entry = SPECIFICATION[operator.dml_name]
    assert entry["value"] == operator.value
    major, minor = entry["feature_level"].split(".")
    assert operator.feature_level.name == f"LEVEL_{major}_{minor}"


@together(ROWS, lambda row: row.__name__)
def test_fields(row: type[OperatorDesc]) -> None:
    counts = {field["count_field"] for field in specified(row)["fields"] if "count_field" in field}
    wanted = [field for field in specified(row)["fields"] if field["name"] not in counts | {"DimensionCount"}]
    assert [field.dml_name for field in row.fields] == [field["name"] for field in wanted]
    for field, entry in zip(row.fields, wanted, strict=True):
        kind, _, enumeration = entry["type"].partition(":")
        assert field.kind.value == kind, field
        assert field.optional == entry["optional"], field
        if field.kind is FieldKind.ENUM:
            assert field.enumeration is not None
            assert class_name_of_enumeration(enumeration) == field.enumeration.__name__


def class_name_of_enumeration(name: str) -> str:
    return "".join(part.capitalize() for part in name.removeprefix("DML_").split("_"))


@together(ROWS, lambda row: row.__name__)
def test_tensors(row: type[OperatorDesc]) -> None:
    wanted = {entry["tensor"]: entry for entry in specified(row)["tensors"]}
    for field in row.fields:
        if field.kind.is_tensor:
            entry = wanted[field.dml_name]
            if f"{row.__name__}.{field.name}.data_types" in DIFFERENCES:
                assert {data_type.name for data_type in field.data_types} > set(entry["dtypes"]), field.name
            elif f"{row.__name__}.data_types" in DIFFERENCES:
                assert not entry["dtypes"], "the specification names data types"
            else:
                assert {data_type.name for data_type in field.data_types} == set(entry["dtypes"]), field.name
            assert list(field.dimension_counts) == entry["dims"], field.name


@together(ROWS, lambda row: row.__name__)
def test_in_place(row: type[OperatorDesc]) -> None:
    entry = specified(row)["in_place"]
    names = {field.dml_name for field in row.fields if field.name in row.in_place}
    key = f"{row.__name__}.in_place"
    if entry["supported"] == "conflict":
        assert key in DIFFERENCES, entry
        possible = {data_type for field in row.fields if field.kind.is_output for data_type in field.data_types}
        inputs = {field.dml_name for field in row.fields if field.kind.is_input and possible.intersection(field.data_types)}
        assert names == set(entry["output_may_alias"]) & inputs
    else:
        assert names == set(entry["output_may_alias"] if entry["supported"] else ())


@together(ROWS, lambda row: row.__name__)
def test_fusion(row: type[OperatorDesc]) -> None:
    accepts = any(field.kind is FieldKind.FUSED_ACTIVATION for field in row.fields)
    assert accepts == specified(row)["accepts_fused_activation"]
    limited = {"ELEMENT_WISE_CLIP", "ACTIVATION_SOFTMAX", "ACTIVATION_SOFTMAX1"}
    if f"{row.__name__}.fusable" in DIFFERENCES:
        assert row.fusable and not specified(row)["fusable_activation"]
    elif row.type.name not in limited:
        assert row.fusable == specified(row)["fusable_activation"]


@together(ROWS, lambda row: row.__name__)
def test_row_has_docstring_kernel_oracle_and_cases(row: type[OperatorDesc]) -> None:
    assert row.__doc__ and not row.__doc__.startswith(f"{row.__name__}("), "a row says what it computes"
    assert row in LOWERINGS or row.upgrade is not OperatorDesc.upgrade, "no kernel and no upgrade"
    assert not (row in LOWERINGS and row.upgrade is not OperatorDesc.upgrade), "a kernel of its own and an upgrade"
    assert row in all_cases(), "no cases"
    assert oracle(row) is not None, "no oracle"


def test_every_row_with_kernels_has_oracle_and_cases() -> None:
    """Those of our own, which passes and language models make, too: their kernels can be wrong as any."""
    assert not [row.__name__ for row in LOWERINGS if row not in all_cases()], "verify runs none of these"
    assert not [row.__name__ for row in LOWERINGS if oracle(row) is None], "no oracle"


@together(ROWS, lambda row: row.__name__)
def test_class_names_follow_the_rule(row: type[OperatorDesc]) -> None:
    assert class_name(row.type) == row.__name__


POINTWISE_FAMILIES = (
    "ew_unary",
    "ew_binary",
    "ew_ternary",
    "ew_activation",
    "quantize_ew",
    "ew_quant_binary",
    "fill",
    "optimizer",
)
"""The specification's kernel families of operators that make each element on its own."""


@together(SPECIFICATION)
def test_every_operator_has_a_row(name: str) -> None:
    assert name in {row.type.dml_name for row in ROWS}


@together([row for row in ROWS if specified(row)["kernel_family"] in POINTWISE_FAMILIES], lambda row: row.__name__)
def test_no_pointwise_operator_needs_memory_of_its_own(row: type[OperatorDesc]) -> None:
    caps = Capabilities(features=frozenset({"storage8", "storage16", "int64", "float64"}))
    entry = all_cases()[row]
    for case in entry.cases:
        for data_type in case.only or entry.crossed_types:
            plan = lower(build(row, Variation(case, data_type, "strided")).desc, caps)
            assert plan.temporary_bytes == 0
            assert plan.dispatches


def test_every_listed_difference_is_needed() -> None:
    names = {row.__name__ for row in ROWS}
    for key in DIFFERENCES:
        name = key.split(".")[0]
        if name in names:
            assert SPECIFICATION[REGISTRY[next(t for t in REGISTRY if class_name(t) == name)].type.dml_name]
