"""Plans of integer and quantized products, without a device."""

from __future__ import annotations

import dataclasses
import struct
from typing import Any

import pytest

import dmlvk
from dmlvk import TensorDataType, TensorDesc, TensorFlags
from dmlvk.devices.capabilities import SUBGROUPS, Capabilities, CooperativeMatrix
from dmlvk.kernels.common.plan import Dispatch, Plan, Source, input_range, output_range
from dmlvk.kernels.integer.lowering import _COOPERATIVE_TILES
from dmlvk.kernels.lowering import explain, lower, possible_rules
from dmlvk.kernels.manifest import KERNELS
from dmlvk.spec.errors import InvalidArgumentError, UnsupportedError
from dmlvk.spec.schema import OperatorDesc

FLOAT32, INT32, INT16, INT8, UINT8 = (TensorDataType[name] for name in ("FLOAT32", "INT32", "INT16", "INT8", "UINT8"))
GPU = Capabilities(
    features=SUBGROUPS | {"storage8", "storage16", "integer_dot_product"},
    workgroup_invocations=1024,
    shared_memory_bytes=49152,
    storage_buffer_bytes=2**32 - 4,
)
MATRICES = dataclasses.replace(
    GPU,
    features=GPU.features
    | {"cooperative_matrix", "vulkan_memory_model", "float16", "int8", "int16", "subgroup_size_control", "full_subgroups"},
    cooperative_matrices=(
        CooperativeMatrix(16, 16, 16, "float16", "float32"),
        CooperativeMatrix(16, 16, 32, "int8", "int32"),
    ),
)


def product(
    rows: int = 70,
    depth: int = 100,
    columns: int = 90,
    types: tuple[TensorDataType, TensorDataType] = (INT8, INT8),
    batch: tuple[int, ...] = (),
    zero_points: str = "",
    owned: str = "",
    b_strides: tuple[int, ...] | None = None,
) -> OperatorDesc:
    """``zero_points`` and ``owned`` name operands: "a", "b", "ab"; "z" is B's zero point."""
    one, rank = (1,) * (len(batch) + 2), len(batch) + 2
    assert rank <= 4

    def flags(name: str) -> TensorFlags:
        return TensorFlags.OWNED_BY_DML if name in owned else TensorFlags.NONE

    return dmlvk.MatrixMultiplyInteger(
        a_tensor=TensorDesc(types[0], (*batch, rows, depth)),
        a_zero_point_tensor=TensorDesc(types[0], one) if "a" in zero_points else None,
        b_tensor=TensorDesc(types[1], (*batch, depth, columns), b_strides, flags=flags("b")),
        b_zero_point_tensor=TensorDesc(types[1], one, flags=flags("z")) if "b" in zero_points else None,
        output_tensor=TensorDesc(INT32, (*batch, rows, columns)),
    )


def convolution(**changes: Any) -> OperatorDesc:
    fields: dict[str, Any] = {
        "input_tensor": TensorDesc(UINT8, (2, 24, 9, 10)),
        "filter_tensor": TensorDesc(INT8, (32, 24, 3, 3)),
        "output_tensor": TensorDesc(INT32, (2, 32, 9, 10)),
        "strides": (1, 1),
        "dilations": (1, 1),
        "start_padding": (1, 1),
        "end_padding": (1, 1),
    }
    return dmlvk.ConvolutionInteger(**fields | changes)


def lowered(desc: OperatorDesc, caps: Capabilities = GPU, force: str = "") -> Plan:
    desc.validate()
    return lower(desc, caps, force=force)


def last(plan: Plan) -> Dispatch:
    launch = plan.dispatches[-1]
    assert isinstance(launch, Dispatch)
    return launch


def params(dispatch: Dispatch) -> dict[str, tuple[int, ...]]:
    words = list(struct.unpack(f"<{len(dispatch.params) // 4}I", dispatch.params))
    members = KERNELS[dispatch.kernel.kernel].members
    return {member.name: tuple(words.pop(0) for _ in range(max(member.length, 1))) for member in members}


def kernels(plan: Plan) -> list[str]:
    return [launch.kernel.kernel for launch in plan.dispatches if isinstance(launch, Dispatch)]


def chosen(desc: OperatorDesc, caps: Capabilities) -> str:
    return next(rule.name for rule, holds in explain(desc, caps) if holds)


