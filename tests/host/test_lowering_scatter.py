"""Plans of scatters, without a device."""

from __future__ import annotations

import pytest

import dmlvk
from dmlvk import TensorDataType, TensorDesc
from dmlvk.devices.capabilities import SUBGROUPS, Capabilities
from dmlvk.kernels.common.plan import BlockCopy, Dispatch, Plan, Source
from dmlvk.kernels.lowering import explain, lower, possible_rules

T = TensorDataType
Sizes = tuple[int, ...]

LARGE = Capabilities(
    features=SUBGROUPS | {"storage8", "storage16"},
    workgroup_invocations=1024,
    workgroup_counts=(2**31 - 1, 65535, 65535),
    storage_buffer_bytes=2**32 - 1,
)


def elements(
    sizes: Sizes, axis: int, length: int, data_type: TensorDataType = T.FLOAT32, index_strides: Sizes | None = None
) -> dmlvk.ScatterElements:
    own = (*sizes[:axis], length, *sizes[axis + 1 :])
    return dmlvk.ScatterElements(
        input_tensor=TensorDesc(data_type, sizes),
        indices_tensor=TensorDesc(T.INT64, own, index_strides),
        updates_tensor=TensorDesc(data_type, own),
        output_tensor=TensorDesc(data_type, sizes),
        axis=axis,
    )


def rows(
    sizes: Sizes, count: int, data_type: TensorDataType = T.FLOAT32, output_strides: Sizes | None = None
) -> dmlvk.ScatterNd:
    """A ScatterNd into the rows of a matrix."""
    return dmlvk.ScatterNd(
        input_tensor=TensorDesc(data_type, sizes),
        indices_tensor=TensorDesc(T.UINT32, (count, 1)),
        updates_tensor=TensorDesc(data_type, (count, sizes[1])),
        output_tensor=TensorDesc(data_type, sizes, output_strides),
        input_dimension_count=2,
        indices_dimension_count=2,
    )


def kernels(plan: Plan) -> list[str]:
    return ["copy" if isinstance(launch, BlockCopy) else launch.kernel.kernel for launch in plan.dispatches]


def last(plan: Plan) -> Dispatch:
    launch = plan.dispatches[-1]
    assert isinstance(launch, Dispatch)
    return launch


def named(value: object) -> str:
    return value if isinstance(value, str) else type(value).__name__


@pytest.mark.parametrize(
    ("desc", "rule"),
    [
        (elements((2**26,), 0, 2**24), "in_output"),
        (elements((2**26,), 0, 2**24, T.FLOAT64), "in_output"),
        (elements((2**26,), 0, 2**24, T.FLOAT16), "table"),
        (elements((2**26,), 0, 2**16), "sparse"),
        (elements((64, 4096, 128), 1, 1), "alone"),
        (rows((2**16, 1024), 2**14), "table"),
        (rows((2**16, 1024), 1), "alone"),
        (rows((2**24, 2), 2**10), "sparse"),
    ],
    ids=named,
)
def test_the_rule(desc: dmlvk.ScatterElements | dmlvk.ScatterNd, rule: str) -> None:
    assert next(found.name for found, holds in explain(desc, LARGE) if holds) == rule


@pytest.mark.parametrize(
    ("rule", "launches", "temporary"),
    [
        ("sparse", ["copy", "scatter_mark", "scatter_mark", "scatter_write"], 4 * 1000),
        ("in_output", ["scatter_mark", "scatter_mark", "scatter_merge"], 0),
        ("table", ["scatter_mark", "scatter_mark", "scatter_merge"], 4 * 1000),
    ],
)
def test_launches_and_temporary_memory(rule: str, launches: list[str], temporary: int) -> None:
    plan = lower(elements((1000,), 0, 70), LARGE, force=rule)
    assert (kernels(plan), plan.temporary_bytes) == (launches, temporary)
    single = lower(elements((1000,), 0, 1), LARGE)
    assert (kernels(single), single.temporary_bytes) == (["copy", "scatter_write"], 0)


def test_a_table_has_an_entry_a_row() -> None:
    assert lower(rows((1000, 256), 300), LARGE, force="table").temporary_bytes == 4 * 1000


def test_the_copy_and_the_table_do_not_wait_for_each_other() -> None:
    copy, clear, mark, _ = lower(elements((1000,), 0, 70), LARGE, force="sparse").dispatches
    assert {part.source for part in copy.bindings} == {Source.INPUT, Source.OUTPUT}
    for launch in (clear, mark):
        assert Source.OUTPUT not in {part.source for part in launch.bindings}


@pytest.mark.parametrize(
    ("desc", "unit"),
    [
        (rows((16, 1024), 8), "BITS128"),
        (rows((16, 1024), 8, output_strides=(1028, 1)), "BITS128"),
        (rows((16, 1024), 8, output_strides=(1026, 1)), "BITS64"),
        (rows((16, 1024), 8, output_strides=(1025, 1)), "UINT32"),
        (rows((16, 1024), 8, output_strides=(1, 16)), "UINT32"),
        (rows((16, 37), 8, T.UINT8), "UINT8"),
        (rows((16, 38), 8, T.UINT8), "UINT16"),
        (rows((16, 33), 8, T.FLOAT64), "BITS64"),
        (elements((16, 48), 1, 40, T.FLOAT16), "UINT16"),
        (elements((16, 48), 0, 40, T.FLOAT16, index_strides=(1, 0)), "BITS128"),
    ],
    ids=named,
)
@pytest.mark.parametrize("rule", ["sparse", "table"])
def test_units_are_as_wide_as_rows_allow(desc: dmlvk.ScatterElements | dmlvk.ScatterNd, unit: str, rule: str) -> None:
    """Indices that are broadcast along a dimension make rows of single elements."""
    assert dict(last(lower(desc, LARGE, force=rule)).kernel.variant)["T"] == unit


def test_a_table_that_no_binding_holds_is_taken_in_parts() -> None:
    caps = Capabilities(features=LARGE.features, storage_buffer_bytes=2**27)
    desc = elements((2**26 + 5,), 0, 2**10, T.UINT8)
    assert possible_rules(desc, caps) == ["table"]
    plan = lower(desc, caps)
    assert plan.temporary_bytes == 2**27
    assert len(plan.dispatches) == 3 * 3


@pytest.mark.parametrize("rule", ["sparse", "in_output", "table"])
def test_steps_of_single_elements_may_be_too_large_for_a_parameter(rule: str) -> None:
    """A dimension of one element has a step that is never taken."""
    far, ones = 2**32 - 1, {"input_dimension_count": 2, "indices_dimension_count": 2}
    output = TensorDesc(T.FLOAT64, (1, 7), (far, 1))
    desc = dmlvk.ScatterNd(
        input_tensor=output,
        indices_tensor=TensorDesc(T.INT64, (3, 1), (1, far)),
        updates_tensor=TensorDesc(T.FLOAT64, (3, 7)),
        output_tensor=output,
        **ones,
    )
    assert rule == "in_output" or lower(desc, LARGE, force=rule).dispatches
    pairs = desc.replace(indices_tensor=TensorDesc(T.INT64, (3, 2)), updates_tensor=TensorDesc(T.FLOAT64, (1, 3)))
    assert lower(pairs, LARGE, force=rule).dispatches
