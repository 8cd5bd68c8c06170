"""Plans for convolutions by cooperative matrices."""

from __future__ import annotations

import dataclasses
import math

from dmlvk.devices.capabilities import Capabilities
from dmlvk.kernels.common.cooperative_matrix import cooperative_matrix
from dmlvk.kernels.common.cooperative_tile import WORD, cooperative_constants, cooperative_tile
from dmlvk.kernels.common.plan import Launch, Plan, Range, Source, input_range
from dmlvk.kernels.common.shapes import coalesce, divisors, linear_grid
from dmlvk.kernels.convolution.geometry import (
    Geometry,
    dispatch_of,
    geometry_of,
    repacked,
    whole_planes,
    whole_quads,
)
from dmlvk.kernels.convolution.manifest import OutputMode
from dmlvk.kernels.convolution.rules import ConvolutionProblem
from dmlvk.kernels.copy.lowering import copy_launch, copy_problem
from dmlvk.spec import ops
from dmlvk.spec.enums import TensorDataType

_MOST_CORNER = 1 << 15
"""Rows and columns that the cooperative kernel's 16-bit positions count."""


def cooperative_fits(desc: ops.Convolution, geometry: Geometry) -> bool:
    """Whether ``convolution_cooperative`` computes it: float16, planes, no divided positions, whole words of channels."""
    return (
        desc.tensor("input_tensor").data_type == TensorDataType.FLOAT16
        and geometry.divisor == (1, 1, 1)
        and geometry.output_sizes[2] == geometry.input_sizes[0] == geometry.window[0] == 1
        and geometry.position_start[0] == 0
        and geometry.group_channels % WORD == 0
        and all(
            size * step + taps * abs(dilation) + abs(start) < _MOST_CORNER
            for sizes in (geometry.output_sizes[2:], geometry.input_sizes)
            for size, step, taps, dilation, start in zip(
                sizes,
                geometry.position_step,
                geometry.window,
                geometry.tap_step,
                geometry.position_start,
                strict=True,
            )
        )
    )


def cooperative(desc: ops.Convolution, problem: ConvolutionProblem, caps: Capabilities) -> Plan:
    """Rows of a tile are pixels, columns output channels."""
    geometry = geometry_of(desc)
    matrix = cooperative_matrix(caps, "float16", "float32")
    assert matrix is not None, "the rule asks for one"
    outputs, channels, groups = geometry.group_outputs, geometry.group_channels, desc.group_count
    inputs = (geometry.output_sizes[0], groups * channels, *geometry.input_sizes)
    _, height, width = geometry.window
    depth = height * width * channels

    # The filter: {group, tap, input channel, output channel}, output channels in whole words.
    pitch = -(-outputs // WORD) * WORD
    filter_steps = (depth * pitch, 1, pitch, depth * pitch, width * channels * pitch, channels * pitch)
    filters = repacked(desc, geometry, filter_steps, groups * depth * pitch, caps)

    # The input, with contiguous channels.
    before: tuple[Launch, ...] = ()
    source, scratch = input_range(0), 0
    if not _whole_words(inputs, geometry.input_strides):
        steps = (math.prod(inputs[1:]), 1, 0, inputs[4] * inputs[1], inputs[1])
        scratch = -(-2 * math.prod(inputs) // 256) * 256
        source = Range(Source.TEMPORARY, 0, filters.scratch, scratch)
        copied = copy_problem(16, inputs, (geometry.input_strides, steps))
        before = (copy_launch(copied, (input_range(0), source), caps),)
        filters = dataclasses.replace(filters, geometry=dataclasses.replace(filters.geometry, input_strides=steps))

    tile = cooperative_tile(geometry.pixels, outputs, groups, caps)
    n, _, *spatial = geometry.output_sizes
    of_batch, _, *of_space = geometry.output_strides
    pixels = coalesce((n, *spatial), ((of_batch, *of_space),))
    y_mode = OutputMode.ELEMENTS
    if not any(desc.output_padding):
        if len(pixels.sizes) == 1 and whole_quads(geometry.output_sizes, geometry.output_strides, 1, outputs):
            y_mode = OutputMode.CHANNELS
        elif whole_planes(geometry.output_sizes, geometry.output_strides):
            y_mode = OutputMode.PLANES
    plane = math.prod(spatial)
    dispatch = dispatch_of(
        "convolution_cooperative",
        desc,
        filters,
        {
            **cooperative_constants(tile, matrix, caps),
            "A_ALONG_K": 1,
            "B_ALONG_K": 0,
            "WHOLE_TAPS": int(channels % tile.depth == 0),
            "Y_MODE": y_mode,
        },
        linear_grid(groups * tile.tiles(geometry.pixels, outputs), caps),
        places={"x": source},
        subgroup_size=caps.subgroup_size,
        pixels=geometry.pixels,
        groups=groups,
        depth=depth,
        channel_divisor=divisors([channels]),
        window_divisor=divisors([width]),
        plane=plane,
        plane_divisor=divisors([plane]),
        pixel_step=pixels.strides[0][-1],
    )
    return filters.plan(*before, dispatch, temporary_bytes=scratch)


def _whole_words(sizes: tuple[int, ...], strides: tuple[int, ...]) -> bool:
    """Whether channels are contiguous and every position starts on a word of 8."""
    return strides[1] == 1 and all(
        size == 1 or axis == 1 or step % WORD == 0 for axis, (size, step) in enumerate(zip(sizes, strides, strict=True))
    )
