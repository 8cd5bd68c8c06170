"""What the runner's cases cannot show of logic, comparisons, predicates and bits: second oracles and the types that the
eager functions choose."""

from __future__ import annotations

import operator
from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import dmlvk
from dmlvk import IsInfinityMode, TensorDataType, arguments, eager
from dmlvk.engine.numpy_types import data_type_of
from dmlvk.spec import ops
from dmlvk.spec.schema import FieldKind, OperatorDesc
from dmlvk.verify.cases import all_cases
from dmlvk.verify.cases.model import NUMPY_TYPES, generator, special
from dmlvk.verify.cases.problem import Variation, build

Array = NDArray[Any]

COMPARISONS: dict[str, Callable[[Any, Any], Any]] = {
    "equals": operator.eq,
    "greater_than": operator.gt,
    "less_than": operator.lt,
    "greater_than_or_equal": operator.ge,
    "less_than_or_equal": operator.le,
}


def compared(name: str, a: Array, b: Array, **options: object) -> Array:
    return np.asarray(getattr(eager, f"element_wise_logical_{name}")(a, b, **options))


@pytest.mark.parametrize("name", COMPARISONS)
def test_every_special_float_is_compared_with_every_other(device: dmlvk.Device, name: str) -> None:
    for kind in (np.float32, np.float16):
        values = np.unique(special(generator("pairs"), (400,), data_type_of(np.dtype(kind))).view(f"u{kind().itemsize}"))
        a, b = np.meshgrid(values.view(kind), values.view(kind))
        expected = [
            [COMPARISONS[name](float(p), float(q)) for p, q in zip(*rows, strict=True)] for rows in zip(a, b, strict=True)
        ]
        assert values.size >= 18
        assert np.array_equal(compared(name, a, b), expected)


@pytest.mark.quick
@pytest.mark.parametrize("name", COMPARISONS)
@pytest.mark.parametrize("kind", [np.float32, np.float16])
def test_subnormals_are_neither_zero_nor_each_other(device: dmlvk.Device, name: str, kind: type[Any]) -> None:
    least = np.finfo(kind).smallest_subnormal
    a = np.array([least, least, -least, 0.0, -least, least, np.finfo(kind).tiny], kind)
    b = np.array([0.0, 2 * least, least, -least, -0.0, least, least], kind)
    expected = [COMPARISONS[name](float(p), float(q)) for p, q in zip(a, b, strict=True)]
    assert compared(name, a, b).tolist() == expected


def test_neighbours_of_64_bits(device: dmlvk.Device) -> None:
    for kind, middle in ((np.int64, 2**53), (np.int64, -(2**62)), (np.uint64, 2**63)):
        a = np.array([middle, middle, middle + 1], kind)
        b = np.array([middle, middle + 1, middle], kind)
        for name, compare in COMPARISONS.items():
            assert compared(name, a, b).tolist() == [compare(int(p), int(q)) for p, q in zip(a, b, strict=True)]


def test_logic_agrees_with_torch(device: dmlvk.Device, torch: ModuleType) -> None:
    rng = generator("torch")
    a, b = (rng.integers(0, 3, 1001).astype(np.uint8) for _ in range(2))
    left, right = torch.from_numpy(a), torch.from_numpy(b)
    for name in ("and", "or", "xor"):
        result = getattr(eager, f"element_wise_logical_{name}")(a, b)
        assert np.array_equal(result, getattr(torch, f"logical_{name}")(left, right).numpy())
    assert np.array_equal(eager.element_wise_logical_not(a), torch.logical_not(left).numpy())
    x = special(rng, (1001,), TensorDataType.FLOAT32)
    assert np.array_equal(eager.element_wise_is_nan(x), torch.isnan(torch.from_numpy(x)).numpy())
    for mode, name in (("EITHER", "isinf"), ("POSITIVE", "isposinf"), ("NEGATIVE", "isneginf")):
        result = eager.element_wise_is_infinity(x, infinity_mode=IsInfinityMode[mode])
        assert np.array_equal(result, getattr(torch, name)(torch.from_numpy(x)).numpy())


