"""The families of kernels: one folder each beside ``common``, found by themselves."""

from __future__ import annotations

import importlib
import importlib.util
import pkgutil
from collections.abc import Iterator
from types import ModuleType

import dmlvk.kernels as home


def family_modules(part: str) -> Iterator[ModuleType]:
    """The modules of one name, such as ``manifest``, of every family that has one."""
    for family in pkgutil.iter_modules(home.__path__, f"{home.__name__}."):
        if family.ispkg and importlib.util.find_spec(f"{family.name}.{part}") is not None:
            yield importlib.import_module(f"{family.name}.{part}")
