"""The fills' rows and plans, without a device."""

from __future__ import annotations

import math
from typing import Any

import pytest

from dmlvk.devices.capabilities import Capabilities
from dmlvk.kernels.common.plan import Dispatch, input_range, output_range
from dmlvk.kernels.fill.lowering import scalar_bits
from dmlvk.kernels.lowering import lower, possible_rules
from dmlvk.kernels.manifest import KERNELS
from dmlvk.spec.enums import TensorDataType
from dmlvk.spec.errors import InvalidArgumentError
from dmlvk.spec.ops.fill import DiagonalMatrix, DiagonalMatrix1, FillValueConstant, FillValueSequence, OneHot
from dmlvk.spec.schema import OperatorDesc
from dmlvk.spec.tensor import TensorDesc

FLOAT64, FLOAT32, FLOAT16, INT64, INT8, UINT8, UINT32 = (
    TensorDataType[name] for name in ("FLOAT64", "FLOAT32", "FLOAT16", "INT64", "INT8", "UINT8", "UINT32")
)
LEAST = Capabilities(features=frozenset({"storage8", "storage16"}))


def dispatch(desc: OperatorDesc, **options: Any) -> Dispatch:
    desc.validate()
    (only,) = lower(desc, LEAST, **options).dispatches
    return only


def constants(desc: OperatorDesc) -> dict[str, int]:
    return dict(dispatch(desc).kernel.constants)


def param(launch: Dispatch, name: str) -> tuple[int, ...]:
    """The words of a parameter."""
    start = 0
    for member in KERNELS[launch.kernel.kernel].members:
        length = 4 * max(member.length, 1)
        if member.name == name:
            return tuple(int.from_bytes(launch.params[i : i + 4], "little") for i in range(start, start + length, 4))
        start += length
    raise KeyError(name)


def constant(tensor: TensorDesc, value: float = 1) -> FillValueConstant:
    return FillValueConstant(output_tensor=tensor, value_data_type=tensor.data_type, value=value)


def sequence(data_type: TensorDataType, start: float, delta: float) -> FillValueSequence:
    tensor = TensorDesc(data_type, (3, 5))
    return FillValueSequence(output_tensor=tensor, value_data_type=data_type, value_start=start, value_delta=delta)


def diagonal(begin: int, end: int, sizes: tuple[int, ...] = (4, 6), **changes: Any) -> DiagonalMatrix1:
    fields = {"value_data_type": FLOAT32, "value": 1, "diagonal_fill_begin": begin, "diagonal_fill_end": end}
    return DiagonalMatrix1(**{"output_tensor": TensorDesc(FLOAT32, sizes), **fields, **changes})


def one_hot(**changes: Any) -> OneHot:
    tensors = {
        "indices_tensor": TensorDesc(INT64, (3, 1, 4)),
        "values_tensor": TensorDesc(FLOAT32, (1, 1, 2)),
        "output_tensor": TensorDesc(FLOAT32, (3, 7, 4)),
    }
    return OneHot(**{**tensors, "axis": 1, **changes})


@pytest.mark.parametrize(
    ("desc", "field"),
    [
        (constant(TensorDesc(UINT8, (2,)), 256), "Value"),
        (constant(TensorDesc(UINT8, (2,)), -1), "Value"),
        (constant(TensorDesc(UINT8, (2,)), 0.5), "Value"),
        (constant(TensorDesc(UINT8, (2,)), math.nan), "Value"),
        (constant(TensorDesc(FLOAT32, (2,)), 1e39), "Value"),
        (constant(TensorDesc(FLOAT64, (2,)), 10**400), "Value"),
        (constant(TensorDesc(INT8, (2,))).replace(value_data_type=UINT8), "ValueDataType"),
        (sequence(UINT8, -2, 1), "ValueStart"),
        (sequence(UINT8, 10, -129), "ValueDelta"),
        (sequence(INT8, 10, 128), "ValueDelta"),
        (diagonal(0, 2**31), "DiagonalFillEnd"),
        (diagonal(-(2**31) - 1, 0), "DiagonalFillBegin"),
        (diagonal(True, 3), "DiagonalFillBegin"),
        (diagonal(0, 1, input_tensor=TensorDesc(FLOAT32, (4, 5))), "OutputTensor"),
        (one_hot(axis=3), "Axis"),
        (one_hot(axis=0), "IndicesTensor"),
        (one_hot(indices_tensor=TensorDesc(INT64, (3, 7, 4))), "IndicesTensor"),
        (one_hot(values_tensor=TensorDesc(FLOAT32, (1, 1, 1))), "ValuesTensor"),
    ],
)
def test_each_rule_is_checked(desc: OperatorDesc, field: str) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        desc.validate()
    assert caught.value.field == field


def test_a_delta_may_count_an_unsigned_type_down() -> None:
    launch = dispatch(sequence(UINT8, 10, -2))
    assert param(launch, "delta") == (254, 0)
    assert dispatch(sequence(INT64, 0, -1)).kernel.variant[1] == ("T", "UINT32")


@pytest.mark.parametrize(
    "desc", [constant(TensorDesc(FLOAT32, (2,))), diagonal(0, 1), one_hot()], ids=lambda desc: desc.type.name
)
def test_sizes_that_nothing_else_says_are_asked_for(desc: OperatorDesc) -> None:
    with pytest.raises(InvalidArgumentError, match=r"\.OutputTensor: must be given"):
        desc.inferred_output_sizes()


