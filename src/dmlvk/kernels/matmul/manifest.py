"""The kernels of matrix multiplication."""

from __future__ import annotations

import enum

from dmlvk.kernels.common.kernel import KernelSpec
from dmlvk.kernels.common.terms import (
    COOPERATIVE_EXTENSIONS,
    COOPERATIVE_TILE,
    FLOATS,
    PRODUCT_TILE,
    SUBGROUP_SUMS,
    WordAccess,
)
from dmlvk.kernels.root_mean_square.manifest import AddendType
from dmlvk.spec.gate import Gate

_SHAPE_PARAMS = (
    "uint rows",
    "uint columns",
    "uint depth",
    "uint inner_batch",
    "uint a_strides[4]",
    "uint b_strides[4]",
    "uint c_strides[4]",
    "uint y_strides[4]",
)


class Addend(enum.IntEnum):
    """When a product adds its addend: never; to the finished sum; or before all products, read one by one or in quads."""

    NONE = 0
    LAST = 1
    FIRST = 2
    FIRST_QUADS = 3


class OperandC(enum.IntEnum):
    """What C of a product is: nothing; of the type of the output; or, of BFLOAT16's products, bits as the factors are."""

    NONE = 0
    OWN = 1
    BITS = 2


class LinesOfC(enum.IntEnum):
    """What of C is one number, where a kernel asks."""

    NONE = 0
    ROWS = 1
    COLUMNS = 2


GEMM_BUFFERS = ("a", "b", "c", "addend", "y:w")
"""The buffers of every matrix product: C and the addend of a ``GemmAdd`` are others where there are none."""
GEMM_PARAMS = (
    *_SHAPE_PARAMS,
    "uint addend_strides[4]",
    "float alpha",
    "float beta",
    "float param0",
    "float param1",
    "float clip_scale",
    "float clip_bias",
)
"""The parameters of every matrix product; see ``glsl/include/gemm.glsl``."""
GEMM_SHARED = (("ADDEND", Addend), ("C", OperandC))
SPLIT_PARAMS = ("uint matrices", "uint splits", "uint partial_pitch")
"""The further parameters of a product whose depth is split."""

DOUBLE_EDGE, DOUBLE_BLOCK, DOUBLE_DEPTH = 8, 4, 8
"""Of products of FLOAT64: the invocations along an edge of a tile, their outputs along it, and the terms of a round."""

_TYPES = ("T R", ("FLOAT32 FLOAT32", "FLOAT16 FLOAT16", "BFLOAT16 FLOAT32", "BFLOAT16 BFLOAT16"))
"""The data types of the factors and of all else."""

_VECTOR_CONSTANTS = (
    ("LOCAL_SIZE_X", 256),
    ("ACTIVATION", 0),
    ("HAS_C", 1),
    ("ADDEND", 0),
    ("ROWS", 1),
    ("GATE", 0),
    ("LANES", 32),
    ("LANES_NEAR", 32),
    ("ALONG_K", 1),
    ("UNROLL", 2),
    ("VECTOR_A", 1),
    ("VECTOR_B", 1),
    ("VECTOR_Y", 1),
    ("PARTIAL", 0),
)


def _cooperative(name: str, types: tuple[str, tuple[str, ...]], adds: tuple[str, ...], *extensions: str) -> KernelSpec:
    """The row of products by matrices of some types."""
    return KernelSpec(
        name,
        "gemm_cooperative.comp",
        buffers=GEMM_BUFFERS,
        params=(*GEMM_PARAMS, *SPLIT_PARAMS, "uint split_rounds"),
        constants=(
            *COOPERATIVE_TILE,
            ("ACTIVATION", 0),
            ("HAS_C", 1),
            ("ADDEND", 0),
            ("VECTOR_A", 1),
            ("VECTOR_B", 1),
            ("VECTOR_Y", 1),
            ("PARTIAL", 0),
        ),
        variants=(types, ("WHOLE", ("0", "1")), ("ADDS", adds)),
        shared=(*GEMM_SHARED, ("ACCESS", WordAccess)),
        features=("storage16",),
        extensions=(*COOPERATIVE_EXTENSIONS, *extensions),
    )


