"""Tensors of a network under conversion: a type and sizes over a run of bytes, with strides so that views cost nothing."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np

from dmlvk.engine.numpy_types import data_type_of
from dmlvk.graph.step import Storage
from dmlvk.graph.views import Sizes, View
from dmlvk.spec.enums import TensorDataType
from dmlvk.spec.tensor import TensorDesc


@dataclass(frozen=True)
class Value:
    """A tensor on the device.

    Attributes:
        storage: Its bytes; it starts at their beginning.
        dtype: numpy's type of an element.
        sizes: Elements a dimension: () is a single element, and a size may be 0.
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
        return data_type_of(self.dtype)

    @property
    def is_packed(self) -> bool:
        """Whether the elements lie row-major without gaps, as numpy's C order."""
        return self.view.is_packed

    def desc(self) -> TensorDesc:
        """The tensor desc; a scalar becomes one dimension of size 1."""
        if not self.sizes:
            return TensorDesc(self.data_type, (1,))
        return TensorDesc(self.data_type, self.sizes, None if self.is_packed else self.strides)

    def seen(self, view: View) -> Self:
        """The same bytes under another view."""
        return replace(self, sizes=view.sizes, strides=view.strides)

    def broadcast_to(self, sizes: Sizes) -> Self:
        """The value over larger sizes by numpy's rule, which it fits."""
        view = self.view.broadcast(sizes)
        assert view is not None, f"{self.sizes} does not broadcast to {sizes}"
        return self.seen(view)

    def transpose(self, permutation: Sequence[int]) -> Self:
        """The dimensions in another order: dimension i of the result is dimension permutation[i]."""
        return self.seen(self.view.transposed(permutation))

    def shorten(self, axis: int, size: int) -> Self:
        """The first elements along a dimension."""
        return self.seen(self.view.shortened(axis, size))

    def reinterpret(self, dtype: np.dtype[Any]) -> Self:
        """The same bytes as another type of the same size."""
        return replace(self, dtype=dtype)

    def reshape(self, sizes: Sizes) -> Self | None:
        """The same elements in the same order under other sizes, or None where strides cannot say that."""
        if math.prod(sizes) != math.prod(self.sizes):
            raise AssertionError(f"{self.sizes} has not as many elements as {sizes}")
        view = self.view.reshaped(sizes)
        return None if view is None else self.seen(view)
