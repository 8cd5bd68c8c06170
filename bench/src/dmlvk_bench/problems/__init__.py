"""The measured problems, each declared once: the desc, what a rival computes for it, the bytes that must move.

One file a family, with a function ``problems`` of the scale; files are found by themselves. ``SUITE`` in a file is the
suite of its problems that do not name one, "ops" without it.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib
import pkgutil

from dmlvk_bench.problems.model import Problem
from dmlvk_bench.problems.scale import FULL, Scale

_NO_FAMILIES = ("data", "model", "scale")
FAMILIES = tuple(module.name for module in pkgutil.iter_modules(__path__) if module.name not in _NO_FAMILIES)


def all_problems(scale: Scale = FULL, only: str = "", suite: str = "") -> list[Problem]:
    """Every problem of every family; where two are the same once they are cut down, the first of them.

    Args:
        scale: The scale to which problems are cut down.
        only: A family, or a part of a name; "" for all problems.
        suite: The suite that the problems belong to; "" for every one.
    """
    found: dict[str, Problem] = {}
    for family in FAMILIES:
        for problem in _of_family(family, scale):
            if (only == family or only in problem.name) and suite in ("", problem.suite):
                found.setdefault(problem.name, problem)
    return list(found.values())


def twin(problem: Problem, scale: Scale) -> Problem:
    """The problem at another scale. There always is one, also where ``all_problems`` lists another in its place."""
    return _of_family(problem.family, scale)[problem.position]


@functools.cache
def _of_family(family: str, scale: Scale) -> tuple[Problem, ...]:
    module = importlib.import_module(f"{__name__}.{family}")
    suite = getattr(module, "SUITE", "ops")
    return tuple(
        dataclasses.replace(problem, family=family, position=position, suite=problem.suite or suite)
        for position, problem in enumerate(module.problems(scale))
    )
