"""The kernels of convolution."""

from __future__ import annotations

import enum

from dmlvk.kernels.common.kernel import KernelSpec
from dmlvk.kernels.common.shapes import convolution_lanes
from dmlvk.kernels.common.terms import COOPERATIVE_EXTENSIONS, COOPERATIVE_TILE, FLOATS, PRODUCT_TILE, bits

_BUFFERS = ("x", "w", "bias", "y:w")
_ADDING = ("x", "w", "bias", "addend", "y:w")
"""The buffers of a kernel that finishes sums of several channels, to which a ``ConvolutionAdd`` adds a tensor."""
_CONVOLUTION_PARAMS = (
    "uint output_sizes[5]",
    "uint output_strides[5]",
    "uint output_start",
    "uint input_sizes[3]",
    "uint input_strides[5]",
    "uint window[3]",
    "uint filter_strides[5]",
    "uint filter_offset",
    "uint filter_group_stride",
    "uint bias_stride",
    "uint group_channels",
    "uint group_outputs",
    "uint computed_sizes[3]",
    "uint position_step[3]",
    "uint tap_step[3]",
    "uint position_start[3]",
    "uint divisor[3]",
    "float param0",
    "float param1",
    "float clip_scale",
    "float clip_bias",
)
"""The parameters of every convolution kernel; see ``glsl/include/convolution.glsl``."""

_CONVOLUTION_LANES = tuple(f"{count} {name}" for name in FLOATS for count in convolution_lanes(bits(name)))

_WINOGRAD_PARAMS = (
    *_CONVOLUTION_PARAMS,
    "uint count",
    "uint groups",
    "uint first_image",
    "uint blocks",
    "uint block_rows",
    "uint block_columns",
    "uint matrix",
    "uint channel_step",
    "uint block_step",
)
"""The parameters of Winograd's transforms; see ``glsl/include/winograd.glsl``."""
_WINOGRAD_CONSTANTS = (("LOCAL_SIZE_X", 128), ("ACTIVATION", 0), ("HAS_BIAS", 1), ("HAS_DIVISOR", 0), ("CHANNELS", 0))


_LOADED = 8
"""Partial sums that an invocation of the merge loads before it adds the first."""
WINOGRAD_PLACES = 36
"""The elements of a transformed block: 6 x 6."""


class InputMode(enum.IntEnum):
    """The way in which ``convolution_tiled`` reads the input."""

    PIXELS = 0
    PLANES = 1
    CHANNELS = 2
    TABLE = 3


class OutputMode(enum.IntEnum):
    """The way in which a tile of outputs is written: one by one, in quads of pixels, or in quads of channels."""

    ELEMENTS = 0
    PLANES = 1
    CHANNELS = 2


def _winograd(name: str, buffers: tuple[str, ...], *more: tuple[str, int]) -> KernelSpec:
    return KernelSpec(
        f"convolution_winograd_{name}",
        f"convolution_winograd_{name}.comp",
        buffers=buffers,
        params=_WINOGRAD_PARAMS,
        constants=(*_WINOGRAD_CONSTANTS, *more),
        shared=(("PLACES", WINOGRAD_PLACES),),
        variants=(("T", ("FLOAT32",)),),
    )


