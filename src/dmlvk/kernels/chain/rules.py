"""The rules of chains of pointwise operators: those of single ones, without tiles; and those of several tensors at once."""

from __future__ import annotations

from dataclasses import dataclass

from dmlvk.kernels.common.rule import Rule, always
from dmlvk.kernels.elementwise.rules import ELEMENTWISE, ElementwiseProblem

CHAIN = tuple(rule for rule in ELEMENTWISE if rule.name != "tiles")
"""The pass that makes chains leaves alone what tiles would move."""


@dataclass(frozen=True)
class MultiTensorProblem:
    """The same chain for several tensors.

    Attributes:
        chains: The problem of each.
        inputs: The inputs of each.
        buffers: The storage buffers of the kernel that treats them together.
    """

    chains: tuple[ElementwiseProblem, ...]
    inputs: int
    buffers: int

    @property
    def broadcast(self) -> int | None:
        """The inputs that are one element for all of a tensor, as bits; None where inputs lie otherwise than as a line, or
        tensors differ in them."""
        found = {_broadcast(problem, self.inputs) for problem in self.chains}
        return found.pop() if len(found) == 1 else None


def _broadcast(problem: ElementwiseProblem, inputs: int) -> int | None:
    walk = problem.walk
    if len(walk.sizes) > 1 or (walk.sizes[0] > 1 and walk.strides[-1] != (1,)):
        return None
    steps = [own[0] if walk.sizes[0] > 1 else 1 for own in walk.strides[:inputs]]
    return sum(1 << index for index, step in enumerate(steps) if not step) if {0, 1}.issuperset(steps) else None


MULTI_TENSOR = (
    Rule(
        "together",
        when=always,
        possible=lambda p, caps: p.broadcast is not None and p.buffers <= caps.storage_buffers,
        because="every tensor lies as a line, and the device binds them all: one launch treats them",
    ),
    Rule(
        "apart",
        when=always,
        possible=always,
        because="tensors that lie otherwise, or more of them than the device binds: a launch each, beside each other",
    ),
)
