"""How tiles of cooperative matrices are chosen, and which devices get any."""

from __future__ import annotations

import dataclasses
import itertools

import pytest

from dmlvk.devices.capabilities import Capabilities, CooperativeMatrix
from dmlvk.devices.model import H200
from dmlvk.kernels.common.cooperative_matrix import cooperative_matrix
from dmlvk.kernels.common.cooperative_tile import (
    CooperativeTile,
    cooperative_tile,
    parted_tile,
    staged_tile,
    whole_words,
    word_access,
)
from dmlvk.kernels.common.plan import Dispatch, input_range
from dmlvk.kernels.common.terms import WordAccess
from dmlvk.kernels.lowering import explain, lower
from dmlvk.spec import ops
from dmlvk.spec.enums import TensorDataType
from dmlvk.spec.schema import OperatorDesc, ScaleBias
from dmlvk.spec.tensor import TensorDesc, calculate_strides

FLOAT16, FLOAT32, INT8 = TensorDataType.FLOAT16, TensorDataType.FLOAT32, TensorDataType.INT8
GPU = Capabilities(
    features=frozenset(
        {
            "cooperative_matrix",
            "vulkan_memory_model",
            "float16",
            "int16",
            "storage16",
            "subgroup_size_control",
            "full_subgroups",
            "subgroup_arithmetic",
            "subgroup_shuffle",
        }
    ),
    shared_memory_bytes=49152,
    workgroup_invocations=1024,
    storage_buffer_bytes=2**32 - 1,
    cooperative_matrices=(
        CooperativeMatrix(16, 16, 16, "float16", "float16"),
        CooperativeMatrix(16, 8, 16, "float16", "float32"),
        CooperativeMatrix(16, 16, 16, "float16", "float32"),
    ),
    model=H200,
)


def product(data_type: TensorDataType, rows: int, columns: int, depth: int) -> ops.Gemm:
    a, b, y = (TensorDesc(data_type, sizes) for sizes in ((rows, depth), (depth, columns), (rows, columns)))
    return ops.Gemm(a_tensor=a, b_tensor=b, output_tensor=y)


def chosen(desc: OperatorDesc, caps: Capabilities) -> str:
    return next(rule.name for rule, holds in explain(desc, caps) if holds)


def test_the_largest_shape_of_the_types_is_taken() -> None:
    assert cooperative_matrix(GPU, "float16", "float32") == CooperativeMatrix(16, 16, 16, "float16", "float32")
    assert cooperative_matrix(GPU, "int8", "int32") is None


def test_shapes_divide_every_tile() -> None:
    sizes = itertools.product((4, 8, 16, 32), (4, 8, 16, 32), (4, 8, 16, 32, 64))
    taken = set()
    for m, n, k in sizes:
        one = (CooperativeMatrix(m, n, k, "float16", "float32"),)
        if cooperative_matrix(dataclasses.replace(GPU, cooperative_matrices=one), "float16", "float32"):
            taken.add((m, n, k))
    assert taken == set(itertools.product((8, 16), (8, 16), (8, 16, 32)))


def test_a_workgroup_holds_four_subgroups() -> None:
    most = 4 * GPU.subgroup_size
    for invocations in (most - 1, most):
        caps = dataclasses.replace(GPU, workgroup_invocations=invocations)
        assert (cooperative_matrix(caps, "float16", "float32") is not None) == (invocations == most)


@pytest.mark.parametrize("feature", sorted(GPU.features - {"subgroup_arithmetic", "subgroup_shuffle"}))
def test_without_a_feature_there_are_none(feature: str) -> None:
    caps = dataclasses.replace(GPU, features=GPU.features - {feature})
    assert cooperative_matrix(caps, "float16", "float32") is None
    if feature != "storage16":
        assert chosen(product(FLOAT16, 1024, 1024, 1024), caps) in ("tiled", "split")


def _image(channels: int) -> TensorDesc:
    return TensorDesc(FLOAT16, (1, channels, 32, 32), calculate_strides("NHWC", (1, channels, 32, 32)))


