"""Convolution's rules and plans, without a device."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import math
import operator
import struct
from typing import Any

import choices
import numpy as np
import pytest

from dmlvk.devices.capabilities import SUBGROUPS, Capabilities, CooperativeMatrix
from dmlvk.devices.model import H200
from dmlvk.kernels.common.plan import Dispatch, KernelVariant, Plan, Source, input_range, output_range
from dmlvk.kernels.common.registry import LOWERINGS
from dmlvk.kernels.common.rule import choose
from dmlvk.kernels.convolution import winograd as convolution_winograd
from dmlvk.kernels.convolution.geometry import Geometry, divided_phases, geometry_of
from dmlvk.kernels.convolution.matrix_tiles import MATRIX_TILES, matrix_choice, product_tile
from dmlvk.kernels.convolution.rules import CONVOLUTION, TILE_SHAPES, TileChoice, tile_choice
from dmlvk.kernels.lowering import lower, possible_rules
from dmlvk.kernels.manifest import KERNELS
from dmlvk.spec import ops
from dmlvk.spec.enums import ConvolutionDirection, ConvolutionMode, OperatorType, TensorDataType, TensorFlags
from dmlvk.spec.errors import InvalidArgumentError, UnsupportedError
from dmlvk.spec.ops.convolution import ConvolutionAdd
from dmlvk.spec.schema import ScaleBias
from dmlvk.spec.tensor import TensorDesc, calculate_strides

FLOAT32 = TensorDataType.FLOAT32
GPU = Capabilities(workgroup_invocations=1024, shared_memory_bytes=49152)
CPU = Capabilities(workgroup_invocations=1024, minimum_subgroup_size=8, is_cpu=True)
COOPERATIVE = dataclasses.replace(
    GPU,
    features=SUBGROUPS
    | {
        "cooperative_matrix",
        "vulkan_memory_model",
        "float16",
        "int16",
        "storage16",
        "subgroup_size_control",
        "full_subgroups",
    },
    cooperative_matrices=(CooperativeMatrix(16, 16, 16, "float16", "float32"),),
)


def convolution(x: tuple[int, ...], w: tuple[int, ...], y: tuple[int, ...] = (), **changes: Any) -> ops.Convolution:
    rank = len(x) - 2
    arrays: dict[str, Any] = dict.fromkeys(("strides", "dilations"), (1,) * rank)
    arrays |= dict.fromkeys(("start_padding", "end_padding", "output_padding"), (0,) * rank)
    desc = ops.Convolution(
        input_tensor=TensorDesc(FLOAT32, x), filter_tensor=TensorDesc(FLOAT32, w), **{**arrays, **changes}
    )
    return desc.replace(output_tensor=TensorDesc(FLOAT32, y or desc.inferred_output_sizes()[0]))


def backward(x: tuple[int, ...], w: tuple[int, ...], **changes: Any) -> ops.Convolution:
    return convolution(x, w, direction=ConvolutionDirection.BACKWARD, **changes)


def chosen(desc: ops.Convolution, caps: Capabilities = GPU) -> str:
    return choose(CONVOLUTION, LOWERINGS[ops.Convolution].problem(desc), caps).name


def half(desc: ops.Convolution) -> ops.Convolution:
    """The convolution in float16."""
    return desc.replace(
        **{
            name: dataclasses.replace(desc.tensor(name), data_type=TensorDataType.FLOAT16, total_tensor_size_in_bytes=0)
            for name in ("input_tensor", "filter_tensor", "output_tensor")
        }
    )


def parameters(dispatch: Dispatch) -> dict[str, tuple[int, ...]]:
    """The parameter block, unpacked by the manifest row; floats as their bits."""
    words = iter(struct.unpack(f"<{len(dispatch.params) // 4}I", dispatch.params))
    members = KERNELS[dispatch.kernel.kernel].members
    return {member.name: tuple(itertools.islice(words, max(member.length, 1))) for member in members}


@pytest.mark.parametrize(
    ("desc", "on_gpu", "on_cpu"),
    [
        (convolution((1, 512, 1, 1), (128, 512, 1, 1)), "vector", "naive"),
        (convolution((1, 16, 14, 14), (16, 1, 3, 3), group_count=16), "depthwise_lanes", "depthwise"),
        (convolution((1, 16, 14, 14), (16, 1, 3, 3), group_count=16, dilations=(1, 2)), "depthwise", "depthwise"),
        (convolution((8, 64, 56, 56), (128, 64, 1, 1)), "tiled", "pointwise"),
        (convolution((1, 1024, 14, 14), (64, 1024, 1, 1)), "split", "pointwise"),
        (convolution((1, 64, 56, 56), (64, 64, 3, 3)), "winograd", "direct"),
        (convolution((1, 3, 32, 32), (16, 3, 3, 3), strides=(2, 2)), "shared_weights", "direct"),
        (convolution((1, 4, 9, 9), (1, 4, 9, 9)), "split", "patches"),
        (convolution((1, 64, 30, 30), (32, 64, 28, 28)), "split", "direct"),
        (convolution((32, 64, 56, 56), (8, 64, 3, 3)), "shared_weights", "direct"),
        (convolution((1, 2, 4, 4), (8, 2, 2, 2)), "shared_weights", "direct"),
        (convolution((1, 2, 2, 2), (1, 2, 2, 2)), "naive", "patches"),
        (convolution((1, 3, 224, 224), (768, 3, 16, 16), strides=(16, 16)), "patches", "patches"),
        (half(convolution((1, 3, 224, 224), (1024, 3, 14, 14), strides=(14, 14))), "patches", "patches"),
        (convolution((8, 3, 224, 224), (96, 3, 4, 4), strides=(4, 4)), "tiled", "patches"),
        (convolution((1, 3, 225, 225), (768, 3, 16, 16), strides=(15, 15)), "shared_weights", "direct"),
    ],
    ids=[
        "vector",
        "depthwise",
        "dilated",
        "pointwise",
        "long sums",
        "3x3",
        "stem",
        "window as large as the input",
        "gradient of filters",
        "few channels of many pixels",
        "little work",
        "one sum",
        "patches",
        "patches of float16",
        "small patches",
        "windows that meet",
    ],
)
def test_rules(desc: ops.Convolution, on_gpu: str, on_cpu: str) -> None:
    assert (chosen(desc), chosen(desc, CPU)) == (on_gpu, on_cpu)


@pytest.mark.parametrize(
    ("x", "w", "layout", "rule"),
    [
        ((1, 3, 224, 224), (768, 3, 16, 16), "NCHW", "patches"),
        ((1, 3, 224, 224), (1024, 3, 14, 14), "NCHW", "lines"),
        ((1, 3, 224, 224), (768, 3, 32, 32), "NCHW", "lines"),
        ((1, 96, 56, 56), (192, 96, 2, 2), "NCHW", "cooperative"),
        ((1, 96, 24, 24), (96, 96, 4, 4), "NCHW", "patches"),
        ((1, 1024, 28, 28), (1024, 512, 2, 2), "NHWC", "patches"),
        ((1, 192, 24, 24), (192, 192, 2, 2), "NHWC", "phases"),
        ((1, 64, 256, 256), (64, 4, 2, 2), "NCHW", "phases"),
    ],
)
def test_patches_by_matrices(x: tuple[int, ...], w: tuple[int, ...], layout: str, rule: str) -> None:
    """What was faster on an H200; outputs are divided where the filter's first dimension is the image's channels."""
    direction = ConvolutionDirection.BACKWARD if x[1] == w[0] else ConvolutionDirection.FORWARD
    desc = half(convolution(x, w, strides=w[2:], direction=direction))
    if layout == "NHWC":
        last = {
            name: TensorDesc(TensorDataType.FLOAT16, sizes, (math.prod(sizes[1:]), 1, sizes[3] * sizes[1], sizes[1]))
            for name in ("input_tensor", "output_tensor")
            for sizes in [desc.tensor(name).sizes]
        }
        desc = desc.replace(**last)
    assert chosen(desc, choices.DEVICES["h200"]) == rule


def test_depthwise_needs_forward_and_one_channel_a_group() -> None:
    backward = convolution((1, 4, 5, 5), (4, 1, 3, 3), group_count=4, direction=ConvolutionDirection.BACKWARD)
    assert "depthwise" not in possible_rules(backward, GPU)
    assert "depthwise" not in possible_rules(convolution((1, 8, 5, 5), (8, 2, 3, 3), group_count=4), GPU)
    wide = convolution((1, 4, 5, 99), (4, 1, 3, 3), group_count=4, dilations=(1, 40))
    assert "depthwise" not in possible_rules(wide, GPU)


def owned(desc: ops.Convolution) -> ops.Convolution:
    """The convolution with a filter that is bound at initialisation only."""
    return desc.replace(filter_tensor=dataclasses.replace(desc.tensor("filter_tensor"), flags=TensorFlags.OWNED_BY_DML))


def channels_last(desc: ops.Convolution) -> ops.Convolution:
    """The convolution with contiguous channels of the input and the output."""

    def turned(tensor: TensorDesc) -> TensorDesc:
        return dataclasses.replace(tensor, strides=calculate_strides("NHWC", tensor.sizes), total_tensor_size_in_bytes=0)

    return desc.replace(input_tensor=turned(desc.tensor("input_tensor")), output_tensor=turned(desc.tensor("output_tensor")))


def constants(plan: Plan, kernel: str) -> dict[str, int]:
    """The constants of the only dispatch of a kernel in a plan, defaults included."""
    (found,) = (
        launch.kernel for launch in plan.dispatches if isinstance(launch, Dispatch) and launch.kernel.kernel == kernel
    )
    return {**dict(KERNELS[kernel].constants), **dict(found.constants)}


@pytest.mark.parametrize("rule", ["tiled", "split", "winograd", "cooperative"])
def test_an_owned_filter_is_repacked_once(rule: str) -> None:
    desc = convolution((2, 64, 28, 28), (64, 64, 3, 3), start_padding=(1, 1), end_padding=(1, 1))
    desc = desc.replace(bias_tensor=TensorDesc(TensorDataType.FLOAT32, (1, 64, 1, 1)))
    if rule == "cooperative":
        desc = half(desc)
    kept, fresh = lower(owned(desc), COOPERATIVE, force=rule), lower(desc, COOPERATIVE, force=rule)
    count = desc.tensor("filter_tensor").element_count * (2 if rule == "cooperative" else 4)
    assert len(kept.initialize) == 1 and kept.persistent_bytes >= count
    known = [part.slot for launch in kept.initialize for part in launch.bindings if part.source is Source.INPUT]
    assert set(known) == {1}, "only what is owned is bound then"
    assert all(part.source is not Source.INPUT or part.slot != 1 for launch in kept.dispatches for part in launch.bindings)
    assert not fresh.initialize and not fresh.persistent_bytes
    if len(fresh.dispatches) > len(kept.dispatches):  # repacked before each execution, beside what else is temporary
        assert fresh.temporary_bytes - kept.temporary_bytes >= count


def test_a_small_filter_that_is_not_owned_is_read_as_it_is() -> None:
    desc = convolution((1, 64, 9, 9), (32, 64, 1, 1))
    plan = lower(desc, GPU, force="tiled")
    assert len(plan.dispatches) == 1 and constants(plan, "convolution_tiled")["W_QUADS"] == 0
    assert constants(lower(owned(desc), GPU, force="tiled"), "convolution_tiled")["W_QUADS"] == 1


PIXELS, PLANES, CHANNELS, TABLE = range(4)
"""X_MODE of convolution_tiled."""


@pytest.mark.parametrize(
    ("desc", "modes"),
    [
        (convolution((2, 32, 8, 10), (32, 32, 1, 1)), (PLANES, 1, 1)),
        (convolution((2, 32, 7, 7), (32, 32, 1, 1)), (PIXELS, 0, 1)),
        (convolution((2, 32, 8, 10), (32, 32, 1, 1), strides=(2, 1)), (PIXELS, 1, 1)),
        (convolution((2, 32, 8, 10), (32, 32, 1, 1), start_padding=(0, 1)), (PIXELS, 1, 0)),
        (convolution((2, 32, 8, 10), (32, 32, 1, 1), end_padding=(1, 0)), (PIXELS, 0, 0)),
        (convolution((2, 32, 7, 7), (32, 32, 3, 3)), (PIXELS, 0, 0)),
        (channels_last(convolution((2, 32, 7, 7), (32, 32, 3, 3))), (CHANNELS, 2, 0)),
        (channels_last(convolution((2, 30, 7, 7), (33, 30, 3, 3))), (PIXELS, 0, 0)),
        (channels_last(convolution((2, 32, 7, 7), (32, 32, 1, 1))), (CHANNELS, 2, 1)),
        (convolution((1, 3, 34, 34), (32, 3, 3, 3), strides=(2, 2)), (TABLE, 1, 0)),
        (convolution((1, 32, 4, 4), (32, 16, 3, 3), output_padding=(2, 2), group_count=2), (PIXELS, 0, 0)),
    ],
)
def test_how_tiles_meet_layouts(desc: ops.Convolution, modes: tuple[int, int, int]) -> None:
    found = constants(lower(desc, GPU, force="tiled"), "convolution_tiled")
    assert (found["X_MODE"], found["Y_MODE"], found["ONE_TAP"]) == modes


@pytest.mark.parametrize(("channels", "window", "whole"), [(32, 1, 1), (30, 1, 0), (32, 3, 0)])
def test_rounds_of_one_tap_are_whole_where_channels_fill_them(channels: int, window: int, whole: int) -> None:
    desc = convolution((2, channels, 8, 10), (32, channels, window, window))
    assert constants(lower(desc, GPU, force="tiled"), "convolution_tiled")["WHOLE_ROUNDS"] == whole


def test_tiles_suit_the_problem_and_the_device() -> None:
    def choice(desc: ops.Convolution, caps: Capabilities = GPU, *, split: bool = False) -> TileChoice:
        return tile_choice(LOWERINGS[ops.Convolution].problem(desc), caps, split=split)

    large = convolution((32, 256, 28, 28), (512, 256, 1, 1))
    assert choice(large).shape.rows * choice(large).shape.columns >= 128 * 64
    assert choice(convolution((32, 144, 56, 56), (24, 144, 1, 1))).shape.rows == 32
    few = convolution((1, 2048, 7, 7), (512, 2048, 1, 1))
    assert choice(few, split=True).splits >= 4
    assert choice(few, split=True).microseconds < choice(few).microseconds
    assert choice(large, split=True).microseconds > choice(large).microseconds
    least = Capabilities()
    for desc in (large, few):
        shape, depth, _, _ = choice(desc, least, split=True)
        assert shape.invocations <= least.workgroup_invocations and shape.shared_bytes(depth) <= least.shared_memory_bytes


def test_tiles_and_a_table_are_held_by_shared_memory() -> None:
    """Two buffers of 16 terms of 128 rows, 128 columns and 8 more, and 256 + 16 entries of 16 bytes."""
    assert TILE_SHAPES[0].shared_bytes(16) == 2 * 16 * 264 * 4 + 272 * 16


def test_another_size_needs_no_other_pipeline() -> None:
    def kernels(size: int) -> set[KernelVariant]:
        desc = convolution((8, 64, size, size), (128, 64, 3, 3), start_padding=(1, 1), end_padding=(1, 1))
        plans = [lower(owned(desc), GPU, force=rule) for rule in ("tiled", "winograd")]
        return {launch.kernel for plan in plans for launch in plan.dispatches if isinstance(launch, Dispatch)}

    assert kernels(56) == kernels(60)


def test_winograd_takes_images_together_as_memory_allows(monkeypatch: pytest.MonkeyPatch) -> None:
    desc = convolution((5, 32, 16, 16), (32, 32, 3, 3))
    assert len(lower(owned(desc), GPU, force="winograd").dispatches) == 3
    monkeypatch.setattr(convolution_winograd, "_WINOGRAD_BYTES", 2 * 36 * 4 * 16 * 64)
    plan = lower(owned(desc), GPU, force="winograd")
    assert len(plan.dispatches) == 9 and plan.temporary_bytes == 2 * 36 * 4 * 16 * 64


@pytest.mark.parametrize(
    "changes",
    [
        {"strides": (2, 1)},
        {"dilations": (1, 2)},
        {"start_padding": (2, 0)},
        {"output_padding": (0, 1)},
        {"group_count": 4},
    ],
    ids=str,
)
def test_winograd_needs_plain_3x3_windows_that_reach_the_input(changes: dict[str, Any]) -> None:
    assert "winograd" in possible_rules(convolution((1, 32, 9, 9), (32, 32, 3, 3)), GPU)
    groups = changes.get("group_count", 1)
    assert "winograd" not in possible_rules(convolution((1, 32, 9, 9), (32, 32 // groups, 3, 3), **changes), GPU)


def test_winograd_needs_sums_that_are_long_enough_for_its_errors() -> None:
    fewest, fewer = (convolution((1, channels, 9, 9), (32, channels, 3, 3)) for channels in (16, 15))
    assert "winograd" in possible_rules(fewest, GPU) and "winograd" not in possible_rules(fewer, GPU)


def test_cooperative_matrices_need_the_device_and_whole_words_of_float16() -> None:
    desc = convolution((1, 32, 9, 9), (32, 32, 3, 3))
    assert "cooperative" in possible_rules(half(desc), COOPERATIVE)
    assert "cooperative" not in possible_rules(half(desc), GPU)
    assert "cooperative" not in possible_rules(desc, COOPERATIVE)
    assert "cooperative" not in possible_rules(half(convolution((1, 30, 9, 9), (32, 30, 3, 3))), COOPERATIVE)


KNOWN = dataclasses.replace(COOPERATIVE, model=H200)
"""A device whose rate of matrices is known."""


def test_matrix_tiles_give_each_processor_as_much() -> None:
    """6272 pixels are 66 rows of tiles, two of 96x128 wide: one for each of 132 processors. Of 128x128 there would be 98."""
    tile, parts = product_tile(6272, 256, 2304, 1, KNOWN, b_along_depth=False)
    assert (tile.rows, tile.columns, parts) == (96, 128, 1) and tile.tiles(6272, 256) == H200.processors
    tile, parts = product_tile(100352, 256, 2304, 1, KNOWN, b_along_depth=False)
    assert (tile.rows, tile.columns, parts) == (128, 256, 1)
    assert product_tile(100352, 64, 576, 1, KNOWN, b_along_depth=False)[0].columns == 64


def test_few_matrix_tiles_are_split_along_the_depth() -> None:
    tile, parts = product_tile(1568, 512, 4608, 1, KNOWN, b_along_depth=False)
    assert 100 <= tile.tiles(1568, 512) * parts <= 2 * H200.processors and parts > 1
    launches = lower(owned(half(convolution((32, 512, 9, 9), (512, 512, 3, 3)))), KNOWN).dispatches
    assert [launch.name for launch in launches][-2:] == ["convolution_cooperative", "convolution_merge"]
    assert input_range(0) not in launches[-1].bindings and output_range() not in launches[-2].bindings


def test_matrix_tiles_need_shared_memory_and_invocations() -> None:
    for changes in ({"shared_memory_bytes": 32768}, {"workgroup_invocations": 128}):
        caps = dataclasses.replace(KNOWN, **changes)
        found = matrix_choice(100352, 256, 2304, 1, caps)
        assert found is not None and found.tile.shared_bytes <= caps.shared_memory_bytes
        assert found.tile.subgroups * caps.subgroup_size <= caps.workgroup_invocations
    assert matrix_choice(100352, 256, 2304, 1, dataclasses.replace(KNOWN, shared_memory_bytes=4096)) is None


def test_parts_of_sums_fit_a_storage_buffer() -> None:
    caps = dataclasses.replace(KNOWN, storage_buffer_bytes=4 * 2 * 1568 * 512)
    assert product_tile(1568, 512, 4608, 1, KNOWN, b_along_depth=False)[1] > 2
    assert product_tile(1568, 512, 4608, 1, caps, b_along_depth=False)[1] <= 2


@pytest.mark.parametrize("row", MATRIX_TILES, ids=lambda row: f"{row.tile.rows}x{row.tile.columns}")
def test_every_matrix_tile_is_staged_evenly(row: Any) -> None:
    tile = row.tile
    assert tile.is_shared_evenly(tile.subgroups * 32) and tile.shared_bytes <= 49152
    assert tile.rows % tile.block_rows == tile.columns % tile.block_columns == 0
    assert tile.block_rows % 16 == tile.block_columns % 16 == tile.depth % 16 == 0


def test_one_tap_over_planes_copies_nothing() -> None:
    desc = owned(half(convolution((32, 512, 28, 28), (512, 512, 1, 1))))
    assert chosen(desc, KNOWN) == "planes"
    plan = lower(desc, KNOWN)
    assert [launch.name for launch in plan.dispatches] == ["convolution_planes"] and not plan.initialize


@pytest.mark.parametrize(
    ("sizes", "changes"),
    [
        (((2, 32, 5, 7), (32, 32, 1, 1)), {}),  # planes of 35
        (((2, 30, 4, 8), (32, 30, 1, 1)), {}),
        (((2, 32, 4, 8), (32, 32, 1, 3)), {}),
        (((2, 32, 8, 8), (32, 32, 1, 1)), {"strides": (2, 2)}),
        (((2, 32, 4, 8), (32, 32, 1, 1)), {"start_padding": (4, 0)}),
        (((2, 32, 4, 8), (32, 32, 1, 1)), {"output_padding": (4, 0)}),
    ],
    ids=str,
)
def test_planes_need_one_tap_and_whole_quads(
    sizes: tuple[tuple[int, ...], tuple[int, ...]], changes: dict[str, tuple[int, int]]
) -> None:
    assert "planes" in possible_rules(half(convolution((2, 32, 4, 8), (32, 32, 1, 1))), KNOWN)
    assert "planes" not in possible_rules(half(convolution(*sizes, **changes)), KNOWN)


def test_a_stem_has_lines_of_windows() -> None:
    """Seven lines of 21 terms, in three words each, of 230 rows of 112 positions."""
    stem = half(convolution((32, 3, 224, 224), (64, 3, 7, 7), strides=(2, 2), start_padding=(3, 3), end_padding=(3, 3)))
    assert chosen(stem, KNOWN) == "lines"
    plan = lower(owned(stem), KNOWN)
    assert [launch.name for launch in plan.dispatches] == ["convolution_lines", "convolution_cooperative"]
    assert [launch.name for launch in plan.initialize] == ["convolution_lines"]
    assert plan.temporary_bytes == 32 * 224 * 112 * 24 * 2 and plan.persistent_bytes == 64 * 7 * 24 * 2


def test_lines_need_one_group_and_pay_for_enough_outputs() -> None:
    assert "lines" not in possible_rules(half(convolution((1, 6, 9, 9), (32, 3, 3, 3), group_count=2)), KNOWN)
    assert "lines" not in possible_rules(half(convolution((1, 8, 9, 9), (32, 8, 3, 3))), KNOWN)
    assert "lines" not in possible_rules(half(convolution((1, 3, 9, 9), (32, 3, 3, 3))), GPU)
    few = half(convolution((1, 3, 9, 9), (8, 3, 3, 3)))
    assert "lines" in possible_rules(few, KNOWN) and chosen(few, KNOWN) != "lines"


@pytest.mark.parametrize(
    ("x", "w", "layout", "rule"),
    [
        ((1, 128, 512, 512), (3, 128, 3, 3), "NCHW", "cooperative"),
        ((2, 320, 64, 64), (4, 320, 3, 3), "NCHW", "cooperative"),
        ((4, 256, 80, 80), (12, 256, 3, 3), "NCHW", "cooperative"),
        ((8, 64, 128, 128), (1, 64, 1, 1), "NCHW", "naive"),  # the copy to contiguous channels takes longer than the rest
        ((8, 64, 128, 128), (1, 64, 1, 1), "NHWC", "cooperative"),
        ((1, 8, 224, 224), (3, 8, 3, 3), "NHWC", "shared_weights"),
        ((1, 4, 224, 224), (3, 4, 3, 3), "NHWC", "shared_weights"),
    ],
)
def test_few_outputs_are_matrices_where_these_are_faster(
    x: tuple[int, ...], w: tuple[int, ...], layout: str, rule: str
) -> None:
    pads = dict.fromkeys(("start_padding", "end_padding"), (w[2] // 2,) * 2)
    desc = half(convolution(x, w, **pads))
    desc = desc.replace(input_tensor=TensorDesc(TensorDataType.FLOAT16, x, calculate_strides(layout, x)))
    assert chosen(desc, KNOWN) == rule
    if rule == "cooperative":
        launch = next(launch for launch in lower(desc, KNOWN).dispatches if launch.name == "convolution_cooperative")
        assert isinstance(launch, Dispatch) and dict(launch.kernel.constants)["TILE_N"] == 16


@pytest.mark.parametrize(
    ("layout", "is_half", "rule"),
    [
        ("NHWC", True, "cooperative"),
        ("NHWC", False, "shared_weights"),
        ("NCHW", True, "shared_weights"),
        ("NCHW", False, "shared_weights"),
    ],
)
def test_groups_of_few_channels_share_weights_but_where_matrices_read_them(layout: str, is_half: bool, rule: str) -> None:
    x = (8, 256, 28, 28)
    desc = convolution(x, (256, 8, 3, 3), group_count=32, start_padding=(1, 1), end_padding=(1, 1))
    desc = half(desc) if is_half else desc
    tensor = TensorDesc(desc.input_tensor.data_type, x, calculate_strides(layout, x))
    assert chosen(desc.replace(input_tensor=tensor, output_tensor=tensor), KNOWN) == rule


def test_cooperative_positions_have_15_bits() -> None:
    """The last position of a window and its taps, of a convolution of 32,766 pixels a row."""
    for width, fits in ((2**15 - 2, True), (2**15 - 1, False)):
        desc = half(convolution((1, 8, 1, width), (16, 8, 1, 1)))
        assert ("cooperative" in possible_rules(desc, COOPERATIVE)) == fits


def test_what_is_repacked_takes_16_bytes_at_a_time_and_starts_at_multiples_of_256() -> None:
    """A filter of 9 taps, 3 channels and 4 outputs; the input of 8 channels in float16 lies behind it."""
    owned = dataclasses.replace(TensorDesc(FLOAT32, (4, 3, 3, 3)), flags=TensorFlags.OWNED_BY_DML)
    desc = convolution((1, 3, 33, 33), (4, 3, 3, 3)).replace(filter_tensor=owned)
    assert lower(desc, GPU, force="tiled").persistent_bytes == 432
    desc = half(convolution((1, 8, 10, 10), (8, 8, 1, 1)))
    plan = lower(desc, COOPERATIVE, force="cooperative")
    assert plan.temporary_bytes == 256 + 1792  # 128 and 1,600 bytes


def test_a_reversed_filter_is_negative_strides_and_an_offset() -> None:
    desc = convolution((1, 2, 5, 5), (3, 2, 2, 3), mode=ConvolutionMode.CONVOLUTION)
    (dispatch,) = lower(desc, GPU, force="naive").dispatches
    block = parameters(dispatch)
    assert block["filter_offset"] == (5,)
    assert block["filter_strides"] == (12, 6, 0, 2**32 - 3, 2**32 - 1)


def test_backward_divides_positions_by_the_strides() -> None:
    desc = convolution(
        (1, 2, 5, 5), (2, 3, 2, 2), strides=(2, 3), start_padding=(1, 0), direction=ConvolutionDirection.BACKWARD
    )
    (dispatch,) = lower(desc, GPU, force="naive").dispatches
    block = parameters(dispatch)
    assert block["divisor"] == (1, 2, 3)
    assert block["position_step"] == (1, 1, 1)
    assert block["tap_step"] == (2**32 - 1,) * 3
    assert block["position_start"] == (0, 1, 0)
    assert dict(dispatch.kernel.constants)["HAS_DIVISOR"] == 1


def test_position_arithmetic_finds_the_taps_of_the_definition() -> None:
    """The formula of include/convolution.glsl against a list of all (input, tap, output) of a transposed convolution."""
    size, taps, stride, dilation, start = 5, 3, 2, 2, 1
    desc = convolution(
        (1, 1, size),
        (1, 1, taps),
        strides=(stride,),
        dilations=(dilation,),
        start_padding=(start,),
        direction=ConvolutionDirection.BACKWARD,
    )
    (dispatch,) = lower(desc, GPU, force="naive").dispatches
    block = {name: values[-1] for name, values in parameters(dispatch).items()}
    scattered = {(i * stride + t * dilation - start, t, i) for i in range(size) for t in range(taps)}
    gathered = set()
    for o in range(block["output_sizes"]):
        for t in range(taps):
            q = np.int32(np.uint32((o * block["position_step"] + t * block["tap_step"] + block["position_start"]) % 2**32))
            if q >= 0 and q % block["divisor"] == 0 and q // block["divisor"] < size:
                gathered.add((o, t, int(q) // block["divisor"]))
    assert gathered == {entry for entry in scattered if 0 <= entry[0] < block["output_sizes"]}


@pytest.mark.parametrize("sizes", [(1, 1, 8), (1, 1, 9), (1, 1, 10)])
def test_backward_takes_every_size_that_forward_returns_from(sizes: tuple[int, ...]) -> None:
    desc = convolution((1, 1, 3), (1, 1, 2), sizes, strides=(3,), direction=ConvolutionDirection.BACKWARD)
    desc.validate()


@pytest.mark.parametrize("sizes", [(1, 1, 7), (1, 1, 11), (1, 2, 8)])
def test_backward_refuses_other_sizes(sizes: tuple[int, ...]) -> None:
    desc = convolution((1, 1, 3), (1, 1, 2), sizes, strides=(3,), direction=ConvolutionDirection.BACKWARD)
    with pytest.raises(InvalidArgumentError, match="OutputTensor"):
        desc.validate()


def test_padding_beyond_31_bits_is_refused() -> None:
    desc = convolution((1, 1, 1), (1, 1, 1), (1, 1, 2), start_padding=(2**31,), strides=(2**31,))
    with pytest.raises(UnsupportedError, match="2\\*\\*31"):
        lower(desc, GPU)


def test_strides_past_the_input_reach_no_further_than_the_last_window() -> None:
    lower(convolution((1, 1, 50_000), (1, 1, 1), strides=(50_000,)), GPU)
    lower(convolution((1, 1, 1), (1, 1, 1), (1, 1, 1), strides=(2**31 - 1,), direction=ConvolutionDirection.BACKWARD), GPU)
    with pytest.raises(UnsupportedError, match="2\\*\\*31"):
        lower(convolution((1, 1, 1), (1, 1, 1), strides=(2**31,)), GPU)


def test_a_fused_clip_may_scale_first() -> None:
    clip = ops.ElementWiseClip(min=0.0, max=1.0, scale_bias=ScaleBias(2.0, 1.0))
    (dispatch,) = lower(convolution((1, 1, 4), (1, 1, 1), fused_activation=clip), GPU).dispatches
    assert isinstance(dispatch, Dispatch)
    assert dict(dispatch.kernel.constants)["ACTIVATION"] == OperatorType.ELEMENT_WISE_CLIP1
    assert struct.pack("<4f", 0.0, 1.0, 2.0, 1.0) in dispatch.params


def test_what_is_added_lies_as_the_output() -> None:
    plain = convolution((2, 32, 7, 8), (32, 32, 1, 1))
    fields = {spec.name: getattr(plain, spec.name) for spec in plain.fields}
    y = plain.tensor("output_tensor")
    added = ConvolutionAdd(**fields, addend_tensor=y)
    added.validate()
    assert input_range(3) in lower(added, GPU).dispatches[-1].bindings
    for addend in (
        TensorDesc(y.data_type, (2, 32, 7, 8), calculate_strides("NHWC", y.sizes)),
        TensorDesc(y.data_type, (2, 32, 7, 8), (0, 56, 8, 1)),
        TensorDesc(y.data_type, (2, 32, 8, 7)),
    ):
        with pytest.raises(InvalidArgumentError, match="lie in memory as the output does"):
            ConvolutionAdd(**fields, addend_tensor=addend).validate()


def test_what_only_multiplies_one_channel_adds_in_another_kernel() -> None:
    plain = convolution((2, 32, 9, 9), (32, 1, 3, 3), group_count=32)
    fields = {spec.name: getattr(plain, spec.name) for spec in plain.fields}
    adding = ConvolutionAdd(**fields, addend_tensor=plain.output_tensor)
    assert {"depthwise", "depthwise_lanes"} <= set(possible_rules(plain, GPU))
    assert {"depthwise", "depthwise_lanes"}.isdisjoint(possible_rules(adding, GPU))


@pytest.mark.parametrize("rule", ["naive", "direct"])
def test_loops_in_loops_count_twice_on_a_cpu(rule: str) -> None:
    """A driver ends them after 65535 rounds."""
    for channels, runs in ((32767, True), (32768, False)):
        desc = convolution((1, channels, 4, 4), (2, channels, 1, 1))
        with contextlib.nullcontext() if runs else pytest.raises(UnsupportedError, match="65535 rounds"):
            lower(desc, CPU, force=rule)


def test_many_outputs_of_one_channel_are_no_depthwise_convolution_of_a_gpu() -> None:
    """A spectrogram's patches: each output of the only group would read its windows by itself."""
    desc = ops.Convolution(
        input_tensor=TensorDesc(FLOAT32, (1, 1, 128, 1024)),
        filter_tensor=TensorDesc(FLOAT32, (768, 1, 16, 16)),
        output_tensor=TensorDesc(FLOAT32, (1, 768, 12, 101)),
        mode=ConvolutionMode.CROSS_CORRELATION,
        direction=ConvolutionDirection.FORWARD,
        strides=(10, 10),
        dilations=(1, 1),
        start_padding=(0, 0),
        end_padding=(0, 0),
        output_padding=(0, 0),
        group_count=1,
    )
    kernels = [
        {launch.kernel.kernel for launch in lower(desc, caps).dispatches if isinstance(launch, Dispatch)}
        for caps in (GPU, CPU)
    ]
    assert "convolution_depthwise" not in kernels[0] and kernels[1] == {"convolution_depthwise"}


