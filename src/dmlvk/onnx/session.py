"""``InferenceSession``: a loaded model on a device, with a plan for each set of input shapes that it has met."""

from __future__ import annotations

import contextlib
import dataclasses
import threading
import time
import weakref
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any

from dmlvk.enums import TensorFlags
from dmlvk.errors import InvalidArgumentError, ModelError, UnsupportedError, UnsupportedNodeError
from dmlvk.execution.binding import Binding, BufferArrayBinding, BufferBinding
from dmlvk.execution.command import CommandList
from dmlvk.execution.device import Device, default_device
from dmlvk.execution.operator import CompiledOperator
from dmlvk.graph.placement import Placement
from dmlvk.graph.step import Step, Storage
from dmlvk.kernels.lowering import lower
from dmlvk.kernels.plan import Source as PlanSource
from dmlvk.onnx.feeds import check_feeds, fixed_sizes, stand_in_sizes
from dmlvk.onnx.model import Array, ModelMetadata, Source, ValueInfo, load_model
from dmlvk.onnx.network import Network, Trace
from dmlvk.onnx.report import SessionReport
from dmlvk.onnx.transfer import empty, from_bytes, to_bytes
from dmlvk.onnx.values import Sizes, Value
from dmlvk.runtime.device import DeviceChoice
from dmlvk.runtime.memory import Buffer, Purpose
from dmlvk.schema import FieldKind, OperatorDesc
from dmlvk.tensor import TensorDesc

_Key = tuple[tuple[Sizes, ...], tuple[bytes, ...]]
_Work = tuple[OperatorDesc, tuple[Storage, ...]]
"""What an operator is: its desc, and the constants that are OWNED_BY_DML in it."""


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


@contextlib.contextmanager
def _naming(step: Step) -> Iterator[None]:
    """Names the node in what a device says of its operator."""
    try:
        yield
    except UnsupportedError as error:
        node = step.origin
        raise UnsupportedNodeError(node.name, node.op_type, node.domain, node.version, str(error)) from error


def _owning(desc: OperatorDesc, slots: Set[int]) -> OperatorDesc:
    """The desc with the tensors of these input slots OWNED_BY_DML."""
    changes: dict[str, TensorDesc] = {}
    for slot in slots:
        field = desc.input_slots()[slot].field.name
        changes[field] = dataclasses.replace(desc.tensor(field), flags=TensorFlags.OWNED_BY_DML)
    return desc.replace(**changes)


