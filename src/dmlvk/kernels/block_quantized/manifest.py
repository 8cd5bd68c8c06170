"""The kernels of weights in blocks."""

from __future__ import annotations

from dmlvk.kernels.common.kernel import KernelSpec
from dmlvk.kernels.common.terms import COOPERATIVE_EXTENSIONS, COOPERATIVE_TILE, FLOATS, PRODUCT_TILE, SUBGROUP_SUMS
from dmlvk.kernels.matmul.manifest import GEMM_BUFFERS, GEMM_PARAMS, GEMM_SHARED, SPLIT_PARAMS
from dmlvk.kernels.root_mean_square.manifest import AddendType
from dmlvk.spec.block_formats import CodeOrder, OffsetKind, ScaleKind
from dmlvk.spec.gate import Gate

CHUNK = 32
"""Codes of a column that are loaded at once."""

_PLANES = (
    *("uint chunks", "uint blocks", "uint groups"),
    *("uint high_start", "uint scale_start", "uint offset_start", "uint factor_start"),
)
"""The parameters of packed weights; see ``glsl/include/block_codes.glsl``."""
_FORMAT = (("BITS", 4), ("BLOCK", 32), ("GROUP", 0), ("SCALE", 0), ("OFFSET", 0))
_SHARED: tuple[tuple[str, int | type[CodeOrder | ScaleKind | OffsetKind]], ...] = (
    ("CHUNK", CHUNK),
    ("SCALE", ScaleKind),
    ("OFFSET", OffsetKind),
)

_DOT_CONSTANTS = (
    ("LOCAL_SIZE_X", 128),
    *_FORMAT,
    ("ACTIVATION", 0),
    ("HAS_C", 1),
    ("ADDEND", 0),
    ("GATE", 0),
    ("LANES", 32),
    ("LANES_NEAR", 32),
    ("STAGED", 1),
    ("WEIGHTS_FIRST", 1),
    ("VECTOR_Y", 1),
)
_DOT_SHARED = (*_SHARED, *GEMM_SHARED, ("GATE", Gate))

