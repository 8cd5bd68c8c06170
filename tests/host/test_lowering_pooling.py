"""Pooling's rows and plans, without a device."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from dmlvk.devices.capabilities import SUBGROUPS, Capabilities
from dmlvk.kernels.common.access import Access
from dmlvk.kernels.common.plan import Dispatch, output_range
from dmlvk.kernels.common.registry import LOWERINGS
from dmlvk.kernels.common.rule import choose
from dmlvk.kernels.common.window_lanes import lane_access
from dmlvk.kernels.lowering import lower, newest, possible_rules
from dmlvk.kernels.pooling.rules import POOLING
from dmlvk.spec.enums import TensorDataType
from dmlvk.spec.errors import InvalidArgumentError, UnsupportedError
from dmlvk.spec.ops.pooling import (
    AveragePooling,
    AveragePooling1,
    LpPooling,
    LpPooling1,
    MaxPooling,
    MaxPooling1,
    MaxPooling2,
    MaxUnpooling,
    QuantizedLinearAveragePooling,
)
from dmlvk.spec.tensor import TensorDesc, calculate_strides

FLOAT32, UINT32, UINT64 = TensorDataType.FLOAT32, TensorDataType.UINT32, TensorDataType.UINT64
FLOAT16 = TensorDataType.FLOAT16
GPU = Capabilities(
    frozenset({*SUBGROUPS, "storage8", "storage16"}),
    workgroup_invocations=1024,
    shared_memory_bytes=49152,
    storage_buffer_bytes=2**32 - 1,
)


def arrays(window: tuple[int, ...], **changes: tuple[int, ...]) -> dict[str, tuple[int, ...]]:
    ones, zeros = (1,) * len(window), (0,) * len(window)
    return {"window_size": window, "strides": ones, "start_padding": zeros, "end_padding": zeros, **changes}


def average(
    sizes: tuple[int, ...], output: tuple[int, ...], window: tuple[int, ...], layout: str = "", **changes: Any
) -> AveragePooling1:
    strides = calculate_strides(layout, sizes) if layout else None
    return AveragePooling1(
        input_tensor=TensorDesc(FLOAT32, sizes, strides),
        output_tensor=TensorDesc(FLOAT32, output),
        **{**arrays(window, dilations=(1,) * len(window)), **changes},
    )


def norm(sizes: tuple[int, ...], output: tuple[int, ...], window: tuple[int, ...], order: int) -> LpPooling1:
    return LpPooling1(
        input_tensor=TensorDesc(FLOAT32, sizes),
        output_tensor=TensorDesc(FLOAT32, output),
        p=order,
        **arrays(window, dilations=(1,) * len(window)),
    )


def rule(desc: AveragePooling1 | LpPooling1 | MaxPooling2, caps: Capabilities = GPU) -> str:
    return choose(POOLING, LOWERINGS[type(desc)].problem(desc), caps).name


def test_a_row_of_lanes_has_32_groups_at_most() -> None:
    for width, fits in ((125, True), (126, False)):
        desc = average((1, 1, 8, 256), (1, 1, 8, 257 - width), (1, width))
        assert ("lanes" in possible_rules(desc, GPU)) == fits


@pytest.mark.parametrize(("height", "rows"), [(15, 4), (16, 2), (18, 2), (19, 1)])
def test_rows_of_lanes_fit_registers(height: int, rows: int) -> None:
    (launch,) = lower(average((8, 64, 128, 128), (8, 64, 129 - height, 126), (height, 3)), GPU, force="lanes").dispatches
    assert isinstance(launch, Dispatch) and dict(launch.kernel.constants)["ROWS"] == rows


def test_positions_reach_2_to_the_30() -> None:
    sizes = (1, 1, 4, 4)
    lower(average(sizes, sizes, (1, 1), dilations=(1, 2**30)), GPU)
    with pytest.raises(UnsupportedError, match="positions along a dimension"):
        lower(average(sizes, sizes, (1, 1), dilations=(1, 2**30 + 1)), GPU)


def test_older_rows_become_the_newest() -> None:
    tensor = TensorDesc(FLOAT32, (1, 2, 5, 5))
    shared = arrays((1, 1))
    both = {"input_tensor": tensor, "output_tensor": tensor}
    assert newest(AveragePooling(**both, **shared, include_padding=True)) == AveragePooling1(
        **both, **shared, include_padding=True, dilations=(1, 1)
    )
    assert newest(LpPooling(**both, **shared, p=3)) == LpPooling1(**both, **shared, p=3, dilations=(1, 1))
    assert newest(MaxPooling(**both, **shared)) == MaxPooling2(**both, **shared, dilations=(1, 1))
    indices = TensorDesc(UINT32, tensor.sizes)
    assert newest(MaxPooling1(**both, **shared, output_indices_tensor=indices)) == MaxPooling2(
        **both, **shared, output_indices_tensor=indices, dilations=(1, 1)
    )


def test_sizes_count_dilations_and_may_be_rounded_up() -> None:
    changes = {"strides": (2, 3), "dilations": (2, 1), "start_padding": (1, 0)}
    down = average((1, 1, 10, 12), (1, 1, 4, 4), (3, 3), **changes)
    assert down.inferred_output_sizes() == ((1, 1, 4, 4),)
    down.validate()
    for output, good in (((1, 1, 4, 4), True), ((1, 1, 5, 4), False), ((1, 1, 3, 4), False), ((1, 2, 4, 4), False)):
        desc = average((1, 1, 10, 12), output, (3, 3), **changes)
        if good:
            desc.validate()
        else:
            with pytest.raises(InvalidArgumentError, match="rounded down or up"):
                desc.validate()
    average((1, 1, 11, 12), (1, 1, 5, 4), (3, 3), **changes).validate()
    average((1, 1, 11, 12), (1, 1, 4, 4), (3, 3), **changes).validate()


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"strides": (1,)}, "Strides"),
        ({"dilations": (1, 1, 1)}, "Dilations"),
        ({"window_size": (0, 1)}, "WindowSize"),
        ({"strides": (1, 0)}, "Strides"),
        ({"dilations": (0, 1)}, "Dilations"),
        ({"output_tensor": TensorDesc(TensorDataType.FLOAT16, (1, 2, 4, 4))}, "OutputTensor"),
        ({"output_tensor": TensorDesc(FLOAT32, (1, 2, 1, 4, 4))}, "OutputTensor"),
        ({"output_indices_tensor": TensorDesc(UINT32, (1, 2, 4, 5))}, "OutputIndicesTensor"),
        ({"output_indices_tensor": TensorDesc(FLOAT32, (1, 2, 4, 4))}, "OutputIndicesTensor"),
    ],
)
def test_each_rule_is_checked(changes: dict[str, Any], field: str) -> None:
    tensors = {
        "input_tensor": TensorDesc(FLOAT32, (1, 2, 5, 5)),
        "output_tensor": TensorDesc(FLOAT32, (1, 2, 4, 4)),
        "output_indices_tensor": TensorDesc(UINT32, (1, 2, 4, 4)),
    }
    values: dict[str, Any] = {**tensors, **arrays((2, 2), dilations=(1, 1))}
    MaxPooling2(**values).validate()
    with pytest.raises(InvalidArgumentError) as caught:
        MaxPooling2(**{**values, **changes}).validate()
    assert caught.value.field == field


def test_a_window_larger_than_the_padded_input_has_no_size() -> None:
    with pytest.raises(InvalidArgumentError, match="dilated window must fit"):
        average((1, 1, 4, 4), (1, 1, 1, 1), (5, 1)).inferred_output_sizes()


def test_whole_planes_are_reduced() -> None:
    whole = average((8, 32, 7, 7), (8, 32, 1, 1), (7, 7))
    for desc in (whole, average((8, 32, 7, 7), (8, 32, 1, 1), (7, 7), "NHWC")):
        for caps in (GPU, Capabilities(is_cpu=True)):
            assert rule(desc, caps) == "reduce"
            assert {d.kernel.kernel.partition("_")[0] for d in lower(desc, caps).dispatches} == {"reduce"}


def test_what_is_no_reduction() -> None:
    sizes, one = (1, 2, 4, 4), (1, 2, 1, 1)
    padded = {"start_padding": (1, 0), "end_padding": (0, 1)}
    indices = MaxPooling2(
        input_tensor=TensorDesc(FLOAT32, sizes),
        output_tensor=TensorDesc(FLOAT32, one),
        output_indices_tensor=TensorDesc(UINT32, one),
        **arrays((4, 4), dilations=(1, 1)),
    )
    assert rule(average(sizes, one, (5, 5), **padded)) == "reduce"
    for desc in (
        indices,
        average(sizes, one, (5, 5), **padded, include_padding=True),  # more counts than the elements
        average(sizes, one, (4, 3)),
        average(sizes, one, (2, 4), dilations=(3, 1)),
        average(sizes, one, (4, 4), start_padding=(1, 0)),  # the last line is left out
        norm(sizes, one, (4, 4), 2),  # its squares may overflow
        norm(sizes, one, (4, 4), 3),
    ):
        assert rule(desc) != "reduce", desc
    assert rule(norm(sizes, one, (4, 4), 1)) == "reduce"


def test_small_windows_are_taken_in_lanes_and_others_not() -> None:
    assert rule(average((1, 8, 64, 64), (1, 8, 62, 62), (3, 3))) == "lanes"
    assert rule(average((1, 8, 64, 64), (1, 8, 62, 62), (3, 3), "NHWC")) == "lanes"
    assert rule(average((1, 8, 64, 64), (1, 8, 60, 62), (3, 3), dilations=(2, 1))) == "outputs"
    assert rule(average((1, 8, 26, 26), (1, 8, 14, 14), (13, 13))) == "outputs"
    assert rule(norm((1, 8, 64, 64), (1, 8, 62, 62), (3, 3), 2)) == "outputs"


def test_large_windows_far_apart_take_several_invocations() -> None:
    apart = average((1, 8, 64, 64), (1, 8, 4, 4), (16, 16), strides=(16, 16))
    assert rule(apart) == "window"
    assert rule(apart, Capabilities(is_cpu=True)) == "outputs"


@pytest.mark.parametrize(
    ("sizes", "stride", "data_type", "wanted"),
    [
        # An aligned row: the element before the first group, which the padding may hold, and the one behind the last.
        ((32, 256, 56, 56), 1, FLOAT32, {"LANES": 4, "SHIFT": 3, "INSIDE": 0b010, "ROWS": 4, "INPUT_MODE": 1}),
        ((32, 256, 56, 56), 1, FLOAT16, {"LANES": 8, "SHIFT": 7, "INSIDE": 0b010, "ROWS": 4, "INPUT_MODE": 1}),
        ((32, 256, 56, 56), 2, FLOAT32, {"LANES": 4, "SHIFT": 3, "INSIDE": 0b110, "ROWS": 1, "OUTPUT_MODE": 1}),
        # 28 elements are no groups of 8, but of 4.
        ((32, 256, 56, 56), 2, FLOAT16, {"LANES": 4, "SHIFT": 3, "INSIDE": 0b110, "ROWS": 1, "OUTPUT_MODE": 1}),
        ((32, 256, 55, 55), 1, FLOAT16, {"LANES": 4, "SHIFT": 0, "INSIDE": 0, "INPUT_MODE": 0, "OUTPUT_MODE": 0}),
        # Too few to fill a device with several rows each.
        ((1, 3, 56, 56), 1, FLOAT32, {"ROWS": 1}),
    ],
)
def test_lanes_by_hand(sizes: tuple[int, ...], stride: int, data_type: TensorDataType, wanted: dict[str, int]) -> None:
    size = (sizes[2] - 1) // stride + 1
    desc = MaxPooling2(
        input_tensor=TensorDesc(data_type, sizes),
        output_tensor=TensorDesc(data_type, (*sizes[:2], size, size)),
        **arrays((3, 3), dilations=(1, 1), strides=(stride, stride), start_padding=(1, 1), end_padding=(1, 1)),
    )
    (dispatch,) = lower(desc, GPU).dispatches
    found = {**dict(dispatch.kernel.constants), "LANES": int(dict(dispatch.kernel.variant)["LANES"])}
    assert {name: found[name] for name in wanted} == wanted


@pytest.mark.parametrize(("pitch", "access"), [(12, Access.GROUPS), (10, Access.ELEMENTS)])
def test_rows_are_read_in_groups_where_each_starts_on_one(pitch: int, access: Access) -> None:
    assert lane_access((2, 8), (pitch, 1), 1, 4) is access


@pytest.mark.parametrize("plane", [(6, 6), (7, 7), (64, 64), (300, 300)])
@pytest.mark.parametrize("caps", [GPU, Capabilities(), Capabilities(workgroup_invocations=192)])
def test_lanes_divide_the_workgroup(plane: tuple[int, int], caps: Capabilities) -> None:
    kernel = lower(average((1, 3, *plane), (1, 3, 1, 1), plane), caps, force="window").dispatches[0].kernel
    chosen = dict(kernel.constants)
    assert chosen["LOCAL_SIZE_X"] % chosen["LANES"] == 0
    assert chosen["LOCAL_SIZE_X"] <= caps.workgroup_invocations
    assert chosen["LANES"] & (chosen["LANES"] - 1) == 0


def test_batch_and_channels_are_walked_as_one_where_they_run_on() -> None:
    def rank(desc: AveragePooling1) -> int:
        return dict(lower(desc, GPU).dispatches[0].kernel.constants)["RANK"]

    assert rank(average((2, 3, 8, 8), (2, 3, 7, 7), (2, 2))) == 3
    assert rank(average((2, 3, 8, 8), (2, 3, 6, 6), (2, 2), dilations=(2, 2))) == 3
    assert rank(average((2, 3, 8, 8), (2, 3, 7, 7), (2, 2), "NHWC")) == 4
    assert rank(average((2, 3, 4, 8, 8), (2, 3, 3, 7, 7), (2, 2, 2))) == 4


def test_indices_are_words_and_a_binding_of_their_own() -> None:
    tensor = TensorDesc(FLOAT32, (1, 2, 5, 5))
    for indices, words in ((None, 0), (UINT32, 1), (UINT64, 2)):
        desc = MaxPooling2(
            input_tensor=tensor,
            output_tensor=tensor,
            output_indices_tensor=None if indices is None else TensorDesc(indices, tensor.sizes),
            **arrays((1, 1), dilations=(1, 1)),
        )
        dispatch = lower(desc, GPU).dispatches[0]
        assert dict(dispatch.kernel.constants)["INDEX_WORDS"] == words
        assert dispatch.bindings[2] == output_range(1 if words else 0)


def test_positions_that_do_not_fit_are_refused() -> None:
    with pytest.raises(UnsupportedError, match="positions along a dimension"):
        lower(average((1, 1, 4, 4), (1, 1, 4, 4), (1, 1), start_padding=(2**31, 0), strides=(2**31, 1)), GPU)


@pytest.mark.parametrize(
    ("data_type", "chosen", "temporary"),
    [(FLOAT32, "in_output", 0), (TensorDataType.INT64, "in_output", 0), (FLOAT16, "table", 4 * 40)],
)
def test_unpooling_keeps_positions_in_the_output_where_they_fit(
    data_type: TensorDataType, chosen: str, temporary: int
) -> None:
    sizes = (1, 1, 3, 4)
    desc = MaxUnpooling(
        input_tensor=TensorDesc(data_type, sizes),
        indices_tensor=TensorDesc(UINT32, sizes),
        output_tensor=TensorDesc(data_type, (1, 2, 4, 5)),
    )
    assert possible_rules(desc, GPU)[0] == chosen
    plan = lower(desc, GPU)
    assert plan.temporary_bytes == temporary
    assert [dict(d.kernel.constants)["PHASE"] for d in plan.dispatches] == [0, 1, 2]


def test_unpooling_takes_tables_that_a_binding_holds() -> None:
    desc = MaxUnpooling(
        input_tensor=TensorDesc(FLOAT16, (1, 1, 1, 4)),
        indices_tensor=TensorDesc(UINT32, (1, 1, 1, 4)),
        output_tensor=TensorDesc(FLOAT16, (1, 1, 4, 8)),
    )
    plan = lower(desc, dataclasses.replace(GPU, storage_buffer_bytes=4 * 17))  # parts of 17 and 15 places
    assert plan.temporary_bytes == 4 * 17
    assert [dict(d.kernel.constants)["PHASE"] for d in plan.dispatches] == [0, 1, 2] * 2
    assert [d.bindings[3].nbytes for d in plan.dispatches] == [4 * 17] * 6


def test_a_quantized_window_may_have_more_elements_than_31_bits_sum() -> None:
    byte, scale = TensorDataType.UINT8, TensorDesc(FLOAT32, (1,))
    desc = QuantizedLinearAveragePooling(
        input_tensor=TensorDesc(byte, (1, 1, 2**12, 2**12)),
        input_scale_tensor=scale,
        output_scale_tensor=scale,
        output_tensor=TensorDesc(byte, (1, 1, 1, 1)),
        **arrays((2**12, 2**12), dilations=(1, 1)),
    )
    (dispatch,) = lower(desc, GPU).dispatches
    assert isinstance(dispatch, Dispatch) and dispatch.kernel.kernel == "pooling_quantized"
