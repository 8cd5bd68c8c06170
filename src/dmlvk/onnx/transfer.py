"""Arrays as a tensor's bytes and back, and as tensors on a device and back. Bytes differ for 4-bit types: numpy has a byte
for each element, a tensor two elements in a byte, the first in the low half."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from dmlvk.directml.device import Device
from dmlvk.engine.device_array import DeviceArray
from dmlvk.onnx.model import FOUR_BITS, Array, data_type_of
from dmlvk.onnx.values import Sizes, packed_value
from dmlvk.spec.enums import TensorDataType
from dmlvk.spec.tensor import element_bits


def to_bytes(array: Array) -> Array:
    """What a tensor of the array's elements holds: contiguous."""
    if data_type_of(array.dtype) not in FOUR_BITS:
        return np.ascontiguousarray(array)
    halves = array.astype(np.int8).reshape(-1).view(np.uint8) & 15
    halves = np.pad(halves, (0, halves.size % 2))
    packed: Array = halves[0::2] | halves[1::2] << 4
    return packed


def empty(sizes: Sizes, dtype: np.dtype[Any]) -> Array:
    """An array for a tensor's bytes, which become elements with ``from_bytes``."""
    if data_type_of(dtype) not in FOUR_BITS:
        return np.empty(sizes, dtype)
    return np.empty(-(-math.prod(sizes) // 2), np.uint8)


def from_bytes(found: Array, sizes: Sizes, dtype: np.dtype[Any]) -> Array:
    """The elements in what ``empty`` made, once it is filled."""
    data_type = data_type_of(dtype)
    if data_type not in FOUR_BITS:
        return found
    halves = np.stack([found & 15, found >> 4], axis=-1).reshape(-1)[: math.prod(sizes)].astype(np.int8)
    numbers = (halves ^ 8) - 8 if data_type is TensorDataType.INT4 else halves
    return numbers.astype(dtype).reshape(sizes)


def empty_on_device(device: Device, sizes: Sizes, dtype: np.dtype[Any]) -> DeviceArray:
    """A packed tensor of undefined elements, of which there may be none."""
    data_type = data_type_of(dtype)
    assert data_type is not None, f"{dtype} came past the registry"
    buffer = device.create_buffer(max(packed_value(dtype, sizes).storage.nbytes, 4))
    return DeviceArray(device, buffer, data_type, sizes)


def to_device(device: Device, array: Array) -> DeviceArray:
    """The array as a packed tensor; it may have no elements."""
    target = empty_on_device(device, array.shape, array.dtype)
    target.buffer.write(to_bytes(array))
    return target


def from_device(array: DeviceArray, dtype: np.dtype[Any]) -> Array:
    """The elements of a tensor whose data type is that of this numpy type. Waits for them."""
    found = array.numpy()
    return found.astype(dtype) if array.data_type in FOUR_BITS else found.view(dtype)


def packed_bytes(array: DeviceArray) -> int:
    """Bytes of the elements of a packed array."""
    return -(-array.size * element_bits(array.data_type) // 8)
