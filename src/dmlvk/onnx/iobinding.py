"""``IOBinding``: what a run reads and where it leaves its outputs, kept from one run to the next."""

from __future__ import annotations

import ctypes
from collections.abc import Collection, Sequence
from typing import Protocol, TypeVar, overload

import numpy as np
import numpy.typing as npt

from dmlvk.engine.copies import Copies
from dmlvk.engine.device_array import DeviceArray
from dmlvk.engine.transfer import from_device, packed_bytes, to_device
from dmlvk.onnx.feeds import Feed, check_feed
from dmlvk.onnx.model import Array, ValueInfo
from dmlvk.onnx.model_run import known_data_type
from dmlvk.onnx.ort_value import OrtDevice, OrtValue, at_handle, dtype_of_kind
from dmlvk.runtime.device import ComputeDevice
from dmlvk.runtime.recorder import Recording
from dmlvk.spec.errors import InvalidArgumentError, ModelError, StateError, UnsupportedError, other_device

T = TypeVar("T")


class Bindable(Protocol):
    """A session, as far as a binding knows it."""

    @property
    def device(self) -> ComputeDevice: ...

    @property
    def host_inputs(self) -> Collection[str]: ...

    def get_inputs(self) -> list[ValueInfo]: ...

    def get_outputs(self) -> list[ValueInfo]: ...


