"""The kernel of AdamOptimizer."""

from __future__ import annotations

from dmlvk.kernels.common.kernel import KernelSpec
from dmlvk.kernels.common.terms import FLOATS, lanes
from dmlvk.kernels.elementwise.manifest import ITEM_PARAMS, steps

_READ = ("x", "m", "v", "gradient")
_WRITTEN = ("new_x", "new_m", "new_v")

ROWS: tuple[KernelSpec, ...] = (
    KernelSpec(
        name="adam",
        source="adam.comp",
        buffers=(*_READ, *(f"{name}:w" for name in _WRITTEN), "training_step"),
        params=(
            *ITEM_PARAMS,
            *steps(*_READ, *_WRITTEN),
            *("float learning_rate", "float epsilon"),
            *("float beta1", "float beta2", "float rest1", "float rest2", "float log_beta1", "float log_beta2"),
        ),
        constants=(
            *(("LOCAL_SIZE_X", 128), ("RANK", 1), ("ITEMS", 1)),
            *((f"{name.upper()}_MODE", 0) for name in (*_READ, *_WRITTEN)),
        ),
        variants=(("LANES T U", lanes((name, name) for name in FLOATS)),),
    ),
)
