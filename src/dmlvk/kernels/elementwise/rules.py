"""The rules of pointwise operators and activations."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from dmlvk.kernels.common.access import Access
from dmlvk.kernels.common.rule import Rule, always
from dmlvk.kernels.common.shapes import Coalesced, group_lanes
from dmlvk.spec.enums import TensorDataType
from dmlvk.spec.tensor import element_bits, packed_strides


class Turned(NamedTuple):
    """A tensor that is contiguous in another dimension than the rest.

    Attributes:
        tensor: The tensor, counting the inputs and then the output; a lone input is the turned one, not its output.
        row: The dimension in which it is contiguous (where it is the output: in which the inputs are).
    """

    tensor: int
    row: int


@dataclass(frozen=True)
class ElementwiseProblem:
    """Pointwise operators, as their kernels see them.

    Attributes:
        input_type, output_type: The kernel's: the tensors', or for what acts on bits the unsigned type of the same size.
        walk: The dimensions in the order in which the output lies in memory, merged; steps of the inputs and the output
            in elements.
        costly: Whether the operator is (``Traits``).
    """

    input_type: TensorDataType
    output_type: TensorDataType
    walk: Coalesced
    costly: bool = False

    @property
    def group_lanes(self) -> int:
        """Elements that an invocation handles at once where rows are contiguous."""
        return group_lanes(element_bits(self.input_type), element_bits(self.output_type))

    @property
    def output_is_packed(self) -> bool:
        """Whether the output lies packed in the order of the walk."""
        return self.walk.strides[-1] == packed_strides(self.walk.sizes)

    def access(self, lanes: int, turned: Turned | None = None) -> tuple[Access, ...]:
        """The access of each tensor's lanes: along the innermost dimension, but for the turned tensor."""
        found = []
        for tensor, steps in enumerate(self.walk.strides):
            is_input = tensor < len(self.walk.strides) - 1
            along_rows = turned is not None and is_input and turned.tensor in (tensor, len(self.walk.strides) - 1)
            found.append(_access(steps, turned.row if turned is not None and along_rows else len(steps) - 1, lanes))
        return tuple(found)

    @property
    def turned(self) -> Turned | None:
        """The only tensor that is contiguous in another dimension than the others, if there is one."""
        *inputs, output = self.walk.strides
        if output[-1] != 1:
            return None
        rows = {i: steps.index(1) for i, steps in enumerate(inputs) if steps[-1] > 1 and 1 in steps}
        if any(steps[-1] > 1 for i, steps in enumerate(inputs) if i not in rows):
            return None
        if len(rows) == 1:
            return Turned(*rows.popitem())
        return Turned(len(inputs), rows[0]) if len(set(rows.values())) == 1 else None


def _access(steps: tuple[int, ...], inner: int, lanes: int) -> Access:
    if lanes > 1 and steps[inner] == 0:
        return Access.BROADCAST
    others = steps[:inner] + steps[inner + 1 :]
    whole = lanes > 1 and steps[inner] == 1 and all(step % lanes == 0 for step in others)
    return Access.GROUPS if whole else Access.ELEMENTS


def tiles_pay(problem: ElementwiseProblem) -> bool:
    """Whether most of a tile is there."""
    assert problem.turned is not None, "the rule has shown it to be there"
    return min(problem.walk.sizes[problem.turned.row], problem.walk.sizes[-1]) >= 16


ELEMENTWISE = (
    Rule(
        "tiles",
        when=lambda p, caps: not caps.is_cpu and tiles_pay(p),
        possible=lambda p, caps: p.turned is not None and p.input_type == p.output_type,
        because="one tensor is contiguous in another dimension than the others: tiles through shared memory read and write "
        "whole cache lines. H200, 16384x8192 transposed in float32: 3870 GB/s against 1150 by elements; NCHW plus NHWC in "
        "float16: 4170 against 860. A CPU's caches do that by themselves",
    ),
    Rule(
        "groups",
        when=lambda p, caps: Access.ELEMENTS not in p.access(p.group_lanes),
        possible=always,
        because="rows lie contiguous and start on groups: one index and one access of up to 16 bytes for several elements. "
        "H200, float32: add at 4276 GB/s; a row broadcast at 4116, by elements at 3929; float16: 4088, by elements 2665",
    ),
    Rule(
        "runs",
        when=lambda p, caps: not caps.is_cpu,
        possible=lambda p, caps: p.output_is_packed and p.walk.sizes[-1] >= p.group_lanes,
        because="a packed output and rows that start anywhere: a group of the output takes its inputs from at most two "
        "rows: two indices serve it, and one store. H200, five dimensions in rows of 129: float16 at 2940 GB/s against 1630 "
        "by elements, float32 at 3940 against 3250; two numbers a channel over planes of 49: float16 at 3795 GB/s, and at "
        "2410 where each lane loads its own",
    ),
    Rule(
        "elements",
        when=always,
        possible=always,
        because="any strides: one element at a time, several in flight. H200, five dimensions in float32: 3250 GB/s with "
        "four in flight, 1605 with one",
    ),
)

ELEMENTWISE_ITEMS = tuple(rule for rule in ELEMENTWISE if rule.name in ("groups", "elements"))
"""The rules of ElementWiseIf, ElementWisePow and ElementWiseQuantizedLinearAdd, whose kernels have these two forms alone."""
