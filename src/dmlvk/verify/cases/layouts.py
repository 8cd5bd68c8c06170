"""Layouts of a case's tensors in memory, with which every case is crossed, and guarded buffers to check them."""

from __future__ import annotations

import dataclasses
from typing import Any, Final

import numpy as np
from numpy.lib.stride_tricks import as_strided
from numpy.typing import NDArray

from dmlvk.engine.four_bit import pack_half_bytes, unpack_half_bytes
from dmlvk.spec.enums import TensorDataType
from dmlvk.spec.tensor import TensorDesc, element_bits
from dmlvk.verify.cases.model import NUMPY_TYPES

LAYOUTS: Final = ("packed", "strided", "broadcast", "offset")
"""The layouts, but for in-place execution, which the runner adds for the inputs that a row allows."""

_GUARD: Final = 256
_PATTERN: Final = 0xA5


def strided(sizes: tuple[int, ...], turn: int) -> tuple[int, ...]:
    """Strides of a layout with the dimensions rotated by ``turn`` and a gap after each: nothing is contiguous."""
    count = len(sizes)
    order = [(axis + turn) % count for axis in range(count)]
    strides = [0] * count
    step = 1 + turn % 2
    for axis in reversed(order):
        strides[axis] = step
        step = step * sizes[axis] + 1 + (axis + turn) % 3
    return tuple(strides)


def broadcast(sizes: tuple[int, ...], turn: int) -> tuple[int, ...]:
    """Packed strides with one dimension, another for each tensor, broadcast by stride 0."""
    axis = turn % len(sizes)
    own = tuple(1 if index == axis else size for index, size in enumerate(sizes))
    strides = [1] * len(sizes)
    for index in range(len(sizes) - 2, -1, -1):
        strides[index] = strides[index + 1] * own[index + 1]
    strides[axis] = 0
    return tuple(strides)


class GuardedTensor:
    """A tensor's bytes in the middle of a larger buffer filled with a pattern, so that every stray write shows.

    Attributes:
        desc: The tensor.
        offset: Byte offset of the tensor in the buffer, a multiple of 16.
    """

    def __init__(self, desc: TensorDesc, offset: int) -> None:
        self.desc = desc
        self.offset = _GUARD + offset
        blank = np.full(self.offset + desc.total_tensor_size_in_bytes + _GUARD, _PATTERN, np.uint8)
        self._cells = self._split(blank)

    @property
    def data(self) -> NDArray[np.uint8]:
        """The buffer's bytes."""
        return pack_half_bytes(self._cells) if self._halved else self._cells

    def view(self, data: NDArray[np.uint8] | None = None) -> NDArray[Any]:
        """The logical elements as a numpy view into this buffer, or of ``data`` read back from it."""
        cells = self._cells if data is None else self._split(data)
        return logical_view(self.desc, cells, self.offset << self._halved)

    def stray_bytes(self, data: NDArray[np.uint8]) -> int:
        """The number of bytes outside the elements (half bytes for 4-bit elements) that differ in a buffer read back."""
        cells = self._split(data)
        outside = np.ones(cells.shape, bool)
        inside = logical_view(self.desc, outside.view(np.uint8), self.offset << self._halved, as_bytes=True)
        inside[...] = 0
        blank = self._split(np.full(data.shape, _PATTERN, np.uint8))
        return int(np.count_nonzero((cells != blank)[outside]))

    @property
    def _halved(self) -> bool:
        return element_bits(self.desc.data_type) == 4

    def _split(self, data: NDArray[np.uint8]) -> NDArray[Any]:
        return unpack_half_bytes(data, self.desc.data_type) if self._halved else data


def logical_view(desc: TensorDesc, data: NDArray[Any], offset: int, *, as_bytes: bool = False) -> NDArray[Any]:
    """The tensor's elements in ``data`` from ``offset`` on: of its own type, or with its bytes as a last dimension.

    4-bit elements have a byte each in ``data``.
    """
    kind = NUMPY_TYPES[desc.data_type]
    span = data[offset : offset + desc.total_tensor_size_in_bytes * (8 // min(element_bits(desc.data_type), 8))]
    strides = tuple(step * kind.itemsize for step in desc.effective_strides)
    if as_bytes:
        return as_strided(span, (*desc.sizes, kind.itemsize), (*strides, 1))
    return as_strided(span[: span.size // kind.itemsize * kind.itemsize].view(kind), desc.sizes, strides)


def place(data_type: TensorDataType, sizes: tuple[int, ...], layout: str, turn: int, *, is_output: bool) -> GuardedTensor:
    """A tensor laid out as named. ``turn`` tells the tensors of an operator apart, so that their layouts differ.

    Outputs are never broadcast: under "broadcast" they are packed.
    """
    strides: tuple[int, ...] | None = None
    if layout == "strided":
        strides = strided(sizes, turn)
    elif layout == "broadcast" and not is_output:
        strides = broadcast(sizes, turn)
    offset = 16 * (1 + 2 * turn) if layout == "offset" else 0
    return GuardedTensor(TensorDesc(data_type, sizes, strides), offset)


def unflagged(desc: TensorDesc) -> TensorDesc:
    """The packed tensor of the same type and sizes, which the oracle sees."""
    return dataclasses.replace(desc, strides=None, total_tensor_size_in_bytes=0)
