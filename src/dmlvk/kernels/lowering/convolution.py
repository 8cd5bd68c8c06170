"""Plans for convolutions."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass

from dmlvk import ops
from dmlvk.enums import ConvolutionDirection, ConvolutionMode, TensorDataType
from dmlvk.errors import UnsupportedError
from dmlvk.kernels.caps import Capabilities
from dmlvk.kernels.lowering import matmul
from dmlvk.kernels.lowering.cooperative import WORD, cooperative_matrix, cooperative_tile, tile_constants
from dmlvk.kernels.lowering.copy import copy_launch, copy_problem
from dmlvk.kernels.lowering.fused import fused
from dmlvk.kernels.lowering.registry import register
from dmlvk.kernels.manifest import KERNELS
from dmlvk.kernels.plan import Dispatch, KernelVariant, Launch, Plan, Range, Source, input_range, output_range
from dmlvk.kernels.select.convolution import (
    CONVOLUTION,
    CONVOLUTION_LANE_REGISTERS,
    ConvolutionProblem,
    TileChoice,
    tile_choice,
)
from dmlvk.kernels.select.copy import COPY
from dmlvk.kernels.select.elementwise import Access
from dmlvk.kernels.select.rule import choose
from dmlvk.kernels.shapes import (
    check_rounds,
    coalesce,
    convolution_lanes,
    divisors,
    linear_grid,
    most_invocations,
    power_of_two,
)
from dmlvk.tensor import TensorDesc, element_bits

_RUN = 4
"""Outputs along W that an invocation of the depthwise kernel computes."""
_CHANNELS = 8
"""Output channels that an invocation of the direct kernel computes, where subgroups are no smaller."""
_LANE_REGISTERS = 190
"""Most registers of elements, weights and sums with which an invocation of the depthwise lanes takes several rows."""
_LANE_INVOCATIONS = 1 << 16
"""Invocations from which on each takes several rows: fewer leave the device idle."""
_LANE_WORKGROUP = 128
_GROUP_LANES = 8
"""Invocations along contiguous channels: whole lines of the cache."""
_CHANNELS_WORKGROUP = 128


def _spatial(values: tuple[int, ...], fill: int) -> tuple[int, int, int]:
    """One value for each of D, H and W: ``fill`` where the desc has fewer dimensions."""
    depth, height, width = (fill,) * (3 - len(values)) + values
    return (depth, height, width)


def _five(tensor: TensorDesc) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Sizes and strides as {N, C, D, H, W}."""
    sizes, strides = tensor.sizes, tensor.effective_strides
    return (*sizes[:2], *_spatial(sizes[2:], 1)), (*strides[:2], *_spatial(strides[2:], 0))


def _modular(values: int | tuple[int, ...]) -> int | tuple[int, ...]:
    """Signed numbers as the shaders' modular uints."""
    return values % 2**32 if isinstance(values, int) else tuple(value % 2**32 for value in values)


@dataclass(frozen=True)
class _Geometry:
    """A convolution in the shaders' terms; see ``glsl/include/convolution.glsl``. Steps may be negative."""

    output_sizes: tuple[int, ...]
    output_strides: tuple[int, ...]
    input_sizes: tuple[int, ...]
    input_strides: tuple[int, ...]
    window: tuple[int, ...]
    filter_strides: tuple[int, ...]
    filter_offset: int
    filter_group_stride: int
    bias_stride: int
    group_channels: int
    group_outputs: int
    computed_sizes: tuple[int, ...]
    position_step: tuple[int, ...]
    tap_step: tuple[int, ...]
    position_start: tuple[int, ...]
    divisor: tuple[int, ...]

    @property
    def pixels(self) -> int:
        """Output positions, all batch entries counted."""
        return self.output_sizes[0] * math.prod(self.output_sizes[2:])

    @property
    def params(self) -> dict[str, int | tuple[int, ...]]:
        """What every kernel's parameter block has of it."""
        return {name: _modular(value) for name, value in vars(self).items()}


def _geometry(desc: ops.Convolution) -> _Geometry:
    forward = desc.direction == ConvolutionDirection.FORWARD
    input_sizes, input_strides = _five(desc.tensor("input_tensor"))
    output_sizes, output_strides = _five(desc.tensor("output_tensor"))
    filter_sizes, filter_strides = _five(desc.tensor("filter_tensor"))
    strides, dilations = _spatial(desc.strides, 1), _spatial(desc.dilations, 1)
    starts, paddings = _spatial(desc.start_padding, 0), _spatial(desc.output_padding, 0)
    window, tap_strides = filter_sizes[2:], filter_strides[2:]
    group_channels = input_sizes[1] // desc.group_count
    group_outputs = output_sizes[1] // desc.group_count
    by_output, by_input = filter_strides[:2] if forward else filter_strides[1::-1]
    reach = max(
        (
            size * stride + (taps - 1) * dilation + start
            for size, stride, taps, dilation, start in zip(
                map(max, input_sizes[2:], output_sizes[2:]), strides, window, dilations, starts, strict=True
            )
        )
    )
    if reach >= 2**31:
        raise UnsupportedError("positions in the padded input reach 2**31", operator=desc.type.dml_name)
    offset = 0
    if desc.mode == ConvolutionMode.CONVOLUTION:
        offset = sum((taps - 1) * step for taps, step in zip(window, tap_strides, strict=True))
        tap_strides = tuple(-step for step in tap_strides)
    return _Geometry(
        output_sizes=output_sizes,
        output_strides=output_strides,
        input_sizes=input_sizes[2:],
        input_strides=input_strides,
        window=window,
        filter_strides=(by_output, by_input, *tap_strides),
        filter_offset=offset,
        filter_group_stride=by_output * group_outputs if forward else by_input * group_channels,
        bias_stride=0 if desc.bias_tensor is None else desc.bias_tensor.effective_strides[1],
        group_channels=group_channels,
        group_outputs=group_outputs,
        computed_sizes=tuple(size - padding for size, padding in zip(output_sizes[2:], paddings, strict=True)),
        position_step=strides if forward else (1, 1, 1),
        tap_step=dilations if forward else tuple(-dilation for dilation in dilations),
        position_start=tuple(-start for start in starts) if forward else starts,
        divisor=(1, 1, 1) if forward else strides,
    )


