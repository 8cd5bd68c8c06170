"""A call of an operator as a function: which arguments it has, and the desc that they make.

The functions of ``dmlvk.eager`` and of ``dmlvk.builder`` have the same arguments, told from the operator's row.
"""

from __future__ import annotations

import numbers
import operator
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from dmlvk.spec.enums import TensorDataType, member
from dmlvk.spec.errors import InvalidArgumentError
from dmlvk.spec.functions import AXES, OUTPUT_OPTIONS, function_name, input_fields, suggestion
from dmlvk.spec.schema import FieldKind, FieldSpec, OperatorDesc
from dmlvk.spec.tensor import TensorDesc, tensor_desc


class Arguments:
    """A call taken apart.

    Args:
        row: The operator.
        args, named: The arguments of the call.
        options: Arguments, beside the operator's own and those of outputs, that the caller knows, with their defaults.

    Attributes:
        row: The operator.
        operands: Input tensors in slot order, None where an optional one is absent.
        counts: The fields of the inputs, each with the number of its elements, None for a single tensor.
        attributes: The attributes by field.
        outputs, output_sizes, output_data_types: The options of outputs.
        options: The caller's, by name.

    Raises:
        TypeError: an argument that the function does not have, or one twice.
    """

    def __init__(
        self, row: type[OperatorDesc], args: tuple[Any, ...], named: dict[str, Any], options: Mapping[str, object]
    ) -> None:
        inputs = input_fields(row)
        allowed = {spec.name for spec in row.fields if not spec.kind.is_output}.union(OUTPUT_OPTIONS, options)
        if not allowed.issuperset(named):
            wrong = min(set(named) - allowed)
            raise TypeError(f"{function_name(row)}() has no argument {wrong!r}{suggestion(wrong, sorted(allowed))}")
        if len(args) > len(inputs):
            raise TypeError(
                f"{function_name(row)}() takes at most {len(inputs)} positional arguments, its tensors; got {len(args)}"
            )
        self.row = row
        self.outputs = _kept(named.pop("outputs", ()))
        self.output_sizes = _kept(named.pop("output_sizes", None))
        self.output_data_types = _kept(named.pop("output_data_types", None))
        self.options: dict[str, Any] = {name: named.pop(name, default) for name, default in options.items()}
        self.operands: list[Any] = []
        self.counts: list[tuple[FieldSpec, int | None]] = []
        for position, spec in enumerate(inputs):
            if position < len(args):
                value = args[position]
                if spec.name in named:
                    raise TypeError(f"{function_name(row)}() got {spec.name!r} twice: by position and by keyword")
            else:
                value = named.pop(spec.name, None)
            is_array = spec.kind is FieldKind.INPUT_TENSOR_ARRAY and value is not None
            if is_array and not isinstance(value, Iterable):
                name = f"{function_name(row)}.{spec.name}"
                raise InvalidArgumentError("must be a sequence of tensors", field=name, value=type(value))
            values = list(value) if is_array else [value]
            self.counts.append((spec, len(values) if is_array else None))
            self.operands += values
        self.attributes = {name: _attribute(value) for name, value in named.items()}

    def operand_name(self, index: int) -> str:
        """The argument that an operand came by."""
        names = [name for spec, count in self.counts for name in (spec.name,) * (1 if count is None else count)]
        return names[index]

    def describe(self, tensors: Iterable[TensorDesc | None]) -> OperatorDesc:
        """The operator desc of the call.

        Args:
            tensors: The descs of the operands, in their order.

        Raises:
            InvalidArgumentError: an output's sizes or data type cannot be inferred and are not given.
        """
        tensors = list(tensors)
        fields: dict[str, Any] = dict(self.attributes)
        if tensors and tensors[0] is not None:  # an operator's axes are those of its first tensor
            counted = AXES.keys() & fields.keys()
            fields |= {name: _from_zero(fields[name], AXES[name], tensors[0].dimension_count) for name in counted}
        rest = iter(tensors)
        for spec, count in self.counts:
            values = tuple(next(rest) for _ in range(1 if count is None else count))
            fields[spec.name] = values[0] if count is None else values
        desc = self.row(**fields)
        desc.validate_given()
        specs = [spec for spec in self.row.fields if spec.kind.is_output]
        known = [spec.name for spec in specs]
        if not isinstance(self.outputs, tuple) or not all(name in known for name in self.outputs):
            raise desc.error("outputs", f"must name outputs among {', '.join(known)}", self.outputs)

        wanted = [spec for spec in specs if not spec.optional or spec.name in self.outputs]
        sizes = self._sizes(desc, specs, wanted)
        types = self._data_types(desc, wanted, sizes)
        made: dict[str, Any] = {}
        for spec, own_sizes, own_types in zip(wanted, sizes, types, strict=True):
            pairs = zip(own_types, own_sizes, strict=True)
            descs = tuple(tensor_desc(data_type, size) for data_type, size in pairs)
            made[spec.name] = descs if spec.kind is FieldKind.OUTPUT_TENSOR_ARRAY else descs[0]
        return desc.replace(**made)

    def _sizes(self, desc: OperatorDesc, specs: list[FieldSpec], wanted: list[FieldSpec]) -> list[list[tuple[int, ...]]]:
        """The sizes of each wanted output field's tensors."""
        given = self.output_sizes
        if given is None:
            inferred = inferred_sizes(desc, specs)
            return [[inferred[specs.index(spec)]] for spec in wanted]
        try:
            entries = list(given)
            if all(isinstance(size, numbers.Integral) for size in entries):
                entries = [entries]
            sizes = [tuple(operator.index(size) for size in entry) for entry in entries]
        except TypeError:
            raise desc.error("output_sizes", "must be sizes, or a sequence of the sizes of each output", given) from None
        if len(wanted) == 1 and wanted[0].kind is FieldKind.OUTPUT_TENSOR_ARRAY:
            return [sizes]
        if len(sizes) != len(wanted):
            raise desc.error("output_sizes", "must have one entry for each output", len(sizes), len(wanted))
        return [[entry] for entry in sizes]

    def _data_types(
        self, desc: OperatorDesc, wanted: list[FieldSpec], sizes: list[list[tuple[int, ...]]]
    ) -> list[list[TensorDataType]]:
        """The data types of each wanted output field's tensors."""
        given = self.output_data_types
        if given is None:
            return [[inferred_data_type(desc, spec)] * len(own) for spec, own in zip(wanted, sizes, strict=True)]
        try:
            entries = [given] * sum(map(len, sizes)) if isinstance(given, numbers.Integral) else list(given)
            types = [member(TensorDataType, entry, "output_data_types") for entry in entries]
        except TypeError:
            raise desc.error("output_data_types", "must be a TensorDataType or a sequence of them", given) from None
        except InvalidArgumentError as error:
            raise desc.error("output_data_types", error.rule, error.value) from None
        if len(types) != sum(map(len, sizes)):
            raise desc.error("output_data_types", "must have one entry for each output", len(types), sum(map(len, sizes)))
        rest = iter(types)
        return [[next(rest) for _ in own] for own in sizes]


