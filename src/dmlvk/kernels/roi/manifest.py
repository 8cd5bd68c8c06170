"""The kernels of regions of interest."""

from __future__ import annotations

from dmlvk.kernels.common.kernel import KernelSpec
from dmlvk.kernels.common.terms import FLOATS

_ROI_BUFFERS = ("input", "roi", "batch", "output:w")
POSITION_PARAMS = (
    "uint batch_count",
    "uint input_height",
    "uint input_width",
    "uint output_height",
    "uint output_width",
    "uint roi_stride",
    "uint coordinate_stride",
    "uint batch_stride",
    "float scale_x",
    "float scale_y",
    "float input_pixel_offset",
    "float output_pixel_offset",
    "uint minimum_samples",
    "uint maximum_samples",
)
"""The parameters of ``glsl/include/roi.glsl``: where the samples of a region lie."""

_ROI_PARAMS = (
    *POSITION_PARAMS,
    "uint roi_count",
    "uint channels",
    "uint input_strides[4]",
    "uint output_strides[4]",
    "float out_of_bounds_input_value",
)
_ROI_CONSTANTS = (("LOCAL_SIZE_X", 128), ("NEAREST", 0), ("CORNERS", 0), ("MAXIMUM", 0), ("BATCH_WORDS", 1))

ROWS: tuple[KernelSpec, ...] = (
    KernelSpec(
        "roi_align_columns",
        "roi_align_columns.comp",
        buffers=_ROI_BUFFERS,
        params=(*_ROI_PARAMS, "uint block_channels"),
        constants=(
            *_ROI_CONSTANTS,
            ("SAMPLES", 0),
            ("ROWS", 256),
            ("COLUMNS", 512),
            ("PARTIALS", 2048),
            ("OUTPUT_ROWS", 1),
        ),
        variants=(("T", FLOATS),),
    ),
    KernelSpec(
        "roi_align_outputs",
        "roi_align_outputs.comp",
        buffers=_ROI_BUFFERS,
        params=(*_ROI_PARAMS, "uint outputs"),
        constants=(*_ROI_CONSTANTS, ("CHANNELS_FASTEST", 0), ("ROUND", 1)),
        variants=(("T", FLOATS),),
    ),
    KernelSpec(
        "roi_pooling",
        "roi_pooling.comp",
        buffers=("input", "roi", "output:w"),
        params=(
            "uint outputs",
            *(f"uint {name}" for name in ("roi_count", "batch_count", "channels", "input_height", "input_width")),
            *("uint output_height", "uint output_width", "uint input_strides[4]", "uint output_strides[4]"),
            *("uint roi_stride", "uint coordinate_stride", "float scale"),
        ),
        constants=(("LOCAL_SIZE_X", 128), ("CHANNELS_FASTEST", 0)),
        variants=(("T", FLOATS),),
    ),
)
