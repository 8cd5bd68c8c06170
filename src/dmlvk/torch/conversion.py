"""The object that a converter gets: what PyTorch knows of its node's outputs, and ``launch``, which notes an operator."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch

from dmlvk.engine.launches import Launches
from dmlvk.engine.numpy_types import data_type_of
from dmlvk.engine.trace import Spec
from dmlvk.engine.transfer import Array, tensor_bytes
from dmlvk.engine.values import Value
from dmlvk.graph.step import Storage
from dmlvk.graph.views import Sizes
from dmlvk.spec.errors import InvalidArgumentError, UnsupportedError
from dmlvk.spec.tensor import packed_strides
from dmlvk.torch.types import computed_as, torchs

Number = bool | int | float


class Part(NamedTuple):
    """A node of a graph of PyTorch's, as errors and reports name it.

    Attributes:
        name: The node's name.
        op_type: Its operator, such as "aten.add.Tensor".
    """

    name: str
    op_type: str


def packed_value(dtype: np.dtype[Any], sizes: Sizes, constant: Array | None = None) -> Value:
    """A new value, row-major, in storage of its own."""
    return Value(Storage(tensor_bytes(sizes, data_type_of(dtype)), constant), dtype, sizes, packed_strides(sizes))


class Conversion(Launches[Value]):
    """One node being converted.

    Args:
        part: The node.
        results: numpy's type and the sizes of each output, as PyTorch has worked them out.
        random_bits: Gives new random words of some sizes.

    Attributes:
        part: As given.
        results: As given.
    """

    def __init__(self, part: Part, results: Sequence[Spec], random_bits: Callable[[Conversion, Sizes], Value]) -> None:
        super().__init__(part)
        self.part = part
        self.results = tuple(results)
        self._random_bits = random_bits

    @property
    def sizes(self) -> Sizes:
        """The sizes of the first output."""
        return self.results[0][1]

    @property
    def dtype(self) -> np.dtype[Any]:
        """numpy's type of the first output; float32 for bfloat16."""
        return self.results[0][0]

    def random_bits(self, sizes: Sizes) -> Value:
        """New random words, uint32: others at each run, the same ones after the same ``torch.manual_seed``."""
        return self._random_bits(self, sizes)

    # -- what Launches asks for

    def new(self, sizes: Sizes, dtype: np.dtype[Any]) -> Value:
        return packed_value(dtype, sizes)

    def upload(self, array: Array) -> Value:
        return packed_value(array.dtype, array.shape, array)

    def unsupported(self, reason: str) -> UnsupportedError:
        return unsupported(self.part, reason)

    def invalid(self, rule: str, value: object, expected: object = None) -> InvalidArgumentError:
        return InvalidArgumentError(rule, operator=self.part.op_type, field=self.part.name, value=value, expected=expected)

    # -- operands

    def tensor(self, operand: Value | Number, dtype: np.dtype[Any] | None = None) -> Value:
        """A tensor or a number as a tensor, of another type where one is given."""
        if isinstance(operand, Value):
            return operand if dtype is None else self.cast(operand, dtype)
        return self.upload(np.array(operand, dtype))

    def promoted(self, *operands: Value | Number) -> tuple[Value, ...]:
        """Tensors and numbers in the type that PyTorch computes with, as its rules have it: a number, or a tensor without
        dimensions, changes the type only where it is of a higher category."""
        dtype = common_type(operands)
        return tuple(self.tensor(operand, dtype) for operand in operands)


def common_type(operands: Sequence[Value | Number]) -> np.dtype[Any]:
    """The type in which PyTorch computes with operands."""
    tensors = [torchs(item.dtype) for item in operands if isinstance(item, Value) and item.rank]
    scalars = [torchs(item.dtype) for item in operands if isinstance(item, Value) and not item.rank]
    numbers = [
        torch.bool if isinstance(item, bool) else torch.get_default_dtype() if isinstance(item, float) else torch.int64
        for item in operands
        if not isinstance(item, Value)
    ]
    found: torch.dtype | None = None
    for group in (tensors, scalars, numbers):
        own: torch.dtype | None = None
        for dtype in group:
            own = dtype if own is None else torch.promote_types(own, dtype)
        if own is not None and (found is None or _category(own) > _category(found)):
            found = own
    assert found is not None, "there are operands"
    return computed_as(found)


def _category(dtype: torch.dtype) -> int:
    return 2 if dtype.is_floating_point else 0 if dtype is torch.bool else 1


def unsupported(part: Part, reason: str) -> UnsupportedError:
    """The exception for what a node asks for and dmlvk cannot do."""
    return UnsupportedError(f"{part.op_type} (node {part.name!r}): {reason}")