def _kept(value: Any) -> Any:
    """Whatever has elements as a tuple: it is read more than once, and told from others by its text."""
    value = _plain(value)
    return tuple(map(_kept, value)) if isinstance(value, Iterable) and not isinstance(value, str) else value


def _plain(value: Any) -> Any:
    return value.tolist() if isinstance(value, np.ndarray) else value


def _attribute(value: Any) -> Any:
    value = _plain(value)
    return tuple(value) if isinstance(value, Sequence) and not isinstance(value, str | tuple) else value


def _from_zero(value: Any, is_array: bool, rank: int) -> Any:
    """An axis or axes counted from 0, as operators have them; what is neither stays, for the row to refuse."""
    values = value if isinstance(value, tuple) else (value,)
    if not all(isinstance(axis, numbers.Integral) and not isinstance(axis, bool) for axis in values):
        return value
    axes = tuple(axis + rank if -rank <= axis < 0 else axis for axis in values)
    return axes if is_array or isinstance(value, tuple) else axes[0]


def inferred_sizes(desc: OperatorDesc, specs: list[FieldSpec]) -> tuple[tuple[int, ...], ...]:
    """Sizes of a desc's outputs, whose fields are ``specs``, told from its inputs.

    Raises:
        InvalidArgumentError: the inputs break a rule.
    """
    try:
        return desc.inferred_output_sizes()
    except InvalidArgumentError:
        raise
    except (AssertionError, ArithmeticError, LookupError, TypeError, ValueError):
        # Inference takes valid inputs for granted.
        _validate_inputs(desc, specs)
        raise


def inferred_data_type(desc: OperatorDesc, spec: FieldSpec) -> TensorDataType:
    """The data type of an output: the only one that the row's rules of equal data types leave, else the one that a field
    such as ``value_data_type`` names, else UINT8 of UINT8 and UINT32, which answers and counts may have.

    Raises:
        InvalidArgumentError: it must be given, or the inputs break a rule.
    """
    left = [data_type for data_type in spec.all_types if _may_have(desc, spec, data_type)]
    if len(left) == 1:
        return left[0]
    for field in desc.fields:
        if field.enumeration is TensorDataType:
            named: TensorDataType = getattr(desc, field.name)
            return named
    if set(left) == {TensorDataType.UINT8, TensorDataType.UINT32}:
        return TensorDataType.UINT8
    outputs = [own for own in desc.fields if own.kind.is_output]
    try:
        _validate_inputs(desc, outputs)
    except InvalidArgumentError as error:
        if error.field not in {own.dml_name for own in outputs}:  # those are guesses
            raise
    names = ", ".join(data_type.name for data_type in left or spec.all_types)
    raise desc.error("output_data_types", f"must be given, because {spec.dml_name} may be {names}", None)


def _may_have(desc: OperatorDesc, spec: FieldSpec, data_type: TensorDataType) -> bool:
    """Whether an output of the data type breaks no rule of equal data types."""
    output = TensorDesc(data_type, (1,))
    changed = desc.replace(**{spec.name: (output,) if spec.kind is FieldKind.OUTPUT_TENSOR_ARRAY else output})
    return not any(rule.label == "same_data_type" and rule.check(changed) for rule in desc.constraints)


def _validate_inputs(desc: OperatorDesc, outputs: list[FieldSpec]) -> None:
    """Raises the rule that a call breaks whose outputs cannot be told: validation with outputs of any kind finds it."""
    first = next((slot.tensor for slot in desc.input_slots()), None)
    sizes = (1,) if first is None else first.sizes
    guesses = {}
    for spec in outputs:
        data_type = next((item for item in spec.all_types if _may_have(desc, spec, item)), spec.all_types[0])
        guesses[spec.name] = tensor_desc(data_type, sizes)
    desc.replace(**guesses).validate()
