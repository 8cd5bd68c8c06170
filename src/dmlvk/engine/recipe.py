"""Plans whose sizes are symbolic, as one function of the sizes: what a new shape costs instead of lowering."""

from __future__ import annotations

import dataclasses
import struct
from collections.abc import Sequence
from typing import Any, NamedTuple

from dmlvk.kernels.common.plan import Dispatch, Launch, Plan, Range
from dmlvk.spec.size import Deferred, SizeTrace, settled


class FilledLaunch(NamedTuple):
    """The parts of a launch that depend on sizes: its parameter block and grid, both None for a copy, and its ranges."""

    params: bytes | None
    grid: tuple[int, int, int] | None
    bindings: tuple[Range, ...]


class FilledPlan(NamedTuple):
    """The parts of a plan that depend on sizes: all launches of its dispatches and its initialisation, its byte counts."""

    dispatches: tuple[FilledLaunch, ...]
    initialize: tuple[FilledLaunch, ...]
    temporary_bytes: int
    persistent_bytes: int
    persistent_inputs: tuple[tuple[int, int], ...]


class Filled(NamedTuple):
    """A recipe for one set of sizes.

    Attributes:
        plans: The filled plan of each step.
        sizes: The further numbers that the recipe was asked for, in that order.
    """

    plans: tuple[FilledPlan, ...]
    sizes: tuple[Any, ...]


class Recipe:
    """The plans of a list of steps, lowered once with symbolic sizes.

    Attributes:
        plans: The plans as they were lowered: their pipelines are those of every set of sizes that is filled.
    """

    def __init__(self, trace: SizeTrace, plans: Sequence[Plan], sizes: Sequence[Any] = ()) -> None:
        """
        Args:
            trace: The trace whose symbols the plans' sizes are made of.
            plans: One a step.
            sizes: Whatever else depends on the symbols: byte counts and offsets of storages, sizes of outputs.
        """
        self.plans = tuple(plans)
        self._function = trace.function(Deferred(Filled, (tuple(map(_plan, plans)), tuple(sizes))))

    def fill(self, values: Sequence[int]) -> Filled | None:
        """The plans for these values of the trace's symbols, in the order in which they were made; None where a guard of
        the trace fails, so that the steps must be lowered anew."""
        try:
            filled: Filled | None = self._function(*values)
        except struct.error:  # a number outgrew its word: lowering says how
            return None
        return filled


def _plan(plan: Plan) -> FilledPlan:
    dispatches, initialize = tuple(map(_launch, plan.dispatches)), tuple(map(_launch, plan.initialize))
    return FilledPlan(dispatches, initialize, plan.temporary_bytes, plan.persistent_bytes, plan.persistent_inputs)


def _launch(launch: Launch) -> FilledLaunch:
    if isinstance(launch, Dispatch):
        return FilledLaunch(launch.params, launch.grid, launch.bindings)
    return FilledLaunch(None, None, launch.bindings)


def initialized_alike(plan: Plan) -> Plan:
    """A plan of symbolic sizes whose initialisation is the same for all that its guards let through."""
    initialize = tuple(
        dataclasses.replace(
            launch, params=settled(launch.params), grid=settled(launch.grid), bindings=settled(launch.bindings)
        )
        if isinstance(launch, Dispatch)
        else dataclasses.replace(launch, bindings=settled(launch.bindings))
        for launch in plan.initialize
    )
    return dataclasses.replace(
        plan,
        initialize=initialize,
        persistent_bytes=settled(plan.persistent_bytes),
        persistent_inputs=settled(plan.persistent_inputs),
    )
