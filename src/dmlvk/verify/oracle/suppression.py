"""The suppression of boxes that overlap better ones, as ONNX has it."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmlvk.spec.ops.suppression import NonMaxSuppression

Array = NDArray[Any]


def _corners(desc: NonMaxSuppression, boxes: Array) -> tuple[Array, Array]:
    """The low and the high corner of each."""
    first, second = boxes[..., :2], boxes[..., 2:]
    if desc.center_point_box:
        return first - second / 2, first + second / 2
    return np.minimum(first, second), np.maximum(first, second)


def _overlap(low: Array, high: Array, box: int) -> Array:
    """What each box shares with one, divided by what they cover together; 0 beside one without area."""
    shared = np.prod(np.maximum(np.minimum(high, high[box]) - np.maximum(low, low[box]), 0), axis=-1)
    areas = np.prod(high - low, axis=-1)
    together = areas + areas[box] - shared
    return np.where((areas > 0) & (areas[box] > 0), shared / np.where(together > 0, together, 1), 0)


def non_max_suppression(
    desc: NonMaxSuppression, boxes: Array, scores: Array, most: Array, overlap: Array, least: Array | None
) -> tuple[Array, Array]:
    """The rows behind the last one are undefined."""
    low, high = _corners(desc, boxes.astype(np.float64))
    batch, classes, count = scores.shape
    wanted = min(int(most.item()), desc.tensor("output_rows_tensor").sizes[0] // (batch * classes))
    found = []
    for b, c in np.ndindex(batch, classes):
        own = scores[b, c]
        left = np.ones(count, bool) if least is None else own > least.item()
        for _ in range(wanted):
            if not left.any():
                break
            box = int(np.argmax(np.where(left, own, -np.inf)))
            found.append((b, c, box))
            left &= ~(_overlap(low[b], high[b], box) > overlap.item())
            left[box] = False
    rows: Array = np.zeros(desc.tensor("output_rows_tensor").sizes, np.int64)
    rows[: len(found)] = np.reshape(found, (-1, 3))
    undefined = np.broadcast_to(np.arange(len(rows))[:, None] >= len(found), rows.shape)
    return np.full(desc.tensor("output_count_tensor").sizes, len(found), np.uint32), np.ma.array(rows, mask=undefined)
