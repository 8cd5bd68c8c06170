"""Plans for depthwise convolutions, in groups of neighbouring outputs."""

from __future__ import annotations

import math
from dataclasses import dataclass

from dmlvk.devices.capabilities import Capabilities
from dmlvk.kernels.common.access import Access
from dmlvk.kernels.common.plan import Plan
from dmlvk.kernels.common.shapes import convolution_lanes, divisors, linear_grid, most_invocations, power_of_two
from dmlvk.kernels.common.window_lanes import WindowLanes, lane_access
from dmlvk.kernels.convolution.geometry import Geometry, as_it_is, channels_last, dispatch_of, geometry_of, repacked
from dmlvk.kernels.convolution.rules import CONVOLUTION_LANE_REGISTERS, ConvolutionProblem
from dmlvk.spec import ops
from dmlvk.spec.enums import ConvolutionDirection
from dmlvk.spec.tensor import element_bits

_LANE_REGISTERS = 190
"""Most registers of elements, weights and sums with which an invocation of the depthwise lanes takes several rows."""
_LANE_WAVE = 0.25
"""Share of a wave from which on an invocation takes several rows: fewer leave the device idle."""
_LANE_WORKGROUP = 128
_GROUP_LANES = 8
"""Most invocations along contiguous channels: whole lines of the cache."""
_CHANNELS_WORKGROUP = 128


@dataclass(frozen=True)
class _Lanes(WindowLanes):
    """A problem as ``convolution_depthwise_lanes`` sees it.

    Attributes:
        bits: The bits of an element.
    """

    bits: int

    @property
    def columns(self) -> int:
        """Neighbouring outputs of a row that an invocation makes of contiguous channels. H200, 256 channels of 32x56x56 in
        float32: 3x3 in 70 us with 2 and 78 with 4, 5x5 in 154 and 115."""
        return 2 if self.window[1] <= 3 else 4

    def registers(self, rows: int) -> int:
        """The registers for the elements read, the weights and the sums, for so many rows of the output."""
        if self.channels and Access.ELEMENTS not in self.modes:  # a row of the window at a time
            read = (self.columns - 1) * self.stride[1] + self.window[1]
            return self.lanes * (read * self.bits // 32 + self.window[1] + self.columns)
        read = ((rows - 1) * self.stride[0] + self.window[0]) * self.groups * self.lanes
        packed = self.bits // 16 if self.modes[0] is Access.GROUPS else 2
        return read * packed // 2 + math.prod(self.window) * (self.lanes if self.channels else 1) + rows * self.lanes


def _lanes(desc: ops.Convolution, geometry: Geometry) -> _Lanes:
    """The form with the most lanes of those that fit the registers, in groups if input and output lie in groups."""
    bits = element_bits(desc.tensor("input_tensor").data_type)
    forms = [_form_of_lanes(desc, geometry, lanes) for lanes in convolution_lanes(bits)]
    fit = [form for form in forms if form.registers(1) <= CONVOLUTION_LANE_REGISTERS] or forms[-1:]
    return next((form for form in fit if Access.ELEMENTS not in form.modes), fit[0])


def _form_of_lanes(desc: ops.Convolution, geometry: Geometry, lanes: int) -> _Lanes:
    steps = geometry.input_strides
    channels = channels_last(geometry.input_sizes, steps)
    lane_axis = 1 if channels else 4

    outputs, inputs = geometry.output_sizes, (*geometry.output_sizes[:2], *geometry.input_sizes)
    of_input = lane_access(inputs, steps, lane_axis, lanes)
    return _Lanes(
        bits=element_bits(desc.tensor("input_tensor").data_type),
        lanes=lanes,
        channels=channels,
        modes=(of_input, lane_access(outputs, geometry.output_strides, lane_axis, lanes)),
        shift=geometry.position_start[2] % lanes if of_input is Access.GROUPS and not channels else 0,
        window=(geometry.window[1], geometry.window[2]),
        stride=(desc.strides[-2] if len(desc.strides) > 1 else 1, desc.strides[-1]),
    )


def _depthwise_channels(desc: ops.Convolution, geometry: Geometry, form: _Lanes, caps: Capabilities) -> Plan:
    """A workgroup makes a block of rows and columns of a few channels."""
    n, c, _, h, w = geometry.output_sizes
    _, height, width = geometry.window
    # A row of taps is a row of groups of channels.
    filters = repacked(desc, geometry, (1, 1, 0, 0, width * c, c), height * width * c, caps)
    local = min(_CHANNELS_WORKGROUP, most_invocations(caps))
    lanes = min(_GROUP_LANES, power_of_two(-(-c // form.lanes)))
    columns = min(power_of_two(-(-w // form.columns)), local // lanes // 4)
    rows = local // (lanes * columns)
    walk = (n, -(-h // rows), -(-w // (columns * form.columns)), -(-c // (lanes * form.lanes)))
    dispatch = dispatch_of(
        "convolution_depthwise_channels",
        desc,
        filters,
        {
            "LOCAL_SIZE_X": local,
            "COLUMNS": form.columns,
            "GROUP_LANES": lanes,
            "GROUP_COLUMNS": columns,
            "WINDOW_H": form.window[0],
            "WINDOW_W": form.window[1],
            "STRIDE_H": form.stride[0],
            "STRIDE_W": form.stride[1],
        },
        linear_grid(math.prod(walk), caps),
        variant={"LANES": form.lanes},
        count=math.prod(walk),
        walk_sizes=walk,
        walk_divisors=divisors(walk),
    )
    return filters.plan(dispatch)


def lane_registers(desc: ops.Convolution, geometry: Geometry) -> int | None:
    """Registers of an invocation of the depthwise lanes that makes one row; None where they do not fit the problem."""
    planes = geometry.output_sizes[2] == geometry.input_sizes[0] == geometry.window[0] == 1
    padded = any(desc.output_padding)
    forward = desc.direction == ConvolutionDirection.FORWARD
    single = geometry.group_channels == geometry.group_outputs == 1
    if not (planes and forward and single) or padded or set(desc.dilations) != {1}:
        return None
    form = _lanes(desc, geometry)
    return form.registers(1) if form.groups <= 32 else None


def depthwise_lanes(desc: ops.Convolution, problem: ConvolutionProblem, caps: Capabilities) -> Plan:
    """Groups of neighbouring outputs of one channel, or of neighbouring channels."""
    geometry = geometry_of(desc)
    form = _lanes(desc, geometry)
    if form.channels and Access.ELEMENTS not in form.modes:
        return _depthwise_channels(desc, geometry, form, caps)
    filters = as_it_is(geometry)
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
            and -(-h // rows) * row_invocations >= caps.model.invocations(_LANE_WAVE)
        ),
        1,
    )
    row_groups = -(-h // rows)
    walk = (n, row_groups, w, lane_groups) if form.channels else (n, c, row_groups, lane_groups)
    local = min(_LANE_WORKGROUP, caps.workgroup_invocations)
    constants = {
        "LOCAL_SIZE_X": local,
        **form.constants(rows, geometry.position_start[2], w, geometry.input_sizes[2]),
        "X_MODE": int(form.modes[0]),
        "Y_MODE": int(form.modes[1]),
    }
    dispatch = dispatch_of(
        "convolution_depthwise_lanes",
        desc,
        filters,
        constants,
        linear_grid(-(-math.prod(walk) // local), caps),
        variant={"LANES": form.lanes},
        count=math.prod(walk),
        walk_sizes=walk,
        walk_divisors=divisors(walk),
    )
    return filters.plan(dispatch)
