"""Plans of paddings, and of gradients of slices, which put what was taken back among zeros: rows of the output come from
rows of the input, or from nowhere."""

from __future__ import annotations

import dataclasses
import math

from dmlvk.devices.capabilities import Capabilities
from dmlvk.kernels.common.limitation import POSITIONS
from dmlvk.kernels.common.plan import Plan, input_range, output_range
from dmlvk.kernels.common.registry import Schedule, register
from dmlvk.kernels.common.shapes import WORD_BITS, divisors
from dmlvk.kernels.copy.lowering import RowUnits, rows_dispatch
from dmlvk.kernels.fill.lowering import scalar_bits
from dmlvk.kernels.padding.rules import PADDING, PaddedDimension, PaddingProblem
from dmlvk.spec.enums import PaddingMode
from dmlvk.spec.ops.movement import Padding1, SliceGrad
from dmlvk.spec.tensor import element_bits

_ONE = PaddedDimension(1, 0, 0, 1, 1)


def _padding(desc: Padding1) -> PaddingProblem:
    x, output = desc.tensor("input_tensor"), desc.tensor("output_tensor")
    dimensions = [
        PaddedDimension(*values)
        for values in zip(
            x.sizes, desc.start_padding, desc.end_padding, x.effective_strides, output.effective_strides, strict=True
        )
    ]
    return _problem(element_bits(x.data_type), desc.padding_mode, dimensions)


def _slice_gradient(desc: SliceGrad) -> PaddingProblem:
    """A padding between the elements, too, unless the slice took each of its window. What a negative stride took last comes
    first: there the input is read from its end."""
    x, output = desc.tensor("input_gradient_tensor"), desc.tensor("output_gradient_tensor")
    dimensions, x_start = [], 0
    for axis, size in enumerate(x.sizes):
        offset, stride = desc.input_window_offsets[axis], desc.input_window_strides[axis]
        dilation = abs(stride) if size > 1 else 1
        extent = (size - 1) * dilation + 1
        start, step = offset, x.effective_strides[axis]
        if stride < 0:
            start = offset + desc.input_window_sizes[axis] - extent
            x_start += (size - 1) * step
            step = -step
        end = output.sizes[axis] - start - extent
        dimensions.append(PaddedDimension(size, start, end, step, output.effective_strides[axis], dilation))
    return _problem(element_bits(x.data_type), PaddingMode.CONSTANT, dimensions, x_start)


def _problem(bits: int, mode: PaddingMode, dimensions: list[PaddedDimension], x_start: int = 0) -> PaddingProblem:
    """The problem of elements of so many bits, merged and in units that are as large as can be."""
    order = sorted(dimensions, key=lambda own: -own.output_step)
    problem = PaddingProblem(bits, mode, _merged(order, mode == PaddingMode.CONSTANT), x_start)
    while problem.bits < WORD_BITS and problem.is_even:
        problem = _rescaled(problem, 2, 1)
    return problem


def _merged(dimensions: list[PaddedDimension], filled: bool) -> tuple[PaddedDimension, ...]:
    """The same padding with the fewest dimensions: one without padding becomes part of the one outside it where both step
    through memory as one and that is not padded, or padded with whole lines of one value."""
    merged: list[PaddedDimension] = []
    for dimension in dimensions:
        own = dimension
        if own.output_size == 1:
            continue
        if own.size == 1 and not filled:  # its only element everywhere
            own = PaddedDimension(own.output_size, 0, 0, 0, own.output_step)
        outer = merged[-1] if merged else None
        if (
            outer is not None
            and not own.padded
            and not outer.dilated
            and (filled or not outer.padded)
            and outer.steps == (own.x_step * own.size, own.output_step * own.size)
        ):
            size, start, end = (own.size * count for count in (outer.size, outer.start, outer.end))
            merged[-1] = own._replace(size=size, start=start, end=end)
        else:
            merged.append(own)
    return tuple(merged) or (_ONE,)


def _rescaled(problem: PaddingProblem, wider: int, narrower: int) -> PaddingProblem:
    """The problem in units that are ``wider`` times as large, or ``narrower`` times as small; rows are contiguous."""

    def scaled(number: int) -> int:
        return number * narrower // wider

    *outer, inner = problem.dimensions
    dimensions = [own._replace(x_step=scaled(own.x_step), output_step=scaled(own.output_step)) for own in outer]
    dimensions.append(inner._replace(size=scaled(inner.size), start=scaled(inner.start), end=scaled(inner.end)))
    bits = problem.bits * wider // narrower
    return dataclasses.replace(problem, bits=bits, dimensions=tuple(dimensions), x_start=scaled(problem.x_start))


