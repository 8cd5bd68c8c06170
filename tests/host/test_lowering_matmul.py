"""The rules and plans of matrix products and of softmax, without a device."""

from __future__ import annotations

from typing import Any

import pytest

from dmlvk import ops
from dmlvk.enums import MatrixTransform, TensorDataType
from dmlvk.errors import InvalidArgumentError
from dmlvk.kernels.caps import Capabilities
from dmlvk.kernels.lowering import lower, newest, possible_rules
from dmlvk.kernels.lowering.registry import LOWERINGS
from dmlvk.kernels.manifest import KERNELS
from dmlvk.kernels.plan import input_range, output_range
from dmlvk.kernels.select import GEMM, SOFTMAX, choose
from dmlvk.tensor import TensorDesc

FLOAT32, FLOAT16 = TensorDataType.FLOAT32, TensorDataType.FLOAT16
GPU = Capabilities(workgroup_invocations=1024, shared_memory_bytes=49152)
CPU = Capabilities(workgroup_invocations=1024, minimum_subgroup_size=8, is_cpu=True)
LEAST = Capabilities()


def gemm(a: tuple[int, ...], b: tuple[int, ...], **changes: Any) -> ops.Gemm:
    desc = ops.Gemm(a_tensor=TensorDesc(FLOAT32, a), b_tensor=TensorDesc(FLOAT32, b), **changes)
    return desc.replace(output_tensor=TensorDesc(FLOAT32, desc.inferred_output_sizes()[0]))


def softmax(sizes: tuple[int, ...], axes: tuple[int, ...], data_type: TensorDataType = FLOAT32) -> Any:
    tensor = TensorDesc(data_type, sizes)
    return ops.ActivationSoftmax1(input_tensor=tensor, output_tensor=tensor, axes=axes)


def chosen(desc: ops.Gemm, caps: Capabilities = GPU) -> str:
    return choose(GEMM, LOWERINGS[ops.Gemm].problem(desc), caps).name


@pytest.mark.parametrize(
    ("a", "b", "on_gpu", "on_cpu"),
    [
        ((1, 1280), (1280, 4), "vector", "rows"),
        ((700, 64), (64, 3), "vector", "rows"),
        ((64, 32), (32, 48), "tiled", "rows"),
        ((8, 32), (32, 48), "naive", "rows"),
    ],
)
def test_rules(a: tuple[int, ...], b: tuple[int, ...], on_gpu: str, on_cpu: str) -> None:
    assert (chosen(gemm(a, b)), chosen(gemm(a, b), CPU)) == (on_gpu, on_cpu)


def test_few_columns_swap_the_operands() -> None:
    (dispatch,) = lower(gemm((700, 64), (64, 3)), GPU, force="vector").dispatches
    assert dispatch.bindings[:2] == (input_range(1), input_range(0))
    assert dict(dispatch.kernel.constants)["ROWS"] == 3
    (dispatch,) = lower(gemm((3, 64), (64, 700)), GPU, force="vector").dispatches
    assert dispatch.bindings[:2] == (input_range(0), input_range(1))


@pytest.mark.parametrize(("transform", "along_k"), [(MatrixTransform.NONE, 0), (MatrixTransform.TRANSPOSE, 1)])
def test_neighbours_read_along_the_smaller_stride(transform: MatrixTransform, along_k: int) -> None:
    b = (64, 96) if transform == MatrixTransform.NONE else (96, 64)
    (tiled,) = lower(gemm((64, 64), b, trans_b=transform), GPU, force="tiled").dispatches
    (vector,) = lower(gemm((1, 64), b, trans_b=transform), GPU, force="vector").dispatches
    assert dict(tiled.kernel.constants)["B_ALONG_K"] == along_k
    assert dict(vector.kernel.constants)["ALONG_K"] == along_k


def test_every_plan_keeps_to_the_least_device() -> None:
    for desc in (gemm((5000, 64), (64, 5000)), gemm((4, 64), (64, 5000)), gemm((6, 2, 64, 64), (6, 2, 64, 64))):
        for rule in possible_rules(desc, LEAST):
            (dispatch,) = lower(desc, LEAST, force=rule).dispatches
            spec = KERNELS[dispatch.kernel.kernel]
            constants = {**dict(spec.constants), **dict(dispatch.kernel.constants)}
            assert constants["LOCAL_SIZE_X"] * constants.get("LOCAL_SIZE_Y", 1) <= LEAST.workgroup_invocations
            if rule == "tiled":
                rows = constants["LOCAL_SIZE_Y"] * constants["THREAD_M"] + 4
                columns = constants["LOCAL_SIZE_X"] * constants["THREAD_N"] + 4
                assert constants["TILE_K"] * (rows + columns) * 4 <= LEAST.shared_memory_bytes


def test_a_fused_softmax_is_a_second_dispatch_in_place() -> None:
    product, normalization = lower(gemm((8, 9), (9, 16), fused_activation=ops.ActivationSoftmax()), GPU).dispatches
    assert dict(product.kernel.constants)["ACTIVATION"] == 0
    assert normalization.kernel.kernel == "softmax"
    assert normalization.bindings == (output_range(), output_range())


def test_a_fused_softmax_over_another_axis_is_refused() -> None:
    with pytest.raises(InvalidArgumentError, match="FusedActivation"):
        gemm((8, 9), (9, 16), fused_activation=ops.ActivationSoftmax1(axes=(0,))).validate()


def test_older_softmax_rows_become_the_newest() -> None:
    tensor = TensorDesc(FLOAT32, (1, 3, 5))
    assert newest(ops.ActivationSoftmax(input_tensor=tensor, output_tensor=tensor)) == softmax((1, 3, 5), (2,))
    upgraded = newest(ops.ActivationLogSoftmax(input_tensor=tensor, output_tensor=tensor))
    assert upgraded == ops.ActivationLogSoftmax1(input_tensor=tensor, output_tensor=tensor, axes=(2,))


@pytest.mark.parametrize(
    ("desc", "rule", "unit"),
    [
        (softmax((64, 1024), (1,)), "registers", 4),
        (softmax((64, 1024), (1,), FLOAT16), "registers", 8),
        (softmax((64, 1023), (1,)), "registers", 1),
        (softmax((2, 21, 64, 64), (1,)), "columns", 1),
        (softmax((2, 200001), (1,)), "looped", 1),
    ],
)
def test_softmax_rules(desc: Any, rule: str, unit: int) -> None:
    problem = LOWERINGS[ops.ActivationSoftmax1].problem(desc)
    assert choose(SOFTMAX, problem, GPU).name == rule
    assert problem.unit_elements == unit


def test_softmax_lanes_and_units_cover_the_row() -> None:
    for size in (1, 7, 16, 17, 255, 1000, 4096, 9001):
        desc = softmax((3, size), (1,))
        for rule in possible_rules(desc, LEAST):
            (dispatch,) = lower(desc, LEAST, force=rule).dispatches
            constants = dict(dispatch.kernel.constants)
            units = LOWERINGS[ops.ActivationSoftmax1].problem(desc).row_units
            assert constants["LOCAL_SIZE_X"] % constants["LANES"] == 0
            assert constants["WHOLE"] == int(constants["LANES"] * constants["UNITS"] >= units)
            assert rule != "registers" or constants["WHOLE"] == 1
