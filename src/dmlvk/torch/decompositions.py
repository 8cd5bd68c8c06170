"""What PyTorch takes apart before converters see it: all that it can, but what has a converter."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Final

import torch

from dmlvk.torch import convert  # noqa: F401  # fills the registry
from dmlvk.torch.composites import composites
from dmlvk.torch.foreach import foreach_decompositions
from dmlvk.torch.registry import ROWS

_OF_CONSTANTS: Final = ("aten.lift.default", "aten.lift_fresh.default")
"""Operators by which PyTorch makes a constant of a program a value of the graph, and which it removes itself."""


_COMPLEX: Final = ("aten.complex.default", "aten.polar.default")
"""Operators that PyTorch takes apart into what no device has: they are named instead."""


def decompositions() -> dict[Any, Callable[..., Any]]:
    """PyTorch's decompositions and ours, without those of operators that have a row."""
    return dict(_decompositions())


@functools.cache  # PyTorch takes 0.1 s to make its own, and each operator on tensors of the device is a graph
def _decompositions() -> dict[Any, Callable[..., Any]]:
    table = {
        **torch._decomp.decomposition_table,
        **torch._decomp.core_aten_decompositions(),
        **foreach_decompositions(),
        **composites(),
    }
    kept = {*ROWS, *_OF_CONSTANTS, *_COMPLEX}
    return {operator: function for operator, function in table.items() if str(operator) not in kept}
