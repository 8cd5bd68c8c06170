"""Which rows have kernels, and how each becomes a plan."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from dmlvk.kernels.caps import Capabilities
from dmlvk.kernels.plan import Plan
from dmlvk.kernels.select.rule import Rule
from dmlvk.schema import OperatorDesc

Schedule = Callable[[Any, Any, Capabilities], Plan]
"""(desc, problem, capabilities) -> plan."""


@dataclass(frozen=True)
class Lowering:
    """A family's way from desc to plan.

    Attributes:
        problem: What the family's rules read, made from a desc: a frozen dataclass.
        rules: The family's rules, from ``kernels.select``.
        schedules: By rule name, what builds the plan.
    """

    problem: Callable[[Any], Any]
    rules: tuple[Rule, ...]
    schedules: Mapping[str, Schedule]


LOWERINGS: dict[type[OperatorDesc], Lowering] = {}
"""Every row that has kernels."""

_SPECIAL: dict[type[OperatorDesc], tuple[Callable[[Any], bool], Lowering]] = {}
"""Of rows, some of whose descs are another family's: whether a desc is, and how it is lowered then."""


def lowering_of(desc: OperatorDesc) -> Lowering | None:
    """How a desc is lowered; None where its row has no kernels."""
    when, lowering = _SPECIAL.get(type(desc), (None, None))
    return lowering if when is not None and when(desc) else LOWERINGS.get(type(desc))


def has_kernels(row: type[OperatorDesc]) -> bool:
    """Whether a row has kernels: its own, or those of the re-issue that it upgrades to."""
    return row in LOWERINGS or row.upgrade is not OperatorDesc.upgrade


def register(
    *rows: type[OperatorDesc],
    problem: Callable[[Any], Any],
    rules: tuple[Rule, ...],
    schedules: Mapping[str, Schedule],
    when: Callable[[Any], bool] | None = None,
) -> None:
    """Gives rows their lowering, or with ``when`` those descs of theirs. Every rule has its schedule."""
    assert {rule.name for rule in rules} == set(schedules), "rules and schedules name the same things"
    lowering = Lowering(problem, rules, schedules)
    for row in rows:
        if when is None:
            LOWERINGS[row] = lowering
        else:
            _SPECIAL[row] = (when, lowering)
