"""dmlvk as an execution provider of ONNX Runtime: a plug-in that runs a session's nodes on a Vulkan device.

Two lines turn a program to it::

    import dmlvk.ort
    dmlvk.ort.register()                          # once, before sessions are made

    options = onnxruntime.SessionOptions()
    options.add_provider_for_devices(dmlvk.ort.get_devices()[:1], {})
    session = onnxruntime.InferenceSession("model.onnx", options)

ONNX Runtime is the program's own: none comes with dmlvk, and none is imported but by ``register`` and ``get_devices``. The
plug-in is a native module, ``dmlvk.ort._plugin``, that ONNX Runtime loads as a library; what it is asked it asks
``dmlvk.ort.provider``. How a model is shared out is in ``dmlvk.ort.parts``.

Needs the package onnx: ``pip install dmlvk[onnx]``.
"""

from __future__ import annotations

import ctypes
import importlib
from typing import Any

from dmlvk.ort import _plugin
from dmlvk.ort.parts import NAME
from dmlvk.ort.provider import Server
from dmlvk.runtime.prepared_run import door
from dmlvk.spec.errors import MissingPackageError

__all__ = ["bind_output", "get_devices", "get_ep_name", "get_ep_names", "get_library_path", "memory_of", "register"]

_plugin.serve(NAME, Server(), door(), ctypes.cast(ctypes.pythonapi.PyGILState_Check, ctypes.c_void_p).value)


def get_library_path() -> str:
    """The path for ``onnxruntime.register_execution_provider_library``."""
    return importlib.import_module("dmlvk.ort._plugin").__file__ or ""


def get_ep_name() -> str:
    """The provider's name."""
    return NAME


def get_ep_names() -> list[str]:
    """The names of the library's providers: one."""
    return [NAME]


def register() -> None:
    """Registers the provider with the ``onnxruntime`` that is installed. Once it is, this does nothing.

    Raises:
        MissingPackageError: there is none.
        RuntimeError: it is older than 1.23, the first with the interface.
    """
    if not get_devices():
        _onnxruntime().register_execution_provider_library(NAME, get_library_path())


def get_devices() -> list[Any]:
    """ONNX Runtime's devices that are this provider's: one for each Vulkan device, in the order of ``dmlvk.devices()``.
    Their ``ep_metadata`` has ``device_uuid``, ``device_name``, ``device_type``, ``driver``, ``api_version`` and
    ``memory_bytes``.

    Raises:
        What ``register`` raises.
    """
    return [device for device in _onnxruntime().get_ep_devices() if device.ep_name == NAME]


def memory_of(device: Any) -> tuple[str, int, int]:
    """The name, the number and the vendor by which ONNX Runtime knows a device's memory, in the order that its functions
    take them: ``OrtValue.ortvalue_from_numpy(array, *memory_of(device))``.

    Args:
        device: One of ``get_devices``.

    Raises:
        RuntimeError: ONNX Runtime is 1.23.0, which does not tell a program what a provider's memory is.
    """
    runtime = _onnxruntime()
    if not hasattr(device, "memory_info"):
        wanted = "values in a device's memory need ONNX Runtime 1.23.1 or newer"
        raise RuntimeError(f"{wanted}; this is {runtime.__version__}")
    info = device.memory_info(runtime.OrtDeviceMemoryType.DEFAULT)
    return "gpu", info.device_id, info.device_vendor_id


def bind_output(binding: Any, name: str, device: Any) -> None:
    """Asks for an output in new memory of a device at each run. ``IOBinding.bind_output`` takes no vendor, and means
    another's memory.

    Args:
        binding: An ``IOBinding`` of ONNX Runtime's.
        name: The output.
        device: One of ``get_devices``: the session's.

    Raises:
        What ``memory_of`` raises.
    """
    place = importlib.import_module("onnxruntime.capi.onnxruntime_pybind11_state").OrtDevice
    _, number, vendor = memory_of(device)
    binding._iobinding.bind_output(name, place(place.gpu(), place.default_memory(), vendor, number))


def _onnxruntime() -> Any:
    try:
        runtime = importlib.import_module("onnxruntime")
    except ImportError as error:
        raise MissingPackageError("dmlvk.ort is a provider of ONNX Runtime's: pip install onnxruntime") from error
    if not hasattr(runtime, "register_execution_provider_library"):
        wanted = f"dmlvk.ort needs ONNX Runtime 1.{_plugin.OLDEST} or newer, which loads plug-ins"
        raise RuntimeError(f"{wanted}; this is {runtime.__version__}")
    return runtime