HALVES: tuple[OperatorDesc, ...] = (
    product(FLOAT16, 1024, 1024, 1024),
    ops.Convolution(
        input_tensor=_image(64),
        filter_tensor=TensorDesc(FLOAT16, (64, 64, 3, 3)),
        output_tensor=_image(64),
        strides=(1, 1),
        dilations=(1, 1),
        start_padding=(1, 1),
        end_padding=(1, 1),
        output_padding=(0, 0),
        group_count=1,
    ),
    ops.MultiheadAttention1(
        query_tensor=TensorDesc(FLOAT16, (1, 1024, 1024)),
        key_tensor=TensorDesc(FLOAT16, (1, 256, 1024)),
        value_tensor=TensorDesc(FLOAT16, (1, 256, 1024)),
        output_tensor=TensorDesc(FLOAT16, (1, 1024, 1024)),
        scale=1.0,
        query_head_count=16,
        key_value_head_count=16,
    ),
)
BYTES = ops.MatrixMultiplyInteger(
    a_tensor=TensorDesc(INT8, (512, 512)),
    b_tensor=TensorDesc(INT8, (512, 512)),
    output_tensor=TensorDesc(TensorDataType.INT32, (512, 512)),
)


@pytest.mark.parametrize(("gain", "pays"), [(None, True), (1.4, False), (1.5, True), (1.6, True)])
@pytest.mark.parametrize("desc", HALVES, ids=lambda desc: type(desc).__name__)
def test_matrices_must_be_faster_than_float32(desc: OperatorDesc, gain: float | None, pays: bool) -> None:
    rate = gain and gain * H200.products_per_microsecond
    caps = dataclasses.replace(GPU, model=dataclasses.replace(H200, half_products_per_microsecond=rate))
    assert (chosen(desc, caps) == "cooperative") == pays


@pytest.mark.parametrize("reductions", [True, False])
def test_reductions_must_be_faster_too(reductions: bool) -> None:
    features = GPU.features | ({"matrix_reductions"} if reductions else set())
    slow = dataclasses.replace(H200, half_products_per_microsecond=H200.products_per_microsecond)
    rules = [chosen(HALVES[-1], dataclasses.replace(GPU, features=features, model=model)) for model in (H200, slow)]
    assert rules == ["reductions" if reductions else "cooperative", "tiles"]


@pytest.mark.parametrize(("gain", "pays"), [(None, True), (2.7, False), (2.9, True)])
def test_matrices_of_bytes_must_be_faster_than_packed_bytes(gain: float | None, pays: bool) -> None:
    caps = dataclasses.replace(
        GPU,
        features=GPU.features | {"int8", "storage8", "integer_dot_product"},
        cooperative_matrices=(CooperativeMatrix(16, 16, 32, "int8", "int32"),),
        model=dataclasses.replace(H200, byte_products_per_microsecond=gain and gain * H200.products_per_microsecond),
    )
    assert chosen(BYTES, caps) == ("cooperative" if pays else "tiled")


def test_float32_is_rounded_only_where_that_is_allowed() -> None:
    desc = product(FLOAT32, 1024, 1024, 1024)
    assert chosen(desc, GPU) in ("tiled", "split")
    assert chosen(desc, dataclasses.replace(GPU, allow_half_precision=True)) == "cooperative"
    assert chosen(product(FLOAT16, 1024, 1024, 1024), GPU) == "cooperative"


def test_a_clip_that_scales_first_is_left_to_the_other_kernels() -> None:
    """The other kernels alone read the two numbers of the scale."""
    desc = product(FLOAT16, 1024, 1024, 1024)
    clips = ops.ElementWiseClip(min=0.0, max=6.0), ops.ElementWiseClip(min=0.0, max=6.0, scale_bias=ScaleBias(2.0, 1.0))
    plain, scaled = (chosen(desc.replace(fused_activation=clip), GPU) for clip in clips)
    assert plain == "cooperative" != scaled


