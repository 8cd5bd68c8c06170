"""Plans for convolutions whose windows lie side by side, as products of patches."""

from __future__ import annotations

import math

from dmlvk.devices.capabilities import Capabilities
from dmlvk.kernels.common.parts import chosen_plan, placed
from dmlvk.kernels.common.plan import Launch, Plan, Range, Source, aligned, input_range, output_range
from dmlvk.kernels.common.shapes import coalesce
from dmlvk.kernels.convolution.geometry import Filter, Geometry, as_it_is, repacked
from dmlvk.kernels.convolution.rules import ConvolutionProblem
from dmlvk.kernels.copy.lowering import copy
from dmlvk.spec import ops
from dmlvk.spec.ops.convolution import ConvolutionAdd
from dmlvk.spec.ops.matmul import GemmAdd
from dmlvk.spec.size import decided
from dmlvk.spec.tensor import TensorDesc, element_bits, packed_strides


def patches_fit(desc: ops.Convolution, geometry: Geometry) -> bool:
    """Whether windows of several taps lie side by side, or there is one: in the input, or, where positions are divided, in
    the output, all of which they make up."""
    divided = _is_divided(geometry)
    steps = geometry.divisor if divided else geometry.position_step
    few, many = _few_and_many(geometry)
    rows = zip(steps, geometry.window, geometry.tap_step, geometry.position_start, few, many, strict=True)
    beside = all(
        (step == taps or size == 1) and (taps == 1 or abs(tap_step) == 1) and start == 0 and size * taps <= whole
        for step, taps, tap_step, start, size, whole in rows
    )
    return (
        beside
        and desc.group_count == 1
        and math.prod(geometry.window) > 1
        and not any(desc.output_padding)
        and (geometry.output_start, geometry.filter_offset) == (0, 0)
        and _row_steps(geometry) is not None
        and not (divided and (isinstance(desc, ConvolutionAdd) or _covered(geometry) != many))
    )


def patches_bytes(desc: ops.Convolution, geometry: Geometry) -> int:
    """The bytes of all patches."""
    few, _ = _few_and_many(geometry)
    channels = geometry.group_outputs if _is_divided(geometry) else geometry.group_channels
    count = geometry.output_sizes[0] * math.prod(few) * channels * math.prod(geometry.window)
    return count * element_bits(desc.tensor("input_tensor").data_type) // 8


def patches(desc: ops.Convolution, geometry: Geometry, problem: ConvolutionProblem, caps: Capabilities) -> Plan:
    """The patches of the input are copied side by side, and multiplied; or products are the patches of the output."""
    return (_to_patches if problem.divided else _of_patches)(desc, geometry, caps)


def _is_divided(geometry: Geometry) -> bool:
    return geometry.divisor != (1, 1, 1)


def _few_and_many(geometry: Geometry) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The positions of windows, and those of what they cover."""
    sizes = geometry.output_sizes[2:], geometry.input_sizes
    return sizes[::-1] if _is_divided(geometry) else sizes


def _covered(geometry: Geometry) -> tuple[int, ...]:
    few, _ = _few_and_many(geometry)
    return tuple(size * taps for size, taps in zip(few, geometry.window, strict=True))


def _row_steps(geometry: Geometry) -> tuple[int, int, int] | None:
    """The strides of {batch entry, window, channel} in the tensor that has as many positions as there are windows; None
    where rows of them are apart."""
    few, _ = _few_and_many(geometry)
    strides = geometry.input_strides if _is_divided(geometry) else geometry.output_strides
    joined = coalesce(few, (strides[2:],))
    return (strides[0], joined.strides[0][0], strides[1]) if len(joined.sizes) == 1 else None


def _filter(desc: ops.Convolution, geometry: Geometry, caps: Capabilities, *, taps_first: bool) -> Filter:
    """The filter in rows that have all taps of all channels of patches, in their order."""
    taps, by_tap = math.prod(geometry.window), packed_strides(geometry.window)
    inner = geometry.group_outputs if _is_divided(geometry) else geometry.group_channels
    outer = geometry.group_channels if _is_divided(geometry) else geometry.group_outputs
    row = (1, *(inner * step for step in by_tap)) if taps_first else (taps, *by_tap)
    by_output, by_input, *tap_strides = geometry.filter_strides
    across, along = (by_input, by_output) if _is_divided(geometry) else (by_output, by_input)
    sizes = (outer, inner, *geometry.window)
    wanted = zip(sizes, (across, along, *tap_strides), (inner * taps, *row), strict=True)
    if all(size == 1 or own == step for size, own, step in wanted):
        return as_it_is(geometry)
    ends = (row[0], inner * taps) if _is_divided(geometry) else (inner * taps, row[0])
    return repacked(desc, geometry, (0, *ends, *row[1:]), outer * inner * taps, caps)


def _windows(
    geometry: Geometry, strides: tuple[int, ...], channels: int, *, taps_first: bool
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The sizes and strides of {batch entry, windows, channel and taps} of what windows cover."""
    few, _ = _few_and_many(geometry)
    taps, by_tap = geometry.window, strides[2:]
    inner = ((*taps, channels), (*by_tap, strides[1])) if taps_first else ((channels, *taps), (strides[1], *by_tap))
    by_window = (step * size for step, size in zip(by_tap, taps, strict=True))
    return (geometry.output_sizes[0], *few, *inner[0]), (strides[0], *by_window, *inner[1])