def _problem(desc: ops.Convolution) -> ConvolutionProblem:
    geometry = _geometry(desc)
    width = desc.strides[-1], desc.dilations[-1], geometry.window[2]
    taps, tabled = math.prod(geometry.window), _x_mode(desc, geometry) == _X_TABLE
    positions = math.prod(geometry.output_sizes[2:]) * math.prod(geometry.input_sizes) * math.prod(geometry.window)
    return ConvolutionProblem(
        pixels=geometry.pixels,
        groups=desc.group_count,
        group_channels=geometry.group_channels,
        group_outputs=geometry.group_outputs,
        taps=taps,
        line=geometry.group_channels * (taps if tabled else 1),
        lines=1 if tabled else taps,
        divided=geometry.divisor != (1, 1, 1),
        forward=desc.direction == ConvolutionDirection.FORWARD,
        lane_registers=_lane_registers(desc, geometry),
        cooperative=_cooperative_fits(desc, geometry),
        winograd_bytes=_winograd_bytes(desc, geometry),
        segment=(_RUN - 1) * width[0] + (width[2] - 1) * width[1] + 1,
        is_product=desc.group_count == 1 and positions == 1 and not any(desc.start_padding + desc.output_padding),
    )


@dataclass(frozen=True)
class _Filter:
    """Where a kernel finds the filter.

    Attributes:
        range: Its bytes.
        geometry: The convolution with the filter's strides there.
        launches: What repacks it, if anything does.
        nbytes: Of the repacked filter, which lies in the persistent resource where ``kept`` and in temporary memory else.
        kept: Whether that is done once, at initialisation.
    """

    range: Range
    geometry: _Geometry
    launches: tuple[Launch, ...] = ()
    nbytes: int = 0
    kept: bool = False

    def plan(self, *dispatches: Launch, temporary_bytes: int = 0) -> Plan:
        """The plan of these dispatches, whose own temporary memory starts where ``scratch`` says."""
        if self.kept:
            return Plan(dispatches, temporary_bytes, self.nbytes, initialize=self.launches)
        return Plan((*self.launches, *dispatches), self.scratch + temporary_bytes)

    @property
    def scratch(self) -> int:
        """Bytes of temporary memory that it takes itself, a multiple of 256."""
        return 0 if self.kept else -(-self.nbytes // 256) * 256


def _as_it_is(geometry: _Geometry) -> _Filter:
    return _Filter(input_range(1), geometry)


def _repacked(
    desc: ops.Convolution, geometry: _Geometry, strides: tuple[int, ...], elements: int, caps: Capabilities
) -> _Filter:
    """The filter with other strides, in elements: {group, output of the group, input of the group, D, H, W}.

    An OWNED_BY_DML filter is repacked once, at initialisation; any other by a first dispatch of each execution.
    """
    tensor = desc.tensor("filter_tensor")
    bits = element_bits(tensor.data_type)
    nbytes = -(-elements * bits // 128) * 16
    place = Range(Source.PERSISTENT if tensor.owned_by_dml else Source.TEMPORARY, 0, 0, nbytes)
    sizes = (desc.group_count, geometry.group_outputs, geometry.group_channels, *geometry.window)
    problem = copy_problem(
        bits, sizes, ((geometry.filter_group_stride, *geometry.filter_strides), strides), (geometry.filter_offset, 0)
    )
    launch = copy_launch(problem, choose(COPY, problem, caps).name, (input_range(1), place), caps)
    moved = dataclasses.replace(geometry, filter_offset=0, filter_group_stride=strides[0], filter_strides=strides[1:])
    return _Filter(place, moved, (launch,), nbytes, tensor.owned_by_dml)


def _dispatch(
    kernel: str,
    desc: ops.Convolution,
    filters: _Filter,
    constants: dict[str, int],
    grid: tuple[int, int, int],
    variant: tuple[tuple[str, str], ...] = (),
    **params: int | tuple[int, ...],
) -> Dispatch:
    geometry = filters.geometry
    activation = fused(desc.fused_activation)
    has_bias = desc.bias_tensor is not None
    constants = {
        **constants,
        "ACTIVATION": activation.id,
        "HAS_BIAS": int(has_bias),
        "HAS_DIVISOR": int(geometry.divisor != (1, 1, 1)),
    }
    block = KERNELS[kernel].pack(**geometry.params, param0=activation.param0, param1=activation.param1, **params)
    variant = (*variant, ("T", desc.tensor("input_tensor").data_type.name))
    bindings = (input_range(0), filters.range, input_range(2) if has_bias else filters.range, output_range())
    return Dispatch(KernelVariant(kernel, variant, tuple(constants.items())), bindings, block, grid)


def _naive(desc: ops.Convolution, problem: ConvolutionProblem, caps: Capabilities) -> Plan:
    check_rounds(2 * problem.group_channels * problem.taps, caps, desc.type.dml_name)  # of loops in loops
    filters = _as_it_is(_geometry(desc))
    local = min(128, caps.workgroup_invocations)
    count = problem.pixels * problem.groups * problem.group_outputs
    grid = linear_grid(-(-count // local), caps)
    return filters.plan(_dispatch("convolution_naive", desc, filters, {"LOCAL_SIZE_X": local}, grid, count=count))


def _direct(desc: ops.Convolution, problem: ConvolutionProblem, caps: Capabilities) -> Plan:
    check_rounds(2 * problem.group_channels * problem.taps, caps, desc.type.dml_name)
    filters = _as_it_is(_geometry(desc))
    local = 32 if caps.is_cpu else 64
    channels = min(_CHANNELS, caps.minimum_subgroup_size)
    blocks = -(-problem.group_outputs // channels)
    x, y, _ = linear_grid(-(-problem.pixels // local), caps)
    return filters.plan(
        _dispatch(
            "convolution_direct",
            desc,
            filters,
            {"LOCAL_SIZE_X": local, "CHANNELS": channels},
            (x, y, problem.groups * blocks),
            pixels=problem.pixels,
            group_blocks=blocks,
        )
    )


def _depthwise(desc: ops.Convolution, problem: ConvolutionProblem, caps: Capabilities) -> Plan:
    local = 32 if caps.is_cpu else 64
    geometry = _geometry(desc)
    filters = _as_it_is(geometry)
    width = geometry.output_sizes[4]
    row_runs = -(-width // _RUN)
    runs = problem.pixels // width * row_runs
    x, y, _ = linear_grid(-(-runs // local), caps)
    constants = {
        "LOCAL_SIZE_X": local,
        "PIXELS": _RUN,
        "WINDOW_W": geometry.window[2],
        "STRIDE_W": desc.strides[-1],
        "DILATION_W": desc.dilations[-1],
    }
    grid = (x, y, problem.groups * problem.group_outputs)
    return filters.plan(_dispatch("convolution_depthwise", desc, filters, constants, grid, runs=runs, row_runs=row_runs))


@dataclass(frozen=True)
class _Lanes:
    """How ``convolution_depthwise_lanes`` sees a problem.

    Attributes:
        bits: Of an element.
        lanes: Neighbouring outputs an invocation makes.
        channels: Whether they are neighbouring channels.
        modes: How lanes lie in the input and the output.
        shift: Elements of a group before the first one that is read.
        window, stride: In the plane, {H, W}.
    """

    bits: int
    lanes: int
    channels: bool
    modes: tuple[Access, Access]
    shift: int
    window: tuple[int, int]
    stride: tuple[int, int]

    @property
    def columns(self) -> int:
        """Neighbouring outputs of a row that an invocation makes of contiguous channels. H200, 256 channels of 32x56x56 in
        float32: 3x3 in 70 us with 2 and 78 with 4, 5x5 in 154 and 115."""
        return 2 if self.window[1] <= 3 else 4

    @property
    def groups(self) -> int:
        """Groups of lanes that are read of an input row."""
        span = (self.lanes - 1) * self.stride[1] + self.window[1]
        return self.window[1] if self.channels else -(-(self.shift + span) // self.lanes)

    def registers(self, rows: int) -> int:
        """For the elements read, the weights and the sums, for so many rows of the output."""
        if self.channels and Access.ELEMENTS not in self.modes:  # a row of the window at a time
            read = (self.columns - 1) * self.stride[1] + self.window[1]
            return self.lanes * (read * self.bits // 32 + self.window[1] + self.columns)
        read = ((rows - 1) * self.stride[0] + self.window[0]) * self.groups * self.lanes
        packed = self.bits // 16 if self.modes[0] is Access.GROUPS else 2
        return read * packed // 2 + math.prod(self.window) * (self.lanes if self.channels else 1) + rows * self.lanes


def _lanes(desc: ops.Convolution, geometry: _Geometry) -> _Lanes:
    """The form with the most lanes of those that fit the registers, in groups if input and output lie in groups."""
    bits = element_bits(desc.tensor("input_tensor").data_type)
    forms = [_form_of_lanes(desc, geometry, lanes) for lanes in convolution_lanes(bits)]
    fit = [form for form in forms if form.registers(1) <= CONVOLUTION_LANE_REGISTERS] or forms[-1:]
    return next((form for form in fit if Access.ELEMENTS not in form.modes), fit[0])


def _form_of_lanes(desc: ops.Convolution, geometry: _Geometry, lanes: int) -> _Lanes:
    steps = geometry.input_strides
    channels = _channels_last(geometry.input_sizes, steps)
    lane_axis = 1 if channels else 4

    def mode(sizes: tuple[int, ...], strides: tuple[int, ...]) -> Access:
        whole = all(
            size == 1 or (step == 1 and size % lanes == 0 if axis == lane_axis else step % lanes == 0)
            for axis, (size, step) in enumerate(zip(sizes, strides, strict=True))
        )
        return Access.GROUPS if whole and sizes[lane_axis] > 1 else Access.ELEMENTS

    outputs, inputs = geometry.output_sizes, (*geometry.output_sizes[:2], *geometry.input_sizes)
    of_input = mode(inputs, steps)
    return _Lanes(
        bits=element_bits(desc.tensor("input_tensor").data_type),
        lanes=lanes,
        channels=channels,
        modes=(of_input, mode(outputs, geometry.output_strides)),
        shift=geometry.position_start[2] % lanes if of_input is Access.GROUPS and not channels else 0,
        window=(geometry.window[1], geometry.window[2]),
        stride=(desc.strides[-2] if len(desc.strides) > 1 else 1, desc.strides[-1]),
    )


def _depthwise_channels(desc: ops.Convolution, geometry: _Geometry, form: _Lanes, caps: Capabilities) -> Plan:
    """A workgroup makes a block of rows and columns of a few channels."""
    n, c, _, h, w = geometry.output_sizes
    _, height, width = geometry.window
    # A row of taps is a row of groups of channels.
    filters = _repacked(desc, geometry, (1, 1, 0, 0, width * c, c), height * width * c, caps)
    local = min(_CHANNELS_WORKGROUP, most_invocations(caps))
    columns = min(power_of_two(-(-w // form.columns)), local // _GROUP_LANES // 4)
    rows = local // (_GROUP_LANES * columns)
    walk = (n, -(-h // rows), -(-w // (columns * form.columns)), -(-c // (_GROUP_LANES * form.lanes)))
    dispatch = _dispatch(
        "convolution_depthwise_channels",
        desc,
        filters,
        {
            "LOCAL_SIZE_X": local,
            "COLUMNS": form.columns,
            "GROUP_LANES": _GROUP_LANES,
            "GROUP_COLUMNS": columns,
            "WINDOW_H": form.window[0],
            "WINDOW_W": form.window[1],
            "STRIDE_H": form.stride[0],
            "STRIDE_W": form.stride[1],
        },
        linear_grid(math.prod(walk), caps),
        (("LANES", str(form.lanes)),),
        count=math.prod(walk),
        walk_sizes=walk,
        walk_divisors=divisors(walk),
    )
    return filters.plan(dispatch)


def _lane_registers(desc: ops.Convolution, geometry: _Geometry) -> int | None:
    """Registers of an invocation of the depthwise lanes that makes one row; None where they do not fit the problem."""
    planes = geometry.output_sizes[2] == geometry.input_sizes[0] == geometry.window[0] == 1
    padded = any(desc.output_padding)
    forward = desc.direction == ConvolutionDirection.FORWARD
    single = geometry.group_channels == geometry.group_outputs == 1
    if not (planes and forward and single) or padded or set(desc.dilations) != {1}:
        return None
    form = _lanes(desc, geometry)
    return form.registers(1) if form.groups <= 32 else None


def _depthwise_lanes(desc: ops.Convolution, problem: ConvolutionProblem, caps: Capabilities) -> Plan:
    geometry = _geometry(desc)
    form = _lanes(desc, geometry)
    if form.channels and Access.ELEMENTS not in form.modes:
        return _depthwise_channels(desc, geometry, form, caps)
    filters = _as_it_is(geometry)
    n, c, _, h, w = geometry.output_sizes
    lane_groups = -(-(c if form.channels else w) // form.lanes)
    row_invocations = n * (w if form.channels else c) * lane_groups
    rows = next(
        (
            rows
            for rows in (4, 2)
            if not caps.is_cpu
            and 2 * form.stride[0] <= form.window[0]
            and form.registers(rows) <= _LANE_REGISTERS
            and -(-h // rows) * row_invocations >= _LANE_INVOCATIONS
        ),
        1,
    )
    row_groups = -(-h // rows)
    walk = (n, row_groups, w, lane_groups) if form.channels else (n, c, row_groups, lane_groups)
    # The first and the last column of each group that is read of a row, over all invocations.
    group_step = 1 if form.channels else form.lanes
    first = geometry.position_start[2] - form.shift
    last = first + ((w if form.channels else lane_groups * form.lanes) - group_step) * form.stride[1]
    inside = [
        first + g * group_step >= 0 and last + g * group_step < geometry.input_sizes[2]
        for g in range(form.groups if form.channels or form.modes[0] is Access.GROUPS else 0)
    ]
    local = min(_LANE_WORKGROUP, caps.workgroup_invocations)
    constants = {
        "LOCAL_SIZE_X": local,
        "CHANNELS": int(form.channels),
        "ROWS": rows,
        "WINDOW_H": form.window[0],
        "WINDOW_W": form.window[1],
        "STRIDE_H": form.stride[0],
        "STRIDE_W": form.stride[1],
        "SHIFT": form.shift,
        "INSIDE": sum(1 << g for g, always in enumerate(inside) if always),
        "X_MODE": int(form.modes[0]),
        "Y_MODE": int(form.modes[1]),
    }
    dispatch = _dispatch(
        "convolution_depthwise_lanes",
        desc,
        filters,
        constants,
        linear_grid(-(-math.prod(walk) // local), caps),
        (("LANES", str(form.lanes)),),
        count=math.prod(walk),
        walk_sizes=walk,
        walk_divisors=divisors(walk),
    )
    return filters.plan(dispatch)


_MOST_CORNER = 1 << 15
"""Rows and columns that the cooperative kernel's 16-bit positions count."""


def _cooperative_fits(desc: ops.Convolution, geometry: _Geometry) -> bool:
    """Whether ``convolution_cooperative`` computes it: float16, planes, no divided positions, whole words of channels."""
    reach = max(
        size * step + taps * dilation + abs(start)
        for size, step, taps, dilation, start in zip(
            map(max, geometry.output_sizes[2:], geometry.input_sizes),
            geometry.position_step,
            geometry.window,
            map(abs, geometry.tap_step),
            geometry.position_start,
            strict=True,
        )
    )
    return (
        desc.tensor("input_tensor").data_type == TensorDataType.FLOAT16
        and geometry.divisor == (1, 1, 1)
        and geometry.output_sizes[2] == geometry.input_sizes[0] == geometry.window[0] == 1
        and geometry.position_start[0] == 0
        and geometry.group_channels % WORD == 0
        and reach < _MOST_CORNER
    )


def _cooperative(desc: ops.Convolution, problem: ConvolutionProblem, caps: Capabilities) -> Plan:
    """Rows of a tile are pixels, columns output channels."""
    geometry = _geometry(desc)
    matrix = cooperative_matrix(caps, "float16", "float32")
    assert matrix is not None, "the rule asks for one"
    outputs, channels, groups = geometry.group_outputs, geometry.group_channels, desc.group_count
    inputs = (geometry.output_sizes[0], groups * channels, *geometry.input_sizes)
    _, height, width = geometry.window
    depth = height * width * channels

    # The filter: {group, tap, input channel, output channel}, output channels in whole words.
    pitch = -(-outputs // WORD) * WORD
    filter_steps = (depth * pitch, 1, pitch, depth * pitch, width * channels * pitch, channels * pitch)
    filters = _repacked(desc, geometry, filter_steps, groups * depth * pitch, caps)

    # The input, with contiguous channels.
    before: tuple[Launch, ...] = ()
    source, scratch = input_range(0), 0
    if not _whole_words(inputs, geometry.input_strides):
        steps = (math.prod(inputs[1:]), 1, 0, inputs[4] * inputs[1], inputs[1])
        scratch = -(-2 * math.prod(inputs) // 256) * 256
        source = Range(Source.TEMPORARY, 0, filters.scratch, scratch)
        copied = copy_problem(16, inputs, (geometry.input_strides, steps))
        before = (copy_launch(copied, choose(COPY, copied, caps).name, (input_range(0), source), caps),)
        filters = dataclasses.replace(filters, geometry=dataclasses.replace(filters.geometry, input_strides=steps))

    tile = cooperative_tile(geometry.pixels, outputs, groups, caps)
    n, _, *spatial = geometry.output_sizes
    of_batch, _, *of_space = geometry.output_strides
    pixels = coalesce((n, *spatial), ((of_batch, *of_space),))
    y_mode = 0
    if not any(desc.output_padding):
        if len(pixels.sizes) == 1 and _whole_quads(geometry.output_sizes, geometry.output_strides, 1, outputs):
            y_mode = 2
        elif _whole_planes(geometry.output_sizes, geometry.output_strides):
            y_mode = 1
    plane = math.prod(spatial)
    dispatch = _dispatch(
        "convolution_cooperative",
        desc,
        filters,
        {
            **tile_constants(tile, matrix, caps),
            "A_ALONG_K": 1,
            "B_ALONG_K": 0,
            "WHOLE_TAPS": int(channels % tile.depth == 0),
            "Y_MODE": y_mode,
        },
        linear_grid(groups * tile.tiles(geometry.pixels, outputs), caps),
        pixels=geometry.pixels,
        groups=groups,
        depth=depth,
        channel_divisor=divisors([channels]),
        window_divisor=divisors([width]),
        plane=plane,
        plane_divisor=divisors([plane]),
        pixel_step=pixels.strides[0][-1],
    )
    dispatch = dataclasses.replace(
        dispatch,
        kernel=dispatch.kernel._replace(subgroup_size=caps.subgroup_size),
        bindings=(source, *dispatch.bindings[1:]),
    )
    return filters.plan(*before, dispatch, temporary_bytes=scratch)


def _whole_words(sizes: tuple[int, ...], strides: tuple[int, ...]) -> bool:
    """Whether channels are contiguous and every position starts on a word of 8."""
    return strides[1] == 1 and all(
        size == 1 or axis == 1 or step % WORD == 0 for axis, (size, step) in enumerate(zip(sizes, strides, strict=True))
    )


_PLACES = 36
_LEAST_WINOGRAD_CHANNELS = 16
"""Of a group: a block's inputs all weigh on each of its outputs, and rounding errors with them, which shows where sums are
short."""
_WINOGRAD_BYTES = 1 << 28
"""Most temporary memory for Winograd's transformed tensors, unless one image takes more."""
_X_PIXELS, _X_PLANES, _X_CHANNELS, _X_TABLE = range(4)
_MOST_TABLE = 256
_REPACKED_PRODUCTS = 1 << 28
"""Multiplications from which on a dispatch that repacks the filter before each execution pays."""


@dataclass(frozen=True)
class _Tiles:
    """How ``convolution_tiled`` goes about a problem.

    Attributes:
        choice: The tiles.
        x_mode, y_mode: How windows are read and outputs written.
        depth_blocks: Rounds of one tap; of a table, all rounds.
        rounds: Of a sum.
        splits: Parts that the rounds are split into.
    """

    choice: TileChoice
    x_mode: int
    y_mode: int
    depth_blocks: int
    rounds: int
    splits: int


def _whole_quads(sizes: tuple[int, ...], strides: tuple[int, ...], axis: int, size: int) -> bool:
    """Whether a tensor lies in aligned quads along a dimension, ``size`` elements of which follow each other."""
    return (
        strides[axis] == 1
        and size % 4 == 0
        and all(
            count == 1 or other == axis or step % 4 == 0
            for other, (count, step) in enumerate(zip(sizes, strides, strict=True))
        )
    )


def _whole_planes(sizes: tuple[int, ...], strides: tuple[int, ...]) -> bool:
    """Whether each channel's spatial elements follow each other in memory, in whole aligned quads."""
    size, step = 1, 1
    for count, own in zip(sizes[:1:-1], strides[:1:-1], strict=True):
        if count > 1 and own != step:
            return False
        size, step = size * count, step * count
    return size % 4 == 0 and all(count == 1 or step % 4 == 0 for count, step in zip(sizes[:2], strides[:2], strict=True))


def _x_mode(desc: ops.Convolution, geometry: _Geometry) -> int:
    inputs = (geometry.output_sizes[0], desc.tensor("input_tensor").sizes[1], *geometry.input_sizes)
    taps, channels = math.prod(geometry.window), geometry.group_channels
    pointwise = taps == 1 and geometry.position_step == (1, 1, 1) and geometry.divisor == (1, 1, 1)
    unpadded = inputs[2:] == geometry.output_sizes[2:] and not any(desc.output_padding)
    if pointwise and unpadded and _whole_planes(inputs, geometry.input_strides):
        return _X_PLANES
    if _whole_quads(inputs, geometry.input_strides, 1, channels):
        return _X_CHANNELS
    if channels < 16 and taps > 1 and channels * taps <= _MOST_TABLE and geometry.divisor == (1, 1, 1):
        return _X_TABLE
    return _X_PIXELS


def _tiles(
    desc: ops.Convolution, geometry: _Geometry, problem: ConvolutionProblem, caps: Capabilities, *, split: bool
) -> _Tiles:
    outputs, strides = geometry.output_sizes, geometry.output_strides
    padded = any(desc.output_padding)
    x_mode, y_mode = _x_mode(desc, geometry), 0
    if not padded and _whole_planes(outputs, strides):
        y_mode = 1
    elif not padded and _whole_quads(outputs, strides, 1, geometry.group_outputs):
        y_mode = 2
    choice = tile_choice(problem, caps, split=split)
    line = problem.line
    return _Tiles(choice, x_mode, y_mode, -(-line // choice.depth), choice.rounds(problem), choice.splits)


def _packed_for_tiles(desc: ops.Convolution, geometry: _Geometry, x_mode: int, caps: Capabilities) -> tuple[_Filter, bool]:
    """The filter and whether its output channels lie in quads."""
    steps = geometry.filter_strides
    sizes = (geometry.group_outputs, geometry.group_channels, *geometry.window)
    quads = _whole_quads(sizes, steps, 0, geometry.group_outputs)
    quads = quads and geometry.filter_group_stride % 4 == geometry.filter_offset % 4 == 0
    if quads and x_mode != _X_TABLE:
        return _as_it_is(geometry), True
    products = geometry.pixels * math.prod(sizes) * desc.group_count
    if not desc.tensor("filter_tensor").owned_by_dml and x_mode != _X_TABLE and products < _REPACKED_PRODUCTS:
        return _as_it_is(geometry), False
    pitch = -(-geometry.group_outputs // 4) * 4
    tap = geometry.group_channels * pitch
    depth, height, width = geometry.window
    strides = (depth * height * width * tap, 1, pitch, height * width * tap, width * tap, tap)
    return _repacked(desc, geometry, strides, desc.group_count * strides[0], caps), True


def _tiled(desc: ops.Convolution, problem: ConvolutionProblem, caps: Capabilities) -> Plan:
    return _tiled_plan(desc, problem, caps, split=False)


def _split(desc: ops.Convolution, problem: ConvolutionProblem, caps: Capabilities) -> Plan:
    return _tiled_plan(desc, problem, caps, split=True)


def _tiled_plan(desc: ops.Convolution, problem: ConvolutionProblem, caps: Capabilities, *, split: bool) -> Plan:
    """Rows of a tile are output channels, columns pixels."""
    geometry = _geometry(desc)
    tiles = _tiles(desc, geometry, problem, caps, split=split)
    check_rounds(tiles.rounds, caps, desc.type.dml_name)
    filters, quads = _packed_for_tiles(desc, geometry, tiles.x_mode, caps)
    shape, depth = tiles.choice.shape, tiles.choice.depth
    groups, partial = desc.group_count, tiles.splits > 1
    pitch = -(-geometry.pixels // 4) * 4
    channels = geometry.output_sizes[1]
    constants = {
        "LOCAL_SIZE_X": shape.invocations,
        "TILE_M": shape.rows,
        "TILE_N": shape.columns,
        "BLOCK_M": shape.block_rows,
        "BLOCK_N": shape.block_columns,
        "TILE_K": depth,
        "X_MODE": tiles.x_mode,
        "W_QUADS": int(quads),
        "Y_MODE": tiles.y_mode,
        "TABLE": _MOST_TABLE + depth if tiles.x_mode == _X_TABLE else 1,
        "PARTIAL": int(partial),
    }
    tile_count = -(-geometry.pixels // shape.columns) * -(-geometry.group_outputs // shape.rows)
    dispatch = _dispatch(
        "convolution_tiled",
        desc,
        filters,
        constants,
        linear_grid(groups * tiles.splits * tile_count, caps),
        pixels=geometry.pixels,
        groups=groups,
        depth=geometry.group_channels * math.prod(geometry.window),
        depth_blocks=tiles.depth_blocks,
        depth_divisor=divisors([tiles.depth_blocks]),
        rounds=tiles.rounds,
        splits=tiles.splits,
        split_rounds=-(-tiles.rounds // tiles.splits),
        partial_pitch=pitch,
    )
    if not partial:
        return filters.plan(dispatch)
    partials = Range(Source.TEMPORARY, 0, filters.scratch, tiles.splits * channels * pitch * 4)
    local = min(128, caps.workgroup_invocations)
    merge = _dispatch(
        "convolution_merge",
        desc,
        filters,
        {"LOCAL_SIZE_X": local, "Y_QUADS": int(tiles.y_mode == 1)},
        linear_grid(-(-channels * pitch // 4 // local), caps),
        pixels=geometry.pixels,
        splits=tiles.splits,
        partial_pitch=pitch,
    )
    dispatch = dataclasses.replace(dispatch, bindings=(*dispatch.bindings[:3], partials))
    merge = dataclasses.replace(merge, bindings=(partials, *merge.bindings[1:]))
    return filters.plan(dispatch, merge, temporary_bytes=partials.nbytes)


def _winograd_bytes(desc: ops.Convolution, geometry: _Geometry) -> int | None:
    """The largest of the transformed filter and one image's transformed tensors; None where F(4x4, 3x3) does not compute
    the problem: it takes planes under a 3x3 window of step 1, each of which reaches the input."""
    if not _winograd_fits(desc, geometry):
        return None
    blocks = -(-geometry.output_sizes[3] // 4) * -(-geometry.output_sizes[4] // 4)
    channels, outputs = geometry.group_channels + 3, geometry.group_outputs + 3  # whole quads
    return _PLACES * 4 * desc.group_count * max(channels * outputs, (blocks + 3) * (channels + outputs))


def _winograd_fits(desc: ops.Convolution, geometry: _Geometry) -> bool:
    return (
        desc.direction == ConvolutionDirection.FORWARD
        and geometry.group_channels >= _LEAST_WINOGRAD_CHANNELS
        and desc.tensor("input_tensor").data_type == TensorDataType.FLOAT32
        and (geometry.output_sizes[2], geometry.input_sizes[0], *geometry.window) == (1, 1, 1, 3, 3)
        and {*desc.strides, *desc.dilations} == {1}
        and not any(desc.output_padding)
        and max(*desc.start_padding, *desc.end_padding) <= 1
    )


def _winograd(desc: ops.Convolution, problem: ConvolutionProblem, caps: Capabilities) -> Plan:
    """A transform of the input, 36 matrix products, a transform back; so many images at a time as temporary memory takes."""
    geometry = _geometry(desc)
    filters = _as_it_is(geometry)
    groups, channels, outputs = desc.group_count, geometry.group_channels, geometry.group_outputs
    images, _, _, height, width = geometry.output_sizes
    block_rows, block_columns = -(-height // 4), -(-width // 4)
    per_image = block_rows * block_columns
    image_bytes = _PLACES * 4 * per_image * groups * (channels + outputs)
    images_each = min(images, max(min(_WINOGRAD_BYTES, caps.storage_buffer_bytes) // image_bytes, 1))
    input_last = _channels_last(geometry.input_sizes, geometry.input_strides)
    output_last = _channels_last(geometry.output_sizes[2:], geometry.output_strides)
    pitch_outputs = -(-outputs // 4) * 4

    def transform(
        kernel: str,
        bindings: dict[int, Range],
        size: int,
        first: int,
        blocks: int,
        constants: dict[str, int],
        matrix: tuple[int, int, int],
    ) -> Dispatch:
        local = min(128, caps.workgroup_invocations)
        dispatch = _dispatch(
            f"convolution_winograd_{kernel}",
            desc,
            filters,
            {"LOCAL_SIZE_X": local, **constants},
            linear_grid(-(-size // local), caps),
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
        ranges = tuple(bindings.get(index, own) for index, own in enumerate(dispatch.bindings))
        return dataclasses.replace(dispatch, bindings=ranges)

    # The filter: {group, place, input channel, output channel}.
    filter_matrix = channels * pitch_outputs
    kept = desc.tensor("filter_tensor").owned_by_dml
    filter_bytes = groups * _PLACES * filter_matrix * 4
    weights = Range(Source.PERSISTENT if kept else Source.TEMPORARY, 0, 0, filter_bytes)
    prepare = transform(
        "filter", {0: input_range(1), 3: weights}, groups * channels * outputs, 0, 0, {}, (filter_matrix, pitch_outputs, 1)
    )
    filters = _Filter(weights, geometry, (prepare,), filter_bytes, kept)

    pitch = -(-images_each * per_image // 4) * 4
    pitch_channels = -(-channels // 4) * 4
    input_steps = (pitch * pitch_channels, 1, pitch_channels) if input_last else (channels * pitch, pitch, 1)
    output_steps = (pitch * pitch_outputs, 1, pitch_outputs) if output_last else (outputs * pitch, pitch, 1)
    start = filters.scratch
    windows = Range(Source.TEMPORARY, 0, start, -(-groups * _PLACES * input_steps[0] // 64) * 256)
    products = Range(Source.TEMPORARY, 0, start + windows.nbytes, -(-groups * _PLACES * output_steps[0] // 64) * 256)
    dispatches: list[Dispatch] = []
    for first in range(0, images, images_each):
        blocks = min(images_each, images - first) * per_image
        product = matmul.Product(
            data_type=TensorDataType.FLOAT32,
            batch=(groups, _PLACES),
            rows=outputs,
            columns=blocks,
            depth=channels,
            a=weights,
            b=windows,
            c=weights,
            y=products,
            a_strides=(_PLACES * filter_matrix, filter_matrix, 1, pitch_outputs),
            b_strides=(_PLACES * input_steps[0], *input_steps),
            c_strides=(0, 0, 0, 0),
            y_strides=(_PLACES * output_steps[0], *output_steps),
            has_c=False,
            alpha=1.0,
            beta=0.0,
            activation=fused(None),
        )
        dispatches += [
            transform(
                "input",
                {1: weights, 3: windows},
                groups * channels * blocks,
                first,
                blocks,
                {"CHANNELS": int(input_last)},
                input_steps,
            ),
            *(launch for launch in matmul.tiled(product, caps).dispatches if isinstance(launch, Dispatch)),
            transform(
                "output",
                {0: products, 1: weights},
                groups * outputs * blocks,
                first,
                blocks,
                {
                    "CHANNELS": int(output_last),
                    "Y_QUADS": int(_whole_quads(geometry.output_sizes, geometry.output_strides, 4, width)),
                },
                output_steps,
            ),
        ]
    return filters.plan(*dispatches, temporary_bytes=windows.nbytes + products.nbytes)


def _channels_last(sizes: tuple[int, ...], strides: tuple[int, ...]) -> bool:
    """Whether channels are denser in memory than the last spatial dimension; ``sizes`` are the spatial ones."""
    return strides[1] < strides[4] if sizes[2] > 1 else strides[1] == 1


def _vector(desc: ops.Convolution, problem: ConvolutionProblem, caps: Capabilities) -> Plan:
    """Rows are the batch entries, columns the output channels."""
    geometry = _geometry(desc)
    has_bias = desc.bias_tensor is not None
    product = matmul.Product(
        data_type=desc.tensor("input_tensor").data_type,
        batch=(1, 1),
        rows=problem.pixels,
        columns=problem.group_outputs,
        depth=problem.group_channels,
        a=input_range(0),
        b=input_range(1),
        c=input_range(2 if has_bias else 1),
        y=output_range(),
        a_strides=(0, 0, geometry.input_strides[0], geometry.input_strides[1]),
        b_strides=(0, 0, geometry.filter_strides[1], geometry.filter_strides[0]),
        c_strides=(0, 0, 0, geometry.bias_stride),
        y_strides=(0, 0, geometry.output_strides[0], geometry.output_strides[1]),
        has_c=has_bias,
        alpha=1.0,
        beta=1.0,
        activation=fused(desc.fused_activation),
    )
    return matmul.vector(product, caps)


register(
    ops.Convolution,
    problem=_problem,
    rules=CONVOLUTION,
    schedules={
        "vector": _vector,
        "depthwise_lanes": _depthwise_lanes,
        "depthwise": _depthwise,
        "cooperative": _cooperative,
        "winograd": _winograd,
        "split": _split,
        "tiled": _tiled,
        "direct": _direct,
        "naive": _naive,
    },
)
