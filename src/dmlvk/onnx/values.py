"""Device values as ONNX sees them: a type and a shape over a run of bytes, with strides so that views cost nothing."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dmlvk.engine.transfer import to_bytes
from dmlvk.graph.step import Storage
from dmlvk.graph.views import Sizes, View
from dmlvk.onnx.model import Array, data_type_of
from dmlvk.spec.enums import TensorDataType
from dmlvk.spec.tensor import TensorDesc, element_bits, packed_strides


@dataclass(frozen=True)
class Value:
    """A tensor on the device.

    Attributes:
        storage: Its bytes; it starts at their beginning.
        dtype: numpy's type of an element.
        sizes: ONNX's shape: () is a scalar, and a size may be 0.
        strides: Elements between neighbours of a dimension, 0 for a broadcast one.
    """

    storage: Storage
    dtype: np.dtype[Any]
    sizes: Sizes
    strides: Sizes

    @property
    def rank(self) -> int:
        """Number of dimensions."""
        return len(self.sizes)

    @property
    def view(self) -> View:
        """The sizes and strides of the elements."""
        return View(self.sizes, self.strides)

    @property
    def data_type(self) -> TensorDataType:
        """DirectML's type of an element."""
        data_type = data_type_of(self.dtype)
        assert data_type is not None, f"{self.dtype} came past the registry"
        return data_type

    @property
    def is_packed(self) -> bool:
        """Whether the elements lie row-major without gaps, as numpy's C order."""
        return self.view.is_packed

    def desc(self) -> TensorDesc:
        """The tensor desc; a scalar becomes one dimension of size 1."""
        if not self.sizes:
            return TensorDesc(self.data_type, (1,))
        return TensorDesc(self.data_type, self.sizes, None if self.is_packed else self.strides)

    def seen(self, view: View) -> Value:
        """The same bytes under another view."""
        return replace(self, sizes=view.sizes, strides=view.strides)

    def broadcast_to(self, sizes: Sizes) -> Value:
        """The value over larger sizes by numpy's rule, which it fits."""
        view = self.view.broadcast(sizes)
        assert view is not None, f"{self.sizes} does not broadcast to {sizes}"
        return self.seen(view)

    def transpose(self, permutation: Sequence[int]) -> Value:
        """The dimensions in another order: dimension i of the result is dimension permutation[i]."""
        return self.seen(self.view.transposed(permutation))

    def shorten(self, axis: int, size: int) -> Value:
        """The first elements along a dimension."""
        return self.seen(self.view.shortened(axis, size))

    def reinterpret(self, dtype: np.dtype[Any]) -> Value:
        """The same bytes as another type of the same size."""
        return replace(self, dtype=dtype)

    def reshape(self, sizes: Sizes) -> Value | None:
        """The same elements in the same order under other sizes, or None where strides cannot say that."""
        if math.prod(sizes) != math.prod(self.sizes):
            raise AssertionError(f"{self.sizes} has not as many elements as {sizes}")
        view = self.view.reshaped(sizes)
        return None if view is None else self.seen(view)


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
