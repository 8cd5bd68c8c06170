"""The rules of resampling."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from dmlvk.devices.capabilities import Capabilities
from dmlvk.kernels.common.rule import Rule, always
from dmlvk.kernels.common.shapes import group_lanes
from dmlvk.spec.enums import TensorDataType
from dmlvk.spec.tensor import element_bits


class SampledDimension(NamedTuple):
    """A dimension of a resampling: output o lies at ``(step * o + start) / parts`` of the input, all of them exact.

    Attributes:
        outputs, inputs: Its sizes.
        output_step, input_step: Elements of memory between neighbours.
        mapped: Whether positions must be worked out: where not, output o is input element o, input_step 0 included.
        step, start, parts: The whole numbers of that position. For NEAREST_NEIGHBOR they are such that rounding down
            gives the element.
        filter_scale: |Scale| where that antialiases, else 1.
    """

    outputs: int
    inputs: int
    output_step: int
    input_step: int
    mapped: bool = False
    step: int = 1
    start: int = 0
    parts: int = 1
    filter_scale: float = 1.0


@dataclass(frozen=True)
class ResampleProblem:
    """Resampling as its kernels see it.

    Attributes:
        data_type: The type of both tensors.
        linear: Whether the mode is LINEAR.
        dimensions: The dimensions in the order in which the output lies in memory, the last the densest; those not mapped
            merged.
    """

    data_type: TensorDataType
    linear: bool
    dimensions: tuple[SampledDimension, ...]

    @property
    def group_lanes(self) -> int:
        """Elements of a 16-byte word."""
        return group_lanes(element_bits(self.data_type))

    @property
    def inner(self) -> SampledDimension:
        """The dimension along which the output is densest."""
        return self.dimensions[-1]

    @property
    def antialiased(self) -> bool:
        """Whether any dimension antialiases."""
        return any(dimension.filter_scale < 1 for dimension in self.dimensions)

    @property
    def whole_factor(self) -> int:
        """The number of outputs of the innermost dimension for each input element, where that is 2 or 4 and each output
        reads elements next to its own only; else 0."""
        inner = self.inner
        if not inner.mapped or inner.step <= 0 or inner.parts % inner.step or inner.parts // inner.step not in (2, 4):
            return 0
        factor = inner.parts // inner.step
        first = inner.start // inner.parts
        last = (inner.start + (factor - 1) * inner.step) // inner.parts + self.linear
        return factor if first in (-1, 0) and last <= 1 else 0


def _dense_rows(problem: ResampleProblem, caps: Capabilities) -> bool:
    return problem.inner.output_step == 1 and problem.inner.outputs >= problem.group_lanes


RESAMPLE = (
    Rule(
        "whole",
        when=_dense_rows,
        possible=lambda p, caps: p.whole_factor > 0 and not p.antialiased,
        because="rows enlarged by 2 or 4: an invocation makes a 16-byte group of outputs from the few columns under them, "
        "which it combines in registers, and has the weights along the row as constants. H200, bilinear to 32x64x512x512 "
        "in float32: 3796 GB/s; with the outputs of a 16-byte group of inputs each, 2241",
    ),
    Rule(
        "shared",
        when=lambda p, caps: p.inner.input_step == 1 and _dense_rows(p, caps),
        possible=lambda p, caps: not p.inner.mapped,
        because="neighbours in memory, such as the channels of NHWC, lie at one position: 16-byte groups share it, its "
        "weights and its index arithmetic. H200, the same in NHWC: 3837 GB/s",
    ),
    Rule(
        "groups",
        when=_dense_rows,
        possible=lambda p, caps: p.inner.mapped and not p.antialiased,
        because="rows scaled by any factor: the outputs of a 16-byte group share the position in all other dimensions, "
        "each has a column of its own one step after its neighbour's, and one store writes them. H200, 1.5 times, float32: "
        "2440 GB/s",
    ),
    Rule("elements", when=always, possible=always, because="any strides and antialiased rows: one output at a time"),
)
