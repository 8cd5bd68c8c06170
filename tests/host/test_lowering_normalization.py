"""Plans of the normalizations, without a device."""

from __future__ import annotations

import struct
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dmlvk.enums import TensorDataType
from dmlvk.errors import UnsupportedError
from dmlvk.kernels.caps import SUBGROUPS, Capabilities
from dmlvk.kernels.lowering import lower, newest, possible_rules
from dmlvk.kernels.lowering.registry import LOWERINGS
from dmlvk.kernels.manifest import KERNELS
from dmlvk.kernels.plan import Dispatch, input_range
from dmlvk.kernels.select import MEAN_VARIANCE_NORMALIZATION, choose
from dmlvk.ops.activation import ActivationLeakyRelu
from dmlvk.ops.normalization import BatchNormalization, MeanVarianceNormalization, MeanVarianceNormalization1
from dmlvk.tensor import TensorDesc, calculate_strides

FLOAT32, FLOAT16 = TensorDataType.FLOAT32, TensorDataType.FLOAT16
STORAGE = SUBGROUPS | frozenset({"storage16"})
LEAST = Capabilities(features=STORAGE)
GPU = Capabilities(features=STORAGE, workgroup_invocations=1024, shared_memory_bytes=49152, storage_buffer_bytes=2**32 - 1)


def mvn(
    sizes: tuple[int, ...],
    axes: tuple[int, ...],
    side: tuple[int, ...] | None = None,
    *,
    data_type: TensorDataType = FLOAT32,
    strides: tuple[int, ...] | None = None,
    **changes: Any,
) -> MeanVarianceNormalization1:
    tensor = TensorDesc(data_type, sizes, strides)
    given_side = None if side is None else TensorDesc(data_type, side)
    desc = MeanVarianceNormalization1(
        input_tensor=tensor, scale_tensor=given_side, bias_tensor=given_side, output_tensor=tensor, axes=axes, **changes
    )
    desc.validate()
    return desc


def rule(desc: MeanVarianceNormalization1, caps: Capabilities = GPU) -> str:
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
    ],
)
def test_rule(desc: MeanVarianceNormalization1, expected: str) -> None:
    assert rule(desc) == expected


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
    assert (found["SIDE_WORDS"], found["ROW_RUNS"]) == (1, 0)


def test_group_normalization_reads_scale_and_bias_once_a_word() -> None:
    found = constants(only(mvn((2, 32, 8, 4, 4), (2, 3, 4), (1, 32, 8, 1, 1))))
    assert (found["SIDE_WORDS"], found["SIDE_SHARED"], found["ROW_RUNS"]) == (0, 4, 0)


def test_memorys_order_of_dimensions_makes_the_longest_runs() -> None:
    sizes = (2, 6, 5, 4)
    found = only(mvn(sizes, (1, 2, 3), strides=calculate_strides("NHWC", sizes)))
    assert dict(found.kernel.variant)["WORDS"] == "1"
    assert constants(found)["ROW_RUNS"] == 0


def test_absent_scale_and_bias_bind_the_input() -> None:
    assert only(mvn((4, 8), (1,))).bindings[:3] == (input_range(0),) * 3


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
    assert values["chunks"] <= 256
    assert gather.grid[0] * gather.grid[1] >= rows * values["chunks"]
    assert plan.temporary_bytes == 16 * rows * values["chunks"]


DESCS = [
    mvn((3, 5, 7), (2,), (1, 5, 1)),
    mvn((3, 20004), (1,)),
    mvn((150, 37), (0,)),
    mvn((2, 3, 4, 8), (0, 2, 3), data_type=FLOAT16),
    mvn((5,), ()),
]


@pytest.mark.parametrize("desc", DESCS, ids=lambda desc: str(desc.input_tensor.sizes))
def test_every_rule_fits_the_least_device(desc: MeanVarianceNormalization1) -> None:
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
        older = MeanVarianceNormalization(
            input_tensor=tensor,
            output_tensor=tensor,
            cross_channel=cross_channel,
            normalize_variance=False,
            epsilon=0.5,
            fused_activation=fused,
        )
        older.validate()
        wanted = mvn(tensor.sizes, axes, normalize_variance=False, epsilon=0.5, fused_activation=fused)
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
    ("desc", "words", "shared"),
    [
        (batch((2, 3, 4, 8), (1, 3, 1, 1)), "1", 1),
        (batch((2, 3, 5, 7), (1, 3, 1, 1)), "0", 1),
        (batch((6, 24), (1, 24)), "1", 0),
        (batch((2, 8, 5, 7), (1, 8, 1, 1), calculate_strides("NHWC", (2, 8, 5, 7))), "1", 0),
    ],
)
def test_batch_normalization_moves_words_where_it_can(desc: BatchNormalization, words: str, shared: int) -> None:
    dispatch = only(desc)
    assert dict(dispatch.kernel.variant)["WORDS"] == words
    assert constants(dispatch)["SHARED_STATISTICS"] == shared


def test_a_device_without_subgroup_sums_is_refused() -> None:
    caps = Capabilities(features=frozenset({"storage16"}))
    with pytest.raises(UnsupportedError, match="subgroup_arithmetic, subgroup_shuffle"):
        lower(mvn((3, 5, 7), (2,)), caps)
