"""Plans for convolutions."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping

from dmlvk.devices.capabilities import Capabilities
from dmlvk.kernels.common.activation import fused
from dmlvk.kernels.common.limitation import LOOP_ROUNDS, POSITIONS
from dmlvk.kernels.common.plan import Dispatch, Launch, Plan, Range, Source, aligned, input_range, output_range
from dmlvk.kernels.common.registry import register
from dmlvk.kernels.common.rule import choose
from dmlvk.kernels.common.shapes import check_rounds, linear_grid
from dmlvk.kernels.convolution.cooperative import (
    channels_last_image,
    cooperative,
    cooperative_fits,
    is_channels_last,
    turned_output,
)
from dmlvk.kernels.convolution.geometry import Geometry, as_it_is, dispatch_of, divided_phases, geometry_of
from dmlvk.kernels.convolution.lanes import depthwise_lanes, lane_registers
from dmlvk.kernels.convolution.lines import line_terms, lines, lines_bytes, lines_fit
from dmlvk.kernels.convolution.manifest import InputMode
from dmlvk.kernels.convolution.planes import planes, planes_fit
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
_FEW_CHANNELS = 4
"""Those where a group has no more. H200 (driver 580, 2026-11-29), float32, us so and with 8: 3x3 over 128x512x512 to 3 519
and 559, over 32x1024x1024 to 3 349 and 497, over 16x224x224 to 3 23.4 and 27.5."""
_CPU_PIXELS, _CPU_WORK = 4, 1 << 26
"""Pixels of an invocation on a processor, and the multiply-adds from which on they pay for their longer code. lavapipe (Mesa
22.3, two cores), seconds of the three networks of examples/ocr.py so and with one pixel: 17.5 and 22.4."""


def _problem(desc: ops.Convolution) -> ConvolutionProblem:
    return _problem_of(desc, geometry_of(desc))


def _problem_of(desc: ops.Convolution, geometry: Geometry) -> ConvolutionProblem:
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
        channels_last=cooperative_fits(desc, geometry) and is_channels_last(desc, geometry),
        planes=planes_fit(desc, geometry),
        line_depth=math.prod(geometry.window[:2]) * line_terms(geometry) if lines_fit(desc, geometry) else 0,
        lines_bytes=lines_bytes(geometry),
        winograd_bytes=winograd_bytes(desc, geometry),
        phases=math.prod(geometry.divisor),
        phase_pixels=geometry.output_sizes[0]
        * math.prod(-(-size // step) for size, step in zip(geometry.output_sizes[2:], geometry.divisor, strict=True)),
        phase_taps=math.prod(-(-taps // apart) for taps, apart in zip(geometry.window, geometry.taps_apart, strict=True)),
        segment=(_RUN - 1) * width[0] + (width[2] - 1) * width[1] + 1,
        is_product=desc.group_count == positions == 1 and not any(desc.start_padding + desc.output_padding) and not adds,
    )


def _naive(desc: ops.Convolution, geometry: Geometry, problem: ConvolutionProblem, caps: Capabilities) -> Plan:
    check_rounds(2 * problem.group_channels * problem.taps, caps, desc.dml_name)  # of loops in loops
    filters = as_it_is(geometry)
    local = min(128, caps.workgroup_invocations)
    count = problem.pixels * problem.groups * problem.group_outputs
    grid = linear_grid(-(-count // local), caps)
    return filters.plan(dispatch_of("convolution_naive", desc, filters, {"LOCAL_SIZE_X": local}, grid, count=count))


def _direct(desc: ops.Convolution, geometry: Geometry, problem: ConvolutionProblem, caps: Capabilities) -> Plan:
    check_rounds(2 * problem.group_channels * problem.taps, caps, desc.dml_name)
    filters = as_it_is(geometry)
    local = 32 if caps.is_cpu else 64
    channels = min(_CHANNELS if problem.group_outputs > _FEW_CHANNELS else _FEW_CHANNELS, caps.least_subgroup)
    blocks = -(-problem.group_outputs // channels)
    work = problem.pixels * problem.groups * problem.group_outputs * problem.group_channels * problem.taps
    pixels = _CPU_PIXELS if caps.is_cpu and work >= _CPU_WORK else 1
    x, y, _ = linear_grid(-(-problem.pixels // (local * pixels)), caps)
    return filters.plan(
        dispatch_of(
            "convolution_direct",
            desc,
            filters,
            {"LOCAL_SIZE_X": local, "CHANNELS": channels, "PIXELS": pixels},
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


def _phases(desc: ops.Convolution, problem: ConvolutionProblem, caps: Capabilities) -> Plan:
    """Each phase by the rule that suits it. What cooperative ones would each copy the input for is copied once. What they
    would store number by number, between each other's outputs, is copied to planes in the end."""
    whole = geometry_of(desc)
    problems = [_problem_of(desc, geometry) for geometry in divided_phases(whole)]
    rules = [choose(CONVOLUTION, one, caps).name for one in problems]
    by_matrices = "cooperative" in rules
    image = channels_last_image(desc, whole, caps) if by_matrices else None
    launches: list[Launch] = [] if image is None else [image.launch]
    taken = 0 if image is None else aligned(image.range.nbytes)
    turned = turned_output(desc, whole, caps, taken) if by_matrices else None
    y = output_range()
    if turned is not None:
        whole, y, taken = (
            dataclasses.replace(whole, output_strides=turned.strides),
            turned.range,
            taken + turned.range.nbytes,
        )
    initialize: list[Launch] = []
    temporary, persistent = taken, 0
    # Where channels are contiguous no word has outputs of two phases, so that those which need nothing else run beside.
    apart, alone = whole.output_strides[1] == 1 and whole.group_outputs % 2 == 0, False
    for geometry, one, rule in zip(divided_phases(whole), problems, rules, strict=True):
        places = {Source.TEMPORARY: taken, Source.PERSISTENT: persistent}
        x = input_range(0)
        if image is not None and rule == "cooperative":
            geometry, x = dataclasses.replace(geometry, input_strides=image.strides), image.range
        plan = _OF_GEOMETRY[rule](desc, geometry, one, caps)
        launches += (
            dataclasses.replace(launch, beside_previous=True)
            if apart and alone and len(plan.dispatches) == 1 and isinstance(launch, Dispatch)
            else launch
            for launch in _moved(plan.dispatches, places, x, y)
        )
        alone = len(plan.dispatches) == 1
        initialize += _moved(plan.initialize, places, x, y)
        temporary = max(temporary, taken + plan.temporary_bytes)
        persistent = aligned(persistent + plan.persistent_bytes)
    if turned is not None:
        launches.append(turned.launch)
    return Plan(tuple(launches), temporary, persistent, initialize=tuple(initialize))


