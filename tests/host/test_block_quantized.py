"""Weights in blocks, without a device: the formats, what is allocated for them, and what does not fit."""

from __future__ import annotations

import dataclasses
import itertools
import math
from typing import Any

import choices
import numpy as np
import pytest

from dmlvk import TensorDataType, TensorDesc, TensorFlags
from dmlvk.devices.capabilities import SUBGROUPS, Capabilities
from dmlvk.devices.model import H200, NUMBERS, NumberSource
from dmlvk.kernels.block_quantized.lowering import _problem
from dmlvk.kernels.block_quantized.packed import PackedWeights
from dmlvk.kernels.block_quantized.rules import dot_shape
from dmlvk.kernels.common.plan import Dispatch, Source
from dmlvk.kernels.lowering import lower, possible_rules
from dmlvk.spec.block_formats import BlockFormat, OffsetKind, ScaleKind
from dmlvk.spec.errors import InvalidArgumentError, UnsupportedError
from dmlvk.spec.gate import Gate
from dmlvk.spec.ops.block_quantized import BlockQuantizedGather, BlockQuantizedGemm, layout_of
from dmlvk.verify.oracle.block_quantized import of_bytes

F32, F16, U8, I8, U16 = (TensorDataType[name] for name in ("FLOAT32", "FLOAT16", "UINT8", "INT8", "UINT16"))
OF_FILES = [format_ for format_ in BlockFormat if not format_.is_apart]


def gemm(format_: BlockFormat, columns: int, depth: int, **fields: Any) -> BlockQuantizedGemm:
    """A product of one row with weights that are kept."""
    nbytes = depth * format_.layout.bits // 8 if format_.is_apart else format_.row_bytes(depth)
    tensors = {
        "input_tensor": TensorDesc(F32, (1, depth)),
        "weight_tensor": TensorDesc(U8, (columns, nbytes), flags=TensorFlags.OWNED_BY_DML),
        "output_tensor": TensorDesc(F32, (1, columns)),
    }
    return BlockQuantizedGemm(**{**tensors, **fields}, format=format_)


@pytest.mark.parametrize("format_", OF_FILES)
def test_numbers_are_those_of_ggufs_own_package(format_: BlockFormat) -> None:
    gguf = pytest.importorskip("gguf")
    kind = gguf.GGMLQuantizationType[format_.name]
    assert format_ == kind
    assert gguf.GGML_QUANT_SIZES[kind] == (format_.layout.group, format_.layout.nbytes)
    raw = np.random.default_rng(0).integers(0, 256, (3, format_.row_bytes(512)), dtype=np.uint8)
    with np.errstate(invalid="ignore"):  # random bytes are infinite scales, too
        np.testing.assert_array_equal(of_bytes(format_, raw), gguf.dequantize(raw, kind))


@pytest.mark.parametrize("format_", OF_FILES)
def test_weights_take_the_memory_of_the_file(format_: BlockFormat) -> None:
    desc = gemm(format_, 2048, 2048)
    desc.validate()
    nbytes = lower(desc, Capabilities()).persistent_bytes
    assert desc.tensor("weight_tensor").element_count <= nbytes <= 1.05 * desc.tensor("weight_tensor").element_count


def test_a_product_and_a_gather_share_what_initialisation_leaves() -> None:
    product = gemm(BlockFormat.Q6_K, 40, 512)
    table = BlockQuantizedGather(
        indices_tensor=TensorDesc(TensorDataType.INT64, (3,)),
        weight_tensor=product.weight_tensor,
        output_tensor=TensorDesc(F32, (3, 512)),
        format=BlockFormat.Q6_K,
    )
    table.validate()
    plans = [lower(desc, Capabilities()) for desc in (product, table)]
    assert plans[0].initialize == plans[1].initialize and plans[0].persistent_bytes == plans[1].persistent_bytes > 0