def test_what_is_chosen() -> None:
    assert chosen(product(), MATRICES) == "cooperative"
    assert chosen(product(), GPU) == "tiled"
    assert chosen(product(rows=3), GPU) == "vector"
    assert chosen(product(rows=9), MATRICES) == "cooperative"
    assert chosen(product(columns=7), MATRICES) == "naive"
    assert chosen(product(depth=15), dataclasses.replace(GPU, is_cpu=True)) == "naive"
    assert chosen(product(), dataclasses.replace(MATRICES, is_cpu=True)) == "tiled"
    assert chosen(product(rows=3), dataclasses.replace(GPU, is_cpu=True)) == "naive"
    depthwise = {
        "filter_tensor": TensorDesc(INT8, (24, 1, 3, 3)),
        "output_tensor": TensorDesc(INT32, (2, 24, 9, 10)),
        "group_count": 24,
    }
    assert chosen(convolution(), MATRICES) == "cooperative"
    assert chosen(convolution(**depthwise), MATRICES) == "depthwise"


def test_only_matrices_of_whole_words_of_bytes() -> None:
    for shape in (CooperativeMatrix(8, 8, 8, "int8", "int32"), CooperativeMatrix(16, 16, 32, "uint8", "uint32")):
        assert "cooperative" not in possible_rules(product(), dataclasses.replace(MATRICES, cooperative_matrices=(shape,)))
    assert "cooperative" not in possible_rules(product(), dataclasses.replace(MATRICES, features=GPU.features))
    without = dataclasses.replace(MATRICES, features=MATRICES.features - {"int8"})
    assert "cooperative" not in possible_rules(product(), without)
    assert last(lowered(product(), MATRICES)).kernel.subgroup_size == 32


def test_a_cpu_has_one_small_tile_of_matrices() -> None:
    kernel = last(lowered(product(), dataclasses.replace(MATRICES, is_cpu=True), "cooperative")).kernel
    constants = dict(kernel.constants)
    assert [constants[name] for name in ("TILE_M", "TILE_N", "TILE_K", "SUB_M", "SUB_N")] == [32, 32, 32, 16, 16]


def test_wide_integers_are_added_in_float32() -> None:
    one = TensorDesc(FLOAT32, (1, 1))
    for data_type, depth, exact in ((INT8, 33025, True), (INT8, 33026, False), (INT16, 40, False)):
        desc = dmlvk.MatrixMultiplyIntegerToFloat(
            a_tensor=TensorDesc(data_type, (40, depth)),
            a_scale_tensor=one,
            b_tensor=TensorDesc(data_type, (depth, 40)),
            b_scale_tensor=one,
            output_tensor=TensorDesc(FLOAT32, (40, 40)),
        )
        assert ("tiled" in possible_rules(desc, GPU)) == exact
        variant = dict(last(lowered(desc, force="naive")).kernel.variant)
        assert variant["SUM"] == ("int" if exact else "float")
        assert variant["U"] == ("UINT8" if data_type is INT8 else "UINT16")


@pytest.mark.parametrize("rule", ["tiled", "cooperative"])
def test_operands_are_packed_first(rule: str) -> None:
    plan = lowered(product(), MATRICES, rule)
    assert kernels(plan)[:-1] == ["integer_pack"] * 2
    for launch in plan.dispatches[:-1]:
        assert launch.bindings[2].source is Source.TEMPORARY
    pack_a, pack_b = (params(launch) for launch in plan.dispatches[:-1] if isinstance(launch, Dispatch))
    assert pack_a["lines"] == (70,) and pack_b["lines"] == (90,)
    assert pack_a["channels"] == pack_b["channels"] == (100,)
    assert pack_a["words"] == pack_b["words"] == (8,), "128 channels"
    assert plan.temporary_bytes >= 128 * (70 + 90)
    made = last(plan)
    names = KERNELS[made.kernel.kernel].buffer_names
    assert made.bindings[names.index("x")] == plan.dispatches[0].bindings[2]
    assert made.bindings[names.index("w")] == plan.dispatches[1].bindings[2]
    assert made.bindings[names.index("y")] == output_range()


def test_an_operand_that_lies_packed_is_read_as_it_is() -> None:
    """An operand is packed in lines of whole steps of the depth, of INT8, and where nobody asks for its sums."""
    for changes, count in (
        ({"depth": 128}, 1),
        ({"depth": 128, "b_strides": (1, 128)}, 0),
        ({"depth": 128, "b_strides": (1, 128), "zero_points": "a"}, 1),
        ({"depth": 128, "b_strides": (1, 128), "types": (UINT8, INT8)}, 2),
        ({"depth": 96}, 2),
    ):
        plan = lowered(product(**changes), MATRICES)
        assert kernels(plan) == ["integer_pack"] * count + ["integer_cooperative"], changes
    plan = lowered(product(depth=128, b_strides=(1, 128)), MATRICES)
    assert last(plan).bindings[:2] == (input_range(0), input_range(2)) and plan.temporary_bytes == 0


