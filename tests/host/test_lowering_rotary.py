"""Rotary embedding, without a device."""

from __future__ import annotations

import dataclasses

import pytest

from dmlvk import TensorDataType, TensorDesc
from dmlvk.devices.capabilities import Capabilities
from dmlvk.kernels.lowering import lower
from dmlvk.spec.errors import InvalidArgumentError
from dmlvk.spec.ops.rotary import RotaryEmbedding

FLOAT32, INT64 = TensorDataType.FLOAT32, TensorDataType.INT64
X = TensorDesc(FLOAT32, (2, 5, 3, 8))
DESC = RotaryEmbedding(
    input_tensor=X,
    cosines_tensor=TensorDesc(FLOAT32, (1, 50, 4)),
    sines_tensor=TensorDesc(FLOAT32, (1, 50, 4)),
    positions_tensor=TensorDesc(INT64, (2, 5)),
    output_tensor=X,
)


@pytest.mark.parametrize(
    ("tensor", "quads"),
    [(X, 1), (TensorDesc(FLOAT32, X.sizes, (120, 8, 40, 1)), 1), (TensorDesc(FLOAT32, X.sizes, (125, 25, 8, 1)), 0)],
)
def test_rows_of_aligned_elements_move_in_groups(tensor: TensorDesc, quads: int) -> None:
    (dispatch,) = lower(dataclasses.replace(DESC, input_tensor=tensor), Capabilities()).dispatches
    assert dict(dispatch.kernel.constants)["QUADS"] == quads


@pytest.mark.parametrize(
    ("field", "fields"),
    [
        (
            "CosinesTensor",
            {"cosines_tensor": TensorDesc(FLOAT32, (1, 50, 5)), "sines_tensor": TensorDesc(FLOAT32, (1, 50, 5))},
        ),
        (
            "CosinesTensor",
            {"cosines_tensor": TensorDesc(FLOAT32, (3, 50, 4)), "sines_tensor": TensorDesc(FLOAT32, (3, 50, 4))},
        ),
        ("CosinesTensor", {"positions_tensor": None}),
        ("SinesTensor", {"sines_tensor": TensorDesc(FLOAT32, (1, 49, 4))}),
        ("PositionsTensor", {"positions_tensor": TensorDesc(INT64, (1, 5))}),
    ],
)
def test_sizes_that_do_not_fit(field: str, fields: dict[str, TensorDesc | None]) -> None:
    DESC.validate()
    with pytest.raises(InvalidArgumentError, match=field):
        dataclasses.replace(DESC, **fields).validate()
