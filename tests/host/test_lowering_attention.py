"""Plans of attention, without a device."""

from __future__ import annotations

import dataclasses
from typing import Any

import choices
import pytest

import dmlvk
from dmlvk import MultiheadAttentionMaskType as MaskType
from dmlvk import TensorDataType, TensorDesc
from dmlvk.devices.capabilities import SUBGROUPS, Capabilities, CooperativeMatrix
from dmlvk.devices.model import GENERIC_GPU
from dmlvk.kernels.attention.matrix_tiles import ATTENTION_SHAPES, CooperativeShape
from dmlvk.kernels.common.plan import Dispatch, Source
from dmlvk.kernels.common.shapes import power_of_two
from dmlvk.kernels.lowering import explain, lower, possible_rules
from dmlvk.spec.errors import InvalidArgumentError

FLOAT32, FLOAT16, INT32 = TensorDataType.FLOAT32, TensorDataType.FLOAT16, TensorDataType.INT32
LEAST = Capabilities(features=SUBGROUPS | {"storage16"})
PLAIN = Capabilities(
    features=SUBGROUPS | {"storage16", "float16"},
    shared_memory_bytes=49152,
    workgroup_invocations=1024,
    workgroup_counts=(2**31 - 1, 65535, 65535),
    storage_buffer_bytes=2**32 - 1,
)
_COOPERATIVE = {"cooperative_matrix", "vulkan_memory_model", "int16", "subgroup_size_control", "full_subgroups"}


def cooperative(subgroup: int, matrix: int, shared_memory_bytes: int, *features: str) -> Capabilities:
    return Capabilities(
        features=PLAIN.features | _COOPERATIVE | set(features),
        subgroup_size=subgroup,
        minimum_subgroup_size=subgroup,
        maximum_subgroup_size=subgroup,
        shared_memory_bytes=shared_memory_bytes,
        workgroup_invocations=1024,
        workgroup_counts=PLAIN.workgroup_counts,
        storage_buffer_bytes=PLAIN.storage_buffer_bytes,
        cooperative_matrices=(CooperativeMatrix(matrix, matrix, matrix, "float16", "float32"),),
    )


DEVICES = {
    "least": LEAST,
    "plain": PLAIN,
    "subgroups of 8": cooperative(8, 8, 32768),
    "subgroups of 32": cooperative(32, 16, 49152),
    "subgroups of 64": cooperative(64, 16, 65536),
    "reductions": cooperative(32, 16, 49152, "matrix_reductions"),
    "fragments": dataclasses.replace(
        cooperative(32, 16, 49152, "matrix_reductions"),
        matrix_fragments=True,
        model=dataclasses.replace(GENERIC_GPU, processors=40),
    ),
    "fragments, but no more": dataclasses.replace(cooperative(32, 16, 49152), matrix_fragments=True),
}
MANY: dict[str, Any] = {"heads": (64, 16), "queries": 2048, "keys": 2048}
WIDE = MANY | {"size": 128}
WITHOUT_TILES = {
    "no subgroups": dataclasses.replace(PLAIN, features=PLAIN.features - SUBGROUPS),
    "a processor": dataclasses.replace(PLAIN, is_cpu=True),
}


def attention(
    data_type: TensorDataType = FLOAT16,
    *,
    batch: int = 1,
    heads: tuple[int, int] = (8, 8),
    queries: int = 128,
    keys: int = 128,
    size: int = 64,
    scale: float = 0.125,
    relative: bool = False,
    **fields: Any,
) -> dmlvk.MultiheadAttention1:
    bias = TensorDesc(data_type, (batch, heads[0], queries, keys)) if relative else None
    return dmlvk.MultiheadAttention1(
        query_tensor=TensorDesc(data_type, (batch, queries, heads[0] * size)),
        key_tensor=TensorDesc(data_type, (batch, keys, heads[1] * size)),
        value_tensor=TensorDesc(data_type, (batch, keys, heads[1] * size)),
        output_tensor=TensorDesc(data_type, (batch, queries, heads[0] * size)),
        relative_position_bias_tensor=bias,
        scale=scale,
        query_head_count=heads[0],
        key_value_head_count=heads[1],
        **fields,
    )


