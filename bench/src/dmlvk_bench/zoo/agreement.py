"""How far apart two lists of outputs are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from dmlvk_bench.models.layers import Array
from dmlvk_bench.models.measure import difference

TOLERANCE: Final = 1e-3
"""The largest difference of outputs that agree, where both are float32."""
HALVES: Final = 2e-2
"""The same where one is made in float16, whose numbers have 11 bits."""
DETECTIONS: Final = 0.02
"""The largest share of detections that only one of two agreeing detectors may have: at a threshold, a rounding decides."""
_SAME_BOX: Final = 0.99
"""Intersection over union of a box that both found."""


def off(found: Sequence[Array], wanted: Sequence[Array]) -> float:
    """The largest difference relative to the largest number of each output. Of detections, whose order is a matter of
    roundings, it is the share that only one of both has, so divided that ``DETECTIONS`` of them count as ``TOLERANCE``."""
    if len(found) != len(wanted):
        return np.inf
    if _are_detections(wanted) and _are_detections(found):
        return _alone(found, wanted) * (TOLERANCE / DETECTIONS)
    return difference(list(found), list(wanted))


def _are_detections(outputs: Sequence[Array]) -> bool:
    """Whether there are boxes, labels and scores, one of each a detection."""
    kinds = {(output.ndim, output.shape[1:], output.dtype.kind) for output in outputs}
    return {(2, (4,), "f"), (1, (), "i"), (1, (), "f")} <= kinds and len({len(output) for output in outputs}) == 1


def _alone(found: Sequence[Array], wanted: Sequence[Array]) -> float:
    """The share of detections of two detectors that only one of both has."""
    mine, theirs = (_Detections(outputs) for outputs in (found, wanted))
    count = len(mine.scores) + len(theirs.scores)
    if not len(mine.scores) or not len(theirs.scores):
        return float(count > 0)
    same = (mine.labels[:, None] == theirs.labels) & (np.abs(mine.scores[:, None] - theirs.scores) <= TOLERANCE)
    same &= _overlaps(mine.boxes, theirs.boxes) >= _SAME_BOX
    for first, second in zip(mine.others, theirs.others, strict=True):
        for i, j in zip(*np.nonzero(same), strict=True):
            same[i, j] = np.abs(first[i] - second[j]).mean() <= DETECTIONS * max(np.abs(second[j]).max(), 1.0)
    return float((~same.any(1)).sum() + (~same.any(0)).sum()) / count


class _Detections:
    """Boxes, labels, scores, and what else there is of each detection, such as its mask."""

    def __init__(self, outputs: Sequence[Array]) -> None:
        self.boxes = next(output for output in outputs if output.shape[1:] == (4,))
        self.labels = next(output for output in outputs if output.ndim == 1 and output.dtype.kind == "i")
        self.scores = next(output for output in outputs if output.ndim == 1 and output.dtype.kind == "f")
        known = {id(output) for output in (self.boxes, self.labels, self.scores)}
        self.others = [
            output for output in outputs if id(output) not in known and output.dtype.kind == "f" and output.ndim > 2
        ]


def _overlaps(mine: Array, theirs: Array) -> Array:
    """Intersection over union of each of my boxes with each of theirs; 1 for boxes at one place, without an area too."""
    low = np.maximum(mine[:, None, :2], theirs[:, :2])
    high = np.minimum(mine[:, None, 2:], theirs[:, 2:])
    shared = np.prod(np.clip(high - low, 0.0, None), axis=2)
    areas = (np.prod(boxes[:, 2:] - boxes[:, :2], axis=1) for boxes in (mine, theirs))
    union = next(areas)[:, None] + next(areas) - shared
    near = np.abs(mine[:, None] - theirs).max(axis=2) <= TOLERANCE * max(float(np.abs(theirs).max()), 1.0)
    overlap: Array = np.where(near, 1.0, shared / np.maximum(union, 1e-12))
    return overlap
