"""The kernels of integer and quantized products."""

from __future__ import annotations

from dmlvk.kernels.common.kernel import KernelSpec
from dmlvk.kernels.common.terms import COOPERATIVE_TILE
from dmlvk.kernels.integer.rules import NAIVE_BLOCK, PACKED_CHANNELS, PACKED_LINES

_BUFFERS = (
    *("x", "w", "x_scale", "x_zero_point", "w_scale", "w_zero_point", "bias"),
    *("output_scale", "output_zero_point", "y:w"),
)
_PARAMS = (
    *("uint rows", "uint columns", "uint channels", "uint inner_groups"),
    *("uint output_sizes[2]", "uint input_sizes[2]", "uint window[2]"),
    *("uint steps[2]", "uint dilations[2]", "uint starts[2]"),
    *("uint x_strides[6]", "uint w_strides[6]", "uint y_strides[6]"),
    *("uint x_scale_stride", "uint x_zero_point_stride", "uint w_scale_strides[2]", "uint w_zero_point_strides[2]"),
    *("uint output_scale_stride", "uint output_zero_point_stride", "uint bias_strides[4]"),
)
_CONSTANTS = (
    *(("X_SIGNED", 0), ("W_SIGNED", 0), ("Y_SIGNED", 0)),
    *(("HAS_X_ZERO_POINT", 1), ("HAS_W_ZERO_POINT", 1), ("HAS_OUTPUT_ZERO_POINT", 1), ("HAS_BIAS", 1)),
    ("ROW_PARAMETERS", 1),
)
"""The constants of every integer product; see ``glsl/include/integer.glsl``."""
_OUTPUTS = ("INT32", "UINT8", "FLOAT32", "FLOAT16")
_OF_BYTES = tuple(f"{output} UINT8 int" for output in _OUTPUTS)
_OF_FLOAT_SUMS = tuple(f"{t} {u} float" for t in ("FLOAT32", "FLOAT16") for u in ("UINT32", "UINT16", "UINT8"))
_PACKED_BUFFERS = ("x", "w", "x_sums", "w_sums", *_BUFFERS[2:])
_PACKED_PARAMS = (*_PARAMS, "uint words", "uint input_lines", "uint tiles")
_PACKED_CONSTANTS = (*_CONSTANTS, ("HAS_X_SUMS", 1), ("HAS_W_SUMS", 1), ("ROWS_INNER", 0))
"""The buffers, parameters and constants of products of packed operands; see ``glsl/include/integer_packed.glsl``."""


_DOT = ("GL_EXT_integer_dot_product",)


def _multiplying(name: str, constants: tuple[tuple[str, int], ...]) -> tuple[KernelSpec, KernelSpec]:
    """A kernel with the device's products of four pairs of bytes, and without."""

    def spec(suffix: str, dot: str, extensions: tuple[str, ...]) -> KernelSpec:
        return KernelSpec(
            name + suffix,
            f"{name}.comp",
            buffers=_PACKED_BUFFERS,
            params=_PACKED_PARAMS,
            constants=(*constants, *_PACKED_CONSTANTS),
            variants=(("T U SUM", _OF_BYTES), ("DOT", (dot,))),
            extensions=extensions,
        )

    return spec("", "1", _DOT), spec("_plain", "0", ())


ROWS: tuple[KernelSpec, ...] = (
    KernelSpec(
        "integer_naive",
        "integer_naive.comp",
        buffers=_BUFFERS,
        params=(*_PARAMS, "uint count"),
        constants=(("LOCAL_SIZE_X", 128), *_CONSTANTS, ("ROWS_INNER", 0)),
        shared=(("BLOCK", NAIVE_BLOCK),),
        variants=(("T U SUM", (*_OF_BYTES, *_OF_FLOAT_SUMS)),),
    ),
    KernelSpec(
        "integer_depthwise",
        "integer_depthwise.comp",
        buffers=_BUFFERS,
        params=(*_PARAMS, "uint row_runs", "uint runs", "uint channels_of_all", "uint count"),
        constants=(
            *(("LOCAL_SIZE_X", 128), *_CONSTANTS, ("ROWS_INNER", 0), ("PIXELS", 4)),
            *(("WINDOW_H", 3), ("WINDOW_W", 3), ("STRIDE_W", 1), ("DILATION_W", 1)),
        ),
        variants=(("T U SUM", _OF_BYTES[:2]),),
    ),
    KernelSpec(
        "integer_pack",
        "integer_pack.comp",
        buffers=("x", "zero_point", "packed:w", "sums:w"),
        params=(
            *("uint channels", "uint words", "uint lines", "uint inner_groups"),
            *("uint sizes[2]", "uint strides[6]", "uint zero_point_strides[2]"),
        ),
        constants=(
            *(("LOCAL_SIZE_X", 256), ("FLIP", 0), ("ALONG_CHANNELS", 1)),
            *(("HAS_ZERO_POINT", 0), ("HAS_SUMS", 1)),
        ),
        shared=(("LINES", PACKED_LINES), ("QUADS", PACKED_CHANNELS // 4)),
        variants=(("U", ("UINT8",)),),
    ),
    *_multiplying(
        "integer_tiled", (("LOCAL_SIZE_X", 16), ("LOCAL_SIZE_Y", 16), ("THREAD_R", 4), ("THREAD_C", 4), ("WORDS", 2))
    ),
    *_multiplying("integer_vector", (("LOCAL_SIZE_X", 128), ("LANES", 32), ("ROWS", 1))),
    KernelSpec(
        "integer_cooperative",
        "integer_cooperative.comp",
        buffers=_PACKED_BUFFERS,
        params=_PACKED_PARAMS,
        constants=(*COOPERATIVE_TILE, *_PACKED_CONSTANTS, ("PLAIN", 1), ("VECTOR_Y", 0), ("GROUP", 8)),
        variants=(("T U SUM", _OF_BYTES),),
        features=("int8",),
        extensions=(
            "GL_KHR_cooperative_matrix",
            "GL_KHR_memory_scope_semantics",
            "GL_KHR_shader_subgroup_basic",
            "GL_EXT_shader_explicit_arithmetic_types_int8",
        ),
    ),
)