def _moved(launches: tuple[Launch, ...], places: Mapping[Source, int], x: Range, y: Range) -> list[Launch]:
    """Launches with their own memory at these places, and the input and the output there."""

    def moved(part: Range) -> Range:
        if part == output_range():
            return y
        return x if part == input_range(0) else part._replace(offset=part.offset + places.get(part.source, 0))

    return [dataclasses.replace(launch, bindings=tuple(map(moved, launch.bindings))) for launch in launches]


_OF_GEOMETRY: Mapping[str, Callable[[ops.Convolution, Geometry, ConvolutionProblem, Capabilities], Plan]] = {
    "planes": planes,
    "lines": lines,
    "cooperative": cooperative,
    "split": split,
    "tiled": tiled,
    "direct": _direct,
    "naive": _naive,
}
"""The schedules of what a phase can be."""


def _whole(name: str) -> Callable[[ops.Convolution, ConvolutionProblem, Capabilities], Plan]:
    """The schedule of a whole convolution."""
    build = _OF_GEOMETRY[name]
    return lambda desc, problem, caps: build(desc, geometry_of(desc), problem, caps)


register(
    ops.Convolution,
    ConvolutionAdd,
    problem=_problem,
    rules=CONVOLUTION,
    schedules={
        "phases": _phases,
        "vector": _vector,
        "depthwise_lanes": depthwise_lanes,
        "depthwise": _depthwise,
        "winograd": winograd,
        **{name: _whole(name) for name in _OF_GEOMETRY},
    },
    limitations=(LOOP_ROUNDS, POSITIONS),
)