def _meetings(geometry: Geometry) -> set[tuple[int, int, tuple[int, ...]]]:
    """All (output element, filter element, input position) that meet."""
    found = set()
    for output in itertools.product(*map(range, geometry.output_sizes[2:])):
        for taps in itertools.product(*map(range, geometry.window)):
            rows = zip(output, geometry.position_step, taps, geometry.tap_step, geometry.position_start, strict=True)
            places = [o * step + tap * tap_step + start for o, step, tap, tap_step, start in rows]
            if any(place % divisor for place, divisor in zip(places, geometry.divisor, strict=True)):
                continue
            position = tuple(place // divisor for place, divisor in zip(places, geometry.divisor, strict=True))
            if not all(0 <= place < size for place, size in zip(position, geometry.input_sizes, strict=True)):
                continue
            element = geometry.output_start + sum(map(operator.mul, output, geometry.output_strides[2:]))
            of_filter = geometry.filter_offset + sum(map(operator.mul, taps, geometry.filter_strides[2:]))
            found.add((element, of_filter, position))
    return found


@pytest.mark.parametrize("mode", ConvolutionMode)
@pytest.mark.parametrize(
    ("window", "strides", "dilations", "padding"),
    [
        ((4, 4), (2, 2), (1, 1), (1, 1)),
        ((3, 3), (2, 2), (1, 1), (1, 1)),
        ((2, 1), (3, 2), (1, 1), (0, 0)),
        ((3, 4), (4, 6), (2, 4), (2, 1)),
        ((5, 2), (1, 3), (3, 3), (4, 0)),
    ],
)
def test_phases_are_the_divided_convolution(
    window: tuple[int, int],
    strides: tuple[int, int],
    dilations: tuple[int, int],
    padding: tuple[int, int],
    mode: ConvolutionMode,
) -> None:
    desc = backward((1, 1, 4, 5), (1, 1, *window), strides=strides, dilations=dilations, start_padding=padding, mode=mode)
    whole = geometry_of(desc)
    phases = divided_phases(whole)
    assert len(phases) == strides[0] * strides[1]
    assert all(phase.divisor == (1, 1, 1) for phase in phases)
    met = [_meetings(phase) for phase in phases]
    assert set().union(*met) == _meetings(whole)
    assert sum(map(len, met)) == len(_meetings(whole))
    # Every output is of one phase, even where no tap meets an input.
    outputs = [
        phase.output_start + sum(map(operator.mul, place, phase.output_strides[2:]))
        for phase in phases
        for place in itertools.product(*map(range, phase.output_sizes[2:]))
    ]
    assert sorted(outputs) == list(range(whole.pixels))


def test_phases_share_one_copy_of_the_input() -> None:
    desc = half(backward((8, 256, 64, 64), (256, 128, 4, 4), strides=(2, 2), start_padding=(1, 1), end_padding=(1, 1)))
    assert chosen(desc, COOPERATIVE) == "phases"
    launches = lower(desc, COOPERATIVE).dispatches
    assert [launch.name for launch in launches].count("convolution_cooperative") == 4
    assert len(launches) == 10, "each phase has its taps repacked, too, and its outputs are copied to planes"
    assert [output_range() in launch.bindings for launch in launches] == [False] * 9 + [True]
    assert sum(input_range(0) in launch.bindings for launch in launches) == 1


def test_phases_whose_weights_are_kept_run_beside_each_other() -> None:
    """A copy of the input, four phases, a copy of the output. Odd channels are stored number by number."""
    for outputs, beside in ((128, [False, False, True, True, True, False]), (127, [False, False, True, True, True])):
        sizes = (8, 256, 64, 64), (256, outputs, 4, 4)
        desc = half(backward(*sizes, strides=(2, 2), start_padding=(1, 1), end_padding=(1, 1)))
        launches = lower(owned(desc), COOPERATIVE).dispatches
        assert [isinstance(launch, Dispatch) and launch.beside_previous for launch in launches] == beside


@pytest.mark.parametrize(("channels", "inputs", "steps"), [(128, 1000, ["tiled"]), (512, 64, ["tiled", "merge"])])
def test_phases_of_words_run_beside_each_other_in_memory_of_their_own(channels: int, inputs: int, steps: list[str]) -> None:
    """Of float32, launch by launch: sums, maybe in parts, then what adds these."""
    sizes, pads = ((1, channels, 1, inputs), (channels, 64, 1, 16)), {"start_padding": (0, 4), "end_padding": (0, 4)}
    plan = lower(owned(backward(*sizes, strides=(1, 8), **pads)), GPU, force="phases")
    assert [launch.name for launch in plan.dispatches] == [f"convolution_{step}" for step in steps for _ in range(8)]
    flags = [isinstance(launch, Dispatch) and launch.beside_previous for launch in plan.dispatches]
    assert flags == [False, *[True] * 7] * len(steps)
    made = [part for launch in plan.dispatches[:8] for part in launch.bindings if part.source is Source.TEMPORARY]
    assert len(made) == 8 * (len(steps) - 1)
    ends = [part.offset + part.nbytes for part in made]
    assert all(end <= part.offset for end, part in zip(ends, made[1:], strict=False))
    assert max(ends, default=0) <= plan.temporary_bytes


def test_few_outputs_of_phases_are_stored_between_each_others() -> None:
    few = half(backward((1, 64, 8, 8), (64, 64, 4, 4), strides=(2, 2)))
    launches = lower(few, COOPERATIVE, force="phases").dispatches
    assert sum(output_range() in launch.bindings for launch in launches) == 4


def test_weights_of_phases_are_kept_side_by_side() -> None:
    desc = half(backward((8, 256, 64, 64), (256, 128, 3, 3), strides=(2, 2), start_padding=(1, 1), end_padding=(1, 1)))
    owned = desc.replace(filter_tensor=dataclasses.replace(desc.tensor("filter_tensor"), flags=TensorFlags.OWNED_BY_DML))
    plan = lower(owned, COOPERATIVE)
    places = sorted(part for launch in plan.initialize for part in launch.bindings if part.source is Source.PERSISTENT)
    assert len(places) == 4
    ends = [place.offset + place.nbytes for place in places]
    assert all(end <= place.offset for end, place in zip(ends, places[1:], strict=False))
    assert ends[-1] <= plan.persistent_bytes


def test_few_outputs_have_no_launches_for_each_phase() -> None:
    assert chosen(backward((1, 4, 4, 4), (4, 4, 3, 3), strides=(2, 2))) != "phases"
    assert chosen(backward((8, 256, 64, 64), (256, 128, 4, 4), strides=(2, 2))) == "phases"
    assert chosen(backward((8, 256, 64, 64), (256, 128, 4, 4), strides=(2, 2)), CPU) != "phases"
    assert chosen(backward((8, 256, 64, 64), (256, 128, 4, 4))) != "phases"
    voice = {"strides": (1, 8), "start_padding": (0, 4), "end_padding": (0, 4)}
    assert chosen(backward((1, 128, 1, 1000), (128, 64, 1, 16), **voice), KNOWN) == "phases"
    assert chosen(backward((1, 512, 1, 64), (512, 256, 1, 16), **voice), KNOWN) == "phases"


def test_a_volume_of_whole_words_takes_matrices() -> None:
    desc = half(convolution((2, 64, 16, 32, 32), (64, 64, 3, 3, 3)))
    assert chosen(desc, COOPERATIVE) == "cooperative"
    (constants,) = (
        dict(launch.kernel.constants)
        for launch in lower(desc, COOPERATIVE).dispatches
        if isinstance(launch, Dispatch) and launch.name == "convolution_cooperative"
    )
    assert constants["PLANAR"] == 0
