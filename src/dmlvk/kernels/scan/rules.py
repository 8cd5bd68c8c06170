"""The rules of running sums and products."""

from __future__ import annotations

from dataclasses import dataclass

from dmlvk.kernels.common.rule import Rule, always
from dmlvk.kernels.common.shapes import Coalesced


@dataclass(frozen=True)
class ScanProblem:
    """Running sums and products as their kernels see them.

    Attributes:
        rows: Sets of elements that are summed together.
        units: Units in a row.
        unit_elements: Elements in a unit: those of a 16-byte word, or 1.
        side_by_side: Whether neighbours in memory belong to different rows.
        kept: The dimensions beside the axis, merged: steps of x, y.
        steps: The steps of x and y along the axis.
    """

    rows: int
    units: int
    unit_elements: int
    side_by_side: bool
    kept: Coalesced
    steps: tuple[int, int]

    @property
    def length(self) -> int:
        """Elements of a row."""
        return self.units * self.unit_elements


SCAN = (
    Rule(
        "column chunks",
        when=lambda problem, caps: (
            problem.rows < (64 if caps.is_cpu else caps.model.workgroups(32)) and problem.length >= 4096
        ),
        possible=lambda problem, caps: problem.side_by_side and problem.length >= 256,
        because="few rows side by side, and long: cut into chunks, or too few workgroups would have work; two reads and a "
        "write of each byte",
    ),
    Rule(
        "columns",
        when=always,
        possible=lambda problem, caps: problem.side_by_side,
        because="neighbours in memory belong to different rows: neighbouring invocations take neighbouring rows, so that "
        "reads and writes touch whole cache lines; one read and one write of each byte. H200, along the first axis of "
        "16384x8192 in float32: 3027 GB/s",
    ),
    Rule(
        "chunks",
        when=lambda problem, caps: problem.rows < caps.model.workgroups(1) and problem.length >= 2**17,
        possible=lambda problem, caps: problem.length >= 4096,
        because="few rows, and long: cut into chunks, or too few workgroups would have work, and a loop would exceed the "
        "65535 rounds after which a CPU's driver may end it; two reads and a write of each byte. H200, 10^8 float32: 356 "
        "us, PyTorch 312",
    ),
    Rule(
        "rows",
        when=always,
        possible=always,
        because="invocations share a row: one read and one write of each byte. H200, 16384x8192 in float32: 4091 GB/s",
    ),
)
