"""The kernel of padding."""

from __future__ import annotations

from dmlvk.kernels.common.kernel import KernelSpec
from dmlvk.kernels.copy.manifest import ROW_CONSTANTS, ROW_PARAMS, ROW_VARIANTS

ROWS: tuple[KernelSpec, ...] = (
    KernelSpec(
        "padding",
        "padding.comp",
        buffers=("x", "output:w"),
        params=(
            *ROW_PARAMS,
            *("uint x_start", "uint first", "uint last", "uint sizes[8]", "uint divisors[16]"),
            *("uint x_strides[8]", "uint output_strides[8]"),
            *("uint low[9]", "uint high[9]", "uint shift[9]"),
            *("uint period[9]", "uint period_divisors[18]", "uint mirror[9]"),
        ),
        constants=(*ROW_CONSTANTS, ("RANK", 1), ("PADDED", 0), ("DILATED", 0), ("FILLED", 1)),
        variants=(("ROWS T", ROW_VARIANTS),),
    ),
)