ROWS: tuple[KernelSpec, ...] = (
    KernelSpec(
        "gemm_double",
        "gemm_double.comp",
        buffers=("a", "b", "c", "y:w"),
        params=(*_SHAPE_PARAMS, "uint count", "uint row_tiles", "uint column_tiles", "uint alpha[2]", "uint beta[2]"),
        constants=(("LOCAL_SIZE_X", DOUBLE_EDGE**2), ("HAS_C", 1)),
        shared=(("EDGE", DOUBLE_EDGE), ("BLOCK", DOUBLE_BLOCK), ("DEPTH", DOUBLE_DEPTH)),
        variants=(("T", ("FLOAT64",)),),
    ),
    KernelSpec(
        "gemm_naive",
        "gemm_naive.comp",
        buffers=GEMM_BUFFERS,
        params=(*GEMM_PARAMS, "uint count"),
        constants=(("LOCAL_SIZE_X", 128), ("ACTIVATION", 0), ("HAS_C", 1), ("ADDEND", 0)),
        variants=(_TYPES,),
        shared=GEMM_SHARED,
    ),
    KernelSpec(
        "gemm_rows",
        "gemm_rows.comp",
        buffers=GEMM_BUFFERS,
        params=GEMM_PARAMS,
        constants=(
            *(("LOCAL_SIZE_X", 64), ("ACTIVATION", 0), ("HAS_C", 1), ("ADDEND", 0), ("ROWS", 8), ("SHARERS", 8)),
            *(("ALONG_K", 0), ("VECTOR_A", 1), ("VECTOR_B", 1), ("VECTOR_Y", 1), ("C_LINES", 0)),
        ),
        variants=(_TYPES, ("W", ("BITS64", "UINT64"))),
        shared=(*GEMM_SHARED, ("C_LINES", LinesOfC)),
        extensions=("GL_KHR_shader_subgroup_shuffle",),
    ),
    KernelSpec(
        "gemm_tiled",
        "gemm_tiled.comp",
        buffers=GEMM_BUFFERS,
        params=(*GEMM_PARAMS, *SPLIT_PARAMS, "uint split_rounds"),
        constants=(
            *PRODUCT_TILE,
            ("ACTIVATION", 0),
            ("HAS_C", 1),
            ("ADDEND", 0),
            ("A_ALONG_K", 1),
            ("B_ALONG_K", 0),
            ("VECTOR_A", 1),
            ("VECTOR_B", 1),
            ("VECTOR_Y", 1),
            ("PARTIAL", 0),
        ),
        variants=(_TYPES,),
        shared=GEMM_SHARED,
    ),
    KernelSpec(
        "gemm_merge",
        "gemm_merge.comp",
        buffers=GEMM_BUFFERS,
        params=(*GEMM_PARAMS, *SPLIT_PARAMS),
        constants=(("LOCAL_SIZE_X", 128), ("ACTIVATION", 0), ("HAS_C", 1), ("ADDEND", 0), ("VECTOR_Y", 1)),
        variants=((_TYPES[0], (*_TYPES[1], "FLOAT16 FLOAT32")),),
        shared=GEMM_SHARED,
    ),
    KernelSpec(
        "gemm_merge_normalized",
        "gemm_merge_normalized.comp",
        buffers=(*GEMM_BUFFERS, "norm_scale", "norm_bias", "normalized:w"),
        params=(*GEMM_PARAMS, *SPLIT_PARAMS, "float epsilon"),
        constants=(
            *(("LOCAL_SIZE_X", 128), ("LANES", 32), ("UNITS", 1), ("ACTIVATION", 0), ("HAS_C", 1), ("ADDEND", 0)),
            *(("VECTOR_Y", 1), ("HAS_PRODUCT", 0), ("HAS_SCALE", 1), ("HAS_BIAS", 1), ("USE_MEAN", 1)),
        ),
        variants=(("T", FLOATS),),
        shared=GEMM_SHARED,
        extensions=SUBGROUP_SUMS,
    ),
    KernelSpec(
        "gemm_vector",
        "gemm_vector.comp",
        buffers=GEMM_BUFFERS,
        params=(*GEMM_PARAMS, *SPLIT_PARAMS, "uint split_rounds"),
        constants=_VECTOR_CONSTANTS,
        variants=(_TYPES,),
        shared=(*GEMM_SHARED, ("GATE", Gate)),
        extensions=SUBGROUP_SUMS,
    ),
    KernelSpec(
        "gemm_vector_staged",
        "gemm_vector.comp",
        buffers=GEMM_BUFFERS,
        params=(*GEMM_PARAMS, *SPLIT_PARAMS, "uint split_rounds"),
        constants=_VECTOR_CONSTANTS,
        variants=(_TYPES, ("STAGED", ("1",))),
        shared=(*GEMM_SHARED, ("GATE", Gate)),
        extensions=SUBGROUP_SUMS,
    ),
    KernelSpec(
        "gemm_vector_normalized",
        "gemm_vector.comp",
        buffers=(*GEMM_BUFFERS, "norm_addend", "norm_scale", "sum:w"),  # see glsl/include/normalized_row.glsl
        params=(*GEMM_PARAMS, *SPLIT_PARAMS, "uint split_rounds", "float epsilon", "uint zero"),
        constants=(*_VECTOR_CONSTANTS, ("NORM_ADDEND_TYPE", 0), ("HAS_SUM", 0)),
        variants=(("T U", tuple(f"{t} {u}" for t in FLOATS for u in FLOATS)), ("NORMALIZED", ("1",))),
        shared=(*GEMM_SHARED, ("GATE", Gate), ("ADDEND_TYPE", AddendType), ("AT_ONCE", 4)),
        extensions=SUBGROUP_SUMS,
    ),
    KernelSpec(
        "gemm_pack",
        "gemm_pack.comp",
        buffers=("x", "packed:w"),
        params=("uint columns", "uint depth", "uint column_stride", "uint depth_stride", "uint steps", "uint count"),
        constants=(("LOCAL_SIZE_X", 128),),
        variants=(("T", ("UINT16",)),),
    ),
    KernelSpec(
        "gemm_streamed",
        "gemm_streamed.comp",
        buffers=GEMM_BUFFERS,
        params=(*GEMM_PARAMS, *SPLIT_PARAMS, "uint split_rounds", "uint steps"),
        constants=(
            *(("LOCAL_SIZE_X", 128), ("TILE_M", 32), ("TILE_N", 128), ("TILE_K", 128), ("SUB_M", 32), ("SUB_N", 32)),
            *(("MAT_M", 16), ("MAT_N", 16), ("MAT_K", 16), ("BUFFERS", 1), ("WHOLE_ROUNDS", 1)),
            *(("ACTIVATION", 0), ("HAS_C", 1), ("ADDEND", 0), ("VECTOR_Y", 1), ("PARTIAL", 0)),
        ),
        variants=(("T R", ("FLOAT16 FLOAT16",)), ("ADDS", ("0", "1"))),
        shared=GEMM_SHARED,
        features=("storage16",),
        extensions=COOPERATIVE_EXTENSIONS,
    ),
    _cooperative("gemm_cooperative", ("T R", ("FLOAT32 FLOAT32", "FLOAT16 FLOAT16", "FLOAT16 FLOAT32")), ("0", "1")),
    _cooperative("gemm_cooperative_bfloat16", ("T R", ("BFLOAT16 FLOAT32", "BFLOAT16 BFLOAT16")), ("0",), "GL_EXT_bfloat16"),
)
