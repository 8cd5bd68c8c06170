"""ONNX models on the GPU: ``InferenceSession``, after onnxruntime's, and the other names of its session interface.

``import dmlvk.onnx as ort`` is what a script for ONNX Runtime needs; ``dmlvk.onnx.names`` has all of its names, and what
becomes of each. Needs the package onnx: ``pip install dmlvk[onnx]``.
"""

from __future__ import annotations

from dmlvk.spec.errors import MissingPackageError

try:
    import onnx  # noqa: F401  # only to see whether it is there
except ImportError as error:
    raise MissingPackageError("dmlvk.onnx needs the package onnx: pip install dmlvk[onnx]") from error

from dmlvk.engine.profile import KernelTime, StepReport
from dmlvk.engine.progress import Progress
from dmlvk.onnx import capi as capi  # scripts find the exceptions there
from dmlvk.onnx.explain import NodeExplanation
from dmlvk.onnx.iobinding import IOBinding
from dmlvk.onnx.model import ModelMetadata, ValueInfo
from dmlvk.onnx.names import NAMES as _NAMES
from dmlvk.onnx.names import VERSION as __version__
from dmlvk.onnx.options import ExecutionMode, ExecutionOrder, GraphOptimizationLevel, RunOptions, SessionOptions
from dmlvk.onnx.ort_value import OrtDevice, OrtDeviceVendorId, OrtValue, copy_tensors
from dmlvk.onnx.process import (
    disable_telemetry_events,
    enable_telemetry_events,
    get_build_info,
    get_version_string,
    has_collective_ops,
    preload_dlls,
    print_debug_info,
    set_default_logger_severity,
    set_default_logger_verbosity,
    set_global_thread_pool_sizes,
)
from dmlvk.onnx.providers import get_all_providers, get_available_providers, get_device
from dmlvk.onnx.refusals import refused_names as _refused_names
from dmlvk.onnx.report import SessionReport
from dmlvk.onnx.seeds import set_seed
from dmlvk.onnx.session import InferenceSession

NodeArg = ValueInfo
version = __version__
package_name = "dmlvk"
cuda_version = ""
import_capi_exception = None
globals().update(_refused_names())

__all__ = [
    "ExecutionMode",
    "ExecutionOrder",
    "GraphOptimizationLevel",
    "IOBinding",
    "InferenceSession",
    "KernelTime",
    "ModelMetadata",
    "NodeArg",
    "NodeExplanation",
    "OrtDevice",
    "OrtDeviceVendorId",
    "OrtValue",
    "Progress",
    "RunOptions",
    "SessionOptions",
    "SessionReport",
    "StepReport",
    "ValueInfo",
    "__version__",
    "copy_tensors",
    "cuda_version",
    "disable_telemetry_events",
    "enable_telemetry_events",
    "get_all_providers",
    "get_available_providers",
    "get_build_info",
    "get_device",
    "get_version_string",
    "has_collective_ops",
    "import_capi_exception",
    "package_name",
    "preload_dlls",
    "print_debug_info",
    "set_default_logger_severity",
    "set_default_logger_verbosity",
    "set_global_thread_pool_sizes",
    "set_seed",
    "version",
]


def __dir__() -> list[str]:
    return sorted({*__all__, *_NAMES[""]})
