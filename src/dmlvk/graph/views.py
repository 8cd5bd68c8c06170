"""Views: how elements lie in memory, and other ways to see the same ones. All arithmetic of sizes and strides is here."""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from typing import NamedTuple

from dmlvk.spec.tensor import TensorDesc, packed_strides, reshaped_strides

Sizes = tuple[int, ...]


class View(NamedTuple):
    """Elements by their sizes and strides.

    Attributes:
        sizes: Elements a dimension; () is one element.
        strides: Elements (not bytes) between neighbours of a dimension, 0 for a broadcast one.
    """

    sizes: Sizes
    strides: Sizes

    @staticmethod
    def packed(sizes: Sequence[int]) -> View:
        """Row-major without gaps."""
        return View(tuple(sizes), packed_strides(sizes))

    @property
    def is_packed(self) -> bool:
        """Whether the elements lie row-major without gaps, as numpy's C order."""
        return all(
            size == 1 or stride == packed
            for size, stride, packed in zip(self.sizes, self.strides, packed_strides(self.sizes), strict=True)
        )

    @property
    def span(self) -> int:
        """Elements of memory from the first to the last, both included."""
        return 1 + sum((size - 1) * stride for size, stride in zip(self.sizes, self.strides, strict=True))

    def transposed(self, order: Sequence[int]) -> View:
        """The dimensions in another order: dimension i of the result is dimension order[i]."""
        return View(tuple(self.sizes[axis] for axis in order), tuple(self.strides[axis] for axis in order))

    def broadcast(self, sizes: Sequence[int]) -> View | None:
        """Over larger sizes by numpy's rule: aligned at the last dimension, stride 0 where repeated. None where the sizes
        do not match."""
        missing = len(sizes) - len(self.sizes)
        if missing < 0:
            return None
        strides = [0] * missing
        for own, full, stride in zip(self.sizes, sizes[missing:], self.strides, strict=True):
            if own != full and own != 1:
                return None
            strides.append(stride if own == full else 0)
        return View(tuple(sizes), tuple(strides))

    def reshaped(self, sizes: Sequence[int]) -> View | None:
        """The same elements in the same order under other sizes, of as many elements. None where strides cannot say it."""
        if 0 in sizes or self.is_packed:
            return View.packed(sizes)
        strides = reshaped_strides(self.sizes, self.strides, sizes)
        return None if strides is None else View(tuple(sizes), tuple(strides))

    def shortened(self, axis: int, size: int) -> View:
        """The first elements along a dimension."""
        return View((*self.sizes[:axis], size, *self.sizes[axis + 1 :]), self.strides)

    def is_same(self, other: View) -> bool:
        """Whether both show the same elements: the same sizes, and the same strides wherever there are neighbours."""
        return self.sizes == other.sizes and all(
            size == 1 or one == two for size, one, two in zip(self.sizes, self.strides, other.strides, strict=True)
        )

    def desc(self, tensor: TensorDesc) -> TensorDesc:
        """A tensor desc of this view: of the type of ``tensor``, without strides where it is packed."""
        return TensorDesc(tensor.data_type, self.sizes, None if self.is_packed else self.strides)


def broadcast_sizes(*shapes: Sequence[int]) -> Sizes | None:
    """The sizes that tensors of these have together, by numpy's rule; None where there are none."""
    sizes: list[int] = []
    for shape in shapes:
        missing = max(len(shape) - len(sizes), 0)
        sizes = [1] * missing + sizes
        for axis, size in enumerate(shape, len(sizes) - len(shape)):
            if size != 1 and sizes[axis] == 1:
                sizes[axis] = size
            elif size not in (1, sizes[axis]):
                return None
    return tuple(sizes)


def sizes_of(count: int, wanted: Sequence[object]) -> Sizes | None:
    """The sizes of as many elements that are wanted, one of which may be -1 for what is left. None where they are no whole
    numbers, or have another number of elements."""
    try:
        sizes = tuple(map(operator.index, wanted))  # type: ignore[arg-type]
    except TypeError:
        return None
    known = math.prod(size for size in sizes if size != -1)
    if sizes.count(-1) == 1 and known > 0 and count % known == 0:
        sizes = tuple(count // known if size == -1 else size for size in sizes)
    return sizes if math.prod(sizes) == count and min(sizes, default=0) >= 0 else None


def is_order(order: Sequence[object], rank: int) -> bool:
    """Whether each of so many dimensions is named once."""
    return len(order) == rank and all(order.count(axis) == 1 for axis in range(rank))


def view_of(tensor: TensorDesc) -> View:
    """The view of a tensor desc: its sizes and strides."""
    return View(tensor.sizes, tensor.effective_strides)


def seen_as(tensor: TensorDesc, sizes: Sequence[int]) -> TensorDesc | None:
    """The same elements in the same order under other sizes; None where strides cannot say it."""
    if math.prod(sizes) != math.prod(tensor.sizes):
        return None
    view = view_of(tensor).reshaped(sizes)
    return None if view is None else view.desc(tensor)


def same_elements(one: TensorDesc, other: TensorDesc) -> bool:
    """Whether two descs of one storage show the same elements in the same order, under whatever sizes."""
    if one.data_type != other.data_type:
        return False
    seen = seen_as(one, other.sizes)
    return seen is not None and view_of(seen).is_same(view_of(other))
