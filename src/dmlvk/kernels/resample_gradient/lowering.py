"""Lowering of ``ops.resample_gradient``: the forward operator's positions, gathered from the side of its inputs."""

from __future__ import annotations

import bisect
import math
from typing import Any, NamedTuple

from dmlvk.devices.capabilities import Capabilities
from dmlvk.kernels.common.access import Access
from dmlvk.kernels.common.dispatch import make_dispatch
from dmlvk.kernels.common.limitation import LOOP_ROUNDS, POSITIONS
from dmlvk.kernels.common.plan import Plan, input_range, output_range
from dmlvk.kernels.common.registry import register
from dmlvk.kernels.common.shapes import check_rounds, divisors, linear_grid, power_of_two
from dmlvk.kernels.resample.lowering import access, sampled_dimension
from dmlvk.kernels.resample.rules import SampledDimension
from dmlvk.kernels.resample_gradient.manifest import WHOLE_ROWS
from dmlvk.kernels.resample_gradient.rules import MOST_ROWS, RESAMPLE_GRADIENT, Lines, ResampleGradientProblem
from dmlvk.spec.enums import InterpolationMode
from dmlvk.spec.ops.resample_gradient import ResampleGrad1

_WORKGROUP = 128
"""Invocations of a workgroup: what the least device has."""

_TILE = 4096
"""Elements of a tile in shared memory, 16 KiB; half of that where a workgroup has not twice as much."""
_COLUMN_TABLE = 256
_WEIGHT_TABLE = 512
_PLANE_TABLE = 128
_MOST_WEIGHTS = 8
"""The most weights of all elements that an invocation stores at once, which it has in registers."""
_LOOK_UP = 2.0
"""The cost of finding a tap and its weight for all rows of a tile, in elements of dy that are loaded and added."""
_TABLE = 2.0
"""The factor on that for making their tables, which the rounds of a workgroup share."""
_MOST_CHUNK = 32
"""Inner elements of a tile: 64 or 128 bytes side by side."""
_ENOUGH_WORKGROUPS = 32
"""Workgroups for each processor: those beyond are put into the same ones' rounds, which share tables."""
_MOST_ROUNDS = 8

_UNIT = SampledDimension(1, 1, 0, 0)


def _problem(desc: ResampleGrad1) -> ResampleGradientProblem:
    forward = desc.forward().upgrade()
    start, found = 0, []
    for axis in range(desc.tensor("output_gradient_tensor").dimension_count):
        dimension = sampled_dimension(forward, axis, desc.dml_name)
        if dimension.outputs == dimension.inputs == 1:
            continue
        if not dimension.mapped and dimension.outputs != dimension.inputs:
            # One element that all outputs read, or some that none does.
            input_step = desc.tensor("output_gradient_tensor").effective_strides[axis]
            dimension = dimension._replace(mapped=True, input_step=input_step)
        if dimension.step < 0:
            last = dimension.outputs - 1
            start += last * dimension.output_step
            dimension = dimension._replace(
                output_step=-dimension.output_step,
                start=dimension.start + last * dimension.step,
                step=-dimension.step,
            )
        found.append(dimension)
    # As dx lies in memory; of dimensions of one element none is dense.
    found.sort(key=lambda dimension: -dimension.input_step if dimension.inputs > 1 else -math.inf)
    merged: list[SampledDimension] = []
    for dimension in found:
        last_found = merged[-1] if merged and not (merged[-1].mapped or dimension.mapped) else None
        if last_found is not None and all(
            outer == inner * dimension.inputs
            for outer, inner in (
                (last_found.output_step, dimension.output_step),
                (last_found.input_step, dimension.input_step),
            )
        ):
            size = last_found.inputs * dimension.inputs
            merged[-1] = dimension._replace(outputs=size, inputs=size)
        else:
            merged.append(dimension)
    linear = desc.interpolation_mode == InterpolationMode.LINEAR
    kind = desc.tensor("output_gradient_tensor").data_type
    return ResampleGradientProblem(kind, linear, start, tuple(merged) or (SampledDimension(1, 1, 1, 1),))


