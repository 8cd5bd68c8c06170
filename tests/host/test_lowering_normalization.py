"""Plans of the normalizations, without a device."""

from __future__ import annotations

import math
import struct
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dmlvk.devices.capabilities import SUBGROUPS, Capabilities
from dmlvk.devices.model import H200
from dmlvk.kernels.common.access import Access
from dmlvk.kernels.common.plan import Dispatch, input_range, output_range
from dmlvk.kernels.common.registry import LOWERINGS
from dmlvk.kernels.common.rule import choose
from dmlvk.kernels.lowering import lower, newest, possible_rules
from dmlvk.kernels.manifest import KERNELS
from dmlvk.kernels.normalization.rules import MEAN_VARIANCE_NORMALIZATION
from dmlvk.spec.enums import TensorDataType
from dmlvk.spec.errors import UnsupportedError
from dmlvk.spec.ops.activation import ActivationLeakyRelu
from dmlvk.spec.ops.normalization import (
    BatchNormalization,
    BatchNormalizationTraining,
    LocalResponseNormalization,
    MeanVarianceNormalization,
    MeanVarianceNormalization2,
)
from dmlvk.spec.schema import OperatorDesc
from dmlvk.spec.tensor import TensorDesc, calculate_strides

FLOAT32, FLOAT16 = TensorDataType.FLOAT32, TensorDataType.FLOAT16
STORAGE = SUBGROUPS | frozenset({"storage16"})
LEAST = Capabilities(features=STORAGE)
GPU = Capabilities(
    features=STORAGE, workgroup_invocations=1024, shared_memory_bytes=49152, storage_buffer_bytes=2**32 - 1, model=H200
)


def mvn(
    sizes: tuple[int, ...],
    axes: tuple[int, ...],
    side: tuple[int, ...] | None = None,
    *,
    data_type: TensorDataType = FLOAT32,
    strides: tuple[int, ...] | None = None,
    **changes: Any,
) -> MeanVarianceNormalization2:
    tensor = TensorDesc(data_type, sizes, strides)
    given_side = None if side is None else TensorDesc(data_type, side)
    desc = MeanVarianceNormalization2(
        input_tensor=tensor, scale_tensor=given_side, bias_tensor=given_side, output_tensor=tensor, axes=axes, **changes
    )
    desc.validate()
    return desc


def training(
    sizes: tuple[int, ...], strides: tuple[int, ...] | None = None, data_type: TensorDataType = FLOAT32
) -> BatchNormalizationTraining:
    """Over all dimensions but the channels."""
    tensor = TensorDesc(data_type, sizes, strides)
    own = TensorDesc(data_type, (1, sizes[1], *(1 for _ in sizes[2:])))
    desc = BatchNormalizationTraining(
        input_tensor=tensor,
        scale_tensor=own,
        bias_tensor=own,
        output_tensor=tensor,
        output_mean_tensor=own,
        output_variance_tensor=own,
    )
    desc.validate()
    return desc


def rule(desc: MeanVarianceNormalization2 | BatchNormalizationTraining, caps: Capabilities = GPU) -> str:
    return choose(MEAN_VARIANCE_NORMALIZATION, LOWERINGS[type(desc)].problem(desc), caps).name


def only(desc: Any, caps: Capabilities = GPU, force: str = "") -> Dispatch:
    (dispatch,) = lower(desc, caps, force=force).dispatches
    return dispatch


def constants(dispatch: Dispatch) -> dict[str, int]:
    return dict(KERNELS[dispatch.kernel.kernel].constants) | dict(dispatch.kernel.constants)  # type: ignore[return-value]


def params(dispatch: Dispatch) -> dict[str, Any]:
    values: dict[str, Any] = {}
    position = 0
    for member in KERNELS[dispatch.kernel.kernel].members:
        length = max(member.length, 1)
        code = {"uint": "I", "int": "i", "float": "f"}[member.type]
        items = struct.unpack_from(f"<{length}{code}", dispatch.params, position)
        position += 4 * length
        values[member.name] = items if member.length else items[0]
    return values


@pytest.mark.parametrize(
    ("desc", "expected"),
    [
        (mvn((32, 256, 128, 128), (2, 3), (1, 256, 1, 1)), "rows"),
        (mvn((16384, 8192), (1,), (1, 8192)), "rows"),
        (mvn((32, 256, 128, 128), (1, 2, 3)), "split"),
        (mvn((2, 2**21), (1,)), "split"),
        (mvn((32, 256, 128, 128), (1,)), "columns"),
        (mvn((32, 255, 7, 7), (1, 2, 3)), "rows"),
        (training((32, 256, 56, 56)), "split"),
        (training((32, 256, 56, 56), calculate_strides("NHWC", (32, 256, 56, 56))), "columns_split"),
        (training((8, 256, 7, 7), calculate_strides("NHWC", (8, 256, 7, 7))), "columns"),
    ],
)
def test_rule(desc: MeanVarianceNormalization2 | BatchNormalizationTraining, expected: str) -> None:
    assert rule(desc) == expected


