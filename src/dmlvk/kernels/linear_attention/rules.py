"""The rules of linear attention."""

from __future__ import annotations

from dataclasses import dataclass

from dmlvk.devices.capabilities import Capabilities
from dmlvk.kernels.common.rule import Rule, always


@dataclass(frozen=True)
class LinearAttentionProblem:
    """A linear attention, as its kernel sees it.

    Attributes:
        heads: Heads of keys, of all batch entries.
        rows: The rows of each.
        group: Query heads that share a head of keys.
        size, value_size: Elements of a key and of a value.
    """

    heads: int
    rows: int
    group: int
    size: int
    value_size: int

    def lanes(self, caps: Capabilities) -> int:
        """The invocations that share a column of the state, so that each holds few enough elements for registers."""
        lanes = 1
        while lanes < caps.subgroup_size and -(-self.size // lanes) > _HELD:
            lanes *= 2
        return lanes


_HELD = 16
"""Elements of the state that an invocation should hold."""

LINEAR_ATTENTION = (
    Rule(
        "columns",
        when=always,
        possible=always,
        because="each column of the state stays in registers while all rows pass by: one dispatch, where steps of each row "
        "would be several",
    ),
)
