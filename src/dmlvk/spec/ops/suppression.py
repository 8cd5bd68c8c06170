"""The suppression of boxes that overlap better ones."""

from __future__ import annotations

from dmlvk.spec import constraints as _c
from dmlvk.spec import schema as _s
from dmlvk.spec.enums import TensorDataType
from dmlvk.spec.tensor import TensorDesc, packed_strides

_FLOAT32, _INT64, _UINT32 = (TensorDataType.FLOAT32,), (TensorDataType.INT64,), (TensorDataType.UINT32,)
_BOXES, _SCORES, _ROWS = "boxes_tensor", "scores_tensor", "output_rows_tensor"


@_c.constraint("boxes", "boxes_tensor must be {batch, boxes, 4} where scores_tensor is {batch, classes, boxes}")
def _boxes(desc: NonMaxSuppression) -> _s.Violation | None:
    batch, _, boxes = desc.tensor(_SCORES).sizes
    found = desc.tensor(_BOXES).sizes
    return None if found == (batch, boxes, 4) else _s.Violation(_BOXES, found)


@_c.constraint("numbers", "must have one element")
def _numbers(desc: NonMaxSuppression) -> _s.Violation | None:
    for field in ("most_tensor", "overlap_tensor", "least_score_tensor", "output_count_tensor"):
        tensor = getattr(desc, field)
        if tensor is not None and tensor.element_count != 1:
            return _s.Violation(field, tensor.sizes)
    return None


@_c.constraint("rows", "must be {rows, 3} with as many rows for each batch and class, from 1 to the number of boxes")
def _rows(desc: NonMaxSuppression) -> _s.Violation | None:
    batch, classes, boxes = desc.tensor(_SCORES).sizes
    rows, columns = desc.tensor(_ROWS).sizes
    good = columns == 3 and rows % (batch * classes) == 0 and rows <= batch * classes * boxes
    return None if good else _s.Violation(_ROWS, (rows, columns))


@_c.constraint("packed", "must be packed")
def _packed(desc: NonMaxSuppression) -> _s.Violation | None:
    for field in (_BOXES, _SCORES, _ROWS):
        if desc.tensor(field).effective_strides != packed_strides(desc.tensor(field).sizes):
            return _s.Violation(field, desc.tensor(field).effective_strides)
    return None


class NonMaxSuppression(_s.OperatorDesc, internal=True, constraints=(_boxes, _numbers, _rows, _packed)):
    """Of each batch and class the boxes with the best scores, without those that overlap a better one: ONNX's operator. A
    row of our own.

    A box is chosen where its score is above least_score_tensor, if there is one, and where no box that was chosen before it
    overlaps it by more than overlap_tensor: the area that they share, divided by that of their union. Better scores come
    first, equal ones in the order of the boxes; most_tensor says how many each batch and class may have.

    output_rows_tensor: Batch, class and box of each, those of a batch and class together, in the order in which they are
        chosen. Its rows, divided by batches and classes, are a bound for most_tensor too. Those behind output_count_tensor
        are not written.
    center_point_box: Whether a box is its center, width and height, and not two corners.
    """

    boxes_tensor: TensorDesc | None = _s.input_tensor(_FLOAT32, (3, 3))
    scores_tensor: TensorDesc | None = _s.input_tensor(_FLOAT32, (3, 3))
    most_tensor: TensorDesc | None = _s.input_tensor(_INT64)
    overlap_tensor: TensorDesc | None = _s.input_tensor(_FLOAT32)
    least_score_tensor: TensorDesc | None = _s.input_tensor(_FLOAT32, optional=True)
    output_count_tensor: TensorDesc | None = _s.output_tensor(_UINT32)
    output_rows_tensor: TensorDesc | None = _s.output_tensor(_INT64, (2, 2))
    center_point_box: bool = _s.boolean(False)