def _are_apart(sizes: tuple[int, ...], strides: tuple[int, ...]) -> bool:
    """Whether elements do not lie row-major without gaps."""
    rows = zip(sizes, strides, packed_strides(sizes), strict=True)
    return any(size > 1 and step != wanted for size, step, wanted in rows)


def _of_patches(desc: ops.Convolution, geometry: Geometry, caps: Capabilities) -> Plan:
    channels, outputs, x = geometry.group_channels, geometry.group_outputs, geometry.input_strides
    n, terms, pixels = geometry.output_sizes[0], channels * math.prod(geometry.window), math.prod(geometry.output_sizes[2:])
    data_type = desc.tensor("input_tensor").data_type
    taps_first = x[1] == 1 and channels > 1
    filters = _filter(desc, geometry, caps, taps_first=taps_first)
    sizes, strides = _windows(geometry, x, channels, taps_first=taps_first)
    place, before, taken = input_range(0), list[Launch](), 0
    if decided(_are_apart, sizes, strides):
        taken = aligned(patches_bytes(desc, geometry))
        place = Range(Source.TEMPORARY, 0, filters.scratch, taken)
        before.append(copy(input_range(0), place, data_type, sizes, (strides, packed_strides(sizes)), caps))

    steps = _row_steps(geometry)
    assert steps is not None, "the rule is possible"
    batch, rows = (1, n * pixels) if n == 1 or steps[0] == pixels * steps[1] else (n, pixels)
    output = TensorDesc(data_type, (batch, rows, outputs), steps)
    has_bias, adds = desc.bias_tensor is not None, isinstance(desc, ConvolutionAdd)
    product = ops.Gemm(
        a_tensor=TensorDesc(data_type, (batch, rows, terms)),
        b_tensor=TensorDesc(data_type, (batch, terms, outputs), (0, 1, terms)),
        c_tensor=TensorDesc(data_type, output.sizes, (0, 0, geometry.bias_stride)) if has_bias else None,
        output_tensor=output,
        fused_activation=desc.fused_activation,
    )
    if adds:
        product = GemmAdd(**vars(product), addend_tensor=output)  # it lies as the output does
    plan = chosen_plan(product, caps, desc.dml_name)
    inputs = (place, filters.range, input_range(2) if has_bias else None, input_range(3) if adds else None)
    launches = placed(plan, inputs=inputs, outputs=(output_range(),), temporary=filters.scratch + taken)
    return filters.plan(*before, *launches, temporary_bytes=taken + plan.temporary_bytes)


def _to_patches(desc: ops.Convolution, geometry: Geometry, caps: Capabilities) -> Plan:
    channels, outputs, y = geometry.group_channels, geometry.group_outputs, geometry.output_strides
    n, taps, pixels = geometry.output_sizes[0], math.prod(geometry.window), math.prod(geometry.input_sizes)
    data_type = desc.tensor("input_tensor").data_type
    taps_first = y[1] == 1 and outputs > 1
    filters = _filter(desc, geometry, caps, taps_first=taps_first)
    place = Range(Source.TEMPORARY, 0, filters.scratch, aligned(patches_bytes(desc, geometry)))
    columns = outputs * taps
    before: list[Launch] = []
    bias: Range | None = None
    if desc.bias_tensor is not None:
        bias = Range(Source.TEMPORARY, 0, place.offset + place.nbytes, aligned(columns * element_bits(data_type) // 8))
        repeated = (taps, outputs) if taps_first else (outputs, taps)
        by_bias = (0, geometry.bias_stride) if taps_first else (geometry.bias_stride, 0)
        before.append(copy(input_range(2), bias, data_type, repeated, (by_bias, packed_strides(repeated)), caps))

    steps = _row_steps(geometry)
    assert steps is not None, "the rule is possible"
    batch, rows = (1, n * pixels) if n == 1 or steps[0] == pixels * steps[1] else (n, pixels)
    output = TensorDesc(data_type, (batch, rows, columns))
    product = ops.Gemm(
        a_tensor=TensorDesc(data_type, (batch, rows, channels), steps),
        b_tensor=TensorDesc(data_type, (batch, channels, columns), (0, columns, 1)),
        c_tensor=None if bias is None else TensorDesc(data_type, output.sizes, (0, 0, 1)),
        output_tensor=output,
        fused_activation=desc.fused_activation,
    )
    plan = chosen_plan(product, caps, desc.dml_name)
    own = place.nbytes + (0 if bias is None else bias.nbytes)
    launches = placed(plan, inputs=(input_range(0), filters.range, bias), outputs=(place,), temporary=filters.scratch + own)
    sizes, strides = _windows(geometry, y, outputs, taps_first=taps_first)
    behind = copy(place, output_range(), data_type, sizes, (packed_strides(sizes), strides), caps)
    return filters.plan(*before, *launches, behind, temporary_bytes=own + plan.temporary_bytes)
