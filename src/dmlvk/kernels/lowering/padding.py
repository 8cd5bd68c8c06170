"""Plans of paddings: rows of the output come from rows of the input, or from nowhere."""

from __future__ import annotations

import math

from dmlvk.enums import PaddingMode
from dmlvk.errors import UnsupportedError
from dmlvk.kernels.caps import Capabilities
from dmlvk.kernels.lowering.copy import RowUnits, rows_dispatch
from dmlvk.kernels.lowering.fill import scalar_bits
from dmlvk.kernels.lowering.registry import register
from dmlvk.kernels.plan import Plan, input_range, output_range
from dmlvk.kernels.select import PADDING, PaddedDimension, PaddingProblem
from dmlvk.kernels.shapes import divisors
from dmlvk.ops.movement import Padding1
from dmlvk.tensor import element_bits

_WORD_BITS = 128
_ONE = PaddedDimension(1, 0, 0, 1, 1)


def _problem(desc: Padding1) -> PaddingProblem:
    x, output = desc.tensor("input_tensor"), desc.tensor("output_tensor")
    filled = desc.padding_mode == PaddingMode.CONSTANT
    dimensions = [
        PaddedDimension(*values)
        for values in zip(
            x.sizes, desc.start_padding, desc.end_padding, x.effective_strides, output.effective_strides, strict=True
        )
    ]
    dimensions.sort(key=lambda own: -own.output_step)
    problem = PaddingProblem(element_bits(x.data_type), filled, _merged(dimensions, filled))
    while problem.bits < _WORD_BITS and problem.is_even:
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
            and (filled or not outer.padded)
            and outer[-2:] == (own.x_step * own.size, own.output_step * own.size)
        ):
            size, start, end = (own.size * count for count in outer[:3])
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
    size, start, end = map(scaled, inner[:3])
    dimensions.append(inner._replace(size=size, start=start, end=end))
    return PaddingProblem(problem.bits * wider // narrower, problem.filled, tuple(dimensions))


def _rows(desc: Padding1, problem: PaddingProblem, caps: Capabilities) -> Plan:
    if problem.bits > 32:
        problem = _rescaled(problem, 1, problem.bits // 32)
    return _plan(desc, problem, problem.dimensions, caps, in_words=True)


def _units(desc: Padding1, problem: PaddingProblem, caps: Capabilities) -> Plan:
    dimensions = problem.dimensions
    if problem.mirrors_units:
        dimensions = (*dimensions, _ONE)  # each unit is a row of its own
    return _plan(desc, problem, dimensions, caps, in_words=False)


def _plan(
    desc: Padding1,
    problem: PaddingProblem,
    dimensions: tuple[PaddedDimension, ...],
    caps: Capabilities,
    *,
    in_words: bool,
) -> Plan:
    *outer, inner = dimensions
    outer = outer or [_ONE]
    sizes = [own.output_size for own in outer]
    low, high, shift, period, mirror = zip(*(dimension_map(desc, own) for own in (*outer, inner)), strict=True)
    dispatch = rows_dispatch(
        "padding",
        RowUnits(
            problem.bits,
            math.prod(sizes),
            inner.output_size,
            inner.x_step,
            inner.output_step,
            _fill(desc) if problem.filled else (0, 0),
        ),
        (input_range(0), output_range()),
        caps,
        in_words=in_words,
        packed=in_words and problem.output_is_packed,
        constants={
            "RANK": len(outer),
            "PADDED": sum(1 << axis for axis, own in enumerate((*outer, inner)) if own.padded),
            "FILLED": int(problem.filled),
        },
        params={
            "x_start": -inner.start * inner.x_step % 2**32,
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


def dimension_map(desc: Padding1, own: PaddedDimension) -> tuple[int, int, int, int, int]:
    """``low``, ``high``, ``shift``, ``period`` and ``mirror`` of a dimension; see ``glsl/padding.comp``."""
    if desc.padding_mode in (PaddingMode.CONSTANT, PaddingMode.EDGE):
        return own.start, own.start + own.size - 1, -own.start % 2**32, own.size, 2 * own.size % 2**32
    period, mirror = {
        PaddingMode.REFLECTION: (max(2 * own.size - 2, 1), 2 * own.size - 2),
        PaddingMode.SYMMETRIC: (2 * own.size, 2 * own.size - 1),
        PaddingMode.WRAP: (own.size, 2 * own.size),
    }[desc.padding_mode]
    if own.output_size + period > 2**32:
        raise UnsupportedError(
            f"an output of {own.output_size} and a period of {period} elements along a dimension pass 32 bits",
            operator=desc.type.dml_name,
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


register(Padding1, problem=_problem, rules=PADDING, schedules={"rows": _rows, "units": _units})
