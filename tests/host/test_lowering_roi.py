"""The rows and plans of ROI align and ROI pooling, without a device."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from dmlvk.devices.capabilities import Capabilities
from dmlvk.kernels.lowering import explain, lower, possible_rules
from dmlvk.spec.enums import InterpolationMode, ReduceFunction, TensorDataType
from dmlvk.spec.errors import InvalidArgumentError, UnsupportedError
from dmlvk.spec.ops.roi import RoiAlign, RoiAlign1, RoiPooling
from dmlvk.spec.schema import Size2D
from dmlvk.spec.tensor import TensorDesc, TensorLayout, calculate_strides

FLOAT32, FLOAT16, UINT32, UINT64 = (TensorDataType[name] for name in ("FLOAT32", "FLOAT16", "UINT32", "UINT64"))
GPU = Capabilities(workgroup_invocations=1024, shared_memory_bytes=49152)


def tensors(**changes: TensorDesc) -> dict[str, TensorDesc]:
    return {
        "input_tensor": TensorDesc(FLOAT32, (2, 64, 20, 30)),
        "roi_tensor": TensorDesc(FLOAT32, (1, 9, 4)),
        "batch_indices_tensor": TensorDesc(UINT32, (9,)),
        "output_tensor": TensorDesc(FLOAT32, (9, 64, 7, 7)),
        **changes,
    }


def desc(**changes: Any) -> RoiAlign1:
    return RoiAlign1(**{**tensors(), **changes})


def constants(desc: RoiAlign | RoiAlign1, **options: Any) -> dict[str, int]:
    return dict(lower(desc, GPU, **options).dispatches[0].kernel.constants)


def test_the_older_row_is_the_newer_one_with_its_documented_values() -> None:
    newest = RoiAlign(**tensors(), spatial_scale_y=0.25, minimum_samples_per_output=3).upgrade()
    assert newest == desc(
        spatial_scale_y=0.25,
        minimum_samples_per_output=3,
        input_pixel_offset=0.5,
        output_pixel_offset=-0.5,
        align_regions_to_corners=False,
    )


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"roi_tensor": TensorDesc(FLOAT32, (9, 5))}, "ROITensor"),
        ({"roi_tensor": TensorDesc(FLOAT32, (2, 9, 4))}, "ROITensor"),
        ({"roi_tensor": TensorDesc(FLOAT16, (9, 4))}, "ROITensor"),
        ({"batch_indices_tensor": TensorDesc(UINT32, (8,))}, "BatchIndicesTensor"),
        ({"batch_indices_tensor": TensorDesc(UINT32, (9, 1))}, "BatchIndicesTensor"),
        ({"output_tensor": TensorDesc(FLOAT32, (9, 63, 7, 7))}, "OutputTensor"),
        ({"output_tensor": TensorDesc(FLOAT32, (8, 64, 7, 7))}, "OutputTensor"),
        ({"reduction_function": ReduceFunction.SUM}, "ReductionFunction"),
        ({"maximum_samples_per_output": 0}, "MaximumSamplesPerOutput"),
        ({"minimum_samples_per_output": 3, "maximum_samples_per_output": 2}, "MaximumSamplesPerOutput"),
        ({"spatial_scale_x": float("inf")}, "SpatialScaleX"),
        ({"output_pixel_offset": float("inf")}, "OutputPixelOffset"),
    ],
)
def test_each_rule_is_checked(changes: dict[str, Any], field: str) -> None:
    desc().validate()
    with pytest.raises(InvalidArgumentError) as caught:
        desc(**changes).validate()
    assert caught.value.field == field


def test_the_output_size_has_to_be_given() -> None:
    with pytest.raises(InvalidArgumentError, match="OutputHeight"):
        desc().inferred_output_sizes()


def test_layout_chooses_the_rule() -> None:
    channels_last = TensorDesc(FLOAT32, (2, 64, 20, 30), calculate_strides(TensorLayout.NHWC, (2, 64, 20, 30)))
    assert [held for _, held in explain(desc(), GPU)] == [True, True]
    assert [held for _, held in explain(desc(), Capabilities(is_cpu=True))] == [False, True]
    assert [held for _, held in explain(desc(input_tensor=channels_last), GPU)] == [False, True]
    assert constants(desc(input_tensor=channels_last))["CHANNELS_FASTEST"] == 1


def test_what_the_tables_cannot_hold_is_left_to_the_general_kernel() -> None:
    wide = desc(output_tensor=TensorDesc(FLOAT32, (9, 64, 1, 257)))
    assert possible_rules(wide, GPU) == ["outputs"]
    nearest = wide.replace(interpolation_mode=InterpolationMode.NEAREST_NEIGHBOR)
    assert possible_rules(nearest, GPU) == ["columns", "outputs"]
    assert possible_rules(nearest.replace(minimum_samples_per_output=2), GPU) == ["outputs"]


def test_equal_limits_fix_the_number_of_samples() -> None:
    assert constants(desc(minimum_samples_per_output=2, maximum_samples_per_output=2))["SAMPLES"] == 2
    assert constants(desc(minimum_samples_per_output=0, maximum_samples_per_output=1))["SAMPLES"] == 1
    assert constants(desc(maximum_samples_per_output=2))["SAMPLES"] == 0


def test_shapes_share_pipelines() -> None:
    first = lower(desc(), GPU).dispatches[0].kernel
    image, output = TensorDesc(FLOAT32, (3, 64, 200, 99)), TensorDesc(FLOAT32, (9, 64, 7, 8))
    assert lower(desc(input_tensor=image, output_tensor=output), GPU).dispatches[0].kernel == first


def test_the_least_device_has_enough_shared_memory() -> None:
    least = Capabilities()
    chosen = dict(lower(desc(), least).dispatches[0].kernel.constants)
    assert 16 * chosen["ROWS"] + 8 * chosen["COLUMNS"] + 4 * chosen["PARTIALS"] <= least.shared_memory_bytes
    assert chosen["PARTIALS"] > chosen["COLUMNS"]
    assert chosen["LOCAL_SIZE_X"] <= least.workgroup_invocations


def test_tables_have_room_for_32_samples_of_an_output_along_an_axis() -> None:
    tables = constants(desc(output_tensor=TensorDesc(FLOAT32, (9, 64, 2, 4))))
    assert (tables["ROWS"], tables["COLUMNS"]) == (2 * 32, 4 * 32 * 2)


@pytest.mark.parametrize(("samples", "outputs"), [(40, 1), (64, 4), (33, 7)])
def test_tables_have_room_for_a_number_of_samples_that_is_fixed(samples: int, outputs: int) -> None:
    """Nothing else keeps a kernel whose number of samples is a constant from writing behind them."""
    output = TensorDesc(FLOAT32, (9, 64, outputs, outputs))
    limits = {"minimum_samples_per_output": samples, "maximum_samples_per_output": samples}
    own = constants(desc(output_tensor=output, **limits), force="columns")
    assert own["ROWS"] >= samples * outputs and own["COLUMNS"] >= 2 * samples * outputs


@pytest.mark.parametrize(("height", "rows"), [(7, 7), (8, 8), (9, 5), (17, 6)])
def test_up_to_8_rows_of_outputs_are_done_together(height: int, rows: int) -> None:
    assert constants(desc(output_tensor=TensorDesc(FLOAT32, (9, 64, height, 7))))["OUTPUT_ROWS"] == rows


@pytest.mark.parametrize(("sizes", "fits"), [((21_841, 28), True), ((21_842, 28), False), ((21_841, 29), False)])
def test_a_cpu_takes_as_many_samples_as_pixels_and_4_more(sizes: tuple[int, int], fits: bool) -> None:
    """16 a round: of an image of 28 pixels a line two rounds and one for the line, of 65,535 in all."""
    tall = desc(input_tensor=TensorDesc(FLOAT32, (1, 1, *sizes)), output_tensor=TensorDesc(FLOAT32, (9, 1, 7, 7)))
    cpu = dataclasses.replace(GPU, is_cpu=True)
    if fits:
        lower(tall, cpu)
        return
    with pytest.raises(UnsupportedError, match="65535 rounds"):
        lower(tall, cpu)


def test_batch_indices_are_read_as_words() -> None:
    assert constants(desc())["BATCH_WORDS"] == 1
    assert constants(desc(batch_indices_tensor=TensorDesc(UINT64, (9,))))["BATCH_WORDS"] == 2
    assert "int64" not in GPU.features


def test_a_number_of_samples_that_would_hang_the_device_is_refused() -> None:
    lower(desc(minimum_samples_per_output=1024), GPU)
    with pytest.raises(UnsupportedError, match="MinimumSamplesPerOutput"):
        lower(desc(minimum_samples_per_output=1025), GPU)


def pooling(layout: TensorLayout = TensorLayout.NCHW, width: int = 7, height: int = 5, channels: int = 64) -> RoiPooling:
    sizes = (9, channels, height, width)
    return RoiPooling(
        input_tensor=TensorDesc(FLOAT32, (2, channels, 20, 30)),
        roi_tensor=TensorDesc(FLOAT32, (1, 1, 9, 5)),
        output_tensor=TensorDesc(FLOAT32, sizes, calculate_strides(layout, sizes)),
        pooled_size=Size2D(width, height),
    )


def test_pooled_sizes_are_width_and_height() -> None:
    pooling().validate()
    assert pooling().inferred_output_sizes() == ((9, 64, 5, 7),)
    with pytest.raises(InvalidArgumentError, match="sizes that inputs and attributes imply"):
        pooling().replace(pooled_size=Size2D(5, 7)).validate()


@pytest.mark.parametrize(("layout", "fastest"), [(TensorLayout.NCHW, 0), (TensorLayout.NHWC, 1)])
def test_neighbours_pool_what_the_output_has_side_by_side(layout: TensorLayout, fastest: int) -> None:
    (dispatch,) = lower(pooling(layout), GPU).dispatches
    assert dict(dispatch.kernel.constants)["CHANNELS_FASTEST"] == fastest
    assert dispatch.grid == (-(-9 * 64 * 35 // 256), 1, 1)


def test_cells_that_need_long_divisions_have_fewer_rounds_on_a_cpu() -> None:
    """A round reads 4 pixels, and a division takes 32; where cells are few they are done in one."""
    cpu = dataclasses.replace(GPU, is_cpu=True)
    image = TensorDesc(FLOAT32, (1, 1, 1, 4 * 65_530))
    lower(pooling(width=65_535, height=1, channels=1).replace(input_tensor=image), cpu)
    lower(pooling(width=65_536, height=1, channels=1).replace(input_tensor=image), GPU)
    with pytest.raises(UnsupportedError, match="65535 rounds"):
        lower(pooling(width=65_536, height=1, channels=1).replace(input_tensor=image), cpu)
