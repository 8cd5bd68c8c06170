"""The rules of resampling's gradients."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from dmlvk.devices.capabilities import Capabilities
from dmlvk.kernels.common.rule import Rule, always
from dmlvk.kernels.common.shapes import convolution_lanes, group_lanes
from dmlvk.kernels.resample.rules import SampledDimension
from dmlvk.spec.enums import TensorDataType
from dmlvk.spec.tensor import element_bits

MOST_TAPS = 64
"""Columns of dy that the kernel of tiles gathers for a column of dx: a line of sums has room for those of some columns."""
MOST_ROWS = 64
"""Rows of dy that it has room for in its table."""
PATTERN_FACTORS = (1, 2, 4)
"""The whole numbers by which the kernel of whole enlargements enlarges a dimension."""
PATTERN_TAPS = 8
"""Outputs that the kernel of whole enlargements gathers for an element along a dimension."""

_POINT = SampledDimension(1, 1, 0, 0)


class Pattern(NamedTuple):
    """A dimension enlarged by a whole number: input i is read by ``taps`` outputs from factor * i - left on.

    Attributes:
        factor: The number of outputs for each input.
        left: The outputs before factor * i that read input i.
        taps: The outputs that read an input.
        weights: The weights of input 0, of the inputs in between, and of the last, each filled up to ``PATTERN_TAPS``.
            An output beyond the first or the last stands for that one, and has a share of its weight.
    """

    factor: int
    left: int
    taps: int
    weights: tuple[float, ...]


class Spread(NamedTuple):
    """A dimension made smaller by a whole number: output o reads some of inputs factor * o to factor * (o + 1) - 1 alone.

    Attributes:
        factor: The number of inputs for each output.
        weights: The weights with which it reads these.
    """

    factor: int
    weights: tuple[float, ...]


class Whole(NamedTuple):
    """Rows and columns that are enlarged, and the elements of a word."""

    lanes: int
    rows: Pattern
    columns: Pattern


class Spreads(NamedTuple):
    """Rows and columns that are made smaller, and the elements of a word."""

    lanes: int
    rows: Spread
    columns: Spread


class Lines(NamedTuple):
    """A gradient as lines of dense elements.

    Attributes:
        outer: Dimensions that are not mapped and of which nothing is asked.
        row: The dimension whose elements are lines.
        column: The dimension of a line, with `inner` elements side by side at each of its elements.
        inner: The number of these elements.
    """

    outer: tuple[SampledDimension, ...]
    row: SampledDimension
    column: SampledDimension
    inner: int


def _shares(weight: float, others: int) -> list[float]:
    """A weight shared out between an element and so many copies of it: exact, because by halves."""
    return [weight / 2**others, *(weight / 2**half for half in range(others, 0, -1))]


@dataclass(frozen=True)
class ResampleGradientProblem:
    """A gradient of a resampling as its kernels see it.

    Attributes:
        data_type: The type of both tensors.
        linear: Whether the mode is LINEAR.
        start: The element of dy from which its steps count: not 0 where a dimension is walked backwards.
        dimensions: The dimensions of the forward operator, whose outputs are dy and whose inputs are dx. Their order is
            that of dx in memory, the last the densest; those not mapped are merged. No position step is negative.
    """

    data_type: TensorDataType
    linear: bool
    start: int
    dimensions: tuple[SampledDimension, ...]

    @property
    def group_lanes(self) -> int:
        """Elements of a 16-byte word."""
        return group_lanes(element_bits(self.data_type))

    @property
    def inner(self) -> SampledDimension:
        """The dimension along which dx is densest."""
        return self.dimensions[-1]

    @property
    def lines(self) -> Lines | None:
        """The gradient as lines, None where it is not."""
        *others, inner = self.dimensions
        if inner.input_step != 1 or inner.output_step != 1:
            return None
        if inner.mapped:
            column, size = inner, 1
        else:
            size = inner.inputs
            dense = bool(others) and others[-1].mapped and others[-1].input_step == others[-1].output_step == size
            column = others.pop() if dense else _POINT
        mapped = [dimension for dimension in others if dimension.mapped]
        row = mapped[0] if mapped else (others[-1] if others else _POINT)
        if row is not _POINT:
            others.remove(row)
        if len(mapped) > 1:
            return None
        return Lines(tuple(others), row, column, size)

    def pattern(self, dimension: SampledDimension, most: int) -> Pattern | None:
        """The pattern of a dimension that is enlarged by 1, 2 or 4, an element read by at most so many outputs on each side
        of its own; None for any other, and where its edges are read by more."""
        if not dimension.mapped:
            return Pattern(1, 0, 1, ((1.0,) + (0.0,) * (PATTERN_TAPS - 1)) * 3)
        parts, step, last = dimension.parts, dimension.step, dimension.inputs - 1
        factor = parts // step if step and parts % step == 0 else 0
        if factor not in PATTERN_FACTORS or last < 1 or dimension.outputs != factor * dimension.inputs:
            return None

        def weight(o: int, i: int) -> float:
            """The weight of input i in output o; dimensions have no end."""
            away = o * step + dimension.start - i * parts
            if self.linear:
                return max(parts - abs(away), 0) / parts
            return float(0 <= away < parts)

        near = [o for o in range(-2 * PATTERN_TAPS, 2 * PATTERN_TAPS) if weight(o, 0)]
        if not near:  # offsets move it far away
            return None
        left, taps = -near[0], len(near)
        right = taps - left - factor  # how far what reads the last input would reach beyond the last output
        most = min(factor, most)
        if taps > PATTERN_TAPS or not (0 <= left <= most and 0 <= right <= most):
            return None
        # An edge's element also has what those outside of it would have.
        end, beyond = dimension.outputs, 2 * PATTERN_TAPS
        first = [sum(weight(o, i) for i in range(-beyond, 1)) for o in range(taps - left)]
        final = [sum(weight(o, i) for i in range(last, last + beyond)) for o in range(end - factor - left, end)]
        sets = (
            [*_shares(first[0], left), *first[1:]],
            [weight(o, 0) for o in near],
            [*final[:-1], *_shares(final[-1], right)],
        )
        return Pattern(factor, left, taps, tuple(w for own in sets for w in (*own, *(0.0,) * (PATTERN_TAPS - taps))))

    @property
    def whole(self) -> Whole | None:
        """The enlargement of rows and columns; None where the kernel of whole enlargements would move anything but words."""
        for lanes in self._row_lanes(reading=True):
            lines = self.lines
            assert lines is not None, "only lines have lanes"
            rows, columns = self.pattern(lines.row, PATTERN_TAPS), self.pattern(lines.column, lanes)
            if rows is not None and columns is not None:
                return Whole(lanes, rows, columns)
        return None

    @property
    def spread(self) -> Spreads | None:
        """The reduction of rows and columns to smaller ones; None where dx is not written in words."""
        for lanes in self._row_lanes(reading=False):
            lines = self.lines
            assert lines is not None, "only lines have lanes"
            rows, columns = self._spread(lines.row), self._spread(lines.column)
            if rows is not None and columns is not None and (lines.inner > 1 or columns.factor <= lanes):
                return Spreads(lanes, rows, columns)
        return None

    def _row_lanes(self, *, reading: bool) -> tuple[int, ...]:
        """Elements of the words in which all rows of dx, and of dy where reading, may be moved: the most first."""
        lines = self.lines
        if lines is None or all(not dimension.mapped for dimension in self.dimensions):
            return ()
        steps = [lines.column.inputs if lines.inner == 1 else lines.inner]
        steps += [dimension.input_step for dimension in (lines.row, *lines.outer)]
        if reading:
            steps += [self.start, *(dimension.output_step for dimension in (lines.row, *lines.outer))]
        widths = convolution_lanes(element_bits(self.data_type))
        return tuple(lanes for lanes in widths if all(step % lanes == 0 for step in steps))

    def _spread(self, dimension: SampledDimension) -> Spread | None:
        if not dimension.mapped:
            return Spread(1, (1.0,))
        parts = dimension.parts
        factor, rest = divmod(dimension.step, parts)
        first, part = divmod(dimension.start, parts)
        last = first + (self.linear and part > 0)
        if rest or factor not in (2, 4) or first < 0 or last >= factor:
            return None
        if factor * (dimension.outputs - 1) + last >= dimension.inputs:
            return None
        weights = [0.0] * factor
        weights[first] = (parts - part) / parts if self.linear else 1.0
        if last > first:
            weights[last] = part / parts
        return Spread(factor, tuple(weights))

    def reach(self, dimension: SampledDimension, count: int = 1) -> int:
        """The most outputs that read any of so many neighbouring inputs of a dimension."""
        if count >= dimension.inputs or not dimension.step:
            return dimension.outputs
        opens = int(self.linear and dimension.mapped)

        def before(bound: int, after: int) -> int:
            """The number of outputs before ``bound``, or also at it if ``after`` is 1."""
            found = -(-(bound * dimension.parts - dimension.start + after) // dimension.step)
            return min(max(found, 0), dimension.outputs)

        # The outputs between two bounds that are `count` + 1 elements apart (NEAREST_NEIGHBOR: `count`), those not counted.
        inside = -(-((count + opens) * dimension.parts) // dimension.step)
        first = before(count, 0)
        last = dimension.outputs - before(dimension.inputs - count - opens, opens)
        return min(max(inside, first, last), dimension.outputs)


def _dense_neighbours(problem: ResampleGradientProblem, caps: Capabilities) -> bool:
    inner = problem.inner
    return inner.input_step == 1 and inner.output_step == 1 and inner.inputs >= problem.group_lanes


def _tiled(problem: ResampleGradientProblem, caps: Capabilities) -> bool:
    lines = problem.lines
    if lines is None or not any(dimension.mapped for dimension in problem.dimensions):
        return False
    return problem.reach(lines.row) <= MOST_ROWS and problem.reach(lines.column) <= MOST_TAPS


RESAMPLE_GRADIENT = (
    Rule(
        "whole",
        when=always,
        possible=lambda p, caps: p.whole is not None,
        because="rows and columns enlarged by 1, 2 or 4: an invocation makes up to 16 bytes of some rows of dx from "
        "the words of dy around them, in registers, and has the weights as parameters. H200, bilinear 2x to 8x64x512x512 in "
        "float32: 4094 GB/s, tiles 2368; NHWC: 3845 and 2370",
    ),
    Rule(
        "spread",
        when=always,
        possible=lambda p, caps: p.spread is not None,
        because="rows and columns made smaller by 1, 2 or 4, of which an element is read by one output at most: an "
        "invocation writes the words of dx that a row of dy gives something to, and has the weights as parameters. H200, "
        "bilinear by half of 8x64x256x256 in float32: 3684 GB/s, tiles 2822",
    ),
    Rule(
        "tiles",
        when=always,
        possible=_tiled,
        because="lines are dense: each word of dy is loaded once and added up down the rows, and the columns of these sums "
        "are gathered from shared memory, so that a load serves all elements that it counts for. H200, bilinear 2x from "
        "8x512x14x14 in float32: 11 us, elements 47; 1.5x, which no other kernel shares: 2143 GB/s",
    ),
    Rule(
        "shared",
        when=_dense_neighbours,
        possible=lambda p, caps: not p.inner.mapped,
        because="neighbours in memory, such as the channels of NHWC, are read by the same outputs: 16-byte groups share the "
        "search for these, and their weights. H200, nearest 2x in NHWC: 3370 GB/s, bilinear 1042",
    ),
    Rule("elements", when=always, possible=always, because="any strides and windows, one element of dx at a time"),
)
