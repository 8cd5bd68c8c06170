"""The kernel of gathers."""

from __future__ import annotations

from dmlvk.kernels.common.kernel import KernelSpec
from dmlvk.kernels.copy.manifest import ROW_CONSTANTS, ROW_PARAMS, ROW_VARIANTS

ROWS: tuple[KernelSpec, ...] = (
    KernelSpec(
        "gather",
        "gather.comp",
        buffers=("x", "indices", "output:w"),
        params=(
            *ROW_PARAMS,
            *("uint sizes[8]", "uint divisors[16]", "uint x_strides[8]", "uint index_strides[8]", "uint output_strides[8]"),
            *("uint index_step", "uint chosen_sizes[8]", "uint chosen_strides[8]", "uint window[2]"),
        ),
        constants=(*ROW_CONSTANTS, ("WINDOWED", 0), ("RANK", 1), ("TUPLE", 1), ("INDEX_WORDS", 1), ("INDEX_SIGNED", 0)),
        variants=(("ROWS T", ROW_VARIANTS),),
    ),
)
