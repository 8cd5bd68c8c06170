"""The operators' cases, shared by the tests, ``python -m dmlvk verify`` and the benchmarks.

One file per file of ``dmlvk.spec.ops``, each with a tuple ``CASES`` of ``OperatorCases``; all are found by this package.
"""

from __future__ import annotations

import functools
import importlib
import pkgutil

from dmlvk.spec.schema import OperatorDesc
from dmlvk.verify.cases.model import OperatorCases


@functools.cache
def all_cases() -> dict[type[OperatorDesc], OperatorCases]:
    """Every operator's cases, by row."""
    found: dict[type[OperatorDesc], OperatorCases] = {}
    for module in pkgutil.iter_modules(__path__):
        for entry in getattr(importlib.import_module(f"{__name__}.{module.name}"), "CASES", ()):
            assert entry.operator not in found, f"{entry.operator.__name__} has cases in two files"
            found[entry.operator] = entry
    return found
