"""Lowering of ``ops.resample``.

Positions are exact: an output's is a fraction of integers, which the host reduces here and the kernels follow in 32-bit
integers (``glsl/include/resample.glsl``). float32 numbers would lose the fraction of a coordinate of 2^24, and put
coordinates of hundreds on the wrong side of a rounding.
"""

from __future__ import annotations

import functools
import math
import struct
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any, NamedTuple

from dmlvk.devices.capabilities import Capabilities
from dmlvk.kernels.common.access import Access
from dmlvk.kernels.common.dispatch import make_dispatch
from dmlvk.kernels.common.limitation import LOOP_ROUNDS, POSITIONS
from dmlvk.kernels.common.plan import Plan, input_range, output_range
from dmlvk.kernels.common.registry import register
from dmlvk.kernels.common.shapes import check_rounds, divisors, linear_grid
from dmlvk.kernels.resample.manifest import MOST_UNITS
from dmlvk.kernels.resample.rules import RESAMPLE, ResampleProblem, SampledDimension
from dmlvk.spec.enums import AxisDirection, InterpolationMode
from dmlvk.spec.ops.resample import Resample3
from dmlvk.spec.size import decided, derived

_MOST_PARTS = 2**29
"""Largest denominator: the kernels' remainders, which are below three of them, fit 32 bits."""

_MOST_POSITION = 2**30
"""Positions beyond are refused, so that sums of whole parts fit 32 bits."""

_WORKGROUP = 128
"""Invocations of a workgroup: what the least device has."""


def _float32(value: float) -> float:
    return struct.unpack("<f", struct.pack("<f", value))[0]  # type: ignore[no-any-return]


def _simplest_between(low: Fraction, high: Fraction) -> Fraction:
    """The fraction of the smallest denominator in an interval of positive numbers."""
    whole = math.floor(low)
    if whole == low or whole + 1 <= high:
        return Fraction(math.ceil(low))
    return whole + 1 / _simplest_between(1 / (high - whole), 1 / (low - whole))


def _simplest(value: float) -> Fraction:
    """The simplest fraction that float32 rounds to the value."""
    exact = Fraction(_float32(value))
    if exact.denominator == 1:
        return exact
    _, exponent = math.frexp(abs(exact))
    # Half a place of a 24-bit significand. (At a power of two the places below are half as wide; nothing simple is there.)
    half = Fraction(2) ** (max(exponent, -125) - 25)
    found = _simplest_between(max(abs(exact) - half, half / 2), abs(exact) + half)
    return found if exact > 0 else -found


def _scale(value: float, inputs: int, outputs: int) -> Fraction:
    """The exact number for a scale: a ratio of the sizes if float32 rounds one to it."""
    ratios = [Fraction(outputs, inputs)]
    if inputs > 1 and outputs > 1:
        ratios.append(Fraction(outputs - 1, inputs - 1))
    return next((ratio for ratio in ratios if _float32(float(ratio)) == _float32(value)), None) or _simplest(value)


class _Positions(NamedTuple):
    """The numbers of a ``SampledDimension`` that say where its outputs lie."""

    step: int
    start: int
    parts: int
    filter_scale: float


def sampled_dimension(desc: Resample3, axis: int, operator: str) -> SampledDimension:
    """The places of a dimension's outputs. Refuses, in an operator's DirectML name, positions that are too far away."""
    source, output = desc.tensor("input_tensor"), desc.tensor("output_tensor")
    inputs, outputs = source.sizes[axis], output.sizes[axis]
    output_step, input_step = output.effective_strides[axis], source.effective_strides[axis]
    if inputs == 1:
        return SampledDimension(outputs, 1, output_step, 0)
    linear = desc.interpolation_mode == InterpolationMode.LINEAR
    antialiased = linear and bool(desc.antialiased)
    found = positions(
        *(inputs, outputs, desc.scales[axis], desc.input_pixel_offsets[axis], desc.output_pixel_offsets[axis]),
        *(linear, antialiased, desc.rounding_direction == AxisDirection.INCREASING),
        operator=operator,
        along=f" along dimension {axis}",
    )
    if found is None:
        return SampledDimension(outputs, inputs, output_step, input_step)
    step, start, parts, filter_scale = found
    filter_scale = filter_scale if antialiased else 1.0
    return SampledDimension(outputs, inputs, output_step, input_step, True, step, start, parts, filter_scale)


def positions(
    inputs: int,
    outputs: int,
    scale: float,
    before: float,
    after: float,
    linear: bool = True,
    antialiased: bool = False,
    rounds_up: bool = True,
    *,
    operator: str,
    along: str = "",
) -> _Positions | None:
    """Where the outputs of a dimension lie; None where each is the input element of its number. Sizes that record still do.

    Args:
        inputs, outputs: The sizes.
        scale, before, after: The scale, and the offsets of input and output.
        linear: Whether the elements around a position count; else that which it is rounded to.
        antialiased: Whether a filter is widened by the scale.
        rounds_up: How a position is rounded.
        operator, along: The operator's DirectML name and, after a space, the dimension, for errors.

    Raises:
        UnsupportedError: they are too far away.
    """
    given = (inputs, outputs, scale, before, after, linear, antialiased, rounds_up)
    refusal = decided(_refusal, *given)
    if refusal:
        raise POSITIONS.error(f"{refusal}{along}", operator)
    return _Positions(*derived(_positions, *given)) if decided(_is_mapped, *given) else None


