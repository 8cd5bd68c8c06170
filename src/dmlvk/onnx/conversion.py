"""The object that a converter gets: its node's inputs and attributes, and ``launch``, which notes an operator to run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, Final

import numpy as np

from dmlvk.graph.step import Step, Storage
from dmlvk.graph.views import Sizes, broadcast_sizes
from dmlvk.onnx.limits import Limits
from dmlvk.onnx.model import Array, ElementKind, Node, data_type_of, kind_of
from dmlvk.onnx.node_facts import NodeFacts, invalid_axis
from dmlvk.onnx.shape_arithmetic import element_of, plain, records
from dmlvk.onnx.values import Operand, Postponed, Value, constant_value, packed_value
from dmlvk.spec import ops
from dmlvk.spec.errors import InvalidArgumentError
from dmlvk.spec.schema import OperatorDesc
from dmlvk.spec.size import Size

_FEW: Final = 8
"""Sizes that record of which a tensor is put together one by one."""


class Conversion(NodeFacts):
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
        super().__init__(node, kinds)
        self.steps: list[Step] = []
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
        return None if isinstance(value, Value) else value

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

    def reshape(self, value: Value, sizes: Sizes) -> Value:
        """The value under other sizes: a view, or a view of a copy where strides cannot say it."""
        if value.reshape(sizes) is None:
            value = self.copy(value)
        view = value.reshape(sizes)
        assert view is not None, "packed values take any sizes"
        return view

    def packed(self, value: Value) -> Value:
        """The value row-major: itself, or a copy."""
        return value if value.is_packed else self.copy(value)

    def copy(self, value: Value) -> Value:
        """A row-major copy."""
        return self.launch(ops.ElementWiseIdentity, value, output_tensor=self.new(value.sizes, value.dtype))

    def broadcast(self, *values: Value) -> tuple[Value, ...]:
        """The values over their common sizes, by numpy's rule."""
        sizes = broadcast_sizes(*(value.sizes for value in values))
        if sizes is None:
            rule = "the sizes of the inputs must broadcast: equal or 1, from the last dimension on"
            raise self.invalid(rule, [value.sizes for value in values])
        return tuple(value.broadcast_to(sizes) for value in values)

    # -- launches

    def elementwise(
        self, row: type[OperatorDesc], *values: Value, dtype: np.dtype[Any] | None = None, **fields: Any
    ) -> Value:
        """Launches an elementwise operator over the inputs' common sizes; the output has the first one's type unless
        ``dtype`` is given."""
        values = self.broadcast(*values)
        output = self.new(values[0].sizes, values[0].dtype if dtype is None else dtype)
        return self.launch(row, *values, output_tensor=output, **fields)

    def fill(self, sizes: Sizes, number: np.generic) -> Value:
        """A new tensor of one number, in the number's type."""
        data_type = data_type_of(number.dtype)
        if data_type is None:
            raise self.unsupported(f"a number has type {number.dtype}, which no device tensor can hold")
        y = self.new(sizes, number.dtype)
        value = int(number) if number.dtype.kind == "b" else number.item()
        return self.launch(ops.FillValueConstant, output_tensor=y, value_data_type=data_type, value=value)

    def recorded(self, array: Array) -> Value:
        """A new tensor of sizes that record; they are pinned where they are many and neither equal nor evenly spaced."""
        dtype, numbers = element_of(array), array.reshape(-1).tolist()
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

    def launch(self, row: type[OperatorDesc], *values: Value | None, **fields: Any) -> Value:
        """Notes an operator to run.

        Args:
            row: The operator.
            values: Its first input tensors in order.
            fields: Its other fields by name; tensors are Values. Required outputs that are not given are made with the
                sizes that the row infers and the type of the first input.

        Returns:
            The first output that there is.

        Raises:
            UnsupportedNodeError: the operator's row does not allow what the node needs.
        """
        names = [spec.name for spec in row.fields if spec.kind.is_input]
        fields.update(zip(names, values, strict=False))
        try:
            desc, tensors = self._describe(row, fields)
        except InvalidArgumentError as error:
            raise self.unsupported(str(error)) from error
        outputs = _slots(row, tensors, "is_output")
        first = next((value for value in outputs if value is not None), None)
        assert first is not None, f"{row.__name__} is launched for some output"
        if desc is not None:
            self.steps.append(Step(self.node, desc, _storages(_slots(row, tensors, "is_input")), _storages(outputs)))
        return first

    def _describe(self, row: type[OperatorDesc], fields: dict[str, Any]) -> tuple[OperatorDesc | None, dict[str, Any]]:
        """The validated desc, None if there is nothing to compute, and the row's tensor fields as Values."""
        given = [value for value in fields.values() if isinstance(value, Value)]
        slots = [spec for spec in row.fields if spec.kind.is_output]
        outputs = [spec.name for spec in slots if not spec.optional]
        missing = [name for name in outputs if name not in fields]
        first = next((fields.get(spec.name) for spec in row.fields if spec.kind.is_input), None)
        if missing and isinstance(first, Value) and 0 in first.sizes and _sized_as_first(row):
            return None, {**fields, **{name: self.new(first.sizes, given[0].dtype) for name in missing}}
        made = outputs or [spec.name for spec in slots]  # of a recurrent network none is required
        if any(0 in value.sizes for name in made for value in _values(fields.get(name))):
            return None, fields
        desc = row(**{name: _described(value) for name, value in fields.items()})
        if missing:
            names = (slot.field.name for slot in desc.output_slots())
            sizes = dict(zip(names, desc.inferred_output_sizes(), strict=True))
            fields = {**fields, **{name: self.new(sizes[name], given[0].dtype) for name in missing}}
            desc = desc.replace(**{name: fields[name].desc() for name in missing})
        desc.validate()
        return desc, fields


def _sized_as_first(row: type[OperatorDesc]) -> bool:
    """Whether the row's outputs have the sizes of its first input."""
    return row.inferred_output_sizes is OperatorDesc.inferred_output_sizes


def _values(field: Any) -> tuple[Value, ...]:
    """The values of a tensor field: of an array all, of an absent tensor none."""
    return field if isinstance(field, tuple) else () if field is None else (field,)


def _described(value: Any) -> Any:
    if isinstance(value, Value):
        return value.desc()
    return tuple(map(_described, value)) if type(value) is tuple else value  # a ScaleBias stays one


def _slots(row: type[OperatorDesc], tensors: dict[str, Any], wanted: str) -> tuple[Value | None, ...]:
    """The row's input or output tensors in slot order."""
    slots: list[Value | None] = []
    for spec in row.fields:
        if getattr(spec.kind, wanted):
            value = tensors.get(spec.name)
            slots += value if isinstance(value, tuple) else (value,)
    return tuple(slots)


def _storages(values: tuple[Value | None, ...]) -> tuple[Storage | None, ...]:
    return tuple(None if value is None else value.storage for value in values)
