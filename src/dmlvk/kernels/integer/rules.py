"""The rules of integer and quantized products."""

from __future__ import annotations

from dataclasses import dataclass

from dmlvk.devices.capabilities import Capabilities, CooperativeMatrix
from dmlvk.kernels.common.cooperative_matrix import cooperative_matrix, matrices_pay
from dmlvk.kernels.common.rule import Rule, always

DEPTHWISE_PIXELS = 4
"""Neighbouring outputs along W that an invocation of the depthwise kernel computes."""
VECTOR_ROWS = 8
"""Most rows that the kernel for few rows takes: it keeps one sum a row in registers."""
LEAST_K = 16
"""Bytes of a line that a cooperative matrix takes at least: a whole word of shared memory."""
NAIVE_BLOCK = 1024
"""Terms that the naive kernel adds before it adds their sum to the whole one."""
PACKED_LINES = 32
PACKED_CHANNELS = 128
"""The lines and channels of a workgroup that packs operands (``glsl/integer_pack.comp``)."""


@dataclass(frozen=True)
class IntegerProblem:
    """An integer product, as its rules see it; see ``glsl/include/integer.glsl``.

    Attributes:
        rows, columns: The sizes of a group: of a matrix product's output, or the pixels and output channels of a
            convolution.
        channels: Terms of a sum under one tap.
        taps: The taps of the window.
        groups: Groups, or matrices of a batch.
        input_lines: The lines of a group: rows of a matrix, or the input's pixels.
        exact: Whether sums are integers; else they are added in float32.
        plain: Whether rows are the lines of the input: one tap that meets all of it.
        segment: Inputs along W that a run of ``DEPTHWISE_PIXELS`` outputs reads; 0 of a matrix product.
    """

    rows: int
    columns: int
    channels: int
    taps: int
    groups: int
    input_lines: int
    exact: bool
    plain: bool
    segment: int

    @property
    def filter_lines(self) -> int:
        """The lines of a group's filter: the taps of all its output channels."""
        return self.columns * self.taps

    def padded_channels(self, multiple: int) -> int:
        """Channels of a packed line."""
        return -(-self.channels // multiple) * multiple


def _packs(problem: IntegerProblem, caps: Capabilities) -> bool:
    """Whether packed operands fit the device's bindings and grids; tiles are of 32 lines or more."""
    lines = max(problem.input_lines, problem.filter_lines, problem.rows)
    x, y, z = caps.workgroup_counts
    return (
        problem.exact
        and problem.groups * lines * problem.padded_channels(64) <= caps.storage_buffer_bytes
        and -(-lines // PACKED_LINES) <= min(x, y)
        and -(-problem.channels // PACKED_CHANNELS) <= y
        and problem.groups <= z
    )


def byte_matrix(caps: Capabilities) -> CooperativeMatrix | None:
    """The shape in which subgroups multiply INT8 to INT32; None where the device has none that takes whole words."""
    found = cooperative_matrix(caps, "int8", "int32") if "int8" in caps.features else None
    return None if found is None or found.k < LEAST_K else found


def _cooperative(problem: IntegerProblem, caps: Capabilities) -> bool:
    return byte_matrix(caps) is not None and _packs(problem, caps)


def _depthwise(problem: IntegerProblem, caps: Capabilities) -> bool:
    return problem.channels == 1 and 0 < problem.segment <= 32 and problem.taps <= 64


def _few_rows(problem: IntegerProblem, caps: Capabilities) -> bool:
    return problem.plain and problem.rows <= VECTOR_ROWS and _packs(problem, caps)


def _fills_tiles(problem: IntegerProblem, caps: Capabilities) -> bool:
    """Whether tiles are worth it though lines be filled up to 32 channels, which a GPU's arithmetic has to spare."""
    if caps.is_cpu:
        return min(problem.rows, problem.columns, problem.channels) >= 16
    return problem.rows > VECTOR_ROWS and problem.columns >= 8 and problem.channels >= 3


INTEGER = (
    Rule(
        "depthwise",
        when=always,
        possible=_depthwise,
        because="one input channel a group: overlapping windows of a run of outputs are read once, and no loop is left; on "
        "lavapipe 3x3 on 64x28x28 in 6 ms against 33 with an invocation an output, on an H200 on 32x256x56x56 in 157 us "
        "against 740",
    ),
    Rule(
        "vector",
        when=lambda problem, caps: not caps.is_cpu and problem.columns >= 16 and problem.channels >= 64,
        possible=_few_rows,
        because="at most 8 rows, on a GPU: bound by one read of the packed columns; 1x4096 by 4096x4096, packed once, on an "
        "H200 in 8 us against 726 with an invocation an output, 8 rows in 15 against 16 with tiles of cooperative matrices",
    ),
    Rule(
        "cooperative",
        when=lambda problem, caps: matrices_pay(caps, "int8") and _fills_tiles(problem, caps),
        possible=_cooperative,
        because="rows, columns and channels enough for tiles, and subgroups that multiply matrices of INT8: operands are "
        "packed first, in temporary memory as large as they are or once at initialisation; on an H200 4096^3 at 643 TOP/s "
        "against 85 with the tiles of the next rule, and 340 in float16",
    ),
    Rule(
        "tiled",
        when=lambda problem, caps: _fills_tiles(problem, caps),
        possible=_packs,
        because="rows, columns and channels enough for tiles in shared memory: operands are packed first, in temporary "
        "memory as large as they are or once at initialisation, so that four products are one instruction; on an H200 "
        "4096^3 at 85 TOP/s, on lavapipe 256^3 in 33 ms against 215 with an invocation an output",
    ),
    Rule("naive", when=always, possible=always, because="any product: one invocation an output"),
)