def test_a_vocabulary_larger_than_a_binding_is_packed_once_in_windows() -> None:
    """Llama 3's, where a binding has 128 MiB at most."""
    caps = dataclasses.replace(Capabilities(), storage_buffer_bytes=2**27)
    product = gemm(BlockFormat.Q6_K, 128_256, 4096)
    table = BlockQuantizedGather(
        indices_tensor=TensorDesc(TensorDataType.INT64, (3,)),
        weight_tensor=product.weight_tensor,
        output_tensor=TensorDesc(F32, (3, 4096)),
        format=BlockFormat.Q6_K,
    )
    plans = [lower(desc, caps) for desc in (product, table)]
    whole = lower(product, Capabilities())
    assert plans[0].initialize == plans[1].initialize and [len(plan.dispatches) for plan in plans] == [4, 4]
    assert plans[0].persistent_bytes < whole.persistent_bytes + 4 * 256
    launches = [*plans[0].initialize, *plans[0].dispatches, *plans[1].dispatches]
    assert all(place.nbytes <= 2**27 for launch in launches for place in launch.bindings)
    homes = [launch.bindings[-1] for launch in plans[0].initialize]
    assert all(one.offset + one.nbytes <= other.offset for one, other in itertools.pairwise(homes))


def test_weights_that_are_not_kept_are_packed_each_time() -> None:
    tensor = TensorDesc(U8, (40, BlockFormat.Q4_0.row_bytes(64)))
    plan = lower(gemm(BlockFormat.Q4_0, 40, 64, weight_tensor=tensor), Capabilities())
    assert [launch.name for launch in plan.dispatches] == ["block_pack", "block_vector"] and not plan.initialize
    assert plan.dispatches[1].bindings[1].source is Source.TEMPORARY and plan.temporary_bytes


@pytest.mark.parametrize(
    ("columns", "depth", "lanes", "local"),
    [(4096, 4096, 128, 512), (8192, 4096, 64, 256), (16384, 4096, 32, 256), (65536, 4096, 8, 256), (2**17, 4096, 8, 256)],
)
def test_columns_have_lanes_for_half_a_wave_and_workgroups_four_teams(
    columns: int, depth: int, lanes: int, local: int
) -> None:
    caps = dataclasses.replace(Capabilities(), workgroup_invocations=1024, storage_buffer_bytes=2**32 - 4, model=H200)
    (launch,) = lower(gemm(BlockFormat.Q4_0, columns, depth), caps, force="vector").dispatches
    assert isinstance(launch, Dispatch)
    constants = dict(launch.kernel.constants)
    assert (constants["LANES"], constants["LOCAL_SIZE_X"]) == (lanes, local)


def test_a_cpus_loops_over_chunks_count_those_over_their_codes() -> None:
    """Eight lanes share a column; each has a round for a chunk of 32 codes, and four within it."""
    cpu = Capabilities(is_cpu=True, minimum_subgroup_size=8, subgroup_size=8)
    depth = 65535 // 5 * 8 * 32
    lower(gemm(BlockFormat.Q4_0, 4, depth), cpu, force="vector")
    with pytest.raises(UnsupportedError, match="65535 rounds"):
        lower(gemm(BlockFormat.Q4_0, 4, depth + 32), cpu, force="vector")


@pytest.mark.parametrize("format_", OF_FILES)
def test_windows_of_weights_start_on_whole_words(format_: BlockFormat) -> None:
    """In each plane, too, that is packed, and of the file's bytes."""
    caps = dataclasses.replace(Capabilities(), storage_buffer_bytes=2**20)
    desc = gemm(format_, 5000, 1280)
    plan = lower(desc, caps)
    assert len(plan.initialize) > 1
    assert all(place.offset % 16 == 0 for launch in plan.initialize for place in launch.bindings)


def test_planes_follow_each_other() -> None:
    scales = TensorDesc(U16, (37, 5))
    points = TensorDesc(U8, (37, 3))
    desc = gemm(BlockFormat.APART_4, 37, 75, weight_tensor=TensorDesc(U8, (37, 40)), scales_tensor=scales, block_size=16)
    desc = dataclasses.replace(desc, zero_points_tensor=points)
    desc.validate()
    layout = layout_of(desc)
    assert (layout.scale, layout.offset, layout.block) == (ScaleKind.BFLOAT16, OffsetKind.ZERO_POINT, 16)
    weights = PackedWeights.of(desc)
    codes = 37 * 3 * 16
    assert weights.params["high_start"] == weights.params["scale_start"] == codes // 4
    assert weights.params["offset_start"] == (codes + 10 * 5 * 8) // 4
    assert weights.nbytes == codes + 400 + 208  # the zero points' 200 bytes are whole words of 16


