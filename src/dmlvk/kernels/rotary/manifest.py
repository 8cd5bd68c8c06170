"""The kernel of rotary embedding."""

from __future__ import annotations

from dmlvk.kernels.common.kernel import KernelSpec
from dmlvk.kernels.common.terms import FLOATS

ROWS: tuple[KernelSpec, ...] = (
    KernelSpec(
        "rotary",
        "rotary.comp",
        buffers=("x", "cosines", "sines", "positions", "y:w"),
        params=(
            *("uint count", "uint rows", "uint heads", "uint size", "uint pairs", "uint places"),
            *("uint x_strides[4]", "uint y_strides[4]", "uint cosines_strides[3]", "uint sines_strides[3]"),
            "uint positions_strides[2]",
        ),
        constants=(("LOCAL_SIZE_X", 128), ("INTERLEAVED", 0), ("POSITION_WORDS", 0), ("QUADS", 0)),
        variants=(("T", FLOATS),),
    ),
)
