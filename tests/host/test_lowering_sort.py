"""Plans of top-k, without a device."""

from __future__ import annotations

import dataclasses

import pytest

import dmlvk
from dmlvk import TensorDataType, TensorDesc
from dmlvk.devices.capabilities import SUBGROUPS, Capabilities
from dmlvk.devices.model import H200
from dmlvk.kernels.lowering import explain, lower, possible_rules
from dmlvk.kernels.sort.rules import TOP_K_COUNT_BYTES
from dmlvk.spec.errors import UnsupportedError

LARGE = Capabilities(
    features=SUBGROUPS | {"storage8", "storage16"},
    shared_memory_bytes=49152,
    workgroup_invocations=1024,
    workgroup_counts=(2**31 - 1, 65535, 65535),
    storage_buffer_bytes=2**32 - 1,
    model=H200,
)


def top_k(rows: int, length: int, k: int, data_type: TensorDataType = TensorDataType.FLOAT32) -> dmlvk.TopK1:
    return dmlvk.TopK1(
        input_tensor=TensorDesc(data_type, (rows, length)),
        output_value_tensor=TensorDesc(data_type, (rows, k)),
        output_index_tensor=TensorDesc(TensorDataType.UINT32, (rows, k)),
        axis=1,
        k=k,
    )


def test_chunks_are_of_long_rows_and_of_few_elements_wanted() -> None:
    for k, least in ((1, 4096), (8, 4096), (16, 8192)):
        for length in (least - 1, least):
            assert ("chunks" in possible_rules(top_k(64, length, k), LARGE)) == (length == least)


@pytest.mark.parametrize(
    ("rows", "length", "k", "rule"),
    [
        (65536, 1000, 5, "select"),
        (65536, 1000, 250, "sort"),
        (65536, 100, 5, "sort"),
        (65536, 128, 5, "sort"),
        (65536, 129, 5, "select"),
        (4096, 32768, 100, "select"),
        (1, 2**26, 10, "chunks"),
        (1024, 8192, 8192, "memory"),
    ],
)
def test_the_rule(rows: int, length: int, k: int, rule: str) -> None:
    assert next(found.name for found, holds in explain(top_k(rows, length, k), LARGE) if holds) == rule


@pytest.mark.parametrize("caps", [Capabilities(features=LARGE.features), LARGE], ids=["least", "large"])
@pytest.mark.parametrize("data_type", [TensorDataType.FLOAT32, TensorDataType.INT64, TensorDataType.UINT8])
@pytest.mark.parametrize(("length", "k"), [(3, 2), (1024, 9), (8192, 16), (8192, 512), (8192, 8192)])
def test_shared_memory_is_the_devices(caps: Capabilities, data_type: TensorDataType, length: int, k: int) -> None:
    desc = top_k(3, length, k, data_type)
    for rule in possible_rules(desc, caps):
        for dispatch in lower(desc, caps, force=rule).dispatches:
            constants = dict(dispatch.kernel.constants)
            entry = 12 if data_type is TensorDataType.INT64 else 8
            used = constants["CAPACITY"] * entry + (TOP_K_COUNT_BYTES if rule in ("select", "chunks") else 0)
            assert used <= caps.shared_memory_bytes
            assert constants["LOCAL_SIZE_X"] <= caps.workgroup_invocations
            assert rule not in ("select", "chunks") or k <= constants["CAPACITY"]


def test_candidates_have_what_the_counts_leave_of_shared_memory() -> None:
    """10,304 bytes are theirs; a candidate takes 8, and there is a power of two of them."""
    for memory, most in ((10_304 + 8 * 1024, 1024), (10_303 + 8 * 1024, 512)):
        (dispatch,) = lower(top_k(64, 4095, 512), dataclasses.replace(LARGE, shared_memory_bytes=memory)).dispatches
        assert dict(dispatch.kernel.constants)["CAPACITY"] == most


@pytest.mark.parametrize(("rows", "length", "k"), [(1, 2**26, 10), (64, 2**20, 100), (127, 2**18, 100)])
def test_temporary_memory_of_chunks_is_small(rows: int, length: int, k: int) -> None:
    desc = top_k(rows, length, k)
    plan = lower(desc, LARGE)
    assert len(plan.dispatches) == 2
    _, values, indices, _ = plan.dispatches[0].bindings
    assert values.nbytes == indices.nbytes, "both have 32 bits each"
    assert plan.temporary_bytes <= max(2**20, desc.tensor("input_tensor").total_tensor_size_in_bytes // 100)


def test_rows_are_sorted_in_batches() -> None:
    plan = lower(top_k(4096, 8192, 8192), LARGE)
    assert plan.temporary_bytes <= 2**26
    *_, keys, positions = plan.dispatches[0].bindings
    assert keys.nbytes == positions.nbytes and keys.nbytes % (8192 * 4) == 0


def test_a_row_too_long_to_sort_is_refused() -> None:
    lower(top_k(1, 2**25, 10_000_000), Capabilities())
    narrow = top_k(1, 2**25 + 1, 10_000_000, TensorDataType.UINT8)
    with pytest.raises(UnsupportedError, match="needs a table of 134217732 bytes"):
        lower(narrow, dataclasses.replace(Capabilities(), features=SUBGROUPS | {"storage8"}))
