"""The elements that are not zero, and their places."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmlvk.spec.ops.compaction import NonzeroCoordinates

Array = NDArray[Any]


def nonzero_coordinates(desc: NonzeroCoordinates, x: Array) -> tuple[Array, Array]:
    """The rows behind the last one are masked: they are undefined."""
    found = np.argwhere(np.isnan(x) | (x != 0)) if x.dtype.kind == "f" else np.argwhere(x)
    sizes = desc.tensor("output_coordinates_tensor").sizes
    rows = np.ma.MaskedArray(np.zeros(sizes[-2:], np.uint32), mask=True)
    rows[: len(found)] = found[:, x.ndim - sizes[-1] :]
    count = np.full(desc.tensor("output_count_tensor").sizes, len(found), np.uint32)
    return count, rows.reshape(sizes)