@pytest.mark.parametrize("subgroup", [8, 16, 32, 64])
@pytest.mark.parametrize("shared", [16384, 32768, 49152])
@pytest.mark.parametrize(("rows", "columns"), [(16, 16), (16, 8192), (128, 768), (1000, 24), (1024, 1024), (8192, 8192)])
def test_a_tile_fits_the_device(rows: int, columns: int, shared: int, subgroup: int) -> None:
    caps = dataclasses.replace(GPU, shared_memory_bytes=shared, subgroup_size=subgroup)
    tile = cooperative_tile(rows, columns, 1, caps)
    invocations = tile.subgroups * subgroup
    assert tile.shared_bytes <= shared
    assert invocations <= caps.workgroup_invocations
    assert tile.is_shared_evenly(invocations)
    assert tile.depth % 16 == tile.block_rows % 16 == tile.block_columns % 16 == 0
    assert tile.spread <= tile.depth // 16


@pytest.mark.parametrize(
    ("rows", "columns", "shared", "tile"),
    [
        (4096, 4096, 49152, (128, 256, 48, 64, 64, 1, 2)),
        (2048, 1024, 49152, (128, 128, 64, 64, 64, 1, 1)),
        (1024, 1024, 49152, (64, 128, 64, 32, 32, 1, 1)),
        (512, 512, 49152, (32, 64, 128, 16, 32, 1, 1)),
        (512, 512, 16384, (32, 64, 64, 16, 32, 1, 1)),
        (16, 8192, 49152, (16, 64, 128, 16, 16, 1, 0)),
        (16, 8192, 16384, (16, 64, 64, 16, 16, 1, 0)),
    ],
)
def test_the_tile_of_a_size(rows: int, columns: int, shared: int, tile: tuple[int, ...]) -> None:
    caps = dataclasses.replace(GPU, shared_memory_bytes=shared)
    assert cooperative_tile(rows, columns, 1, caps) == CooperativeTile(*tile)


def test_tiles_have_a_word_of_padding_whichever_way_factors_lie() -> None:
    """Lines along the depth take more where tiles are wide, lines across it where they are deep."""
    assert CooperativeTile(128, 128, 64, 64, 64).shared_bytes == 16 * (128 + 128) * (8 + 1)
    assert CooperativeTile(16, 64, 128, 16, 16).shared_bytes == 16 * 128 * ((2 + 1) + (8 + 1))


def test_a_factor_along_the_depth_takes_no_wide_tile() -> None:
    assert cooperative_tile(4096, 4096, 1, GPU, b_along_depth=True)[:3] == (128, 128, 64)


def test_a_cpu_has_one_small_tile() -> None:
    assert cooperative_tile(4096, 4096, 1, dataclasses.replace(GPU, is_cpu=True)) == CooperativeTile(16, 32, 16, 8, 16)


def test_large_products_get_large_tiles_and_small_ones_fill_the_device() -> None:
    assert cooperative_tile(4096, 4096, 1, GPU)[:3] == (128, 256, 48)
    assert cooperative_tile(1024, 1024, 1, GPU).tiles(1024, 1024) >= 120
    assert cooperative_tile(16, 8192, 1, GPU).rows == 16


def test_words_are_whole_where_lines_start_on_them() -> None:
    place = input_range(0)
    assert whole_words(FLOAT16, place, (0, 0, 64, 1), 3, 64, along_depth=True)
    assert not whole_words(FLOAT16, place, (0, 0, 60, 1), 3, 56, along_depth=True)
    assert not whole_words(FLOAT16, place, (0, 0, 64, 1), 3, 60, along_depth=True), (
        "a word would hold what is past the depth"
    )
    assert whole_words(FLOAT16, place, (0, 0, 64, 1), 3, 60, along_depth=False), "columns past the end are nobody's"
    assert not whole_words(FLOAT32, place, (0, 0, 64, 1), 3, 60, along_depth=False), "two loads: the second may be outside"
    assert not whole_words(FLOAT16, place, (0, 0, 64, 2), 3, 64, along_depth=True)
    assert not whole_words(FLOAT16, place._replace(offset=8), (0, 0, 64, 1), 3, 64, along_depth=True)


