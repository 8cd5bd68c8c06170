"""Rules, and the choice of the first that holds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from dmlvk.devices.capabilities import Capabilities

Condition = Callable[[Any, Capabilities], bool]


@dataclass(frozen=True)
class Rule:
    """One way to run a family's problems.

    Attributes:
        name: The name of the schedule, which the family's lowering builds.
        when: Whether it is chosen, given that no earlier rule was.
        possible: Whether it would be right at all (chosen or not): what tests may force.
        because: The condition in words and the measurement behind it.
    """

    name: str
    when: Condition
    possible: Condition
    because: str


def always(problem: Any, caps: Capabilities) -> bool:
    """The condition of a family's last rule."""
    return True


def choose(rules: tuple[Rule, ...], problem: Any, caps: Capabilities) -> Rule:
    """The first rule that is possible and whose condition holds."""
    return next(rule for rule in rules if rule.possible(problem, caps) and rule.when(problem, caps))
