"""Attention over a cache, without a device."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from dmlvk import TensorDataType, TensorDesc
from dmlvk.devices.capabilities import SUBGROUPS, Capabilities
from dmlvk.devices.model import H200
from dmlvk.kernels.common.plan import COUNTERS, Source
from dmlvk.kernels.lowering import lower, possible_rules
from dmlvk.spec.errors import InvalidArgumentError
from dmlvk.spec.ops.cached_attention import CachedAttention

FLOAT32, FLOAT16, INT32 = TensorDataType.FLOAT32, TensorDataType.FLOAT16, TensorDataType.INT32
GPU = Capabilities(features=Capabilities().features | SUBGROUPS | {"storage16"}, subgroup_size=32, model=H200)


def attention(
    rows: int = 1, capacity: int = 4096, past: int = 0, size: int = 128, batch: int = 2, **others: Any
) -> CachedAttention:
    cache = TensorDesc(FLOAT16, (batch, 8, capacity, size))
    fields: dict[str, Any] = dict.fromkeys(
        ("past_key_tensor", "past_value_tensor"), TensorDesc(FLOAT16, (batch, 8, past or 1, size))
    )
    return CachedAttention(
        query_tensor=TensorDesc(FLOAT16, (batch, rows, 32, size)),
        key_tensor=TensorDesc(FLOAT16, (batch, rows, 8, size)),
        value_tensor=TensorDesc(FLOAT16, (batch, rows, 8, size)),
        lengths_tensor=TensorDesc(INT32, (batch,)),
        output_tensor=TensorDesc(FLOAT16, (batch, rows, 32, size)),
        cache_key_tensor=cache,
        cache_value_tensor=cache,
        scale=1.0,
        **(fields if past else {}),
        **others,
    )


def kernels(desc: CachedAttention, caps: Capabilities = GPU) -> list[str]:
    desc.validate()
    return [launch.kernel.kernel for launch in lower(desc, caps).dispatches]  # type: ignore[union-attr]


@pytest.mark.parametrize(("rows", "capacity", "counts"), [(1, 4096, True), (1, 32, False), (2, 4096, True)])
def test_a_step_is_one_dispatch(rows: int, capacity: int, counts: bool) -> None:
    plan = lower(attention(rows, capacity), GPU)
    assert [launch.name for launch in plan.dispatches] == ["attention_step"]
    counted = [part.nbytes for part in plan.dispatches[0].bindings if part.source is Source.COUNTERS]
    assert counted == ([4 * 2 * 8] if counts else []), "of each batch entry and head of keys, where they have parts"


def test_more_heads_than_counters_have_one_part() -> None:
    caps = dataclasses.replace(GPU, model=dataclasses.replace(H200, processors=32 * COUNTERS))
    plan = lower(attention(capacity=256, batch=COUNTERS // 8 + 1), caps)
    assert plan.dispatches[0].grid[0] == 1
    assert all(part.source is not Source.COUNTERS for part in plan.dispatches[0].bindings)


def test_the_grid_follows_the_capacity_and_the_device() -> None:
    grids = [lower(attention(capacity=capacity), GPU).dispatches[0].grid for capacity in (64, 128, 2**14)]  # type: ignore[union-attr]
    assert grids[0] < grids[1] < grids[2]
    assert grids[2][0] * grids[2][1] <= GPU.model.processors


@pytest.mark.parametrize(
    ("desc", "caps"),
    [
        (attention(3), GPU),  # more rows than registers hold
        (attention(past=64), GPU),
        (attention(), dataclasses.replace(GPU, features=GPU.features - SUBGROUPS)),
        (attention(size=20), GPU),  # no whole words
        (attention(), dataclasses.replace(GPU, shared_memory_bytes=2048)),
    ],
)
def test_what_is_no_step(desc: CachedAttention, caps: Capabilities) -> None:
    desc.validate()
    assert "step" not in possible_rules(desc, caps)


@pytest.mark.parametrize(
    ("field", "tensor"),
    [
        ("key_tensor", TensorDesc(FLOAT16, (2, 1, 8, 64))),
        ("lengths_tensor", TensorDesc(INT32, (1,))),
        ("bias_tensor", TensorDesc(FLOAT16, (2, 32, 1, 4095))),
        ("sinks_tensor", TensorDesc(FLOAT16, (8,))),
        ("cache_value_tensor", TensorDesc(FLOAT16, (2, 8, 64, 128))),
        ("past_key_tensor", TensorDesc(FLOAT16, (2, 8, 64, 128))),
        ("cosines_tensor", TensorDesc(FLOAT16, (4096, 64))),
        ("positions_tensor", TensorDesc(INT32, (2, 1))),
    ],
)
def test_tensors_that_do_not_fit(field: str, tensor: TensorDesc) -> None:
    with pytest.raises(InvalidArgumentError, match="CachedAttention"):
        dataclasses.replace(attention(), **{field: tensor}).validate()
