"""One function for each operator that has kernels: numpy in, numpy out.

``dmlvk.eager.element_wise_add(a, b)`` describes, compiles (once for each distinct call), binds, runs and reads back.
The functions are made from the operator table when they are first asked for:

- The name is the operator's in snake case: ``mean_variance_normalization1``, ``roi_align``.
- Input tensors come first, in the specification's order, None where an optional one is absent. All other fields are
  keywords of the same name as in the operator's class.
- ``outputs`` names optional outputs that are wanted as well. ``output_sizes`` and ``output_data_types`` say what the
  operator cannot infer: one entry for each output that is wanted, or a single one.
- An output's data type is inferred where the operator's rules tie it to that of an input or an attribute. Comparisons,
  predicates and counts of bits, which may be UINT8 or UINT32, are UINT8, numpy's size of a bool. ``cast`` must be told.
- One output is returned as it is, several as a tuple.
- Arrays may have any strides. They become the tensor's strides, and the bytes between an array's first and last
  element are uploaded once: a broadcast array stays as small as it is. Only negative strides, and strides that are no
  multiple of the element, cost a packed copy. An array without dimensions is a tensor of the sizes {1}; bool is UINT8.
- ``DeviceArray`` in gives ``DeviceArray`` out, without waiting; with numpy and device arrays mixed, too.
- numpy has no 4-bit types: as outputs their numbers come as int8 or uint8, inputs are given as ``DeviceArray``.

An invalid call raises the same typed error as the operator's desc would.
"""

from __future__ import annotations

import collections
import inspect
import numbers
import operator
import threading
from collections.abc import Callable
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from dmlvk.array import DeviceArray, data_type_of, dtype_of, element_strides, memory_span
from dmlvk.enums import TensorDataType
from dmlvk.errors import InvalidArgumentError, StateError
from dmlvk.execution.binding import BindingTable, BufferBinding
from dmlvk.execution.device import Device, default_device
from dmlvk.execution.direct import initialize
from dmlvk.execution.operator import CompiledOperator
from dmlvk.kernels.lowering.registry import has_kernels
from dmlvk.runtime.memory import Purpose
from dmlvk.schema import REGISTRY, FieldKind, FieldSpec, OperatorDesc
from dmlvk.tensor import TensorDesc, element_bits

_CACHED_CALLS: Final = 512
_OPTIONS: Final = ("outputs", "output_sizes", "output_data_types", "device")

Operand = npt.NDArray[Any] | DeviceArray | None


class _Upload(NamedTuple):
    """How a numpy array of a call becomes a tensor.

    Attributes:
        strides: Its own in elements, None where it is made packed first.
        contiguous: Whether it is packed already.
        nbytes: Of the tensor.
    """

    strides: tuple[int, ...] | None
    contiguous: bool
    nbytes: int


class _Output(NamedTuple):
    """An output slot in use."""

    data_type: TensorDataType
    dtype: np.dtype[Any]
    sizes: tuple[int, ...]
    nbytes: int


class _Prepared(NamedTuple):
    """All that calls of the same operator, attributes, shapes and strides share."""

    compiled: CompiledOperator
    uploads: tuple[_Upload | None, ...]
    outputs: tuple[_Output | None, ...]
    temporary_bytes: int
    persistent: BufferBinding | None


