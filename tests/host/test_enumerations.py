"""Enum fields take the numbers of DirectML's header, and whoever reads a desc finds members."""

from __future__ import annotations

import enum
from typing import Any

import numpy as np
import pytest

from dmlvk.arguments import Arguments
from dmlvk.spec import ops
from dmlvk.spec.enums import (
    ExecutionFlags,
    IsInfinityMode,
    MatrixTransform,
    MultiheadAttentionMaskType,
    TensorDataType,
    TensorFlags,
    member,
)
from dmlvk.spec.errors import InvalidArgumentError
from dmlvk.spec.schema import REGISTRY, FieldSpec, OperatorDesc, ScaleBias, Size2D
from dmlvk.spec.tensor import TensorDesc
from dmlvk.verify.cases import all_cases
from dmlvk.verify.cases.problem import Variation, build

F = TensorDataType.FLOAT32
FIELDS = [
    (row, field) for row in sorted(REGISTRY.values(), key=lambda row: row.type) for field in row.fields if field.enumeration
]


def first_desc(row: type[OperatorDesc]) -> OperatorDesc:
    entry = all_cases()[row]
    case = entry.cases[0]
    return build(row, Variation(case, (case.only or entry.crossed_types)[0], "packed")).desc


def members_of(field: FieldSpec) -> list[enum.IntEnum]:
    assert field.enumeration is not None
    return list(field.enumeration)


@pytest.mark.parametrize(("row", "field"), FIELDS, ids=lambda value: getattr(value, "name", None) or value.__name__)
def test_numbers_become_members(row: type[OperatorDesc], field: FieldSpec) -> None:
    desc = first_desc(row)
    for wanted in members_of(field):
        expected = desc.replace(**{field.name: wanted})
        for number in (wanted.value, np.int8(wanted.value), np.uint64(wanted.value), float(wanted.value)):
            found = desc.replace(**{field.name: number})
            assert getattr(found, field.name) is wanted
            assert found == expected
            assert repr(found) == repr(expected)


@pytest.mark.parametrize(("row", "field"), FIELDS, ids=lambda value: getattr(value, "name", None) or value.__name__)
def test_a_wrong_number_names_the_field_and_what_is_allowed(row: type[OperatorDesc], field: FieldSpec) -> None:
    desc = first_desc(row)
    for wrong in (99, -1, 1.5, "NONE", ExecutionFlags.NONE, [0], np.array([0, 1]), TensorFlags.OWNED_BY_DML):
        with pytest.raises(InvalidArgumentError) as found:
            desc.replace(**{field.name: wrong}).validate()
        assert found.value.field == field.dml_name
        for allowed in members_of(field):
            assert f"{allowed.value} ({allowed.name})" in found.value.rule


def test_attention_masks_by_number() -> None:
    x, mask = TensorDesc(F, (1, 3, 8)), TensorDesc(TensorDataType.INT32, (1, 2, 3, 3))
    fields: dict[str, Any] = {
        **dict.fromkeys(("query_tensor", "key_tensor", "value_tensor", "output_tensor"), x),
        "scale": 1.0,
        "mask_filter_value": -1e9,
        "head_count": 2,
    }
    masked = ops.MultiheadAttention(**fields, mask_tensor=mask, mask_type=4)
    masked.validate()
    assert masked.mask_type is MultiheadAttentionMaskType.BOOLEAN
    plain = ops.MultiheadAttention(**fields, mask_type=0)
    plain.validate()
    assert plain.mask_type is MultiheadAttentionMaskType.NONE


def test_functions_take_numbers() -> None:
    call = Arguments(ops.ElementWiseIsInfinity, (None,), {"infinity_mode": np.int64(2), "output_data_types": 5}, {})
    desc = call.describe([TensorDesc(F, (3,))])
    assert isinstance(desc, ops.ElementWiseIsInfinity)
    assert desc.infinity_mode is IsInfinityMode.NEGATIVE
    assert desc.output_tensor is not None
    assert desc.output_tensor.data_type is TensorDataType.UINT8
    wrong = Arguments(ops.ElementWiseIsInfinity, (None,), {"output_data_types": 99}, {})
    with pytest.raises(InvalidArgumentError, match=r"output_data_types: must be a TensorDataType: 0 \(UNKNOWN\)"):
        wrong.describe([TensorDesc(F, (3,))])


def test_tensors_and_flags_take_numbers() -> None:
    tensor = TensorDesc(np.int64(1), (2,), flags=np.uint8(1))  # type: ignore[arg-type]
    assert tensor.data_type is F
    assert tensor.flags is TensorFlags.OWNED_BY_DML
    assert member(ExecutionFlags, 6, "flags") == ExecutionFlags.DISABLE_META_COMMANDS | ExecutionFlags.DESCRIPTORS_VOLATILE
    assert member(ExecutionFlags, 0, "flags") is ExecutionFlags.NONE
    assert member(MatrixTransform, True, "trans_a") is MatrixTransform.TRANSPOSE
    for enumeration, wrong in (
        (TensorFlags, 2),
        (ExecutionFlags, 8),
        (ExecutionFlags, "NONE"),
        (TensorDataType, None),
        (MatrixTransform, IsInfinityMode.POSITIVE),
    ):
        with pytest.raises(InvalidArgumentError, match=f"^where: must be a {enumeration.__name__}: 0 "):
            member(enumeration, wrong, "where")


def test_scalars_of_numpy_become_python_numbers() -> None:
    tensor = TensorDesc(F, (1, 1, 300, 4))
    wide = ops.Slice1(
        input_tensor=tensor,
        output_tensor=TensorDesc(F, (1, 1, 100, 2)),
        input_window_offsets=tuple(map(np.int8, (0, 0, 100, 0))),
        input_window_sizes=tuple(map(np.uint8, (1, 1, 200, 4))),
        input_window_strides=tuple(map(np.int16, (1, 1, 2, 2))),
    )
    wide.validate()
    for name in ("input_window_offsets", "input_window_sizes", "input_window_strides"):
        assert {type(number) for number in getattr(wide, name)} == {int}
    scan = ops.CumulativeSummation(
        input_tensor=tensor, output_tensor=tensor, axis=np.int8(2), has_exclusive_sum=np.True_, axis_direction=1
    )
    scan.validate()
    assert scan.has_exclusive_sum is True
    assert type(scan.axis) is int
    activation = ops.ActivationElu(alpha=np.float32(0.5))
    assert type(activation.alpha) is float
    pair = ops.ElementWiseAbs(input_tensor=tensor, output_tensor=tensor, scale_bias=ScaleBias(np.float16(2), np.int8(3)))
    assert isinstance(pair.scale_bias, ScaleBias)
    assert [type(number) for number in pair.scale_bias] == [float, int]
    scale = ops.ValueScale2d(input_tensor=tensor, output_tensor=tensor, scale=np.float64(2), bias=(np.float32(1),))
    assert [type(number) for number in (scale.scale, *scale.bias)] == [float, float]
    pooled = ops.RoiPooling(
        input_tensor=tensor, roi_tensor=tensor, output_tensor=tensor, spatial_scale=1.0, pooled_size=Size2D(np.int8(3), 2)
    )
    assert isinstance(pooled.pooled_size, Size2D)
    assert type(pooled.pooled_size.width) is int
