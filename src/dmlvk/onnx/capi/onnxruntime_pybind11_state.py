"""ONNX Runtime's exceptions under its names; what is caught as one of them is dmlvk's error for the same mistake."""

from __future__ import annotations

from dmlvk.onnx.options import ExecutionMode, ExecutionOrder, GraphOptimizationLevel, RunOptions, SessionOptions
from dmlvk.onnx.providers import get_all_providers, get_available_providers, get_device
from dmlvk.spec.errors import DmlvkError, ModelError, NoSuchFileError, StateError, UnsupportedError, VulkanError

DeviceReset = VulkanError
EPFail = VulkanError
EngineError = VulkanError
Fail = DmlvkError
InvalidArgument = ModelError
InvalidGraph = ModelError
InvalidProtobuf = ModelError
ModelLoadCanceled = StateError
ModelLoaded = StateError
ModelRequiresCompilation = UnsupportedError
NoModel = ModelError
NoSuchFile = NoSuchFileError
NotFound = ModelError
NotImplemented = UnsupportedError
RuntimeException = DmlvkError

__all__ = [
    "DeviceReset",
    "EPFail",
    "EngineError",
    "ExecutionMode",
    "ExecutionOrder",
    "Fail",
    "GraphOptimizationLevel",
    "InvalidArgument",
    "InvalidGraph",
    "InvalidProtobuf",
    "ModelLoadCanceled",
    "ModelLoaded",
    "ModelRequiresCompilation",
    "NoModel",
    "NoSuchFile",
    "NotFound",
    "NotImplemented",
    "RunOptions",
    "RuntimeException",
    "SessionOptions",
    "get_all_providers",
    "get_available_providers",
    "get_device",
]
