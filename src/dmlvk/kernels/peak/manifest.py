"""The kernels of ``arithmetic`` and ``ladder``: what a device computes at most, and what a product loses of it. No rule
chooses them."""

from __future__ import annotations

from dmlvk.kernels.common.kernel import KernelSpec
from dmlvk.kernels.common.terms import COOPERATIVE_EXTENSIONS, COOPERATIVE_TILE

_CHAINS = (("LOCAL_SIZE_X", 256), ("CHAINS", 8), ("STEPS", 16))
_MATRICES = (
    *(("LOCAL_SIZE_X", 256), ("MAT_M", 16), ("MAT_N", 16), ("MAT_K", 16)),
    *(("SUMS", 4), ("STEPS", 16)),
)
_FLOAT16 = "GL_EXT_shader_explicit_arithmetic_types_float16"


def _fma(name: str, number: str, halves: int, extensions: tuple[str, ...]) -> KernelSpec:
    return KernelSpec(
        name,
        "peak_fma.comp",
        buffers=("y:w",),
        params=("uint rounds", "float factor", "float addend", "float step"),
        constants=_CHAINS,
        variants=(("NUMBER HALVES", (f"{number} {halves}",)),),
        extensions=extensions,
    )


def _matrix(name: str, factor: str, sums: str, features: tuple[str, ...], extensions: tuple[str, ...]) -> KernelSpec:
    return KernelSpec(
        name,
        "peak_matrix.comp",
        buffers=("y:w",),
        params=("uint rounds", "uint factor"),
        constants=_MATRICES,
        variants=(("FACTOR SUM", (f"{factor} {sums}",)),),
        features=features,
        extensions=extensions,
    )


ROWS: tuple[KernelSpec, ...] = (
    _fma("peak_float32", "float", 0, ()),
    _fma("peak_float16", "f16vec2", 1, (_FLOAT16,)),
    KernelSpec(
        "peak_int8",
        "peak_dot.comp",
        buffers=("y:w",),
        params=("uint rounds", "uint factor"),
        constants=_CHAINS,
        variants=(("DOT", ("1",)),),
        extensions=("GL_EXT_integer_dot_product",),
    ),
    KernelSpec(
        "peak_ladder",
        "peak_ladder.comp",
        buffers=("x", "y:w"),
        params=("uint size", "uint lines", "uint nothing"),
        constants=(*COOPERATIVE_TILE, ("RUNG", 4)),
        features=("storage16",),
        extensions=COOPERATIVE_EXTENSIONS,
    ),
    _matrix("peak_matrix_float16", "float16_t", "float", (), COOPERATIVE_EXTENSIONS),
    _matrix(
        "peak_matrix_int8",
        "int8_t",
        "int",
        ("int8",),
        (*COOPERATIVE_EXTENSIONS[:3], "GL_EXT_shader_explicit_arithmetic_types_int8"),
    ),
)
