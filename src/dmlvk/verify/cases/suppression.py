"""Cases of ``ops.suppression``. Coordinates are whole numbers and no quotient of two areas is the bound for them, so that
which boxes overlap is no matter of rounding."""

from __future__ import annotations

import numpy as np

from dmlvk.spec.enums import TensorDataType
from dmlvk.spec.ops.suppression import NonMaxSuppression
from dmlvk.verify.cases.model import Array, Case, OperatorCases, fixed

_INT64, _UINT32 = TensorDataType.INT64, TensorDataType.UINT32


def _boxes(rng: np.random.Generator, sizes: tuple[int, ...], data_type: TensorDataType) -> Array:
    """Two corners, or a center with width and height: many overlap, and some have no area."""
    return rng.integers(0, 13, sizes).astype(np.float32)


def _scores(rng: np.random.Generator, sizes: tuple[int, ...], data_type: TensorDataType) -> Array:
    """Multiples of 1/16, so that many are equal."""
    return (rng.integers(-16, 17, sizes) / 16).astype(np.float32)


def _case(
    name: str,
    batch: int,
    classes: int,
    boxes: int,
    most: int,
    *,
    least: bool = False,
    center: bool = False,
    quick: bool = False,
) -> Case:
    inputs = {
        "boxes_tensor": (batch, boxes, 4),
        "scores_tensor": (batch, classes, boxes),
        "most_tensor": (1,),
        "overlap_tensor": (1,),
    }
    domains = {"boxes_tensor": _boxes, "scores_tensor": _scores, "most_tensor": fixed(most), "overlap_tensor": fixed(0.3137)}
    if least:
        inputs["least_score_tensor"], domains["least_score_tensor"] = (1,), fixed(0.25)
    rows = batch * classes * min(max(most, 1), boxes)
    return Case(
        name,
        inputs,
        {"center_point_box": center},
        outputs={"output_count_tensor": (1,), "output_rows_tensor": (rows, 3)},
        data_types={"most_tensor": _INT64, "output_count_tensor": _UINT32, "output_rows_tensor": _INT64},
        domains=domains,
        layouts=False,
        quick=quick,
    )


CASES = (
    OperatorCases(
        NonMaxSuppression,
        {},
        (
            _case("two batches, three classes", 2, 3, 40, 7, least=True, quick=True),
            _case("centers", 1, 2, 37, 37, center=True, quick=True),
            _case("none wanted", 1, 1, 5, 0),
            _case("one box", 1, 1, 1, 1),
            _case("more than a chunk", 1, 1, 4500, 400, least=True),
        ),
    ),
)