class IOBinding:
    """Inputs and outputs of a session's runs, on its device; after onnxruntime's.

    Arrays are named by inputs and outputs of the model. A run computes the outputs that are bound, and only those come back.
    An array that is bound as an input is read anew by each run, so that an output may be the next run's input.

    Args:
        session: The session.

    Attributes:
        device: The device of the arrays: the session's when the binding was made.
        inputs: The arrays that are bound to inputs.
        outputs: The arrays that are bound to outputs, in the order of binding; None for a new array at each run.
        results: The outputs of the last run, in the same order; filled by the session.
        commands: The commands that the last run submitted last; set by the session.
        feeding, leaving: The copies of arrays to the model and from it, kept for runs with the same ones.
    """

    def __init__(self, session: Bindable) -> None:
        self.device = session.device
        self._inputs = {info.name: info for info in session.get_inputs()}
        self._outputs = {info.name: info for info in session.get_outputs()}
        self._host_inputs = session.host_inputs
        self._handed_back: dict[str, OrtValue | OrtDevice] = {}
        self._values: list[DeviceArray | OrtValue] | None = None
        self.inputs: dict[str, Feed] = {}
        self.outputs: dict[str, DeviceArray | None] = {}
        self.results: dict[str, DeviceArray] = {}
        self.commands: Recording | None = None
        self.feeding = Copies(self.device)
        self.leaving = Copies(self.device)

    @overload
    def bind_input(self, name: str, array: DeviceArray) -> None: ...

    @overload
    def bind_input(
        self,
        name: str,
        device_type: str,
        device_id: int,
        element_type: npt.DTypeLike | int,
        shape: Sequence[int],
        buffer_ptr: int,
    ) -> None: ...

    def bind_input(  # type: ignore[misc]  # the second argument has two names
        self,
        name: str,
        array: DeviceArray | str | None = None,
        device_id: int = 0,
        element_type: npt.DTypeLike | int | None = None,
        shape: Sequence[int] | None = None,
        buffer_ptr: int | None = None,
        *,
        device_type: str | None = None,
    ) -> None:
        """Binds an array on the session's device to an input, or what lies at an address; packed arrays are read without
        another copy.

        Args:
            name: The input.
            array: The array; or the name of a place as ``OrtDevice.make`` takes it.
            device_id, element_type, shape, buffer_ptr: With the name of a place: its number, the type of the elements, their
                sizes, and an ``OrtValue.data_ptr()`` or, on the host, an address, which is read now.
            device_type: The name of a place.

        Raises:
            ModelError: no such input, or one of another type or shape.
            InvalidArgumentError: there is nothing at the address.
            UnsupportedError: the input is a sequence, or optional.
            StateError: an array of another device.
        """
        if isinstance(array, DeviceArray):
            self.inputs[name] = self._checked(name, array)
            return
        place = OrtDevice.make(_given("device_type", device_type or array), device_id)
        found = _at(place, element_type, _given("shape", shape), _given("buffer_ptr", buffer_ptr))
        if isinstance(found, DeviceArray):
            self.inputs[name] = self._checked(name, found)
        else:
            self.bind_cpu_input(name, found)

    @overload
    def bind_cpu_input(self, name: str, array: npt.ArrayLike) -> None: ...

    @overload
    def bind_cpu_input(self, name: str, *, arr_on_cpu: npt.ArrayLike) -> None: ...

    def bind_cpu_input(
        self, name: str, array: npt.ArrayLike | None = None, *, arr_on_cpu: npt.ArrayLike | None = None
    ) -> None:
        """Uploads an array now and binds it to an input. One that says a shape or the like, which the host must know, stays
        there.

        Args:
            name: The input.
            array: The array.
            arr_on_cpu: ONNX Runtime's name of ``array``.

        Raises:
            ModelError: no such input, or one of another type or shape.
            UnsupportedError: the input is a sequence, or optional.
        """
        values = self._checked(name, arr_on_cpu if array is None else array)
        if not isinstance(values, DeviceArray):
            values = (
                values.copy() if name in self._host_inputs else to_device(self.device, values, known_data_type(values.dtype))
            )
        self.inputs[name] = values

    def bind_ortvalue_input(self, name: str, ortvalue: OrtValue) -> None:
        """Binds a tensor to an input: one on the host is uploaded now, one on the device is read by each run.

        Raises:
            What ``bind_input`` raises.
        """
        self.bind_cpu_input(name, ortvalue if ortvalue.place.is_host else self._on_device(ortvalue))

    @overload
    def bind_output(self, name: str, array: DeviceArray | None = None) -> None: ...

    @overload
    def bind_output(
        self,
        name: str,
        device_type: str,
        device_id: int = 0,
        element_type: npt.DTypeLike | int | None = None,
        shape: Sequence[int] | None = None,
        buffer_ptr: int | None = None,
    ) -> None: ...

    def bind_output(  # type: ignore[misc]  # the second argument has two names
        self,
        name: str,
        array: DeviceArray | str | None = None,
        device_id: int = 0,
        element_type: npt.DTypeLike | int | None = None,
        shape: Sequence[int] | None = None,
        buffer_ptr: int | None = None,
        *,
        device_type: str | None = None,
    ) -> None:
        """Asks for an output: in an array on the device, packed and of its sizes and type, or at an address, or in a new one
        at each run.

        Args:
            name: The output.
            array: The array; or the name of a place as ``OrtDevice.make`` takes it, from which the output comes back as an
                ``OrtValue``. With neither it comes back as a ``DeviceArray``.
            device_id, element_type, shape, buffer_ptr: As in ``bind_input``; without an address there is a new tensor at
                each run. What lies on the host is written before ``run_with_iobinding`` returns.
            device_type: The name of a place.

        Raises:
            ModelError: no such output.
            InvalidArgumentError: there is nothing at the address.
            StateError: an array of another device.
        """
        named = device_type or (array if isinstance(array, str) else None)
        if named is None:
            self._bind_output(name, array if isinstance(array, DeviceArray) else None, None)
            return
        place = OrtDevice.make(named, device_id)
        if buffer_ptr is None:
            self._bind_output(name, None, place)
            return
        found = _at(place, element_type, _given("shape", shape), buffer_ptr)
        self._bind_value(name, OrtValue(found, dtype_of_kind(element_type), place))

    def bind_ortvalue_output(self, name: str, ortvalue: OrtValue) -> None:
        """Asks for an output in this tensor, of its sizes and type; one on the host is written before ``run_with_iobinding``
        returns.

        Raises:
            ModelError: no such output.
            StateError: a tensor of another device.
        """
        self._bind_value(name, ortvalue)

    def _bind_value(self, name: str, value: OrtValue) -> None:
        self._bind_output(name, None if value.place.is_host else self._on_device(value), value)

    def _bind_output(self, name: str, array: DeviceArray | None, handed_back: OrtValue | OrtDevice | None) -> None:
        if name not in self._outputs:
            raise ModelError(f"the model has no output {name!r}; its outputs are {', '.join(self._outputs)}")
        self._require_own_device("output", name, array)
        self.outputs[name] = array
        self._handed_back.pop(name, None)
        if handed_back is not None:
            self._handed_back[name] = handed_back

    def clear_binding_inputs(self) -> None:
        """Unbinds all inputs."""
        self.inputs.clear()

    def clear_binding_outputs(self) -> None:
        """Unbinds all outputs and forgets those of the last run."""
        self.outputs.clear()
        self._handed_back.clear()
        self.keep({}, None)

    def synchronize_inputs(self) -> None:
        """Does nothing: a run reads what was written before."""

    def synchronize_outputs(self) -> None:
        """Waits until the last run is done.

        Raises:
            StateError: there was none.
        """
        if self.commands is None:
            raise StateError("the binding has not been run; call run_with_iobinding first")
        self.commands.wait()

    def keep(self, results: dict[str, DeviceArray], commands: Recording | None) -> None:
        """Keeps the outputs of a run, and writes those that are bound to memory of the host. For the session."""
        for name, array in results.items():
            value = self._handed_back.get(name)
            if isinstance(value, OrtValue) and value.place.is_host:
                found = from_device(array, self._outputs[name].dtype)
                if list(found.shape) != value.shape():
                    rule, sizes = "the bound tensor must have the output's sizes", list(found.shape)
                    raise InvalidArgumentError(rule, field=f"output {name!r}", value=value.shape(), expected=sizes)
                value.update_inplace(found)
        self.results, self.commands, self._values = results, commands or self.commands, None

    def get_outputs(self) -> list[DeviceArray | OrtValue]:
        """The outputs of the last run, in the order in which they were bound; it may still be running. What was bound by
        ONNX Runtime's arguments is an ``OrtValue``, anything else a ``DeviceArray``."""
        if self._values is None:
            self._values = [self._value(name, array) for name, array in self.results.items()]
        return list(self._values)

    def get_outputs_as_ortvaluevector(self) -> list[OrtValue]:
        """The outputs of the last run, each as an ``OrtValue``."""
        return [
            value if isinstance(value, OrtValue) else OrtValue(value, self._outputs[name].dtype, OrtDevice.make("vulkan", 0))
            for name, value in zip(self.results, self.get_outputs(), strict=True)
        ]

    def _value(self, name: str, array: DeviceArray) -> DeviceArray | OrtValue:
        match self._handed_back.get(name):
            case OrtValue() as value:
                return value
            case OrtDevice() as place:
                dtype = self._outputs[name].dtype
                return OrtValue(from_device(array, dtype) if place.is_host else array, dtype, place)
        return array

    def copy_outputs_to_cpu(self) -> list[Array]:
        """The outputs of the last run as arrays of the model's types. Waits for it."""
        return [from_device(array, self._outputs[name].dtype) for name, array in self.results.items()]

    def _on_device(self, value: OrtValue) -> DeviceArray:
        if not isinstance(value.content, DeviceArray):
            raise InvalidArgumentError("must hold a tensor on the device", field="ortvalue", value=type(value.content))
        return value.content

    def _checked(self, name: str, array: object) -> Feed:
        if name not in self._inputs:
            raise ModelError(f"the model has no input {name!r}; its inputs are {', '.join(self._inputs)}")
        if not self._inputs[name].is_tensor:
            raise UnsupportedError(
                f"input {name!r} is a {self._inputs[name].type}, and only tensors of numbers can be bound; "
                "feed it to run instead"
            )
        feed = check_feed(self._inputs[name], array)
        self._require_own_device("input", name, feed)
        return feed

    def _require_own_device(self, what: str, name: str, array: Feed | None) -> None:
        if isinstance(array, DeviceArray) and array.device is not self.device:
            raise other_device(f"the array bound to {what} {name!r}", array.device, "the session", self.device)


