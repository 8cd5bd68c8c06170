"""The kernels of quantization and its inverse."""

from __future__ import annotations

import enum

from dmlvk.kernels.common.kernel import KernelSpec
from dmlvk.kernels.common.shapes import group_lanes
from dmlvk.kernels.common.terms import FLOATS, bits, lanes
from dmlvk.kernels.elementwise.manifest import ITEM_PARAMS, steps
from dmlvk.kernels.reduction.manifest import ACCUMULATOR_PARAMS, RANGE

_QUANTIZE_TYPES = (("FLOAT32", "FLOAT32"), ("FLOAT16", "FLOAT16"), ("INT32", "FLOAT32"), ("FLOAT16", "FLOAT32"))
"""(input, scale) of quantizations; the last two are none to 4 bits."""
_QUANTIZATION_PARAMS = (
    "uint count",
    "uint inner_size",
    "uint sizes[16]",
    "uint divisors[32]",
    *(f"uint {tensor}_strides[16]" for tensor in ("x", "scale", "zero_point", "output")),
)
_QUANTIZATION_CONSTANTS = (
    ("LOCAL_SIZE_X", 128),
    ("SIGNED", 0),
    ("HAS_ZERO_POINT", 1),
    ("RANK", 1),
    ("ITEMS", 1),
    ("ROWS", 0),
    ("SCALE_MODE", 0),
    ("ZERO_POINT_MODE", 0),
)
"""The constants of every quantization and its inverse; see ``glsl/include/blocks.glsl``."""


class BlockRows(enum.IntEnum):
    """The way in which the groups of an invocation lie in rows."""

    ONE = 0
    """Each is in one row: the lanes divide its size."""
    TWO = 1
    """Each is in one or two, and one scale and zero point serve a row."""
    ANY = 2


ROWS: tuple[KernelSpec, ...] = (
    KernelSpec(
        name="elementwise_quantized_add",
        source="elementwise_quantized_add.comp",
        buffers=(
            *("a", "b", "output:w"),
            *("a_scale", "a_zero_point", "b_scale", "b_zero_point", "output_scale", "output_zero_point"),
        ),
        params=(*ITEM_PARAMS, *steps("a", "b", "output")),
        constants=(
            *(("LOCAL_SIZE_X", 128), ("RANK", 1), ("ITEMS", 1), ("RUNS", 0)),
            *(("A_MODE", 0), ("B_MODE", 0), ("OUTPUT_MODE", 0)),
            *(("A_SIGNED", 0), ("B_SIGNED", 0), ("OUTPUT_SIGNED", 0)),
            *(("HAS_A_ZERO_POINT", 1), ("HAS_B_ZERO_POINT", 1), ("HAS_OUTPUT_ZERO_POINT", 1)),
        ),
        variants=(("LANES T U", lanes((("UINT8", "UINT8"),))),),
    ),
    KernelSpec(
        "quantize",
        "quantize.comp",
        buffers=("x", "scale", "zero_point", "output:w"),
        params=_QUANTIZATION_PARAMS,
        constants=(*_QUANTIZATION_CONSTANTS, ("PACKED", 1)),
        shared=(("ROWS", BlockRows),),
        variants=(("LANES T S U", tuple(f"{n} {t} {s} UINT8" for t, s in _QUANTIZE_TYPES for n in (1, 16))),),
    ),
    KernelSpec(
        "quantization_range",
        "quantization_range.comp",
        buffers=("output:w", "zero_point:w", "partials"),
        params=(*ACCUMULATOR_PARAMS, "uint chunks"),
        constants=(("LOCAL_SIZE_X", 128), ("FUNCTION", RANGE), ("TEAM", 128), ("SIGNED", 0)),
        shared=(("RANGE", RANGE),),
        variants=(("LANES T U", ("1 FLOAT32 UINT8",)),),
        extensions=("GL_KHR_shader_subgroup_shuffle",),
    ),
    KernelSpec(
        "quantize_to_4_bits",
        "quantize.comp",
        buffers=("x", "scale", "zero_point", "output:w"),
        params=_QUANTIZATION_PARAMS,
        constants=(*_QUANTIZATION_CONSTANTS, ("PACKED", 1)),
        shared=(("ROWS", BlockRows),),
        variants=(
            ("LANES T S", tuple(f"{n} {t} {s}" for t, s in _QUANTIZE_TYPES[:2] for n in (1, group_lanes(bits(t), 4)))),
        ),
    ),
    KernelSpec(
        "dequantize",
        "dequantize.comp",
        buffers=("x", "scale", "zero_point", "output:w"),
        params=_QUANTIZATION_PARAMS,
        constants=_QUANTIZATION_CONSTANTS,
        shared=(("ROWS", BlockRows),),
        variants=(
            (
                "LANES T S U",
                tuple(
                    f"{n} {t} {t} {u}"
                    for t in FLOATS
                    for u in ("UINT32", "UINT16", "UINT8")
                    for n in (1, group_lanes(bits(t), bits(u)))
                ),
            ),
        ),
    ),
    KernelSpec(
        "dequantize_from_4_bits",
        "dequantize.comp",
        buffers=("x", "scale", "zero_point", "output:w"),
        params=_QUANTIZATION_PARAMS,
        constants=_QUANTIZATION_CONSTANTS,
        shared=(("ROWS", BlockRows),),
        variants=(("LANES T S", tuple(f"{n} {t} {t}" for t in FLOATS for n in (1, group_lanes(bits(t), 4)))),),
    ),
)
