"""The rules of local response normalization and its gradient."""

from __future__ import annotations

from dataclasses import dataclass

from dmlvk.devices.capabilities import Capabilities
from dmlvk.kernels.common.access import Access
from dmlvk.kernels.common.rule import Rule, always
from dmlvk.kernels.common.shapes import group_lanes
from dmlvk.kernels.elementwise.rules import ElementwiseProblem
from dmlvk.spec.tensor import element_bits


@dataclass(frozen=True)
class LocalResponseProblem:
    """Local responses as their kernels see them.

    Attributes:
        walk: The walk over the inputs, the coordinates in the region's dimensions, A and B, as if they were tensors'
            offsets, and the output.
        local_size: The size of a region along each of its dimensions.
        region: Most elements of one, there being no more in the tensor.
    """

    walk: ElementwiseProblem
    local_size: int
    region: tuple[int, ...]

    @property
    def lanes(self) -> int:
        """Elements that an invocation of the gradient's kernels handles at once: 16 bytes of float32."""
        return group_lanes(element_bits(self.walk.input_type), 32)

    def in_groups(self, lanes: int) -> bool:
        """Whether rows, across which regions do not reach, are contiguous and start on groups of so many elements."""
        across = self.walk.walk.strides[-3:-1]
        return Access.ELEMENTS not in self.walk.access(lanes) and not any(steps[-1] for steps in across)


LOCAL_RESPONSE_NORMALIZATION = (
    Rule(
        "groups",
        when=always,
        possible=lambda p, caps: p.in_groups(p.walk.group_lanes),
        because="contiguous rows across which regions do not reach: accesses of 16 bytes, and the elements of a region are "
        "read from memory once and then from the nearest cache. H200, across 5 channels of 32x256x56x56 in float32: 72 us, "
        "PyTorch 920",
    ),
    Rule("elements", when=always, possible=always, because="any strides: one element at a time, neighbours by neighbours"),
)


STREAMED_SIZE = 9
"""The longest region that an invocation keeps in registers: with 4 lanes about 100 of them."""


def streamed(problem: LocalResponseProblem, caps: Capabilities) -> bool:
    """Whether regions are of one dimension and short."""
    return len(problem.region) == 1 and problem.local_size <= STREAMED_SIZE


LOCAL_RESPONSE_GRADIENT = (
    Rule(
        "groups",
        when=always,
        possible=lambda p, caps: streamed(p, caps) and p.in_groups(p.lanes),
        because="regions of a few channels: an invocation goes along them and keeps a region's in registers, and needs no "
        "memory but the tensors', which are read and written once in accesses of 16 bytes of float32. H200, 5 channels of "
        "32x256x56x56 in float32: 127 us, 250 with terms kept in memory, PyTorch 1380",
    ),
    Rule("elements", when=always, possible=streamed, because="the same for any strides, one element at a time"),
    Rule(
        "staged_groups",
        when=always,
        possible=lambda p, caps: p.in_groups(p.lanes),
        because="long regions and those in two dimensions: the terms of the sums, of which each is in as many sums as a "
        "region has elements, are made once and kept: temporary memory of a float32 for each element. H200, squares of "
        "5 x 5 in 32x256x56x56 in float32: 1430 us, PyTorch 1820",
    ),
    Rule("staged", when=always, possible=always, because="the same for any strides, one element at a time"),
)
