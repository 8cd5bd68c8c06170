"""Plans for convolutions by F(4x4, 3x3)."""

from __future__ import annotations

from dmlvk.devices.capabilities import Capabilities
from dmlvk.kernels.common.activation import fused
from dmlvk.kernels.common.plan import Dispatch, Launch, Plan, Range, Source, input_range
from dmlvk.kernels.common.shapes import linear_grid, part_starts
from dmlvk.kernels.convolution.geometry import (
    Filter,
    Geometry,
    as_it_is,
    channels_last,
    dispatch_of,
    geometry_of,
    whole_quads,
)
from dmlvk.kernels.convolution.manifest import WINOGRAD_PLACES
from dmlvk.kernels.convolution.rules import ConvolutionProblem
from dmlvk.kernels.matmul import lowering as matmul
from dmlvk.spec import ops
from dmlvk.spec.enums import ConvolutionDirection, TensorDataType

_LEAST_WINOGRAD_CHANNELS = 16
"""The fewest channels of a group: a block's inputs all weigh on each of its outputs, and rounding errors with them, which
shows where sums are short."""
_WINOGRAD_BYTES = 1 << 28
"""Most temporary memory for Winograd's transformed tensors, unless one image takes more."""


def winograd_bytes(desc: ops.Convolution, geometry: Geometry) -> int | None:
    """The largest of the transformed filter and one image's transformed tensors; None where F(4x4, 3x3) does not compute
    the problem: it takes planes under a 3x3 window of step 1, each of which reaches the input."""
    if not _winograd_fits(desc, geometry):
        return None
    blocks = -(-geometry.output_sizes[3] // 4) * -(-geometry.output_sizes[4] // 4)
    channels, outputs = geometry.group_channels + 3, geometry.group_outputs + 3  # whole quads
    return WINOGRAD_PLACES * 4 * desc.group_count * max(channels * outputs, (blocks + 3) * (channels + outputs))


def _winograd_fits(desc: ops.Convolution, geometry: Geometry) -> bool:
    return (
        desc.direction == ConvolutionDirection.FORWARD
        and geometry.group_channels >= _LEAST_WINOGRAD_CHANNELS
        and desc.tensor("input_tensor").data_type == TensorDataType.FLOAT32
        and (geometry.output_sizes[2], geometry.input_sizes[0], *geometry.window) == (1, 1, 1, 3, 3)
        and {*desc.strides, *desc.dilations} == {1}
        and not any(desc.output_padding)
        and max(*desc.start_padding, *desc.end_padding) <= 1
    )


def winograd(desc: ops.Convolution, problem: ConvolutionProblem, caps: Capabilities) -> Plan:
    """A transform of the input, 36 matrix products, a transform back; so many images at a time as temporary memory takes."""
    geometry = geometry_of(desc)
    filters = as_it_is(geometry)
    groups, channels, outputs = desc.group_count, geometry.group_channels, geometry.group_outputs
    images, _, _, height, width = geometry.output_sizes
    block_rows, block_columns = -(-height // 4), -(-width // 4)
    per_image = block_rows * block_columns
    image_bytes = WINOGRAD_PLACES * 4 * per_image * groups * (channels + outputs)
    images_each = min(images, max(min(_WINOGRAD_BYTES, caps.storage_buffer_bytes) // image_bytes, 1))
    input_last = channels_last(geometry.input_sizes, geometry.input_strides)
    output_last = channels_last(geometry.output_sizes[2:], geometry.output_strides)
    pitch_outputs = -(-outputs // 4) * 4

    def transform(
        kernel: str,
        places: dict[str, Range],
        size: int,
        first: int,
        blocks: int,
        constants: dict[str, int],
        matrix: tuple[int, int, int],
    ) -> Dispatch:
        local = min(128, caps.workgroup_invocations)
        return dispatch_of(
            f"convolution_winograd_{kernel}",
            desc,
            filters,
            {"LOCAL_SIZE_X": local, **constants},
            linear_grid(-(-size // local), caps),
            places=places,
            count=size,
            groups=groups,
            first_image=first,
            blocks=blocks,
            block_rows=block_rows,
            block_columns=block_columns,
            matrix=matrix[0],
            channel_step=matrix[1],
            block_step=matrix[2],
        )

    # The filter: {group, place, input channel, output channel}.
    filter_matrix = channels * pitch_outputs
    kept = desc.tensor("filter_tensor").owned_by_dml
    filter_bytes = groups * WINOGRAD_PLACES * filter_matrix * 4
    weights = Range(Source.PERSISTENT if kept else Source.TEMPORARY, 0, 0, filter_bytes)
    prepare = transform(
        "filter",
        {"x": input_range(1), "bias": input_range(1), "y": weights},
        groups * channels * outputs,
        0,
        0,
        {},
        (filter_matrix, pitch_outputs, 1),
    )
    filters = Filter(weights, geometry, (prepare,), filter_bytes, kept)

    pitch = -(-images_each * per_image // 4) * 4
    pitch_channels = -(-channels // 4) * 4
    input_steps = (pitch * pitch_channels, 1, pitch_channels) if input_last else (channels * pitch, pitch, 1)
    output_steps = (pitch * pitch_outputs, 1, pitch_outputs) if output_last else (outputs * pitch, pitch, 1)
    start = filters.scratch
    windows = Range(Source.TEMPORARY, 0, start, -(-groups * WINOGRAD_PLACES * input_steps[0] // 64) * 256)
    products = Range(Source.TEMPORARY, 0, start + windows.nbytes, -(-groups * WINOGRAD_PLACES * output_steps[0] // 64) * 256)
    dispatches: list[Launch] = []
    for first in part_starts(images, images_each):
        blocks = min(images_each, images - first) * per_image
        product = matmul.Product(
            data_type=TensorDataType.FLOAT32,
            batch=(groups, WINOGRAD_PLACES),
            rows=outputs,
            columns=blocks,
            depth=channels,
            a=weights,
            b=windows,
            c=weights,
            y=products,
            a_strides=(WINOGRAD_PLACES * filter_matrix, filter_matrix, 1, pitch_outputs),
            b_strides=(WINOGRAD_PLACES * input_steps[0], *input_steps),
            c_strides=(0, 0, 0, 0),
            y_strides=(WINOGRAD_PLACES * output_steps[0], *output_steps),
            has_c=False,
            alpha=1.0,
            beta=0.0,
            activation=fused(None),
        )
        dispatches += [
            transform(
                "input",
                {"w": weights, "y": windows},
                groups * channels * blocks,
                first,
                blocks,
                {"CHANNELS": int(input_last)},
                input_steps,
            ),
            *matmul.tiled(product, caps).dispatches,
            transform(
                "output",
                {"x": products, "w": weights},
                groups * outputs * blocks,
                first,
                blocks,
                {
                    "CHANNELS": int(output_last),
                    "Y_QUADS": int(whole_quads(geometry.output_sizes, geometry.output_strides, 4, width)),
                },
                output_steps,
            ),
        ]
    return filters.plan(*dispatches, temporary_bytes=windows.nbytes + products.nbytes)