def test_a_filter_of_dmls_own_is_packed_once() -> None:
    for owned, zero_points, once in (("b", "", True), ("b", "b", False), ("bz", "b", True)):
        plan = lowered(product(owned=owned, zero_points=zero_points), MATRICES)
        assert len(plan.initialize) == int(once)
        assert len(plan.dispatches) == (2 if once else 3)
        for launch in plan.initialize:
            assert launch.bindings[0] == input_range(2) and launch.bindings[2].source is Source.PERSISTENT
        assert (plan.persistent_bytes > 0) == once


def test_sums_are_made_where_the_other_operand_has_a_zero_point() -> None:
    """An unsigned operand has one in any case: 128, once its numbers are INT8."""
    for types, zero_points, wanted in (
        ((INT8, INT8), "", (0, 0)),
        ((INT8, INT8), "a", (0, 1)),
        ((INT8, INT8), "b", (1, 0)),
        ((UINT8, INT8), "", (0, 1)),
        ((INT8, UINT8), "", (1, 0)),
    ):
        plan = lowered(product(types=types, zero_points=zero_points), MATRICES)
        found = dict(last(plan).kernel.constants)
        assert (found["HAS_X_SUMS"], found["HAS_W_SUMS"]) == wanted
        packing = [dict(launch.kernel.constants) for launch in plan.dispatches[:-1] if isinstance(launch, Dispatch)]
        assert tuple(constants["HAS_SUMS"] for constants in packing) == wanted
        assert [constants["FLIP"] for constants in packing] == [int(kind is UINT8) for kind in types]


def test_which_neighbours_packing_reads() -> None:
    for strides, along in ((None, 0), ((1, 100), 1)):
        plan = lowered(product(b_strides=strides), MATRICES)
        packing = [dict(launch.kernel.constants) for launch in plan.dispatches[:-1] if isinstance(launch, Dispatch)]
        assert [constants["ALONG_CHANNELS"] for constants in packing] == [1, along]


def test_windows_and_plain_products() -> None:
    def constants(desc: OperatorDesc) -> dict[str, int]:
        return dict(last(lowered(desc, MATRICES)).kernel.constants)

    assert constants(product())["PLAIN"] == 1
    assert constants(convolution())["PLAIN"] == 0
    one = {"filter_tensor": TensorDesc(INT8, (32, 24, 1, 1)), "start_padding": (0, 0), "end_padding": (0, 0)}
    assert constants(convolution(**one))["PLAIN"] == 1
    strided = {"strides": (1, 2), "output_tensor": TensorDesc(INT32, (2, 32, 9, 5))}
    assert constants(convolution(**one, **strided))["PLAIN"] == 0
    assert constants(convolution())["ROWS_INNER"] == 1
    assert constants(product())["ROWS_INNER"] == 0
    last_channels = TensorDesc(INT32, (2, 32, 9, 10), (2880, 1, 320, 32))
    found = constants(convolution(output_tensor=last_channels))
    assert (found["ROWS_INNER"], found["VECTOR_Y"]) == (0, 1)
    assert constants(product(columns=90))["VECTOR_Y"] == 0
    assert constants(product(columns=92))["VECTOR_Y"] == 1


def test_geometry_of_a_convolution() -> None:
    plan = lowered(convolution(group_count=2, filter_tensor=TensorDesc(INT8, (32, 12, 3, 3))), force="naive")
    found = params(last(plan))
    assert (found["rows"], found["columns"], found["channels"], found["inner_groups"]) == ((180,), (16,), (12,), (2,))
    assert found["x_strides"] == (0, 12 * 90, 24 * 90, 90, 10, 1)
    assert found["w_strides"] == (0, 16 * 12 * 9, 12 * 9, 9, 3, 1)
    assert found["y_strides"] == (0, 16 * 90, 32 * 90, 90, 10, 1)


def test_every_pixel_of_a_broadcast_batch_is_packed() -> None:
    repeated = TensorDesc(UINT8, (2, 24, 9, 10), (0, 90, 10, 1))
    plan = lowered(convolution(input_tensor=repeated), MATRICES)
    first = plan.dispatches[0]
    assert isinstance(first, Dispatch) and params(first)["lines"] == (180,)


def test_without_the_devices_dot_products() -> None:
    plain = dataclasses.replace(GPU, features=GPU.features - {"integer_dot_product"})
    assert kernels(lowered(product(), GPU))[-1] == "integer_tiled"
    assert kernels(lowered(product(), plain))[-1] == "integer_tiled_plain"
    with pytest.raises(UnsupportedError, match="storage8"):
        lower(product(), Capabilities())


def test_positions_fit_31_bits() -> None:
    far = convolution(start_padding=(2**31 - 20, 1), dilations=(2**30 - 10, 1), end_padding=(11, 1))
    far = far.replace(output_tensor=TensorDesc(INT32, (2, 32, *far.inferred_output_sizes()[0][2:])))
    far.validate()
    with pytest.raises(UnsupportedError, match="padded input"):
        lower(far, GPU)


