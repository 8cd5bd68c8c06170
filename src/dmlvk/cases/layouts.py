"""How a case's tensors lie in memory: the layouts that every case is crossed with, and guarded buffers to check them."""

from __future__ import annotations

import dataclasses
from typing import Any, Final

import numpy as np
from numpy.lib.stride_tricks import as_strided
from numpy.typing import NDArray

from dmlvk.cases.model import NUMPY_TYPES
from dmlvk.enums import TensorDataType
from dmlvk.tensor import TensorDesc

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
        data: The buffer's bytes.
    """

    def __init__(self, desc: TensorDesc, offset: int) -> None:
        self.desc = desc
        self.offset = _GUARD + offset
        self.data = np.full(self.offset + desc.total_tensor_size_in_bytes + _GUARD, _PATTERN, np.uint8)

    def view(self, data: NDArray[np.uint8] | None = None) -> NDArray[Any]:
        """The logical elements as a numpy view into ``data``, by default this buffer's."""
        return logical_view(self.desc, self.data if data is None else data, self.offset)

    def stray_bytes(self, data: NDArray[np.uint8]) -> int:
        """How many bytes outside the tensor's elements differ from the pattern in a buffer read back."""
        outside = np.ones(data.shape, bool)
        as_elements = logical_view(self.desc, outside.view(np.uint8), self.offset, as_bytes=True)
        as_elements[...] = 0
        return int(np.count_nonzero(data[outside] != _PATTERN))


def logical_view(desc: TensorDesc, data: NDArray[np.uint8], offset: int, *, as_bytes: bool = False) -> NDArray[Any]:
    """The tensor's elements in ``data`` from ``offset`` on: of its own type, or with its bytes as a last dimension."""
    kind = NUMPY_TYPES[desc.data_type]
    span = data[offset : offset + desc.total_tensor_size_in_bytes]
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
