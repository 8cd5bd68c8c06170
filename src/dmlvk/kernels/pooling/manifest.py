"""The kernels of pooling and unpooling."""

from __future__ import annotations

from dmlvk.kernels.common.kernel import KernelSpec
from dmlvk.kernels.common.shapes import pooling_lanes
from dmlvk.kernels.common.terms import NUMERIC, bits

_POOLING_BUFFERS = ("input", "output:w", "indices:w")
POSITION_PARAMS = (
    "uint outputs",
    "uint walk_sizes[5]",
    "uint walk_divisors[10]",
    "uint input_sizes[5]",
    "uint input_strides[5]",
    "uint output_strides[5]",
    "uint index_strides[5]",
    "uint steps[3]",
    "uint window[3]",
    "uint start_padding[3]",
    "uint end_padding[3]",
    "uint dilations[3]",
    "uint include_padding",
)
POSITION_CONSTANTS = (
    ("LOCAL_SIZE_X", 128),
    ("DILATED", 0),
    ("VOLUMES", 0),
    ("CHANNELS_FASTEST", 0),
    ("RANK", 5),
)

_READS = 4
"""Elements of a window that an invocation reads before it uses the first: a read takes far longer than its use."""
_POOLING_LANES = tuple(f"{count} {name}" for name in NUMERIC for count in pooling_lanes(bits(name)))

ROWS: tuple[KernelSpec, ...] = (
    KernelSpec(
        "pooling",
        "pooling.comp",
        buffers=_POOLING_BUFFERS,
        params=(*POSITION_PARAMS, "float norm_order"),
        constants=(*POSITION_CONSTANTS, ("FUNCTION", 2), ("NORM_ORDER", 1), ("INDEX_WORDS", 0), ("LINES", 1), ("TAPS", 1)),
        variants=(("T", NUMERIC),),
    ),
    KernelSpec(
        "pooling_quantized",
        "pooling_quantized.comp",
        buffers=("input", "output:w", "input_scale", "input_zero_point", "output_scale", "output_zero_point"),
        params=(*POSITION_PARAMS, "uint channels", "uint side_strides[4]"),
        constants=(
            *POSITION_CONSTANTS,
            ("TAPS", 1),
            ("INPUT_SIGNED", 0),
            ("OUTPUT_SIGNED", 0),
            ("HAS_INPUT_ZERO_POINT", 1),
            ("HAS_OUTPUT_ZERO_POINT", 1),
        ),
        variants=(("T", ("UINT8",)),),
    ),
    KernelSpec(
        "max_unpooling",
        "max_unpooling.comp",
        buffers=("input", "indices", "output:w", "table:w"),
        params=(
            "uint count",
            "uint first",
            "uint places",
            "uint input_sizes[4]",
            "uint input_divisors[8]",
            "uint input_strides[4]",
            "uint index_strides[4]",
            "uint output_sizes[4]",
            "uint output_divisors[8]",
            "uint output_strides[4]",
        ),
        constants=(("LOCAL_SIZE_X", 128), ("PHASE", 0), ("WORDS", 1), ("INDEX_WORDS", 1), ("IN_OUTPUT", 0)),
        variants=(("T", ("UINT8", "UINT16", "UINT32")),),
    ),
    KernelSpec(
        "pooling_lanes",
        "pooling_lanes.comp",
        buffers=_POOLING_BUFFERS,
        params=(
            "uint count",
            "uint sizes[5]",
            "uint divisors[10]",
            "uint lanes",
            "uint output_rows",
            "uint input_sizes[5]",
            "uint input_strides[5]",
            "uint output_strides[5]",
            "uint index_strides[5]",
            "uint start_padding[3]",
            "uint end_padding[3]",
            "uint window_depth",
            "uint depth_stride",
            "uint depth_dilation",
            "uint include_padding",
        ),
        constants=(
            ("LOCAL_SIZE_X", 128),
            ("FUNCTION", 2),
            ("INDEX_WORDS", 0),
            ("VOLUMES", 0),
            ("RANK", 5),
            ("CHANNELS", 0),
            ("ROWS", 1),
            ("WINDOW_H", 3),
            ("WINDOW_W", 3),
            ("STRIDE_H", 1),
            ("STRIDE_W", 1),
            ("SHIFT", 0),
            ("INSIDE", 0),
            ("ROWS_REPEAT", 0),
            ("INPUT_MODE", 0),
            ("OUTPUT_MODE", 0),
            ("INDEX_MODE", 0),
        ),
        variants=(("LANES T", _POOLING_LANES),),
    ),
    KernelSpec(
        "pooling_window",
        "pooling_window.comp",
        buffers=_POOLING_BUFFERS,
        params=(*POSITION_PARAMS, "float norm_order"),
        constants=(*POSITION_CONSTANTS, ("FUNCTION", 2), ("NORM_ORDER", 1), ("INDEX_WORDS", 0), ("LANES", 32)),
        shared=(("READS", _READS),),
        variants=(("T", NUMERIC),),
    ),
)
