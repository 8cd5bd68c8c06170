"""DirectMLX's tensor policies: how the tensors lie whose strides nobody names."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from dmlvk.spec.enums import TensorDataType, TensorFlags
from dmlvk.spec.tensor import TensorDesc, packed_strides


class TensorProperties(NamedTuple):
    """What a policy says of a tensor; the defaults are a packed tensor's."""

    strides: tuple[int, ...] | None = None
    total_tensor_size_in_bytes: int = 0
    guaranteed_base_offset_alignment: int = 0


class TensorPolicy:
    """A way to lay tensors out.

    Args:
        function: Gives the properties of a tensor of a data type, flags and sizes; packed where None. A size in bytes of 0
            is the least that holds the tensor.
    """

    def __init__(
        self, function: Callable[[TensorDataType, TensorFlags, Sequence[int]], TensorProperties] | None = None
    ) -> None:
        self._function = function

    def get(self, data_type: TensorDataType, flags: TensorFlags, sizes: Sequence[int]) -> TensorProperties:
        """The properties of a tensor."""
        return TensorProperties() if self._function is None else self._function(data_type, flags, sizes)

    def desc(self, data_type: TensorDataType, flags: TensorFlags, sizes: Sequence[int]) -> TensorDesc:
        """A tensor that lies so.

        Raises:
            InvalidArgumentError: a tensor cannot lie so.
        """
        strides, nbytes, alignment = self.get(data_type, flags, sizes)
        return TensorDesc(data_type, tuple(sizes), strides, nbytes, flags, alignment)

    @staticmethod
    def default() -> TensorPolicy:
        """Packed, the last dimension contiguous."""
        return TensorPolicy()

    @staticmethod
    def interleaved_channel() -> TensorPolicy:
        """Packed in the order (0, 2, ..., n, 1) of dimensions: an image's channels lie side by side."""
        return TensorPolicy(_interleaved)


def _interleaved(_: TensorDataType, __: TensorFlags, sizes: Sequence[int]) -> TensorProperties:
    if len(sizes) < 2:
        return TensorProperties()
    batch, channels, *spatial = sizes
    first, *rest, last = packed_strides((batch, *spatial, channels))
    return TensorProperties((first, last, *rest))