def chosen(desc: dmlvk.MultiheadAttention1, caps: Capabilities) -> str:
    return next(rule.name for rule, holds in explain(desc, caps) if holds)


@pytest.mark.parametrize(
    ("device", "fields", "rule"),
    [
        ("reductions", {}, "reductions"),
        ("subgroups of 32", {}, "cooperative"),
        ("subgroups of 64", {}, "cooperative"),
        ("plain", {}, "tiles"),
        ("least", {}, "tiles"),
        ("reductions", {"data_type": FLOAT32}, "tiles"),
        ("no subgroups", {"data_type": FLOAT32}, "products"),
        ("no subgroups", {"data_type": FLOAT32, "heads": (8, 2)}, "products"),
        ("no subgroups", {"data_type": FLOAT32, "heads": (8, 2), "batch": 2}, "naive"),
        ("no subgroups", {}, "naive"),
        ("a processor", {"data_type": FLOAT32}, "products"),
        ("a processor", {}, "tiles"),
        ("reductions", {"size": 20}, "tiles"),
        ("reductions", {"queries": 1, "keys": 4096}, "reductions split"),
        ("subgroups of 64", {"queries": 1, "keys": 4096}, "cooperative split"),
        ("plain", {"queries": 1, "keys": 4096, "data_type": FLOAT32}, "split"),
        ("reductions", {"bias_tensor": TensorDesc(FLOAT16, (3 * 512,))}, "tiles"),
        ("fragments", MANY, "fragments"),
        ("fragments", WIDE, "fragments"),
        ("fragments", WIDE | {"size": 256}, "fragments"),
        ("fragments", MANY | {"size": 272}, "products"),
        ("fragments", MANY | {"heads": (1, 1), "queries": 256}, "fragments split"),
        ("fragments", WIDE | {"relative": True}, "fragments"),
        ("fragments", WIDE | {"scale": 1e-20}, "fragments"),
        ("fragments, but no more", {}, "cooperative"),
        ("fragments", MANY | {"data_type": FLOAT32}, "blocks"),
        ("fragments", MANY | {"data_type": FLOAT32, "size": 128}, "blocks"),
        ("fragments", MANY | {"data_type": FLOAT32, "size": 136}, "products"),
        ("fragments", MANY | {"data_type": FLOAT32, "size": 136, "queries": 63}, "tiles"),
        ("fragments", MANY | {"size": 272, "relative": True}, "tiles"),
        ("plain", MANY | {"size": 272}, "tiles"),
        ("plain", MANY | {"data_type": FLOAT32, "size": 136}, "products"),
        ("reductions", MANY, "reductions"),
    ],
)
def test_the_rule(device: str, fields: dict[str, Any], rule: str) -> None:
    assert chosen(attention(**fields), {**DEVICES, **WITHOUT_TILES}[device]) == rule


def test_rows_that_see_no_later_key_take_matrices_too() -> None:
    desc = choices.cached_attention(8192, 64, FLOAT16, 256, groups=8)
    assert choices.rule_of(desc, DEVICES["fragments"]) == "fragments"


def test_where_the_only_entry_would_be_followed_says_nothing() -> None:
    """PyTorch's own module of attention puts rows before the batch, and says 1 for it."""
    rows = TensorDesc(FLOAT16, (1, 197, 768), (1, 2304, 1))
    desc = attention(queries=197, keys=197, heads=(12, 12), size=64, batch=1)
    desc = desc.replace(query_tensor=rows, key_tensor=rows, value_tensor=rows)
    assert choices.rule_of(desc, DEVICES["reductions"]) == "reductions"


