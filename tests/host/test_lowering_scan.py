"""Plans of running sums and products, without a device."""

from __future__ import annotations

import pytest

import dmlvk
from dmlvk import AxisDirection, TensorDataType, TensorDesc
from dmlvk.devices.capabilities import SUBGROUPS, Capabilities
from dmlvk.kernels.lowering import explain, lower

LARGE = Capabilities(
    features=SUBGROUPS | {"storage16", "int64"},
    shared_memory_bytes=49152,
    workgroup_invocations=1024,
    workgroup_counts=(2**31 - 1, 65535, 65535),
    storage_buffer_bytes=2**32 - 1,
)


def summation(
    sizes: tuple[int, ...], axis: int, data_type: TensorDataType = TensorDataType.FLOAT32
) -> dmlvk.CumulativeSummation:
    tensor = TensorDesc(data_type, sizes)
    return dmlvk.CumulativeSummation(input_tensor=tensor, output_tensor=tensor, axis=axis)


def chosen(desc: dmlvk.CumulativeSummation, caps: Capabilities = LARGE) -> str:
    return next(rule.name for rule, holds in explain(desc, caps) if holds)


@pytest.mark.parametrize(
    ("sizes", "axis", "rule"),
    [
        ((16384, 8192), 1, "rows"),
        ((16384, 8192), 0, "columns"),
        ((10**8,), 0, "chunks"),
        ((2**21, 64), 0, "column chunks"),
        ((4, 2**20), 1, "chunks"),
        ((3, 5), 0, "columns"),
    ],
)
def test_the_rule(sizes: tuple[int, ...], axis: int, rule: str) -> None:
    assert chosen(summation(sizes, axis)) == rule


def test_a_row_of_8192_is_one_tile_of_one_workgroup() -> None:
    (dispatch,) = lower(summation((16384, 8192), 1), LARGE).dispatches
    constants = dict(dispatch.kernel.constants)
    assert constants["LANES"] * constants["UNITS"] * 4 == 8192
    assert dispatch.grid == (16384, 1, 1)


@pytest.mark.parametrize(("sizes", "axis"), [((10**8,), 0), ((2**21, 64), 0), ((127, 2**20), 1), ((4096, 4095), 0)])
def test_temporary_memory_is_small(sizes: tuple[int, ...], axis: int) -> None:
    desc = summation(sizes, axis)
    assert lower(desc, LARGE).temporary_bytes <= max(2**20, desc.tensor("input_tensor").total_tensor_size_in_bytes // 100)


def test_the_least_device_and_every_direction_share_a_pipeline() -> None:
    desc = summation((64, 4096), 1)
    (dispatch,) = lower(desc, Capabilities()).dispatches
    assert dict(dispatch.kernel.constants)["LOCAL_SIZE_X"] <= 128
    (other,) = lower(
        desc.replace(axis_direction=AxisDirection.DECREASING, has_exclusive_sum=True), Capabilities()
    ).dispatches
    assert other.kernel == dispatch.kernel and other.params != dispatch.params


def test_integers_of_either_sign_share_a_kernel() -> None:
    kernels = {
        lower(summation((4, 64), 1, data_type), LARGE).dispatches[0].kernel
        for data_type in (TensorDataType.INT32, TensorDataType.UINT32)
    }
    assert len(kernels) == 1
