"""Linear attention, without a device."""

from __future__ import annotations

import dataclasses

import pytest

from dmlvk import TensorDataType, TensorDesc
from dmlvk.devices.capabilities import SUBGROUPS, Capabilities
from dmlvk.devices.model import H200
from dmlvk.kernels.lowering import lower
from dmlvk.spec.errors import InvalidArgumentError
from dmlvk.spec.ops.linear_attention import LinearAttention

FLOAT32, FLOAT16 = TensorDataType.FLOAT32, TensorDataType.FLOAT16
GPU = Capabilities(features=Capabilities().features | SUBGROUPS | {"storage16"}, subgroup_size=32, model=H200)


def attention(rows: int) -> LinearAttention:
    return LinearAttention(
        query_tensor=TensorDesc(FLOAT16, (2, rows, 8, 128)),
        key_tensor=TensorDesc(FLOAT16, (2, rows, 4, 128)),
        value_tensor=TensorDesc(FLOAT16, (2, rows, 4, 64)),
        past_state_tensor=TensorDesc(FLOAT32, (2, 4, 128, 64)),
        decay_tensor=TensorDesc(FLOAT16, (2, rows, 4, 128), (4 * rows, 4, 1, 0)),
        rate_tensor=TensorDesc(FLOAT16, (2, rows, 4)),
        output_tensor=TensorDesc(FLOAT16, (2, rows, 8, 64)),
        present_state_tensor=TensorDesc(FLOAT32, (2, 4, 128, 64)),
    )


def test_all_rows_are_one_dispatch_but_on_a_cpu() -> None:
    attention(9000).validate()
    assert len(lower(attention(9000), GPU).dispatches) == 1
    assert len(lower(attention(1), dataclasses.replace(GPU, is_cpu=True)).dispatches) == 1
    assert len(lower(attention(9000), dataclasses.replace(GPU, is_cpu=True)).dispatches) > 1


@pytest.mark.parametrize(
    ("field", "tensor"),
    [
        ("query_tensor", TensorDesc(FLOAT16, (2, 5, 6, 128))),
        ("value_tensor", TensorDesc(FLOAT16, (2, 4, 4, 64))),
        ("past_state_tensor", TensorDesc(FLOAT32, (2, 4, 64, 128))),
        ("present_state_tensor", TensorDesc(FLOAT16, (2, 4, 128, 64))),
        ("rate_tensor", TensorDesc(FLOAT16, (2, 5, 1))),
    ],
)
def test_sizes_that_do_not_fit(field: str, tensor: TensorDesc) -> None:
    desc = attention(5)
    desc.validate()
    with pytest.raises(InvalidArgumentError, match=field.title().replace("_", "")):
        dataclasses.replace(desc, **{field: tensor}).validate()
