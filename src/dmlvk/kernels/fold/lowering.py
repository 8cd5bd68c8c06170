"""Lowering of ``ops.fold``."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Sequence

from dmlvk.devices.capabilities import Capabilities
from dmlvk.kernels.common.dispatch import make_dispatch
from dmlvk.kernels.common.limitation import LOOP_ROUNDS, POSITIONS
from dmlvk.kernels.common.plan import Plan, input_range, output_range
from dmlvk.kernels.common.registry import register
from dmlvk.kernels.common.shapes import check_rounds, coalesce, divisors, linear_grid
from dmlvk.kernels.copy.lowering import RowUnits, rows_dispatch
from dmlvk.kernels.fold.manifest import MOST_NARROW_STEP
from dmlvk.kernels.fold.rules import FOLD, UNFOLD, BlockDimension, FoldProblem
from dmlvk.spec.ops.fold import Fold, Unfold, block_counts, image_sizes
from dmlvk.spec.tensor import element_bits, packed_strides

_MOST_EXTENT = 2**30
"""Positions in a padded image fit 31 bits with room for one more window."""
_READS = 9
"""Elements of a box that are read together: a window of 3 by 3."""


def _problem(desc: Fold | Unfold) -> FoldProblem:
    image, columns = desc.tensor("input_tensor"), desc.tensor("output_tensor")
    if isinstance(desc, Fold):
        image, columns = columns, image
    rank = len(desc.window_sizes)
    sizes, steps = image_sizes(desc), image.effective_strides[-2 - rank :]
    batch_step, tap_step, block_step = columns.effective_strides[-3:]
    dimensions = [
        BlockDimension(*values)
        for values in zip(
            sizes[2:],
            desc.window_sizes,
            desc.strides,
            desc.dilations,
            desc.start_padding,
            block_counts(desc),
            steps[2:],
            strict=True,
        )
    ]
    kept = coalesce(sizes[:2], [steps[:2], (batch_step, math.prod(desc.window_sizes) * tap_step)])
    return FoldProblem(element_bits(image.data_type), kept, _merged(dimensions), tap_step, block_step)


def _merged(dimensions: list[BlockDimension]) -> tuple[BlockDimension, ...]:
    """The same blocks with the fewest dimensions: one whose blocks are its elements becomes part of the one outside it,
    where windows take every line of that and lines follow each other in memory."""
    merged: list[BlockDimension] = []
    for dimension in dimensions:
        # Steps that are never taken are as good as 1.
        own = dataclasses.replace(
            dimension,
            stride=dimension.stride if dimension.blocks > 1 else 1,
            dilation=dimension.dilation if dimension.window > 1 else 1,
        )
        outer = merged[-1] if merged else None
        if outer is not None and outer.whole and outer.size == 1:
            merged[-1] = own
        elif outer is not None and own.whole and own.size == 1:
            continue
        elif outer is not None and own.whole and outer.stride == 1 and outer.step == own.step * own.size:
            merged[-1] = _scaled(outer, own.size, own.step)
        else:
            merged.append(own)
    return tuple(merged)


def _scaled(dimension: BlockDimension, count: int, step: int) -> BlockDimension:
    """A dimension whose every element is so many, ``step`` apart. Its stride is 1."""
    return BlockDimension(
        size=dimension.size * count,
        window=dimension.window,
        stride=1,
        dilation=dimension.dilation * count if dimension.window > 1 else 1,
        start=dimension.start * count,
        blocks=dimension.blocks * count,
        step=step,
    )


def _check_extents(desc: Fold | Unfold, problem: FoldProblem) -> None:
    for own in problem.dimensions:
        extent = max(own.start + own.size, (own.blocks - 1) * own.stride + (own.window - 1) * own.dilation + 1)
        if extent > _MOST_EXTENT or max(own.stride, own.dilation) > _MOST_EXTENT:
            raise POSITIONS.error(
                f"a padded image may have at most {_MOST_EXTENT} positions along a dimension; got {extent} with stride "
                f"{own.stride} and dilation {own.dilation}",
                desc.dml_name,
            )


@dataclasses.dataclass(frozen=True)
class _Pairs:
    """The pairs of a window's element and a block that meet at a position, and their order; see ``glsl/fold.comp``.

    Attributes:
        divisor: The common one of stride and dilation.
        tap_step, block_step: The steps from one pair to the next.
        inverse: The inverse of dilation / divisor modulo stride / divisor.
        most: Pairs at a position, at most.
    """

    divisor: int
    tap_step: int
    block_step: int
    inverse: int
    most: int


def _pairs(own: BlockDimension) -> _Pairs:
    divisor = math.gcd(own.stride, own.dilation)
    tap_step, block_step = own.stride // divisor, own.dilation // divisor
    inverse = pow(block_step, -1, tap_step)
    return _Pairs(divisor, tap_step, block_step, inverse, min(-(-own.window // tap_step), -(-own.blocks // block_step)))


def _steps(counts: Sequence[int], step: int) -> tuple[int, ...]:
    """The steps between neighbours along dimensions that lie row-major; ``step`` is that of the innermost."""
    return tuple(own * step for own in packed_strides(counts))


def _outputs(desc: Fold, problem: FoldProblem, caps: Capabilities) -> Plan:
    _check_extents(desc, problem)
    dimensions = problem.dimensions
    pairs = [_pairs(own) for own in dimensions]
    *outer, before, last = (1, *(pair.most for pair in pairs))
    taps = min(last, _READS)
    lines = min(before, _READS // taps) if last == taps else 1
    divisions = 32 * sum(pair.tap_step > MOST_NARROW_STEP for pair in pairs)
    rounds = math.prod(outer) * (-(-before // lines) * -(-last // taps) + 1) + divisions
    check_rounds(rounds, caps, desc.dml_name)

    sizes = (*problem.kept.sizes, *(own.size for own in dimensions))
    image_steps, column_steps = problem.kept.strides
    size = min(256, caps.workgroup_invocations)
    constants = {
        "LOCAL_SIZE_X": size,
        "KEPT": len(problem.kept.sizes),
        "RANK": len(sizes),
        "STRIDED": int(any(own.stride > 1 for own in dimensions)),
        "DILATED": int(any(own.dilation > 1 for own in dimensions)),
        "LINES": lines,
        "TAPS": taps,
    }

    strides, common = [own.stride for own in dimensions], [pair.divisor for pair in pairs]
    tap_steps, block_steps = [pair.tap_step for pair in pairs], [pair.block_step for pair in pairs]
    count = math.prod(sizes)
    return Plan(
        (
            make_dispatch(
                "fold",
                (input_range(0), output_range()),
                linear_grid(-(-count // size), caps),
                variant={"T": desc.tensor("input_tensor").data_type.name},
                constants=constants,
                count=count,
                sizes=sizes,
                divisors=divisors(sizes),
                y_strides=(*image_steps, *(own.step for own in dimensions)),
                x_kept=column_steps,
                window=tuple(own.window for own in dimensions),
                blocks=tuple(own.blocks for own in dimensions),
                start_padding=tuple(own.start for own in dimensions),
                dilation=tuple(own.dilation for own in dimensions),
                inverse=tuple(pair.inverse for pair in pairs),
                divisor=tuple(common),
                tap_step=tuple(tap_steps),
                block_step=tuple(block_steps),
                x_tap=_steps([own.window for own in dimensions], problem.tap_step),
                x_block=_steps([own.blocks for own in dimensions], problem.block_step),
                stride_divisors=divisors(strides),
                divisor_divisors=divisors(common),
                tap_step_divisors=divisors(tap_steps),
                block_step_divisors=divisors(block_steps),
            ),
        )
    )


def _rows(desc: Unfold, problem: FoldProblem, caps: Capabilities) -> Plan:
    return _unfold(desc, problem, caps, in_words=True)


def _elements(desc: Unfold, problem: FoldProblem, caps: Capabilities) -> Plan:
    return _unfold(desc, problem, caps, in_words=False)


def _unfold(desc: Unfold, problem: FoldProblem, caps: Capabilities, *, in_words: bool) -> Plan:
    _check_extents(desc, problem)
    *outer, line = problem.dimensions
    halves = 2 if in_words and problem.bits == 64 else 1  # of an element, each a unit
    scales = (*(1,) * len(outer), halves)
    image_steps, column_steps = problem.kept.strides
    windows, blocks = ([getattr(own, name) for own in problem.dimensions] for name in ("window", "blocks"))
    *block_steps, block_step = _steps(blocks, problem.block_step)

    def in_units(steps: Iterable[int]) -> tuple[int, ...]:
        return tuple(step * halves % 2**32 for step in steps)

    sizes = (*problem.kept.sizes, *windows, *blocks[:-1])
    dispatch = rows_dispatch(
        "unfold",
        RowUnits(
            problem.bits // halves,
            math.prod(sizes),
            line.blocks * halves,
            x_step=1 if in_words else line.stride * line.step,
            output_step=1 if in_words else block_step,
        ),
        (input_range(0), output_range()),
        caps,
        in_words=in_words,
        packed=in_words and problem.packed,
        constants={"KEPT": len(problem.kept.sizes), "SPATIAL": len(problem.dimensions)},
        params={
            "x_start": -sum(own.start * own.step for own in problem.dimensions) * halves % 2**32,
            "sizes": sizes,
            "divisors": divisors(sizes),
            "x_strides": in_units(
                (
                    *image_steps,
                    *(own.dilation * own.step for own in problem.dimensions),
                    *(own.stride * own.step for own in outer),
                )
            ),
            "output_strides": in_units((*column_steps, *_steps(windows, problem.tap_step), *block_steps)),
            "moves": (
                *(0 for _ in image_steps),
                *(own.dilation * scale for own, scale in zip(problem.dimensions, scales, strict=True)),
                *(own.stride for own in outer),
            ),
            "start_padding": tuple(own.start * scale for own, scale in zip(problem.dimensions, scales, strict=True)),
            "image_sizes": tuple(own.size * scale for own, scale in zip(problem.dimensions, scales, strict=True)),
            "stride": line.stride,
            "stride_divisor": divisors([line.stride]),
        },
    )
    return Plan((dispatch,))


register(Unfold, problem=_problem, rules=UNFOLD, schedules={"rows": _rows, "elements": _elements}, limitations=(POSITIONS,))
register(Fold, problem=_problem, rules=FOLD, schedules={"outputs": _outputs}, limitations=(LOOP_ROUNDS, POSITIONS))
