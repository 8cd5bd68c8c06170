"""Plans of blocks of images, without a device."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

import dmlvk
from dmlvk import TensorDataType, TensorDesc
from dmlvk.devices.capabilities import Capabilities
from dmlvk.kernels.common.registry import LOWERINGS
from dmlvk.kernels.fold.rules import FoldProblem
from dmlvk.kernels.lowering import explain, lower, possible_rules
from dmlvk.spec.errors import InvalidArgumentError, UnsupportedError

FLOAT32, UINT8, INT64 = TensorDataType.FLOAT32, TensorDataType.UINT8, TensorDataType.INT64
CAPS = Capabilities(features=Capabilities().features | {"storage8", "storage16"})


def windows(window: tuple[int, ...], **given: tuple[int, ...]) -> dict[str, tuple[int, ...]]:
    ones, zeros = (1,) * len(window), (0,) * len(window)
    return {
        "window_sizes": window,
        "strides": ones,
        "dilations": ones,
        "start_padding": zeros,
        "end_padding": zeros,
        **given,
    }


def unfold(
    image: tuple[int, ...], attributes: dict[str, Any], data_type: TensorDataType = FLOAT32, strides: Any = None
) -> dmlvk.Unfold:
    desc = dmlvk.Unfold(input_tensor=TensorDesc(data_type, image, strides), **attributes)
    (sizes,) = desc.inferred_output_sizes()
    return desc.replace(output_tensor=TensorDesc(data_type, sizes))


def fold(image: tuple[int, ...], attributes: dict[str, Any], data_type: TensorDataType = FLOAT32) -> dmlvk.Fold:
    columns = unfold(image, attributes, data_type).output_tensor
    return dmlvk.Fold(input_tensor=columns, output_tensor=TensorDesc(data_type, image), **attributes)


def problem(desc: Any) -> FoldProblem:
    desc.validate()
    return LOWERINGS[type(desc)].problem(desc)  # type: ignore[no-any-return]


def constants(desc: Any, rule: str = "") -> dict[str, int]:
    (dispatch,) = lower(desc, CAPS, force=rule).dispatches
    return dict(dispatch.kernel.constants)


def test_sizes_are_inferred_one_way() -> None:
    desc = unfold((2, 3, 7, 9), windows((3, 2), start_padding=(1, 0), end_padding=(1, 1)))
    assert desc.tensor("output_tensor").sizes == (2, 18, 63)
    with pytest.raises(InvalidArgumentError, match="only the caller knows"):
        dmlvk.Fold(input_tensor=desc.output_tensor, **windows((3, 2))).inferred_output_sizes()
    with pytest.raises(InvalidArgumentError, match="fit the padded image"):
        unfold((1, 1, 3), windows((4,)))


def test_dimensions_before_the_batch_have_size_one() -> None:
    desc = unfold((1, 1, 2, 3, 7, 9), windows((3, 2)))
    desc.validate()
    desc.replace(output_tensor=TensorDesc(FLOAT32, (1, 1, 1, 2, 18, 40))).validate()
    with pytest.raises(InvalidArgumentError, match="before N only sizes of 1"):
        desc.replace(input_tensor=TensorDesc(FLOAT32, (2, 1, 2, 3, 7, 9))).validate()


@pytest.mark.parametrize(
    ("image", "attributes", "merged"),
    [
        ((1, 2, 9, 16), windows((3, 1), dilations=(2, 1), start_padding=(1, 0)), [(144, 3, 1, 32, 16, 96)]),
        ((1, 2, 9, 16), windows((3, 1), strides=(2, 1)), [(9, 3, 2, 1, 0, 4), (16, 1, 1, 1, 0, 16)]),
        ((1, 2, 9, 1), windows((3, 1), strides=(2, 1)), [(9, 3, 2, 1, 0, 4)]),
        ((1, 2, 1, 9), windows((1, 3), strides=(5, 1)), [(9, 3, 1, 1, 0, 7)]),
        ((1, 2, 4, 5, 6), windows((1, 1, 1)), [(120, 1, 1, 1, 0, 120)]),
        ((1, 2, 4, 5), windows((2, 1), end_padding=(0, 1)), [(4, 2, 1, 1, 0, 3), (5, 1, 1, 1, 0, 6)]),
    ],
)
def test_whole_lines_become_part_of_the_dimension_outside(
    image: tuple[int, ...], attributes: dict[str, Any], merged: list[tuple[int, ...]]
) -> None:
    for desc in (unfold(image, attributes), fold(image, attributes)):
        found = [(d.size, d.window, d.stride, d.dilation, d.start, d.blocks) for d in problem(desc).dimensions]
        assert found == merged


def test_lines_apart_in_memory_stay_dimensions() -> None:
    desc = unfold((1, 2, 9, 16), windows((3, 1)), strides=(400, 200, 20, 1))
    assert len(problem(desc).dimensions) == 2


def test_a_batch_of_packed_images_is_more_channels() -> None:
    assert constants(unfold((4, 3, 9, 9), windows((3, 3))))["KEPT"] == 1
    assert constants(fold((4, 3, 9, 9), windows((3, 3))))["KEPT"] == 1
    assert constants(unfold((4, 3, 9, 9), windows((3, 3)), strides=(500, 81, 9, 1)))["KEPT"] == 2


def chosen(desc: Any) -> str:
    return next(rule.name for rule, holds in explain(desc, CAPS) if holds)


@pytest.mark.parametrize("data_type", [UINT8, FLOAT32, INT64])
def test_lines_of_blocks_without_gaps_are_copied_in_words(data_type: TensorDataType) -> None:
    """Unless they are short and do not follow each other in the columns."""
    desc = unfold((2, 3, 8, 16), windows((3, 3), strides=(2, 1)), data_type)
    assert chosen(desc) == "rows"
    assert possible_rules(desc, CAPS) == ["rows", "elements"]
    for width, rule in ((2 + 32, "rows"), (2 + 3, "elements")):
        gapped = unfold((2, 3, 8, width), windows((3, 3), strides=(2, 1)), data_type)
        sizes = gapped.tensor("output_tensor").sizes
        strides = (sizes[1] * (sizes[2] + 1), sizes[2] + 1, 1)
        assert chosen(gapped.replace(output_tensor=TensorDesc(data_type, sizes, strides))) == rule
    for forced, unit in (("rows", {INT64: "UINT32"}), ("elements", {INT64: "BITS64"})):
        (dispatch,) = lower(desc, CAPS, force=forced).dispatches
        assert dict(dispatch.kernel.variant)["T"] == {UINT8: "UINT8", FLOAT32: "UINT32", **unit}[data_type]
    assert constants(desc, "elements")["PACKED"] == 0
    apart = desc.replace(strides=(2, 2))
    apart = apart.replace(output_tensor=TensorDesc(data_type, apart.inferred_output_sizes()[0]))
    assert chosen(apart) == "elements"
    assert possible_rules(apart, CAPS) == ["elements"]


def test_a_small_window_is_read_at_once() -> None:
    own = constants(fold((1, 2, 9, 9), windows((3, 3))))
    assert (own["LINES"], own["TAPS"]) == (3, 3)
    # Lines that are read in pieces come one by one, or the order of the sum would not be the window's.
    own = constants(fold((1, 2, 9, 30), windows((3, 20))))
    assert (own["LINES"], own["TAPS"]) == (1, 9)
    # Of a window as large as its stride one element covers an output.
    own = constants(fold((1, 2, 16, 16), windows((4, 4), strides=(4, 4))))
    assert (own["LINES"], own["TAPS"]) == (1, 1)


def test_loops_end_before_a_cpus_driver_ends_them() -> None:
    long = windows((46_000, 1, 1), strides=(1, 2, 2), start_padding=(0, 1, 1))
    desc = fold((1, 1, 91_999, 1, 1), long, TensorDataType.FLOAT16)
    most = dataclasses.replace(CAPS, storage_buffer_bytes=2**32 - 1)
    lower(desc, most)
    with pytest.raises(UnsupportedError, match="rounds"):
        lower(desc, dataclasses.replace(most, is_cpu=True))


@pytest.mark.parametrize(
    ("count", "step", "fits"), [(32_751, 2**16 + 1, True), (32_752, 2**16 + 1, False), (32_752, 2**16, True)]
)
def test_a_division_by_more_than_16_bits_is_32_rounds(count: int, step: int, fits: bool) -> None:
    """Beside two rounds for each element of the window, of 65,535 in all."""
    attributes = windows((count, 1, 1), strides=(1, 2, step), start_padding=(0, 1, 0), end_padding=(0, 0, step))
    desc = fold((1, 1, 2 * count - 1, 1, 1), attributes, TensorDataType.FLOAT16)
    cpu = dataclasses.replace(CAPS, storage_buffer_bytes=2**32 - 1, is_cpu=True)
    if fits:
        lower(desc, cpu)
        return
    with pytest.raises(UnsupportedError, match="65535 rounds"):
        lower(desc, cpu)


@pytest.mark.parametrize(
    ("attributes", "match"),
    [
        (windows((2,), strides=(2**29,), start_padding=(2**31,)), "positions along a dimension"),
        (windows((2,), strides=(2**31,), dilations=(1,), end_padding=(9,)), None),
        (windows((3,), strides=(100_003,), dilations=(99_991,), end_padding=(400_000,)), None),
    ],
)
def test_what_passes_32_bits_is_refused(attributes: dict[str, Any], match: str | None) -> None:
    desc = fold((1, 1, 8), attributes)
    desc.validate()
    if match is None:
        lower(desc, CAPS)
        return
    with pytest.raises(UnsupportedError, match=match):
        lower(desc, CAPS)
