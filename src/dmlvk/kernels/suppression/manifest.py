"""The kernels of suppression."""

from __future__ import annotations

from dmlvk.kernels.common.kernel import KernelSpec
from dmlvk.kernels.common.terms import SUBGROUP_SUMS

MASK_BOXES = 32
"""The boxes of a mask: a bit of a word for each."""
MARK_BOXES = 1024
"""The boxes, chosen before a chunk, that a workgroup compares those of the chunk with."""
MOST_CHUNK = 4096
"""The most boxes of a chunk, a bit of shared memory each."""

_CHUNK_PARAMS = (
    *("uint groups", "uint classes", "uint boxes", "uint room"),
    *("uint start", "uint chunk", "uint words", "uint marks"),
)
"""The parameters of kernels that handle a chunk; see ``glsl/include/suppression.glsl``."""

ROWS: tuple[KernelSpec, ...] = (
    KernelSpec(
        "suppression_masks",
        "suppression_masks.comp",
        buffers=("boxes", "scores", "order", "most", "overlap", "least", "counts", "chosen", "masks:w", "marked:w"),
        params=(*_CHUNK_PARAMS, "uint tiles"),
        constants=(("LOCAL_SIZE_X", 64), ("HAS_LEAST", 0), ("CENTERS", 0)),
        shared=(("MASK_BOXES", MASK_BOXES), ("MARK_BOXES", MARK_BOXES)),
        variants=(("T", ("FLOAT32",)),),
    ),
    KernelSpec(
        "suppression_choose",
        "suppression_choose.comp",
        buffers=("scores", "order", "most", "least", "masks", "marked", "counts:w", "chosen:w"),
        params=_CHUNK_PARAMS,
        constants=(("LOCAL_SIZE_X", 128), ("HAS_LEAST", 0)),
        shared=(("MASK_BOXES", MASK_BOXES), ("MOST_CHUNK", MOST_CHUNK)),
        variants=(("T", ("FLOAT32",)),),
    ),
    KernelSpec(
        "suppression_rows",
        "suppression_rows.comp",
        buffers=("counts", "chosen", "count:w", "rows:w"),
        params=("uint groups", "uint classes", "uint room"),
        constants=(("LOCAL_SIZE_X", 128),),
        extensions=SUBGROUP_SUMS,
    ),
)
