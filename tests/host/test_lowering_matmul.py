"""The rules and plans of matrix products, without a device."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from dmlvk.devices.capabilities import Capabilities
from dmlvk.devices.model import H200
from dmlvk.kernels.common.plan import Dispatch, Range, Source, input_range, output_range
from dmlvk.kernels.common.registry import LOWERINGS
from dmlvk.kernels.common.rule import choose
from dmlvk.kernels.lowering import lower, possible_rules
from dmlvk.kernels.manifest import KERNELS
from dmlvk.kernels.matmul.rules import GEMM
from dmlvk.spec import ops
from dmlvk.spec.enums import MatrixTransform, TensorDataType
from dmlvk.spec.errors import InvalidArgumentError, UnsupportedError
from dmlvk.spec.tensor import TensorDesc

FLOAT32 = TensorDataType.FLOAT32
GPU = Capabilities(workgroup_invocations=1024, shared_memory_bytes=49152, model=H200)
CPU = Capabilities(workgroup_invocations=1024, minimum_subgroup_size=8, is_cpu=True)
LEAST = Capabilities()


def gemm(a: tuple[int, ...], b: tuple[int, ...], **changes: Any) -> ops.Gemm:
    desc = ops.Gemm(a_tensor=TensorDesc(FLOAT32, a), b_tensor=TensorDesc(FLOAT32, b), **changes)
    return desc.replace(output_tensor=TensorDesc(FLOAT32, desc.inferred_output_sizes()[0]))


def chosen(desc: ops.Gemm, caps: Capabilities = GPU) -> str:
    return choose(GEMM, LOWERINGS[ops.Gemm].problem(desc), caps).name


def launched(desc: ops.Gemm, rule: str, caps: Capabilities = GPU) -> list[tuple[Dispatch, dict[str, int | float]]]:
    """The dispatches of a plan, each with all of its kernel's constants."""
    found = []
    for dispatch in lower(desc, caps, force=rule).dispatches:
        assert isinstance(dispatch, Dispatch)
        kernel = dispatch.kernel
        found.append((dispatch, {**dict(KERNELS[kernel.kernel].constants), **dict(kernel.constants)}))
    return found


@pytest.mark.parametrize(
    ("a", "b", "on_gpu", "on_cpu"),
    [
        ((1, 1280), (1280, 4), "vector", "rows"),
        ((700, 64), (64, 3), "vector", "rows"),
        ((5, 256), (256, 700), "staged", "rows"),
        ((700, 4096), (4096, 8), "staged", "rows"),
        ((8, 255), (255, 700), "tiled", "rows"),
        ((64, 32), (32, 48), "tiled", "rows"),
        ((128, 8192), (8192, 128), "split", "rows"),
        ((16, 8192), (8192, 16384), "split", "rows"),
        ((4096, 8192), (8192, 4096), "tiled", "rows"),
        ((64, 70000), (70000, 64), "split", "rows"),
    ],
)
def test_rules(a: tuple[int, ...], b: tuple[int, ...], on_gpu: str, on_cpu: str) -> None:
    assert (chosen(gemm(a, b)), chosen(gemm(a, b), CPU)) == (on_gpu, on_cpu)


def test_few_columns_swap_the_operands() -> None:
    ((dispatch, constants),) = launched(gemm((700, 64), (64, 3)), "vector")
    assert dispatch.bindings[:2] == (input_range(1), input_range(0))
    assert constants["ROWS"] == 3
    ((dispatch, _),) = launched(gemm((3, 64), (64, 700)), "vector")
    assert dispatch.bindings[:2] == (input_range(0), input_range(1))


