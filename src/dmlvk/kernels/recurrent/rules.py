"""The rules of recurrent networks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from dmlvk.devices.capabilities import Capabilities, CooperativeMatrix
from dmlvk.kernels.common.cooperative_matrix import cooperative_matrix, matrices_pay
from dmlvk.kernels.common.rule import Rule, always
from dmlvk.kernels.common.shapes import most_invocations, power_of_two


@dataclass(frozen=True)
class RecurrentProblem:
    """A recurrent network, as its rules see it.

    Attributes:
        gates: The gates of the cell.
        products: A step's dependent products with the recurrence matrix: two of a GRU whose reset gate comes before it.
        directions, steps, batch, inputs, hidden: The sizes of the network.
        divisible: Whether the input's products of some steps can be made without those of others.
        halves: Whether the tensors are of FLOAT16, with rows of the recurrence matrix that consist of aligned words.
        bounded: Whether its functions keep the states far from the largest number of FLOAT16.
    """

    gates: int
    products: int
    directions: int
    steps: int
    batch: int
    inputs: int
    hidden: int
    divisible: bool
    halves: bool
    bounded: bool

    @property
    def projection_bytes(self) -> int:
        """The bytes of the input's products of all steps, in float32."""
        return self.steps * self.step_bytes

    @property
    def step_bytes(self) -> int:
        """The bytes of the input's products of a step, in float32."""
        return 4 * self.directions * self.batch * self.gates * self.hidden

    @property
    def step_launches(self) -> int:
        """The launches of all steps where each has its own."""
        return self.steps * self.products

    @property
    def quads(self) -> int:
        """16-byte words of a row of the recurrence matrix in float32."""
        return -(-self.hidden // 4)

    @property
    def matrix_bytes(self) -> int:
        """The bytes of the larger of both matrices in float32."""
        return max(16 * self.quads, 4 * self.inputs) * self.directions * self.gates * self.hidden

    @property
    def sequence_bytes(self) -> int:
        """The bytes that a step needs of the largest tensor that is staged in float32 or made from one."""
        return max(self.step_bytes, 4 * self.batch * self.inputs)

    @property
    def largest_bytes(self) -> int:
        """The bytes of the largest tensor that may have to be staged in float32 or made from one."""
        return max(self.matrix_bytes, self.steps * self.sequence_bytes)


class ResidentShape(NamedTuple):
    """The shape of a workgroup that keeps a recurrence matrix in registers; see ``glsl/recurrent_whole.comp``."""

    local: int
    lanes: int
    share: int


CPU_ROUNDS = 60000
"""The most rounds of all loops of an invocation before a CPU's driver ends them; see ``shapes.check_rounds``."""
STEP_ALIGNMENT = 8
"""A part of a sequence starts at a multiple of so many steps: 16 bytes of any type."""
_BLOCK_WORKGROUP = 512
_MOST_STEPS = 2**16
_READ_BYTES = 2**32
"""The bytes of the recurrence matrix that a workgroup reads in a dispatch."""
_RESIDENT_WORKGROUP, _RESIDENT_QUADS = 512, 36
"""Most invocations, and most quads of the recurrence matrix in the registers of each: together they fill a register file of
256 KiB, and an LSTM of 128 units is still faster with a part of them spilt than with a dispatch a step."""


def most_lanes(problem: RecurrentProblem, caps: Capabilities) -> int:
    """The most invocations that share a unit's products: no more than a row of the recurrence matrix has words, nor than a
    subgroup has for certain, which is 32 at most."""
    return min(caps.least_subgroup, power_of_two(problem.quads))


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


class BlockShape(NamedTuple):
    """The shape of a workgroup that reads the recurrence matrix at each step; see ``glsl/recurrent_block.comp``."""

    local: int
    lanes: int


def block_shape(problem: RecurrentProblem, caps: Capabilities) -> BlockShape:
    """As many invocations as the units have work for."""
    lanes = most_lanes(problem, caps)
    return BlockShape(max(32, min(most_invocations(caps), _BLOCK_WORKGROUP, power_of_two(problem.hidden * lanes))), lanes)


class StepTile(NamedTuple):
    """The cover of a step by workgroups that multiply matrices; see ``glsl/recurrent_cooperative.comp``.

    Attributes:
        subgroups: The subgroups of a workgroup.
        entries, units: Its sequences and units.
        depth: The terms that are multiplied at a time.
    """

    subgroups: int
    entries: int
    units: int
    depth: int

    def shared_memory_bytes(self, gates: int, matrix: CooperativeMatrix) -> int:
        """The shared memory of a workgroup, for so many gates at a time."""
        columns = -(-gates * self.units // matrix.n) * matrix.n
        factors = (2 * self.entries + columns) * (self.depth // 8 + 1)
        return 16 * max(factors, self.subgroups * self.entries * (columns // 4 + 1))


STEP_TILES = (StepTile(4, 32, 8, 128), StepTile(4, 16, 8, 256))
"""The one that reads less, all in all, and the one with more workgroups. H200 (driver 580, 2026-11-30), us of 100 steps of
an LSTM with each: 16 sequences of 512 units 712 and 553, of 1024 1,168 and 886; 64 of 512 888 and 787, of 1024 1,599 and
1,928; 256 of 512 1,918 and 2,256. The first with 16 units took 1,911 there, and 1.4 to 1.6 times as long elsewhere."""
_COOPERATIVE_WORKGROUPS = 1.5
"""Workgroups for each processor that one with fewer should have."""


def step_tile(problem: RecurrentProblem, caps: Capabilities) -> tuple[StepTile, CooperativeMatrix] | None:
    """The tile that reads less, where that leaves enough workgroups, else the other; with the matrices to multiply. None
    where none fits."""
    matrix = cooperative_matrix(caps, "float16", "float32")
    if matrix is None:
        return None
    found = None
    # A CPU's driver takes long to compile a larger one's unrolled loops.
    for tile in STEP_TILES[-1:] if caps.is_cpu else STEP_TILES:
        if (
            tile.entries % matrix.m
            or tile.depth % (matrix.k * tile.subgroups)
            or tile.subgroups * caps.subgroup_size > caps.workgroup_invocations
            or tile.shared_memory_bytes(problem.gates, matrix) > caps.shared_memory_bytes
        ):
            continue
        found = tile, matrix
        workgroups = -(-problem.hidden // tile.units) * -(-problem.batch // tile.entries) * problem.directions
        if workgroups >= caps.model.workgroups(_COOPERATIVE_WORKGROUPS):
            break
    return found


def _rounds(problem: RecurrentProblem, caps: Capabilities, resident: bool) -> int:
    """The rounds of an invocation's loops in a step, at most; as if a CPU's driver kept those of constant length."""
    if resident:
        shape = resident_shape(problem, caps)
        assert shape is not None, "the rule saw to it"
        return 1 + problem.products * problem.gates * (shape.share + 3)
    local, lanes = block_shape(problem, caps)
    turns = -(-problem.hidden * lanes // local)
    return 1 + problem.products * turns * (1 + problem.gates * (2 + -(-problem.quads // lanes)))


def most_steps(problem: RecurrentProblem, caps: Capabilities, resident: bool) -> int:
    """The most steps of a dispatch: few enough for a CPU's loops, and for a GPU to be done long before it counts as hung."""
    if caps.is_cpu:
        return CPU_ROUNDS // _rounds(problem, caps, resident)
    return max(min(_MOST_STEPS, _READ_BYTES // (1 if resident else 16 * problem.quads * problem.gates * problem.hidden)), 1)


def projected_steps(problem: RecurrentProblem, caps: Capabilities) -> int:
    """The steps whose products a binding holds; all of them, or a part that leaves room for ``STEP_ALIGNMENT`` more."""
    if problem.largest_bytes <= caps.storage_buffer_bytes:
        return problem.steps
    return caps.storage_buffer_bytes // problem.sequence_bytes - STEP_ALIGNMENT if problem.divisible else 0


def _shuffles(problem: RecurrentProblem, caps: Capabilities) -> bool:
    return "subgroup_shuffle" in caps.features and problem.matrix_bytes <= caps.storage_buffer_bytes


def _step(problem: RecurrentProblem, caps: Capabilities) -> bool:
    fits = problem.largest_bytes <= caps.storage_buffer_bytes
    return fits and _shuffles(problem, caps) and problem.batch <= caps.workgroup_counts[1]


def _cooperative(problem: RecurrentProblem, caps: Capabilities) -> bool:
    fits = problem.largest_bytes <= caps.storage_buffer_bytes and problem.batch <= caps.workgroup_counts[1]
    return fits and problem.halves and problem.bounded and step_tile(problem, caps) is not None


_FEWEST_ROWS = 16
"""Sequences from which on matrices of 16 rows of them are full."""


def _cooperative_pays(problem: RecurrentProblem, caps: Capabilities) -> bool:
    return _few(problem, caps) and matrices_pay(caps, "float16") and problem.batch >= _FEWEST_ROWS


def _in_blocks(problem: RecurrentProblem, caps: Capabilities, resident: bool) -> bool:
    fits = projected_steps(problem, caps) >= min(problem.steps, STEP_ALIGNMENT) and problem.batch <= caps.workgroup_counts[0]
    return fits and _shuffles(problem, caps) and most_steps(problem, caps, resident) >= 1


def _whole(problem: RecurrentProblem, caps: Capabilities) -> bool:
    return resident_shape(problem, caps) is not None and _in_blocks(problem, caps, resident=True)


def _block(problem: RecurrentProblem, caps: Capabilities) -> bool:
    fits = 16 * problem.quads * (1 + problem.products) <= caps.shared_memory_bytes
    return fits and _in_blocks(problem, caps, resident=False)


def _few(problem: RecurrentProblem, caps: Capabilities) -> bool:
    return problem.step_launches <= caps.max_launches


RECURRENT = (
    Rule(
        "whole",
        when=lambda problem, caps: not caps.is_cpu or not _few(problem, caps),
        possible=_whole,
        because="the recurrence matrix fits the registers of one workgroup, on a GPU, so all steps are one dispatch: on an "
        "H200 100 steps of an LSTM of 64 units in 94 us, of 128 in 216 (346 and 355 with a dispatch a step)",
    ),
    Rule(
        "cooperative",
        when=_cooperative_pays,
        possible=_cooperative,
        because="float16 and many sequences, where subgroups multiply matrices: a dispatch a step. H200 (driver 580, "
        "2026-11-30), us of 100 steps of an LSTM so, by the next rule and of cuDNN: 16 sequences of 256 units 432, 441 and "
        "143, of 512 553, 603 and 157, of 1024 886, 1,139 and 213; 64 of 512 787, 1,315 and 591, of 1024 1,599, 3,437 and "
        "818; 256 of 512 1,918, 4,338 and 1,298; of a GRU 16 of 512 527, 519 and 1,299",
    ),
    Rule(
        "step",
        when=_few,
        possible=_step,
        because="a dispatch a step, after one matrix product for the inputs of all steps: on an H200 100 steps of an LSTM "
        "of 512 units in 0.46 ms, 0.78 for 16 sequences and 1.6 for 64 (cuDNN 1.18, 1.22 and 2.2)",
    ),
    Rule(
        "block",
        when=lambda problem, caps: not _few(problem, caps),
        possible=_block,
        because="more steps than the host is ready to prepare a dispatch for each: one workgroup a sequence takes many of "
        "them, and reads the recurrence matrix at each",
    ),
    Rule("naive", when=always, possible=always, because="any network: one invocation a unit, both products inside"),
)
