"""Plans for convolutions as tiled matrix products."""

from __future__ import annotations

import math
from dataclasses import dataclass

from dmlvk.devices.capabilities import Capabilities
from dmlvk.kernels.common.plan import Plan, Range, Source
from dmlvk.kernels.common.shapes import check_rounds, divisors, linear_grid
from dmlvk.kernels.convolution.geometry import (
    Filter,
    Geometry,
    as_it_is,
    dispatch_of,
    merge_dispatch,
    one_tap,
    repacked,
    whole_planes,
    whole_quads,
)
from dmlvk.kernels.convolution.manifest import InputMode, OutputMode
from dmlvk.kernels.convolution.rules import ConvolutionProblem, TileChoice, decided_tiles
from dmlvk.kernels.matmul.tiles import whole_rounds
from dmlvk.spec import ops

_MOST_TABLE = 256
_REPACKING_DISPATCHES = 3.63
"""A dispatch that repacks the filter before each execution pays where the multiplications take so many dispatches' time."""


@dataclass(frozen=True)
class _Tiles:
    """The way in which ``convolution_tiled`` computes a problem.

    Attributes:
        choice: The tiles.
        x_mode, y_mode: The ways in which windows are read and outputs written.
        depth_blocks: Rounds of one tap; of a table, all rounds.
        rounds: The rounds of a sum.
        splits: Parts that the rounds are split into.
    """

    choice: TileChoice
    x_mode: int
    y_mode: OutputMode
    depth_blocks: int
    rounds: int
    splits: int


def input_mode(desc: ops.Convolution, geometry: Geometry) -> InputMode:
    """The way in which the tiled kernel reads the input."""
    inputs = (geometry.output_sizes[0], desc.tensor("input_tensor").sizes[1], *geometry.input_sizes)
    taps, channels = math.prod(geometry.window), geometry.group_channels
    pointwise = taps == 1 and geometry.position_step == (1, 1, 1) and geometry.divisor == (1, 1, 1)
    unpadded = inputs[2:] == geometry.output_sizes[2:] and not any(desc.output_padding)
    if pointwise and unpadded and whole_planes(inputs, geometry.input_strides):
        return InputMode.PLANES
    if whole_quads(inputs, geometry.input_strides, 1, channels):
        return InputMode.CHANNELS
    if channels < 16 and taps > 1 and channels * taps <= _MOST_TABLE and geometry.divisor == (1, 1, 1):
        return InputMode.TABLE
    return InputMode.PIXELS


def is_lean(desc: ops.Convolution, geometry: Geometry) -> bool:
    """Whether a round finds no taps, and tiles are written in quads of pixels."""
    return one_tap(geometry) and output_mode(desc, geometry) == OutputMode.PLANES


def output_mode(desc: ops.Convolution, geometry: Geometry) -> OutputMode:
    """The way in which the tiled kernel writes the output."""
    outputs, strides = geometry.output_sizes, geometry.output_strides
    if any(desc.output_padding):
        return OutputMode.ELEMENTS
    if geometry.output_start % 4 != 0:
        return OutputMode.ELEMENTS
    if whole_planes(outputs, strides):
        return OutputMode.PLANES
    return OutputMode.CHANNELS if whole_quads(outputs, strides, 1, geometry.group_outputs) else OutputMode.ELEMENTS