def _refusal(*given: Any) -> str:
    """What to say of a dimension whose positions are too far away, "" for any other; takes what ``_positions`` takes."""
    found = _positions(*given)
    return found if isinstance(found, str) else ""


def _is_mapped(*given: Any) -> bool:
    """Whether the positions of a dimension must be worked out; takes what ``_positions`` takes."""
    return _positions(*given) is not None


@functools.lru_cache(maxsize=1024)
def _positions(
    inputs: int, outputs: int, scaled: float, before: float, after: float, linear: bool, antialiased: bool, rounds_up: bool
) -> _Positions | str | None:
    """Where the outputs of a dimension lie, None where each is the input element of its number; what to say where that is
    too far away."""
    scale = _scale(scaled, inputs, outputs)
    step = 1 / scale if outputs > 1 else Fraction(0)
    start = -_simplest(after) / scale - _simplest(before)
    filter_scale = min(abs(scale), Fraction(1)) if antialiased else Fraction(1)
    ends = (start, start + step * (outputs - 1))
    if max(map(abs, ends)) + 1 / filter_scale >= _MOST_POSITION:
        return (
            f"positions, and what antialiasing averages around them, at most {_MOST_POSITION} elements from the input's "
            f"start, got positions {float(ends[0]):g} to {float(ends[1]):g} for the scale {float(scale):g}"
        )
    parts = math.lcm(step.denominator, start.denominator)
    if parts > _MOST_PARTS:
        # No size is so large: a scale or an offset has all 24 bits of a float. The step is kept, the start rounded.
        limited = step.limit_denominator(_MOST_PARTS)
        parts = limited.denominator * (_MOST_PARTS // limited.denominator)
    whole_step, whole_start = round(step * parts), round(start * parts)
    if not linear:
        if rounds_up:
            whole_start += parts - 1
        # What is rounded down has fractions of no more than the step's parts.
        common = math.gcd(whole_step, parts)
        whole_step, whole_start, parts = whole_step // common, whole_start // common, parts // common
    in_order = outputs == 1 or whole_step == parts
    kept = in_order and outputs <= inputs and (whole_start == 0 if linear else 0 <= whole_start < parts)
    if kept and filter_scale == 1:
        return None
    return _Positions(whole_step, whole_start, parts, float(filter_scale))


def _problem(desc: Resample3) -> ResampleProblem:
    found = [sampled_dimension(desc, axis, desc.dml_name) for axis in range(desc.tensor("output_tensor").dimension_count)]
    # As the output lies in memory; of dimensions of one element none is dense.
    found.sort(key=lambda dimension: -dimension.output_step if dimension.outputs > 1 else -math.inf)
    merged: list[SampledDimension] = []
    for dimension in found:
        if dimension.outputs == 1 and not dimension.mapped:
            continue
        last = merged[-1] if merged and not (merged[-1].mapped or dimension.mapped) else None
        if last is not None and all(
            outer == inner * dimension.outputs
            for outer, inner in ((last.output_step, dimension.output_step), (last.input_step, dimension.input_step))
        ):
            outputs = last.outputs * dimension.outputs
            merged[-1] = dimension._replace(outputs=outputs, inputs=outputs)
        else:
            merged.append(dimension)
    linear = desc.interpolation_mode == InterpolationMode.LINEAR
    kind = desc.tensor("output_tensor").data_type
    return ResampleProblem(kind, linear, tuple(merged) or (SampledDimension(1, 1, 1, 1),))


def access(steps: Sequence[int], lanes: int) -> Access:
    """The access to groups along the last dimension."""
    *others, inner = steps
    if lanes > 1 and inner == 0:
        return Access.BROADCAST
    whole = lanes > 1 and inner == 1 and all(step % lanes == 0 for step in others)
    return Access.GROUPS if whole else Access.ELEMENTS


def _launch(
    problem: ResampleProblem,
    kernel: str,
    lanes: int,
    item: int,
    units: int,
    constants: dict[str, int],
    caps: Capabilities,
) -> Plan:
    """The launch of a kernel.

    Args:
        lanes: Elements of its groups.
        item: Outputs of the innermost dimension that an invocation has side by side.
        units: The number of such items of an invocation, a share of the dimension apart.
    """
    dimensions, inner = problem.dimensions, problem.inner
    sizes = (*(dimension.outputs for dimension in dimensions[:-1]), -(-inner.outputs // item) // units)
    count = math.prod(sizes)
    input_steps = [dimension.input_step for dimension in dimensions]
    output_steps = [dimension.output_step for dimension in dimensions]
    item_step = inner.input_step if inner.mapped else inner.input_step * item
    steps = [divmod(dimension.step, dimension.parts) for dimension in dimensions]
    starts = [divmod(dimension.start, dimension.parts) for dimension in dimensions]
    mapped = sum(1 << axis for axis, dimension in enumerate(dimensions) if dimension.mapped)
    constants = {
        "LOCAL_SIZE_X": _WORKGROUP,
        "RANK": len(dimensions),
        "MAPPED": mapped,
        "LINEAR": int(problem.linear),
        "X_MODE": int(access(input_steps, lanes)),
        "Y_MODE": int(access(output_steps, lanes)),
        **constants,
    }
    dispatch = make_dispatch(
        kernel,
        (input_range(0), output_range()),
        linear_grid(-(-count // _WORKGROUP), caps),
        variant={"LANES": lanes, "T": problem.data_type.name},
        constants=constants,
        count=count,
        inner_size=inner.outputs,
        sizes=sizes,
        divisors=divisors(sizes),
        x_strides=tuple(step % 2**32 for step in (*input_steps[:-1], item_step)),
        y_strides=tuple(step % 2**32 for step in (*output_steps[:-1], inner.output_step * item)),
        x_step=inner.input_step,
        y_step=inner.output_step,
        unit_size=sizes[-1] * item,
        input_sizes=tuple(dimension.inputs for dimension in dimensions),
        start_whole=tuple(whole for whole, _ in starts),
        start_part=tuple(part for _, part in starts),
        step_whole=tuple(whole for whole, _ in steps),
        step_part=tuple(part for _, part in steps),
        step_estimate=tuple(2**32 * part // dimension.parts for (_, part), dimension in zip(steps, dimensions, strict=True)),
        parts=tuple(dimension.parts for dimension in dimensions),
        weight_of_part=tuple(1 / dimension.parts for dimension in dimensions),
        filter_scales=tuple(dimension.filter_scale for dimension in dimensions),
        filter_reaches=tuple(1 / dimension.filter_scale for dimension in dimensions),
    )
    return Plan((dispatch,))


def _corners(problem: ResampleProblem, dimensions: Sequence[SampledDimension]) -> int:
    """Elements that are averaged around a position in these dimensions."""
    return 1 << sum(dimension.mapped for dimension in dimensions) if problem.linear else 1


def _antialiased_rounds(problem: ResampleProblem) -> int:
    """The most rounds of the loops over the elements that an output averages."""
    rounds, taps = 4, 1  # one of a dimension that is not mapped
    for dimension in problem.dimensions:
        if dimension.mapped:
            taps *= min(math.trunc(2 / dimension.filter_scale) + 2, dimension.inputs)
            rounds += taps
    return rounds


def _items(problem: ResampleProblem, lanes: int, columns: bool, caps: Capabilities) -> Plan:
    """The kernel that takes groups of ``lanes``; ``columns`` where each has a position of its own along its dimension."""
    groups = problem.inner.outputs // lanes
    pairs = lanes > 1 and not columns and groups * lanes == problem.inner.outputs and groups % MOST_UNITS == 0
    units = MOST_UNITS if pairs else 1
    if problem.antialiased:
        check_rounds(_antialiased_rounds(problem), caps, Resample3.dml_name)
        return _launch(problem, "resample_antialiased", lanes, lanes, 1, {}, caps)
    outer = problem.dimensions[:-1] if columns else problem.dimensions
    constants = {"CORNERS": _corners(problem, outer), "COLUMNS": int(columns), "UNITS": units}
    return _launch(problem, "resample", lanes, lanes, units, constants, caps)


def _shared(desc: Resample3, problem: ResampleProblem, caps: Capabilities) -> Plan:
    return _items(problem, problem.group_lanes, False, caps)


def _groups(desc: Resample3, problem: ResampleProblem, caps: Capabilities) -> Plan:
    return _items(problem, problem.group_lanes, True, caps)


def _elements(desc: Resample3, problem: ResampleProblem, caps: Capabilities) -> Plan:
    return _items(problem, 1, False, caps)


def _whole(desc: Resample3, problem: ResampleProblem, caps: Capabilities) -> Plan:
    inner, factor, lanes = problem.inner, problem.whole_factor, problem.group_lanes
    units = MOST_UNITS if inner.outputs % (MOST_UNITS * lanes) == 0 else 1
    before, start = divmod(inner.start, inner.parts)
    constants = {
        "CORNERS": _corners(problem, problem.dimensions[:-1]),
        "FACTOR": factor,
        "STEP": inner.step,
        "START": start,
        "LEFT": -before,
        "UNITS": units,
    }
    return _launch(problem, "resample_whole", lanes, lanes, units, constants, caps)


_SCHEDULES: dict[str, Callable[[Resample3, ResampleProblem, Capabilities], Plan]] = {
    "whole": _whole,
    "shared": _shared,
    "groups": _groups,
    "elements": _elements,
}

register(Resample3, problem=_problem, rules=RESAMPLE, schedules=_SCHEDULES, limitations=(LOOP_ROUNDS, POSITIONS))
