"""The rules of normalization by the root mean square."""

from __future__ import annotations

from dataclasses import dataclass

from dmlvk.devices.capabilities import Capabilities
from dmlvk.kernels.common.rule import Rule, always
from dmlvk.kernels.common.shapes import most_invocations, power_of_two


@dataclass(frozen=True)
class RootMeanSquareProblem:
    """A normalization, as its kernel sees it.

    Attributes:
        rows: Rows that have a mean each.
        groups: Groups of four elements of a row.
        quads: Whether they are aligned, in all tensors.
    """

    rows: int
    groups: int
    quads: bool

    def lanes(self, caps: Capabilities) -> int:
        """The invocations that share a row: each has few groups, so that one row alone is done soon."""
        return min(power_of_two(-(-self.groups // 2)), most_invocations(caps), _MOST_LANES)


_MOST_LANES = 512
MOST_HELD = 8
"""Most groups that an invocation holds."""

DEVICE_CACHE, PROCESSOR_CACHE = 2.0, 10.0
"""The speed of reads of a row that all workgroups read, beside a copy's: from a cache of the device, and where those of a
processor read it in step, from its own."""
_LATENCIES = 3
"""Latencies of a normalization that no other work hides: of its loads, and of its barrier and what follows."""


def joins_a_product(caps: Capabilities, nbytes: int, speed: float) -> bool:
    """Whether a product reads so many bytes of rows, and of what is added to them and multiplied with them, in all its
    workgroups together, at ``speed`` times a copy's, in less time than a normalization before it takes."""
    model = caps.model
    read = nbytes / (speed * model.bytes_per_microsecond)
    return read < model.dispatch_microseconds + _LATENCIES * model.latency_microseconds


ROOT_MEAN_SQUARE = (
    Rule(
        "held",
        when=always,
        possible=lambda problem, caps: -(-problem.groups // problem.lanes(caps)) <= MOST_HELD,
        because="a row fits the registers of the invocations that share it: one read and one write of each byte, where an "
        "addition and a normalization are two dispatches and read the sum again",
    ),
    Rule("twice", when=always, possible=always, because="a row is too long for registers: it is read again"),
)
