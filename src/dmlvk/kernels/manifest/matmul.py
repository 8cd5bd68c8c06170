"""The kernels of matrix multiplication."""

from __future__ import annotations

from dmlvk.kernels.manifest.terms import FLOATS
from dmlvk.kernels.spec import KernelSpec

_GEMM_PARAMS = (
    "uint rows",
    "uint columns",
    "uint depth",
    "uint inner_batch",
    "uint a_strides[4]",
    "uint b_strides[4]",
    "uint c_strides[4]",
    "uint y_strides[4]",
    "float alpha",
    "float beta",
    "float param0",
    "float param1",
)
"""What every matrix product reads; see ``glsl/include/gemm.glsl``."""

ROWS: tuple[KernelSpec, ...] = (
    KernelSpec(
        "gemm_naive",
        "gemm_naive.comp",
        buffers=("a", "b", "c", "y:w"),
        params=(*_GEMM_PARAMS, "uint count"),
        constants=(("LOCAL_SIZE_X", 128), ("ACTIVATION", 0), ("HAS_C", 1)),
        variants=(("T", FLOATS),),
    ),
    KernelSpec(
        "gemm_rows",
        "gemm_rows.comp",
        buffers=("a", "b", "c", "y:w"),
        params=_GEMM_PARAMS,
        constants=(("LOCAL_SIZE_X", 64), ("ACTIVATION", 0), ("HAS_C", 1), ("ROWS", 8)),
        variants=(("T", FLOATS),),
        extensions=("GL_KHR_shader_subgroup_shuffle",),
    ),
    KernelSpec(
        "gemm_tiled",
        "gemm_tiled.comp",
        buffers=("a", "b", "c", "y:w"),
        params=_GEMM_PARAMS,
        constants=(
            ("LOCAL_SIZE_X", 16),
            ("LOCAL_SIZE_Y", 8),
            ("ACTIVATION", 0),
            ("HAS_C", 1),
            ("THREAD_M", 4),
            ("THREAD_N", 4),
            ("TILE_K", 16),
            ("A_ALONG_K", 1),
            ("B_ALONG_K", 0),
        ),
        variants=(("T", FLOATS),),
    ),
    KernelSpec(
        "gemm_vector",
        "gemm_vector.comp",
        buffers=("a", "b", "c", "y:w"),
        params=_GEMM_PARAMS,
        constants=(("LOCAL_SIZE_X", 128), ("ACTIVATION", 0), ("HAS_C", 1), ("ROWS", 1), ("LANES", 32), ("ALONG_K", 1)),
        variants=(("T", FLOATS),),
    ),
)
