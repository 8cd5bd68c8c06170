"""Plans for convolutions."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Callable, Mapping

from dmlvk.devices.capabilities import Capabilities
from dmlvk.kernels.common.activation import fused
from dmlvk.kernels.common.limitation import LOOP_ROUNDS, POSITIONS
from dmlvk.kernels.common.plan import Dispatch, Launch, Plan, Range, Source, aligned, input_range, output_range
from dmlvk.kernels.common.registry import register
from dmlvk.kernels.common.rule import choose
from dmlvk.kernels.common.shapes import check_rounds, coalesce, divisors, linear_grid, pair_type
from dmlvk.kernels.convolution.cooperative import (
    channels_last_image,
    cooperative,
    cooperative_fits,
    is_channels_last,
    turned_output,
)
from dmlvk.kernels.convolution.geometry import Geometry, as_it_is, dispatch_of, divided_phases, geometry_of, meets_itself
from dmlvk.kernels.convolution.lanes import depthwise_lanes, lane_registers
from dmlvk.kernels.convolution.lines import line_terms, lines, lines_bytes, lines_fit
from dmlvk.kernels.convolution.manifest import InputMode, OutputMode
from dmlvk.kernels.convolution.patches import patches, patches_bytes, patches_fit
from dmlvk.kernels.convolution.planes import planes, planes_fit
from dmlvk.kernels.convolution.rules import (
    CONVOLUTION,
    ConvolutionProblem,
    channels_together,
    decided_block,
)
from dmlvk.kernels.convolution.tiles import input_mode, is_lean, output_mode, split, tiled
from dmlvk.kernels.convolution.winograd import winograd, winograd_bytes
from dmlvk.kernels.matmul import lowering as matmul
from dmlvk.kernels.matmul.rules import QUAD
from dmlvk.spec import ops
from dmlvk.spec.enums import ConvolutionDirection, TensorDataType
from dmlvk.spec.ops.convolution import ConvolutionAdd
from dmlvk.spec.tensor import element_bits

_RUN = 4
"""Outputs along W that an invocation of the depthwise kernel computes."""
_CPU_RUN = 8
"""Those on a processor, where a row has more than a run of the others. lavapipe (Mesa 22.3, two cores, 2026-11-30), ms so,
with weights that the subgroup passes round and inputs in pairs, and with runs of 4 that read all by themselves: 5x5 over
6x240x12x160 95 and 255, 3x3 over 64x112x112 19 and 43."""
_LEAST_INSIDE = 4
"""The fewest contiguous channels along which neighbouring invocations lie. H200 (driver 580, 2026-11-30), us so and along
rows: 3x3x3 over 96x8x56x56, steps of 1x2x2, in float32 11 and 84, over 2x192x8x28x28 24 and 168; 5x5 of dilation 2 over
8x384x28x28 23 and 202; 3x3 of dilation 2 over 4x20x64x64 5 and 12; in float16 the same."""
_CHANNELS = 8
"""Output channels that an invocation of the direct kernel computes, where subgroups are no smaller."""
_FEW_CHANNELS = 4
"""Those where a group has no more. H200 (driver 580, 2026-11-29), float32, us so and with 8: 3x3 over 128x512x512 to 3 519
and 559, over 32x1024x1024 to 3 349 and 497, over 16x224x224 to 3 23.4 and 27.5."""
_SHARED_WEIGHTS_WORKGROUP = 128
_SHARED_WEIGHTS_BYTES = 16384
"""The most bytes of weights in shared memory at a time."""
_APART_BYTES = 64
"""The distance of neighbouring positions from which on each is read and written by itself."""
_APART, _QUADS_APART = 4.0, 1.6
"""How many times as long that takes by elements, and in quads of channels. H200 (driver 580, 2026-11-30), 3x3, float32, us
in planes and with contiguous channels: 32 groups of 8 of 8x28x28 18 and 28, by elements 91; 8 groups of 12 11 and 16, by
elements 38; 3 channels of 8x224x224 to 32, steps of 2, 13 and 22, by elements 59; but 64 of 4x56x56 to 3 20 and 20."""
_CPU_PIXELS = 4
_CPU_CHANNELS = ((1 << 29, 32), (1 << 26, 16))
"""Pixels of an invocation on a processor, and the multiply-adds from which on it has them and so many channels, which save
reads and take the driver longer to compile. lavapipe (Mesa 22.3, two cores, 2026-11-30), ms of 3x3 over 64x56x56 to 64 with
8, 16 and 32 channels 86, 55 and 39; seconds to compile 1.1, 2.1 and 4.2."""


def _problem(desc: ops.Convolution) -> ConvolutionProblem:
    return _problem_of(desc, geometry_of(desc))


def _problem_of(desc: ops.Convolution, geometry: Geometry) -> ConvolutionProblem:
    width = desc.strides[-1], desc.dilations[-1], geometry.window[2]
    taps, tabled = math.prod(geometry.window), input_mode(desc, geometry) is InputMode.TABLE
    adds = isinstance(desc, ConvolutionAdd)
    bits = element_bits(desc.tensor("input_tensor").data_type)
    positions = math.prod(geometry.output_sizes[2:]) * math.prod(geometry.input_sizes) * math.prod(geometry.window)
    return ConvolutionProblem(
        pixels=geometry.pixels,
        groups=desc.group_count,
        group_channels=geometry.group_channels,
        group_outputs=geometry.group_outputs,
        taps=taps,
        element_bytes=bits // 8,
        line=geometry.group_channels * (taps if tabled else 1),
        lines=1 if tabled else taps,
        lean=is_lean(desc, geometry),
        divided=geometry.divisor != (1, 1, 1),
        forward=desc.direction == ConvolutionDirection.FORWARD,
        adds=adds,
        lane_registers=None if adds else lane_registers(desc, geometry),
        cooperative=cooperative_fits(desc, geometry),
        reads_quads=input_mode(desc, geometry) is InputMode.CHANNELS,
        channels_last=cooperative_fits(desc, geometry) and is_channels_last(desc, geometry),
        apart=_apart(desc, geometry, bits // 8),
        pointwise=_is_pointwise(desc, geometry),
        planes=planes_fit(desc, geometry),
        line_depth=math.prod(geometry.window[:2]) * line_terms(geometry) if lines_fit(desc, geometry) else 0,
        lines_bytes=lines_bytes(geometry),
        patches_bytes=patches_bytes(desc, geometry) if patches_fit(desc, geometry) else None,
        writes_channels=geometry.output_strides[1] == 1,
        winograd_bytes=winograd_bytes(desc, geometry),
        phases=math.prod(geometry.divisor),
        phase_pixels=geometry.output_sizes[0]
        * math.prod(-(-size // step) for size, step in zip(geometry.output_sizes[2:], geometry.divisor, strict=True)),
        phase_taps=math.prod(-(-taps // apart) for taps, apart in zip(geometry.window, geometry.taps_apart, strict=True)),
        segment=(_RUN - 1) * width[0] + (width[2] - 1) * width[1] + 1,
        is_product=desc.group_count == positions == 1 and not any(desc.start_padding + desc.output_padding) and not adds,
    )


def _apart(desc: ops.Convolution, geometry: Geometry, element_bytes: int) -> float:
    read, written = geometry.input_strides[4] * element_bytes, geometry.output_strides[4] * element_bytes
    read_in_quads = input_mode(desc, geometry) is InputMode.CHANNELS
    written_in_quads = output_mode(desc, geometry) is OutputMode.CHANNELS
    if (read >= _APART_BYTES and not read_in_quads) or (written >= _APART_BYTES and not written_in_quads):
        return _APART
    return _QUADS_APART if read > _APART_BYTES or written >= _APART_BYTES else 1.0


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
    channels = sharers = min(_CHANNELS if problem.group_outputs > _FEW_CHANNELS else _FEW_CHANNELS, caps.least_subgroup)
    work = problem.pixels * problem.groups * problem.group_outputs * problem.group_channels * problem.taps
    pixels = 1
    most = next((most for least, most in _CPU_CHANNELS if caps.is_cpu and work >= least), 0)
    if most:
        each = -(-problem.group_outputs // -(-problem.group_outputs // most))  # of blocks as even as can be
        pixels, channels = _CPU_PIXELS, -(-each // sharers) * sharers
    blocks = -(-problem.group_outputs // channels)
    x, y, _ = linear_grid(-(-problem.pixels // (local * pixels)), caps)
    return filters.plan(
        dispatch_of(
            "convolution_direct",
            desc,
            filters,
            {"LOCAL_SIZE_X": local, "CHANNELS": channels, "SHARERS": sharers, "PIXELS": pixels},
            (x, y, problem.groups * blocks),
            pixels=problem.pixels,
            group_blocks=blocks,
        )
    )


def _shared_weights(desc: ops.Convolution, geometry: Geometry, problem: ConvolutionProblem, caps: Capabilities) -> Plan:
    check_rounds(2 * problem.group_channels * problem.taps, caps, desc.dml_name)
    filters = as_it_is(geometry)
    local = min(_SHARED_WEIGHTS_WORKGROUP, caps.workgroup_invocations)
    channels, pixels = decided_block(problem, caps)
    together = channels_together(problem.group_channels)
    walk = (problem.group_channels // together, *geometry.window, together)
    terms = min(math.prod(walk), _SHARED_WEIGHTS_BYTES // (4 * channels) // together * together)
    blocks = -(-problem.group_outputs // channels)
    x, y, _ = linear_grid(-(-problem.pixels // (local * pixels)), caps)
    return filters.plan(
        dispatch_of(
            "convolution_shared_weights",
            desc,
            filters,
            {
                "LOCAL_SIZE_X": local,
                "CHANNELS": channels,
                "PIXELS": pixels,
                "TOGETHER": together,
                "TERMS": terms,
                "ALL": int(terms == math.prod(walk)),
                "WINDOW_W": geometry.window[2],
                "X_QUADS": int(together == 4 and input_mode(desc, geometry) is InputMode.CHANNELS),
                "Y_QUADS": int(output_mode(desc, geometry) is OutputMode.CHANNELS),
            },
            (x, y, problem.groups * blocks),
            pixels=problem.pixels,
            group_blocks=blocks,
            walk_sizes=walk,
            walk_divisors=divisors(walk),
        )
    )


def _depthwise(desc: ops.Convolution, problem: ConvolutionProblem, caps: Capabilities) -> Plan:
    local = 32 if caps.is_cpu else 64
    geometry = geometry_of(desc)
    filters = as_it_is(geometry)
    width = geometry.output_sizes[4]
    run = _CPU_RUN if caps.is_cpu and width > _RUN else _RUN
    row_runs = -(-width // run)
    runs = problem.pixels // width * row_runs
    channels = problem.groups * problem.group_outputs
    inside = _channels_inside(geometry, caps)
    shares = caps.is_cpu and not inside
    x, y, _ = linear_grid(-(-runs * (channels if inside else 1) // local), caps)
    steps, pairs = geometry.input_strides, False
    if shares and desc.tensor("input_tensor").data_type == TensorDataType.FLOAT32:
        pairs = steps[4] == 1 and all(step % 2 == 0 for step in steps[3::-1])
    constants = {
        "LOCAL_SIZE_X": local,
        "PIXELS": run,
        "WINDOW_W": geometry.window[2],
        "STRIDE_W": desc.strides[-1],
        "DILATION_W": desc.dilations[-1],
        "SHARERS": min(_CHANNELS, caps.least_subgroup) if shares else 1,
        "PAIRS": int(pairs),
        "SHIFT": geometry.position_start[2] % 2 if pairs else 0,
        "CHANNELS_INSIDE": int(inside),
    }
    variant = {"PAIR": pair_type(caps) if shares else "0"}
    grid = (x, y, 1 if inside else channels)
    dispatch = dispatch_of(
        "convolution_depthwise", desc, filters, constants, grid, variant=variant, runs=runs, row_runs=row_runs
    )
    return filters.plan(dispatch)


def _channels_inside(geometry: Geometry, caps: Capabilities) -> bool:
    """Whether invocations of the depthwise kernel lie along channels."""
    return not caps.is_cpu and geometry.input_strides[1] == 1 and geometry.output_sizes[1] >= _LEAST_INSIDE


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


_LEAST_PLANE = 16
"""The fewest positions of an image whose planes fill the invocations of a product."""


def _is_pointwise(desc: ops.Convolution, geometry: Geometry) -> bool:
    return (
        meets_itself(desc, geometry)
        and (geometry.output_start, geometry.filter_offset) == (0, 0)
        and math.prod(geometry.input_sizes) >= _LEAST_PLANE
        and _position_step(geometry) is not None
    )


def _position_step(geometry: Geometry) -> tuple[int, int] | None:
    """How far apart neighbouring positions of the input and the output are; None where rows of them are apart."""
    steps = (geometry.input_strides[2:], geometry.output_strides[2:])
    joined = coalesce(geometry.input_sizes, steps)
    return (joined.strides[0][0], joined.strides[1][0]) if len(joined.sizes) == 1 else None


def _pointwise(desc: ops.Convolution, problem: ConvolutionProblem, caps: Capabilities) -> Plan:
    """Rows are the output channels of a group, columns the positions of an image."""
    geometry = geometry_of(desc)
    check_rounds(-(-geometry.group_channels // QUAD), caps, desc.dml_name)
    steps = _position_step(geometry)
    assert steps is not None, "the rule is possible"
    x, y, bias = geometry.input_strides, geometry.output_strides, desc.bias_tensor is not None
    y_strides = (y[0], geometry.group_outputs * y[1], y[1], steps[1])
    adds = isinstance(desc, ConvolutionAdd)
    product = matmul.Product(
        data_type=desc.tensor("input_tensor").data_type,
        batch=(geometry.output_sizes[0], problem.groups),
        rows=geometry.group_outputs,
        columns=math.prod(geometry.input_sizes),
        depth=geometry.group_channels,
        a=input_range(1),
        b=input_range(0),
        c=input_range(2 if bias else 1),
        y=output_range(),
        a_strides=(0, geometry.filter_group_stride, geometry.filter_strides[0], geometry.filter_strides[1]),
        b_strides=(x[0], geometry.group_channels * x[1], x[1], steps[0]),
        c_strides=(0, geometry.group_outputs * geometry.bias_stride, geometry.bias_stride, 0),
        y_strides=y_strides,
        has_c=bias,
        alpha=1.0,
        beta=1.0,
        activation=fused(desc.fused_activation),
        addend=input_range(3) if adds else None,
        addend_strides=y_strides if adds else (0, 0, 0, 0),
    )
    return matmul.rows(product, caps)


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
    plans: list[tuple[Plan, Range]] = []
    for geometry, one, rule in zip(divided_phases(whole), problems, rules, strict=True):
        x = input_range(0)
        if image is not None and rule == "cooperative":
            geometry, x = dataclasses.replace(geometry, input_strides=image.strides), image.range
        plans.append((_OF_GEOMETRY[rule](desc, geometry, one, caps), x))
    # They run beside each other, launch by launch, each with memory of its own.
    needed = [aligned(plan.temporary_bytes) for plan, _ in plans]
    apart = taken + sum(needed) <= caps.storage_buffer_bytes
    phases: list[list[Launch]] = []
    initialize: list[Launch] = []
    temporary, persistent = taken, 0
    for (plan, x), own in zip(plans, needed, strict=True):
        places = {Source.TEMPORARY: temporary if apart else taken, Source.PERSISTENT: persistent}
        phases.append(_moved(plan.dispatches, places, x, y))
        initialize += _moved(plan.initialize, places, x, y)
        temporary = max(temporary, places[Source.TEMPORARY] + own)
        persistent = aligned(persistent + plan.persistent_bytes)
    if apart:
        for step in itertools.zip_longest(*phases):
            first, *others = filter(None, step)
            launches += [first, *map(_beside, others)]
    else:
        launches += itertools.chain(*phases)
    if turned is not None:
        launches.append(turned.launch)
    return Plan(tuple(launches), temporary, persistent, initialize=tuple(initialize))


def _beside(launch: Launch) -> Launch:
    return dataclasses.replace(launch, beside_previous=True) if isinstance(launch, Dispatch) else launch


def _moved(launches: tuple[Launch, ...], places: Mapping[Source, int], x: Range, y: Range) -> list[Launch]:
    """Launches with their own memory at these places, and the input and the output there."""

    def moved(part: Range) -> Range:
        if part == output_range():
            return y
        return x if part == input_range(0) else part._replace(offset=part.offset + places.get(part.source, 0))

    return [dataclasses.replace(launch, bindings=tuple(map(moved, launch.bindings))) for launch in launches]


_OF_GEOMETRY: Mapping[str, Callable[[ops.Convolution, Geometry, ConvolutionProblem, Capabilities], Plan]] = {
    "patches": patches,
    "planes": planes,
    "lines": lines,
    "cooperative": cooperative,
    "split": split,
    "tiled": tiled,
    "shared_weights": _shared_weights,
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
        "pointwise": _pointwise,
        "winograd": winograd,
        **{name: _whole(name) for name in _OF_GEOMETRY},
    },
    limitations=(LOOP_ROUNDS, POSITIONS),
)
