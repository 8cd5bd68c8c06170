"""The gradient of local response normalization in float64, from its formula."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmlvk.spec.ops import LocalResponseNormalizationGrad
from dmlvk.verify.oracle import Scaled
from dmlvk.verify.oracle.normalization import region_sums

Array = NDArray[Any]


def local_response_normalization_grad(desc: LocalResponseNormalizationGrad, x: Array, gradient: Array) -> Scaled:
    """dx of y = x / base ** beta. Errors count at the size of the terms of its sum; where the two terms of a base cancel,
    what rounding leaves of it grows as the power's slope has it."""
    axes = (1,) if desc.cross_channel else (2, 3)
    before, after = (desc.local_size - 1) // 2, desc.local_size // 2
    alpha, beta, bias = (float(np.float32(number)) for number in (desc.alpha, desc.beta, desc.bias))
    factor = alpha / desc.local_size
    with np.errstate(all="ignore"):
        x, gradient = x.astype(np.float64), gradient.astype(np.float64)
        squares = factor * region_sums(x * x, axes, before, after)
        base = bias + squares
        growth = (abs(bias) + np.abs(squares)) / np.abs(base) - 1
        through = gradient / base**beta
        terms = through * x / base
        slope = 2 * factor * beta * x
        size = np.abs(through) * (1 + abs(beta) * growth)
        size += np.abs(slope) * region_sums(np.abs(terms) * (1 + abs(beta + 1) * growth), axes, after, before)
        return Scaled(through - slope * region_sums(terms, axes, after, before), np.nan_to_num(size, posinf=0.0))
