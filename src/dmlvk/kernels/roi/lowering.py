"""Lowering of ``ops.roi``: regions of interest."""

from __future__ import annotations

import functools

from dmlvk.devices.capabilities import Capabilities
from dmlvk.kernels.common.dispatch import make_dispatch
from dmlvk.kernels.common.limitation import LOOP_ROUNDS, SAMPLES
from dmlvk.kernels.common.plan import Plan, input_range, output_range
from dmlvk.kernels.common.registry import register
from dmlvk.kernels.common.shapes import check_rounds, linear_grid
from dmlvk.kernels.roi.rules import ROI_ALIGN, ROI_POOLING, ROI_TABLE_COLUMNS, ROI_TABLE_ROWS, RoiAlignProblem
from dmlvk.spec.enums import InterpolationMode, ReduceFunction, TensorDataType
from dmlvk.spec.ops.roi import RoiAlign1, RoiPooling
from dmlvk.spec.ops.roi_gradient import RoiAlignGrad
from dmlvk.spec.tensor import TensorDesc

_MOST_SAMPLES = 1024
"""Most samples an axis that every output can be made to take: more than a million in all would hold the device so long
that it counts as hung. Samples that a large box asks for are bounded by the image."""

_ADAPTIVE_SAMPLES = 32
"""Samples of an output along an axis that the tables have room for where the box's size decides: boxes of up to 224
pixels at 7 outputs."""

_PARTIALS = 2048
"""Partial results in shared memory: more than a table has columns."""

_CPU_ROUND = 16
"""Samples that a CPU takes in a round of a loop, of which it has few: those of images of 1000 by 1000 in one output."""


def round_samples(caps: Capabilities) -> int:
    """Samples that a round of a loop takes."""
    return _CPU_ROUND if caps.is_cpu else 1


def most_samples(desc: RoiAlign1 | RoiAlignGrad, pixels: int) -> int:
    """Most samples of an output along an axis that may lie in so many pixels: a box that asks for more than one a pixel has
    them further apart than these divided by as many."""
    return min(desc.maximum_samples_per_output, max(desc.minimum_samples_per_output, pixels + 4))


def _taps(desc: RoiAlign1) -> int:
    return 1 if desc.interpolation_mode == InterpolationMode.NEAREST_NEIGHBOR else 2


def _problem(desc: RoiAlign1) -> RoiAlignProblem:
    least = max(1, desc.minimum_samples_per_output)
    _, _, height, width = desc.tensor("output_tensor").sizes
    _, channels_stride, _, width_stride = desc.tensor("input_tensor").effective_strides
    channels = desc.tensor("input_tensor").sizes[1]
    return RoiAlignProblem(
        rows=height * least,
        columns=width * least * _taps(desc),
        rows_contiguous=channels == 1 or width_stride <= channels_stride,
    )


def _table_entries(wanted: int, most: int) -> int:
    """A power of two, so that many output sizes share few pipelines."""
    return min(most, max(32, 1 << (wanted - 1).bit_length()))


def position_params(
    desc: RoiAlign1 | RoiAlignGrad, images: TensorDesc, outputs: TensorDesc
) -> dict[str, int | float | tuple[int, ...]]:
    """The values of ``manifest.roi.POSITION_PARAMS``, given a tensor of the images' sizes and one of the outputs'."""
    boxes = desc.tensor("roi_tensor")
    return {
        "batch_count": images.sizes[0],
        "input_height": images.sizes[2],
        "input_width": images.sizes[3],
        "output_height": outputs.sizes[2],
        "output_width": outputs.sizes[3],
        "roi_stride": boxes.effective_strides[-2],
        "coordinate_stride": boxes.effective_strides[-1],
        "batch_stride": desc.tensor("batch_indices_tensor").effective_strides[-1],
        "scale_x": desc.spatial_scale_x,
        "scale_y": desc.spatial_scale_y,
        "input_pixel_offset": desc.input_pixel_offset,
        "output_pixel_offset": desc.output_pixel_offset,
        "minimum_samples": desc.minimum_samples_per_output,
        "maximum_samples": desc.maximum_samples_per_output,
    }


def position_constants(desc: RoiAlign1 | RoiAlignGrad) -> dict[str, int]:
    """The specialisation constants of ``glsl/include/roi.glsl``."""
    return {
        "NEAREST": int(desc.interpolation_mode == InterpolationMode.NEAREST_NEIGHBOR),
        "CORNERS": int(desc.align_regions_to_corners),
    }


def check_samples(desc: RoiAlign1 | RoiAlignGrad) -> None:
    """Refuses a number of samples that every output takes and that no image bounds.

    Raises:
        UnsupportedError: it would hold the device for too long.
    """
    if desc.minimum_samples_per_output > _MOST_SAMPLES:
        raise SAMPLES.error(
            f"MinimumSamplesPerOutput may be at most {_MOST_SAMPLES}, because more would hold the device for too long; "
            f"got {desc.minimum_samples_per_output}",
            desc.dml_name,
        )


def _params(desc: RoiAlign1) -> dict[str, int | float | tuple[int, ...]]:
    source, output = desc.tensor("input_tensor"), desc.tensor("output_tensor")
    return {
        **position_params(desc, source, output),
        "roi_count": output.sizes[0],
        "channels": source.sizes[1],
        "input_strides": source.effective_strides,
        "output_strides": output.effective_strides,
        "out_of_bounds_input_value": desc.out_of_bounds_input_value,
    }


