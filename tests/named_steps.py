"""Steps for the tests of passes, by the names of what they make."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import numpy as np

from dmlvk.graph.passes import PASSES, optimized
from dmlvk.graph.step import Step, Storage
from dmlvk.spec.enums import TensorDataType
from dmlvk.spec.schema import OperatorDesc
from dmlvk.spec.tensor import TensorDesc, packed_strides

F32, U8 = TensorDataType.FLOAT32, TensorDataType.UINT8
SIZES, NUMBER = (2, 4, 5, 6), (1, 1, 1, 1)


class Steps:
    """Steps by the names of what they make: ``steps.add(ops.ElementWiseAdd, "x y", "sum")``."""

    def __init__(self, data_type: TensorDataType = F32) -> None:
        self.data_type = data_type
        self.storages: dict[str, Storage] = {}
        self.sizes: dict[str, tuple[int, ...]] = {}
        self.types: dict[str, TensorDataType] = {}
        self.steps: list[Step] = []

    def tensor(self, name: str, sizes: Sequence[int] = SIZES, data_type: TensorDataType | None = None) -> Steps:
        """A tensor that comes from outside."""
        self.sizes[name], self.types[name] = tuple(sizes), data_type or self.data_type
        self.storages[name] = Storage(TensorDesc(self.types[name], tuple(sizes)).total_tensor_size_in_bytes)
        return self

    def constant(self, name: str, value: float) -> Steps:
        """A number."""
        self.tensor(name, NUMBER)
        dtype = np.float32 if self.data_type is F32 else np.float16
        self.storages[name].constant = np.full(4 // np.dtype(dtype).itemsize, value, dtype)
        return self

    def seen(self, name: str, sizes: Sequence[int]) -> TensorDesc:
        """A tensor, broadcast to sizes or under others of as many elements."""
        own = self.sizes[name]
        if int(np.prod(own)) == int(np.prod(sizes)):
            return TensorDesc(self.types[name], tuple(sizes))
        steps = zip(own, sizes, packed_strides(own), strict=True)
        return TensorDesc(self.types[name], tuple(sizes), tuple(0 if one != size else step for one, size, step in steps))

    def add(
        self, row: type[OperatorDesc], inputs: str, output: str, *, sizes: Sequence[int] = SIZES, **fields: Any
    ) -> Steps:
        """An operator."""
        names = [field.name for field in row.fields if field.kind.is_tensor]
        types = next(field.data_types for field in row.fields if field.kind.is_output)
        self.tensor(output, sizes, self.data_type if self.data_type in types else U8)
        operands = inputs.split()
        tensors = [*(self.seen(name, sizes) for name in operands), self.seen(output, sizes)]
        desc = row(**dict(zip(names, tensors, strict=True)), **fields)
        desc.validate()
        step = Step(output, desc, tuple(self.storages[name] for name in operands), (self.storages[output],))
        self.steps.append(step)
        return self

    def optimized(self, *outputs: str, passes: Collection[str]) -> tuple[Step, ...]:
        """The steps after some passes."""
        without = [item.name for item in PASSES if item.name not in passes]
        return optimized(self.steps, [self.storages[name] for name in outputs], without=without)
