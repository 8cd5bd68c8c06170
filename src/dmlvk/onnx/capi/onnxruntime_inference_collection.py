"""The classes of sessions and tensors, where ONNX Runtime defines them."""

from dmlvk.onnx.iobinding import IOBinding
from dmlvk.onnx.ort_value import OrtDevice, OrtDeviceVendorId, OrtValue, copy_tensors
from dmlvk.onnx.session import InferenceSession

__all__ = ["IOBinding", "InferenceSession", "OrtDevice", "OrtDeviceVendorId", "OrtValue", "copy_tensors"]