@pytest.mark.parametrize(
    ("field", "fields"),
    [
        ("WeightTensor", {"weight_tensor": TensorDesc(U8, (40, 143))}),
        ("WeightTensor", {"weight_tensor": TensorDesc(I8, (40, 144))}),
        ("WeightTensor", {"weight_tensor": TensorDesc(U8, (40, 144), (145, 1))}),
        ("ScalesTensor", {"scales_tensor": TensorDesc(F16, (40, 8))}),
        ("ScalesTensor", {"block_size": 32}),
        ("ZeroPointsTensor", {"zero_points_tensor": TensorDesc(U8, (40, 4))}),
        ("BiasTensor", {"bias_tensor": TensorDesc(F32, (39,))}),
        ("OutputTensor", {"output_tensor": TensorDesc(F32, (1, 39))}),
    ],
)
def test_sizes_that_do_not_fit(field: str, fields: dict[str, Any]) -> None:
    desc = gemm(BlockFormat.Q4_K, 40, 256)
    desc.validate()
    with pytest.raises(InvalidArgumentError, match=field):
        dataclasses.replace(desc, **fields).validate()


@pytest.mark.parametrize(
    ("field", "fields"),
    [
        ("BlockSize", {"block_size": 24}),
        ("ScalesTensor", {"scales_tensor": TensorDesc(F16, (40, 7))}),
        ("ZeroPointsTensor", {"zero_points_tensor": TensorDesc(U8, (40, 8))}),
        ("WeightTensor", {"weight_tensor": TensorDesc(U8, (40, 127))}),
    ],
)
def test_scales_apart_that_do_not_fit(field: str, fields: dict[str, Any]) -> None:
    desc = gemm(BlockFormat.APART_4, 40, 256, scales_tensor=TensorDesc(F16, (40, 8)), block_size=32)
    desc.validate()
    with pytest.raises(InvalidArgumentError, match=field):
        dataclasses.replace(desc, **fields).validate()