def _rows(desc: Padding1 | SliceGrad, problem: PaddingProblem, caps: Capabilities) -> Plan:
    if problem.bits > 32:
        problem = _rescaled(problem, 1, problem.bits // 32)
    return _plan(desc, problem, problem.dimensions, caps, in_words=True)


def _units(desc: Padding1 | SliceGrad, problem: PaddingProblem, caps: Capabilities) -> Plan:
    dimensions = problem.dimensions
    if problem.mirrors_units or dimensions[-1].dilated:
        dimensions = (*dimensions, _ONE)  # each unit is a row of its own
    return _plan(desc, problem, dimensions, caps, in_words=False)


def _plan(
    desc: Padding1 | SliceGrad,
    problem: PaddingProblem,
    dimensions: tuple[PaddedDimension, ...],
    caps: Capabilities,
    *,
    in_words: bool,
) -> Plan:
    *outer, inner = dimensions
    outer = outer or [_ONE]
    sizes = [own.output_size for own in outer]
    low, high, shift, period, mirror = zip(
        *(dimension_map(problem.mode, own, desc.dml_name) for own in (*outer, inner)), strict=True
    )
    dispatch = rows_dispatch(
        "padding",
        RowUnits(
            problem.bits,
            math.prod(sizes),
            inner.output_size,
            inner.x_step,
            inner.output_step,
            _fill(desc) if isinstance(desc, Padding1) and problem.filled else (0, 0),
        ),
        (input_range(0), output_range()),
        caps,
        in_words=in_words,
        packed=in_words and problem.output_is_packed,
        constants={
            "RANK": len(outer),
            "PADDED": sum(1 << axis for axis, own in enumerate((*outer, inner)) if own.padded),
            "DILATED": sum(1 << axis for axis, own in enumerate((*outer, inner)) if own.dilated),
            "FILLED": int(problem.filled),
        },
        params={
            "x_start": (problem.x_start - inner.start * inner.x_step) % 2**32,
            "first": inner.start,
            "last": inner.start + inner.size,
            "sizes": tuple(sizes),
            "divisors": divisors(sizes),
            "x_strides": tuple(own.x_step % 2**32 for own in outer),
            "output_strides": tuple(own.output_step % 2**32 for own in outer),
            "low": low,
            "high": high,
            "shift": shift,
            "period": period,
            "period_divisors": divisors(period),
            "mirror": mirror,
        },
    )
    return Plan((dispatch,))


def dimension_map(mode: PaddingMode, own: PaddedDimension, operator: str) -> tuple[int, int, int, int, int]:
    """``low``, ``high``, ``shift``, ``period`` and ``mirror`` of a dimension of an operator; see ``glsl/padding.comp``."""
    if mode in (PaddingMode.CONSTANT, PaddingMode.EDGE):
        period = own.dilation if mode == PaddingMode.CONSTANT else own.size
        return own.start, own.start + own.extent - 1, -own.start % 2**32, period, 2 * own.size % 2**32
    period, mirror = {
        PaddingMode.REFLECTION: (max(2 * own.size - 2, 1), 2 * own.size - 2),
        PaddingMode.SYMMETRIC: (2 * own.size, 2 * own.size - 1),
        PaddingMode.WRAP: (own.size, 2 * own.size),
    }[mode]
    if own.output_size + period > 2**32:
        raise POSITIONS.error(
            f"an output of {own.output_size} elements with a period of {period} along a dimension does not fit 32 bits",
            operator,
        )
    return 0, 2**32 - 1, -own.start % period, period, mirror


def _fill(desc: Padding1) -> tuple[int, int]:
    """The padding value's bits, repeated where they are fewer than 32."""
    low, high = scalar_bits(desc.padding_value, desc.padding_value_data_type)
    bits = element_bits(desc.padding_value_data_type)
    if bits == 64:
        return low, high
    repeated = sum(low << place for place in range(0, 32, bits))
    return repeated, repeated


_SCHEDULES: dict[str, Schedule] = {"rows": _rows, "units": _units}
register(Padding1, problem=_padding, rules=PADDING, schedules=_SCHEDULES, limitations=(POSITIONS,))
register(SliceGrad, problem=_slice_gradient, rules=PADDING, schedules=_SCHEDULES)