class _Cache:
    """The prepared calls of one device, the least recently used one dropped first."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._calls: collections.OrderedDict[object, _Prepared] = collections.OrderedDict()

    def get(self, key: object) -> _Prepared | None:
        """What is prepared for the key."""
        with self._lock:
            found = self._calls.get(key)
            if found is not None:
                self._calls.move_to_end(key)
            return found

    def put(self, key: object, prepared: _Prepared) -> None:
        """Keeps it."""
        with self._lock:
            self._calls[key] = prepared
            if len(self._calls) > _CACHED_CALLS:
                self._calls.popitem(last=False)


class _Call:
    """A call taken apart: operands by field, attributes, options."""

    def __init__(
        self, row: type[OperatorDesc], inputs: tuple[FieldSpec, ...], args: tuple[Any, ...], named: dict[str, Any]
    ) -> None:
        if len(args) > len(inputs):
            raise TypeError(f"{_function_name(row)}() takes {len(inputs)} tensors, got {len(args)}")
        self.row = row
        self.outputs = named.pop("outputs", ())
        self.output_sizes = named.pop("output_sizes", None)
        self.output_data_types = named.pop("output_data_types", None)
        device = named.pop("device", None)
        self.operands: list[Operand] = []
        self.counts: list[tuple[FieldSpec, int | None]] = []
        for position, spec in enumerate(inputs):
            if position < len(args):
                value = args[position]
                if spec.name in named:
                    raise TypeError(f"{_function_name(row)}() got {spec.name} twice")
            else:
                value = named.pop(spec.name, None)
            is_array = spec.kind is FieldKind.INPUT_TENSOR_ARRAY and value is not None
            values = list(value) if is_array else [value]
            self.counts.append((spec, len(values) if is_array else None))
            self.operands += map(_operand, values)
        self.attributes = {name: _attribute(value) for name, value in named.items()}
        self.on_device = any(isinstance(operand, DeviceArray) for operand in self.operands)
        self.device = self._device(device)

    def _device(self, wanted: Device | None) -> Device:
        device = wanted
        for operand in self.operands:
            if isinstance(operand, DeviceArray):
                if device is not None and operand.device is not device:
                    raise StateError(f"operands and device differ: {operand.device} and {device}")
                device = operand.device
        return default_device() if device is None else device

    def key(self) -> tuple[object, ...]:
        """Equal for calls that can share what is prepared. Attributes by their text: 0.0 is not -0.0, nor 1 True."""
        return (
            self.row,
            tuple([count for _, count in self.counts]),
            tuple([_operand_key(operand) for operand in self.operands]),
            repr((self.attributes, self.outputs, self.output_sizes, self.output_data_types)),
        )

    def describe(self) -> OperatorDesc:
        """The operator desc of the call.

        Raises:
            InvalidArgumentError: an output's sizes or data type cannot be inferred and are not given.
        """
        fields: dict[str, Any] = dict(self.attributes)
        tensors = iter([_tensor_desc(operand) for operand in self.operands])
        for spec, count in self.counts:
            values = tuple(next(tensors) for _ in range(1 if count is None else count))
            fields[spec.name] = values[0] if count is None else values
        desc = self.row(**fields)
        specs = [spec for spec in self.row.fields if spec.kind.is_output]
        unknown = set(self.outputs) - {spec.name for spec in specs}
        if unknown:
            known = ", ".join(spec.name for spec in specs)
            raise desc.error("outputs", f"names outputs among {known}", sorted(unknown))

        wanted = [spec for spec in specs if not spec.optional or spec.name in self.outputs]
        sizes = self._sizes(desc, specs, wanted)
        types = self._data_types(desc, wanted, sizes)
        made: dict[str, Any] = {}
        for spec, own_sizes, own_types in zip(wanted, sizes, types, strict=True):
            pairs = zip(own_types, own_sizes, strict=True)
            descs = tuple(TensorDesc(data_type, size) for data_type, size in pairs)
            made[spec.name] = descs if spec.kind is FieldKind.OUTPUT_TENSOR_ARRAY else descs[0]
        return desc.replace(**made)

    def _sizes(self, desc: OperatorDesc, specs: list[FieldSpec], wanted: list[FieldSpec]) -> list[list[tuple[int, ...]]]:
        """For each wanted output field the sizes of its tensors."""
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
            raise desc.error("output_sizes", "is sizes, or a sequence of the sizes of each output", given) from None
        if len(wanted) == 1 and wanted[0].kind is FieldKind.OUTPUT_TENSOR_ARRAY:
            return [sizes]
        if len(sizes) != len(wanted):
            raise desc.error("output_sizes", f"one entry for each of {len(wanted)} outputs", given)
        return [[entry] for entry in sizes]

    def _data_types(
        self, desc: OperatorDesc, wanted: list[FieldSpec], sizes: list[list[tuple[int, ...]]]
    ) -> list[list[TensorDataType]]:
        """For each wanted output field the data types of its tensors."""
        given = self.output_data_types
        if given is None:
            return [[inferred_data_type(desc, spec)] * len(own) for spec, own in zip(wanted, sizes, strict=True)]
        try:
            entries = [given] * sum(map(len, sizes)) if isinstance(given, int) else list(given)
            types = [TensorDataType(entry) for entry in entries]
        except (TypeError, ValueError):
            raise desc.error("output_data_types", "is a TensorDataType or a sequence of them", given) from None
        if len(types) != sum(map(len, sizes)):
            raise desc.error("output_data_types", "one entry, or one for each output", given)
        rest = iter(types)
        return [[next(rest) for _ in own] for own in sizes]


def _input_fields(row: type[OperatorDesc]) -> tuple[FieldSpec, ...]:
    return tuple(spec for spec in row.fields if spec.kind.is_input)


def _operand(value: Any) -> Operand:
    if value is None or isinstance(value, DeviceArray):
        return value
    return np.asarray(value)


def _operand_key(operand: Operand) -> object:
    if operand is None:
        return None
    if isinstance(operand, DeviceArray):
        return ("on device", operand.data_type, operand.shape, operand.strides)
    return (operand.dtype, operand.shape, operand.strides)


def _attribute(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        value = value.tolist()
    return tuple(value) if isinstance(value, list) else value


def _tensor_desc(operand: Operand) -> TensorDesc | None:
    if operand is None:
        return None
    if isinstance(operand, DeviceArray):
        return operand.desc
    strides = None if operand.flags.c_contiguous else element_strides(operand)
    return TensorDesc(data_type_of(operand.dtype), operand.shape or (1,), strides)


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
    left = [data_type for data_type in spec.data_types if _may_have(desc, spec, data_type)]
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
    names = ", ".join(data_type.name for data_type in left or spec.data_types)
    raise desc.error("output_data_types", f"is given: {spec.dml_name} may be {names}", None)


def _may_have(desc: OperatorDesc, spec: FieldSpec, data_type: TensorDataType) -> bool:
    """Whether an output of the data type breaks no rule of equal data types."""
    output = TensorDesc(data_type, (1,))
    changed = desc.replace(**{spec.name: (output,) if spec.kind is FieldKind.OUTPUT_TENSOR_ARRAY else output})
    return not any(rule.label == "same_data_type" and rule.check(changed) for rule in desc.constraints)


def _validate_inputs(desc: OperatorDesc, outputs: list[FieldSpec]) -> None:
    """Raises the rule that a call breaks whose outputs cannot be told: validation with outputs of any kind finds it."""
    slots = desc.input_slots()
    if not slots:
        return
    sizes = (1,) if slots[0].tensor is None else slots[0].tensor.sizes
    guesses = {}
    for spec in outputs:
        data_type = next((item for item in spec.data_types if _may_have(desc, spec, item)), spec.data_types[0])
        guesses[spec.name] = TensorDesc(data_type, sizes)
    desc.replace(**guesses).validate()


def _prepare(call: _Call) -> _Prepared:
    device = call.device
    desc = call.describe()
    compiled = device.compile_operator(device.create_operator(desc))
    properties = compiled.get_binding_properties()
    persistent = initialize(device, compiled)

    uploads: list[_Upload | None] = []
    for operand, slot in zip(call.operands, desc.input_slots(), strict=True):
        if slot.tensor is None or not isinstance(operand, np.ndarray):
            uploads.append(None)
        else:
            contiguous = operand.flags.c_contiguous
            uploads.append(_Upload(element_strides(operand), contiguous, slot.tensor.total_tensor_size_in_bytes))
    outputs = [_output(slot.tensor) for slot in desc.output_slots()]
    return _Prepared(compiled, tuple(uploads), tuple(outputs), properties.temporary_resource_size, persistent)


def _output(tensor: TensorDesc | None) -> _Output | None:
    if tensor is None:
        return None
    return _Output(tensor.data_type, dtype_of(tensor.data_type), tensor.sizes, tensor.total_tensor_size_in_bytes)


def _binding(device: Device, operand: Operand, upload: _Upload | None) -> BufferBinding | None:
    if operand is None:
        return None
    if isinstance(operand, DeviceArray):
        return operand.binding()
    assert upload is not None, "prepared for a numpy array here"
    buffer = device.create_buffer(upload.nbytes)
    if upload.contiguous:
        buffer.write(operand)
    elif upload.strides is None:
        buffer.write(np.ascontiguousarray(operand))
    else:
        buffer.write(memory_span(operand, upload.strides))
    return BufferBinding(buffer)


def _run(call: _Call, prepared: _Prepared) -> Any:
    device, compiled = call.device, prepared.compiled
    table = BindingTable(device, compiled)
    pairs = zip(call.operands, prepared.uploads, strict=True)
    table.bind_inputs([_binding(device, operand, upload) for operand, upload in pairs])
    buffers = [None if out is None else device.create_buffer(out.nbytes) for out in prepared.outputs]
    table.bind_outputs([None if buffer is None else BufferBinding(buffer) for buffer in buffers])
    if prepared.temporary_bytes:
        scratch = device.create_buffer(prepared.temporary_bytes, purpose=Purpose.TEMPORARY)
        table.bind_temporary_resource(BufferBinding(scratch))
    if prepared.persistent is not None:
        table.bind_persistent_resource(prepared.persistent)
    commands = device.create_command_list()
    assert table.bindings is not None, "the table serves the operator"
    commands.record(table.bindings)
    commands.submit()

    results: list[Any] = []
    for out, buffer in zip(prepared.outputs, buffers, strict=True):
        if out is None or buffer is None:
            continue
        if call.on_device:
            results.append(DeviceArray(device, buffer, out.data_type, out.sizes))
        elif element_bits(out.data_type) < 8:
            results.append(DeviceArray(device, buffer, out.data_type, out.sizes).numpy())
        else:
            array = np.empty(out.sizes, out.dtype)
            buffer.read_into(array)
            results.append(array)
    return results[0] if len(results) == 1 else tuple(results)


def _execute(call: _Call) -> Any:
    cache: _Cache = call.device.private_data.setdefault(__name__, _Cache())
    key = call.key()
    prepared = cache.get(key)
    if prepared is None:
        prepared = _prepare(call)
        cache.put(key, prepared)
    return _run(call, prepared)


# -- the functions


def _function_name(row: type[OperatorDesc]) -> str:
    return row.type.name.lower()


def _rows() -> dict[str, type[OperatorDesc]]:
    """The rows that have kernels, by function name."""
    return {_function_name(row): row for row in REGISTRY.values() if has_kernels(row)}


def _signature(row: type[OperatorDesc]) -> inspect.Signature:
    inputs = _input_fields(row)
    defaults = {name: parameter.default for name, parameter in inspect.signature(row).parameters.items()}
    last_required = max((i for i, spec in enumerate(inputs) if not spec.optional), default=-1)
    parameters = [
        inspect.Parameter(
            spec.name,
            inspect.Parameter.POSITIONAL_OR_KEYWORD,
            default=None if index > last_required else inspect.Parameter.empty,
        )
        for index, spec in enumerate(inputs)
    ]
    parameters += [
        inspect.Parameter(spec.name, inspect.Parameter.KEYWORD_ONLY, default=defaults[spec.name])
        for spec in row.fields
        if not spec.kind.is_tensor
    ]
    option_defaults = {"outputs": ()}
    parameters += [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=option_defaults.get(name)) for name in _OPTIONS
    ]
    return inspect.Signature(parameters)


def _documentation(row: type[OperatorDesc]) -> str:
    lines = [inspect.getdoc(row) or row.__name__, "", f"See ``dmlvk.{row.__name__}``.", "", "Args:"]
    for spec in row.fields:
        if spec.kind.is_input:
            types = ", ".join(data_type.name.lower() for data_type in spec.data_types)
            lines.append(f"    {spec.name}: {'Optional tensor' if spec.optional else 'Tensor'} of {types}.")
    outputs = [spec.name + (" (on request)" if spec.optional else "") for spec in row.fields if spec.kind.is_output]
    return "\n".join([*lines, "", "Returns:", f"    {', '.join(outputs)}."])


def _make_function(row: type[OperatorDesc]) -> Callable[..., Any]:
    inputs = _input_fields(row)
    allowed = {spec.name for spec in row.fields if not spec.kind.is_output}.union(_OPTIONS)

    def function(*args: Any, **named: Any) -> Any:
        if not allowed.issuperset(named):
            raise TypeError(f"{function.__name__}() has no argument {sorted(set(named) - allowed)[0]!r}")
        return _execute(_Call(row, inputs, args, named))

    function.__name__ = function.__qualname__ = _function_name(row)
    function.__doc__ = _documentation(row)
    function.__signature__ = _signature(row)  # type: ignore[attr-defined]  # inspect and help() read it
    return function


def __getattr__(name: str) -> Callable[..., Any]:
    row = _rows().get(name)
    if row is None:
        raise AttributeError(f"module 'dmlvk.eager' has no function {name!r}: no operator of that name has kernels")
    function = globals()[name] = _make_function(row)
    return function


def __dir__() -> list[str]:
    return sorted(_rows())
