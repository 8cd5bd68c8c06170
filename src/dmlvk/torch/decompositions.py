"""What PyTorch takes apart before converters see it: all that it can, but what has a converter."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from dmlvk.torch import convert  # noqa: F401  # fills the registry
from dmlvk.torch.registry import ROWS


def decompositions() -> dict[Any, Callable[..., Any]]:
    """PyTorch's decompositions, without those of operators that have a row."""
    table = {**torch._decomp.decomposition_table, **torch._decomp.core_aten_decompositions()}
    return {operator: function for operator, function in table.items() if str(operator) not in ROWS}
