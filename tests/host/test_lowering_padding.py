"""Plans of paddings and of reversed subsequences, without a device."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

import dmlvk
from dmlvk import PaddingMode, TensorDataType, TensorDesc
from dmlvk.devices.capabilities import Capabilities
from dmlvk.kernels.common.registry import LOWERINGS
from dmlvk.kernels.lowering import explain, lower, possible_rules
from dmlvk.kernels.manifest import KERNELS
from dmlvk.kernels.padding import lowering as padding
from dmlvk.kernels.padding.rules import PaddedDimension
from dmlvk.spec.errors import UnsupportedError

UINT8, FLOAT16, FLOAT32, INT64 = (TensorDataType[name] for name in ("UINT8", "FLOAT16", "FLOAT32", "INT64"))
CAPS = Capabilities(features=Capabilities().features | {"storage8", "storage16"})
CONSTANT, EDGE = PaddingMode.CONSTANT, PaddingMode.EDGE


def padded(
    sizes: tuple[int, ...],
    start: tuple[int, ...],
    end: tuple[int, ...],
    mode: PaddingMode = CONSTANT,
    data_type: TensorDataType = FLOAT32,
    strides: tuple[int, ...] | None = None,
    value: float = 0,
) -> dmlvk.Padding1:
    desc = dmlvk.Padding1(
        input_tensor=TensorDesc(data_type, sizes, strides),
        padding_mode=mode,
        padding_value_data_type=data_type,
        padding_value=value,
        start_padding=start,
        end_padding=end,
    )
    (output,) = desc.inferred_output_sizes()
    desc = desc.replace(output_tensor=TensorDesc(data_type, output))
    desc.validate()
    return desc


def problem(desc: Any) -> Any:
    return LOWERINGS[type(desc)].problem(desc)


def dimensions(desc: dmlvk.Padding1) -> list[tuple[int, int, int]]:
    return [own[:3] for own in problem(desc).dimensions]


def chosen(desc: Any) -> str:
    return next(rule.name for rule, holds in explain(desc, CAPS) if holds)


def test_what_is_not_padded_is_one_dimension() -> None:
    assert dimensions(padded((2, 3, 5, 7), (0, 0, 1, 1), (0, 0, 1, 1))) == [(6, 0, 0), (5, 1, 1), (7, 1, 1)]
    assert dimensions(padded((2, 3, 5, 7), (0, 1, 0, 0), (0, 0, 0, 0))) == [(2, 0, 0), (105, 35, 0)]
    assert dimensions(padded((3, 5, 7), (2, 0, 0), (1, 0, 0))) == [(105, 70, 35)]
    # Lines that are repeated are no longer one run of memory.
    assert dimensions(padded((3, 5, 7), (2, 0, 0), (1, 0, 0), EDGE)) == [(3, 2, 1), (35, 0, 0)]
    assert dimensions(padded((3, 5, 7), (0, 0, 0), (0, 0, 0))) == [(105, 0, 0)]
    assert dimensions(padded((1, 1), (0, 0), (0, 0))) == [(1, 0, 0)]
    # Of one element there is nothing but itself, in every mode but one.
    assert dimensions(padded((1, 5), (2, 0), (1, 0), EDGE)) == [(4, 0, 0), (5, 0, 0)]


def test_units_are_as_wide_as_their_places_allow() -> None:
    assert problem(padded((3, 32), (1, 0), (1, 0), data_type=UINT8)).bits == 128
    assert problem(padded((3, 32), (1, 2), (1, 0), data_type=UINT8)).bits == 16
    assert problem(padded((3, 32), (1, 2), (1, 0), data_type=FLOAT16)).bits == 32
    assert problem(padded((3, 32), (0, 1), (0, 1), data_type=INT64)).bits == 64
    # Elements that are mirrored stay what they are.
    assert problem(padded((3, 32), (0, 2), (0, 2), EDGE, UINT8)).bits == 8
    assert problem(padded((3, 32), (2, 0), (2, 0), EDGE, UINT8)).bits == 128


@pytest.mark.parametrize(
    ("desc", "rule", "rules"),
    [
        (padded((2, 3, 5, 207), (0, 0, 1, 1), (0, 0, 1, 1)), "rows", {"rows", "units"}),
        (padded((2, 3, 5, 7), (0, 0, 1, 1), (0, 0, 1, 1)), "units", {"rows", "units"}),  # of few words
        (padded((2, 3, 5, 7), (0, 0, 1, 1), (0, 0, 1, 1), EDGE), "rows", {"rows", "units"}),
        (padded((2, 3, 5, 7), (0, 0, 1, 1), (0, 0, 1, 1), EDGE, INT64), "units", {"units"}),
        (padded((2, 3, 5, 207), (0, 0, 1, 1), (0, 0, 1, 1), data_type=INT64), "units", {"rows", "units"}),  # of half words
        (padded((3, 256), (4, 4), (8, 0)), "units", {"rows", "units"}),  # of whole words
        (padded((3, 5), (1, 1), (1, 1), strides=(1, 3)), "units", {"units"}),
    ],
)
def test_the_rule(desc: dmlvk.Padding1, rule: str, rules: set[str]) -> None:
    assert chosen(desc) == rule
    assert set(possible_rules(desc, CAPS)) == rules


def test_rows_of_a_packed_output_follow_each_other() -> None:
    desc = padded((2, 3, 5, 7), (0, 0, 1, 1), (0, 0, 1, 1))
    apart = desc.replace(output_tensor=TensorDesc(FLOAT32, (2, 3, 7, 9), (200, 63, 9, 1)))
    for own, packed in ((desc, 1), (apart, 0)):
        (dispatch,) = lower(own, CAPS, force="rows").dispatches
        assert dict(dispatch.kernel.constants)["PACKED"] == packed


@pytest.mark.parametrize(
    ("data_type", "value", "bits"),
    [
        (UINT8, 0xA5, (0xA5A5A5A5, 0xA5A5A5A5)),
        (FLOAT16, -2.0, (0xC000C000, 0xC000C000)),
        (FLOAT32, 1.5, (0x3FC00000, 0x3FC00000)),
        (INT64, -2, (0xFFFFFFFE, 0xFFFFFFFF)),
    ],
)
@pytest.mark.parametrize("rule", ["rows", "units"])
def test_the_value_repeats_over_64_bits(data_type: TensorDataType, value: float, bits: tuple[int, int], rule: str) -> None:
    desc = padded((3, 5), (1, 1), (1, 1), data_type=data_type, value=value)
    (dispatch,) = lower(desc, CAPS, force=rule).dispatches
    members = KERNELS["padding"].members
    before = list(itertools.takewhile(lambda member: member.name != "fill", members))
    at = 4 * sum(max(member.length, 1) for member in before)
    found = dispatch.params[at : at + 8]
    assert tuple(int.from_bytes(found[i : i + 4], "little") for i in (0, 4)) == bits


def numpys_places(mode: PaddingMode, size: int, start: int, end: int) -> list[int]:
    """Where each element of the output comes from, one element after the other."""
    period = list(range(size))
    if mode == PaddingMode.REFLECTION and size > 1:
        period += period[-2:0:-1]
    elif mode == PaddingMode.SYMMETRIC:
        period += period[::-1]
    if mode == EDGE:
        return [min(max(place, 0), size - 1) for place in range(-start, size + end)]
    return [period[place % len(period)] for place in range(-start, size + end)]


@pytest.mark.parametrize("mode", [mode for mode in PaddingMode if mode != CONSTANT])
@pytest.mark.parametrize("size", [1, 2, 3, 7])
@pytest.mark.parametrize(("start", "end"), [(0, 1), (1, 0), (5, 9), (23, 0)])
def test_one_formula_serves_every_mode(mode: PaddingMode, size: int, start: int, end: int) -> None:
    own = PaddedDimension(size, start, end, 1, 1)
    low, high, shift, period, mirror = padding.dimension_map(mode, own, "")
    found = []
    for coordinate in range(own.output_size):
        place = (min(max(coordinate, low), high) + shift) % 2**32 % period
        found.append(min(place, (mirror - place) % 2**32))
    assert found == numpys_places(mode, size, start, end)


@pytest.mark.parametrize("data_type", [FLOAT32, INT64])
def test_rows_of_wider_units_are_moved_in_32_bits(data_type: TensorDataType) -> None:
    desc = padded((4, 8), (1, 0), (1, 0), data_type=data_type)
    assert problem(desc).bits == 128
    (dispatch,) = lower(desc, CAPS, force="rows").dispatches
    assert dict(dispatch.kernel.variant)["T"] == "UINT32"
    (dispatch,) = lower(padded((4, 8), (1, 1), (1, 1), data_type=INT64), CAPS, force="rows").dispatches
    assert dict(dispatch.kernel.variant)["T"] == "UINT32"


@pytest.mark.parametrize(("mode", "size"), [(PaddingMode.SYMMETRIC, 2**30), (PaddingMode.WRAP, 2**31 - 2**29)])
def test_an_output_and_its_period_fit_32_bits(mode: PaddingMode, size: int) -> None:
    least = 2**30
    padding.dimension_map(mode, PaddedDimension(size, least, 0, 1, 1), "Padding")
    with pytest.raises(UnsupportedError, match="does not fit 32 bits"):
        padding.dimension_map(mode, PaddedDimension(size, least, 1, 1, 1), "Padding")


def test_a_period_beyond_32_bits_is_refused() -> None:
    desc = padded((2**31, 1), (2**30, 0), (0, 0), PaddingMode.SYMMETRIC, UINT8)
    with pytest.raises(UnsupportedError, match="does not fit 32 bits"):
        lower(desc, Capabilities(storage_buffer_bytes=2**32 - 1))


# -- gradients of slices


def slice_grad(
    sizes: tuple[int, ...],
    offsets: tuple[int, ...],
    window: tuple[int, ...],
    strides: tuple[int, ...],
    data_type: TensorDataType = FLOAT32,
) -> dmlvk.SliceGrad:
    taken = tuple(1 + (size - 1) // abs(step) for size, step in zip(window, strides, strict=True))
    desc = dmlvk.SliceGrad(
        input_gradient_tensor=TensorDesc(data_type, taken),
        output_gradient_tensor=TensorDesc(data_type, sizes),
        input_window_offsets=offsets,
        input_window_sizes=window,
        input_window_strides=strides,
    )
    desc.validate()
    return desc


def test_the_gradient_of_a_window_is_a_padding() -> None:
    gradient = problem(slice_grad((6, 300), (2, 1), (3, 255), (1, 1)))
    assert gradient == problem(padded((3, 255), (2, 1), (1, 44)))
    assert chosen(slice_grad((6, 300), (2, 1), (3, 255), (1, 1))) == "rows"
    assert problem(slice_grad((6, 32), (2, 4), (3, 16), (-1, 1))).bits == 128


def test_the_gradient_of_steps_has_zeros_between() -> None:
    own = problem(slice_grad((4, 9, 41), (0, 1, 2), (4, 8, 39), (1, 2, -3)))
    assert own.dimensions == (
        PaddedDimension(4, 0, 0, 4 * 13, 9 * 41),
        PaddedDimension(4, 1, 1, 13, 41, 2),
        PaddedDimension(13, 4, 0, -1, 1, 3),
    )
    assert own.x_start == 12, "the last one taken comes first"


def test_a_step_that_is_not_taken_is_none() -> None:
    own = problem(slice_grad((4, 9), (3, 2), (1, 5), (7, -100)))
    assert [dimension[:3] for dimension in own.dimensions] == [(1, 3, 0), (1, 6, 2)]
    assert not any(dimension.dilated for dimension in own.dimensions)


def test_rows_in_steps_are_moved_whole_and_elements_in_steps_one_by_one() -> None:
    rows, elements = (slice_grad((8, 65), (0, 0), (8, 65), strides, UINT8) for strides in ((2, 1), (1, 2)))
    assert chosen(rows) == "rows"
    assert chosen(elements) == "units"
    assert possible_rules(elements, CAPS) == ["units"]
    (dispatch,) = lower(elements, CAPS).dispatches
    assert {name: dict(dispatch.kernel.constants)[name] for name in ("RANK", "PADDED", "DILATED")} == {
        "RANK": 2,
        "PADDED": 2,
        "DILATED": 2,
    }


# -- reversed subsequences


def reversal(
    sizes: tuple[int, ...], axis: int, strides: tuple[int, ...] | None = None, data_type: TensorDataType = FLOAT32
) -> dmlvk.ReverseSubsequences:
    desc = dmlvk.ReverseSubsequences(
        input_tensor=TensorDesc(data_type, sizes),
        sequence_lengths_tensor=TensorDesc(TensorDataType.UINT32, (*sizes[:axis], 1, *sizes[axis + 1 :]), strides),
        output_tensor=TensorDesc(data_type, sizes),
        axis=axis,
    )
    desc.validate()
    return desc


def test_what_shares_a_length_is_a_row() -> None:
    """Lengths of the batch alone, broadcast over the rest, as a model's ReverseSequence has them."""
    desc = reversal((4, 9, 3, 65), 1, (1, 0, 0, 0))
    own = problem(desc)
    assert (own.bits, own.walk.sizes, own.axis, own.size) == (32, (4, 9), 1, 195)
    assert chosen(desc) == "rows"
    assert chosen(reversal((4, 9, 3, 68), 1, (1, 0, 0, 0))) == "units"  # of whole words


def test_a_length_an_element_moves_elements() -> None:
    desc = reversal((4, 9, 3, 65), 1)
    own = problem(desc)
    assert (own.bits, own.walk.sizes, own.axis, own.size) == (32, (4, 9, 195), 1, 1)
    assert chosen(desc) == "units"


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_the_axis_is_a_dimension_of_its_own(axis: int) -> None:
    own = problem(reversal((4, 9, 5), axis, (0, 0, 0)))
    assert own.walk.sizes[own.axis] == (4, 9, 5)[axis]
    assert own.walk.strides[2][own.axis] == 0
    assert len(own.walk.sizes) <= 2


def test_steps_that_are_never_taken_may_be_large() -> None:
    far = (2**32 - 1, 1)
    one = TensorDesc(INT64, (1, 9), far)
    lower(padded((1, 9), (1, 1), (0, 0), data_type=INT64, strides=far), CAPS, force="rows")
    desc = reversal((1, 9), 0, (0, 0), INT64).replace(input_tensor=one)
    assert lower(desc, CAPS, force="rows").dispatches
