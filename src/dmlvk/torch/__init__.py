"""PyTorch's door: ``torch.compile(model, backend="dmlvk")``, and tensors on PyTorch's device ``dmlvk``.

Importing it makes ``dmlvk`` a device of PyTorch, so that ``model.to("dmlvk")`` works.

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
from dmlvk.torch.device import install as _install
from dmlvk.torch.exported import ExportedSession, export
from dmlvk.torch.memory import array_of, tensor_of
from dmlvk.torch.report import GraphReport, Report, report
from dmlvk.torch.shared import cuda_view, cuda_waits, empty_shared, waits_for_cuda

_install()

__all__ = [
    "ExportedSession",
    "GraphReport",
    "Report",
    "array_of",
    "backend",
    "cuda_view",
    "cuda_waits",
    "empty_shared",
    "export",
    "report",
    "tensor_of",
    "waits_for_cuda",
]


def __dir__() -> list[str]:
    return list(__all__)
