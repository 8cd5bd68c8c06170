"""Plans of the gradients of normalizations, without a device, and their oracle against differences of the forward one's."""

from __future__ import annotations

import math
import struct
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dmlvk.devices.capabilities import SUBGROUPS, Capabilities
from dmlvk.kernels.common.plan import Dispatch
from dmlvk.kernels.common.registry import LOWERINGS
from dmlvk.kernels.common.rule import choose
from dmlvk.kernels.lowering import lower, possible_rules
from dmlvk.kernels.manifest import KERNELS
from dmlvk.kernels.normalization_gradient.rules import BATCH_GRADIENT
from dmlvk.spec.enums import TensorDataType
from dmlvk.spec.ops.normalization import BatchNormalization, BatchNormalizationTraining
from dmlvk.spec.ops.normalization_gradient import BatchNormalizationGrad, BatchNormalizationTrainingGrad
from dmlvk.spec.tensor import TensorDesc, calculate_strides
from dmlvk.verify.oracle import oracle

FLOAT32, FLOAT16 = TensorDataType.FLOAT32, TensorDataType.FLOAT16
STORAGE = SUBGROUPS | frozenset({"storage16"})
LEAST = Capabilities(features=STORAGE)
GPU = Capabilities(features=STORAGE, workgroup_invocations=1024, shared_memory_bytes=49152, storage_buffer_bytes=2**32 - 1)
IMAGE = (32, 256, 56, 56)


def gradient(
    sizes: tuple[int, ...],
    own: tuple[int, ...] = (),
    layout: str = "",
    data_type: TensorDataType = FLOAT32,
    *,
    training: bool = True,
) -> Any:
    """A gradient with statistics of the sizes ``own``, or of one a channel."""
    tensor = TensorDesc(data_type, sizes, calculate_strides(layout, sizes) if layout else None)
    side = TensorDesc(data_type, own or (1, sizes[1], *(1 for _ in sizes[2:])))
    row = BatchNormalizationTrainingGrad if training else BatchNormalizationGrad
    names = ("mean_tensor", "variance_tensor", "scale_tensor", "output_scale_gradient_tensor", "output_bias_gradient_tensor")
    data = dict.fromkeys(("input_tensor", "input_gradient_tensor", "output_gradient_tensor"), tensor)
    desc = row(**data, **dict.fromkeys(names, side))  # type: ignore[arg-type]
    desc.validate()
    return desc


def constants(dispatch: Dispatch) -> dict[str, int]:
    return dict(KERNELS[dispatch.kernel.kernel].constants) | dict(dispatch.kernel.constants)  # type: ignore[return-value]


def params(dispatch: Dispatch) -> dict[str, Any]:
    values: dict[str, Any] = {}
    position = 0
    for member in KERNELS[dispatch.kernel.kernel].members:
        length = max(member.length, 1)
        items = struct.unpack_from(f"<{length}{'f' if member.type == 'float' else 'I'}", dispatch.params, position)
        position += 4 * length
        values[member.name] = items if member.length else items[0]
    return values


@pytest.mark.parametrize(
    ("desc", "expected"),
    [
        (gradient((32, 256, 14, 14)), "rows"),
        (gradient((32, 255, 7, 7), training=False), "rows"),
        (gradient(IMAGE), "together"),
        (gradient((32, 64, 112, 112)), "split"),
        (gradient(IMAGE, training=False), "split"),
        (gradient(IMAGE, layout="NHWC"), "columns_split"),
        (gradient((8, 256, 7, 7), layout="NHWC"), "columns"),
        (gradient((256, 1024)), "columns"),
        (gradient((8, 64, 8), (8, 64, 8)), "columns"),
    ],
)
def test_rule(desc: Any, expected: str) -> None:
    assert choose(BATCH_GRADIENT, LOWERINGS[type(desc)].problem(desc), GPU).name == expected


def test_a_cpu_reads_long_rows_in_two_dispatches() -> None:
    """Its workgroups run one after the other, so one would wait in vain for those of its row."""
    cpu = Capabilities(features=STORAGE, workgroup_invocations=1024, is_cpu=True)
    problem = LOWERINGS[BatchNormalizationTrainingGrad].problem(gradient(IMAGE))
    assert choose(BATCH_GRADIENT, problem, cpu).name == "split"


