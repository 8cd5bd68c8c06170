"""Arrays as a tensor's bytes and back, and as tensors on a device and back. Bytes differ for 4-bit types: numpy has a byte
for each element, a tensor two elements in a byte, the first in the low half."""

from __future__ import annotations

import math
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from dmlvk.engine.device_array import DeviceArray
from dmlvk.engine.four_bit import pack_half_bytes, unpack_half_bytes
from dmlvk.graph.views import Sizes
from dmlvk.runtime.device import ComputeDevice
from dmlvk.spec.enums import TensorDataType
from dmlvk.spec.tensor import element_bits

Array = npt.NDArray[Any]
_FOUR_BITS: Final = (TensorDataType.INT4, TensorDataType.UINT4)


def to_bytes(array: Array, data_type: TensorDataType | None) -> Array:
    """The bytes of a tensor with the array's elements: two elements a byte for a 4-bit type, else the array itself."""
    if data_type not in _FOUR_BITS:
        return array
    return pack_half_bytes(array.reshape(-1).view(np.uint8))


def empty(sizes: Sizes, data_type: TensorDataType, dtype: np.dtype[Any]) -> Array:
    """An array for a tensor's bytes, which become elements with ``from_bytes``."""
    if data_type not in _FOUR_BITS:
        return np.empty(sizes, dtype)
    return np.empty(-(-math.prod(sizes) // 2), np.uint8)


def from_bytes(found: Array, sizes: Sizes, data_type: TensorDataType, dtype: np.dtype[Any]) -> Array:
    """The elements in what ``empty`` made, once it is filled."""
    if data_type not in _FOUR_BITS:
        return found
    return _as(unpack_half_bytes(found, data_type)[: math.prod(sizes)], data_type, dtype).reshape(sizes)


def _as(found: Array, data_type: TensorDataType, dtype: np.dtype[Any]) -> Array:
    """Elements under another numpy type for the same data type: the bits, but of negative 4-bit numbers."""
    return found.astype(dtype) if data_type == TensorDataType.INT4 else found.view(dtype)


def tensor_bytes(sizes: Sizes, data_type: TensorDataType) -> int:
    """Bytes of a packed tensor's buffer: whole words, and one at least."""
    return max(-(-math.prod(sizes) * element_bits(data_type) // 32) * 4, 4)


def empty_on_device(device: ComputeDevice, sizes: Sizes, data_type: TensorDataType, is_bool: bool = False) -> DeviceArray:
    """A packed tensor of undefined elements, of which there may be none; of truth values, where it is to be of bool."""
    return DeviceArray(device, device.create_buffer(tensor_bytes(sizes, data_type)), data_type, sizes, is_bool=is_bool)


def to_device(device: ComputeDevice, array: Array, data_type: TensorDataType) -> DeviceArray:
    """The array as a packed tensor; it may have no elements."""
    target = empty_on_device(device, array.shape, data_type)
    target.buffer.write(np.ascontiguousarray(to_bytes(array, data_type)))
    return target


def from_device(array: DeviceArray, dtype: np.dtype[Any]) -> Array:
    """The elements of a tensor whose data type is that of this numpy type. Waits for them."""
    found = array.numpy()
    return _as(found, array.data_type, dtype)


def elements_bytes(sizes: Sizes, data_type: TensorDataType) -> int:
    """Bytes of the elements of a packed tensor, of which there may be none."""
    return -(-math.prod(sizes) * element_bits(data_type) // 8)


def packed_bytes(array: DeviceArray) -> int:
    """Bytes of the elements of a packed array."""
    return elements_bytes(array.shape, array.data_type)