SHAPES: list[dict[str, Any]] = [
    {},
    {"queries": 1, "keys": 4096, "heads": (8, 2)},
    {"queries": 4096, "keys": 4096, "heads": (32, 32), "size": 128},
    {"queries": 4096, "keys": 4096, "heads": (32, 8), "size": 128},
    {"queries": 77, "keys": 77, "size": 80},
    {"queries": 9, "keys": 9, "size": 300},
    {"queries": 2048, "keys": 2048, "size": 256},
    {"queries": 2048, "keys": 2048, "size": 160, "relative": True},
    {"queries": 512, "keys": 512, "size": 128, "relative": True},
]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("data_type", [FLOAT32, FLOAT16])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_workgroups_fit_the_device(device: str, data_type: TensorDataType, shape: dict[str, Any]) -> None:
    caps, desc = DEVICES[device], attention(data_type, **shape)
    for rule in possible_rules(desc, caps):
        for dispatch in lower(desc, caps, force=rule).dispatches:
            assert isinstance(dispatch, Dispatch)
            constants = dict(dispatch.kernel.constants)
            assert constants["LOCAL_SIZE_X"] <= caps.workgroup_invocations
            assert shared_memory_bytes(dispatch.kernel.kernel, constants) <= caps.shared_memory_bytes


