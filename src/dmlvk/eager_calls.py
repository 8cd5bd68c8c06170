"""Calls of ``dmlvk.eager``: described, compiled once for each distinct call, and run."""

from __future__ import annotations

import collections
import threading
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from dmlvk.arguments import Arguments
from dmlvk.directml.binding import BindingTable, BufferBinding
from dmlvk.directml.device import Device, default_device
from dmlvk.directml.operator import CompiledOperator
from dmlvk.directml.ready_operator import initialize
from dmlvk.engine.device_array import DeviceArray, data_type_of, dtype_of, element_strides, memory_span
from dmlvk.runtime.memory import Purpose
from dmlvk.spec.enums import TensorDataType
from dmlvk.spec.errors import StateError
from dmlvk.spec.functions import EAGER_OPTIONS
from dmlvk.spec.schema import OperatorDesc
from dmlvk.spec.tensor import TensorDesc, element_bits

_CACHED_CALLS: Final = 512

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


class Call(Arguments):
    """A call with arrays as its operands."""

    def __init__(self, row: type[OperatorDesc], args: tuple[Any, ...], named: dict[str, Any]) -> None:
        super().__init__(row, args, named, EAGER_OPTIONS)
        self.operands: list[Operand] = list(map(_operand, self.operands))
        self.on_device = any(isinstance(operand, DeviceArray) for operand in self.operands)
        self.device = self._device(self.options["device"])

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


def _prepare(call: Call) -> _Prepared:
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


def _run(call: Call, prepared: _Prepared) -> Any:
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


def execute(call: Call) -> Any:
    """Runs a call.

    Returns:
        Its one output, or a tuple of several: numpy arrays, or device arrays where an operand is one.
    """
    cache: _Cache = call.device.private_data.setdefault(__name__, _Cache())
    key = call.key()
    prepared = cache.get(key)
    if prepared is None:
        prepared = _prepare(call)
        cache.put(key, prepared)
    return _run(call, prepared)
