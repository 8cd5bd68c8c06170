"""DirectML's operators and binding model on every Vulkan device.

Names follow DirectML's by rule: ``DML_ELEMENT_WISE_ADD_OPERATOR_DESC`` is ``ElementWiseAdd``, ``ReduceFunction.SUM`` is
``DML_REDUCE_FUNCTION_SUM``, ``BindingTable.bind_inputs`` is ``IDMLBindingTable::BindInputs``. ``dmlvk.eager`` has one
function for each operator, numpy in, numpy out.

Importing this package touches no Vulkan: what needs the native module is imported when it is first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from dmlvk.engine.default_device import open_with as _open_with
from dmlvk.spec import ops as _ops  # noqa: F401  # fills the registry
from dmlvk.spec.enums import (
    AxisDirection,
    BindingType,
    ConvolutionDirection,
    ConvolutionMode,
    CreateDeviceFlags,
    DepthSpaceOrder,
    ExecutionFlags,
    Feature,
    FeatureLevel,
    GraphEdgeType,
    GraphNodeType,
    InterpolationMode,
    IsInfinityMode,
    MatrixTransform,
    MultiheadAttentionMaskType,
    OperatorType,
    PaddingMode,
    QuantizationType,
    RandomGeneratorType,
    RecurrentNetworkDirection,
    ReduceFunction,
    RoundingMode,
    TensorDataType,
    TensorFlags,
    TensorType,
)
from dmlvk.spec.errors import (
    BindingError,
    DeviceLostError,
    DmlvkError,
    FeatureNotPresentError,
    InitializationFailedError,
    InvalidArgumentError,
    MissingPackageError,
    ModelError,
    NoDeviceError,
    NoSuchFileError,
    OutOfDeviceMemoryError,
    OutOfHostMemoryError,
    QueueFullError,
    StateError,
    UnsupportedError,
    UnsupportedNodeError,
    VulkanError,
    WaitTimeoutError,
)
from dmlvk.spec.schema import REGISTRY, OperatorDesc, ScaleBias, Size2D
from dmlvk.spec.tensor import TensorDesc, TensorLayout, calc_buffer_tensor_size, calculate_strides
from dmlvk.spec.tensor_policy import TensorPolicy, TensorProperties

if TYPE_CHECKING:
    from dmlvk import eager, pydirectml, xp
    from dmlvk import onnx as onnx  # not in __all__: it needs a package that may not be there
    from dmlvk.builder import Expression, Function, Graph
    from dmlvk.devices.mask import Mask
    from dmlvk.directml.binding import BindingTable, BufferArrayBinding
    from dmlvk.directml.command import CommandList, CommandRecorder
    from dmlvk.directml.device import Device, default_device
    from dmlvk.directml.operator import BindingProperties, CompiledOperator, Operator, OperatorInitializer
    from dmlvk.directml.serialized_graph import SerializedGraph, load_serialized_graph
    from dmlvk.engine.device_array import DeviceArray
    from dmlvk.graph.desc import (
        ConstantDataGraphNodeDesc,
        GraphDesc,
        InputGraphEdgeDesc,
        IntermediateGraphEdgeDesc,
        OperatorGraphNodeDesc,
        OutputGraphEdgeDesc,
    )
    from dmlvk.runtime.device import DeviceInfo, devices, validation_messages
    from dmlvk.runtime.memory import Buffer, BufferBinding
    from dmlvk.runtime.recorder import DispatchTiming
    from dmlvk.spec.ops import *  # noqa: F403
else:
    globals().update({row.__name__: row for row in REGISTRY.values()})
    # The package dmlvk.devices has the name of a public function. Importing a package puts it here, but only the first time.
    importlib.import_module("dmlvk.devices")
    del devices

__version__ = "0.1.0"

__all__ = [
    "AxisDirection",
    "BindingError",
    "BindingProperties",
    "BindingTable",
    "BindingType",
    "Buffer",
    "BufferArrayBinding",
    "BufferBinding",
    "CommandList",
    "CommandRecorder",
    "CompiledOperator",
    "ConstantDataGraphNodeDesc",
    "ConvolutionDirection",
    "ConvolutionMode",
    "CreateDeviceFlags",
    "DepthSpaceOrder",
    "Device",
    "DeviceArray",
    "DeviceInfo",
    "DeviceLostError",
    "DispatchTiming",
    "DmlvkError",
    "ExecutionFlags",
    "Expression",
    "Feature",
    "FeatureLevel",
    "FeatureNotPresentError",
    "Function",
    "Graph",
    "GraphDesc",
    "GraphEdgeType",
    "GraphNodeType",
    "InitializationFailedError",
    "InputGraphEdgeDesc",
    "IntermediateGraphEdgeDesc",
    "InterpolationMode",
    "InvalidArgumentError",
    "IsInfinityMode",
    "Mask",
    "MatrixTransform",
    "MissingPackageError",
    "ModelError",
    "MultiheadAttentionMaskType",
    "NoDeviceError",
    "NoSuchFileError",
    "Operator",
    "OperatorDesc",
    "OperatorGraphNodeDesc",
    "OperatorInitializer",
    "OperatorType",
    "OutOfDeviceMemoryError",
    "OutOfHostMemoryError",
    "OutputGraphEdgeDesc",
    "PaddingMode",
    "QuantizationType",
    "QueueFullError",
    "RandomGeneratorType",
    "RecurrentNetworkDirection",
    "ReduceFunction",
    "RoundingMode",
    "ScaleBias",
    "SerializedGraph",
    "Size2D",
    "StateError",
    "TensorDataType",
    "TensorDesc",
    "TensorFlags",
    "TensorLayout",
    "TensorPolicy",
    "TensorProperties",
    "TensorType",
    "UnsupportedError",
    "UnsupportedNodeError",
    "VulkanError",
    "WaitTimeoutError",
    "calc_buffer_tensor_size",
    "calculate_strides",
    "default_device",
    "devices",
    "eager",
    "load_serialized_graph",
    "pydirectml",
    "validation_messages",
    "xp",
]
__all__ += [row.__name__ for row in REGISTRY.values()]

_LAZY = {
    "dmlvk.engine.device_array": ("DeviceArray",),
    "dmlvk.builder": ("Expression", "Function", "Graph"),
    "dmlvk.directml.binding": ("BindingTable", "BufferArrayBinding"),
    "dmlvk.directml.command": ("CommandList", "CommandRecorder"),
    "dmlvk.directml.device": ("Device", "default_device"),
    "dmlvk.directml.operator": ("BindingProperties", "CompiledOperator", "Operator", "OperatorInitializer"),
    "dmlvk.directml.serialized_graph": ("SerializedGraph", "load_serialized_graph"),
    "dmlvk.graph.desc": (
        "ConstantDataGraphNodeDesc",
        "GraphDesc",
        "InputGraphEdgeDesc",
        "IntermediateGraphEdgeDesc",
        "OperatorGraphNodeDesc",
        "OutputGraphEdgeDesc",
    ),
    "dmlvk.runtime.device": ("DeviceInfo", "devices", "validation_messages"),
    "dmlvk.devices.mask": ("Mask",),
    "dmlvk.runtime.memory": ("Buffer", "BufferBinding"),
    "dmlvk.runtime.recorder": ("DispatchTiming",),
}
_HOMES = {name: module for module, names in _LAZY.items() for name in names}

_SUBMODULES = ("eager", "onnx", "pydirectml", "xp")


def _open_device() -> Device:
    from dmlvk.directml.device import Device as opened

    return opened()


_open_with(_open_device)


if not TYPE_CHECKING:  # a type checker knows all names, and refuses others

    def __getattr__(name: str) -> Any:
        if name in _SUBMODULES:
            try:
                return importlib.import_module(f"dmlvk.{name}")
            except MissingPackageError as error:
                raise AttributeError(str(error)) from error
        if name not in _HOMES:
            raise AttributeError(f"module 'dmlvk' has no attribute {name!r}")
        value = globals()[name] = getattr(importlib.import_module(_HOMES[name]), name)
        return value


def __dir__() -> list[str]:
    return sorted({*__all__, *_SUBMODULES, "__version__"})