def _at(place: OrtDevice, kind: npt.DTypeLike | int | None, shape: Sequence[int], address: int) -> Array | DeviceArray:
    """The tensor at an address of the host, or at a number that ``OrtValue.data_ptr`` gave."""
    if kind is None:
        raise InvalidArgumentError("must be given with an address", field="element_type", value=None)
    dtype, sizes = dtype_of_kind(kind), tuple(shape)
    if place.is_host:
        nbytes = dtype.itemsize * int(np.prod(sizes, dtype=np.int64))
        memory: Array = np.frombuffer(memoryview((ctypes.c_ubyte * nbytes).from_address(address)), np.uint8)
        return memory.view(dtype).reshape(sizes)
    value = at_handle(address)
    if value is None or not isinstance(value.content, DeviceArray):
        rule = "must be what OrtValue.data_ptr() of a tensor on the device gives, while that tensor is kept"
        raise InvalidArgumentError(rule, field="buffer_ptr", value=address)
    whole = value.content
    part = DeviceArray(whole.device, whole.buffer, known_data_type(dtype), sizes, offset=whole.offset)
    if packed_bytes(part) > packed_bytes(whole):
        rule = "must have no more bytes than the tensor at buffer_ptr"
        raise InvalidArgumentError(rule, field="shape", value=sizes, expected=whole.shape)
    return part


def _given(name: str, value: T | None) -> T:
    if value is None:
        raise InvalidArgumentError("must be given", field=name, value=None)
    return value
