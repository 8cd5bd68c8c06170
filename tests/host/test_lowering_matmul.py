"""The rules and plans of matrix products, without a device."""

from __future__ import annotations

from typing import Any

import pytest

from dmlvk import ops
from dmlvk.enums import MatrixTransform, TensorDataType
from dmlvk.errors import InvalidArgumentError, UnsupportedError
from dmlvk.kernels.caps import Capabilities
from dmlvk.kernels.lowering import lower, possible_rules
from dmlvk.kernels.lowering.registry import LOWERINGS
from dmlvk.kernels.manifest import KERNELS
from dmlvk.kernels.plan import input_range, output_range
from dmlvk.kernels.select.matmul import GEMM
from dmlvk.kernels.select.rule import choose
from dmlvk.tensor import TensorDesc

FLOAT32 = TensorDataType.FLOAT32
GPU = Capabilities(workgroup_invocations=1024, shared_memory_bytes=49152)
CPU = Capabilities(workgroup_invocations=1024, minimum_subgroup_size=8, is_cpu=True)
LEAST = Capabilities()


def gemm(a: tuple[int, ...], b: tuple[int, ...], **changes: Any) -> ops.Gemm:
    desc = ops.Gemm(a_tensor=TensorDesc(FLOAT32, a), b_tensor=TensorDesc(FLOAT32, b), **changes)
    return desc.replace(output_tensor=TensorDesc(FLOAT32, desc.inferred_output_sizes()[0]))


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


def test_a_cpu_refuses_sums_that_its_driver_would_cut_short() -> None:
    desc = gemm((4, 70000), (70000, 4))
    assert lower(desc, GPU).dispatches
    with pytest.raises(UnsupportedError, match="65535 rounds"):
        lower(desc, CPU)