def shared_memory_bytes(kernel: str, constants: dict[str, int]) -> int:
    """What the shader declares, counted anew."""
    if kernel == "attention_tiles":
        rows, keys, depth = constants["TILE_ROWS"], constants["TILE_KEYS"], constants["DEPTH"]
        lines = keys if constants["HEAD"] else keys + rows
        stage = max(lines * (depth // 4 + 1), depth * constants["TILE_COLUMNS"] // 4)
        queries = rows * (constants["HEAD"] // 4 + 1) if constants["HEAD"] else 1
        return 16 * (2 * stage + rows * (keys // 4 + 1) + queries)
    if kernel == "attention_blocks":
        rows, keys = constants["TILE_ROWS"] // 4 + 1, constants["TILE_KEYS"] // 4 + 1
        stage = constants["DEPTH"] * max(rows + keys, constants["TILE_COLUMNS"] // 4)
        return 16 * (2 * stage + constants["TILE_KEYS"] * rows)
    if kernel in ("attention_cooperative", "attention_reductions", "attention_fragments"):
        rows, keys = constants["TILE_ROWS"], constants["TILE_KEYS"]
        tiles = constants["SETS"] * keys * (constants["HEAD"] // 8 + 1 + constants["VALUE"] // 8 + 1)
        bias = rows * (keys // 8 + 1) if constants["HAS_RELATIVE"] else 0
        left = (constants["HEAD"] - constants["HELD"]) // 8
        queries = rows * (left + 1) if left else 0
        if kernel != "attention_cooperative":
            return 16 * (max(tiles, rows * (min(keys, 32) // 4 + 1)) + bias + queries)
        return 16 * (tiles + rows * (keys // 4 + 1) + bias + queries) + 4 * rows
    return 0


@pytest.mark.parametrize("least", [1, 4, 8, 16, 32, 64])
@pytest.mark.parametrize("is_cpu", [False, True])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_tiles_are_shared_out_among_whole_subgroups(least: int, is_cpu: bool, shape: dict[str, Any]) -> None:
    """Whoever has the same rows is in one subgroup, however small, and each has whole rows, keys and quads of columns."""
    caps = dataclasses.replace(PLAIN, minimum_subgroup_size=least, is_cpu=is_cpu)
    desc = attention(FLOAT32, **shape)
    for rule in {"tiles", "split"} & set(possible_rules(desc, caps)):
        constants = dict(lower(desc, caps, force=rule).dispatches[0].kernel.constants)  # type: ignore[union-attr]
        across = constants["ACROSS"]
        assert across * constants["STEP"] <= least
        assert not across & (across - 1)
        assert not constants["LOCAL_SIZE_X"] % (across * constants["STEP"])
        down, left = divmod(constants["LOCAL_SIZE_X"], across)
        assert not left
        assert not constants["TILE_ROWS"] % down
        assert not constants["TILE_KEYS"] % across
        assert not constants["TILE_KEYS"] % constants["DEPTH"]
        assert not constants["TILE_COLUMNS"] % (4 * across)
        assert constants["HEAD"] % constants["DEPTH"] == 0
        assert constants["HEAD"] == 0 or constants["HEAD"] >= shape.get("size", 64)


@pytest.mark.parametrize(
    ("heads", "queries", "size", "tile"),
    [
        (96, 512, 64, (64, 64, 16, 64)),
        (96, 197, 64, (40, 80, 16, 64)),
        (96, 77, 64, (40, 80, 16, 64)),
        (16, 577, 64, (40, 64, 16, 64)),
        (12, 1214, 64, (56, 64, 16, 64)),
        (192, 128, 64, (32, 64, 16, 64)),
        (12, 197, 64, (24, 64, 16, 64)),
        (12, 128, 64, (16, 64, 16, 64)),
        (192, 49, 32, (32, 64, 16, 32)),
        (32, 2048, 128, (64, 64, 8, 0)),
        (96, 197, 128, (40, 64, 16, 128)),
        (96, 77, 128, (40, 80, 8, 0)),
    ],
)
def test_tiles_keep_processors_busy(heads: int, queries: int, size: int, tile: tuple[int, ...]) -> None:
    """Rows, keys, depth and the queries that stay of what was the fastest tile of an H200, or within 3 % of it."""
    desc = attention(FLOAT32, heads=(heads, heads), queries=queries, keys=queries, size=size)
    constants = dict(lower(desc, choices.DEVICES["h200"], force="tiles").dispatches[0].kernel.constants)  # type: ignore[union-attr]
    assert tuple(constants[name] for name in ("TILE_ROWS", "TILE_KEYS", "DEPTH", "HEAD")) == tile


@pytest.mark.parametrize(
    ("shape", "is_shared", "tile"),
    [
        ({"batch": 8, "heads": (12, 12), "queries": 512, "keys": 512}, False, (64, 32)),
        ({"batch": 8, "heads": (12, 12), "queries": 512, "keys": 512, "size": 96}, False, (128, 64)),
        ({"batch": 4, "heads": (16, 16), "queries": 1024, "keys": 1024}, True, (128, 32)),
        ({"batch": 8, "heads": (16, 16), "queries": 512, "keys": 512, "size": 96}, True, (128, 32)),
        ({"batch": 2, "heads": (16, 16), "queries": 1024, "keys": 1024, "size": 128}, False, (128, 32)),
    ],
)
def test_tiles_of_matrices_by_the_place_of_a_bias(shape: dict[str, Any], is_shared: bool, tile: tuple[int, int]) -> None:
    """Rows and keys of what was the fastest tile of an H200: with a bias of each head of each entry, which comes from
    memory, and with one of all, which a cache holds."""
    desc = attention(relative=True, **shape)
    if is_shared:
        bias = desc.tensor("relative_position_bias_tensor")
        desc = desc.replace(
            relative_position_bias_tensor=TensorDesc(FLOAT16, bias.sizes, (0, 0, *bias.effective_strides[2:]))
        )
    (dispatch,) = lower(desc, choices.DEVICES["h200"]).dispatches
    assert isinstance(dispatch, Dispatch)
    constants = dict(dispatch.kernel.constants)
    assert (constants["TILE_ROWS"], constants["TILE_KEYS"]) == tile


@pytest.mark.parametrize(("rows", "tile"), [(1, 8), (8, 8), (16, 16), (48, 48), (64, 64)])
def test_tiles_of_parts_are_filled(rows: int, tile: int) -> None:
    """Where the keys are shared out, there is work for all processors whatever the rows of a tile."""
    desc = attention(FLOAT32, queries=rows, keys=4096)
    constants = dict(lower(desc, choices.DEVICES["h200"], force="split").dispatches[0].kernel.constants)  # type: ignore[union-attr]
    assert constants["TILE_ROWS"] == tile


@pytest.mark.parametrize(
    ("heads", "queries", "keys", "size", "rule"),
    [
        (64, 2048, 2048, 64, "blocks"),
        (16, 4096, 4096, 40, "blocks"),
        (20, 1500, 1500, 64, "blocks"),
        (32, 512, 512, 128, "blocks"),
        (128, 1024, 1024, 80, "blocks"),
        (96, 512, 512, 64, "tiles"),
        (20, 4096, 4096, 64, "tiles"),
        (40, 1024, 1024, 64, "tiles"),
        (96, 197, 197, 128, "tiles"),
        (32, 2048, 2048, 136, "products"),
    ],
)
def test_blocks_are_chosen_where_they_were_faster(heads: int, queries: int, keys: int, size: int, rule: str) -> None:
    desc = attention(FLOAT32, heads=(heads, heads), queries=queries, keys=keys, size=size)
    assert chosen(desc, choices.DEVICES["h200"]) == rule
    assert chosen(desc, dataclasses.replace(choices.DEVICES["h200"], is_cpu=True)) != "blocks"


@pytest.mark.parametrize("least", [4, 8, 16, 32, 64])
@pytest.mark.parametrize("shape", [{}, {"size": 33}, {"size": 128}, {"size": 24}])
def test_blocks_cover_a_tile(least: int, shape: dict[str, int]) -> None:
    """Whoever has the same rows is in one subgroup, and each has whole rows, keys and quads of columns."""
    caps = dataclasses.replace(choices.DEVICES["h200"], minimum_subgroup_size=least)
    desc = attention(FLOAT32, **shape)
    if "blocks" not in possible_rules(desc, caps):
        assert shape.get("size", 64) > (16 if least < 16 else 64 if least < 32 else 128)
        return
    (dispatch,) = lower(desc, caps, force="blocks").dispatches
    assert isinstance(dispatch, Dispatch)
    constants = dict(dispatch.kernel.constants)
    assert 64 * constants["LOCAL_SIZE_X"] == constants["TILE_ROWS"] * constants["TILE_KEYS"]
    assert constants["TILE_KEYS"] // 4 <= least
    assert not constants["TILE_KEYS"] % constants["DEPTH"]
    assert not constants["TILE_COLUMNS"] % (constants["TILE_KEYS"] // 2)
    assert constants["TILE_COLUMNS"] >= shape.get("size", 64)
    assert constants["WHOLE"] == (shape.get("size", 64) in (64, 128))


@pytest.mark.parametrize("device", ["subgroups of 8", "subgroups of 32", "subgroups of 64", "reductions", "fragments"])
def test_matrices_tile_the_workgroup(device: str) -> None:
    caps = DEVICES[device]
    rules = set(possible_rules(attention(size=80), caps)) & set(ATTENTION_SHAPES)
    assert rules
    for rule in rules:
        (dispatch,) = lower(attention(size=80), caps, force=rule).dispatches
        assert isinstance(dispatch, Dispatch)
        constants = dict(dispatch.kernel.constants)
        subgroups = constants["LOCAL_SIZE_X"] // constants["SUBGROUP"]
        assert dispatch.kernel.subgroup_size == constants["SUBGROUP"] == caps.subgroup_size
        assert constants["TILE_ROWS"] == subgroups * constants["SUB_ROWS"]
        assert constants["SUB_ROWS"] % constants["MAT_M"] == 0
        assert constants["SUBGROUP"] % constants["SUB_ROWS"] == 0
        for name, side in (
            ("TILE_KEYS", "MAT_N"),
            ("TILE_KEYS", "MAT_K"),
            ("HEAD", "MAT_K"),
            ("VALUE", "MAT_N"),
            ("HELD", "MAT_K"),
        ):
            assert constants[name] % constants[side] == 0
        assert constants["TILE_KEYS"] // constants["MAT_N"] % constants["TOGETHER"] == 0
        # Each of a row's invocations has whole words of weights.
        assert constants["TILE_KEYS"] % (8 * constants["SUBGROUP"] // constants["SUB_ROWS"]) == 0


@pytest.mark.parametrize(
    ("device", "shared", "size", "many", "shape"),
    [
        ("reductions", 48, 64, True, (4, 2, 64)),
        ("reductions", 48, 80, True, (4, 2, 32)),
        ("reductions", 48, 128, True, (8, 1, 64)),
        ("reductions", 48, 128, False, (4, 1, 64)),
        ("reductions", 24, 128, True, (4, 1, 32)),
        ("fragments", 48, 160, True, (8, 1, 64)),
        ("fragments", 48, 160, False, (4, 1, 32)),
        ("fragments", 48, 256, True, (8, 1, 16)),
        ("fragments", 48, 256, False, (4, 1, 16)),
        ("subgroups of 32", 48, 64, True, (4, 2, 32)),
        ("subgroups of 8", 48, 128, True, (4, 1, 64)),
        ("subgroups of 8", 48, 128, False, (2, 1, 64)),
        ("subgroups of 8", 32, 128, True, (4, 1, 32)),
        ("subgroups of 8", 16, 96, True, (2, 1, 32)),
    ],
)
def test_the_shape_of_matrices(device: str, shared: int, size: int, many: bool, shape: tuple[int, int, int]) -> None:
    """Subgroups, rows of matrices of each, and keys: of 64 heads of 1024 rows, or one of 16."""
    caps = dataclasses.replace(DEVICES[device], shared_memory_bytes=shared << 10)
    desc = attention(heads=(64, 64) if many else (1, 1), queries=1024 if many else 16, size=size)
    rule = device if device in ATTENTION_SHAPES else "cooperative"
    constants = dict(lower(desc, caps, force=rule).dispatches[0].kernel.constants)
    subgroups = constants["LOCAL_SIZE_X"] // caps.subgroup_size
    blocks = constants["SUB_ROWS"] // constants["MAT_M"]
    assert (subgroups, blocks, constants["TILE_KEYS"]) == shape


@pytest.mark.parametrize(
    ("heads", "queries", "keys", "size", "shape"),
    [
        (8, 1500, 1500, 64, (4, 2, 64)),
        (12, 197, 197, 64, (4, 1, 32)),
        (96, 197, 197, 64, (4, 1, 32)),
        (12, 512, 512, 64, (4, 1, 64)),
        (12, 77, 77, 64, (4, 1, 32)),
        (192, 49, 49, 32, (4, 1, 32)),
        (384, 64, 64, 32, (4, 1, 32)),
        (16, 1024, 77, 80, (4, 1, 32)),
        (64, 2048, 2048, 64, (4, 2, 64)),
        (32, 2048, 2048, 80, (4, 2, 32)),
        (16, 4096, 4096, 40, (4, 2, 64)),
        (16, 4096, 77, 40, (4, 2, 32)),
        (32, 2048, 2048, 96, (4, 2, 32)),
        (16, 512, 512, 96, (4, 1, 64)),
        (16, 1024, 1024, 128, (8, 1, 64)),
        (16, 256, 256, 160, (4, 1, 32)),
        (128, 256, 256, 160, (8, 1, 64)),
    ],
)
def test_the_shape_of_matrices_is_what_an_h200_is_done_with_first(
    heads: int, queries: int, keys: int, size: int, shape: tuple[int, int, int]
) -> None:
    """Or within 2 % of it."""
    desc = attention(heads=(heads, heads), queries=queries, keys=keys, size=size)
    (launch,) = lower(desc, choices.DEVICES["h200"], force="fragments").dispatches
    assert isinstance(launch, Dispatch)
    constants = dict(launch.kernel.constants)
    found = (constants["LOCAL_SIZE_X"] // 32, constants["SUB_ROWS"] // 16, constants["TILE_KEYS"])
    assert found == shape


@pytest.mark.parametrize(("rows", "size", "shape"), [(1024, 128, (8, 1, 64)), (4096, 64, (4, 2, 32))])
def test_the_shape_where_no_query_sees_a_later_key(rows: int, size: int, shape: tuple[int, int, int]) -> None:
    """Tiles with most keys begin, so that what counts is what all take together, and the longest of them."""
    desc = choices.cached_attention(rows, size, FLOAT16, rows, groups=4)
    launch = lower(desc, choices.DEVICES["h200"], force="fragments").dispatches[-1]
    assert isinstance(launch, Dispatch)
    constants = dict(launch.kernel.constants)
    assert (constants["LOCAL_SIZE_X"] // 32, constants["SUB_ROWS"] // 16, constants["TILE_KEYS"]) == shape


@pytest.mark.parametrize(
    ("heads", "queries", "keys", "size", "parts"),
    [
        ((32, 32), 16, 2048, 128, 8),
        ((12, 12), 128, 2048, 64, 4),
        ((8, 8), 256, 1024, 128, 4),
        ((16, 16), 512, 4096, 64, 2),
        ((12, 12), 64, 512, 64, 8),
        ((12, 12), 512, 512, 64, 1),
        ((8, 8), 1500, 1500, 64, 1),
        ((256, 64), 1, 8192, 128, 4),
        ((32, 8), 1, 4096, 128, 32),
    ],
)
def test_keys_are_shared_out_where_an_h200_is_done_sooner(
    heads: tuple[int, int], queries: int, keys: int, size: int, parts: int
) -> None:
    desc = attention(heads=heads, queries=queries, keys=keys, size=size)
    launch, *merges = lower(desc, choices.DEVICES["h200"]).dispatches
    assert isinstance(launch, Dispatch) and launch.kernel.kernel == "attention_fragments"
    assert launch.grid[2] == parts and len(merges) == (parts > 1)
    for merge in merges:
        assert isinstance(merge, Dispatch) and dict(merge.kernel.constants)["PARTS_TOGETHER"] == min(power_of_two(parts), 16)


@pytest.mark.parametrize(
    ("size", "relative", "rule", "sets"),
    [
        (64, False, "fragments", 2),
        (64, True, "fragments", 2),
        (96, False, "reductions", 1),
        (128, True, "fragments", 1),
        (64, False, "cooperative", 2),
        (128, False, "cooperative", 1),
    ],
)
def test_two_tiles_are_in_shared_memory_where_there_is_room(size: int, relative: bool, rule: str, sets: int) -> None:
    desc = attention(heads=(12, 12), queries=512, keys=512, size=size, relative=relative)
    (launch,) = lower(desc, choices.DEVICES["h200"], force=rule).dispatches
    assert isinstance(launch, Dispatch) and dict(launch.kernel.constants)["SETS"] == sets


@pytest.mark.parametrize(("heads", "size", "rule"), [(8, 192, "products"), (16, 256, "products"), (17, 256, "fragments")])
def test_wide_heads_in_few_tiles_are_products(heads: int, size: int, rule: str) -> None:
    assert chosen(attention(heads=(heads, heads), queries=256, keys=256, size=size), choices.DEVICES["h200"]) == rule


@pytest.mark.parametrize("keys", [16, 32])
def test_parts_are_possible_with_tiles_of_few_keys(monkeypatch: pytest.MonkeyPatch, keys: int) -> None:
    """Peaks and totals leave one after the other through a place as wide as one matrix."""
    monkeypatch.setitem(ATTENTION_SHAPES, "reductions", (CooperativeShape(8, 1, keys),))
    found = set(possible_rules(attention(keys=4096), DEVICES["reductions"]))
    assert {rule for rule in found if rule.startswith("reductions")} == {"reductions", "reductions split"}


def test_wide_heads_have_no_matrices() -> None:
    for size, fits in ((128, (True, True)), (136, (True, False)), (256, (True, False)), (264, (False, False))):
        found = possible_rules(attention(size=size), DEVICES["reductions"])
        assert ("reductions" in found, "cooperative" in found) == fits


@pytest.mark.parametrize("scale", [-1e38, 3e38, float("inf"), float("nan")])
def test_scores_that_may_be_infinite_in_powers_of_2_have_no_matrices(scale: float) -> None:
    found = set(possible_rules(attention().replace(scale=scale), DEVICES["reductions"]))
    assert found == {"products", "split", "blocks", "tiles", "naive"}


def test_parts_are_of_more_than_a_tile_of_keys() -> None:
    for keys in (64, 65):
        assert ("split" in possible_rules(attention(keys=keys), PLAIN)) == (keys > 64)


def test_matrices_are_left_alone_where_they_do_not_fit() -> None:
    without = Capabilities(features=PLAIN.features | _COOPERATIVE, shared_memory_bytes=49152, workgroup_invocations=1024)
    small = cooperative(32, 16, 16384)
    for caps in (without, small):
        found = set(possible_rules(attention(size=128), caps)) - {"blocks", "products"}
        assert found == {"split", "tiles", "naive"}
        assert ("products" in possible_rules(attention(size=128), caps)) == bool(caps.cooperative_matrices)


def test_products_of_many_scores_come_in_blocks() -> None:
    """One head of 16384 rows has 2^28 scores: 1 GiB in FLOAT32, of which a quarter is there at a time."""
    caps = choices.DEVICES["h200"]
    for data_type, launches in ((FLOAT16, 4), (FLOAT32, 3)):
        desc = attention(data_type, heads=(1, 1), queries=16384, keys=16384, size=512)
        plan = lower(desc, caps, force="products")
        assert len(plan.dispatches) >= 4 * launches
        assert plan.temporary_bytes < 3 * 2**28
    long = attention(heads=(1, 1), queries=128, keys=2**15 + 1, size=512)
    assert "products" not in possible_rules(long, caps)  # whose weights are too small for float16
    assert "products" in possible_rules(
        long.replace(**dict.fromkeys(("key_tensor", "value_tensor"), TensorDesc(FLOAT16, (1, 2**15, 512)))), caps
    )


def test_a_head_of_keys_serves_all_its_queries_at_once() -> None:
    """The query heads that share it are rows of the same tile."""
    desc = attention(queries=1, keys=4096, heads=(32, 4))
    first, _ = lower(desc, PLAIN).dispatches
    assert isinstance(first, Dispatch)
    assert first.grid[:2] == (1, 4)


def test_temporary_memory_of_parts_is_small() -> None:
    desc = attention(queries=1, keys=65536, heads=(32, 8), size=128)
    plan = lower(desc, PLAIN)
    assert len(plan.dispatches) == 2
    assert 0 < plan.temporary_bytes <= max(2**20, desc.tensor("key_tensor").total_tensor_size_in_bytes // 30)


def test_keys_are_read_where_they_are() -> None:
    """Without a past nothing is copied; with one, keys come from the present tensors, or from temporary memory."""
    past = {name: TensorDesc(FLOAT16, (1, 8, 32, 64)) for name in ("past_key_tensor", "past_value_tensor")}
    present = {
        name: TensorDesc(FLOAT16, (1, 8, 160, 64)) for name in ("output_present_key_tensor", "output_present_value_tensor")
    }
    assert len(lower(attention(), PLAIN).dispatches) == 1
    joined = lower(attention(**past), PLAIN)
    assert len(joined.dispatches) == 3
    assert joined.temporary_bytes >= 2 * 8 * 160 * 64 * 2
    kept = lower(attention(**past, **present), PLAIN)
    assert kept.temporary_bytes == 0
    last = kept.dispatches[-1]
    assert [where.source for where in last.bindings[1:3]] == [Source.OUTPUT, Source.OUTPUT]


def test_rows_of_no_sequence_are_filled() -> None:
    mask = {"mask_tensor": TensorDesc(INT32, (5,)), "mask_type": MaskType.KEY_QUERY_SEQUENCE_LENGTH_START_END}
    fill, _ = lower(attention(**mask), PLAIN, force="tiles").dispatches
    assert isinstance(fill, Dispatch)
    assert fill.kernel.kernel == "fill_value_constant"
    assert len(lower(attention(**mask), PLAIN, force="naive").dispatches) == 1


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"key_tensor": None}, "must each come from exactly one tensor"),
        ({"stacked_query_key_tensor": TensorDesc(FLOAT16, (1, 128, 8, 2, 64))}, "must each come from exactly one tensor"),
        ({"past_key_tensor": TensorDesc(FLOAT16, (1, 8, 3, 64))}, "must be given together"),
        ({"key_value_head_count": 3}, "else divide them; got 3"),
        ({"mask_tensor": TensorDesc(INT32, (1, 1))}, "unless mask_type is NONE"),
        ({"mask_tensor": TensorDesc(INT32, (2, 2)), "mask_type": MaskType.BOOLEAN}, "the sizes of its type; expected"),
        ({"past_sequence_lengths_tensor": TensorDesc(INT32, (1,))}, "both present tensors"),
        ({"query_tensor": TensorDesc(FLOAT16, (2, 1, 128, 512))}, r"sizes that queries.*; expected"),
    ],
)
def test_descs_that_make_no_sense(fields: dict[str, Any], message: str) -> None:
    desc = attention().replace(**fields)
    with pytest.raises(InvalidArgumentError, match=message):
        desc.validate()


def test_leading_ones_are_allowed() -> None:
    wide = TensorDesc(FLOAT16, (1, 1, 1, 128, 512))
    attention().replace(query_tensor=wide, output_tensor=wide).validate()
