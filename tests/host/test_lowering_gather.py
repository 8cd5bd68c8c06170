"""Plans of gathers, without a device."""

from __future__ import annotations

from typing import Any

import pytest

from dmlvk import TensorDataType, TensorDesc
from dmlvk.devices.capabilities import Capabilities
from dmlvk.kernels.common.plan import Dispatch
from dmlvk.kernels.common.registry import LOWERINGS
from dmlvk.kernels.gather.rules import ChosenDimension, GatherProblem
from dmlvk.kernels.lowering import explain, lower, possible_rules
from dmlvk.kernels.manifest import KERNELS
from dmlvk.spec import ops
from dmlvk.spec.schema import OperatorDesc

FLOAT64, FLOAT32, FLOAT16, INT8, INT64, UINT32 = (
    TensorDataType[name] for name in ("FLOAT64", "FLOAT32", "FLOAT16", "INT8", "INT64", "UINT32")
)
LEAST = Capabilities(features=frozenset({"storage8", "storage16"}))
Sizes = tuple[int, ...]


def gather(
    sizes: Sizes,
    count: int,
    axis: int,
    data_type: TensorDataType = FLOAT32,
    *,
    x_strides: Sizes | None = None,
    output_strides: Sizes | None = None,
    index_type: TensorDataType = UINT32,
) -> ops.Gather:
    """A Gather of so many indices along an axis."""
    return ops.Gather(
        input_tensor=TensorDesc(data_type, sizes, x_strides),
        indices_tensor=TensorDesc(index_type, (*(1,) * (len(sizes) - 1), count)),
        output_tensor=TensorDesc(data_type, (*sizes[:axis], count, *sizes[axis + 1 :]), output_strides),
        axis=axis,
        index_dimensions=1,
    )


def elements(sizes: Sizes, axis: int, data_type: TensorDataType = FLOAT32) -> ops.GatherElements:
    """A GatherElements of as many indices as elements."""
    x = TensorDesc(data_type, sizes)
    return ops.GatherElements(input_tensor=x, indices_tensor=TensorDesc(INT64, sizes), output_tensor=x, axis=axis)


def problem(desc: OperatorDesc) -> GatherProblem:
    desc.validate()
    found: GatherProblem = LOWERINGS[type(desc)].problem(desc)
    return found


def dispatch(desc: OperatorDesc, rule: str = "") -> Dispatch:
    (only,) = lower(desc, LEAST, force=rule).dispatches
    assert isinstance(only, Dispatch)
    return only


def param(launch: Dispatch, name: str) -> Any:
    """A parameter: a number, or a list of them."""
    start = 0
    for member in KERNELS[launch.kernel.kernel].members:
        length = 4 * max(member.length, 1)
        if member.name == name:
            words = [int.from_bytes(launch.params[i : i + 4], "little") for i in range(start, start + length, 4)]
            return words if member.length else words[0]
        start += length
    raise KeyError(name)


@pytest.mark.parametrize(
    ("desc", "bits", "size", "rule"),
    [
        (gather((9, 1024), 5, 0), 128, 256, "units"),
        (gather((9, 768), 5, 0, FLOAT16), 128, 96, "units"),
        (gather((9, 773), 5, 0, FLOAT16), 16, 773, "rows"),
        (gather((9, 770), 5, 0, FLOAT16), 32, 385, "rows"),
        (gather((9, 17), 5, 0, FLOAT64), 64, 17, "units"),
        (gather((9, 193), 5, 0), 32, 193, "rows"),
        (gather((9, 3), 5, 0), 32, 3, "units"),
        (gather((9, 193), 5, 0, output_strides=(194, 1)), 32, 193, "rows"),
        (gather((9, 2), 5, 0), 64, 1, "units"),
        (gather((9, 2), 5, 0, INT8), 16, 1, "units"),
        (gather((99,), 5, 0), 32, 1, "units"),
        (gather((4, 99), 5, 1, INT8), 8, 1, "units"),
        (gather((4, 9, 6, 8), 5, 1), 128, 12, "units"),
        (gather((9, 1024), 5, 0, x_strides=(1, 9)), 32, 1024, "units"),
        (gather((9, 256), 5, 0, x_strides=(257, 1)), 32, 256, "rows"),
        (gather((9, 64), 5, 0, output_strides=(66, 1)), 64, 32, "units"),
        (gather((9, 64), 5, 0, output_strides=(1, 5)), 32, 1, "units"),
        (elements((8, 64), 0), 32, 1, "units"),
        (elements((8, 64), 1, FLOAT64), 64, 1, "units"),
    ],
)
def test_units_are_as_wide_as_places_allow(desc: OperatorDesc, bits: int, size: int, rule: str) -> None:
    found = problem(desc)
    assert (found.bits, found.size) == (bits, size)
    assert next(one.name for one, holds in explain(desc, LEAST) if holds) == rule


def test_only_contiguous_rows_are_made_in_words() -> None:
    assert possible_rules(gather((9, 16), 5, 0), LEAST) == ["rows", "units"]
    assert possible_rules(gather((9, 16), 5, 0, x_strides=(1, 9)), LEAST) == ["units"]
    assert possible_rules(gather((9, 16), 5, 0, output_strides=(32, 2)), LEAST) == ["units"]
    assert possible_rules(elements((8, 64), 0), LEAST) == ["rows", "units"], "rows of one element"


