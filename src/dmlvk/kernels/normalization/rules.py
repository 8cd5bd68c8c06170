"""The rules of normalization."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from dmlvk.devices.capabilities import Capabilities
from dmlvk.kernels.common.access import Access
from dmlvk.kernels.common.rule import Rule, always
from dmlvk.kernels.common.shapes import Coalesced, most_invocations
from dmlvk.kernels.elementwise.rules import ElementwiseProblem
from dmlvk.kernels.normalization.manifest import COLUMN_INVOCATIONS


@dataclass(frozen=True)
class MeanVarianceProblem:
    """Mean-variance normalization as its kernels see it: rows of units (include/mean_variance.glsl has the terms).

    Attributes:
        rows: Sets of elements that share a mean.
        row_units: Units in a row.
        unit_elements: Elements in a unit: those of a 16-byte word, or 1.
        side_by_side: Whether neighbours in memory belong to different rows.
        across: The number of rows side by side that move together, one element each: those of a word, or 1.
        kept: The kept dimensions, merged: steps of x, scale, bias, add, y, mean, variance.
        row: The reduced dimensions, merged: steps of x, add, y.
        side: The reduced dimensions, merged: steps of scale, bias.
    """

    rows: int
    row_units: int
    unit_elements: int
    side_by_side: bool
    across: int
    kept: Coalesced
    row: Coalesced
    side: Coalesced

    def units_in_registers(self, caps: Capabilities) -> int:
        """The longest row that one workgroup holds: 64 registers an invocation, 32 where there are more than 512."""
        return min(caps.workgroup_invocations, 512) * (16 if self.unit_elements > 1 else 64)


def lanes_side_by_side(caps: Capabilities) -> int:
    """Most invocations of a workgroup that share a row side by side with others: four neighbours fill an access."""
    return min(most_invocations(caps), COLUMN_INVOCATIONS) // 4


MEAN_VARIANCE_COLUMN_UNITS = 16
"""Most units that an invocation holds of rows side by side: 64 registers where they are words."""

MEAN_VARIANCE_NORMALIZATION = (
    Rule(
        "columns",
        when=always,
        possible=lambda p, caps: p.side_by_side and p.row_units <= MEAN_VARIANCE_COLUMN_UNITS * lanes_side_by_side(caps),
        because="neighbours in memory belong to different rows: neighbouring invocations take neighbouring rows, so that "
        "reads and writes touch whole cache lines. H200, over the channels of 32x256x56x56 in float32: 59 us, 397 by rows",
    ),
    Rule(
        "columns_split",
        when=always,
        possible=lambda p, caps: p.side_by_side,
        because="rows side by side that are too long for the registers of their lanes: cut into chunks, too, so that few "
        "columns occupy the whole device; two reads and one write of each byte. H200, each channel of each image of "
        "32x256x56x56 in NHWC, float32: 99 us, PyTorch 344",
    ),
    Rule(
        "rows",
        when=always,
        possible=lambda p, caps: p.row_units <= p.units_in_registers(caps),
        because="a row fits into the registers of one workgroup: one read and one write of each byte. H200, 16384x8192 in "
        "float32: 4050 GB/s against 2700 split",
    ),
    Rule(
        "split",
        when=always,
        possible=always,
        because="a row is too long for one workgroup's registers: two dispatches, rows cut into chunks. H200, 32 rows "
        "of 16 MiB: 2690 GB/s, 95 % of what two reads and a write can reach; normalizing a group of rows while the next is "
        "gathered, to find it in the cache, gave 1550 to 2450",
    ),
)


@dataclass(frozen=True)
class BatchNormalizationProblem(ElementwiseProblem):
    """Batch normalization with given statistics: the tensors x, mean, variance, scale, bias and output."""

    def data_in_groups(self) -> bool:
        """Whether x and the output move in groups, however the other tensors lie."""
        x, *_, output = self.access(self.group_lanes)
        return Access.ELEMENTS not in (x, output)

    @property
    def in_line(self) -> BatchNormalizationProblem | None:
        """The problem whose last dimension is this one's last two, if x and the output lie in one line and the other tensors
        stand still along the last: these are given for it as if they stood still along both."""
        sizes, strides = self.walk.sizes, self.walk.strides
        if len(sizes) < 2 or sizes[-1] < self.group_lanes or any(steps[-1] for steps in strides[1:-1]):
            return None
        if any(steps[-2:] != (sizes[-1], 1) for steps in (strides[0], strides[-1])):
            return None
        merged = Coalesced((*sizes[:-2], sizes[-2] * sizes[-1]), tuple((*steps[:-2], steps[-1]) for steps in strides))
        whole = merged.sizes[-1] % self.group_lanes == 0
        return dataclasses.replace(self, walk=merged) if whole else None


BATCH_NORMALIZATION = (
    Rule(
        "groups",
        when=always,
        possible=lambda p, caps: p.data_in_groups(),
        because="rows of the data lie contiguous and start on groups: accesses of 16 bytes, fewest instructions a byte. "
        "H200, 32x256x56x56 in float32: 3760 GB/s, 1830 by elements",
    ),
    Rule(
        "runs",
        when=always,
        possible=lambda p, caps: p.in_line is not None and p.in_line.data_in_groups(),
        because="channels of any length, one after the other: a group of the data has the statistics of at most two, and "
        "moves in one access. H200, 64x2048x7x7 in float16: 10 us, PyTorch 93",
    ),
    Rule("elements", when=always, possible=always, because="any strides and sizes: one element at a time"),
)
