"""Plans for convolutions by cooperative matrices."""

from __future__ import annotations

import dataclasses
import math
from typing import NamedTuple

from dmlvk.devices.capabilities import Capabilities
from dmlvk.kernels.common.cooperative_matrix import cooperative_matrix
from dmlvk.kernels.common.cooperative_tile import WORD, cooperative_constants
from dmlvk.kernels.common.plan import Launch, Plan, Range, Source, aligned, input_range, output_range
from dmlvk.kernels.common.shapes import coalesce, divisors, linear_grid
from dmlvk.kernels.convolution.geometry import (
    Filter,
    Geometry,
    dispatch_of,
    merge_dispatch,
    one_tap,
    repacked,
    whole_planes,
    whole_quads,
)
from dmlvk.kernels.convolution.manifest import OutputMode
from dmlvk.kernels.convolution.matrix_tiles import product_tile
from dmlvk.kernels.convolution.rules import ConvolutionProblem
from dmlvk.kernels.copy.lowering import copy_launch, copy_problem
from dmlvk.spec import ops
from dmlvk.spec.enums import TensorDataType
from dmlvk.spec.ops.convolution import ConvolutionAdd

_MOST_CORNER = 1 << 15
"""Rows and columns that the cooperative kernel's 16-bit positions count."""


def cooperative_fits(desc: ops.Convolution, geometry: Geometry) -> bool:
    """Whether ``convolution_cooperative`` computes it: float16 in whole words of channels, once positions are not
    divided."""
    return is_half(desc) and geometry.group_channels % WORD == 0 and has_corners(geometry)


def is_half(desc: ops.Convolution) -> bool:
    """Whether tensors are of float16."""
    return desc.tensor("input_tensor").data_type == TensorDataType.FLOAT16