@pytest.mark.parametrize(
    ("data_type", "strides", "access"),
    [
        (FLOAT16, (0, 0, 64, 1), WordAccess.WORDS),
        (FLOAT16, (0, 0, 61, 1), WordAccess.SHIFTED),
        (FLOAT16, (0, 0, 64, 2), WordAccess.ELEMENTS),
        (FLOAT32, (0, 0, 61, 1), WordAccess.ELEMENTS),
        (TensorDataType.UINT16, (0, 0, 61, 1), WordAccess.SHIFTED),
    ],
)
def test_neighbours_of_16_bits_are_read_as_the_words_that_they_lie_in(
    data_type: TensorDataType, strides: tuple[int, ...], access: WordAccess
) -> None:
    assert word_access(data_type, input_range(0), strides, 3, 64, along_depth=True) is access


@pytest.mark.parametrize(
    ("columns", "depth", "tile", "ahead", "access"),
    [
        (4096, 4096, (128, 256, 48, 64, 64), 2, (1, 1)),
        (4100, 4100, (128, 128, 64, 64, 32), 1, (2, 2)),
        (768, 770, (32, 64, 64, 16, 32), 1, (2, 1)),
    ],
)
def test_lines_that_start_anywhere_take_more_invocations(
    columns: int, depth: int, tile: tuple[int, ...], ahead: int, access: tuple[int, int]
) -> None:
    """Twice the registers hold what is on its way; none is left for further tiles."""
    (dispatch,) = lower(product(FLOAT16, 4096 if depth > 1000 else 197, columns, depth), GPU, force="cooperative").dispatches
    assert isinstance(dispatch, Dispatch)
    constants = dict(dispatch.kernel.constants)
    assert tuple(constants[name] for name in ("TILE_M", "TILE_N", "TILE_K", "SUB_M", "SUB_N")) == tile
    assert constants.get("AHEAD", 1) == ahead
    assert (constants["VECTOR_A"], constants["VECTOR_B"]) == access
    assert dict(dispatch.kernel.variant)["WHOLE"] == str(int(access == (1, 1)))


@pytest.mark.parametrize(
    ("rows", "columns", "tile", "parts"),
    [
        (64, 14336, (64, 64, 128), 1),  # 224 workgroups: most processors have two
        (48, 11008, (64, 128, 64), 3),  # of 172 a third of the processors would have a second one; these are 258
        (32, 11008, (32, 64, 128), 2),
        (32, 32000, (32, 128, 128), 1),  # 250 workgroups, of 500 that there is no room for
        (32, 80000, (32, 64, 128), 1),
        (32, 4096, (32, 64, 128), 4),
    ],
)
def test_processors_have_as_many_workgroups_of_few_rows(
    rows: int, columns: int, tile: tuple[int, int, int], parts: int
) -> None:
    found, split = parted_tile(rows, columns, 4096, 1, GPU, b_along_depth=True)
    assert ((found.rows, found.columns, found.depth), split) == (tile, parts)


@pytest.mark.parametrize(
    ("rows", "depth", "columns", "rule"),
    [
        (1, 768, 50257, "cooperative"),
        (4, 768, 50257, "cooperative"),
        (1, 4097, 8193, "vector"),
        (3, 4097, 8193, "cooperative"),
        (4, 768, 50264, "vector"),
        (4, 8, 50257, "vector"),
    ],
)
def test_few_rows_of_columns_that_start_anywhere_are_matrices(rows: int, depth: int, columns: int, rule: str) -> None:
    """Where there are several of them, or columns for all processors."""
    assert chosen(product(FLOAT16, rows, columns, depth), GPU) == rule
    assert chosen(product(FLOAT32, rows, columns, depth), GPU) == "vector"


@pytest.mark.parametrize(
    ("tile", "subgroup", "most", "blocks"),
    [
        ((128, 128, 64, 64, 64), 32, 1024, (64, 32)),
        ((96, 128, 64, 48, 64), 32, 1024, (48, 32)),
        ((96, 128, 64, 48, 64), 64, 1024, (48, 64)),
        ((128, 128, 64, 64, 64), 32, 255, (64, 64)),
    ],
)
def test_more_invocations_are_those_that_a_device_has(
    tile: tuple[int, int, int, int, int], subgroup: int, most: int, blocks: tuple[int, int]
) -> None:
    """And they share words evenly."""
    caps = dataclasses.replace(GPU, subgroup_size=subgroup, workgroup_invocations=most)
    found = staged_tile(CooperativeTile(*tile), caps, whole_words=False)
    assert (found.block_rows, found.block_columns) == blocks


