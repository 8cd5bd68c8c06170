"""ONNX models on the GPU: ``InferenceSession``, after onnxruntime's.

Needs the package onnx: ``pip install dmlvk[onnx]``.
"""

from __future__ import annotations

from dmlvk.spec.errors import MissingPackageError

try:
    import onnx  # noqa: F401  # only to see whether it is there
except ImportError as error:
    raise MissingPackageError("dmlvk.onnx needs the package onnx: pip install dmlvk[onnx]") from error

from dmlvk.engine.profile import KernelTime, StepReport
from dmlvk.engine.progress import Progress
from dmlvk.onnx.explain import NodeExplanation
from dmlvk.onnx.iobinding import IOBinding
from dmlvk.onnx.model import ModelMetadata, ValueInfo
from dmlvk.onnx.report import SessionReport
from dmlvk.onnx.session import InferenceSession, SessionOptions

__all__ = [
    "IOBinding",
    "InferenceSession",
    "KernelTime",
    "ModelMetadata",
    "NodeExplanation",
    "Progress",
    "SessionOptions",
    "SessionReport",
    "StepReport",
    "ValueInfo",
]


def __dir__() -> list[str]:
    return sorted(__all__)
