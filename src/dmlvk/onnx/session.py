"""``InferenceSession``: a loaded model on a device, with a plan for each set of input shapes that it has met."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dmlvk import eager
from dmlvk.array import DeviceArray
from dmlvk.errors import InvalidArgumentError, ModelError, StateError, UnsupportedNodeError
from dmlvk.execution.command import CommandList
from dmlvk.execution.device import Device, default_device
from dmlvk.kernels.lowering import lower
from dmlvk.onnx.feeds import Feed, check_feeds, fixed_sizes, stand_in_sizes
from dmlvk.onnx.iobinding import IOBinding
from dmlvk.onnx.model import Array, ModelMetadata, Source, ValueInfo, data_type_of, load_model
from dmlvk.onnx.network import Network
from dmlvk.onnx.plans import Plan, Plans, naming
from dmlvk.onnx.profile import StepReport, step_report
from dmlvk.onnx.report import SessionReport
from dmlvk.onnx.transfer import empty, empty_on_device, from_bytes, from_device, to_bytes
from dmlvk.onnx.values import Value
from dmlvk.runtime.device import DeviceChoice
from dmlvk.runtime.recorder import BoundRange
from dmlvk.tensor import element_bits


@dataclass(frozen=True)
class SessionOptions:
    """How a session works.

    Attributes:
        plan_cache_size: Plans kept, each for one set of input shapes; the one unused longest goes first.
        without_passes: Names of passes that shall not change the graph, "all" for every one; ``dmlvk.graph.passes.PASSES``
            lists them.
        float64_as_float32: Whether arithmetic with 64-bit floats, which DirectML does not have, is done in 32 bits, with
            their precision and range; else a model that asks for it is refused.
    """

    plan_cache_size: int = 8
    without_passes: tuple[str, ...] = ()
    float64_as_float32: bool = False


class InferenceSession:
    """A model ready to run; after ``onnxruntime.InferenceSession``.

    Every node runs on the device, except shape arithmetic and the folding of constants (see ``report``). Weights are
    uploaded once. A plan is made for each new set of input shapes, at the first run that has them, or when the session
    is made if the model leaves no size open. Runs may come from several threads; they take turns.

    Random nodes give new numbers at each run. With a ``seed`` they are the same ones in every session of the model, run for
    run, though not those of another runtime; without, nobody knows them.

    Args:
        model: Path of an ONNX file, its bytes, or a ModelProto.
        device: A ``Device``, a choice of one (see ``Device``), or None for the process-wide one.
        options: See ``SessionOptions``.

    Attributes:
        device: Where it runs.

    Raises:
        ModelError: the file is broken.
        UnsupportedNodeError: a node cannot run; names it, its operator and version and why.
        UnsupportedError: an input or output is of a type that no device tensor can have.
        NoDeviceError: there is no such device.
    """

    def __init__(self, model: Source, device: Device | DeviceChoice = None, options: SessionOptions | None = None) -> None:
        self._options = options or SessionOptions()
        if self._options.plan_cache_size < 1:
            raise InvalidArgumentError("is at least 1", field="plan_cache_size", value=self._options.plan_cache_size)
        loaded = load_model(model, float64_as_float32=self._options.float64_as_float32)
        self._network = Network(loaded, self._options.without_passes)
        self._model = self._network.model
        if device is None:
            device = default_device()
        self.device: Device = device if isinstance(device, Device) else Device(device)
        self._plans = Plans(self.device, self._network, self._options.plan_cache_size)
        self._lock = threading.Lock()
        self._plan_ahead()

    # -- what the model says

    def get_inputs(self) -> list[ValueInfo]:
        """What ``run`` must be fed."""
        return list(self._model.inputs)

    def get_outputs(self) -> list[ValueInfo]:
        """What ``run`` returns when asked for everything."""
        return list(self._model.outputs)

    def get_modelmeta(self) -> ModelMetadata:
        """The model's own description, ``custom_metadata_map`` included."""
        return self._model.metadata

    def report(self) -> SessionReport:
        """Where the model's nodes ran and what they take; see ``profile`` for their times."""
        with self._lock:
            plan = self._plans.newest
            steps = zip(plan.trace.steps, plan.operators, strict=True) if plan else ()
            return self._reported([step_report(step, operator) for step, operator in steps])

    def profile(self, feeds: Mapping[str, Any]) -> SessionReport:
        """Runs the model twice, the second time with timestamps around each kernel, and reports with the times of its
        kernels on the device. A run without a profile costs nothing of it.

        Args:
            feeds: As for ``run``, whose errors this raises.
        """
        arrays = self._checked(feeds)
        with self._lock:
            plan = self._planned(arrays)
            self._submit(plan, arrays)
            commands, ends = self._plans.record(plan, timestamps=True)
            self._feed(plan, arrays)
            self.device.execute(commands)
            timings = commands.timings()
            parts = [timings[first:end] for first, end in itertools.pairwise((0, *ends))]
            works = zip(plan.trace.steps, plan.operators, parts, strict=True)
            return self._reported([step_report(*work) for work in works])

    def _reported(self, steps: Sequence[StepReport]) -> SessionReport:
        plan = self._plans.newest
        trace = plan.trace if plan else None
        return SessionReport(
            device=self.device.info.name,
            input_shapes=plan.sizes if plan else {},
            gpu_nodes=trace.device_nodes if trace else (),
            host_nodes=(*self._network.folded, *(trace.host_nodes if trace else ())),
            removed_nodes=trace.removed_nodes if trace else (),
            dispatches=plan.dispatches if plan else 0,
            weights_bytes=self._plans.weights_bytes,
            activation_bytes=self._plans.arena_bytes,
            peak_device_bytes=self.device.memory()["peak"],
            plans=len(self._plans.cached),
            planning_seconds=plan.seconds if plan else 0.0,
            steps=tuple(steps),
        )

    # -- running

    def run(self, output_names: Sequence[str] | None, feeds: Mapping[str, Any]) -> list[Array]:
        """Runs the model.

        Args:
            output_names: Which outputs, in this order; None for all.
            feeds: An array for each input, of exactly its type; a ``DeviceArray`` of the session's device is copied there.

        Returns:
            A new array for each output.

        Raises:
            ModelError: names, types or shapes that do not fit the model; the session stays usable.
            UnsupportedNodeError: a node cannot run with these shapes.
            StateError: a ``DeviceArray`` of another device.
        """
        names = self._output_names(output_names)
        arrays = self._checked(feeds)
        with self._lock:
            plan = self._planned(arrays)
            self._submit(plan, arrays)
            return [self._downloaded(plan, plan.trace.outputs[name]) for name in names]

    def run_with_device_arrays(self, output_names: Sequence[str] | None, feeds: Mapping[str, Any]) -> list[DeviceArray]:
        """As ``run``, but the outputs stay on the device: a new packed array each, which may be fed again. Returns without
        waiting for the device.

        A bool is a UINT8 there, and an output may have no elements.
        """
        names = self._output_names(output_names)
        results, _ = self._run_into(dict.fromkeys(names), feeds)
        return [results[name] for name in names]

    # -- binding

    def io_binding(self) -> IOBinding:
        """An empty binding of inputs and outputs for ``run_with_iobinding``."""
        return IOBinding(self.device, self._model.inputs, self._model.outputs, self._network.host_inputs)

    def run_with_iobinding(self, binding: IOBinding) -> None:
        """Runs the model with the inputs and outputs of a binding, which has the outputs afterwards. Does not wait for the
        device.

        Raises:
            InvalidArgumentError: an output is to go to an array of other sizes or another type, or into the memory of
                another one.
            And what ``run`` raises.
        """
        binding.results, binding.commands = self._run_into(binding.outputs, binding.inputs)

    # -- one run

    def _run_into(
        self, targets: Mapping[str, DeviceArray | None], feeds: Mapping[str, Any]
    ) -> tuple[dict[str, DeviceArray], CommandList]:
        """Runs the model and leaves each output in the array that is given for it, or else in a new one.

        Returns:
            The arrays, and the commands that write the last of them, submitted.
        """
        arrays = self._checked(feeds)
        with self._lock:
            plan = self._planned(arrays)
            results = {name: self._target(plan, name, target) for name, target in targets.items()}
            _check_apart(results)
            self._submit(plan, arrays)
            commands = self.device.create_command_list()
            for name, target in results.items():
                result = plan.trace.outputs[name]
                if not isinstance(result, Value):
                    target.buffer.write(to_bytes(result), target.offset)
                elif nbytes := _packed_bytes(target):
                    commands.copy_buffer_region(
                        target.buffer, target.offset, *self._plans.locate(plan, result.storage), nbytes
                    )
            commands.submit()
            return results, commands

    def _output_names(self, wanted: Sequence[str] | None) -> list[str]:
        known = [info.name for info in self._model.outputs]
        for name in known if wanted is None else wanted:
            if name not in known:
                raise ModelError(f"the model has no output {name!r}; its outputs are {', '.join(sorted(known))}")
        return known if wanted is None else list(wanted)

    def _checked(self, feeds: Mapping[str, Any]) -> dict[str, Feed]:
        """The feeds as the device takes them, and those that the host must know as arrays."""
        arrays = check_feeds(self._model, feeds)
        for info in self._model.inputs:
            array = arrays[info.name]
            if isinstance(array, DeviceArray):
                if array.device is not self.device:
                    raise StateError(f"input {info.name!r} lives on {array.device}, the session on {self.device}")
                if info.name in self._network.host_inputs:
                    arrays[info.name] = from_device(array, info.dtype)
                elif not array.is_packed:
                    arrays[info.name] = eager.element_wise_identity(array)
        return arrays

    def _planned(self, arrays: Mapping[str, Feed]) -> Plan:
        known = {name: array for name, array in sorted(arrays.items()) if name in self._network.host_inputs}
        host_feeds = {name: array for name, array in known.items() if not isinstance(array, DeviceArray)}
        return self._plans.get({name: array.shape for name, array in arrays.items()}, host_feeds)

    def _submit(self, plan: Plan, arrays: Mapping[str, Feed]) -> None:
        commands = self._plans.recorded(plan)
        self._feed(plan, arrays)
        if plan.dispatches:
            commands.submit()

    def _feed(self, plan: Plan, arrays: Mapping[str, Feed]) -> None:
        """Puts the feeds where the plan reads them, which a run overwrites with what it computes later."""
        copies = self.device.create_command_list()
        for name, value in plan.trace.inputs.items():
            array = arrays[name]
            if value.storage.nbytes:
                place = self._plans.locate(plan, value.storage)
                if isinstance(array, DeviceArray):
                    copies.copy_buffer_region(*place, array.buffer, array.offset, _packed_bytes(array))
                else:
                    place[0].write(to_bytes(array), place[1])
        copies.submit()

    def _target(self, plan: Plan, name: str, given: DeviceArray | None) -> DeviceArray:
        result = plan.trace.outputs[name]
        sizes = result.sizes if isinstance(result, Value) else result.shape
        if given is None:
            return empty_on_device(self.device, sizes, result.dtype)
        wanted = data_type_of(result.dtype)
        if given.device is not self.device:
            raise StateError(f"output {name!r} is bound on {given.device}, the session is on {self.device}")
        if given.shape != sizes or given.data_type != wanted or not given.is_packed:
            assert wanted is not None, "a model with other outputs is refused when it is loaded"
            found = f"{given.data_type.name} {list(given.shape)}, strides {list(given.strides)}"
            raise InvalidArgumentError(f"is a packed {wanted.name} {list(sizes)}", field=f"output {name!r}", value=found)
        return given

    def _downloaded(self, plan: Plan, result: Value | Array) -> Array:
        if not isinstance(result, Value):
            return result.copy()
        out = empty(result.sizes, result.dtype)
        if out.nbytes:
            buffer, offset = self._plans.locate(plan, result.storage)
            buffer.read_into(out, offset)
        return from_bytes(out, result.sizes, result.dtype)

    # -- planning

    def _plan_ahead(self) -> None:
        """Makes the plan of a model that leaves no size open. Of any other, tries a trace of stand-in sizes, so that a
        node that cannot run at all is found now; sizes that merely do not fit each other, or that a row refuses, prove
        nothing."""
        if self._network.host_inputs:
            return
        fixed, stand_ins = fixed_sizes(self._model), stand_in_sizes(self._model)
        if fixed is not None:
            self._plans.get(fixed, {})
        elif stand_ins is not None:
            try:
                steps = self._network.trace(stand_ins, {}).steps
            except ModelError:
                return
            except UnsupportedNodeError as error:
                if isinstance(error.__cause__, InvalidArgumentError):
                    return
                raise
            for step in steps:
                with naming(step):
                    lower(self.device.create_operator(step.desc).desc, self.device.capabilities)


def _packed_bytes(array: DeviceArray) -> int:
    """Bytes of the elements of a packed array."""
    return -(-array.size * element_bits(array.data_type) // 8)


def _check_apart(results: Mapping[str, DeviceArray]) -> None:
    """No two outputs go to the same memory."""
    ranges = {name: BoundRange(array.buffer, array.offset, _packed_bytes(array)) for name, array in results.items()}
    for (name, part), (other, rest) in itertools.combinations(ranges.items(), 2):
        if part.intersects(rest):
            raise InvalidArgumentError(
                f"shares no memory with output {name!r}", field=f"output {other!r}", value=rest.offset
            )
