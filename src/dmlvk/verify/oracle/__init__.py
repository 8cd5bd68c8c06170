"""What the operators must compute: numpy in float64, written from the specification and not from the kernels.

One file per file of ``dmlvk.spec.ops``. An oracle is a function named as the operator in snake case (``roi_align1``); it is
found by that name. It takes the desc and its inputs (arrays of the logical sizes in the tensor's own type, None where
absent) and returns its outputs (one array or ``Scaled``, or a tuple of them): float64 for floating outputs, the exact
type for integers, masked where the specification leaves them undefined. Only ``verify`` and the tests import this package.
"""

from __future__ import annotations

import functools
import importlib
import pkgutil
import re
from collections.abc import Callable
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dmlvk.spec.schema import OperatorDesc


class Scaled(NamedTuple):
    """An expected value with the magnitude at which its error is counted, element for element: the size of the terms
    that were added, where they may cancel."""

    value: NDArray[Any]
    magnitude: NDArray[Any]


def wide(values: NDArray[Any]) -> NDArray[Any]:
    """Numbers in a type whose own rounding hardly counts: float64, and for those of float64 numpy's long double. Where that
    is no wider, on Windows and on Macs, sums of float64 are compared with sums as good as they are."""
    return values.astype(np.longdouble if values.dtype == np.float64 else np.float64)


def snake_case(name: str) -> str:
    """``MeanVarianceNormalization1`` -> ``mean_variance_normalization1``."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()


def oracle(operator: type[OperatorDesc]) -> Callable[..., Any] | None:
    """The operator's oracle, None where there is none."""
    wanted = snake_case(operator.__name__)
    return next((getattr(module, wanted) for module in _modules() if hasattr(module, wanted)), None)


@functools.cache
def _modules() -> tuple[ModuleType, ...]:
    return tuple(importlib.import_module(f"{__name__}.{module.name}") for module in pkgutil.iter_modules(__path__))