def _plan(
    desc: RoiAlign1,
    caps: Capabilities,
    kernel: str,
    constants: dict[str, int],
    params: dict[str, int],
    workgroups: int,
) -> Plan:
    check_samples(desc)
    wide = desc.tensor("batch_indices_tensor").data_type == TensorDataType.UINT64
    constants = {
        **position_constants(desc),
        "MAXIMUM": int(desc.reduction_function == ReduceFunction.MAX),
        "BATCH_WORDS": 2 if wide else 1,
        **constants,
    }
    dispatch = make_dispatch(
        kernel,
        (input_range(0), input_range(1), input_range(2), output_range()),
        linear_grid(workgroups, caps),
        variant={"T": desc.tensor("input_tensor").data_type.name},
        constants=constants,
        **_params(desc),
        **params,
    )
    return Plan((dispatch,))


def _columns(desc: RoiAlign1, problem: RoiAlignProblem, caps: Capabilities) -> Plan:
    taps, size = _taps(desc), min(256, caps.workgroup_invocations)
    rois, channels, height, width = desc.tensor("output_tensor").sizes
    most = desc.maximum_samples_per_output
    fixed = most if most == max(1, desc.minimum_samples_per_output) else 0
    samples = fixed or min(most, _ADAPTIVE_SAMPLES)
    # Blocks of whole rounds of the kernel, of about 28 channels: few enough for the images' planes of the blocks in
    # flight to stay in the cache, and enough to pay for the tables.
    round_channels = max(1, size // (width * (fixed or 2) * taps))
    block = min(channels, round_channels * max(1, 28 // round_channels))
    constants = {
        "LOCAL_SIZE_X": size,
        "SAMPLES": fixed,
        "ROWS": _table_entries(height * samples, ROI_TABLE_ROWS),
        "COLUMNS": _table_entries(width * samples * taps, ROI_TABLE_COLUMNS),
        "PARTIALS": _PARTIALS,
        # Up to 8, as evenly as they go: on an H200 all 7 rows of 7x7 outputs together take 176 us, one by one 192 us.
        "OUTPUT_ROWS": -(-height // -(-height // 8)),
    }
    return _plan(desc, caps, "roi_align_columns", constants, {"block_channels": block}, rois * -(-channels // block))


def _outputs(desc: RoiAlign1, problem: RoiAlignProblem, caps: Capabilities) -> Plan:
    outputs = desc.tensor("output_tensor").element_count
    size = min(256, caps.workgroup_invocations)
    samples_a_round = round_samples(caps)
    down, across = map(functools.partial(most_samples, desc), desc.tensor("input_tensor").sizes[2:])
    check_rounds(down * (1 + -(-across // samples_a_round)), caps, desc.dml_name)
    constants = {"LOCAL_SIZE_X": size, "CHANNELS_FASTEST": int(not problem.rows_contiguous), "ROUND": samples_a_round}
    return _plan(desc, caps, "roi_align_outputs", constants, {"outputs": outputs}, -(-outputs // size))


register(
    RoiAlign1,
    problem=_problem,
    rules=ROI_ALIGN,
    schedules={"columns": _columns, "outputs": _outputs},
    limitations=(LOOP_ROUNDS, SAMPLES),
)


def _rows_contiguous(desc: RoiPooling) -> bool:
    _, channels_stride, _, width_stride = desc.tensor("output_tensor").effective_strides
    return desc.tensor("output_tensor").sizes[1] == 1 or width_stride <= channels_stride


def _pooling(desc: RoiPooling, problem: bool, caps: Capabilities) -> Plan:
    source, regions, output = desc.tensor("input_tensor"), desc.tensor("roi_tensor"), desc.tensor("output_tensor")
    # A cell may be the whole image, of whose rows the kernel reads 4 pixels a round.
    divisions = 32 * 4 if max(desc.pooled_size) >= 2**16 else 0
    check_rounds(source.sizes[2] * (-(-source.sizes[3] // 4) + 1) + divisions, caps, desc.dml_name)
    outputs, size = output.element_count, min(256, caps.workgroup_invocations)
    dispatch = make_dispatch(
        "roi_pooling",
        (input_range(0), input_range(1), output_range()),
        linear_grid(-(-outputs // size), caps),
        variant={"T": source.data_type.name},
        constants={"LOCAL_SIZE_X": size, "CHANNELS_FASTEST": int(not problem)},
        outputs=outputs,
        roi_count=output.sizes[0],
        batch_count=source.sizes[0],
        channels=source.sizes[1],
        input_height=source.sizes[2],
        input_width=source.sizes[3],
        output_height=output.sizes[2],
        output_width=output.sizes[3],
        input_strides=source.effective_strides,
        output_strides=output.effective_strides,
        roi_stride=regions.effective_strides[2],
        coordinate_stride=regions.effective_strides[3],
        scale=desc.spatial_scale,
    )
    return Plan((dispatch,))


register(
    RoiPooling, problem=_rows_contiguous, rules=ROI_POOLING, schedules={"outputs": _pooling}, limitations=(LOOP_ROUNDS,)
)
