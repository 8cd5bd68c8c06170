"""Plans for convolutions."""

from __future__ import annotations

import math

from dmlvk.devices.capabilities import Capabilities
from dmlvk.kernels.common.activation import fused
from dmlvk.kernels.common.limitation import LOOP_ROUNDS, POSITIONS
from dmlvk.kernels.common.plan import Plan, input_range, output_range
from dmlvk.kernels.common.registry import register
from dmlvk.kernels.common.shapes import check_rounds, linear_grid
from dmlvk.kernels.convolution.cooperative import cooperative, cooperative_fits
from dmlvk.kernels.convolution.geometry import as_it_is, dispatch_of, geometry_of
from dmlvk.kernels.convolution.lanes import depthwise_lanes, lane_registers
from dmlvk.kernels.convolution.manifest import InputMode
from dmlvk.kernels.convolution.rules import CONVOLUTION, ConvolutionProblem
from dmlvk.kernels.convolution.tiles import input_mode, is_lean, split, tiled
from dmlvk.kernels.convolution.winograd import winograd, winograd_bytes
from dmlvk.kernels.matmul import lowering as matmul
from dmlvk.spec import ops
from dmlvk.spec.enums import ConvolutionDirection
from dmlvk.spec.ops.convolution import ConvolutionAdd

_RUN = 4
"""Outputs along W that an invocation of the depthwise kernel computes."""
_CHANNELS = 8
"""Output channels that an invocation of the direct kernel computes, where subgroups are no smaller."""


def _problem(desc: ops.Convolution) -> ConvolutionProblem:
    geometry = geometry_of(desc)
    width = desc.strides[-1], desc.dilations[-1], geometry.window[2]
    taps, tabled = math.prod(geometry.window), input_mode(desc, geometry) is InputMode.TABLE
    adds = isinstance(desc, ConvolutionAdd)
    positions = math.prod(geometry.output_sizes[2:]) * math.prod(geometry.input_sizes) * math.prod(geometry.window)
    return ConvolutionProblem(
        pixels=geometry.pixels,
        groups=desc.group_count,
        group_channels=geometry.group_channels,
        group_outputs=geometry.group_outputs,
        taps=taps,
        line=geometry.group_channels * (taps if tabled else 1),
        lines=1 if tabled else taps,
        lean=is_lean(desc, geometry),
        divided=geometry.divisor != (1, 1, 1),
        forward=desc.direction == ConvolutionDirection.FORWARD,
        adds=adds,
        lane_registers=None if adds else lane_registers(desc, geometry),
        cooperative=cooperative_fits(desc, geometry),
        winograd_bytes=winograd_bytes(desc, geometry),
        segment=(_RUN - 1) * width[0] + (width[2] - 1) * width[1] + 1,
        is_product=desc.group_count == positions == 1 and not any(desc.start_padding + desc.output_padding) and not adds,
    )


def _naive(desc: ops.Convolution, problem: ConvolutionProblem, caps: Capabilities) -> Plan:
    check_rounds(2 * problem.group_channels * problem.taps, caps, desc.type.dml_name)  # of loops in loops
    filters = as_it_is(geometry_of(desc))
    local = min(128, caps.workgroup_invocations)
    count = problem.pixels * problem.groups * problem.group_outputs
    grid = linear_grid(-(-count // local), caps)
    return filters.plan(dispatch_of("convolution_naive", desc, filters, {"LOCAL_SIZE_X": local}, grid, count=count))


def _direct(desc: ops.Convolution, problem: ConvolutionProblem, caps: Capabilities) -> Plan:
    check_rounds(2 * problem.group_channels * problem.taps, caps, desc.type.dml_name)
    filters = as_it_is(geometry_of(desc))
    local = 32 if caps.is_cpu else 64
    channels = min(_CHANNELS, caps.least_subgroup)
    blocks = -(-problem.group_outputs // channels)
    x, y, _ = linear_grid(-(-problem.pixels // local), caps)
    return filters.plan(
        dispatch_of(
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
    geometry = geometry_of(desc)
    filters = as_it_is(geometry)
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
    return filters.plan(dispatch_of("convolution_depthwise", desc, filters, constants, grid, runs=runs, row_runs=row_runs))


def _vector(desc: ops.Convolution, problem: ConvolutionProblem, caps: Capabilities) -> Plan:
    """Rows are the batch entries, columns the output channels."""
    geometry = geometry_of(desc)
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
    ConvolutionAdd,
    problem=_problem,
    rules=CONVOLUTION,
    schedules={
        "vector": _vector,
        "depthwise_lanes": depthwise_lanes,
        "depthwise": _depthwise,
        "cooperative": cooperative,
        "winograd": winograd,
        "split": split,
        "tiled": tiled,
        "direct": _direct,
        "naive": _naive,
    },
    limitations=(LOOP_ROUNDS, POSITIONS),
)
