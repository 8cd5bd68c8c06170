"""The rules of the gradients of normalizations."""

from __future__ import annotations

from dataclasses import dataclass

from dmlvk.devices.capabilities import Capabilities
from dmlvk.kernels.common.rule import Rule, always
from dmlvk.kernels.common.shapes import Coalesced
from dmlvk.kernels.normalization.rules import lanes_side_by_side


@dataclass(frozen=True)
class BatchGradientProblem:
    """The gradients of batch normalization as their kernels see them: rows of units (include/batch_gradient.glsl has the
    terms).

    Attributes:
        training: Whether dx depends on the sums, because the statistics were x's own.
        rows: Sets of elements that share a mean.
        row_elements: Elements in a row.
        unit_elements: Elements of a row in a unit: those of a 16-byte word, or 1.
        side_by_side: Whether neighbours in memory belong to different rows.
        across: The number of rows side by side that move together, one element each: those of a word, or 1.
        kept: The kept dimensions, merged: steps of x, dy, mean, variance, scale, dx, scale gradient, bias gradient.
        row: The summed dimensions, merged: steps of x, dy, dx.
    """

    training: bool
    rows: int
    row_elements: int
    unit_elements: int
    side_by_side: bool
    across: int
    kept: Coalesced
    row: Coalesced

    @property
    def row_units(self) -> int:
        """Units in a row."""
        return self.row_elements // self.unit_elements

    def units_in_registers(self, caps: Capabilities) -> int:
        """The longest row that one workgroup holds: 64 registers an invocation, 32 where there are more than 512."""
        return min(caps.workgroup_invocations, 512) * (8 if self.unit_elements > 1 else 32)

    def units_together(self, caps: Capabilities) -> int:
        """Units of each input that an invocation holds of a row that several workgroups share: 48 registers, so that three
        workgroups fit where 80 an invocation do; on a CPU, whose workgroups do not run together, few."""
        if caps.is_cpu:
            return 2
        return 6 if self.unit_elements > 1 else 12

    def rows_together(self, caps: Capabilities) -> bool:
        """Whether few workgroups hold a row."""
        return self.row_units <= MOST_TOGETHER * min(caps.workgroup_invocations, 256) * self.units_together(caps)

    def column_units(self) -> int:
        """Most units that an invocation holds of rows side by side: 64 registers."""
        return 8 if self.across > 1 else 16


MOST_TOGETHER = 20
"""Workgroups that hold a row together and wait for each other: as many as any but the smallest GPUs run at once."""

BATCH_GRADIENT = (
    Rule(
        "columns",
        when=always,
        possible=lambda p, caps: p.side_by_side and p.row_units <= p.column_units() * lanes_side_by_side(caps),
        because="neighbours in memory belong to different rows, which are short: neighbouring invocations take neighbouring "
        "rows and hold them, so that each byte is read once and there is one dispatch",
    ),
    Rule(
        "columns_split",
        when=always,
        possible=lambda p, caps: p.side_by_side,
        because="rows side by side that are too long for the registers of their lanes: cut into chunks, too, so that few "
        "columns occupy the whole device. H200, 32x256x56x56 in NHWC, float32, bytes that must move: 3580 GB/s with given "
        "statistics, 2180 in training, which reads twice; PyTorch 1200 and 2130. Reading a block of columns again while the "
        "cache held it gave 1450",
    ),
    Rule(
        "rows",
        when=always,
        possible=lambda p, caps: p.row_units <= p.units_in_registers(caps),
        because="a row of both inputs fits into the registers of one workgroup: each byte is read once, in one dispatch. "
        "H200, 64x2048x7x7 in float32: 29 us, 48 split; PyTorch 51",
    ),
    Rule(
        "together",
        when=lambda p, caps: not caps.is_cpu,
        possible=lambda p, caps: p.training and p.rows_together(caps),
        because="a row fits into the registers of a few workgroups together, which wait for each other's sums: each byte is "
        "read once. H200, 32x256x56x56 in float32: 112 us, 130 split; PyTorch 193",
    ),
    Rule(
        "split",
        when=always,
        possible=always,
        because="a row is too long for one workgroup's registers: two dispatches, rows cut into chunks. H200, 32x256x56x56 "
        "in float32 with given statistics: 3670 GB/s, 0.87 of a copy; in training, which reads twice, 2350. Finishing rows "
        "while the next are gathered, to find them in the cache, gave 2640 at best",
    ),
)
