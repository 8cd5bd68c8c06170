"""The kernels of convolution."""

from __future__ import annotations

from dmlvk.kernels.manifest.terms import FLOATS
from dmlvk.kernels.spec import KernelSpec

_CONVOLUTION_PARAMS = (
    "uint output_sizes[5]",
    "uint output_strides[5]",
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
)
"""What every convolution kernel reads; see ``glsl/include/convolution.glsl``."""

ROWS: tuple[KernelSpec, ...] = (
    KernelSpec(
        "convolution_naive",
        "convolution_naive.comp",
        buffers=("x", "w", "bias", "y:w"),
        params=(*_CONVOLUTION_PARAMS, "uint count"),
        constants=(("LOCAL_SIZE_X", 128), ("ACTIVATION", 0), ("HAS_BIAS", 1), ("HAS_DIVISOR", 1)),
        variants=(("T", FLOATS),),
    ),
    KernelSpec(
        "convolution_direct",
        "convolution_direct.comp",
        buffers=("x", "w", "bias", "y:w"),
        params=(*_CONVOLUTION_PARAMS, "uint pixels", "uint group_blocks"),
        constants=(("LOCAL_SIZE_X", 64), ("ACTIVATION", 0), ("HAS_BIAS", 1), ("HAS_DIVISOR", 1), ("CHANNELS", 8)),
        variants=(("T", FLOATS),),
        extensions=("GL_KHR_shader_subgroup_shuffle",),
    ),
    KernelSpec(
        "convolution_depthwise",
        "convolution_depthwise.comp",
        buffers=("x", "w", "bias", "y:w"),
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
        ),
        variants=(("T", FLOATS),),
    ),
    KernelSpec(
        "convolution_tiled",
        "convolution_tiled.comp",
        buffers=("x", "w", "bias", "y:w"),
        params=(*_CONVOLUTION_PARAMS, "uint pixels"),
        constants=(
            ("LOCAL_SIZE_X", 16),
            ("LOCAL_SIZE_Y", 8),
            ("ACTIVATION", 0),
            ("HAS_BIAS", 1),
            ("HAS_DIVISOR", 1),
            ("THREAD_K", 4),
            ("THREAD_P", 4),
            ("TILE_C", 16),
        ),
        variants=(("T", FLOATS),),
    ),
)
