"""The tensor helpers against brute force: every element's address is listed and counted."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dmlvk.spec.enums import TensorDataType
from dmlvk.spec.errors import InvalidArgumentError
from dmlvk.spec.tensor import (
    TensorDesc,
    TensorLayout,
    calc_buffer_tensor_size,
    calculate_strides,
    element_bits,
    packed_strides,
)

DATA_TYPES = [data_type for data_type in TensorDataType if data_type != TensorDataType.UNKNOWN]
F32 = TensorDataType.FLOAT32

sizes_and_strides = st.lists(st.tuples(st.integers(1, 4), st.integers(0, 20)), min_size=1, max_size=5)


def addresses(sizes: tuple[int, ...], strides: tuple[int, ...]) -> list[int]:
    """The element offset of every logical element, repeats included."""
    return [
        sum(index * step for index, step in zip(position, strides, strict=True))
        for position in itertools.product(*map(range, sizes))
    ]


@given(sizes_and_strides, st.sampled_from(DATA_TYPES))
def test_buffer_size_is_the_last_addressed_bit_in_whole_words(
    dims: list[tuple[int, int]], data_type: TensorDataType
) -> None:
    sizes, strides = zip(*dims, strict=True)
    last_bit = (max(addresses(sizes, strides)) + 1) * element_bits(data_type)
    assert calc_buffer_tensor_size(data_type, sizes, strides) == math.ceil(last_bit / 32) * 4


@given(st.lists(st.integers(1, 6), min_size=1, max_size=5), st.sampled_from(DATA_TYPES))
def test_packed_strides_use_every_element_once_in_order(sizes: list[int], data_type: TensorDataType) -> None:
    assert addresses(tuple(sizes), packed_strides(sizes)) == list(range(math.prod(sizes)))
    assert calc_buffer_tensor_size(data_type, sizes) == calc_buffer_tensor_size(data_type, sizes, packed_strides(sizes))


@given(sizes_and_strides)
def test_overlap_is_what_counting_says(dims: list[tuple[int, int]]) -> None:
    sizes, strides = zip(*dims, strict=True)
    listed = addresses(sizes, strides)
    assert TensorDesc(F32, sizes, strides).has_overlapping_elements == (len(set(listed)) < len(listed))


@given(st.tuples(*[st.integers(1, 5)] * 4), st.tuples(*[st.booleans()] * 4), st.sampled_from(TensorLayout))
def test_calculated_strides_pack_the_dimensions_that_are_not_broadcast(
    sizes: tuple[int, int, int, int], broadcast: tuple[bool, bool, bool, bool], layout: TensorLayout
) -> None:
    strides = calculate_strides(layout, sizes, broadcast)
    assert all(strides[axis] == 0 for axis in range(4) if broadcast[axis])
    kept = ["NCHW".index(name) for name in layout.value if not broadcast["NCHW".index(name)]]
    in_memory_order = addresses(tuple(sizes[axis] for axis in kept), tuple(strides[axis] for axis in kept))
    assert in_memory_order == list(range(math.prod(sizes[axis] for axis in kept)))


def test_worked_sizes() -> None:
    assert calc_buffer_tensor_size(F32, (1, 3, 4, 5)) == 240
    assert calc_buffer_tensor_size(TensorDataType.FLOAT16, (3,)) == 8
    assert calc_buffer_tensor_size(TensorDataType.INT4, (3,)) == 4
    assert calc_buffer_tensor_size(TensorDataType.UNKNOWN, (3,)) == 0
    assert calc_buffer_tensor_size(F32, (1000, 1000), (0, 0)) == 4
    assert calc_buffer_tensor_size(TensorDataType.FLOAT64, (2**16, 2**15)) == 2**34
    assert calculate_strides("NHWC", (2, 3, 4, 5)) == (60, 1, 15, 3)


def test_an_interleaved_layout_too_large_to_count_is_taken_for_overlapping() -> None:
    assert TensorDesc(F32, (1024, 1025), (2, 2045)).has_overlapping_elements


@pytest.mark.parametrize(
    ("field", "arguments"),
    [
        ("DataType", {"data_type": 99}),
        ("DataType", {"data_type": TensorDataType.UNKNOWN}),
        ("DimensionCount", {"sizes": ()}),
        ("DimensionCount", {"sizes": (1,) * 9}),
        ("Sizes", {"sizes": (2, 0)}),
        ("Sizes", {"sizes": (2, 1.5)}),
        ("Sizes", {"sizes": (2**16, 2**16)}),
        ("Strides", {"strides": (1,)}),
        ("Strides", {"strides": (3, -1)}),
        ("Strides", {"strides": (2**32, 1)}),
        ("TotalTensorSizeInBytes", {"total_tensor_size_in_bytes": 20}),
        ("TotalTensorSizeInBytes", {"total_tensor_size_in_bytes": 26}),
        ("GuaranteedBaseOffsetAlignment", {"guaranteed_base_offset_alignment": 24}),
        ("GuaranteedBaseOffsetAlignment", {"guaranteed_base_offset_alignment": 2}),
        ("Flags", {"flags": "OWNED_BY_DML"}),
    ],
)
def test_a_broken_desc_names_its_field(field: str, arguments: dict[str, object]) -> None:
    good: dict[str, object] = {"data_type": F32, "sizes": (2, 3)}
    with pytest.raises(InvalidArgumentError) as caught:
        TensorDesc(**good | arguments)  # type: ignore[arg-type]
    assert caught.value.field == field
    TensorDesc(**good)  # type: ignore[arg-type]


def test_helpers_take_integers_of_any_kind_and_nothing_else() -> None:
    large = np.full(4, 2**16, np.int32)
    assert calc_buffer_tensor_size(TensorDataType.FLOAT32, large) == 4 * 2**64
    assert calculate_strides("NCHW", large) == (2**48, 2**32, 2**16, 1)
    for sizes in (None, 3, "ab", (2.5, 1, 1, 1), (float("inf"),) * 4):
        with pytest.raises(InvalidArgumentError):
            calc_buffer_tensor_size(TensorDataType.FLOAT32, sizes)  # type: ignore[arg-type]
        with pytest.raises(InvalidArgumentError):
            calculate_strides("NCHW", sizes)  # type: ignore[arg-type]
    for fields in ({"total_tensor_size_in_bytes": "8"}, {"guaranteed_base_offset_alignment": 1.5}):
        with pytest.raises(InvalidArgumentError):
            TensorDesc(TensorDataType.FLOAT32, (2,), **fields)  # type: ignore[arg-type]
