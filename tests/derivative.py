"""Derivatives by finite differences: the second oracle of gradients for which nobody else has one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


def numerical_gradient(function: Callable[[Array], Array], x: Array, weights: Array, step: float = 1e-5) -> Array:
    """The derivative of ``(weights * function(x)).sum()`` with respect to each element of x, by central differences.

    With float64 functions that are smooth around x, of numbers about 1, good to ten digits: what the step leaves out is of
    its square, and rounding brings 1e-16 / step.
    """
    gradient = np.zeros(x.shape)
    for at in np.ndindex(*x.shape):
        ahead, behind = x.astype(np.float64), x.astype(np.float64)
        ahead[at] += step
        behind[at] -= step
        gradient[at] = (weights * (function(ahead) - function(behind))).sum() / (2 * step)
    return gradient