@pytest.mark.parametrize(("data_type", "word"), [(FLOAT32, 4), (FLOAT16, 8)])
def test_a_row_lies_in_the_registers_of_one_workgroup(data_type: TensorDataType, word: int) -> None:
    (dispatch,) = lower(gradient((64, 256, 14, 14), data_type=data_type), GPU).dispatches
    found = constants(dispatch)
    assert dict(dispatch.kernel.variant)["WORDS"] == str(int(196 % word == 0))
    unit = word if 196 % word == 0 else 1
    assert found["LANES"] * found["UNITS"] * unit >= 64 * 196 > found["LANES"] * (found["UNITS"] - 1) * unit
    assert dispatch.grid[0] * (found["LOCAL_SIZE_X"] // found["LANES"]) == 256


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize(("layout", "rule"), [("NCHW", "split"), ("NHWC", "columns_split")])
def test_what_was_given_takes_one_pass_over_the_data(layout: str, rule: str, training: bool) -> None:
    """dx that does not depend on the sums is written where these are gathered; then only partials are added."""
    plan = lower(gradient(IMAGE, layout=layout, training=training), GPU, force=rule)
    *_, last = plan.dispatches
    assert constants(last)["TRAINING"] == training
    assert (last.grid[0] >= 512) == training
    assert len(plan.dispatches) == 2 + (training and layout == "NHWC")
    assert plan.temporary_bytes <= 2**20 + math.prod(IMAGE) * 4 // 100


@settings(max_examples=60, deadline=None)
@given(
    rows=st.integers(1, 9),
    length=st.sampled_from([8, 1000, 40008, 2**23]),
    caps=st.sampled_from([LEAST, GPU]),
)
def test_chunks_cover_a_row_once(rows: int, length: int, caps: Capabilities) -> None:
    plan = lower(gradient((rows, length), (rows, 1)), GPU if length == 2**23 else caps, force="split")
    first, second = plan.dispatches
    values, found = params(second), constants(second)
    assert first.params == second.params
    tile = found["LOCAL_SIZE_X"] * found["UNITS"]
    assert values["chunks"] * values["tiles"] * tile >= values["row_units"]
    assert (values["chunks"] - 1) * values["tiles"] * tile < values["row_units"], "no chunk is empty"
    assert values["chunks"] <= 256
    assert second.grid[0] * second.grid[1] >= rows * values["chunks"]
    assert plan.temporary_bytes == 8 * rows * values["chunks"]


@pytest.mark.parametrize(("data_type", "chunks"), [(FLOAT32, 17), (FLOAT16, 9)])
def test_few_workgroups_hold_a_row_together(data_type: TensorDataType, chunks: int) -> None:
    mark, hold = lower(gradient(IMAGE, data_type=data_type), GPU).dispatches
    values, found = params(hold), constants(hold)
    tile = found["LOCAL_SIZE_X"] * found["UNITS"]
    assert (values["chunks"], values["tiles"]) == (chunks, 1)
    assert chunks * tile >= values["row_units"] > (chunks - 1) * tile
    assert hold.grid[0] == 256 * chunks and mark.grid[0] * found["LOCAL_SIZE_X"] >= 256 * chunks
    assert hold.bindings[-1].nbytes == 8 * 256 * chunks


DESCS = [
    gradient((3, 5, 7), (3, 5, 1)),
    gradient((3, 20004), (3, 1)),
    gradient((150, 37), (1, 37)),
    gradient((600, 64), (1, 64), training=False),
    gradient((2, 3, 4, 8), data_type=FLOAT16),
    gradient((5, 3), (5, 3)),
]


@pytest.mark.parametrize("desc", DESCS, ids=lambda desc: str(desc.input_tensor.sizes))
def test_every_rule_fits_the_least_device(desc: Any) -> None:
    for name in possible_rules(desc, LEAST):
        for dispatch in lower(desc, LEAST, force=name).dispatches:
            found = constants(dispatch)
            assert found["LOCAL_SIZE_X"] <= LEAST.workgroup_invocations
            assert found["LOCAL_SIZE_X"] % found.get("LANES", 1) == 0
            assert len(dispatch.params) == 4 * sum(max(m.length, 1) for m in KERNELS[dispatch.kernel.kernel].members)


@pytest.mark.parametrize("own", [(1, 3, 1), (4, 1, 1), (1, 1, 5)], ids=str)
@pytest.mark.parametrize("training", [False, True])
def test_batch_gradients_are_differences_of_the_forward_oracle(own: tuple[int, ...], training: bool) -> None:
    """The gradients are those of the sum of dy * y, by central differences in float64."""
    rng, sizes, step = np.random.default_rng(7), (4, 3, 5), 1e-5
    x, dy = rng.standard_normal((2, *sizes))
    scale, bias, mean = rng.standard_normal((3, *own))
    variance = rng.uniform(0.5, 2, own)
    backward = gradient(sizes, own, training=training)
    names = {"scale_tensor": backward.mean_tensor, "bias_tensor": backward.mean_tensor}
    data = {"input_tensor": backward.input_tensor, "output_tensor": backward.input_tensor, "epsilon": backward.epsilon}
    forward: Any
    if training:
        statistics = dict.fromkeys(("output_mean_tensor", "output_variance_tensor"), backward.mean_tensor)
        forward = BatchNormalizationTraining(**data, **names, **statistics)
        axes = tuple(axis for axis, size in enumerate(own) if size == 1)
        mean, variance = x.mean(axes, keepdims=True), x.var(axes, keepdims=True)
    else:
        forward = BatchNormalization(
            **data, **names, **dict.fromkeys(("mean_tensor", "variance_tensor"), backward.mean_tensor)
        )

    def loss(arrays: list[np.ndarray[Any, Any]]) -> float:
        x, scale, bias = arrays
        result = oracle(type(forward))(forward, x, *(() if training else (mean, variance)), scale, bias)  # type: ignore[misc]
        y = result[0] if training else result
        return float((dy * y.value).sum())

    found = oracle(type(backward))(backward, x, dy, mean, variance, scale)  # type: ignore[misc]
    given_arrays = [x, scale, bias]
    for at, analytic in enumerate(found):
        for place in np.ndindex(given_arrays[at].shape):
            ends = []
            for sign in (1, -1):
                moved = [array.copy() for array in given_arrays]
                moved[at][place] += sign * step
                ends.append(loss(moved))
            assert (ends[0] - ends[1]) / (2 * step) == pytest.approx(analytic.value[place], rel=1e-6, abs=1e-7)
