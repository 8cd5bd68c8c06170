"""Shares of rows: how the rows of a normalization, or of its gradients, are divided among workgroups and invocations.

A row is the elements that share a mean. It consists of units: 16-byte words, or single elements. Rows lie one after the
other, or side by side, where neighbours in memory belong to different rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from dmlvk.devices.capabilities import Capabilities
from dmlvk.kernels.common.shapes import most_invocations, power_of_two
from dmlvk.kernels.normalization.rules import lanes_side_by_side
from dmlvk.spec.tensor import TensorDesc, element_bits

MOST_CHUNKS = 256
"""Chunks of a split row: every chunk's workgroup reads what all of them have left."""
_WORKGROUP = 256
"""The invocations of a workgroup that share a split row, or several rows where there are many."""


class UnitRows(Protocol):
    """Rows of units.

    Attributes:
        rows: The number of rows.
        row_units: The units of a row.
        unit_elements: The elements of a unit: those of a 16-byte word, or 1.
        across: The rows side by side of which a unit has an element each, else 1.
    """

    @property
    def rows(self) -> int: ...
    @property
    def row_units(self) -> int: ...
    @property
    def unit_elements(self) -> int: ...
    @property
    def across(self) -> int: ...


def whole_words(walks: Sequence[tuple[Sequence[int], Sequence[int]]], run: int, word: int) -> bool:
    """Whether runs of elements, contiguous in a walk's last dimension, are whole words at whole words.

    Args:
        walks: (sizes, steps) of the dimensions around the runs.
        run: Length of the runs.
        word: Elements of a word.
    """
    return run % word == 0 and all(
        size == 1 or step % word == 0 for sizes, steps in walks for size, step in zip(sizes, steps, strict=True)
    )


def elements_at_once(
    sizes: Sequence[int],
    steps: Sequence[Sequence[int]],
    other_sizes: Sequence[int],
    other_steps: Sequence[Sequence[int]],
    word: int,
) -> int:
    """The number of elements along the last of these dimensions that move at once, in all tensors: a word, or 1."""
    walks = [(sizes[:-1], tensor[:-1]) for tensor in steps] + [(other_sizes, tensor) for tensor in other_steps]
    whole = all(tensor[-1] == 1 for tensor in steps) and whole_words(walks, sizes[-1], word)
    return word if whole else 1