def _positions(dimensions: tuple[SampledDimension, ...]) -> dict[str, Any]:
    """The parameters that say where outputs lie."""
    steps = [divmod(dimension.step, dimension.parts) for dimension in dimensions]
    starts = [divmod(dimension.start, dimension.parts) for dimension in dimensions]
    return {
        "input_sizes": tuple(dimension.inputs for dimension in dimensions),
        "output_sizes": tuple(dimension.outputs for dimension in dimensions),
        "start_whole": tuple(whole for whole, _ in starts),
        "start_part": tuple(part for _, part in starts),
        "step_whole": tuple(whole for whole, _ in steps),
        "step_part": tuple(part for _, part in steps),
        "step_estimate": tuple(2**32 * part // d.parts for (_, part), d in zip(steps, dimensions, strict=True)),
        "parts": tuple(dimension.parts for dimension in dimensions),
        "weight_of_part": tuple(1 / dimension.parts for dimension in dimensions),
        "enlargement": tuple(d.parts / d.step if d.step else 0.0 for d in dimensions),
        "enlargement_start": tuple(-d.start / d.step if d.step else 0.0 for d in dimensions),
    }


def _launch(
    kernel: str,
    problem: ResampleGradientProblem,
    lanes: int,
    constants: dict[str, int],
    params: dict[str, Any],
    caps: Capabilities,
    workgroups: int = 0,
) -> Plan:
    """The launch of a kernel, in workgroups for the ``count`` of its parameters unless their number is given."""
    dispatch = make_dispatch(
        kernel,
        (input_range(0), output_range()),
        linear_grid(workgroups or -(-params["count"] // _WORKGROUP), caps),
        variant={"LANES": lanes, "T": problem.data_type.name},
        constants=constants,
        **params,
    )
    return Plan((dispatch,))


def _items(problem: ResampleGradientProblem, lanes: int, caps: Capabilities) -> Plan:
    """The kernel that takes groups of ``lanes``."""
    dimensions, inner = problem.dimensions, problem.inner
    rounds = 1
    for dimension in dimensions:
        rounds = 1 + (problem.reach(dimension) if dimension.mapped else 1) * rounds
    searched = sum(dimension.outputs for dimension in dimensions if dimension.mapped and not dimension.step)
    check_rounds(rounds + 2 * searched + 64, caps, ResampleGrad1.dml_name)
    sizes = (*(dimension.inputs for dimension in dimensions[:-1]), -(-inner.inputs // lanes))
    x_steps = [dimension.output_step for dimension in dimensions]
    y_steps = [dimension.input_step for dimension in dimensions]
    params = {
        "count": math.prod(sizes),
        "inner_size": inner.inputs,
        "sizes": sizes,
        "divisors": divisors(sizes),
        "x_strides": tuple(step % 2**32 for step in (*x_steps[:-1], inner.output_step * lanes)),
        "y_strides": tuple(step % 2**32 for step in (*y_steps[:-1], inner.input_step * lanes)),
        "x_start": problem.start % 2**32,
        "x_step": inner.output_step % 2**32,
        "y_step": inner.input_step,
        **_positions(dimensions),
    }
    constants = {
        "LOCAL_SIZE_X": _WORKGROUP,
        "RANK": len(dimensions),
        "MAPPED": sum(1 << axis for axis, dimension in enumerate(dimensions) if dimension.mapped),
        "LINEAR": int(problem.linear),
        "X_MODE": int(access(x_steps, lanes)),
        "Y_MODE": int(access(y_steps, lanes)),
    }
    return _launch("resample_gradient", problem, lanes, constants, params, caps)


def _shared(desc: ResampleGrad1, problem: ResampleGradientProblem, caps: Capabilities) -> Plan:
    return _items(problem, problem.group_lanes, caps)


def _elements(desc: ResampleGrad1, problem: ResampleGradientProblem, caps: Capabilities) -> Plan:
    return _items(problem, 1, caps)


class _Tile(NamedTuple):
    """The work of a workgroup of the kernel of tiles.

    Attributes:
        rows, columns: The rows and columns of dx.
        chunk: Elements of `inner`.
        width: Elements that a row of it takes in shared memory.
        together: The number of planes at once.
    """

    rows: int
    columns: int
    chunk: int
    width: int
    together: int


def _tile(problem: ResampleGradientProblem, lines: Lines, outputs: int, budget: int) -> _Tile:
    """The tile whose invocations do the least for an element of dx: with the fewest rows and columns of dy that other tiles
    read, too, and the fewest invocations without a word.

    Args:
        outputs: Elements of dx that an invocation stores at once.
        budget: Elements that shared memory has room for.
    """
    lanes = problem.group_lanes
    chunks = -(-lines.inner // _MOST_CHUNK)
    share = -(-lines.inner // chunks)
    chunk = share if chunks == 1 else -(-share // lanes) * lanes
    taps = problem.reach(lines.column)
    most_columns = min(_COLUMN_TABLE, _WEIGHT_TABLE // taps, lines.column.inputs)
    planes = math.prod(dimension.inputs for dimension in lines.outer)
    whole = outputs if lines.inner == 1 else 1  # columns that are stored at once

    def width(columns: int) -> int:
        # A tile of all columns starts on a word.
        slack = lanes - 1 if chunks == 1 and columns < lines.column.inputs else 0
        return -(-(problem.reach(lines.column, columns) * chunk + slack) // lanes) * lanes

    def busy(items: int) -> int:
        """Items of a workgroup with those that no invocation has."""
        return -(-items // _WORKGROUP) * _WORKGROUP

    best: tuple[float, _Tile] | None = None
    for rows in sorted({min(2**power, lines.row.inputs) for power in range(5)}):
        read = problem.reach(lines.row, rows)
        most = bisect.bisect_right(range(1, most_columns + 1), budget // rows, key=width) // whole * whole
        if read > MOST_ROWS or not most:
            break
        fewest = -(-lines.column.inputs // most)
        for tiles in range(fewest, min(fewest + 4, lines.column.inputs + 1)):
            columns = -(-lines.column.inputs // (tiles * whole)) * whole
            stored = width(columns)
            together = min(budget // (rows * stored), planes, _PLANE_TABLE // _MOST_ROUNDS)
            loads = busy(together * stored // lanes) * lanes * read
            stores = busy(together * -(-columns * chunk // outputs)) * outputs
            gathered = stores * (rows * (1 + taps / 2) + _LOOK_UP * (1 + taps))
            tables = (_LOOK_UP * (1 + taps) * columns + read) * _TABLE
            cost = (loads + gathered + tables) / (together * rows * columns * chunk)
            if best is None or cost < best[0]:
                best = cost, _Tile(rows, columns, chunk, stored, together)
    assert best is not None, "a row of one column fits"
    return best[1]


def _tiles(desc: ResampleGrad1, problem: ResampleGradientProblem, caps: Capabilities) -> Plan:
    lines, lanes = problem.lines, problem.group_lanes
    assert lines is not None, "the rule asks for lines"
    budget = _TILE if caps.shared_memory_bytes >= 2 * 4 * _TILE else _TILE // 2
    row, column = lines.row, lines.column
    outer = (_UNIT,) * (3 - len(lines.outer)) + lines.outer
    written = (lines.inner if lines.inner > 1 else column.inputs, row.input_step, *(d.input_step for d in outer))
    words_written = lanes * problem.reach(column) <= _MOST_WEIGHTS and all(step % lanes == 0 for step in written)
    tile = _tile(problem, lines, lanes if words_written else 1, budget)
    planes = math.prod(dimension.inputs for dimension in lines.outer)
    row_tiles, column_tiles = -(-row.inputs // tile.rows), -(-column.inputs // tile.columns)
    chunks = -(-lines.inner // tile.chunk)
    tiles = row_tiles * column_tiles * chunks
    rounds = min(
        max(tiles * -(-planes // tile.together) // caps.model.workgroups(_ENOUGH_WORKGROUPS), 1),
        1 if caps.is_cpu else _MOST_ROUNDS,
    )
    read, taps = problem.reach(row, tile.rows), problem.reach(column)
    loads = -(-tile.together * tile.width // (lanes * _WORKGROUP)) * (read + 2 * tile.rows)
    gathers = -(-tile.together * tile.columns * tile.chunk // _WORKGROUP) * tile.rows * taps
    check_rounds(loads + gathers + read + tile.columns * taps, caps, ResampleGrad1.dml_name)
    count = tiles * -(-planes // (tile.together * rounds))
    words = tile.width // lanes
    sizes = tuple(dimension.inputs for dimension in outer)
    whole = all(step % lanes == 0 for step in (row.output_step, problem.start, *(d.output_step for d in outer)))
    flat = chunks == 1
    grouped = whole and (flat or column.output_step % lanes == 0)
    params = {
        "count": count,
        "x_start": problem.start % 2**32,
        "planes": planes,
        "inner_size": lines.inner,
        "outer_sizes": sizes,
        "outer_divisors": divisors(sizes),
        "outer_x": tuple(dimension.output_step % 2**32 for dimension in outer),
        "outer_y": tuple(dimension.input_step for dimension in outer),
        "row_step": row.output_step % 2**32,
        "column_step": lines.inner,
        "y_row_step": row.input_step,
        "y_column_step": lines.inner,
        "rows": tile.rows,
        "columns": tile.columns,
        "chunk": tile.chunk,
        "together": tile.together,
        "rounds": rounds,
        "row_tiles": row_tiles,
        "column_tiles": column_tiles,
        "chunks": chunks,
        "width": tile.width,
        "words": words,
        "word_divisor": divisors((words,)),
        "chunk_divisor": divisors((tile.chunk,)),
        "line_divisor": divisors((-(-tile.columns * tile.chunk // (lanes if words_written else 1)),)),
        **_positions((row, column)),
    }
    constants = {
        "LOCAL_SIZE_X": _WORKGROUP,
        "LINEAR": int(problem.linear),
        "FLAT": int(flat),
        "X_MODE": int(Access.GROUPS if grouped else Access.ELEMENTS),
        "Y_MODE": int(Access.GROUPS if words_written else Access.ELEMENTS),
        "TAPS": taps,
        "TILE": budget,
        "PLANE_TABLE": _PLANE_TABLE,
        "ROW_TABLE": MOST_ROWS,
        "COLUMN_TABLE": _COLUMN_TABLE,
        "WEIGHT_TABLE": _WEIGHT_TABLE,
    }
    return _launch("resample_gradient_tiles", problem, lanes, constants, params, caps, count)


def _space(lines: Lines, rows: int, lanes: int) -> dict[str, Any]:
    """The parameters of an index space of dx in blocks of rows and words."""
    columns = lines.inner == 1
    outer = lines.outer or (_UNIT,)
    sizes = (*(dimension.inputs for dimension in outer), -(-lines.row.inputs // rows))
    sizes += (lines.column.inputs // lanes,) if columns else (lines.column.inputs, lines.inner // lanes)
    # Rows and columns have steps of their own, because those of dy are clamped.
    steps = (0, 0) if columns else (0, 0, lanes)
    return {
        "count": math.prod(sizes),
        "sizes": sizes,
        "divisors": divisors(sizes),
        "x_strides": (*(dimension.output_step % 2**32 for dimension in outer), *steps),
        "y_strides": (*(dimension.input_step for dimension in outer), *steps),
        "rows": lines.row.inputs,
        "row_step": lines.row.output_step % 2**32,
        "y_row_step": lines.row.input_step,
        "column_step": lines.inner,
        "y_column_step": lines.inner,
    }


def _whole(desc: ResampleGrad1, problem: ResampleGradientProblem, caps: Capabilities) -> Plan:
    lines, whole = problem.lines, problem.whole
    assert lines is not None and whole is not None, "the rule asks for both"
    row, column = lines.row, lines.column
    lanes, row_pattern, column_pattern = whole
    rows = min(WHOLE_ROWS, power_of_two(row.inputs))
    space = _space(lines, rows, lanes)
    constants = {
        "LOCAL_SIZE_X": _WORKGROUP,
        "RANK": len(space["sizes"]),
        "COLUMNS": int(lines.inner == 1),
        "ROWS": rows,
        "ROW_FACTOR": row_pattern.factor,
        "ROW_LEFT": row_pattern.left,
        "ROW_TAPS": row_pattern.taps,
        "COLUMN_FACTOR": column_pattern.factor,
        "COLUMN_LEFT": column_pattern.left,
        "COLUMN_TAPS": column_pattern.taps,
    }
    params = {
        **space,
        "x_start": problem.start % 2**32,
        "columns": column.inputs,
        "row_weights": row_pattern.weights,
        "column_weights": column_pattern.weights,
    }
    return _launch("resample_gradient_whole", problem, lanes, constants, params, caps)


def _spread(desc: ResampleGrad1, problem: ResampleGradientProblem, caps: Capabilities) -> Plan:
    lines, spreads = problem.lines, problem.spread
    assert lines is not None and spreads is not None, "the rule asks for both"
    row, column = lines.row, lines.column
    lanes, rows, columns = spreads
    space = _space(lines, rows.factor, lanes)
    reads = (problem.start, lines.inner, row.output_step, *(dimension.output_step for dimension in lines.outer))
    grouped = lines.inner > 1 and all(step % lanes == 0 for step in reads)
    constants = {
        "LOCAL_SIZE_X": _WORKGROUP,
        "RANK": len(space["sizes"]),
        "COLUMNS": int(lines.inner == 1),
        "X_MODE": int(Access.GROUPS if grouped else Access.ELEMENTS),
        "ROW_FACTOR": rows.factor,
        "COLUMN_FACTOR": columns.factor,
    }
    params = {
        **space,
        "x_start": problem.start % 2**32,
        "read_rows": row.outputs,
        "read_columns": column.outputs,
        "row_weights": rows.weights,
        "column_weights": columns.weights,
    }
    return _launch("resample_gradient_spread", problem, lanes, constants, params, caps)


register(
    ResampleGrad1,
    problem=_problem,
    rules=RESAMPLE_GRADIENT,
    schedules={"whole": _whole, "spread": _spread, "tiles": _tiles, "shared": _shared, "elements": _elements},
    limitations=(LOOP_ROUNDS, POSITIONS),
)
