"""Operators noted as steps while a door converts its network, and the views and copies that they need."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Generic, TypeVar

import numpy as np

from dmlvk.engine.transfer import Array
from dmlvk.engine.values import Value
from dmlvk.graph.step import Origin, Step, Storage
from dmlvk.graph.views import Sizes, broadcast_sizes
from dmlvk.spec import ops
from dmlvk.spec.errors import DmlvkError, InvalidArgumentError, UnsupportedError
from dmlvk.spec.schema import OperatorDesc

V = TypeVar("V", bound=Value)
Range = tuple[int, int, int]
"""First element, elements and step along a dimension."""


class Launches(ABC, Generic[V]):
    """What a converter launches for a part of its network.

    Args:
        origin: The part.

    Attributes:
        steps: The operators that have been launched so far.
    """

    def __init__(self, origin: Origin) -> None:
        self._origin = origin
        self.steps: list[Step] = []

    # -- what a door says

    @abstractmethod
    def new(self, sizes: Sizes, dtype: np.dtype[Any]) -> V:
        """A tensor to be written by a launch."""

    @abstractmethod
    def unsupported(self, reason: str) -> UnsupportedError:
        """The exception for what this part asks for and dmlvk cannot do."""

    @abstractmethod
    def invalid(self, rule: str, value: object, expected: object = None) -> DmlvkError:
        """The exception for a part that no implementation could run."""

    @abstractmethod
    def upload(self, array: Array) -> V:
        """A constant as a device tensor."""

    # -- values

    def reshape(self, value: V, sizes: Sizes) -> V:
        """The value under other sizes: a view, or a view of a copy where strides cannot say it."""
        if value.reshape(sizes) is None:
            value = self.copy(value)
        view = value.reshape(sizes)
        assert view is not None, "packed values take any sizes"
        return view

    def packed(self, value: V) -> V:
        """The value row-major: itself, or a copy."""
        return value if value.is_packed else self.copy(value)

    def copy(self, value: V) -> V:
        """A row-major copy."""
        return self.launch(ops.ElementWiseIdentity, value, output_tensor=self.new(value.sizes, value.dtype))

    def broadcast(self, *values: V) -> tuple[V, ...]:
        """The values over their common sizes, by numpy's rule."""
        sizes = broadcast_sizes(*(value.sizes for value in values))
        if sizes is None:
            rule = "the sizes of the inputs must broadcast: equal or 1, from the last dimension on"
            raise self.invalid(rule, [value.sizes for value in values])
        return tuple(value.broadcast_to(sizes) for value in values)

    # -- launches

    def elementwise(self, row: type[OperatorDesc], *values: V, dtype: np.dtype[Any] | None = None, **fields: Any) -> V:
        """Launches an elementwise operator over the inputs' common sizes; the output has the first one's type unless
        ``dtype`` is given."""
        values = self.broadcast(*values)
        output = self.new(values[0].sizes, values[0].dtype if dtype is None else dtype)
        return self.launch(row, *values, output_tensor=output, **fields)

    def fill(self, sizes: Sizes, number: np.generic) -> V:
        """A new tensor of one number, in the number's type."""
        y = self.new(sizes, number.dtype)
        value = int(number) if number.dtype.kind == "b" else number.item()
        return self.launch(ops.FillValueConstant, output_tensor=y, value_data_type=y.data_type, value=value)

    def cast(self, value: V, dtype: np.dtype[Any]) -> V:
        """The value as another type that tensors have: a view where the bytes are the same, else one launch; two from a
        float to bool."""
        if dtype.kind == "b" and value.dtype.kind != "b":
            return self._truth(value)
        integers = value.dtype.kind in "biu" and dtype.kind in "biu"
        if value.dtype == dtype or (integers and value.dtype.itemsize == dtype.itemsize):
            return value.reinterpret(dtype)
        return self.elementwise(ops.Cast, value, dtype=dtype)

    def _truth(self, value: V) -> V:
        """1 where the value is not 0, else 0, by the bits, so that subnormal numbers and NaN are true on every device.
        Doubling the bits of a float drops its sign: -0 is 0 too."""
        bits = value.reinterpret(np.dtype(f"u{value.dtype.itemsize}"))
        if value.dtype.kind == "f":
            bits = self.elementwise(ops.ElementWiseAdd, bits, bits)
        zero = self.upload(np.zeros((), bits.dtype))
        return self.elementwise(ops.ElementWiseLogicalGreaterThan, bits, zero, dtype=np.dtype(np.bool_))

    def launch(self, row: type[OperatorDesc], *values: V | None, **fields: Any) -> V:
        """Notes an operator to run.

        Args:
            row: The operator.
            values: Its first input tensors in order.
            fields: Its other fields by name; tensors are Values. Required outputs that are not given are made with the
                sizes that the row infers and the type of the first input.

        Returns:
            The first output that there is.

        Raises:
            UnsupportedError: the operator's row does not allow what the node needs.
        """
        names = [spec.name for spec in row.fields if spec.kind.is_input]
        fields.update(zip(names, values, strict=False))
        try:
            desc, tensors = self._describe(row, fields)
        except InvalidArgumentError as error:
            raise self.unsupported(str(error)) from error
        outputs = _slots(row, tensors, "is_output")
        first: V | None = next((value for value in outputs if value is not None), None)
        assert first is not None, f"{row.__name__} is launched for some output"
        if desc is not None:
            self.steps.append(Step(self._origin, desc, _storages(_slots(row, tensors, "is_input")), _storages(outputs)))
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

    def sliced(self, x: V, ranges: Sequence[Range]) -> V:
        """The elements in the ranges: a view where they start with x's first and step forward, else a copy."""
        sizes = tuple(count for _, count, _ in ranges)
        if 0 in sizes:
            return self.new(sizes, x.dtype)
        if all(start == 0 and step > 0 for start, _, step in ranges):
            strides = tuple(own * step for own, (_, _, step) in zip(x.strides, ranges, strict=True))
            return replace(x, sizes=sizes, strides=strides)
        return self.launch(
            ops.Slice1,
            x,
            output_tensor=self.new(sizes, x.dtype),
            input_window_offsets=tuple(min(start, start + (count - 1) * step) for start, count, step in ranges),
            input_window_sizes=tuple((count - 1) * abs(step) + 1 for _, count, step in ranges),
            input_window_strides=tuple(step for _, _, step in ranges),
        )


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


def _slots(row: type[OperatorDesc], tensors: dict[str, Any], wanted: str) -> tuple[Any, ...]:
    """The row's input or output tensors in slot order, None for one that is absent."""
    slots: list[Any] = []
    for spec in row.fields:
        if getattr(spec.kind, wanted):
            value = tensors.get(spec.name)
            slots += value if isinstance(value, tuple) else (value,)
    return tuple(slots)


def _storages(values: tuple[Value | None, ...]) -> tuple[Storage | None, ...]:
    return tuple(None if value is None else value.storage for value in values)
