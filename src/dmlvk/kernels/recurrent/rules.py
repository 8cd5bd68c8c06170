"""The rules of recurrent networks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from dmlvk.devices.capabilities import Capabilities
from dmlvk.kernels.common.rule import Rule, always
from dmlvk.kernels.common.shapes import most_invocations, power_of_two


@dataclass(frozen=True)
class RecurrentProblem:
    """A recurrent network, as its rules see it.

    Attributes:
        gates: The gates of the cell.
        products: A step's dependent products with the recurrence matrix: two of a GRU whose reset gate comes before it.
        directions, steps, batch, inputs, hidden: The sizes of the network.
    """

    gates: int
    products: int
    directions: int
    steps: int
    batch: int
    inputs: int
    hidden: int

    @property
    def projection_bytes(self) -> int:
        """The bytes of the input's products of all steps, in float32."""
        return 4 * self.directions * self.steps * self.batch * self.gates * self.hidden

    @property
    def quads(self) -> int:
        """16-byte words of a row of the recurrence matrix in float32."""
        return -(-self.hidden // 4)

    @property
    def largest_bytes(self) -> int:
        """The bytes of the largest tensor that may have to be staged in float32 or made from one."""
        rows = self.directions * self.gates * self.hidden
        matrices = max(16 * self.quads, 4 * self.inputs) * rows
        return max(self.projection_bytes, matrices, 4 * self.steps * self.batch * self.inputs)


class ResidentShape(NamedTuple):
    """The shape of a workgroup that keeps a recurrence matrix in registers; see ``glsl/recurrent_whole.comp``."""

    local: int
    lanes: int
    share: int


CPU_ROUNDS = 60000
"""The most rounds of all loops of an invocation before a CPU's driver ends them; see ``shapes.check_rounds``."""
_RESIDENT_WORKGROUP, _RESIDENT_QUADS = 512, 36
"""Most invocations, and most quads of the recurrence matrix in the registers of each: together they fill a register file of
256 KiB, and an LSTM of 128 units is still faster with a part of them spilt than with a dispatch a step."""


def most_lanes(problem: RecurrentProblem, caps: Capabilities) -> int:
    """The most invocations that share a unit's products: no more than a row of the recurrence matrix has words, nor than a
    subgroup has for certain."""
    return min(32, caps.least_subgroup, power_of_two(problem.quads))


def resident_shape(problem: RecurrentProblem, caps: Capabilities) -> ResidentShape | None:
    """The shape with the fewest invocations, None where each would have too many quads: what they have to do but multiply
    grows with their number."""
    lanes = 1
    while lanes <= most_lanes(problem, caps):
        local = max(32, power_of_two(problem.hidden * lanes))
        shape = ResidentShape(local, lanes, -(-problem.quads // lanes))
        if local <= min(most_invocations(caps), _RESIDENT_WORKGROUP) and shape.share * problem.gates <= _RESIDENT_QUADS:
            return shape
        lanes *= 2
    return None


def _step(problem: RecurrentProblem, caps: Capabilities) -> bool:
    fits = problem.largest_bytes <= caps.storage_buffer_bytes
    return fits and "subgroup_shuffle" in caps.features and problem.batch <= caps.workgroup_counts[1]


def _whole(problem: RecurrentProblem, caps: Capabilities) -> bool:
    shape = resident_shape(problem, caps)
    if shape is None or not _step(problem, caps) or problem.batch > caps.workgroup_counts[0]:
        return False
    # As if a CPU's driver kept the loops of constant length.
    return not caps.is_cpu or problem.steps * (1 + problem.gates * (shape.share + 3)) <= CPU_ROUNDS


RECURRENT = (
    Rule(
        "whole",
        when=lambda problem, caps: not caps.is_cpu,
        possible=_whole,
        because="the recurrence matrix fits the registers of one workgroup, on a GPU, so all steps are one dispatch: on an "
        "H200 100 steps of an LSTM of 64 units in 94 us, of 128 in 216 (346 and 355 with a dispatch a step)",
    ),
    Rule(
        "step",
        when=always,
        possible=_step,
        because="a dispatch a step, after one matrix product for the inputs of all steps: on an H200 100 steps of an LSTM "
        "of 512 units in 0.46 ms, 0.78 for 16 sequences and 1.6 for 64 (cuDNN 1.18, 1.22 and 2.2)",
    ),
    Rule("naive", when=always, possible=always, because="any network: one invocation a unit, both products inside"),
)
