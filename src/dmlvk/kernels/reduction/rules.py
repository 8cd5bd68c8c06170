"""The rules of reductions."""

from __future__ import annotations

import math
from dataclasses import dataclass

from dmlvk.devices.capabilities import Capabilities
from dmlvk.kernels.common.rule import Rule, always
from dmlvk.kernels.common.shapes import WORD_BITS, Coalesced
from dmlvk.spec.enums import TensorDataType
from dmlvk.spec.tensor import element_bits


@dataclass(frozen=True)
class ReductionProblem:
    """Reductions as their kernels see them.

    Attributes:
        data_type: The type of the input.
        kept: The kept dimensions in the order of memory, merged: strides of the input and the output in elements.
        row: The reduced dimensions, merged: strides of the input.
    """

    data_type: TensorDataType
    kept: Coalesced
    row: Coalesced

    @property
    def rows(self) -> int:
        """The number of rows: each becomes one result."""
        return math.prod(self.kept.sizes)

    @property
    def row_elements(self) -> int:
        """The number of elements that each result is made of."""
        return math.prod(self.row.sizes)

    @property
    def lanes(self) -> int:
        """The number of elements in an access of 16 bytes."""
        return WORD_BITS // element_bits(self.data_type)

    @property
    def row_lanes(self) -> int:
        """Elements of a row in one access: those of 16 bytes where rows are contiguous, else 1."""
        lanes = self.lanes
        *outer, inner = self.row.strides[0]
        if inner != 1:
            return 1
        if not outer and self.row_elements >= 4 * lanes:
            return lanes  # wherever it starts
        around = (*outer, *self.kept.strides[0]) if self.rows > 1 else outer
        return lanes if self.row.sizes[-1] % lanes == 0 and all(step % lanes == 0 for step in around) else 1

    @property
    def row_shift(self) -> int:
        """The most elements by which a row starts after a whole access."""
        steps = self.kept.strides[0] if self.rows > 1 else ()
        return 0 if all(step % self.row_lanes == 0 for step in steps) else self.row_lanes - 1

    @property
    def row_units(self) -> int:
        """The number of accesses that read a row."""
        return -(-self.row_elements // self.row_lanes)

    @property
    def column_lanes(self) -> int:
        """Neighbouring rows in one access: those of 16 bytes where they are contiguous, else 1."""
        lanes = self.lanes
        *outer, inner = self.kept.strides[0]
        around = (*outer, *self.row.strides[0])
        whole = inner == 1 and self.kept.sizes[-1] >= lanes and all(step % lanes == 0 for step in around)
        return lanes if whole else 1

    @property
    def side_by_side(self) -> bool:
        """Whether neighbours in memory belong to different rows."""
        return self.kept.sizes[-1] > 1 and self.kept.strides[0][-1] < self.row.strides[0][-1]

    @property
    def partial_bytes(self) -> int:
        """The bytes of an accumulator in memory."""
        if self.data_type is TensorDataType.FLOAT64:
            return 16
        return 12 if element_bits(self.data_type) == 64 else 8


def _few(problem: ReductionProblem, caps: Capabilities, lanes: int) -> bool:
    """Whether the rows, so many to an invocation, and up to 8 invocations a row or column leave most of the device idle."""
    return problem.rows // lanes < caps.model.invocations(1 / 32)


REDUCTION = (
    Rule(
        "columns_split",
        when=lambda p, caps: (
            p.row_elements >= 2**14 if caps.is_cpu else _few(p, caps, p.column_lanes) and p.row_elements >= 256
        ),
        possible=lambda p, caps: p.side_by_side and p.row_elements >= 32,
        because="neighbours in memory belong to different rows, and these are few and long: chunks of them in as many "
        "workgroups, and a second dispatch that merges; on a CPU because its driver may end the loops of an invocation "
        "after 65535 rounds in all, those within others included. H200, 8192 columns of 16384 summed in float32: 4085 GB/s "
        "against 2096 in one dispatch",
    ),
    Rule(
        "columns",
        when=always,
        possible=lambda p, caps: p.side_by_side,
        because="neighbours in memory belong to different rows: neighbouring invocations take neighbouring rows, 16 bytes "
        "of them each. H200, over the channels of 64x256x128x64 in float32: 4010 GB/s",
    ),
    Rule(
        "split",
        when=lambda p, caps: (
            p.row_units >= 2**14 if caps.is_cpu else p.rows < caps.model.workgroups(4) and p.row_units >= 2**13
        ),
        possible=lambda p, caps: p.row_units >= 64,
        because="few long rows: chunks of them in as many workgroups, and a second dispatch that merges; on a CPU as above. "
        "H200, 2^28 float32 summed: 4268 GB/s against 22 by one workgroup",
    ),
    Rule(
        "workgroup",
        when=lambda p, caps: not caps.is_cpu and p.rows * caps.subgroup_size < caps.model.invocations(1),
        possible=lambda p, caps: p.row_units >= 2 * caps.subgroup_size,
        because="too few rows to fill a GPU with a subgroup each",
    ),
    Rule(
        "subgroup",
        when=always,
        possible=always,
        because="a subgroup, or a part of one, for each row: no barriers. H200, 16384 rows of 8192 float32: 4342 GB/s, by "
        "workgroups 4155; their arg-max 4013 against 3366",
    ),
)
