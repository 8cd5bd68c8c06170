"""Waivers: runs that a driver is known to fail, each with its cause. The rows are ``waivers.json``, beside this file."""

from __future__ import annotations

import functools
import importlib.resources
import json
from collections.abc import Sequence
from dataclasses import dataclass

from dmlvk.verify.cases.problem import Variation


@dataclass(frozen=True)
class Waiver:
    """What one driver does wrong.

    Attributes:
        driver: Text that the driver's name and version contain, as ``python -m dmlvk devices`` prints them.
        operator: The row's class name.
        runs: Text that the descriptions of the runs contain, as ``verify --only`` takes it; "" for all of the operator.
        cause: The driver's fault, as a sentence without its full stop.
        ends: Whether the runs come to an end at all. Those that do not are left out.
    """

    driver: str
    operator: str
    runs: str
    cause: str
    ends: bool = True

    def covers(self, operator: str, variation: Variation) -> bool:
        """Whether the run is one of its runs."""
        return operator == self.operator and self.runs in str(variation)

    def __str__(self) -> str:
        return f"{self.operator} {self.runs}".rstrip() + f" under {self.driver}: {self.cause}"


@functools.cache
def all_waivers() -> tuple[Waiver, ...]:
    """Every row of the file."""
    text = importlib.resources.files(__package__).joinpath("waivers.json").read_text(encoding="utf-8")
    return tuple(Waiver(**row) for row in json.loads(text))


def waivers_of(driver: str) -> tuple[Waiver, ...]:
    """The rows of a driver."""
    return tuple(waiver for waiver in all_waivers() if waiver.driver in driver)


def waiver_of(waivers: Sequence[Waiver], operator: str, variation: Variation) -> Waiver | None:
    """The first row that covers a run."""
    return next((waiver for waiver in waivers if waiver.covers(operator, variation)), None)
