"""Values as ONNX sees them: tensors on the device, arrays of the host, and what is made late."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from dmlvk.engine import values
from dmlvk.engine.transfer import to_bytes
from dmlvk.graph.step import Storage
from dmlvk.graph.views import Sizes
from dmlvk.onnx.model import Array, data_type_of
from dmlvk.spec.enums import TensorDataType
from dmlvk.spec.tensor import element_bits, packed_strides


class Value(values.Value):
    """A tensor on the device, of any of ONNX's types."""

    @property
    def data_type(self) -> TensorDataType:
        """DirectML's type of an element; of a format that of its bits."""
        data_type = data_type_of(self.dtype)
        assert data_type is not None, f"{self.dtype} came past the registry"
        return data_type


class Postponed:
    """A tensor that follows from shapes, of which its length or its choice records: the host has it for the sizes of this
    trace only, the device makes it for any. It is made where it is first needed.

    Attributes:
        host: What it is for these sizes, which are pinned.
        device: The tensor on the device.
    """

    def __init__(self, host: Callable[[], Array], device: Callable[[], Value]) -> None:
        self.host, self.device = functools.cache(host), functools.cache(device)


Operand = Value | Array | Postponed
"""A value that a node reads."""


def packed_value(dtype: np.dtype[Any], sizes: Sizes, constant: Array | None = None) -> Value:
    """A new value, row-major, in storage of its own."""
    data_type = data_type_of(dtype)
    bits = dtype.itemsize * 8 if data_type is None else element_bits(data_type)
    nbytes = -(-math.prod(sizes) * bits // 32) * 4
    return Value(Storage(nbytes, constant), dtype, sizes, packed_strides(sizes))


def constant_value(array: Array) -> Value:
    """A value known before the run, to be uploaded when a compiled graph reads it."""
    return packed_value(array.dtype, array.shape, to_bytes(array, data_type_of(array.dtype)))
