"""The kernels of the gradients of regions of interest."""

from __future__ import annotations

from dmlvk.kernels.common.kernel import KernelSpec
from dmlvk.kernels.common.terms import FLOATS
from dmlvk.kernels.roi.manifest import POSITION_PARAMS

_POSITION_CONSTANTS = (("LOCAL_SIZE_X", 128), ("NEAREST", 0), ("CORNERS", 0))
_BATCH_CONSTANTS = (*_POSITION_CONSTANTS, ("BATCH_WORDS", 1))
BOUNDS_WORDS = 5
"""The words that ``roi_align_chunks`` writes for each chunk of outputs."""

ROWS: tuple[KernelSpec, ...] = (
    KernelSpec(
        "roi_align_chunks",
        "roi_align_chunks.comp",
        buffers=("roi", "batch", "bounds:w"),
        params=(*POSITION_PARAMS, "uint items"),
        constants=(*_BATCH_CONSTANTS, ("CHUNK", 8)),
        shared=(("BOUNDS_WORDS", BOUNDS_WORDS),),
        variants=(("T", FLOATS),),
    ),
    KernelSpec(
        "roi_align_image_gradient",
        "roi_align_image_gradient.comp",
        buffers=("input", "input_gradient", "roi", "bounds", "output:w"),
        params=(
            *POSITION_PARAMS,
            *("uint items", "uint channels"),
            *("uint input_strides[4]", "uint gradient_strides[4]", "uint output_strides[4]"),
        ),
        constants=(
            *_POSITION_CONSTANTS,
            *(("MAXIMUM", 0), ("ROUND", 1), ("CHUNK", 8), ("BATCH", 8), ("CHANNELS", 4)),
            *(("TILE_WIDTH", 32), ("TILE_HEIGHT", 8), ("CHANNELS_FASTEST", 0)),
        ),
        variants=(("T", FLOATS),),
    ),
    KernelSpec(
        "roi_align_box_gradient",
        "roi_align_box_gradient.comp",
        buffers=("input", "input_gradient", "roi", "batch", "partials:w", "output:w"),
        params=(
            *POSITION_PARAMS,
            *("uint roi_count", "uint channels", "uint input_strides[4]", "uint gradient_strides[4]"),
            *("uint box_strides[2]", "uint block_channels"),
        ),
        constants=(*_BATCH_CONSTANTS, ("MAXIMUM", 0), ("FIXED", 0), ("SAMPLES", 1), ("ROUND", 1), ("PARTIAL", 0)),
        variants=(("T", FLOATS),),
    ),
    KernelSpec(
        "roi_align_box_gradient_merge",
        "roi_align_box_gradient_merge.comp",
        buffers=("partials", "output:w"),
        params=("uint roi_count", "uint blocks", "uint box_strides[2]"),
        constants=(("LOCAL_SIZE_X", 128),),
        variants=(("T", FLOATS),),
    ),
)