def test_words_have_units_of_at_most_32_bits() -> None:
    launch = dispatch(gather((9, 17), 5, 0, FLOAT64), "rows")
    assert launch.kernel.variant == (("ROWS", "1"), ("T", "UINT32"))
    assert (param(launch, "inner_size"), param(launch, "chosen_strides")[0]) == (34, 34)
    assert dict(launch.kernel.constants)["PACKED"] == 1
    apart = dispatch(gather((9, 17), 5, 0, FLOAT64, output_strides=(18, 1)), "rows")
    assert dict(apart.kernel.constants)["PACKED"] == 0


@pytest.mark.parametrize("data_type", ops.Gather.fields[0].data_types)
def test_no_type_needs_more_than_storage(data_type: TensorDataType) -> None:
    for desc in (gather((9, 17), 5, 0, data_type), elements((3, 5), 1, data_type)):
        for rule in possible_rules(desc, LEAST):
            assert dispatch(desc, rule).grid[0] >= 1


def test_indices_are_read_as_words() -> None:
    for name, words, signed in (("INT64", 2, 1), ("INT32", 1, 1), ("UINT64", 2, 0), ("UINT32", 1, 0)):
        launch = dispatch(gather((9, 17), 5, 0, index_type=TensorDataType[name]))
        constants = dict(launch.kernel.constants)
        assert (constants["INDEX_WORDS"], constants["INDEX_SIGNED"]) == (words, signed)
        assert param(launch, "index_strides")[0] == words


def test_dimensions_that_go_together_are_one() -> None:
    found = problem(gather((2, 3, 4, 5, 7), 6, 2))
    assert found.rows.sizes == (6, 6)
    assert found.rows.strides == ((140, 0), (0, 1), (210, 35))
    assert found.chosen == (ChosenDimension(4, 35),)


def test_the_innermost_dimension_is_the_outputs() -> None:
    """Whatever its place among the sizes, and of any order of the outer ones."""
    found = problem(gather((4, 9, 8), 5, 1, x_strides=(1, 32, 4), output_strides=(1, 32, 4)))
    assert (found.rows.sizes, found.size, found.bits) == ((5,), 8, 128)


def test_leading_ones_are_cropped_and_added() -> None:
    def sizes(index_dimensions: int, inputs: Sizes, indices: Sizes, axis: int) -> Sizes:
        desc = ops.Gather(
            input_tensor=TensorDesc(FLOAT32, inputs),
            indices_tensor=TensorDesc(INT64, indices),
            axis=axis,
            index_dimensions=index_dimensions,
        )
        (found,) = desc.inferred_output_sizes()
        assert problem(desc.replace(output_tensor=TensorDesc(FLOAT32, found))).rows.sizes
        return found

    assert sizes(0, (3, 4, 5), (1, 1, 1), 1) == (1, 3, 5)
    assert sizes(1, (3, 4, 5), (1, 1, 7), 1) == (3, 7, 5)
    assert sizes(2, (1, 4, 5), (1, 6, 7), 1) == (6, 7, 5)
    assert sizes(3, (1, 1, 5), (2, 6, 7), 2) == (2, 6, 7)
    assert sizes(2, (1, 1, 5), (1, 1, 7), 0) == (7, 1, 5)


def test_a_tuple_names_several_dimensions() -> None:
    desc = ops.GatherNd(
        input_tensor=TensorDesc(FLOAT32, (3, 4, 5, 8)),
        indices_tensor=TensorDesc(INT64, (1, 6, 7, 2)),
        output_tensor=TensorDesc(FLOAT32, (6, 7, 5, 8)),
        input_dimension_count=4,
        indices_dimension_count=3,
    ).upgrade()
    found = problem(desc)
    assert found.chosen == (ChosenDimension(3, 40), ChosenDimension(4, 10)), "in units of 16 bytes"
    assert (found.rows.sizes, found.index_step) == ((42,), 1)
    launch = dispatch(desc)
    assert dict(launch.kernel.constants)["TUPLE"] == 2
    assert (param(launch, "index_strides")[0], param(launch, "index_step")) == (4, 2)


def test_batches_go_through_input_and_indices_together() -> None:
    desc = ops.GatherNd1(
        input_tensor=TensorDesc(FLOAT32, (1, 3, 4, 5)),
        indices_tensor=TensorDesc(INT64, (1, 3, 6, 1)),
        output_tensor=TensorDesc(FLOAT32, (1, 3, 6, 5)),
        input_dimension_count=3,
        indices_dimension_count=3,
        batch_dimension_count=1,
    )
    assert problem(desc).rows.strides == ((20, 0), (6, 1), (30, 5))


def test_shapes_share_a_pipeline() -> None:
    first = dispatch(gather((9, 17), 5, 0)).kernel
    assert dispatch(gather((100, 33), 1000, 0)).kernel == first


def test_a_stride_of_a_dimension_of_one_element_is_nothing() -> None:
    found = problem(gather((1, 8), 5, 0, x_strides=(3, 1)))
    assert (found.bits, found.chosen) == (128, (ChosenDimension(1, 0),))
