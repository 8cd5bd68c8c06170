"""The kernel of reversed subsequences."""

from __future__ import annotations

from dmlvk.kernels.common.kernel import KernelSpec
from dmlvk.kernels.copy.manifest import ROW_CONSTANTS, ROW_PARAMS, ROW_VARIANTS

ROWS: tuple[KernelSpec, ...] = (
    KernelSpec(
        "reverse_subsequences",
        "reverse_subsequences.comp",
        buffers=("lengths", "x", "output:w"),
        params=(
            *ROW_PARAMS,
            *("uint sizes[8]", "uint divisors[16]", "uint x_strides[8]", "uint output_strides[8]", "uint length_strides[8]"),
        ),
        constants=(*ROW_CONSTANTS, ("RANK", 1), ("AXIS", 0), ("LENGTH_WORDS", 1)),
        variants=(("ROWS T", ROW_VARIANTS),),
    ),
)
