"""The kernel of random numbers."""

from __future__ import annotations

from dmlvk.kernels.common.kernel import KernelSpec

ROWS: tuple[KernelSpec, ...] = (
    KernelSpec(
        "random_philox",
        "random_philox.comp",
        buffers=("state", "output:w", "output_state:w"),
        params=(
            *("uint elements", "uint blocks", "uint sizes[8]", "uint divisors[16]", "uint strides[8]"),
            *("uint state_step", "uint output_state_step"),
        ),
        constants=(("LOCAL_SIZE_X", 128), ("UNITS", 1), ("RANK", 1), ("HAS_OUTPUT_STATE", 0)),
        variants=(("WORDS", ("0", "1")),),
    ),
)