def test_transposed_weights_in_large_tiles_are_loaded_in_two_steps() -> None:
    assert parted_tile(4096, 4096, 4096, 1, GPU, b_along_depth=True)[0] == CooperativeTile(128, 128, 64, 64, 64, spread=2)
    assert parted_tile(128, 4096, 4096, 1, GPU, b_along_depth=False)[0] == CooperativeTile(128, 128, 64, 64, 64)


def test_long_sums_of_few_tiles_are_split() -> None:
    plan = lower(product(FLOAT16, 64, 64, 8192), GPU)
    kernels = [launch.kernel for launch in plan.dispatches if isinstance(launch, Dispatch)]
    assert [kernel.kernel for kernel in kernels] == ["gemm_cooperative", "gemm_merge"]
    assert kernels[0].subgroup_size == GPU.subgroup_size
    assert plan.temporary_bytes >= 2 * 4 * 64 * 64


@pytest.mark.parametrize(
    ("rows", "columns", "depth", "b_along_depth", "cover"),
    [
        (4096, 4096, 4096, False, (128, 256, 1)),
        (4096, 4096, 4096, True, (128, 128, 1)),
        (1024, 1024, 1024, False, (64, 128, 1)),
        (2048, 4096, 14336, False, (128, 256, 1)),
        (256, 4096, 14336, False, (128, 128, 4)),
        (256, 4096, 14336, True, (128, 128, 4)),
        (128, 14336, 4096, False, (128, 128, 2)),
        (512, 4096, 14336, True, (128, 128, 2)),
        (512, 4096, 1024, True, (128, 128, 1)),
        (1576, 768, 768, False, (96, 128, 1)),
        (2048, 768, 3072, True, (96, 128, 1)),
        (128, 3072, 768, False, (64, 64, 1)),
        (128, 768, 3072, False, (64, 64, 4)),
        (197, 2304, 768, False, (32, 64, 1)),
        (384, 4096, 14336, False, (192, 128, 2)),
        (1024, 5120, 1280, False, (128, 160, 1)),
        (77, 4096, 4096, False, (96, 128, 4)),
    ],
)
def test_few_tiles_are_large_and_in_parts(
    rows: int, columns: int, depth: int, b_along_depth: bool, cover: tuple[int, int, int]
) -> None:
    """The fastest of those that an H100 was measured with."""
    tile, parts = parted_tile(rows, columns, depth, 1, GPU, b_along_depth=b_along_depth)
    assert (tile.rows, tile.columns, parts) == cover


@pytest.mark.parametrize(
    ("sizes", "tile", "parts"),
    [
        ((128, 3072, 768, 1), (64, 64, 128, 2), 1),
        ((128, 768, 3072, 1), (64, 64, 128, 2), 4),
        ((128, 768, 768, 1), (16, 64, 256, 2), 1),
        ((197, 768, 768, 1), (32, 64, 128, 2), 1),
        ((197, 3072, 768, 1), (64, 128, 64, 2), 1),
        ((128, 3072, 128, 1), (64, 64, 64, 1), 1),
        ((695, 192, 768, 12), (64, 64, 64, 1), 1),
        ((16, 16384, 1024, 1), (16, 64, 128, 1), 1),
        ((197, 2304, 768, 1), (32, 64, 128, 1), 1),
    ],
)
def test_few_workgroups_have_more_on_the_way(
    sizes: tuple[int, int, int, int], tile: tuple[int, int, int, int], parts: int
) -> None:
    """Those of BERT and ViT; a short sum, and more workgroups, keep the tile."""
    found, of = parted_tile(*sizes, GPU, b_along_depth=False)
    assert ((found.rows, found.columns, found.depth, found.ahead), of) == (tile, parts)
    assert parted_tile(*sizes, GPU, b_along_depth=False, patient=False)[0].ahead == 1
    little = dataclasses.replace(GPU, shared_memory_bytes=32 << 10)
    found, _ = parted_tile(*sizes, little, b_along_depth=False)
    assert found.shared_bytes <= little.shared_memory_bytes


