"""The rules of pooling and unpooling."""

from __future__ import annotations

from dataclasses import dataclass

from dmlvk.kernels.common.rule import Rule, always


@dataclass(frozen=True)
class PoolingProblem:
    """A pooling, as its rules see it.

    Attributes:
        outputs: Elements of the output.
        window: Elements of a window.
        apart: Elements of memory between the windows of neighbouring outputs in a row; 0 where rows have one output.
        rows_contiguous: Whether the input's W is denser in memory than its channels.
        lane_words: Registers that an invocation takes which makes one row of neighbouring outputs; None where the plane's
            dilations are not 1 or a row is more than 32 groups, and of a norm.
        reduces: Whether a single window is the whole input and Reduce computes the same.
    """

    outputs: int
    window: int
    apart: int
    rows_contiguous: bool
    lane_words: int | None
    reduces: bool


POOLING_LANE_WORDS = 160
"""Most registers of elements and results: with what else an invocation needs they stay below 255, the most that it has."""

POOLING = (
    Rule(
        "reduce",
        when=always,
        possible=lambda problem, caps: problem.reduces,
        because="whole planes: a reduction over the spatial dimensions, whose schedules suit few long rows, many short ones "
        "and any layout. H200, the average of 32x256x128x128 in float32: 4204 GB/s",
    ),
    Rule(
        "lanes",
        when=lambda problem, caps: problem.apart != 0 or not problem.rows_contiguous,
        possible=lambda problem, caps: problem.lane_words is not None and problem.lane_words <= POOLING_LANE_WORDS,
        because="small windows: an invocation makes a group of neighbouring outputs and reads in groups, each element once "
        "for all windows that share it: fewest instructions a byte. H200, 3x3 over 32x256x56x56 in float32: 54 us, PyTorch "
        "333",
    ),
    Rule(
        "window",
        when=lambda problem, caps: (
            problem.window >= 2**14
            if caps.is_cpu
            else problem.rows_contiguous
            and (problem.apart == 0 or problem.apart >= 8)
            and (problem.window >= 128 or (problem.window >= 32 and problem.outputs <= caps.model.invocations(1 / 8)))
        ),
        possible=always,
        because="large windows at least 8 elements apart: an output's invocations read its window together. On an H200, "
        "16384 of 16x16 took 24 us, by outputs 49. On a CPU only those so large that an invocation's loops could exceed the "
        "65535 rounds after which the driver may end them",
    ),
    Rule(
        "outputs",
        when=always,
        possible=always,
        because="any window: neighbours read side by side, and windows that overlap meet in the cache",
    ),
)

QUANTIZED_POOLING = (Rule("outputs", when=always, possible=always, because="any window: one invocation an output"),)


@dataclass(frozen=True)
class MaxUnpoolingProblem:
    """An unpooling, as its rules see it: the bits of an element."""

    bits: int


MAX_UNPOOLING = (
    Rule(
        "in_output",
        when=always,
        possible=lambda problem, caps: problem.bits >= 32,
        because="elements have room for a position: the output itself is the table of which input goes where",
    ),
    Rule(
        "table",
        when=always,
        possible=always,
        because="narrow elements: the table is temporary memory, in parts that a binding holds",
    ),
)