@pytest.mark.parametrize(
    ("depth", "columns", "shape", "parts"),
    [
        (768, 768, (8, 32), 1),  # a workgroup for each processor, and a sum too short for parts
        (3072, 768, (8, 32), 4),
        (4096, 14336, (16, 16), 1),
        (14336, 4096, (16, 16), 4),  # with 32 lanes half of the workgroups that there is room for, with long sums
        (16384, 32768, (32, 8), 1),
    ],
)
def test_staged_rows_have_one_wave_of_workgroups(depth: int, columns: int, shape: tuple[int, int], parts: int) -> None:
    caps = dataclasses.replace(GPU, storage_buffer_bytes=2**31)
    for rows in (5, 8):
        (dispatch, constants), *merging = launched(gemm((rows, depth), (depth, columns)), "staged", caps)
        assert (constants["LOCAL_SIZE_X"] // constants["LANES"], constants["LANES"]) == shape
        assert dispatch.grid[0] == -(-columns // (4 * shape[0])) * parts
        assert len(merging) == (parts > 1)


@pytest.mark.parametrize("caps", [LEAST, GPU, dataclasses.replace(GPU, workgroup_invocations=128)])
def test_staged_rows_fit_shared_memory(caps: Capabilities) -> None:
    for desc in (gemm((8, 1024), (1024, 512)), gemm((8, 1024), (512, 1024), trans_b=MatrixTransform.TRANSPOSE)):
        _, constants = launched(desc, "staged", caps)[0]
        lanes, local = constants["LANES"], constants["LOCAL_SIZE_X"]
        assert 16 * (2 * 8 * lanes * constants["UNROLL"] + 2 * local) <= caps.shared_memory_bytes
        assert local <= caps.workgroup_invocations


@pytest.mark.parametrize(("transform", "along_k"), [(MatrixTransform.NONE, 0), (MatrixTransform.TRANSPOSE, 1)])
def test_neighbours_read_along_the_smaller_stride(transform: MatrixTransform, along_k: int) -> None:
    b = (64, 96) if transform == MatrixTransform.NONE else (96, 64)
    ((_, tiled),) = launched(gemm((64, 64), b, trans_b=transform), "tiled")
    ((_, vector),) = launched(gemm((1, 64), b, trans_b=transform), "vector")
    assert (tiled["B_ALONG_K"], vector["ALONG_K"]) == (along_k, along_k)


@pytest.mark.parametrize(
    ("a", "b", "vectors"),
    [
        ((64, 64), (64, 64), (1, 1, 1)),
        ((64, 63), (63, 64), (0, 1, 1)),
        ((64, 64), (64, 62), (1, 0, 0)),
        ((1, 63), (63, 64), (1, 1, 1)),  # there is no second row that could begin elsewhere
    ],
)
def test_four_elements_are_one_access_where_rows_begin_at_multiples_of_four(
    a: tuple[int, int], b: tuple[int, int], vectors: tuple[int, int, int]
) -> None:
    ((_, constants),) = launched(gemm(a, b), "tiled")
    assert tuple(constants[f"VECTOR_{name}"] for name in "ABY") == vectors


@pytest.mark.parametrize(
    ("sizes", "tile"),
    [
        ((4096, 4096, 4096), (128, 128, 1)),
        ((4096, 4093, 4096), (64, 128, 1)),  # no registers for single elements beside so many sums
        ((2304, 512, 6144), (64, 128, 1)),  # seven workgroups of 128x128 a processor would take the time of eight
        ((2304, 512, 7168), (128, 128, 1)),
        ((2560, 512, 4096), (64, 128, 1)),
        ((1024, 1024, 1024), (64, 64, 2)),
        ((196, 384, 1536), (32, 64, 2)),
        ((197, 768, 3072), (32, 64, 2)),  # of 64 rows a quarter would be empty
        ((512, 512, 512), (32, 32, 2)),
        ((50, 64, 50), (32, 32, 2)),
        ((9, 64, 50000), (16, 128, 1)),
        ((50000, 64, 9), (16, 128, 1)),
    ],
)
def test_tiles_keep_a_device_busy(sizes: tuple[int, int, int], tile: tuple[int, int, int]) -> None:
    rows, depth, columns = sizes
    ((_, constants),) = launched(gemm((rows, depth), (depth, columns)), "tiled")
    assert (constants["TILE_M"], constants["TILE_N"], constants["SLICES"]) == tile


@pytest.mark.parametrize(("depth", "whole"), [(4096, 1), (4112, 1), (4093, 0), (8, 1), (9, 0)])
def test_only_sums_of_whole_rounds_end_with_one(depth: int, whole: int) -> None:
    ((_, constants),) = launched(gemm((4096, depth), (depth, 4096)), "tiled")
    assert constants["WHOLE_ROUNDS"] == whole == (depth % int(constants["TILE_K"]) == 0)


@pytest.mark.parametrize(("columns", "tile"), [(512, (64, 128)), (1152, (64, 128)), (1568, (128, 128)), (2304, (128, 128))])
def test_large_tiles_leave_no_processors_without_work(columns: int, tile: tuple[int, int]) -> None:
    ((_, constants),) = launched(gemm((36, 256, 256), (36, 256, columns)), "tiled")
    assert (constants["TILE_M"], constants["TILE_N"]) == tile


def test_an_output_whose_rows_are_neighbours_is_written_as_its_transpose() -> None:
    desc = gemm((64, 32), (32, 48))
    desc = desc.replace(output_tensor=TensorDesc(FLOAT32, (64, 48), (1, 64)))
    ((dispatch, constants),) = launched(desc, "tiled")
    assert dispatch.bindings[:2] == (input_range(1), input_range(0))
    assert (constants["A_ALONG_K"], constants["B_ALONG_K"], constants["VECTOR_Y"]) == (0, 1, 1)


def shared_bytes(kernel: str, constants: dict[str, int | float]) -> float:
    """What the kernels' shared arrays take."""
    if kernel == "gemm_tiled":
        return 2 * constants["SLICES"] * constants["TILE_K"] * (constants["TILE_M"] + constants["TILE_N"] + 8) * 4
    if kernel == "gemm_vector":
        return 2 * (constants["LOCAL_SIZE_X"] + constants["LOCAL_SIZE_X"] // constants["LANES"]) * 16
    return 0


@pytest.mark.parametrize("caps", [LEAST, GPU, CPU], ids=["least", "gpu", "cpu"])
def test_every_plan_keeps_to_the_device(caps: Capabilities) -> None:
    for desc in (
        gemm((5000, 64), (64, 5000)),
        gemm((4, 64), (64, 5000)),
        gemm((6, 2, 64, 64), (6, 2, 64, 64)),
        gemm((1, 60000), (60000, 1)),
        gemm((60, 60000), (60000, 60)),
        gemm((3, 4096), (70, 4096), trans_b=MatrixTransform.TRANSPOSE),
    ):
        for rule in possible_rules(desc, caps):
            for dispatch, constants in launched(desc, rule, caps):
                kernel = dispatch.kernel.kernel
                assert constants["LOCAL_SIZE_X"] <= caps.workgroup_invocations
                assert shared_bytes(kernel, constants) <= caps.shared_memory_bytes
                if kernel == "gemm_tiled":
                    lanes_m = constants["TILE_M"] // constants["BLOCK_M"]
                    lanes_n = constants["TILE_N"] // constants["BLOCK_N"]
                    assert constants["LOCAL_SIZE_X"] == lanes_m * lanes_n * constants["SLICES"]
                    # What slices add lies in the columns' part of shared memory.
                    assert constants["SLICES"] == 1 or constants["TILE_M"] <= 4 * constants["TILE_K"]
                    # 32 invocations are 4 by 8, or 2 by 16.
                    assert (lanes_m == 2 and lanes_n % 16 == 0) or (lanes_m % 4 == 0 and lanes_n % 8 == 0)


def params(dispatch: Dispatch) -> dict[str, int]:
    """The unsigned parameters of a dispatch that are no arrays."""
    members = KERNELS[dispatch.kernel.kernel].members
    found, at = {}, 0
    for member in members:
        if member.type == "uint" and not member.length:
            found[member.name] = int.from_bytes(dispatch.params[at : at + 4], "little")
        at += 4 * max(member.length, 1)
    return found


@pytest.mark.parametrize(("a", "b", "rule"), [((100, 9000), (9000, 70), "split"), ((2, 60000), (60000, 30), "vector")])
def test_parts_of_a_sum_cover_it_and_meet_in_temporary_memory(a: tuple[int, int], b: tuple[int, int], rule: str) -> None:
    desc = gemm(a, b, c_tensor=TensorDesc(FLOAT32, (a[0], b[1])), fused_activation=ops.ActivationRelu())
    plan = lower(desc, GPU, force=rule)
    (product, constants), (merge, merging) = launched(desc, rule)
    numbers = params(product)
    round_depth = constants["TILE_K"] if rule == "split" else 4 * constants["LANES"]
    rounds = -(-numbers["depth"] // round_depth)
    assert numbers["splits"] > 1
    assert (numbers["splits"] - 1) * numbers["split_rounds"] < rounds <= numbers["splits"] * numbers["split_rounds"]
    assert (constants["PARTIAL"], constants["HAS_C"], constants["ACTIVATION"]) == (1, 0, 0)
    assert (merging["HAS_C"], merging["ACTIVATION"]) == (1, ops.ActivationRelu.type)
    sums = Range(Source.TEMPORARY, 0, 0, plan.temporary_bytes)
    assert (product.bindings[-1], merge.bindings[0], merge.bindings[-1]) == (sums, sums, output_range())
    pitch = -(-numbers["columns"] // 4) * 4
    assert params(merge)["partial_pitch"] == pitch
    assert plan.temporary_bytes == numbers["splits"] * numbers["rows"] * pitch * 4


def test_partial_sums_that_no_binding_holds_are_not_possible() -> None:
    assert "split" not in possible_rules(gemm((5000, 64), (64, 5000)), LEAST)
    assert "split" in possible_rules(gemm((2048, 64), (64, 2048)), LEAST)


def test_partial_sums_are_no_more_than_a_binding_holds() -> None:
    """Of 512x512 in float32 two or three; without a limit it would be more."""
    desc, partial = gemm((512, 1024), (1024, 512)), 4 * 512 * 512
    most = lower(desc, GPU, force="split").temporary_bytes // partial
    for parts in range(2, most):
        caps = dataclasses.replace(GPU, storage_buffer_bytes=parts * partial)
        assert lower(desc, caps, force="split").temporary_bytes == parts * partial
    assert most > 3


def test_a_fused_softmax_is_a_second_dispatch_in_place() -> None:
    product, normalization = lower(gemm((8, 9), (9, 16), fused_activation=ops.ActivationSoftmax()), GPU).dispatches
    assert dict(product.kernel.constants)["ACTIVATION"] == 0
    assert normalization.kernel.kernel == "softmax"
    assert normalization.bindings == (output_range(), output_range())


def test_a_fused_softmax_over_another_axis_is_refused() -> None:
    with pytest.raises(InvalidArgumentError, match="FusedActivation"):
        gemm((8, 9), (9, 16), fused_activation=ops.ActivationSoftmax1(axes=(0,))).validate()


def test_a_cpu_avoids_loops_that_its_driver_would_cut_short_and_refuses_where_it_cannot() -> None:
    desc = gemm((4, 70000), (70000, 4))
    assert possible_rules(desc, CPU) == ["vector", "staged", "split", "rows", "tiled"]
    with pytest.raises(UnsupportedError, match="65535 rounds"):
        lower(gemm((4, 2**19), (2**19, 4)), CPU)


def test_no_tensor_has_a_size_of_zero() -> None:
    with pytest.raises(InvalidArgumentError):
        TensorDesc(FLOAT32, (4, 0))
