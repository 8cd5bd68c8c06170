"""The kernels of blocks of images, Fold and Unfold."""

from __future__ import annotations

from dmlvk.kernels.common.kernel import KernelSpec
from dmlvk.kernels.common.terms import FLOATS
from dmlvk.kernels.copy.manifest import ROW_CONSTANTS, ROW_PARAMS, ROW_VARIANTS

MOST_NARROW_STEP = 2**16
"""The most steps whose remainders have products of 32 bits."""

ROWS: tuple[KernelSpec, ...] = (
    KernelSpec(
        "fold",
        "fold.comp",
        buffers=("x", "y:w"),
        params=(
            *("uint count", "uint sizes[8]", "uint divisors[16]", "uint y_strides[8]", "uint x_kept[2]"),
            *(f"uint {name}[6]" for name in ("window", "blocks", "start_padding", "dilation", "inverse")),
            *(f"uint {name}[6]" for name in ("divisor", "tap_step", "block_step", "x_tap", "x_block")),
            *(f"uint {name}_divisors[12]" for name in ("stride", "divisor", "tap_step", "block_step")),
        ),
        constants=(
            *(("LOCAL_SIZE_X", 128), ("KEPT", 2), ("RANK", 4)),
            *(("STRIDED", 0), ("DILATED", 0), ("LINES", 1), ("TAPS", 1)),
        ),
        variants=(("T", FLOATS),),
        shared=(("MOST_NARROW_STEP", MOST_NARROW_STEP),),
    ),
    KernelSpec(
        "unfold",
        "unfold.comp",
        buffers=("x", "output:w"),
        params=(
            *ROW_PARAMS,
            *("uint x_start", "uint sizes[13]", "uint divisors[26]", "uint x_strides[13]", "uint output_strides[13]"),
            *("uint moves[13]", "uint start_padding[6]", "uint image_sizes[6]", "uint stride", "uint stride_divisor[2]"),
        ),
        constants=(*ROW_CONSTANTS, ("KEPT", 2), ("SPATIAL", 2)),
        variants=(("ROWS T", ROW_VARIANTS),),
    ),
)
