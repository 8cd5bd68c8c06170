"""The other path of ``onnxruntime_pybind11_state``."""

from dmlvk.onnx.capi.onnxruntime_pybind11_state import *  # noqa: F403
