"""The suppression of boxes that overlap better ones, in two halves (see ``registry.COUNTING``)."""

from __future__ import annotations

import numpy as np

from dmlvk.onnx.conversion import Conversion
from dmlvk.onnx.registry import COUNTING, TAKING, Result, converts
from dmlvk.onnx.values import Value
from dmlvk.spec.enums import TensorDataType
from dmlvk.spec.ops.suppression import NonMaxSuppression

_UINT32, _INT64 = np.dtype(np.uint32), np.dtype(np.int64)


@converts("NonMaxSuppression", 10, 11, types=(TensorDataType.FLOAT32,), domain=COUNTING, temporaries=1)
def find_chosen(node: Conversion) -> tuple[Result, Result]:
    """How many boxes are chosen, and batch, class and box of each in the first rows."""
    boxes, scores, most, overlap, least = node[0], node[1], node.host(2), node.get(3), node.get(4)
    if boxes.rank != 3 or scores.rank != 3 or boxes.sizes != (scores.sizes[0], scores.sizes[2], 4):
        rule = "boxes must have the sizes {batch, boxes, 4} where scores have {batch, classes, boxes}"
        raise node.invalid(rule, (boxes.sizes, scores.sizes))
    batch, classes, count = scores.sizes
    room = 0 if node.get(2) is None else count if most is None else min(max(int(most.item()), 0), count)
    if 0 in (batch, classes, room):
        return np.zeros(1, np.uint32), np.zeros((0, 3), np.int64)
    total, rows = node.new((1,), _UINT32), node.new((batch * classes * room, 3), _INT64)
    node.launch(
        NonMaxSuppression,
        node.packed(boxes),
        node.packed(scores),
        node[2],
        node.upload(np.zeros(1, np.float32)) if overlap is None else overlap,
        least,
        output_count_tensor=total,
        output_rows_tensor=rows,
        center_point_box=bool(node.attribute("center_point_box", 0)),
    )
    return total, rows


@converts("NonMaxSuppression", 10, 11, types=(TensorDataType.UINT32,), domain=TAKING, host_inputs=(0,))
def take_chosen(node: Conversion) -> Value:
    """The rows of what is chosen."""
    return node[1].shorten(0, node.size(0))
