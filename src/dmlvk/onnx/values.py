"""Device values as ONNX sees them: a type and a shape over a run of bytes, with strides so that views cost nothing."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dmlvk.graph.step import Storage
from dmlvk.onnx.model import Array, data_type_of
from dmlvk.spec.tensor import TensorDesc, element_bits, packed_strides, reshaped_strides

Sizes = tuple[int, ...]


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
    def is_packed(self) -> bool:
        """Whether the elements lie row-major without gaps, as numpy's C order."""
        packed = packed_strides(self.sizes)
        return all(size == 1 or step == wanted for size, step, wanted in zip(self.sizes, self.strides, packed, strict=True))

    def desc(self) -> TensorDesc:
        """The tensor desc; a scalar becomes one dimension of size 1."""
        data_type = data_type_of(self.dtype)
        assert data_type is not None, f"{self.dtype} came past the registry"
        if not self.sizes:
            return TensorDesc(data_type, (1,))
        return TensorDesc(data_type, self.sizes, None if self.is_packed else self.strides)

    def broadcast_to(self, sizes: Sizes) -> Value:
        """The value over larger sizes by numpy's rule: aligned at the last dimension, stride 0 where repeated."""
        missing = len(sizes) - self.rank
        strides = tuple(
            0 if own == 1 and full != 1 else step
            for own, full, step in zip(self.sizes, sizes[missing:], self.strides, strict=True)
        )
        return replace(self, sizes=sizes, strides=(0,) * missing + strides)

    def transpose(self, permutation: Sequence[int]) -> Value:
        """The dimensions in another order: dimension i of the result is dimension permutation[i]."""
        return replace(
            self,
            sizes=tuple(self.sizes[axis] for axis in permutation),
            strides=tuple(self.strides[axis] for axis in permutation),
        )

    def shorten(self, axis: int, size: int) -> Value:
        """The first elements along a dimension."""
        return replace(self, sizes=(*self.sizes[:axis], size, *self.sizes[axis + 1 :]))

    def reinterpret(self, dtype: np.dtype[Any]) -> Value:
        """The same bytes as another type of the same size."""
        return replace(self, dtype=dtype)

    def reshape(self, sizes: Sizes) -> Value | None:
        """The same elements in the same order under other sizes, or None where strides cannot say that."""
        if math.prod(sizes) != math.prod(self.sizes):
            raise AssertionError(f"{self.sizes} has not as many elements as {sizes}")
        if self.is_packed or 0 in sizes:
            return replace(self, sizes=sizes, strides=packed_strides(sizes))
        strides = reshaped_strides(self.sizes, self.strides, sizes)
        return None if strides is None else replace(self, sizes=sizes, strides=strides)


def packed_value(dtype: np.dtype[Any], sizes: Sizes, constant: Array | None = None) -> Value:
    """A new value, row-major, in storage of its own."""
    data_type = data_type_of(dtype)
    bits = dtype.itemsize * 8 if data_type is None else element_bits(data_type)
    nbytes = -(-math.prod(sizes) * bits // 32) * 4
    return Value(Storage(nbytes, constant), dtype, sizes, packed_strides(sizes))


def constant_value(array: Array) -> Value:
    """A value known before the run, to be uploaded when a plan reads it."""
    return packed_value(array.dtype, array.shape, array)
