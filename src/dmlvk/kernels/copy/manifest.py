"""The kernels of copies, and what it shares with all that include ``rows.glsl``."""

from __future__ import annotations

from dmlvk.kernels.common.kernel import KernelSpec
from dmlvk.kernels.copy.rules import MOST_INTERLEAVED

ROW_PARAMS = (
    *("uint count", "uint units", "uint inner_size", "uint inner_divisor[2]", "uint row_words", "uint row_words_divisor[2]"),
    *("uint x_step", "uint output_step", "uint fill[2]"),
)
ROW_CONSTANTS = (("LOCAL_SIZE_X", 128), ("ITEMS", 1), ("PACKED", 0))
ROW_VARIANTS = ("1 UINT8", "1 UINT16", "1 UINT32", "0 UINT8", "0 UINT16", "0 UINT32", "0 BITS64", "0 BITS128")
"""The variants of a kernel that includes ``rows.glsl``: ROWS and the type of a unit."""
_STRIP_WORDS = (("UINT8", 8), ("UINT16", 16), ("UINT32", 32), ("BITS64", 64), ("BITS128", 128))
"""The words that strips are moved in, and their bits."""

ROWS: tuple[KernelSpec, ...] = (
    KernelSpec(
        "copy",
        "copy.comp",
        buffers=("x", "output:w"),
        params=(
            *ROW_PARAMS,
            *("uint x_start", "uint output_start", "uint sizes[16]", "uint divisors[32]"),
            *("uint x_strides[16]", "uint output_strides[16]"),
        ),
        constants=(*ROW_CONSTANTS, ("RANK", 1)),
        variants=(("ROWS T", ROW_VARIANTS),),
    ),
    KernelSpec(
        "copy_strips",
        "copy_strips.comp",
        buffers=("x", "output:w"),
        params=(
            *("uint count", "uint x_start", "uint output_start", "uint run_step"),
            *("uint sizes[16]", "uint divisors[32]", "uint x_strides[16]", "uint output_strides[16]"),
        ),
        constants=(("LOCAL_SIZE_X", 128), ("RANK", 1), ("SHORT", 2), ("INTERLEAVES", 1), ("STAGED", 1)),
        shared=(("MOST", MOST_INTERLEAVED),),
        variants=(
            ("BITS T", tuple(f"{bits} {unit}" for unit, most in _STRIP_WORDS for bits in (8, 16, 32, 64) if bits <= most)),
        ),
    ),
)
