"""Plans of suppressions, without a device."""

from __future__ import annotations

import dataclasses

import pytest

from dmlvk import TensorDataType, TensorDesc
from dmlvk.devices.capabilities import SUBGROUPS, Capabilities
from dmlvk.devices.model import H200
from dmlvk.kernels.lowering import lower
from dmlvk.spec.errors import InvalidArgumentError
from dmlvk.spec.ops.suppression import NonMaxSuppression

CAPS = Capabilities(features=Capabilities().features | SUBGROUPS | {"int64"}, shared_memory_bytes=49152, model=H200)
FLOAT32, INT64, UINT32 = TensorDataType.FLOAT32, TensorDataType.INT64, TensorDataType.UINT32


def suppression(batch: int, classes: int, boxes: int, room: int) -> NonMaxSuppression:
    return NonMaxSuppression(
        boxes_tensor=TensorDesc(FLOAT32, (batch, boxes, 4)),
        scores_tensor=TensorDesc(FLOAT32, (batch, classes, boxes)),
        most_tensor=TensorDesc(INT64, (1,)),
        overlap_tensor=TensorDesc(FLOAT32, (1,)),
        output_count_tensor=TensorDesc(UINT32, (1,)),
        output_rows_tensor=TensorDesc(INT64, (batch * classes * room, 3)),
    )


@pytest.mark.parametrize(
    ("batch", "classes", "boxes", "most"), [(1, 1, 1000, 4), (4, 90, 300, 4), (1, 80, 8400, 50), (1, 1, 27000, 60)]
)
def test_launches_are_few(batch: int, classes: int, boxes: int, most: int) -> None:
    """Whatever the number of classes; and masks stay small."""
    desc = suppression(batch, classes, boxes, boxes)
    desc.validate()
    plan = lower(desc, CAPS)
    assert len(plan.dispatches) <= most
    assert plan.temporary_bytes <= 2**26


@pytest.mark.parametrize(
    ("field", "tensor"),
    [
        ("boxes_tensor", TensorDesc(FLOAT32, (2, 9, 4))),
        ("boxes_tensor", TensorDesc(FLOAT32, (2, 10, 4), (80, 8, 1))),
        ("overlap_tensor", TensorDesc(FLOAT32, (2,))),
        ("output_rows_tensor", TensorDesc(INT64, (7, 3))),
        ("output_rows_tensor", TensorDesc(INT64, (66, 3))),
    ],
)
def test_sizes_that_do_not_fit(field: str, tensor: TensorDesc) -> None:
    desc = suppression(2, 3, 10, 10)
    desc.validate()
    with pytest.raises(InvalidArgumentError, match=field.title().replace("_", "")):
        dataclasses.replace(desc, **{field: tensor}).validate()
