"""The rules of attention over a cache: those of attention, and one for steps of a language model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from dmlvk.devices.capabilities import SUBGROUPS, Capabilities
from dmlvk.kernels.attention.problem import AttentionProblem
from dmlvk.kernels.attention.rules import ATTENTION, PARTS_TOGETHER
from dmlvk.kernels.common.rule import Rule, always
from dmlvk.kernels.common.shapes import most_invocations


@dataclass(frozen=True)
class CachedProblem(AttentionProblem):
    """Attention over a cache.

    Attributes:
        in_place: Whether the cache holds the past when the operator starts.
        cache_words: Whether rows of the cache consist of aligned 16-byte words.
    """

    in_place: bool
    cache_words: bool


class StepShape(NamedTuple):
    """The cover of a cache by the workgroups of a step; see ``glsl/attention_step.comp``.

    Attributes:
        invocations: Those of a workgroup.
        lanes: Those that share a key.
        head_chunks, value_chunks: Words of a key and of its value that each has.
        keys: The keys that each loads at once.
        together: The rows of queries whose sums are brought together at once.
    """

    invocations: int
    lanes: int
    head_chunks: int
    value_chunks: int
    keys: int
    together: int = 1

    def shared_memory_bytes(self, problem: CachedProblem) -> int:
        """The shared memory of a workgroup."""
        head, value = self.lanes * self.head_chunks, self.lanes * self.value_chunks
        elements = 128 // problem.bits
        new = 16 * problem.queries * (head + value)
        sums = self.together * self.invocations // self.lanes * (4 * value * elements + 8)
        merged = 4 + 4 * problem.rows * (PARTS_TOGETHER + 2)  # whether it has counted last, and what it finds then
        return 4 * problem.rows * head * elements + new + sums + merged


_STEP_ROWS = 8
"""Most rows of queries whose sums an invocation holds."""
_STEP_INVOCATIONS, _CPU_STEP_INVOCATIONS = 256, 128
_STEP_CHUNKS = 4
"""Most words of a key that an invocation should have."""
_STEP_NUMBERS = 64
"""Numbers of all rows' queries that an invocation holds, from which on it loads fewer keys at once."""


def step_shape(problem: CachedProblem, caps: Capabilities) -> StepShape:
    """The lanes that leave the fewest of a row's words without one, and of these the most."""
    elements = 128 // problem.bits
    words = max(problem.head_size, problem.value_size) // elements
    wanted = _CPU_STEP_INVOCATIONS if caps.is_cpu else _STEP_INVOCATIONS
    most = min(caps.subgroup_size, wanted)
    found, slots = most, -(-words // most) * most
    lanes = most // 2
    while lanes and -(-words // lanes) <= _STEP_CHUNKS:
        if -(-words // lanes) * lanes < slots:
            found, slots = lanes, -(-words // lanes) * lanes
        lanes //= 2
    head, value = (-(-(size // elements) // found) for size in (problem.head_size, problem.value_size))
    # A CPU's driver takes seconds to compile unrolled loops.
    keys = 1 if caps.is_cpu else 2 if problem.rows * head * elements >= _STEP_NUMBERS else 4
    invocations = max(found, min(wanted, most_invocations(caps)))
    shape = StepShape(invocations, found, head, value, keys)
    divisors = (rows for rows in range(problem.rows, 1, -1) if problem.rows % rows == 0)
    several = (shape._replace(together=rows) for rows in divisors)
    fitting = (own for own in several if own.shared_memory_bytes(problem) <= caps.shared_memory_bytes)
    return next(fitting, shape)


def _step(problem: CachedProblem, caps: Capabilities) -> bool:
    return (
        caps.features >= SUBGROUPS
        and problem.in_place
        and problem.cache_words
        and problem.rows <= _STEP_ROWS
        and problem.heads <= caps.workgroup_counts[1]
        and step_shape(problem, caps).shared_memory_bytes(problem) <= caps.shared_memory_bytes
    )


CACHED_ATTENTION = (
    Rule(
        "step",
        when=always,
        possible=_step,
        because="few queries, as when a text is written word by word: keys and values are read once for all heads that "
        "share them, the cache is shared out by what it holds, new rows join it on the way, and a head's last workgroup "
        "brings its sums together: one dispatch",
    ),
    *ATTENTION,
)
