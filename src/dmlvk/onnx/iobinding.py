"""``IOBinding``: what a run reads and where it leaves its outputs, kept from one run to the next."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy.typing as npt

from dmlvk.engine.copies import Copies
from dmlvk.engine.device_array import DeviceArray
from dmlvk.engine.transfer import from_device, to_device
from dmlvk.onnx.feeds import Feed, check_feed
from dmlvk.onnx.model import Array, ValueInfo
from dmlvk.onnx.model_run import known_data_type
from dmlvk.runtime.device import ComputeDevice
from dmlvk.runtime.recorder import Recording
from dmlvk.spec.errors import ModelError, StateError, UnsupportedError, other_device


class IOBinding:
    """Inputs and outputs of a session's runs, on its device; after onnxruntime's. Made by ``InferenceSession.io_binding``.

    Arrays are named by inputs and outputs of the model. A run computes the outputs that are bound, and only those come back.
    An array that is bound as an input is read anew by each run, so that an output may be the next run's input.

    Attributes:
        inputs: The arrays that are bound to inputs.
        outputs: The arrays that are bound to outputs, in the order of binding; None for a new array at each run.
        results: The outputs of the last run, in the same order; filled by the session.
        commands: The commands that the last run submitted last; set by the session.
        feeding, leaving: The copies of arrays to the model and from it, kept for runs with the same ones.
    """

    def __init__(
        self, device: ComputeDevice, inputs: Sequence[ValueInfo], outputs: Sequence[ValueInfo], host_inputs: Collection[str]
    ) -> None:
        self._device = device
        self._inputs = {info.name: info for info in inputs}
        self._outputs = {info.name: info for info in outputs}
        self._host_inputs = host_inputs
        self.inputs: dict[str, Feed] = {}
        self.outputs: dict[str, DeviceArray | None] = {}
        self.results: dict[str, DeviceArray] = {}
        self.commands: Recording | None = None
        self.feeding = Copies(device)
        self.leaving = Copies(device)

    def bind_input(self, name: str, array: DeviceArray) -> None:
        """Binds an array on the session's device to an input; packed ones are read without another copy.

        Raises:
            ModelError: no such input, or one of another type or shape.
            UnsupportedError: the input is a sequence, or optional.
            StateError: an array of another device.
        """
        self.inputs[name] = self._checked(name, array)

    def bind_cpu_input(self, name: str, array: npt.ArrayLike) -> None:
        """Uploads an array now and binds it to an input. One that says a shape or the like, which the host must know, stays
        there.

        Raises:
            ModelError: no such input, or one of another type or shape.
            UnsupportedError: the input is a sequence, or optional.
        """
        values = self._checked(name, array)
        if not isinstance(values, DeviceArray):
            values = (
                values.copy()
                if name in self._host_inputs
                else to_device(self._device, values, known_data_type(values.dtype))
            )
        self.inputs[name] = values

    def bind_output(self, name: str, array: DeviceArray | None = None) -> None:
        """Asks for an output: in this array, packed and of its sizes and type, or in a new one at each run.

        Raises:
            ModelError: no such output.
            StateError: an array of another device.
        """
        if name not in self._outputs:
            raise ModelError(f"the model has no output {name!r}; its outputs are {', '.join(self._outputs)}")
        self._require_own_device("output", name, array)
        self.outputs[name] = array

    def clear_binding_inputs(self) -> None:
        """Unbinds all inputs."""
        self.inputs.clear()

    def clear_binding_outputs(self) -> None:
        """Unbinds all outputs and forgets those of the last run."""
        self.outputs.clear()
        self.results = {}

    def synchronize_outputs(self) -> None:
        """Waits until the last run is done.

        Raises:
            StateError: there was none.
        """
        if self.commands is None:
            raise StateError("the binding has not been run; call run_with_iobinding first")
        self.commands.wait()

    def get_outputs(self) -> list[DeviceArray]:
        """The outputs of the last run, in the order in which they were bound; it may still be running."""
        return list(self.results.values())

    def copy_outputs_to_cpu(self) -> list[Array]:
        """The outputs of the last run as arrays of the model's types. Waits for it."""
        return [from_device(array, self._outputs[name].dtype) for name, array in self.results.items()]

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
        if isinstance(array, DeviceArray) and array.device is not self._device:
            raise other_device(f"the array bound to {what} {name!r}", array.device, "the session", self._device)