@pytest.mark.parametrize(("data_type", "word"), [(FLOAT32, 4), (FLOAT16, 8)])
def test_channels_last_occupy_the_device_with_little_memory(data_type: TensorDataType, word: int) -> None:
    sizes = (32, 256, 56, 56)
    desc = training(sizes, calculate_strides("NHWC", sizes), data_type)
    plan = lower(desc, GPU)
    gather, merge, apply = plan.dispatches
    assert [dict(dispatch.kernel.variant)["STAGE"] for dispatch in plan.dispatches] == ["0", "1", "2"]
    assert gather.grid == apply.grid and gather.grid[0] >= 512 and merge.grid[0] == 32
    values, found = params(gather), constants(gather)
    assert (values["rows"], values["row_units"]) == (256 // word, 32 * 56 * 56)
    tile = found["LOCAL_SIZE_X"] // found["COLUMNS"] * found["UNITS"]
    assert (values["chunks"] - 1) * values["tiles"] * tile < values["row_units"] <= values["chunks"] * values["tiles"] * tile
    assert values["blocks"] * found["COLUMNS"] >= values["rows"]
    assert plan.temporary_bytes <= max(2**20, math.prod(sizes) * 16 // word // 100)
    assert params(merge)["neighbour_mean"] == 1 and constants(merge)["HAS_STATISTICS"] == 1


def test_an_unaligned_fused_add_moves_single_elements() -> None:
    add = TensorDesc(FLOAT32, (3, 4, 2, 8), (65, 16, 8, 1))
    assert dict(only(training((3, 4, 2, 8))).kernel.variant)["WORDS"] == "1"
    assert dict(only(training((3, 4, 2, 8)).replace(fused_add_tensor=add)).kernel.variant)["WORDS"] == "0"


@pytest.mark.parametrize("data_type", [FLOAT32, FLOAT16])
def test_a_row_lies_in_the_registers_of_one_workgroup(data_type: TensorDataType) -> None:
    dispatch = only(mvn((32, 256, 128, 128), (2, 3), (1, 256, 1, 1), data_type=data_type))
    found = constants(dispatch)
    assert dispatch.kernel.variant == (("T", data_type.name), ("WORDS", "1"))
    assert found["LANES"] * found["UNITS"] * (4 if data_type == FLOAT32 else 8) == 128 * 128
    assert found["SIDE_SHARED"] == 0, "scale and bias are read once a row"
    assert dispatch.grid[0] * dispatch.grid[1] == 8192


def test_layer_normalization_loads_scale_and_bias_as_words() -> None:
    found = constants(only(mvn((64, 12, 64), (1, 2), (1, 12, 64))))
    assert (found["SIDE_WORDS"], found["ROW_RANK"]) == (1, 1)


def test_group_normalization_reads_scale_and_bias_once_a_word() -> None:
    found = constants(only(mvn((2, 32, 8, 4, 4), (2, 3, 4), (1, 32, 8, 1, 1))))
    assert (found["SIDE_WORDS"], found["SIDE_SHARED"], found["ROW_RANK"]) == (0, 4, 1)


def test_memorys_order_of_dimensions_makes_the_longest_runs() -> None:
    sizes = (2, 6, 5, 4)
    found = only(mvn(sizes, (1, 2, 3), strides=calculate_strides("NHWC", sizes)))
    assert dict(found.kernel.variant)["WORDS"] == "1"
    assert constants(found)["ROW_RANK"] == 1


def test_absent_tensors_bind_present_ones() -> None:
    assert only(mvn((4, 8), (1,))).bindings == (input_range(0),) * 4 + (output_range(),) * 3


@settings(max_examples=60, deadline=None)
@given(
    rows=st.integers(1, 9),
    length=st.sampled_from([8, 1000, 40008, 2**23]),
    caps=st.sampled_from([LEAST, GPU]),
)
def test_chunks_cover_a_row_once(rows: int, length: int, caps: Capabilities) -> None:
    desc = mvn((rows, length), (1,))
    plan = lower(desc, GPU if length == 2**23 else caps, force="split")
    gather, apply = plan.dispatches
    assert [dict(dispatch.kernel.variant)["APPLY"] for dispatch in (gather, apply)] == ["0", "1"]
    assert gather.params == apply.params and gather.grid == apply.grid
    values, found = params(gather), constants(gather)
    tile = found["LOCAL_SIZE_X"] * found["UNITS"]
    assert values["chunks"] * values["tiles"] * tile >= values["row_units"]
    assert (values["chunks"] - 1) * values["tiles"] * tile < values["row_units"], "no chunk is empty"
    assert values["chunks"] <= 512
    assert gather.grid[0] * gather.grid[1] >= rows * values["chunks"]
    assert plan.temporary_bytes == 16 * rows * values["chunks"]


DESCS = [
    mvn((3, 5, 7), (2,), (1, 5, 1)),
    mvn((3, 20004), (1,)),
    mvn((150, 37), (0,)),
    mvn((600, 64), (0,)),
    mvn((2, 3, 4, 8), (0, 2, 3), data_type=FLOAT16),
    mvn((5,), ()),
]


@pytest.mark.parametrize("desc", DESCS, ids=lambda desc: str(desc.input_tensor.sizes))
def test_every_rule_fits_the_least_device(desc: MeanVarianceNormalization2) -> None:
    for name in possible_rules(desc, LEAST):
        for dispatch in lower(desc, LEAST, force=name).dispatches:
            found = constants(dispatch)
            assert found["LOCAL_SIZE_X"] <= LEAST.workgroup_invocations
            assert found["LOCAL_SIZE_X"] % found.get("LANES", 1) == 0
            assert len(dispatch.params) == 4 * sum(max(m.length, 1) for m in KERNELS[dispatch.kernel.kernel].members)


def test_the_older_operator_is_the_newer_one_over_fixed_axes() -> None:
    tensor = TensorDesc(FLOAT32, (2, 3, 4, 5))
    fused = ActivationLeakyRelu(alpha=0.5)
    for cross_channel, axes in ((False, (2, 3)), (True, (1, 2, 3))):
        older: OperatorDesc = MeanVarianceNormalization(
            input_tensor=tensor,
            output_tensor=tensor,
            cross_channel=cross_channel,
            normalize_variance=False,
            epsilon=0.5,
            fused_activation=fused,
        )
        older.validate()
        wanted = mvn(tensor.sizes, axes, use_variance=False, epsilon=0.5, fused_activation=fused)
        assert newest(older) == wanted
        assert lower(older, GPU) == lower(wanted, GPU)


def batch(
    sizes: tuple[int, ...], given_sizes: tuple[int, ...], strides: tuple[int, ...] | None = None
) -> BatchNormalization:
    tensor, side = TensorDesc(FLOAT32, sizes, strides), TensorDesc(FLOAT32, given_sizes)
    desc = BatchNormalization(
        input_tensor=tensor,
        mean_tensor=side,
        variance_tensor=side,
        scale_tensor=side,
        bias_tensor=side,
        output_tensor=tensor,
    )
    desc.validate()
    return desc


@pytest.mark.parametrize(
    ("desc", "lanes", "mode"),
    [
        (batch((2, 3, 4, 8), (1, 3, 1, 1)), "4", Access.BROADCAST),
        (batch((2, 3, 5, 7), (1, 3, 1, 1)), "1", Access.ELEMENTS),
        (batch((6, 24), (1, 24)), "4", Access.GROUPS),
        (batch((2, 8, 5, 7), (1, 8, 1, 1), calculate_strides("NHWC", (2, 8, 5, 7))), "4", Access.GROUPS),
    ],
)
def test_batch_normalization_moves_groups_where_it_can(desc: BatchNormalization, lanes: str, mode: Access) -> None:
    dispatch = only(desc)
    assert dict(dispatch.kernel.variant)["LANES"] == lanes
    assert constants(dispatch)["VARIANCE_MODE"] == mode


@pytest.mark.parametrize(
    ("strides", "repeated", "step"), [(None, 2, 196), (calculate_strides("NHWC", (32, 256, 56, 56)), 0, 25088)]
)
def test_an_invocation_repeats_where_statistics_stand_still(
    strides: tuple[int, ...] | None, repeated: int, step: int
) -> None:
    dispatch = only(batch((32, 256, 56, 56), (1, 256, 1, 1), strides))
    found = params(dispatch)
    assert constants(dispatch)["ITEMS"] == 4
    assert (found["repeated"], found["repeat_step"], found["repeat_size"]) == (repeated, step, 4 * step)
    assert found["x_repeat"] == found["x_strides"][repeated] * step
    assert found["count"] == 32 * 256 * 56 * 56 // 16


def test_channels_of_odd_lengths_move_in_groups() -> None:
    dispatch = only(batch((32, 256, 7, 7), (1, 256, 1, 1)))
    values, found = params(dispatch), constants(dispatch)
    assert (dict(dispatch.kernel.variant)["LANES"], found["RUNS"], found["RANK"]) == ("4", 1, 2)
    assert (values["run_size"], values["run_steps"], values["repeated"]) == (49, (1, 1, 1, 1), 0)
    assert values["count"] * found["ITEMS"] * 4 == 32 * 256 * 49


def test_an_invocation_normalizes_several_channels_by_their_responses() -> None:
    tensor = TensorDesc(FLOAT32, (32, 250, 56, 56))
    desc = LocalResponseNormalization(input_tensor=tensor, output_tensor=tensor, local_size=4)
    desc.validate()
    dispatch = only(desc)
    values, found = params(dispatch), constants(dispatch)
    assert (found["RANK"], found["PLANE"]) == (3, 0)
    assert values["sizes"][:3] == (32, 32, 784)
    assert (values["run"], values["before"], values["after"]) == (8, 1, 2)
    assert values["a_strides"][:3] == (0, 8, 0) and values["x_neighbour"] == (56 * 56, 0)


def test_a_device_without_subgroup_sums_is_refused() -> None:
    caps = Capabilities(features=frozenset({"storage16"}))
    with pytest.raises(UnsupportedError, match="subgroup_arithmetic, subgroup_shuffle"):
        lower(mvn((3, 5, 7), (2,)), caps)
