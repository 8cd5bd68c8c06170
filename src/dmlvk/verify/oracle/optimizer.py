"""Optimizers in float64, from their formulas."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmlvk.spec.ops.optimizer import AdamOptimizer
from dmlvk.verify.oracle import Scaled

Array = NDArray[Any]


def adam_optimizer(
    desc: AdamOptimizer, x: Array, m: Array, v: Array, gradient: Array, step: Array
) -> tuple[Scaled, Scaled, Array]:
    """The parameters and moments after the step. Errors count at the size of the terms of each sum, of which the first
    moment's enter the parameters."""
    x, m, v, gradient = (array.astype(np.float64) for array in (x, m, v, gradient))
    rate, beta1, beta2, epsilon = (
        float(np.float32(number)) for number in (desc.learning_rate, desc.beta1, desc.beta2, desc.epsilon)
    )
    t = int(step.flat[0])
    alpha = np.sqrt(-np.expm1(t * np.log(beta2))) / -np.expm1(t * np.log(beta1)) if t else 1.0
    kept, added = beta1 * m, (1 - beta1) * gradient
    m, terms = kept + added, np.abs(kept) + np.abs(added)
    v = beta2 * v + (1 - beta2) * gradient * gradient
    scale = rate * alpha / (np.sqrt(v) + epsilon)
    return Scaled(x - scale * m, np.abs(x) + np.abs(scale) * terms), Scaled(m, terms), v
