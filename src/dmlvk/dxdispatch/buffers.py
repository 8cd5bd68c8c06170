"""The resources of a model on a device."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from dmlvk.directml.device import Device
from dmlvk.dxdispatch.model import BindingSource
from dmlvk.dxdispatch.resources import BufferDesc
from dmlvk.engine.device_array import DeviceArray
from dmlvk.engine.numpy_types import data_type_of, dtype_of
from dmlvk.runtime.memory import Buffer, BufferBinding
from dmlvk.spec.enums import TensorDataType


class Buffers:
    """The buffers of a model, made and filled, and the arrays that dispatches leave in deferred resources.

    Args:
        device: The device.
        descs: The resources by name.

    Attributes:
        deferred: The arrays of deferred resources, as far as there are any.
    """

    def __init__(self, device: Device, descs: Mapping[str, BufferDesc]) -> None:
        self._device, self._descs = device, descs
        self._made: dict[str, Buffer] = {}
        self.deferred: dict[str, DeviceArray] = {}
        for name, desc in descs.items():
            if desc.content is not None:
                self._made[name] = buffer = device.create_buffer(desc.size_in_bytes)
                if desc.size_in_bytes > desc.content.nbytes:
                    buffer.write(np.zeros(desc.size_in_bytes, np.uint8))
                buffer.write(desc.content.make(), desc.offset)

    def is_deferred(self, source: BindingSource) -> bool:
        """Whether a dispatch is to make the resource."""
        return self._descs[source.resource].content is None

    def buffer(self, source: BindingSource) -> Buffer:
        """The buffer of a resource that is not deferred."""
        if self.is_deferred(source):
            source.place.refuse("must be a resource with initial values: only an ONNX model makes one", source.resource)
        return self._made[source.resource]

    def binding(self, source: BindingSource) -> BufferBinding:
        """The range from the element offset to the end of the resource."""
        buffer, content = self.buffer(source), self._descs[source.resource].content
        assert content is not None, "it is not deferred"
        known = content.data_type is not TensorDataType.UNKNOWN
        size = source.element_size or (dtype_of(content.data_type).itemsize if known else 0)
        offset = size * source.element_offset
        if offset > buffer.size_in_bytes:
            source.place.refuse(f"must begin inside the {buffer.size_in_bytes} bytes of its resource", offset)
        return BufferBinding(buffer, offset, buffer.size_in_bytes - offset)

    def content(self, source: BindingSource, *, trimmed: bool) -> npt.NDArray[Any]:
        """What a resource holds now, as elements of the type of its initial values: all of them, or without what lies behind
        as many as there were at the start."""
        desc = self._descs[source.resource]
        if desc.content is None:
            if source.resource not in self.deferred:
                source.place.refuse("must be a resource that a dispatch has made", source.resource)
            return self.deferred[source.resource].numpy()
        if desc.content.data_type is TensorDataType.UNKNOWN:
            source.place.refuse("must be a resource of one data type", source.resource)
        dtype = dtype_of(desc.content.data_type)
        nbytes = desc.content.nbytes if trimmed else desc.size_in_bytes
        return self._made[source.resource].read(nbytes // dtype.itemsize * dtype.itemsize).view(dtype)

    def raw(self, source: BindingSource) -> npt.NDArray[np.uint8]:
        """All bytes of a resource."""
        if self.is_deferred(source):
            return np.ascontiguousarray(self.content(source, trimmed=False)).reshape(-1).view(np.uint8)
        return self._made[source.resource].read()

    def array(self, source: BindingSource, dtype: np.dtype[Any], shape: tuple[int, ...]) -> DeviceArray:
        """The beginning of a resource as an array of a type and sizes."""
        if source.element_offset:
            source.place.refuse("an ONNX model's tensor must begin where its resource does", source.element_offset)
        buffer = self.buffer(source)
        nbytes = int(np.prod(shape, dtype=object)) * dtype.itemsize
        if nbytes > buffer.size_in_bytes:
            source.place.refuse(f"must have the {nbytes} bytes of {dtype} {shape}", buffer.size_in_bytes)
        return DeviceArray(self._device, buffer, data_type_of(dtype), shape, is_bool=dtype == np.bool_)
