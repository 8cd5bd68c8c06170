"""One row a kernel. ``tools/build_kernels.py`` compiles every variant of every row; plans name rows.

Adding a kernel is its ``.comp`` file, its row in the family's ``manifest.py`` and its rule in the family's ``rules.py``.
The manifests, each with a tuple ``ROWS``, are found by themselves.
"""

from __future__ import annotations

from dmlvk.kernels.common.families import family_modules
from dmlvk.kernels.common.kernel import KernelSpec

KERNELS: dict[str, KernelSpec] = {}
"""Every kernel by name."""


for _module in family_modules("manifest"):
    for _row in _module.ROWS:
        assert _row.name not in KERNELS, f"two rows are named {_row.name}"
        KERNELS[_row.name] = _row