def test_inference_names_the_operator() -> None:
    with pytest.raises(InvalidArgumentError, match=r"CONVOLUTION_INTEGER\.Strides"):
        convolution(strides=(1,), output_tensor=None).inferred_output_sizes()


def test_a_packed_shape_has_one_pipeline() -> None:
    """The other shape has as many tiles or more, so that the tile is the same."""
    for rule in ("cooperative", "tiled", "naive"):
        kernel = last(lowered(product(rows=4096, columns=4096), MATRICES, rule)).kernel
        assert last(lowered(product(rows=5000, columns=4100, depth=96), MATRICES, rule)).kernel == kernel


def test_depthwise_runs() -> None:
    """Four outputs along W an invocation; neighbours have neighbouring runs, or channels where those lie last."""
    for strides, inner in ((None, 1), ((2160, 1, 240, 24), 0)):
        desc = convolution(
            filter_tensor=TensorDesc(INT8, (24, 1, 3, 3)),
            output_tensor=TensorDesc(INT32, (2, 24, 9, 10), strides),
            group_count=24,
        )
        made = last(lowered(desc, force="depthwise"))
        found = params(made)
        assert (found["row_runs"], found["runs"], found["channels_of_all"]) == ((3,), (54,), (24,))
        assert found["count"] == (54 * 24,)
        assert dict(made.kernel.constants)["ROWS_INNER"] == inner
    assert "depthwise" not in possible_rules(product(depth=1), GPU), "a matrix product has no runs"


def test_a_vectors_lanes() -> None:
    for depth, lanes in ((64, 2), (512, 16), (4096, 32), (1, 1)):
        made = last(lowered(product(rows=3, depth=depth), force="vector"))
        found = dict(made.kernel.constants)
        assert (found["ROWS"], found["LANES"]) == (3, lanes)
        assert made.grid == (-(-90 // (128 // lanes)), 1, 1)


@pytest.mark.parametrize(
    ("rows", "columns", "depth", "tile"),
    [
        (4096, 4096, 4096, (128, 128, 128)),
        (4096, 4096, 4096 + 64, (128, 128, 128)),
        (4096, 4096, 256, (128, 128, 128)),
        (4096, 4096, 320, (128, 128, 128)),  # 384 channels, a fifth more than 320
        (4096, 4096, 192, (128, 128, 64)),  # 256 would be a third more than 192
        (64, 64, 192, (64, 64, 64)),
        (64, 64, 320, (64, 64, 128)),
    ],
)
def test_a_tile_is_as_deep_as_fills_lines_up_by_a_quarter_at_most(
    rows: int, columns: int, depth: int, tile: tuple[int, int, int]
) -> None:
    found = dict(last(lowered(product(rows=rows, columns=columns, depth=depth), MATRICES, "cooperative")).kernel.constants)
    assert (found["TILE_M"], found["TILE_N"], found["TILE_K"]) == tile


@pytest.mark.parametrize(
    ("nbytes", "tile"),
    [
        (39_936, (128, 128, 128)),
        (39_935, (64, 128, 128)),
        (29_952, (64, 128, 128)),
        (29_951, (64, 64, 128)),
        (19_968, (64, 64, 128)),
        (19_967, (64, 64, 64)),
    ],
)
def test_what_a_tile_of_bytes_takes_of_shared_memory(nbytes: int, tile: tuple[int, int, int]) -> None:
    """Lines of all channels of a round, each with a word of padding and three numbers beside it."""
    caps = dataclasses.replace(MATRICES, shared_memory_bytes=nbytes)
    found = dict(last(lowered(product(rows=4096, columns=4096, depth=4096), caps, "cooperative")).kernel.constants)
    assert (found["TILE_M"], found["TILE_N"], found["TILE_K"]) == tile


def test_the_sums_of_a_tile_of_bytes_take_no_more_than_its_lines() -> None:
    for tile in _COOPERATIVE_TILES:
        sums = tile.subgroups * 16 * (4 * tile.block_columns + 16)
        assert sums <= tile.shared_bytes - 3 * 4 * (tile.rows + tile.columns), tile


def test_a_block_of_channels_of_the_naive_kernel_is_a_round_of_a_loop() -> None:
    """A CPU's driver ends loops after 65,535 rounds: channels, a round for each 1024 of them, and two more."""
    cpu = dataclasses.replace(GPU, is_cpu=True)
    assert kernels(lowered(product(depth=65_469), cpu, "naive")) == ["integer_naive"]
    with pytest.raises(UnsupportedError, match="65535 rounds"):
        lowered(product(depth=65_470), cpu, "naive")