@pytest.mark.parametrize(
    ("columns", "is_possible"), [(28672, True), (1 << 15, True), ((1 << 15) + 64, False), (128256, False)]
)
def test_no_more_than_256_mib_are_unpacked_at_once(columns: int, is_possible: bool) -> None:
    desc = gemm(
        BlockFormat.Q4_0,
        columns,
        4096,
        input_tensor=TensorDesc(F16, (8192, 4096)),
        output_tensor=TensorDesc(F16, (8192, columns)),
    )
    caps = Capabilities(storage_buffer_bytes=(1 << 32) - 1)
    caps = dataclasses.replace(caps, features=caps.features | {"storage16"})
    assert ("unpacked" in possible_rules(desc, caps)) == is_possible
    if is_possible:
        place = -(-columns * 4096 * 2 // 256) * 256
        assert place <= lower(desc, caps, force="unpacked").temporary_bytes


@pytest.mark.parametrize(("least", "is_possible"), [(4, True), (2, False)])
def test_the_digits_of_a_chunk_are_made_within_a_subgroup(least: int, is_possible: bool) -> None:
    caps = Capabilities(features=SUBGROUPS | {"integer_dot_product"}, minimum_subgroup_size=least)
    assert ("dot" in possible_rules(gemm(BlockFormat.Q4_0, 64, 64), caps)) == is_possible


@pytest.mark.parametrize(
    ("format_", "columns", "depth", "rows", "gate", "local", "lanes", "workgroups"),
    [
        (BlockFormat.Q4_0, 6144, 4096, 1, Gate.NONE, 768, 64, 128),
        (BlockFormat.Q4_0, 4096, 14336, 1, Gate.NONE, 1024, 128, 128),
        (BlockFormat.Q4_0, 5120, 3072, 1, Gate.NONE, 960, 96, 128),
        (BlockFormat.Q4_0, 28672, 4096, 1, Gate.SILU, 896, 32, 128),
        (BlockFormat.Q4_K, 4096, 4096, 4, Gate.NONE, 1024, 32, 128),
        (BlockFormat.Q4_K, 28672, 4096, 1, Gate.SILU, 256, 32, 448),
        (BlockFormat.Q6_K, 4096, 4096, 1, Gate.NONE, 256, 64, 256),
        (BlockFormat.Q4_0, 128256, 4096, 1, Gate.NONE, 256, 32, 4008),
    ],
)
def test_each_processor_has_one_workgroup_of_few_registers(
    format_: BlockFormat, columns: int, depth: int, rows: int, gate: Gate, local: int, lanes: int, workgroups: int
) -> None:
    """Of an H200, where products are small enough; weights are asked for first where a processor has several."""
    desc = gemm(
        format_,
        columns,
        depth,
        input_tensor=TensorDesc(F16, (rows, depth)),
        output_tensor=TensorDesc(F16, (rows, columns // (1 + (gate is not Gate.NONE)))),
        gate=gate,
    )
    caps = choices.DEVICES["h200"]
    (dispatch,) = lower(desc, caps, force="dot").dispatches
    assert isinstance(dispatch, Dispatch)
    constants = dict(dispatch.kernel.constants)
    assert (constants["LOCAL_SIZE_X"], constants["LANES"], math.prod(dispatch.grid)) == (local, lanes, workgroups)
    assert constants["WEIGHTS_FIRST"] == (workgroups > 132)


def test_who_does_not_know_how_many_processors_there_are_makes_several_workgroups_for_each() -> None:
    caps = choices.DEVICES["h200"]
    guessed = dataclasses.replace(caps.model, sources=(NumberSource.GENERIC,) * len(NUMBERS))
    shapes = [
        dot_shape(_problem(gemm(BlockFormat.Q4_0, 4096, 4096, input_tensor=TensorDesc(F16, (1, 4096)))), 1, 1024, 1, own)
        for own in (caps, dataclasses.replace(caps, model=guessed))
    ]
    assert [shape.weights_first for shape in shapes] == [False, True]


@pytest.mark.parametrize("splits", [False, True])
def test_strips_take_rows_of_float32_that_are_rounded_before(splits: bool) -> None:
    """What is rounded lies in temporary memory, before the sums of parts, and the strips read it as whole rows."""
    columns, depth = (64, 65536) if splits else (28672, 4096)
    caps = choices.DEVICES["h200"]
    inputs = {data_type: TensorDesc(data_type, (16, depth)) for data_type in (F32, F16)}
    outputs = {data_type: TensorDesc(data_type, (16, columns)) for data_type in (F32, F16)}
    plans = {
        own: lower(
            gemm(BlockFormat.Q4_0, columns, depth, input_tensor=inputs[own], output_tensor=outputs[own], half_factors=True),
            caps,
            force="strips",
        )
        for own in (F32, F16)
    }
    rounding, *others = plans[F32].dispatches
    assert isinstance(rounding, Dispatch)
    assert [own.name for own in others] == [own.name for own in plans[F16].dispatches]
    assert len(others) == 1 + splits
    halves = rounding.bindings[-1]
    strips = others[0]
    assert isinstance(strips, Dispatch) and strips.name == "block_strips"
    assert strips.bindings[0] == halves and halves.source is Source.TEMPORARY and halves.nbytes == 16 * depth * 2
    assert plans[F32].temporary_bytes - plans[F16].temporary_bytes == halves.nbytes
    if splits:
        sums = others[1].bindings[0]
        assert sums.source is Source.TEMPORARY and sums.offset >= halves.offset + halves.nbytes


@pytest.mark.parametrize(("rows", "columns", "nbytes"), [(16, 4096, 18432), (32, 4096, 36864), (32, 28672, 17408)])
def test_strips_need_room_for_the_sums_of_their_subgroups(rows: int, columns: int, nbytes: int) -> None:
    desc = gemm(
        BlockFormat.Q4_0,
        columns,
        4096,
        input_tensor=TensorDesc(F16, (rows, 4096)),
        output_tensor=TensorDesc(F16, (rows, columns)),
    )
    for room in (nbytes, nbytes - 1):
        caps = dataclasses.replace(choices.DEVICES["h200"], shared_memory_bytes=room)
        assert ("strips" in possible_rules(desc, caps)) == (room == nbytes)