def has_corners(geometry: Geometry) -> bool:
    """Whether 16 bits hold each row and column of windows."""
    return all(
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


class Image(NamedTuple):
    """The input with contiguous channels: the strides, the bytes, and the launch that copies it there."""

    strides: tuple[int, ...]
    range: Range
    launch: Launch


def _image_sizes(desc: ops.Convolution, geometry: Geometry) -> tuple[int, ...]:
    return (geometry.output_sizes[0], desc.group_count * geometry.group_channels, *geometry.input_sizes)


def is_channels_last(desc: ops.Convolution, geometry: Geometry) -> bool:
    """Whether the input's channels are contiguous and every position starts on a word of 8."""
    strides = geometry.input_strides
    return strides[1] == 1 and all(
        size == 1 or axis == 1 or step % WORD == 0
        for axis, (size, step) in enumerate(zip(_image_sizes(desc, geometry), strides, strict=True))
    )


def channels_last_image(desc: ops.Convolution, geometry: Geometry, caps: Capabilities, start: int = 0) -> Image | None:
    """The image that is made of the input in temporary memory, ``start`` bytes behind its beginning; None where the input is
    one itself."""
    if is_channels_last(desc, geometry):
        return None
    sizes = _image_sizes(desc, geometry)
    _, channels, _, height, width = sizes
    strides = (math.prod(sizes[1:]), 1, height * width * channels, width * channels, channels)
    place = Range(Source.TEMPORARY, 0, start, aligned(2 * math.prod(sizes)))
    return Image(
        strides,
        place,
        copy_launch(copy_problem(16, sizes, (geometry.input_strides, strides)), (input_range(0), place), caps),
    )


_INTERLEAVED_BANDWIDTH = 0.06
"""Share of the memory's bandwidth of numbers that are stored one by one between others'. H100, 4x4 with strides of 2x2 over
8x256x64x64 to 128 channels in planes, 33 MB: 352 us, with contiguous channels 175; those and a copy to planes take 196."""


def turned_output(desc: ops.Convolution, geometry: Geometry, caps: Capabilities, start: int) -> Image | None:
    """The image in temporary memory, ``start`` bytes behind its beginning, that takes the outputs of phases, and the launch
    that copies it to the output; None where that does not pay."""
    sizes, own = geometry.output_sizes, geometry.output_strides
    _, channels, _, height, width = sizes
    strides = (math.prod(sizes[1:]), 1, height * width * channels, width * channels, channels)
    nbytes = 2 * math.prod(sizes)
    model = caps.model
    copied = model.dispatch_microseconds + 2 * nbytes / model.bytes_per_microsecond
    is_apart = own[1] != 1 and geometry.divisor[2] > 1 and geometry.group_outputs % 4 == 0 and not any(desc.output_padding)
    if (
        isinstance(desc, ConvolutionAdd)
        or not is_apart
        or nbytes / (_INTERLEAVED_BANDWIDTH * model.bytes_per_microsecond) < copied
    ):
        return None
    place = Range(Source.TEMPORARY, 0, start, aligned(nbytes))
    return Image(strides, place, copy_launch(copy_problem(16, sizes, (strides, own)), (place, output_range()), caps))


def cooperative(desc: ops.Convolution, geometry: Geometry, problem: ConvolutionProblem, caps: Capabilities) -> Plan:
    """Rows of a tile are pixels, columns output channels."""
    outputs, channels, groups = geometry.group_outputs, geometry.group_channels, desc.group_count
    front, height, width = geometry.window
    depth = front * height * width * channels

    # The filter: {group, tap, input channel, output channel}, output channels in whole words.
    pitch = -(-outputs // WORD) * WORD
    by_line = width * channels * pitch
    filter_steps = (depth * pitch, 1, pitch, height * by_line, by_line, channels * pitch)
    filters = repacked(desc, geometry, filter_steps, groups * depth * pitch, caps)

    image = channels_last_image(desc, geometry, caps, filters.scratch)
    if image is None:
        return products(desc, filters, caps, source=input_range(0))
    filters = dataclasses.replace(filters, geometry=dataclasses.replace(filters.geometry, input_strides=image.strides))
    return products(desc, filters, caps, image.launch, source=image.range, taken=image.range.nbytes)


def products(
    desc: ops.Convolution,
    filters: Filter,
    caps: Capabilities,
    *before: Launch,
    source: Range,
    taken: int = 0,
    filter_along_depth: bool = False,
) -> Plan:
    """The plan that multiplies an image with contiguous channels.

    Args:
        desc: The convolution.
        filters: The filter, with the geometry of the product.
        caps: The device.
        before: What makes the image.
        source: The image.
        taken: The bytes of temporary memory that are taken behind the filter's.
        filter_along_depth: Whether the filter's neighbours lie along the depth, else across it.
    """
    matrix = cooperative_matrix(caps, "float16", "float32")
    assert matrix is not None, "the rule asks for one"
    geometry, groups = filters.geometry, desc.group_count
    outputs, channels = geometry.group_outputs, geometry.group_channels
    front, height, width = geometry.window
    depth = front * height * width * channels
    tile, wanted = product_tile(geometry.pixels, outputs, depth, groups, caps, b_along_depth=filter_along_depth)
    n, total, *spatial = geometry.output_sizes
    of_batch, _, *of_space = geometry.output_strides
    pixels = coalesce((n, *spatial), ((of_batch, *of_space),))
    y_mode = OutputMode.ELEMENTS
    if not any(desc.output_padding) and geometry.output_start % 4 == 0:
        if whole_quads(geometry.output_sizes, geometry.output_strides, 1, outputs):
            y_mode = OutputMode.CHANNELS
        elif whole_planes(geometry.output_sizes, geometry.output_strides):
            y_mode = OutputMode.PLANES
    plane = math.prod(spatial)
    in_line = len(pixels.sizes) == 1
    by_pixel = y_mode == OutputMode.CHANNELS
    rounds = -(-depth // tile.depth)
    each = -(-rounds // max(min(wanted, rounds), 1))
    splits = -(-rounds // each)
    pitch = -(-(total if by_pixel else geometry.pixels) // 4) * 4
    partial_bytes = 4 * splits * pitch * (geometry.pixels if by_pixel else total)
    partials = Range(Source.TEMPORARY, 0, filters.scratch + aligned(taken), partial_bytes)
    dispatch = dispatch_of(
        "convolution_cooperative",
        desc,
        filters,
        {
            **cooperative_constants(tile, matrix, caps),
            "A_ALONG_K": 1,
            "B_ALONG_K": int(filter_along_depth),
            "PARTIAL": int(splits > 1),
            "ONE_TAP": int(one_tap(geometry)),
            "WHOLE_TAPS": int(channels % tile.depth == 0),
            "PLANAR": int(geometry.output_sizes[2] == front == 1),
            "Y_MODE": y_mode,
            "ONE_STEP": int(in_line),
        },
        linear_grid(groups * splits * tile.tiles(geometry.pixels, outputs), caps),
        places={"x": source, **({"y": partials} if splits > 1 else {})},
        subgroup_size=caps.subgroup_size,
        pixels=geometry.pixels,
        groups=groups,
        depth=depth,
        channel_divisor=divisors([channels]),
        window_divisor=divisors([width]),
        front_divisor=divisors([height]),
        plane=plane,
        plane_divisor=divisors([plane]),
        pixel_step=pixels.strides[0][-1] if in_line else 0,
        splits=splits,
        split_rounds=each,
        partial_pitch=pitch,
    )
    if splits == 1:
        return filters.plan(*before, dispatch, temporary_bytes=taken)
    merge = merge_dispatch(
        desc,
        filters,
        caps,
        partials,
        pitch=pitch,
        splits=splits,
        by_pixel=by_pixel,
        quads=y_mode != OutputMode.ELEMENTS,
    )
    return filters.plan(*before, dispatch, merge, temporary_bytes=aligned(taken) + partial_bytes)
