"""The measured problems, each declared once: the desc, what a rival computes for it, the bytes that must move.

One file a family, with a function ``problems``; files are found by themselves.
"""

from __future__ import annotations

import importlib
import pkgutil

from bench.problems.model import Problem


def all_problems(only: str = "") -> list[Problem]:
    """Every problem of every family, or those of one family, or those whose name contains a word."""
    found = []
    for module in pkgutil.iter_modules(__path__):
        if module.name != "model":
            problems = importlib.import_module(f"{__name__}.{module.name}").problems()
            found += [problem for problem in problems if only == module.name or only in problem.name]
    return found
