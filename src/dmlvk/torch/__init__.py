"""PyTorch's door: ``torch.compile(model, backend="dmlvk")``, and tensors on PyTorch's device ``dmlvk``.

Raises:
    MissingPackageError: PyTorch is not installed.
"""

from __future__ import annotations

from dmlvk.spec.errors import MissingPackageError

try:
    import torch as _torch  # noqa: F401
except ImportError as error:
    raise MissingPackageError("dmlvk.torch needs PyTorch: pip install dmlvk[torch]") from error

from dmlvk.torch.backend import backend
from dmlvk.torch.report import GraphReport, Report, report

__all__ = ["GraphReport", "Report", "backend", "report"]