@pytest.mark.parametrize("data_type", FillValueConstant.fields[0].data_types)
def test_64_bits_need_no_feature(data_type: TensorDataType) -> None:
    launch = dispatch(constant(TensorDesc(data_type, (3, 5))))
    assert dict(launch.kernel.constants)["HALVES"] == (2 if data_type.name.endswith("64") else 1)
    assert param(launch, "count") == (-(-15 // (16 // {"64": 8, "32": 4, "16": 2}.get(data_type.name[-2:], 1))),)


def test_words_need_rows_that_start_on_them() -> None:
    assert possible_rules(constant(TensorDesc(FLOAT32, (3, 5))), LEAST) == ["words", "elements"]
    assert possible_rules(constant(TensorDesc(FLOAT32, (3, 5), (8, 1))), LEAST) == ["words", "elements"]
    assert possible_rules(constant(TensorDesc(FLOAT32, (3, 5), (6, 1))), LEAST) == ["elements"]
    assert possible_rules(constant(TensorDesc(FLOAT32, (3, 5), (1, 4))), LEAST) == ["words", "elements"], "columns"
    assert possible_rules(constant(TensorDesc(INT64, (3, 5), (6, 1))), LEAST) == ["words", "elements"]


def test_eight_dimensions_of_64_bits_are_no_more() -> None:
    sizes = (2,) * 8
    strides = tuple(3 * 5**axis for axis in range(8))
    launch = dispatch(constant(TensorDesc(INT64, sizes, strides)))
    assert dict(launch.kernel.constants)["RANK"] == 8
    assert param(launch, "output_strides")[-1] == 6, "in halves"


def test_a_diagonal_is_the_band_of_one() -> None:
    desc = DiagonalMatrix(output_tensor=TensorDesc(INT8, (3, 4)), offset=-1, value=-300.7)
    assert desc.upgrade() == DiagonalMatrix1(
        output_tensor=desc.output_tensor,
        value_data_type=INT8,
        value=-128,
        diagonal_fill_begin=-1,
        diagonal_fill_end=0,
    )
    wide = desc.replace(output_tensor=TensorDesc(FLOAT64, (3, 4)), value=0.1).upgrade()
    assert wide.value == 0.10000000149011612, "a FLOAT"


@pytest.mark.parametrize(
    ("ends", "expected"),
    [
        ((0, 1), (3, 4, 0)),
        ((2, -1), (2, 5, 1)),
        ((-(2**31), 2**31 - 1), (0, 9, 0)),
        ((2**31 - 1, -(2**31)), (0, 9, 1)),
        ((-9, -4), (0, 0, 0)),
        ((6, 99), (9, 9, 0)),
    ],
)
def test_diagonals_count_from_the_corner_and_stay_in_the_matrix(ends: tuple[int, int], expected: tuple[int, ...]) -> None:
    launch = dispatch(diagonal(*ends))
    found = (*param(launch, "begin"), *param(launch, "end"), dict(launch.kernel.constants)["OUTSIDE"])
    assert found == expected


def test_a_background_is_read_and_its_absence_is_not() -> None:
    background = TensorDesc(FLOAT32, (4, 6), (0, 1))
    for desc, bound, there in (
        (diagonal(0, 1), output_range(), 0),
        (diagonal(0, 1, input_tensor=background), input_range(0), 1),
    ):
        launch = dispatch(desc)
        assert launch.bindings == (bound, output_range())
        assert dict(launch.kernel.constants)["HAS_INPUT"] == there
        assert param(launch, "position") == (3,)


def test_indices_are_read_as_words() -> None:
    for name, words, signed in (("INT64", 2, 1), ("INT32", 1, 1), ("UINT64", 2, 0), ("UINT32", 1, 0)):
        chosen = constants(one_hot(indices_tensor=TensorDesc(TensorDataType[name], (3, 1, 4))))
        assert (chosen["INDEX_WORDS"], chosen["INDEX_SIGNED"]) == (words, signed)


def test_the_second_value_lies_along_the_fastest_dimension() -> None:
    def second(sizes: tuple[int, ...], strides: tuple[int, ...] | None = None) -> int:
        return param(dispatch(one_hot(values_tensor=TensorDesc(FLOAT32, sizes, strides))), "on")[0]

    assert second((1, 1, 2)) == 1
    assert second((1, 3, 1)) == 1
    assert second((2, 2, 2), (1, 8, 5)) == 5
    assert second((2, 1, 1), (0, 9, 9)) == 0, "a broadcast: on is off"


def test_shapes_and_numbers_share_a_pipeline() -> None:
    first = dispatch(constant(TensorDesc(FLOAT32, (3, 5)))).kernel
    assert dispatch(constant(TensorDesc(UINT32, (7, 100)), 9)).kernel == first
    assert dispatch(diagonal(0, 1, (4, 8))).kernel == dispatch(diagonal(-2, 3, (9, 64))).kernel


@pytest.mark.parametrize(
    ("value", "data_type", "bits"),
    [
        (1.0, FLOAT64, (0, 0x3FF00000)),
        (65504.0, FLOAT16, (0x7BFF, 0)),
        (1e38, FLOAT16, (0x7C00, 0)),
        (-1, INT8, (0xFF, 0)),
        (-2, INT64, (0xFFFFFFFE, 0xFFFFFFFF)),
    ],
)
def test_scalar_bits(value: float, data_type: TensorDataType, bits: tuple[int, int]) -> None:
    assert scalar_bits(value, data_type) == bits
