"""The modules of ONNX Runtime's that scripts import names from, above all its exceptions."""

from dmlvk.onnx.capi import _pybind_state as _pybind_state
from dmlvk.onnx.capi import onnxruntime_inference_collection as onnxruntime_inference_collection
from dmlvk.onnx.capi import onnxruntime_pybind11_state as onnxruntime_pybind11_state
