"""The rules of regions of interest."""

from __future__ import annotations

from dataclasses import dataclass

from dmlvk.kernels.common.rule import Rule, always

ROI_TABLE_ROWS, ROI_TABLE_COLUMNS = 256, 512
"""Most entries in the tables of ``roi_align_columns``: with its partial results 16 KiB in all, which is the least shared
memory that a device has."""


@dataclass(frozen=True)
class RoiAlignProblem:
    """ROI align, as its rules see it.

    Attributes:
        rows, columns: Fewest table entries: samples down, and pixels read across, by all outputs of a region that takes
            the minimum of samples.
        rows_contiguous: Whether the input's W is denser in memory than its channels.
    """

    rows: int
    columns: int
    rows_contiguous: bool


ROI_ALIGN = (
    Rule(
        "columns",
        when=lambda problem, caps: problem.rows_contiguous and not caps.is_cpu,
        possible=lambda problem, caps: problem.rows <= ROI_TABLE_ROWS and problem.columns <= ROI_TABLE_COLUMNS,
        because="rows run along memory, on a GPU: neighbours read one image row. On an H200, 1000 regions of 4x256x200x304 "
        "to 7x7 took 179 us in float32 and 166 us in float16; outputs took 381 and 315 us, torchvision 395 and 457 us",
    ),
    Rule(
        "outputs",
        when=always,
        possible=always,
        because="any layout and number of samples; neighbours read neighbouring channels where those are contiguous",
    ),
)

ROI_POOLING = (
    Rule(
        "outputs",
        when=always,
        possible=always,
        because="an output an invocation: neighbours read neighbouring cells, of which each pixel belongs to one or two",
    ),
)
