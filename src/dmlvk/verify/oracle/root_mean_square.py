"""Normalization by the root mean square in float64."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmlvk.spec.ops.root_mean_square import RootMeanSquare

Array = NDArray[Any]


def root_mean_square(desc: RootMeanSquare, x: Array, addend: Array | None, scale: Array | None) -> tuple[Array, Array]:
    """Output and sum, which is rounded to the input's type first."""
    total = x.astype(np.float64)
    if addend is not None:
        total = (total + addend.astype(np.float64)).astype(x.dtype).astype(np.float64)
    y = total / np.sqrt(np.mean(total * total, axis=-1, keepdims=True) + desc.epsilon)
    return (y if scale is None else y * scale.astype(np.float64)), total
