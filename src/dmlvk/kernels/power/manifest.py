"""The kernel of ElementWisePow."""

from __future__ import annotations

from dmlvk.kernels.common.kernel import KernelSpec
from dmlvk.kernels.common.terms import NUMERIC, bits, lanes
from dmlvk.kernels.elementwise.manifest import ITEM_PARAMS, steps

_TYPES = ("FLOAT64", *(name for name in NUMERIC if bits(name) <= 32))

ROWS: tuple[KernelSpec, ...] = (
    KernelSpec(
        name="elementwise_power",
        source="elementwise_power.comp",
        buffers=("x", "exponent", "output:w"),
        params=(*ITEM_PARAMS, *steps("x", "exponent", "output"), "uint scale[2]", "uint bias[2]"),
        constants=(
            ("LOCAL_SIZE_X", 128),
            ("EXPONENT_BYTES", 4),
            ("EXPONENT_IS_FLOAT", 1),
            ("EXPONENT_IS_SIGNED", 1),
            ("HAS_SCALE_BIAS", 0),
            ("RANK", 1),
            ("ITEMS", 1),
            ("X_MODE", 0),
            ("EXPONENT_MODE", 0),
            ("OUTPUT_MODE", 0),
        ),
        variants=(("LANES T U", lanes((name, name) for name in _TYPES)),),
    ),
)