def steps_in_units(steps: Sequence[int], width: int, own: int) -> tuple[int, ...]:
    """Steps in units of ``width`` elements. Where the last dimension counts units itself (``own`` above 1), its step of one
    element is one of a unit."""
    return (*(step // width for step in steps[:-1]), steps[-1] if own > 1 else steps[-1] // width)


def loads_in_flight(problem: UnitRows, caps: Capabilities) -> int:
    """Units of a tensor that an invocation loads before it uses the first: enough to hide a GPU's memory. A CPU's caches
    need none of it, and the code that unrolls them only takes longer to compile."""
    if caps.is_cpu:
        return 1
    return 4 if problem.unit_elements > 1 else 8


def row_shares(problem: UnitRows, caps: Capabilities, loads: int, most_units: int) -> tuple[dict[str, int], int]:
    """Constants and the number of workgroups of a kernel whose workgroups have whole rows.

    Args:
        problem: The rows.
        caps: The device.
        loads: Units that a lane should load at a time.
        most_units: Units of a lane beyond which a row has as many lanes as there may be.
    """
    most = most_invocations(caps)
    # A cache line or two at a time first, then several loads in flight in each lane.
    lanes = min(power_of_two(max(min(problem.row_units, 32), -(-problem.row_units // loads))), most, 512)
    if -(-problem.row_units // lanes) > most_units:
        lanes = most
    # Many rows fill the device with large workgroups; few rows spread over it better in small ones.
    invocations = max(lanes, min(_WORKGROUP if problem.rows * lanes >= caps.model.invocations(1) else 64, most))
    constants = {"LOCAL_SIZE_X": invocations, "UNITS": -(-problem.row_units // lanes), "LANES": lanes}
    return constants, -(-problem.rows // (invocations // lanes))


def row_chunks(
    problem: UnitRows,
    caps: Capabilities,
    most_units: int,
    *,
    workgroup: int = _WORKGROUP,
    most_chunks: int = 0,
) -> tuple[dict[str, int], int, int]:
    """Constants of a kernel whose workgroups have chunks of rows; the tiles of a chunk, and the chunks of a row.

    Args:
        problem: The rows.
        caps: The device.
        most_units: Units of a tile that a lane has at most.
        workgroup: Invocations of a workgroup, at most.
        most_chunks: Chunks of a row, at most; 0 for ``MOST_CHUNKS``.
    """
    invocations = min(most_invocations(caps), workgroup, max(power_of_two(problem.row_units), 64))
    units = min(most_units, -(-problem.row_units // invocations))
    tile = invocations * units
    tiles = -(-problem.row_units // (tile * (most_chunks or MOST_CHUNKS)))
    return {"LOCAL_SIZE_X": invocations, "UNITS": units}, tiles, -(-problem.row_units // (tile * tiles))


def column_invocations(caps: Capabilities) -> int:
    """The most invocations of a workgroup that has rows side by side."""
    return 4 * lanes_side_by_side(caps)


def column_shares(problem: UnitRows, caps: Capabilities, units: int, most_units: int) -> tuple[dict[str, int], int]:
    """Constants and the number of workgroups of a kernel whose workgroups have whole rows that lie side by side.

    Args:
        problem: The rows.
        caps: The device.
        units: Units of a lane, if cache lines allow it.
        most_units: Units that a lane has at most.
    """
    neighbours, most = problem.rows // problem.across, column_invocations(caps)
    columns = min(power_of_two(neighbours), 16 if problem.across > 1 else 32)
    lanes = min(power_of_two(-(-problem.row_units // units)), most // columns)
    lanes = max(lanes, power_of_two(-(-problem.row_units // most_units)))
    columns = min(power_of_two(neighbours), most // lanes)
    constants = {"LOCAL_SIZE_X": columns * lanes, "UNITS": power_of_two(-(-problem.row_units // lanes)), "COLUMNS": columns}
    return constants, -(-neighbours // columns)


class ColumnChunks(NamedTuple):
    """The division of rows that lie side by side: ``blocks`` of ``columns`` of them, each in ``chunks`` of ``tiles``
    tiles of ``lanes`` lanes."""

    columns: int
    lanes: int
    tiles: int
    chunks: int
    blocks: int


def column_chunks(
    problem: UnitRows,
    caps: Capabilities,
    units: int,
    workgroups: int,
    x: TensorDesc,
    partial_bytes: int,
    *,
    least_lanes: int = 1,
) -> ColumnChunks:
    """The shares of rows side by side that are too long for one workgroup.

    Args:
        problem: The rows.
        caps: The device.
        units: Loads that a lane has in flight.
        workgroups: The number of workgroups that fill the device.
        x: The input: partial results of the chunks may take a hundredth of its bytes, or 1 MiB.
        partial_bytes: The bytes of what a chunk leaves of a row.
        least_lanes: Lanes that a block has at least.
    """
    neighbours, most = problem.rows // problem.across, column_invocations(caps)
    room = max(2**20, x.element_count * element_bits(x.data_type) // 8 // 100) // (problem.rows * partial_bytes)
    columns = min(power_of_two(neighbours), 32, most // least_lanes)
    while True:
        lanes = min(most // columns, max(power_of_two(problem.row_units), least_lanes))
        tile, blocks = lanes * units, -(-neighbours // columns)
        most_chunks = max(1, min(room, -(-problem.row_units // tile)))
        # The partials' memory bounds the chunks: narrower blocks make more workgroups of as many, down to a cache line.
        if caps.is_cpu or columns <= 8 or blocks * most_chunks >= workgroups // 2:
            break
        columns //= 2
    wanted = min(-(-workgroups // blocks), most_chunks)
    tiles = -(-problem.row_units // (tile * wanted))
    return ColumnChunks(columns, lanes, tiles, -(-problem.row_units // (tile * tiles)), blocks)
