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
import threading
from collections.abc import Callable
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from dmlvk.arguments import OUTPUT_OPTIONS, Arguments, documentation, function_name, rows_by_name, signature
from dmlvk.directml.binding import BindingTable, BufferBinding
from dmlvk.directml.device import Device, default_device
from dmlvk.directml.operator import CompiledOperator
from dmlvk.directml.ready_operator import initialize
from dmlvk.engine.device_array import DeviceArray, data_type_of, dtype_of, element_strides, memory_span
from dmlvk.runtime.memory import Purpose
from dmlvk.spec.enums import TensorDataType
from dmlvk.spec.errors import StateError
from dmlvk.spec.schema import OperatorDesc
from dmlvk.spec.tensor import TensorDesc, element_bits

_CACHED_CALLS: Final = 512
_OPTIONS: Final = ("device",)

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


class _Call(Arguments):
    """A call with arrays as its operands."""

    def __init__(self, row: type[OperatorDesc], args: tuple[Any, ...], named: dict[str, Any]) -> None:
        super().__init__(row, args, named, _OPTIONS)
        self.operands: list[Operand] = list(map(_operand, self.operands))
        self.on_device = any(isinstance(operand, DeviceArray) for operand in self.operands)
        self.device = self._device(self.options.get("device"))

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


def _tensor_desc(operand: Operand) -> TensorDesc | None:
    if operand is None:
        return None
    if isinstance(operand, DeviceArray):
        return operand.desc
    strides = None if operand.flags.c_contiguous else element_strides(operand)
    return TensorDesc(data_type_of(operand.dtype), operand.shape or (1,), strides)


def _prepare(call: _Call) -> _Prepared:
    device = call.device
    desc = call.describe(map(_tensor_desc, call.operands))
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


def _make_function(row: type[OperatorDesc]) -> Callable[..., Any]:
    def function(*args: Any, **named: Any) -> Any:
        return _execute(_Call(row, args, named))

    function.__name__ = function.__qualname__ = function_name(row)
    function.__doc__ = documentation(row)
    function.__signature__ = signature(row, (*OUTPUT_OPTIONS, *_OPTIONS))  # type: ignore[attr-defined]  # for help()
    return function


def __getattr__(name: str) -> Callable[..., Any]:
    row = rows_by_name().get(name)
    if row is None:
        raise AttributeError(f"module 'dmlvk.eager' has no function {name!r}: no operator of that name has kernels")
    function = globals()[name] = _make_function(row)
    return function


def __dir__() -> list[str]:
    return sorted(rows_by_name())