ROWS: tuple[KernelSpec, ...] = (
    KernelSpec(
        "block_pack",
        "block_pack.comp",
        buffers=("codes", "scales", "zero_points", "packed:w"),
        params=("uint columns", "uint depth", "uint row_bytes", "uint point_bytes", *_PLANES),
        constants=(
            ("LOCAL_SIZE_X", 128),
            *_FORMAT,
            *(("GROUP_BYTES", 0), ("ORDER", 0), ("CODES", 0), ("HIGH", 0), ("SCALES", 0), ("FACTORS", 0)),
            *(("SIGNED", 0), ("APART", 0)),
        ),
        shared=(*_SHARED, ("ORDER", CodeOrder)),
    ),
    KernelSpec(
        "block_gather",
        "block_gather.comp",
        buffers=("b", "indices", "y:w"),
        params=(
            *("uint count", "uint columns", "uint first", "uint rows", "uint depth"),
            *("uint index_stride", "uint y_strides[2]", *_PLANES),
        ),
        constants=(("LOCAL_SIZE_X", 128), *_FORMAT, ("INDEX_WORDS", 1), ("INDEX_SIGNED", 1)),
        variants=(("T", FLOATS),),
        shared=_SHARED,
    ),
    KernelSpec(
        "block_unpack",
        "block_unpack.comp",
        buffers=("b", "y:w"),
        params=("uint columns", "uint depth", *_PLANES),
        constants=(("LOCAL_SIZE_X", 128), *_FORMAT),
        variants=(("T", FLOATS),),
        shared=_SHARED,
    ),
    KernelSpec(
        "block_vector",
        "block_vector.comp",
        buffers=GEMM_BUFFERS,
        params=(*GEMM_PARAMS, *_PLANES),
        constants=(
            ("LOCAL_SIZE_X", 128),
            *_FORMAT,
            *(
                ("ACTIVATION", 0),
                ("HAS_C", 1),
                ("ADDEND", 0),
                ("GATE", 0),
                ("ROWS", 1),
                ("LANES", 8),
                ("LANES_NEAR", 8),
                ("UNROLL", 2),
                ("STAGED", 0),
                ("VECTOR_A", 1),
                ("VECTOR_Y", 1),
            ),
        ),
        variants=(("T", FLOATS),),
        extensions=SUBGROUP_SUMS,
        shared=(*_SHARED, *GEMM_SHARED, ("GATE", Gate)),
    ),
    KernelSpec(
        "block_dot",
        "block_dot.comp",
        buffers=GEMM_BUFFERS,
        params=(*GEMM_PARAMS, *_PLANES),
        constants=_DOT_CONSTANTS,
        variants=(("T", FLOATS), ("DOT", ("1",))),
        extensions=(*SUBGROUP_SUMS, "GL_EXT_integer_dot_product"),
        shared=_DOT_SHARED,
    ),
    KernelSpec(
        "block_dot_normalized",
        "block_dot.comp",
        buffers=(*GEMM_BUFFERS, "norm_addend", "norm_scale", "sum:w"),  # see glsl/include/normalized_row.glsl
        params=(*GEMM_PARAMS, *_PLANES, "float epsilon", "uint zero"),
        constants=(*_DOT_CONSTANTS, ("NORM_ADDEND_TYPE", 0), ("HAS_SUM", 0)),
        variants=(("T U", tuple(f"{t} {u}" for t in FLOATS for u in FLOATS)), ("NORMALIZED", ("1",)), ("DOT", ("1",))),
        extensions=(*SUBGROUP_SUMS, "GL_EXT_integer_dot_product"),
        shared=(*_DOT_SHARED, ("ADDEND_TYPE", AddendType), ("AT_ONCE", 8)),
    ),
    KernelSpec(
        "block_cooperative",
        "block_cooperative.comp",
        buffers=GEMM_BUFFERS,
        params=(*GEMM_PARAMS, *SPLIT_PARAMS, "uint split_rounds", *_PLANES),
        constants=(
            *COOPERATIVE_TILE,
            *_FORMAT,
            *(("ACTIVATION", 0), ("HAS_C", 1), ("ADDEND", 0), ("VECTOR_Y", 1), ("PARTIAL", 0)),
        ),
        variants=(("T", FLOATS), ("ADDS", ("0", "1"))),
        features=("storage16",),
        extensions=COOPERATIVE_EXTENSIONS,
        shared=(*_SHARED, *GEMM_SHARED),
    ),
    KernelSpec(
        "matrix_fragments",
        "matrix_fragments.comp",
        buffers=("y:w",),
        params=(),
        constants=(("LOCAL_SIZE_X", 32),),
        features=("storage16",),
        extensions=COOPERATIVE_EXTENSIONS,
    ),
    KernelSpec(
        "block_strips",
        "block_strips.comp",
        buffers=GEMM_BUFFERS,
        params=(*GEMM_PARAMS, *SPLIT_PARAMS, "uint split_rounds", *_PLANES),
        constants=(
            *(("LOCAL_SIZE_X", 64), ("DEEP", 2), ("TILE_M", 16), ("TILE_K", 256), ("WHOLE_ROUNDS", 0), ("SUB_N", 32)),
            *(("MAT_M", 16), ("MAT_N", 16), ("MAT_K", 16)),
            *_FORMAT,
            *(("ACTIVATION", 0), ("HAS_C", 1), ("ADDEND", 0), ("VECTOR_Y", 1), ("PARTIAL", 0)),
        ),
        variants=(("T", FLOATS), ("ADDS", ("0", "1"))),
        features=("storage16",),
        extensions=COOPERATIVE_EXTENSIONS,
        shared=(*_SHARED, *GEMM_SHARED),
    ),
    KernelSpec(
        "block_tiled",
        "block_tiled.comp",
        buffers=GEMM_BUFFERS,
        params=(*GEMM_PARAMS, *SPLIT_PARAMS, "uint split_rounds", *_PLANES),
        constants=(
            *PRODUCT_TILE,
            *_FORMAT,
            *(("ACTIVATION", 0), ("HAS_C", 1), ("ADDEND", 0), ("VECTOR_A", 1), ("VECTOR_Y", 1), ("PARTIAL", 0)),
        ),
        variants=(("T", FLOATS),),
        shared=(*_SHARED, *GEMM_SHARED),
    ),
)
