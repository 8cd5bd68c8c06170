"""Plans of random bits, without a device."""

from __future__ import annotations

import pytest

import dmlvk
from dmlvk import TensorDataType, TensorDesc
from dmlvk.devices.capabilities import Capabilities
from dmlvk.kernels.lowering import explain, lower

LARGE = Capabilities(workgroup_invocations=1024, storage_buffer_bytes=2**32 - 1)


def generator(sizes: tuple[int, ...], strides: tuple[int, ...] | None = None) -> dmlvk.RandomGenerator:
    return dmlvk.RandomGenerator(
        input_state_tensor=TensorDesc(TensorDataType.UINT32, (6,)),
        output_tensor=TensorDesc(TensorDataType.UINT32, sizes, strides),
    )


@pytest.mark.parametrize(
    ("sizes", "strides", "rule"),
    [
        ((3, 5, 7), None, "words"),
        ((3, 8), (12, 1), "words"),
        ((3, 8), (10, 1), "elements"),
        ((3, 7), (8, 1), "elements"),
        ((4, 4), (1, 4), "elements"),
        ((1,), None, "words"),
        ((5,), (2,), "elements"),
    ],
)
def test_the_rule(sizes: tuple[int, ...], strides: tuple[int, ...] | None, rule: str) -> None:
    assert next(found.name for found, holds in explain(generator(sizes, strides), LARGE) if holds) == rule


@pytest.mark.parametrize("sizes", [(1,), (5,), (1025,), (2**30 - 4,)])
def test_an_invocation_for_every_blocks_it_makes(sizes: tuple[int, ...]) -> None:
    plan = lower(generator(sizes), LARGE)
    assert plan.temporary_bytes == 0
    (dispatch,) = plan.dispatches
    constants = dict(dispatch.kernel.constants)
    x, y, _ = dispatch.grid
    blocks = -(-sizes[0] // 4)
    made = constants["LOCAL_SIZE_X"] * constants["UNITS"]
    assert blocks <= x * y * made < blocks + made * max(x, 1 + (y > 1) * y)


def test_all_packed_sizes_of_a_rank_share_a_pipeline() -> None:
    kernels = {lower(generator(sizes), LARGE).dispatches[0].kernel for sizes in ((3, 4), (7, 9, 2), (2**20,))}
    assert len(kernels) == 1