ROWS: tuple[KernelSpec, ...] = (
    KernelSpec(
        "convolution_naive",
        "convolution_naive.comp",
        buffers=_ADDING,
        params=(*_CONVOLUTION_PARAMS, "uint count"),
        constants=(("LOCAL_SIZE_X", 128), ("ACTIVATION", 0), ("HAS_BIAS", 1), ("HAS_ADDEND", 0), ("HAS_DIVISOR", 1)),
        variants=(("T", FLOATS),),
    ),
    KernelSpec(
        "convolution_direct",
        "convolution_direct.comp",
        buffers=_ADDING,
        params=(*_CONVOLUTION_PARAMS, "uint pixels", "uint group_blocks"),
        constants=(
            ("LOCAL_SIZE_X", 64),
            ("ACTIVATION", 0),
            ("HAS_BIAS", 1),
            ("HAS_ADDEND", 0),
            ("HAS_DIVISOR", 1),
            ("CHANNELS", 8),
            ("SHARERS", 8),
            ("PIXELS", 1),
        ),
        variants=(("T", FLOATS),),
        extensions=("GL_KHR_shader_subgroup_shuffle",),
    ),
    KernelSpec(
        "convolution_shared_weights",
        "convolution_shared_weights.comp",
        buffers=_ADDING,
        params=(
            *_CONVOLUTION_PARAMS,
            "uint pixels",
            "uint group_blocks",
            "uint walk_sizes[5]",
            "uint walk_divisors[10]",
        ),
        constants=(
            ("LOCAL_SIZE_X", 64),
            ("ACTIVATION", 0),
            ("HAS_BIAS", 1),
            ("HAS_ADDEND", 0),
            ("HAS_DIVISOR", 1),
            ("CHANNELS", 8),
            ("PIXELS", 2),
            ("TOGETHER", 1),
            ("TERMS", 64),
            ("ALL", 0),
            ("WINDOW_W", 3),
            ("X_QUADS", 0),
            ("Y_QUADS", 0),
        ),
        variants=(("T", FLOATS),),
    ),
    KernelSpec(
        "convolution_depthwise",
        "convolution_depthwise.comp",
        buffers=_BUFFERS,
        params=(*_CONVOLUTION_PARAMS, "uint runs", "uint row_runs"),
        constants=(
            ("LOCAL_SIZE_X", 64),
            ("ACTIVATION", 0),
            ("HAS_BIAS", 1),
            ("HAS_DIVISOR", 0),
            ("PIXELS", 4),
            ("WINDOW_W", 3),
            ("STRIDE_W", 1),
            ("DILATION_W", 1),
            ("SHARERS", 1),
            ("PAIRS", 0),
            ("SHIFT", 0),
            ("CHANNELS_INSIDE", 0),
        ),
        variants=(("T", FLOATS), ("PAIR", ("0", "BITS64", "UINT64"))),
        extensions=("GL_KHR_shader_subgroup_shuffle",),
    ),
    KernelSpec(
        "convolution_depthwise_lanes",
        "convolution_depthwise_lanes.comp",
        buffers=_BUFFERS,
        params=(*_CONVOLUTION_PARAMS, "uint count", "uint walk_sizes[4]", "uint walk_divisors[8]"),
        constants=(
            ("LOCAL_SIZE_X", 128),
            ("ACTIVATION", 0),
            ("HAS_BIAS", 1),
            ("HAS_DIVISOR", 0),
            ("CHANNELS", 0),
            ("ROWS", 1),
            ("WINDOW_H", 3),
            ("WINDOW_W", 3),
            ("STRIDE_H", 1),
            ("STRIDE_W", 1),
            ("SHIFT", 0),
            ("INSIDE", 0),
            ("X_MODE", 0),
            ("Y_MODE", 0),
        ),
        variants=(("LANES T", _CONVOLUTION_LANES),),
    ),
    KernelSpec(
        "convolution_depthwise_channels",
        "convolution_depthwise_channels.comp",
        buffers=_BUFFERS,
        params=(*_CONVOLUTION_PARAMS, "uint count", "uint walk_sizes[4]", "uint walk_divisors[8]"),
        constants=(
            ("LOCAL_SIZE_X", 128),
            ("ACTIVATION", 0),
            ("HAS_BIAS", 1),
            ("HAS_DIVISOR", 0),
            ("COLUMNS", 4),
            ("GROUP_LANES", 8),
            ("GROUP_COLUMNS", 4),
            ("WINDOW_H", 3),
            ("WINDOW_W", 3),
            ("STRIDE_H", 1),
            ("STRIDE_W", 1),
        ),
        variants=(("LANES T", _CONVOLUTION_LANES),),
    ),
    KernelSpec(
        "convolution_tiled",
        "convolution_tiled.comp",
        buffers=_ADDING,
        params=(
            *_CONVOLUTION_PARAMS,
            "uint pixels",
            "uint groups",
            "uint depth",
            "uint depth_blocks",
            "uint depth_divisor[2]",
            "uint window_divisors[4]",
            "uint rounds",
            "uint splits",
            "uint split_rounds",
            "uint partial_pitch",
        ),
        constants=(
            *PRODUCT_TILE,
            ("ACTIVATION", 0),
            ("HAS_BIAS", 1),
            ("HAS_ADDEND", 0),
            ("HAS_DIVISOR", 1),
            ("X_MODE", 0),
            ("ONE_TAP", 0),
            ("W_QUADS", 1),
            ("Y_MODE", 0),
            ("TABLE", 1),
            ("PARTIAL", 0),
        ),
        shared=(("X", InputMode), ("Y", OutputMode)),
        variants=(("T", FLOATS),),
    ),
    KernelSpec(
        "convolution_cooperative",
        "convolution_cooperative.comp",
        buffers=_ADDING,
        params=(
            *_CONVOLUTION_PARAMS,
            "uint pixels",
            "uint groups",
            "uint depth",
            "uint channel_divisor[2]",
            "uint window_divisor[2]",
            "uint front_divisor[2]",
            "uint plane",
            "uint plane_divisor[2]",
            "uint pixel_step",
            "uint splits",
            "uint split_rounds",
            "uint partial_pitch",
        ),
        constants=(
            *COOPERATIVE_TILE,
            ("ACTIVATION", 0),
            ("HAS_BIAS", 1),
            ("HAS_ADDEND", 0),
            ("HAS_DIVISOR", 0),
            ("PARTIAL", 0),
            ("ONE_TAP", 0),
            ("WHOLE_TAPS", 1),
            ("PLANAR", 1),
            ("Y_MODE", 0),
            ("ONE_STEP", 1),
        ),
        shared=(("Y", OutputMode),),
        variants=(("T", ("FLOAT16",)),),
        features=("storage16",),
        extensions=COOPERATIVE_EXTENSIONS,
    ),
    KernelSpec(
        "convolution_planes",
        "convolution_planes.comp",
        buffers=_ADDING,
        params=(
            *_CONVOLUTION_PARAMS,
            "uint pixels",
            "uint groups",
            "uint plane",
            "uint plane_divisor[2]",
        ),
        constants=(
            *COOPERATIVE_TILE,
            ("ACTIVATION", 0),
            ("HAS_BIAS", 1),
            ("HAS_ADDEND", 0),
            ("HAS_DIVISOR", 0),
            ("WHOLE", 1),
        ),
        variants=(("T", ("FLOAT16",)),),
        features=("storage16",),
        extensions=COOPERATIVE_EXTENSIONS,
    ),
    KernelSpec(
        "convolution_lines",
        "convolution_lines.comp",
        buffers=("x", "lines:w"),
        params=(
            "uint count",
            "uint sizes[5]",
            "uint divisors[10]",
            "uint strides[5]",
            "uint channels",
            "uint channel_divisor[2]",
            "uint terms",
            "uint width",
            "uint position_step",
            "uint tap_step",
            "uint position_start",
            "uint start",
        ),
        constants=(("LOCAL_SIZE_X", 256),),
        variants=(("T", ("FLOAT16",)),),
        features=("storage16",),
    ),
    KernelSpec(
        "convolution_merge",
        "convolution_merge.comp",
        buffers=_ADDING,
        params=(*_CONVOLUTION_PARAMS, "uint pixels", "uint splits", "uint partial_pitch"),
        constants=(
            ("LOCAL_SIZE_X", 128),
            ("ACTIVATION", 0),
            ("HAS_BIAS", 1),
            ("HAS_ADDEND", 0),
            ("HAS_DIVISOR", 0),
            ("BY_PIXEL", 0),
            ("Y_QUADS", 1),
        ),
        shared=(("LOADED", _LOADED),),
        variants=(("T", FLOATS),),
    ),
    _winograd("filter", _BUFFERS),
    _winograd("input", _BUFFERS),
    _winograd("output", _ADDING, ("HAS_ADDEND", 0), ("Y_QUADS", 1)),
)
