"""The rules of convolution."""

from __future__ import annotations

from dataclasses import dataclass

from dmlvk.kernels.caps import Capabilities
from dmlvk.kernels.select.matmul import GEMM_VECTOR_ROWS
from dmlvk.kernels.select.rule import Rule, always


@dataclass(frozen=True)
class ConvolutionProblem:
    """What the convolution rules read.

    Attributes:
        pixels: Output positions, all batch entries counted.
        groups, group_channels, group_outputs: Groups, and the input and output channels of each.
        taps: Of the window.
        divided: Whether positions are divided: direction BACKWARD with a stride above 1.
        forward: Whether the direction is FORWARD.
        segment: Inputs along W that a run of 4 outputs reads.
        is_product: Whether it is a plain matrix product of one pixel a batch entry: one group, one tap, no padding.
    """

    pixels: int
    groups: int
    group_channels: int
    group_outputs: int
    taps: int
    divided: bool
    forward: bool
    segment: int
    is_product: bool


def _few_pixels(problem: ConvolutionProblem, caps: Capabilities) -> bool:
    return problem.is_product and problem.pixels <= GEMM_VECTOR_ROWS


def _depthwise(problem: ConvolutionProblem, caps: Capabilities) -> bool:
    channels = problem.groups * problem.group_outputs
    single = problem.group_channels == 1 and problem.forward
    return single and problem.segment <= 64 and channels <= caps.workgroup_counts[2]


def _direct(problem: ConvolutionProblem, caps: Capabilities) -> bool:
    return problem.groups * problem.group_outputs <= caps.workgroup_counts[2]


def _tiled(problem: ConvolutionProblem, caps: Capabilities) -> bool:
    return problem.groups <= caps.workgroup_counts[2] and problem.pixels <= caps.workgroup_counts[0]


CONVOLUTION = (
    Rule(
        "vector",
        when=lambda problem, caps: not caps.is_cpu,
        possible=_few_pixels,
        because="one pixel of at most 4 images under a 1x1 window is a matrix times few vectors, which needs one read of "
        "the weights; see the rule of that name for Gemm",
    ),
    Rule(
        "depthwise",
        when=always,
        possible=_depthwise,
        because="one input channel a group, FORWARD: overlapping windows of a run of outputs are read once; 3x3 on "
        "32x256x56x56 on an H200 in 0.13 ms against 0.50 with an invocation an output, on lavapipe 4 times faster, too",
    ),
    Rule(
        "tiled",
        when=lambda problem, caps: (
            not caps.is_cpu and problem.group_channels >= 8 and problem.group_outputs >= 16 and problem.pixels >= 32
        ),
        possible=_tiled,
        because="enough channels and pixels to fill tiles in shared memory, on a GPU: on an H200 3x3 on 1x256x14x14 in 77 "
        "us against 352 with the direct schedule; below 8 channels a group (7x7, 3 channels) the direct one is as fast",
    ),
    Rule(
        "direct",
        when=lambda problem, caps: problem.group_outputs > 1 and problem.pixels >= 8,
        possible=_direct,
        because="several output channels a group: each input value read serves 8 of them, without barriers; the 1x1 layers "
        "of a MobileNet run 5 times faster on lavapipe than with an invocation an output",
    ),
    Rule("naive", when=always, possible=always, because="any convolution: one invocation an output"),
)