@pytest.mark.parametrize("kind", [np.float64, np.float32, np.int64, np.float16, np.int8])
def test_bits_are_those_of_python_integers(device: dmlvk.Device, kind: type[Any]) -> None:
    unsigned = f"u{np.dtype(kind).itemsize}"
    width = 8 * np.dtype(kind).itemsize
    a, b = (generator("bits", side).integers(0, 2**width, 101, np.uint64).astype(unsigned) for side in "ab")
    pairs = list(zip(a.tolist(), b.tolist(), strict=True))
    for name, function in (("and", operator.and_), ("or", operator.or_), ("xor", operator.xor)):
        result = getattr(eager, f"element_wise_bit_{name}")(a.view(kind), b.view(kind))
        assert result.dtype == kind
        assert result.view(unsigned).tolist() == [function(p, q) for p, q in pairs]
    assert eager.element_wise_bit_not(a.view(kind)).view(unsigned).tolist() == [2**width - 1 - p for p, _ in pairs]
    assert eager.element_wise_bit_count(a.view(kind)).tolist() == [p.bit_count() for p, _ in pairs]


@pytest.mark.parametrize("kind", [np.uint64, np.uint32, np.uint16, np.uint8])
def test_shifts_push_bits_out(device: dmlvk.Device, kind: type[Any]) -> None:
    width = 8 * np.dtype(kind).itemsize
    most = int(np.iinfo(kind).max)
    counts = [*range(width + 1), width + 1, 2 * width, most - 1, most]
    x = np.full(len(counts), most // 3 * 2 + 1, kind)
    left, right = (getattr(eager, f"element_wise_bit_shift_{side}")(x, np.array(counts, kind)) for side in ("left", "right"))
    assert left.tolist() == [int(x[0]) << count & most if count < width else 0 for count in counts]
    assert right.tolist() == [int(x[0]) >> count for count in counts]


# -- the types that the eager functions choose


@pytest.mark.parametrize("kind", [NUMPY_TYPES[t] for t in ops.ElementWiseBitCount.fields[0].data_types], ids=str)
def test_answers_and_counts_are_bytes(device: dmlvk.Device, kind: np.dtype[Any]) -> None:
    x = np.arange(5).astype(kind)
    assert eager.element_wise_bit_count(x).dtype == np.uint8
    if kind != np.float64:
        assert compared("equals", x, x).dtype == np.uint8
        assert compared("equals", x, x, output_data_types=TensorDataType.UINT32).dtype == np.uint32
    if kind in (np.float32, np.float16):
        assert eager.element_wise_is_nan(x).dtype == np.uint8


def test_logic_keeps_its_operands_type(device: dmlvk.Device) -> None:
    for kind in (np.uint8, np.uint32):
        x = np.arange(3, dtype=kind)
        assert eager.element_wise_logical_not(x).dtype == kind
        assert eager.element_wise_logical_or(x, x).dtype == kind


def test_a_choice_has_the_type_of_what_is_chosen_and_a_power_that_of_its_base(device: dmlvk.Device) -> None:
    x = np.arange(3, dtype=np.float32)
    assert eager.element_wise_if(x > 1, x, x).dtype == np.float32
    assert eager.element_wise_pow(x.astype(np.int16), x).dtype == np.int16


def test_a_cast_must_be_told(device: dmlvk.Device) -> None:
    with pytest.raises(
        dmlvk.InvalidArgumentError, match=r"CAST\.output_data_types: must be given, because OutputTensor may be FLOAT64, "
    ):
        eager.cast(np.zeros(3, np.float32))


def test_operands_of_two_types_are_named(device: dmlvk.Device) -> None:
    with pytest.raises(dmlvk.InvalidArgumentError, match="a_tensor and b_tensor must have the same data type"):
        eager.element_wise_logical_equals(np.zeros(3, np.float32), np.zeros(3, np.int32))


@pytest.mark.parametrize("row", all_cases(), ids=lambda row: row.__name__)
def test_no_output_type_is_inferred_wrongly(row: type[OperatorDesc]) -> None:
    """A required output of a row's first case has the inferred type, or is a UINT32 that might be UINT8, or must be told."""
    entry = all_cases()[row]
    case = entry.cases[0]
    desc = build(row, Variation(case, (case.only or entry.crossed_types)[0], "packed")).desc
    bare = desc.replace(**{field.name: None for field in row.fields if field.kind.is_output})
    for spec in row.fields:
        if spec.kind is FieldKind.OUTPUT_TENSOR and not spec.optional:
            wanted = desc.tensor(spec.name).data_type
            answers = spec.data_types == (TensorDataType.UINT32, TensorDataType.UINT8)
            try:
                found = arguments.inferred_data_type(bare, spec)
            except dmlvk.InvalidArgumentError as error:
                assert error.rule.startswith("must be given, because ")
            else:
                assert found is wanted or (answers and found is TensorDataType.UINT8)