@pytest.mark.parametrize(
    ("sizes", "cover"),
    [
        ((128, 768, 768, 1), (16, 64, 128, 3)),
        ((197, 768, 768, 1), (32, 64, 128, 3)),
        ((384, 1024, 1024, 1), (64, 128, 64, 2)),
        ((512, 768, 768, 1), (64, 64, 128, 2)),
        ((49, 768, 768, 1), (16, 64, 128, 3)),
        ((128, 768, 384, 1), (16, 64, 128, 1)),
        ((1024, 1024, 1024, 1), (64, 128, 64, 1)),
        ((128, 768, 3072, 1), (64, 64, 128, 4)),
        ((2048, 768, 3072, 1), (192, 128, 64, 2)),
    ],
)
def test_parts_that_are_added_anyway_are_short_and_many(
    sizes: tuple[int, int, int, int], cover: tuple[int, int, int, int]
) -> None:
    """Those before normalizations: two rounds at least, and no more workgroups than there is room for at once. What is in
    parts already keeps them."""
    tile, parts = parted_tile(*sizes, GPU, b_along_depth=False, merged=True)
    assert (tile.rows, tile.columns, tile.depth, parts) == cover
    little = dataclasses.replace(GPU, shared_memory_bytes=16 << 10)
    tile, _ = parted_tile(*sizes, little, b_along_depth=False, merged=True)
    assert tile.shared_bytes <= little.shared_memory_bytes
    cpu = dataclasses.replace(GPU, is_cpu=True)
    assert parted_tile(*sizes, cpu, b_along_depth=False, merged=True) == parted_tile(*sizes, cpu, b_along_depth=False)


def test_parts_have_rounds_enough() -> None:
    for depth in (64, 512, 1024, 4096):
        tile, parts = parted_tile(128, 512, depth, 1, GPU, b_along_depth=False)
        assert parts == 1 or -(-depth // tile.depth) >= 8 * parts


def test_what_no_measured_tiles_fill_takes_smaller_ones() -> None:
    found = parted_tile(512, 512, 512, 1, GPU, b_along_depth=False, patient=False)
    assert found == (cooperative_tile(512, 512, 1, GPU), 1)


def test_without_a_rate_of_matrices_no_time_is_known() -> None:
    unknown = dataclasses.replace(GPU, model=dataclasses.replace(H200, half_products_per_microsecond=None))
    tile, parts = parted_tile(512, 4096, 14336, 1, unknown, b_along_depth=False)
    assert (tile, parts) == (cooperative_tile(512, 4096, 1, unknown), 1)


@pytest.mark.parametrize(
    ("rows", "columns", "depth", "cover"),
    [
        (16, 16384, 16384, (16, 64, 128, 2)),
        (16, 4096, 4096, (16, 64, 128, 8)),
        (16, 768, 3072, (16, 64, 128, 6)),
        (9, 6144, 4096, (16, 64, 128, 5)),
        (17, 4096, 4096, (32, 64, 128, 4)),
        (32, 14336, 4096, (32, 64, 128, 1)),
        (33, 14336, 4096, (64, 64, 128, 1)),
        (64, 4096, 14336, (64, 64, 128, 4)),
    ],
)
def test_few_rows_read_with_as_many_workgroups_as_there_is_room_for(
    rows: int, columns: int, depth: int, cover: tuple[int, int, int, int]
) -> None:
    """Near the fastest that were measured on an H200, whichever way the weights lie, and whether or not the device's rate of
    matrices is known."""
    unknown = dataclasses.replace(GPU, model=dataclasses.replace(H200, half_products_per_microsecond=None))
    for caps, b_along_depth in itertools.product((GPU, unknown), (False, True)):
        tile, parts = parted_tile(rows, columns, depth, 1, caps, b_along_depth=b_along_depth)
        assert (tile.rows, tile.columns, tile.depth, parts) == cover


@pytest.mark.parametrize(("rows", "columns", "depth"), [(16, 1024, 1024), (16, 65536, 4096), (64, 32768, 4096)])
def test_few_rows_of_short_sums_or_many_columns_have_tiles_of_any_product(rows: int, columns: int, depth: int) -> None:
    found = parted_tile(rows, columns, depth, 1, GPU, b_along_depth=False, patient=False)
    assert found == (cooperative_tile(rows, columns, 1, GPU), 1)
