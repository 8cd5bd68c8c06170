"""The object that a converter gets: its node's inputs and attributes, and ``launch``, which notes an operator to run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, Final

import numpy as np

from dmlvk.engine.launches import Launches
from dmlvk.graph.views import Sizes
from dmlvk.onnx.limits import Limits
from dmlvk.onnx.model import Array, ElementKind, Node, data_type_of, kind_of
from dmlvk.onnx.node_facts import NodeFacts, invalid_axis
from dmlvk.onnx.shape_arithmetic import element_of, exact_whole_numbers, plain, records, whole_numbers
from dmlvk.onnx.values import Operand, Postponed, Value, constant_value, packed_value
from dmlvk.spec import ops
from dmlvk.spec.size import Size

_FEW: Final = 8
"""Sizes that record of which a tensor is put together one by one."""


class Conversion(NodeFacts, Launches[Value]):
    """One node being converted, with the shapes of its inputs known.

    Attributes:
        steps: The operators that have been launched for it so far.
    """

    def __init__(
        self,
        node: Node,
        inputs: Sequence[Operand | None],
        upload: Callable[[str, Array], Value],
        keep: Callable[[Node, Callable[[], Array]], Value],
        limits: Limits,
    ) -> None:
        kinds: dict[int, ElementKind | None] = {}
        for index, value in enumerate(inputs):
            if isinstance(value, Value | np.ndarray):
                kinds[index] = kind_of(value.dtype if isinstance(value, Value) else element_of(value))
        NodeFacts.__init__(self, node, kinds)
        Launches.__init__(self, node)
        self._inputs = inputs
        self._upload = upload
        self._keep = keep
        self._limits = limits

    def check_host_elements(self, elements: int) -> None:
        """Refuses the node where so many elements of a constant are too many for the host to make."""
        self._limits.check_host_elements(self.node, elements)

    # -- inputs

    @property
    def input_count(self) -> int:
        """Number of inputs, trailing absent ones not counted."""
        return max((i + 1 for i, value in enumerate(self._inputs) if value is not None), default=0)

    def __getitem__(self, index: int) -> Value:
        """A required input as a device tensor."""
        value = self.get(index)
        if value is None:
            raise self.invalid(f"input {index} must be given", None)
        return value

    def get(self, index: int) -> Value | None:
        """An optional input as a device tensor; None where it is absent."""
        value = self._inputs[index] if index < len(self._inputs) else None
        if value is None or isinstance(value, Value):
            return value
        if isinstance(value, Postponed):
            return value.device()
        return self.upload(value, self.node.inputs[index])

    def computed(self, index: int) -> bool:
        """Whether an optional input is there and not known before the run."""
        return index < len(self._inputs) and isinstance(self._inputs[index], Value)

    def host(self, index: int) -> Array | None:
        """An optional input that is known before the run; None where it is absent. The registry sees to it that the
        row's ``host_inputs`` are known."""
        value = self._inputs[index] if index < len(self._inputs) else None
        if isinstance(value, Postponed):
            return value.host()
        if value is None or isinstance(value, Value):
            return None
        return plain(value) if element_of(value).kind == "f" else value

    def dtype(self, index: int) -> np.dtype[Any]:
        """numpy's type for the elements of a required input."""
        value = self._inputs[index]
        return element_of(value) if isinstance(value, np.ndarray) else self[index].dtype

    def constant(self, index: int) -> Array | None:
        """A required input whose numbers are known whatever the sizes are; None for any other."""
        value = self._inputs[index]
        return value if isinstance(value, np.ndarray) and not records(value) else None

    def known(self, index: int) -> Array:
        """A required input that is known before the run."""
        value = self.host(index)
        if value is None:
            raise self.invalid(f"input {index} must be given", None)
        return value

    def size(self, index: int) -> int:
        """A required input of one element, which is a size that is known before the run. One that records still does."""
        (number,) = self.known(index).reshape(-1)
        return number if isinstance(number, Size) else int(number)

    def whole(self, index: int) -> int | None:
        """A required input of one float that is known before the run, where it is a whole number and one that the type holds
        with all between it and 0. It may be a size that records."""
        value = self._inputs[index]
        dtype = self.dtype(index)
        (number,) = (value if isinstance(value, np.ndarray) else self.known(index)).reshape(-1)
        if isinstance(number, Size):
            return number
        return int(number) if abs(number) <= exact_whole_numbers(dtype) and number == int(number) else None

    def axis(self, axis: int, rank: int) -> int:
        """An axis counted from the front."""
        if not -rank <= axis < rank:
            raise invalid_axis(self.node, axis, rank)
        return axis % rank

    # -- values

    def upload(self, array: Array, name: str = "") -> Value:
        """A host value as a device tensor: a constant of the plan, or the model's own where ``name`` says which."""
        dtype = element_of(array)
        if data_type_of(dtype) is None:
            raise self.unsupported(f"a constant has type {dtype}, which no device tensor can hold")
        return self._upload(name, array)

    def kept(self, initial: Callable[[], Array]) -> Value:
        """The node's tensor that outlives a run, one for the plans of all input sizes: ``initial`` makes what it holds at
        first. A launch may read it, and a later one write it for the next run."""
        return self._keep(self.node, initial)

    def new(self, sizes: Sizes, dtype: np.dtype[Any]) -> Value:
        """A tensor to be written by a launch."""
        return packed_value(dtype, sizes)

    def recorded(self, array: Array) -> Value:
        """A new tensor of sizes that record; they are pinned where they are many and neither equal nor evenly spaced."""
        dtype, numbers = element_of(array), array.reshape(-1).tolist()
        if dtype.kind == "f":
            return self.launch(
                ops.Cast,
                self.recorded(whole_numbers(numbers, np.dtype(np.int32), array.shape)),
                output_tensor=self.new(array.shape, dtype),
            )
        data_type = data_type_of(dtype)
        steps = [after - before for before, after in pairwise(numbers)] or [0]
        if not any(isinstance(step, Size) or step != steps[0] for step in steps):
            y = self.new(array.shape, dtype)
            fields = {"output_tensor": y, "value_data_type": data_type}
            if steps[0] == 0:
                return self.launch(ops.FillValueConstant, **fields, value=numbers[0])
            return self.launch(ops.FillValueSequence, **fields, value_start=numbers[0], value_delta=steps[0])
        if len(numbers) > _FEW:
            return constant_value(plain(array))
        pieces = tuple(
            self.launch(ops.FillValueConstant, output_tensor=self.new((1,), dtype), value_data_type=data_type, value=number)
            for number in numbers
        )
        joined = self.launch(ops.Join, input_tensors=pieces, output_tensor=self.new((len(numbers),), dtype), axis=0)
        return self.reshape(joined, array.shape)