def _tiles(
    desc: ops.Convolution, geometry: Geometry, problem: ConvolutionProblem, caps: Capabilities, *, split: bool
) -> _Tiles:
    x_mode, y_mode = input_mode(desc, geometry), output_mode(desc, geometry)
    choice = decided_tiles(problem, caps, split=split)
    line = problem.line
    return _Tiles(choice, x_mode, y_mode, -(-line // choice.depth), choice.rounds(problem), choice.splits)


def _packed_for_tiles(desc: ops.Convolution, geometry: Geometry, x_mode: int, caps: Capabilities) -> tuple[Filter, bool]:
    """The filter and whether its output channels lie in quads."""
    steps = geometry.filter_strides
    sizes = (geometry.group_outputs, geometry.group_channels, *geometry.window)
    quads = whole_quads(sizes, steps, 0, geometry.group_outputs)
    quads = quads and geometry.filter_group_stride % 4 == geometry.filter_offset % 4 == 0
    if quads and x_mode != InputMode.TABLE:
        return as_it_is(geometry), True
    products = geometry.pixels * math.prod(sizes) * desc.group_count
    model = caps.model
    least = _REPACKING_DISPATCHES * model.dispatch_microseconds * model.processors * model.products_per_microsecond
    if not desc.tensor("filter_tensor").owned_by_dml and x_mode != InputMode.TABLE and products < least:
        return as_it_is(geometry), False
    pitch = -(-geometry.group_outputs // 4) * 4
    tap = geometry.group_channels * pitch
    depth, height, width = geometry.window
    strides = (depth * height * width * tap, 1, pitch, height * width * tap, width * tap, tap)
    return repacked(desc, geometry, strides, desc.group_count * strides[0], caps), True


def tiled(desc: ops.Convolution, geometry: Geometry, problem: ConvolutionProblem, caps: Capabilities) -> Plan:
    """Tiles of pixels and output channels."""
    return _tiled_plan(desc, geometry, problem, caps, split=False)


def split(desc: ops.Convolution, geometry: Geometry, problem: ConvolutionProblem, caps: Capabilities) -> Plan:
    """Tiles of pixels and output channels, each sum in several parts, which a second dispatch adds."""
    return _tiled_plan(desc, geometry, problem, caps, split=True)


def _tiled_plan(
    desc: ops.Convolution, geometry: Geometry, problem: ConvolutionProblem, caps: Capabilities, *, split: bool
) -> Plan:
    """Rows of a tile are output channels, columns pixels."""
    tiles = _tiles(desc, geometry, problem, caps, split=split)
    check_rounds(tiles.rounds, caps, desc.dml_name)
    filters, quads = _packed_for_tiles(desc, geometry, tiles.x_mode, caps)
    shape, depth = tiles.choice.shape, tiles.choice.depth
    groups, partial = desc.group_count, tiles.splits > 1
    pitch = -(-geometry.pixels // 4) * 4
    channels = geometry.output_sizes[1]
    constants = {
        "LOCAL_SIZE_X": shape.invocations,
        "WHOLE_ROUNDS": int(one_tap(geometry) and whole_rounds(problem.line, depth)),
        "TILE_M": shape.rows,
        "TILE_N": shape.columns,
        "BLOCK_M": shape.block_rows,
        "BLOCK_N": shape.block_columns,
        "TILE_K": depth,
        "X_MODE": tiles.x_mode,
        "ONE_TAP": int(one_tap(geometry)),
        "W_QUADS": int(quads),
        "Y_MODE": tiles.y_mode,
        "TABLE": _MOST_TABLE + depth if tiles.x_mode == InputMode.TABLE else 1,
        "PARTIAL": int(partial),
    }
    partials = Range(Source.TEMPORARY, 0, filters.scratch, tiles.splits * channels * pitch * 4)
    tile_count = -(-geometry.pixels // shape.columns) * -(-geometry.group_outputs // shape.rows)
    dispatch = dispatch_of(
        "convolution_tiled",
        desc,
        filters,
        constants,
        linear_grid(groups * tiles.splits * tile_count, caps),
        places={"y": partials} if partial else {},
        pixels=geometry.pixels,
        groups=groups,
        depth=geometry.group_channels * math.prod(geometry.window),
        depth_blocks=tiles.depth_blocks,
        depth_divisor=divisors([tiles.depth_blocks]),
        window_divisors=divisors(geometry.window[1:]),
        rounds=tiles.rounds,
        splits=tiles.splits,
        split_rounds=-(-tiles.rounds // tiles.splits),
        partial_pitch=pitch,
    )
    if not partial:
        return filters.plan(dispatch)
    merge = merge_dispatch(
        desc,
        filters,
        caps,
        partials,
        pitch=pitch,
        splits=tiles.splits,
        by_pixel=False,
        quads=tiles.y_mode == OutputMode.PLANES,
    )
    return filters.plan(dispatch, merge, temporary_bytes=partials.nbytes)
