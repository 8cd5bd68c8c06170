"""Plans for convolutions of few channels, by cooperative matrices."""

from __future__ import annotations

import dataclasses
import math
from typing import NamedTuple

from dmlvk.devices.capabilities import Capabilities
from dmlvk.kernels.common.cooperative_tile import WORD
from dmlvk.kernels.common.dispatch import make_dispatch
from dmlvk.kernels.common.plan import Launch, Plan, Range, Source, input_range
from dmlvk.kernels.common.shapes import divisors, linear_grid
from dmlvk.kernels.convolution.cooperative import has_corners, is_half, products
from dmlvk.kernels.convolution.geometry import Filter, Geometry, modular
from dmlvk.kernels.convolution.rules import ConvolutionProblem
from dmlvk.spec import ops


def lines_fit(desc: ops.Convolution, geometry: Geometry) -> bool:
    """Whether ``convolution_cooperative`` computes it of lines of windows: float16 of one group whose channels do not fill
    words, once positions are not divided."""
    return is_half(desc) and desc.group_count == 1 and geometry.group_channels % WORD != 0 and has_corners(geometry)


def line_terms(geometry: Geometry) -> int:
    """The terms of a line of the window, in whole words."""
    return -(-geometry.group_channels * geometry.window[2] // WORD) * WORD


def lines_bytes(geometry: Geometry) -> int:
    """The bytes of an image whose channels are the terms of lines."""
    n, _, _, _, width = geometry.output_sizes
    return 2 * n * math.prod(geometry.input_sizes[:2]) * width * line_terms(geometry)


def lines(desc: ops.Convolution, geometry: Geometry, problem: ConvolutionProblem, caps: Capabilities) -> Plan:
    """Lines of windows are laid out side by side, as the channels of an image whose windows have one column."""
    outputs, channels = geometry.group_outputs, geometry.group_channels
    front, height, width = geometry.window
    terms = line_terms(geometry)
    n, _, _, _, columns = geometry.output_sizes
    down, right = geometry.input_sizes[:2]

    owned = desc.tensor("filter_tensor").owned_by_dml
    filter_bytes = 2 * outputs * front * height * terms
    of_filter = Range(Source.PERSISTENT if owned else Source.TEMPORARY, 0, 0, filter_bytes)
    taps = _Lines((outputs, front, height, 1), width, geometry.filter_strides, geometry.filter_offset, 0, 1, 0)
    pack = _lines_dispatch(taps, channels, width, input_range(1), of_filter, caps)
    moved = dataclasses.replace(
        geometry,
        input_sizes=(down, right, columns),
        input_strides=(down * right * columns * terms, 1, right * columns * terms, columns * terms, terms),
        window=(front, height, 1),
        filter_strides=(front * height * terms, 1, height * terms, terms, 0),
        filter_offset=0,
        filter_group_stride=0,
        group_channels=terms,
        position_step=(*geometry.position_step[:2], 1),
        tap_step=(*geometry.tap_step[:2], 1),
        position_start=(*geometry.position_start[:2], 0),
    )
    filters = Filter(of_filter, moved, (pack,), filter_bytes, owned)
    image = Range(Source.TEMPORARY, 0, filters.scratch, lines_bytes(geometry))
    of_image = _Lines(
        (n, down, right, columns),
        geometry.input_sizes[2],
        geometry.input_strides,
        0,
        geometry.position_step[2],
        geometry.tap_step[2],
        geometry.position_start[2],
    )
    launch = _lines_dispatch(of_image, channels, width, input_range(0), image, caps)
    return products(desc, filters, caps, launch, source=image, taken=image.nbytes, filter_along_depth=True)


class _Lines(NamedTuple):
    """What ``convolution_lines`` reads: {N, D, H, positions}, the width, the strides of {N, C, D, H, W}, where element 0 is,
    and the arithmetic of positions along W."""

    sizes: tuple[int, int, int, int]
    width: int
    strides: tuple[int, ...]
    start: int
    position_step: int
    tap_step: int
    position_start: int


def _lines_dispatch(source: _Lines, channels: int, taps: int, x: Range, target: Range, caps: Capabilities) -> Launch:
    sizes = (*source.sizes, -(-channels * taps // WORD))
    local = min(256, caps.workgroup_invocations)
    return make_dispatch(
        "convolution_lines",
        (x, target),
        linear_grid(-(-math.prod(sizes) // local), caps),
        variant={"T": "FLOAT16"},
        constants={"LOCAL_SIZE_X": local},
        count=math.prod(sizes),
        sizes=sizes,
        divisors=divisors(sizes),
        strides=modular(source.strides),
        channels=channels,
        channel_divisor=divisors([channels]),
        terms=channels * taps,
        width=source.width,
        position_step=source.position_step,
        tap_step=modular(source.tap_step),
        position_start=modular(source.position_start),
        start=source.start,
    )
