"""One row a kernel. ``tools/build_kernels.py`` compiles every variant of every row; plans name rows.

Adding a kernel is its ``.comp`` file, its row in the family's file here and its rule in the family's file of ``select``.
The files, each with a tuple ``ROWS``, are found by themselves.
"""

from __future__ import annotations

import importlib
import pkgutil

from dmlvk.kernels.spec import KernelSpec

KERNELS: dict[str, KernelSpec] = {}
"""Every kernel by name."""


def _collect() -> None:
    for module in pkgutil.iter_modules(__path__):
        if module.name == "terms":
            continue
        for row in importlib.import_module(f"{__name__}.{module.name}").ROWS:
            assert row.name not in KERNELS, f"two rows are named {row.name}"
            KERNELS[row.name] = row


_collect()