class _Plan:
    """A trace, compiled: operators, places and, once there is an arena, the recorded commands."""

    def __init__(self, trace: Trace, operators: Sequence[CompiledOperator]) -> None:
        self.trace = trace
        self.operators = operators
        outputs = [result.storage for result in trace.outputs.values() if isinstance(result, Value)]
        scratch = [operator.plan.temporary_bytes for operator in operators]
        self.placement = Placement(trace.steps, [value.storage for value in trace.inputs.values()], outputs, scratch)
        self.commands: CommandList | None = None
        self.seconds = 0.0
        self.dispatches = sum(len(operator.plan.dispatches) for operator in operators)


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
        self._recorder = self.device.create_command_recorder()
        # Plans keep alive what they use: with the last of them go its operators and its own constants.
        self._operators: weakref.WeakValueDictionary[_Work, CompiledOperator] = weakref.WeakValueDictionary()
        self._persistent: weakref.WeakKeyDictionary[CompiledOperator, Buffer] = weakref.WeakKeyDictionary()
        self._constants: weakref.WeakKeyDictionary[Storage, Buffer] = weakref.WeakKeyDictionary()
        self._plans: OrderedDict[_Key, _Plan] = OrderedDict()
        self._newest: tuple[dict[str, Sizes], _Plan] | None = None
        self._arena: Buffer | None = None
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
        """Where the model's nodes ran and what they took."""
        with self._lock:
            shapes, plan = self._newest or ({}, None)
            trace = plan.trace if plan else None
            return SessionReport(
                device=self.device.info.name,
                input_shapes=shapes,
                gpu_nodes=trace.device_nodes if trace else (),
                host_nodes=(*self._network.folded, *(trace.host_nodes if trace else ())),
                removed_nodes=trace.removed_nodes if trace else (),
                dispatches=plan.dispatches if plan else 0,
                weights_bytes=sum(
                    buffer.size_in_bytes for buffer in (*self._constants.values(), *self._persistent.values())
                ),
                activation_bytes=self._arena.size_in_bytes if self._arena else 0,
                peak_device_bytes=self.device.memory()["peak"],
                plans=len(self._plans),
                planning_seconds=plan.seconds if plan else 0.0,
            )

    # -- running

    def run(self, output_names: Sequence[str] | None, feeds: Mapping[str, Any]) -> list[Array]:
        """Runs the model.

        Args:
            output_names: Which outputs, in this order; None for all.
            feeds: An array for each input, of exactly its type.

        Returns:
            A new array for each output.

        Raises:
            ModelError: names, types or shapes that do not fit the model; the session stays usable.
            UnsupportedNodeError: a node cannot run with these shapes.
        """
        names = [info.name for info in self._model.outputs] if output_names is None else list(output_names)
        known = {info.name for info in self._model.outputs}
        for name in names:
            if name not in known:
                raise ModelError(f"the model has no output {name!r}; its outputs are {', '.join(sorted(known))}")
        arrays = check_feeds(self._model, feeds)
        with self._lock:
            sizes = {name: array.shape for name, array in arrays.items()}
            plan = self._plan(sizes, {name: arrays[name] for name in sorted(self._network.host_inputs)})
            return self._execute(plan, names, arrays)

    def _execute(self, plan: _Plan, names: Sequence[str], arrays: Mapping[str, Array]) -> list[Array]:
        commands = self._recorded(plan)
        for name, value in plan.trace.inputs.items():
            if value.storage.nbytes:
                buffer, offset = self._locate(plan, value.storage)
                buffer.write(to_bytes(arrays[name]), offset)
        if plan.dispatches:
            commands.submit()
        return [self._result(plan, plan.trace.outputs[name]) for name in names]

    def _result(self, plan: _Plan, result: Value | Array) -> Array:
        if not isinstance(result, Value):
            return result.copy()
        out = empty(result.sizes, result.dtype)
        if out.nbytes:
            buffer, offset = self._locate(plan, result.storage)
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
            self._plan(fixed, {})
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
                with _naming(step):
                    lower(self.device.create_operator(step.desc).desc, self.device.capabilities)

    def _plan(self, sizes: dict[str, Sizes], host_feeds: Mapping[str, Array]) -> _Plan:
        """The plan for inputs of these sizes and these values of the host's inputs: from the cache, or made now."""
        key = (tuple(sizes.values()), tuple(array.tobytes() for array in host_feeds.values()))
        plan = self._plans.get(key)
        if plan is None:
            start = time.perf_counter()
            trace = self._network.trace(sizes, host_feeds)
            plan = _Plan(trace, self._compile(trace))
            self._plans[key] = plan
            self._recorded(plan)
            plan.seconds = time.perf_counter() - start
            while len(self._plans) > self._options.plan_cache_size:
                self._plans.popitem(last=False)
        self._plans.move_to_end(key)
        self._newest = (sizes, plan)
        return plan

    def _compile(self, trace: Trace) -> list[CompiledOperator]:
        """An initialised operator for each step; those of equal descs with the same weights share one, in all plans."""
        known: dict[_Work, CompiledOperator] = dict(self._operators)
        fresh: dict[_Work, CompiledOperator] = {}
        works = []
        for step in trace.steps:
            with _naming(step):
                work = self._work(step)
                if work not in known:
                    operator = self.device.compile_operator(self.device.create_operator(work[0]))
                    known[work] = fresh[work] = operator
            works.append(work)
        self._initialize(fresh)
        self._operators.update(fresh)
        return [known[work] for work in works]

    def _work(self, step: Step) -> _Work:
        """The step's desc, with those constants OWNED_BY_DML that its initialisation would repack."""
        constants = {
            slot: storage
            for slot, storage in enumerate(step.inputs)
            if storage
            and storage.constant is not None
            and step.desc.input_slots()[slot].field.kind is FieldKind.INPUT_TENSOR
        }
        if not constants:
            return step.desc, ()
        owning = _owning(step.desc, set(constants))
        plan = lower(self.device.create_operator(owning).desc, self.device.capabilities)
        repacked = {part.slot for launch in plan.initialize for part in launch.bindings if part.source is PlanSource.INPUT}
        return _owning(step.desc, repacked), tuple(constants[slot] for slot in sorted(repacked))

    def _initialize(self, operators: Mapping[_Work, CompiledOperator]) -> None:
        if not operators:
            return
        initializer = self.device.create_operator_initializer(list(operators.values()))
        table = self.device.create_binding_table(initializer)
        homes: list[BufferBinding | None] = []
        inputs: list[Binding] = []
        for (_, owned), operator in operators.items():
            size = operator.get_binding_properties().persistent_resource_size
            if size:
                self._persistent[operator] = self.device.create_buffer(size, purpose=Purpose.WEIGHTS)
            homes.append(BufferBinding(self._persistent[operator]) if size else None)
            bindings: list[BufferBinding | None] = [None] * len(operator.signature.inputs)
            for slot, storage in zip(operator.signature.owned_inputs, owned, strict=True):
                bindings[slot] = BufferBinding(self._constants.get(storage) or self._uploaded(storage))
            inputs.append(BufferArrayBinding(bindings) if owned else None)
        table.bind_inputs(inputs)
        table.bind_outputs(homes)
        scratch = initializer.get_binding_properties().temporary_resource_size
        if scratch:
            table.bind_temporary_resource(BufferBinding(self.device.create_buffer(scratch, purpose=Purpose.TEMPORARY)))
        commands = self.device.create_command_list()
        self._recorder.record_dispatch(commands, initializer, table)
        self.device.execute(commands)

    def _uploaded(self, storage: Storage) -> Buffer:
        buffer = self.device.create_buffer(storage.nbytes, purpose=Purpose.WEIGHTS)
        assert storage.constant is not None, "constants have a value"
        buffer.write(to_bytes(storage.constant))
        return buffer

    def _recorded(self, plan: _Plan) -> CommandList:
        """The plan's commands over the arena, which all plans share: when one needs a larger arena, the others are
        recorded again at their next run."""
        needed = plan.placement.nbytes
        if needed > (self._arena.size_in_bytes if self._arena else 0):
            for other in self._plans.values():
                other.commands = None
            self._arena = None  # free before the larger one is allocated
            self._arena = self.device.create_buffer(needed, purpose=Purpose.TEMPORARY)
        if plan.commands is None:
            plan.commands = self._record(plan)
        return plan.commands

    def _record(self, plan: _Plan) -> CommandList:
        commands = self.device.create_command_list()
        for index, (step, operator) in enumerate(zip(plan.trace.steps, plan.operators, strict=True)):
            table = self.device.create_binding_table(operator)
            owned = operator.signature.owned_inputs
            table.bind_inputs(
                [None if slot in owned else self._binding(plan, storage) for slot, storage in enumerate(step.inputs)]
            )
            table.bind_outputs([self._binding(plan, storage) for storage in step.outputs])
            properties = operator.get_binding_properties()
            if properties.temporary_resource_size:
                offset = plan.placement.scratch[index]
                table.bind_temporary_resource(BufferBinding(self._arena, offset, properties.temporary_resource_size))
            if properties.persistent_resource_size:
                table.bind_persistent_resource(BufferBinding(self._persistent[operator]))
            self._recorder.record_dispatch(commands, operator, table)
        commands.close()
        return commands

    def _binding(self, plan: _Plan, storage: Storage | None) -> BufferBinding | None:
        if storage is None:
            return None
        buffer, offset = self._locate(plan, storage)
        return BufferBinding(buffer, offset, storage.nbytes)

    def _locate(self, plan: _Plan, storage: Storage) -> tuple[Buffer, int]:
        """The bytes of a storage; a constant is uploaded when it is first asked for."""
        if storage.constant is None:
            assert self._arena is not None, "a plan with tensors has an arena"
            return self._arena, plan.placement.offset(storage)
        buffer = self._constants.get(storage)
        if buffer is None:
            buffer = self._constants[storage] = self._uploaded(storage)
        return buffer, 0
