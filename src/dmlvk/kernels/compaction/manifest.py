"""The kernels of compaction."""

from __future__ import annotations

from dmlvk.kernels.common.kernel import KernelSpec
from dmlvk.kernels.common.terms import SUBGROUP_SUMS

_NONZERO_MASK_PARAMS = ("uint units", "uint tail", "uint sizes[8]", "uint divisors[16]", "uint strides[8]")
_NONZERO_MASK_CONSTANTS = (("LOCAL_SIZE_X", 128), ("UNITS", 1), ("RANK", 1), ("IS_FLOAT", 0))
_NONZERO_MASK_VARIANTS = (("T", ("UINT32", "UINT16", "UINT8")), ("WORDS", ("0", "1")))
"""The parameters, constants and variants of kernels that make masks; see ``glsl/include/nonzero_masks.glsl``."""
_NONZERO_ROW_PARAMS = (
    *("uint columns", "uint column_sizes[8]", "uint column_divisors[16]", "uint step_divisors[16]"),
    *("uint row_step", "uint column_step"),
)
"""The parameters of kernels that write rows of coordinates; see ``glsl/include/nonzero_rows.glsl``."""
MASK_ELEMENTS = 32
"""The elements of a mask: a bit of a word for each."""

ROWS: tuple[KernelSpec, ...] = (
    KernelSpec(
        "nonzero_whole",
        "nonzero_whole.comp",
        buffers=("x", "count:w", "coordinates:w"),
        params=(*_NONZERO_MASK_PARAMS, *_NONZERO_ROW_PARAMS),
        constants=(*_NONZERO_MASK_CONSTANTS, ("CAPACITY", 2048)),
        shared=(("MASK_ELEMENTS", MASK_ELEMENTS),),
        variants=_NONZERO_MASK_VARIANTS,
        extensions=SUBGROUP_SUMS,
    ),
    KernelSpec(
        "nonzero_masks",
        "nonzero_masks.comp",
        buffers=("x", "masks:w", "counts:w"),
        params=(*_NONZERO_MASK_PARAMS, "uint chunks", "uint chunk_units"),
        constants=_NONZERO_MASK_CONSTANTS,
        shared=(("MASK_ELEMENTS", MASK_ELEMENTS),),
        variants=_NONZERO_MASK_VARIANTS,
        extensions=SUBGROUP_SUMS,
    ),
    KernelSpec(
        "nonzero_write",
        "nonzero_write.comp",
        buffers=("masks", "counts", "count:w", "coordinates:w"),
        params=(*_NONZERO_ROW_PARAMS, "uint masks", "uint chunks", "uint chunk_masks"),
        constants=(("LOCAL_SIZE_X", 128), ("CAPACITY", 2048)),
        extensions=SUBGROUP_SUMS,
    ),
)
