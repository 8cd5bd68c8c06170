"""``LoadedModel``: a model on a device, and its runs."""

from __future__ import annotations

import functools
import itertools
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from dmlvk.directml.device import Device
from dmlvk.engine.compiled_graphs import CompiledGraph
from dmlvk.engine.copies import Copies, Copy, recorded_copies
from dmlvk.engine.device_array import DeviceArray
from dmlvk.engine.graph_cache import CompiledGraphs
from dmlvk.engine.profile import StepReport
from dmlvk.engine.progress import FOLDING, Count, Progress
from dmlvk.engine.run import Account
from dmlvk.engine.single_operators import packed
from dmlvk.engine.tensors import Item, Opaque, Tensor
from dmlvk.engine.trace import Spec, Trace, TracedTensor
from dmlvk.engine.transfer import (
    elements_bytes,
    empty,
    empty_on_device,
    from_bytes,
    from_device,
    packed_bytes,
    to_bytes,
)
from dmlvk.graph.views import Sizes
from dmlvk.onnx.control import LongLoopError
from dmlvk.onnx.explain import NodeExplanation, explain_node
from dmlvk.onnx.feeds import Fed, Feed, check_feeds, fixed_sizes, stand_in_sizes
from dmlvk.onnx.model import Array, Model, ValueInfo, data_type_of
from dmlvk.onnx.model_run import ModelRun, known_data_type
from dmlvk.onnx.network import Network
from dmlvk.onnx.opening import Opening
from dmlvk.onnx.options import SessionOptions
from dmlvk.onnx.program import NodeRegion
from dmlvk.onnx.repeats import Repeats
from dmlvk.onnx.report import SessionReport
from dmlvk.onnx.states import shareable, totals
from dmlvk.onnx.timeline import Timeline
from dmlvk.runtime.device import DeviceChoice
from dmlvk.runtime.measure import copy_bandwidth
from dmlvk.runtime.prepared_run import prepared_run
from dmlvk.runtime.recorder import BoundRange, Recording
from dmlvk.spec.errors import (
    InvalidArgumentError,
    ModelError,
    StateError,
    UnsupportedError,
    UnsupportedNodeError,
    other_device,
)
from dmlvk.spec.log import logger
from dmlvk.spec.tensor import packed_strides


class _Home(NamedTuple):
    """The device of a session with the plans on it, replaced in one piece."""

    device: Device
    graphs: CompiledGraphs
    repeats: Repeats


class LoadedModel:
    """A model that has been read, on one device, with a plan for each set of input shapes that it has met. Runs may come
    from several threads; they take turns.

    Args:
        loaded: The model.
        opening: The device, which may be opening still: the model is traced meanwhile.
        options: What the caller of the session has chosen.
        name: The model's name, for reports.
        progress: Told how far the loading is, and later how far the making of plans is.
        timeline: What is told of the times of each run; None where nobody asks for them.

    Attributes:
        network: The model as regions that are traced.
        model: The model, once constants are folded.
        timeline: As given, until timing ends.

    Raises:
        UnsupportedNodeError: a node cannot run; names it, its operator and version and why.
        UnsupportedError: an input or output is of a type that no device tensor can have.
        NoDeviceError: there is no such device.
    """

    def __init__(
        self,
        loaded: Model,
        opening: Opening,
        options: SessionOptions,
        name: str,
        progress: Progress,
        timeline: Timeline | None = None,
    ) -> None:
        self._options, self._name, self._progress, self.timeline = options, name, progress, timeline
        folding = Count(self._progress, FOLDING, 1)
        self.network = Network(
            loaded,
            self._options.passes_left_out,
            lambda constants: self._computed(opening, constants),
            hosts=self._options.on_unsupported == "host",
            limits=self._options.limits,
        )
        self.model = self.network.model
        self._types = {info.name: info.dtype for info in self.model.inputs}
        self._states, self._totals = shareable(self.network.model.nodes), totals(self.network.model.nodes)
        ahead = self._trace_ahead()  # while the device opens
        folding()
        self._home = self._home_on(opening.result())
        self._lock = threading.Lock()
        self._account: Account | None = None
        self._prepared: list[tuple[Any, CompiledGraph, Recording]] = []
        logger("onnx.session").info("loaded a model of %d nodes", len(loaded.nodes))
        if ahead is not None:
            self._plan_ahead(ahead)

    def _home_on(self, device: Device) -> _Home:
        self.network.check_device(device.capabilities.features)
        graphs = CompiledGraphs(device, self.network, self._options.plan_cache_size, self._progress)
        return _Home(device, graphs, Repeats(device, graphs, self.network))

    @property
    def device(self) -> Device:
        """The device that it runs on."""
        return self._home.device

    @property
    def graphs(self) -> CompiledGraphs:
        """The plans on that device."""
        return self._home.graphs

    def recover(self, device: Device | DeviceChoice, shared: Callable[[], Device] | None) -> None:
        """Moves to another device, see ``InferenceSession.recover``.

        Args:
            device: The other device; None for the same one opened anew where it is lost.
            shared: Opens that one, where others use it as well.
        """
        with self._lock:
            if device is None:
                if self.device.get_device_removed_reason() is None:
                    return
                opened = self.device.reopened() if shared is None else shared()
            else:
                opened = Opening(device).result()
            self._home = self._home_on(opened)
            self._account = None

    def end_timing(self) -> Timeline | None:
        """The times of all runs up to now; later ones are not timed. None where none were."""
        with self._lock:
            timeline, self.timeline = self.timeline, None
        return timeline

    # -- how it runs

    def report(self) -> SessionReport:
        """The report of the last run."""
        with self._lock:
            return self._reported()

    def profile(self, feeds: Mapping[str, Any]) -> SessionReport:
        """The report of a second run with timestamps; see ``InferenceSession.profile``."""
        arrays = self._checked(feeds)
        with self._lock:
            for timed in (False, True):
                plan = self._planned(arrays, exact=True)
                if plan is None:
                    self._drive(arrays, timed=timed)
                else:
                    self._submit(plan, arrays, timed=timed)
            return self._reported()

    def explain(self, node: str, *, compiled: bool) -> NodeExplanation:
        """What became of a node, and why; see ``InferenceSession.explain``."""
        with self._lock:
            if self._account is None:
                raise StateError("the session has no plan before its first run; call run first")
            report = self._reported()
            placed = {"device": report.gpu_nodes, "host": report.host_nodes, "removed": report.removed_nodes}
            explained = functools.partial(self.graphs.compiler.explained, compiled=compiled)
            return explain_node(node, placed, self._account.runs(), explained)

    def _reported(self) -> SessionReport:
        account = self._account or Account({})
        memory = self.device.memory()
        return SessionReport(
            device=self.device.info.name,
            model=self._name,
            input_shapes=account.input_shapes,
            gpu_nodes=(*self.network.computed, *account.device_labels),
            host_nodes=(*self.network.folded, *account.host_labels),
            removed_nodes=account.removed_labels,
            host_reads=account.host_reads,
            dispatches=account.dispatches,
            weights_bytes=self.graphs.weights_bytes,
            activation_bytes=self.graphs.arena_bytes,
            largest_live_bytes=account.largest_live_bytes,
            peak_device_bytes=memory["peak"],
            staging_bytes=memory["staging"],
            plans=len(self.graphs.cached),
            planning_seconds=account.planning_seconds,
            steps=account.steps(),
            copy_bandwidth=copy_bandwidth(self.device) if account.timed and account.steps() else None,
        )

    # -- running

    def run(self, names: Sequence[str], feeds: Any) -> list[Any]:
        """The outputs of these names, on the host; see ``InferenceSession.run``."""
        key = self._home.repeats.key(names, feeds) if self.timeline is None else None
        if key is not None:
            with self._lock:
                repeated = self._home.repeats.run(key, feeds)
                if repeated is not None:
                    results, self._account = repeated
                    return results
        arrays = self._checked(feeds)
        with self._lock:
            plan = self._planned(arrays)
            if plan is None:
                items = self._drive(arrays)
                return [_on_host(items[name]) for name in names]
            account = self._submit(plan, arrays)
            results = [self._downloaded(plan, plan.trace.outputs[name]) for name in names]
            if key is not None:
                self._home.repeats.note(key, feeds, names, plan, account)
            return results

    def run_into(
        self, feeds: Mapping[str, Any], place: Callable[[str, Sizes], Array | BoundRange], *, timed: bool = False
    ) -> Sequence[StepReport]:
        """Leaves the outputs in the caller's memory; see ``InferenceSession.run_into``."""
        arrays = self._checked(feeds)
        with self._lock:
            plan = self._planned(arrays, exact=timed)
            items = self._drive(arrays, timed=timed) if plan is None else {}
            made = _tensors(items, items)
            if plan is not None:
                self._submit(plan, arrays, timed=timed)
            copies = []
            for info in self.model.outputs:
                result: TracedTensor | Array | Tensor = made[info.name] if plan is None else plan.trace.outputs[info.name]
                sizes = result.shape if isinstance(result, (np.ndarray, Tensor)) else result.sizes
                target = place(info.name, sizes)
                if not target.nbytes:
                    continue
                if isinstance(result, np.ndarray) or (isinstance(result, Tensor) and result.is_on_host):
                    values = result.on_host() if isinstance(result, Tensor) else result
                    written = np.ascontiguousarray(to_bytes(values, data_type_of(values.dtype))).reshape(-1).view(np.uint8)
                    if isinstance(target, BoundRange):
                        target.buffer.write(written, target.offset)
                    else:
                        target[:] = written
                    continue
                if isinstance(result, Tensor):
                    array = result.on_device()
                    source = BoundRange(array.buffer, array.offset, target.nbytes)
                else:
                    assert plan is not None, "traced tensors are a graph's"
                    source = self.graphs.locate(plan, result.storage)._replace(nbytes=target.nbytes)
                if isinstance(target, BoundRange):
                    copies.append(Copy(source, target))
                else:
                    source.buffer.read_into(target, source.offset)
            if copies:
                recorded_copies(self.device, copies).submit(defer=True)
                self.device.flush()
            return self._account.steps() if timed and self._account else ()

    def prepared(self, feeds: Mapping[str, Any]) -> Prepared | None:
        """What native code needs for runs of these sizes; see ``InferenceSession.prepared``."""
        arrays = self._checked(feeds)
        with self._lock:
            plan = None if self.timeline is not None else self._planned(arrays)
            if plan is None:
                return None
            recording = self.graphs.recorded(plan)
            places: dict[str, BoundRange] = {}
            for name, value in plan.trace.inputs.items():
                if nbytes := elements_bytes(value.sizes, value.data_type):
                    places[name] = self.graphs.locate(plan, value.storage)._replace(nbytes=nbytes)
            outputs: dict[str, tuple[Sizes, BoundRange | bytes]] = {}
            for info in self.model.outputs:
                result = plan.trace.outputs[info.name]
                if isinstance(result, np.ndarray):
                    known = np.ascontiguousarray(to_bytes(result, data_type_of(result.dtype)))
                    outputs[info.name] = result.shape, known.tobytes()
                elif nbytes := elements_bytes(result.sizes, result.data_type):
                    outputs[info.name] = result.sizes, self.graphs.locate(plan, result.storage)._replace(nbytes=nbytes)
                else:
                    outputs[info.name] = result.sizes, b""
            run = prepared_run(
                self.device,
                [*places.values()],
                [recording] if plan.dispatches else [],
                [item for _, item in outputs.values()],
            )
            # Those of graphs that are gone, or that are recorded anew, would keep their memory.
            current = {id(graph): graph.recording for graph in self.graphs.cached.values()}
            for older, graph, commands in self._prepared:
                if current.get(id(graph)) is not commands:
                    older.close()
            self._prepared = [item for item in self._prepared if item[0].is_open]
            self._prepared.append((run, plan, recording))
            return Prepared(
                run,
                {name: place.nbytes for name, place in places.items()},
                {
                    name: (sizes, len(item) if isinstance(item, bytes) else item.nbytes)
                    for name, (sizes, item) in outputs.items()
                },
            )

    def run_to_device(
        self, targets: Mapping[str, DeviceArray | None], feeds: Mapping[str, Any], feeding: Copies, leaving: Copies
    ) -> tuple[dict[str, DeviceArray], Recording]:
        """Runs the model and leaves each output in the array that is given for it, or else in a new one.

        Args:
            targets: The arrays.
            feeds: The feeds of ``run``.
            feeding: Records what goes to the plan.
            leaving: Records what comes from there.

        Returns:
            The arrays, and the commands that write the last of them, submitted.
        """
        arrays = self._checked(feeds)
        infos = {info.name: info for info in self.model.outputs}
        for name in targets:
            if not infos[name].is_tensor:
                raise UnsupportedError(
                    f"output {name!r} is a {infos[name].type}, and only tensors of numbers can be bound; run returns it"
                )
        with self._lock:
            plan = self._planned(arrays, targets=targets)
            made: Mapping[str, TracedTensor | Array | Tensor]
            made = _tensors(self._drive(arrays), targets) if plan is None else plan.trace.outputs
            results = {name: self._target(made[name], name, target) for name, target in targets.items()}
            _check_apart(results)
            copies: list[Copy] = []
            known: list[tuple[DeviceArray, Array]] = []
            for name, target in results.items():
                result, nbytes = made[name], packed_bytes(target)
                if not nbytes:
                    continue
                if isinstance(result, np.ndarray):
                    known.append((target, result))
                    continue
                if isinstance(result, Tensor):
                    if result.is_on_host:
                        known.append((target, result.on_host()))
                        continue
                    source = BoundRange(result.on_device().buffer, result.on_device().offset, nbytes)
                else:
                    assert plan is not None, "traced tensors are a graph's"
                    source = self.graphs.locate(plan, result.storage)._replace(nbytes=nbytes)
                place = BoundRange(target.buffer, target.offset, nbytes)
                if source != place:  # else the plan has written it where it is
                    copies.append(Copy(source, place))
            if plan is not None:
                self._submit(plan, arrays, feeding)
            for target, values in known:
                target.buffer.write(np.ascontiguousarray(to_bytes(values, target.data_type)), target.offset)
            commands = leaving.of(copies)
            commands.submit(defer=True)
            self.device.flush()
            return results, commands

    # -- one run

    def _checked(self, feeds: Any) -> dict[str, Fed]:
        """The feeds as the device takes them, and those that the host must know as arrays."""
        self.device.require_alive()
        arrays = check_feeds(self.model, feeds)
        for info in self.model.inputs:
            fed = arrays[info.name]
            if isinstance(fed, tuple):
                arrays[info.name] = tuple(self._packed(info, item) for item in fed)
            elif fed is not None:
                arrays[info.name] = self._packed(info, fed)
        return arrays

    def _packed(self, info: ValueInfo, array: Feed) -> Feed:
        if isinstance(array, DeviceArray):
            if array.device is not self.device:
                raise other_device(f"the array fed to input {info.name!r}", array.device, "the session", self.device)
            if info.name in self.network.host_inputs:
                return from_device(array, info.dtype)
            if not array.is_packed:
                return packed(array)
        return array

    def _planned(
        self,
        arrays: Mapping[str, Fed],
        *,
        exact: bool = False,
        targets: Mapping[str, DeviceArray | None] = MappingProxyType({}),
    ) -> CompiledGraph | None:
        """The plan of a model that is one region; None where the host drives several. Targets that are arrays are written in
        place."""
        region = self.network.whole
        if region is None:
            return None
        known = {name: array for name, array in sorted(arrays.items()) if name in region.host_inputs}
        shared = self._bound_together(arrays, targets)
        if shared:
            region = self.network.sharing(region, {name: (output, array.shape) for name, (output, array) in shared.items()})
            rows = min(array.shape[2] for _, array in shared.values())
            for name in self._totals & known.keys():
                own = known[name]
                if isinstance(own, np.ndarray) and own.size == 1 and own.item() <= rows:
                    known[name] = np.full_like(own, rows)
            self.graphs.bind(
                {
                    region.states[name].value.storage: BoundRange(array.buffer, array.offset, packed_bytes(array))
                    for name, (_, array) in shared.items()
                }
            )
        host_feeds = {name: array for name, array in known.items() if isinstance(array, np.ndarray)}
        specs = {
            name: (self._types[name], array.shape)
            for name, array in arrays.items()
            if name not in host_feeds and isinstance(array, (np.ndarray, DeviceArray))
        }
        try:
            return self.graphs.get(region, specs, host_feeds, exact=exact or self.timeline is not None)
        except LongLoopError as error:
            self.network.cut(error.loop)
            return self._planned(arrays, exact=exact, targets=targets)

    def _bound_together(
        self, arrays: Mapping[str, Fed], targets: Mapping[str, DeviceArray | None]
    ) -> dict[str, tuple[str, DeviceArray]]:
        """The inputs that attention may change in place and that are bound to the memory of its output, with this and the
        array."""
        found: dict[str, tuple[str, DeviceArray]] = {}
        for name, output in self._states.items():
            array, target = arrays.get(name), targets.get(output)
            if isinstance(array, DeviceArray) and target is not None and array.is_packed and array.shape == target.shape:
                place = (array.buffer, array.offset, array.data_type)
                if place == (target.buffer, target.offset, target.data_type) and target.is_packed and packed_bytes(array):
                    found[name] = (output, array)
        return found

    def _submit(
        self, plan: CompiledGraph, arrays: Mapping[str, Fed], feeding: Copies | None = None, *, timed: bool = False
    ) -> Account:
        """Runs a model that is one region; the account of the run."""
        feeds = {name: array for name, array in arrays.items() if isinstance(array, (np.ndarray, DeviceArray))}
        account = Account({name: array.shape for name, array in feeds.items()}, timed=timed or self.timeline is not None)
        self._started(account).submit(plan, feeds, feeding)
        self._ended(account)
        return account

    def _drive(self, arrays: Mapping[str, Fed], *, timed: bool = False) -> dict[str, Item]:
        """Runs a model whose regions the host drives; its outputs by name."""
        tensors = {name: array for name, array in arrays.items() if isinstance(array, (np.ndarray, DeviceArray))}
        account = Account({name: array.shape for name, array in tensors.items()}, timed=timed or self.timeline is not None)
        items = {info.name: self._item(info, arrays[info.name]) for info in self.model.inputs}
        try:
            run = self._started(account)
            made = run.program(self.network.program, items, run.constants(self.network.constants))
        except LongLoopError as error:
            self.network.cut(error.loop)
            return self._drive(arrays, timed=timed)
        self._ended(account)
        return dict(zip((info.name for info in self.model.outputs), made, strict=True))

    def _ended(self, account: Account) -> None:
        self._account = account
        if self.timeline is not None:
            self.timeline.add(account.steps())

    def _started(self, account: Account) -> ModelRun:
        return ModelRun(self.device, self.graphs, account, self._options.limits)

    def _item(self, info: ValueInfo, fed: Fed) -> Item:
        if isinstance(fed, tuple):
            return tuple(self._tensor(info, item) for item in fed)
        return None if fed is None else self._tensor(info, fed)

    def _tensor(self, info: ValueInfo, fed: Feed) -> Tensor:
        return Tensor(self.device, data_type_of(info.dtype), info.dtype, fed.shape, fed)

    def _target(self, result: TracedTensor | Array | Tensor, name: str, given: DeviceArray | None) -> DeviceArray:
        sizes = result.shape if isinstance(result, (np.ndarray, Tensor)) else result.sizes
        wanted = known_data_type(result.dtype)
        if given is None:
            return empty_on_device(self.device, sizes, wanted, result.dtype == np.dtype(bool))
        if given.device is not self.device:
            raise other_device(f"the array bound to output {name!r}", given.device, "the session", self.device)
        if given.shape != sizes or given.data_type != wanted or not given.is_packed:
            rule = "the bound array must have the output's data type, sizes and packed strides"
            found, expected = (given.data_type, given.shape, given.strides), (wanted, sizes, packed_strides(sizes))
            raise InvalidArgumentError(rule, field=f"output {name!r}", value=found, expected=expected)
        return given

    def _downloaded(self, plan: CompiledGraph, result: TracedTensor | Array) -> Array:
        if isinstance(result, np.ndarray):
            return result.copy()
        out = empty(result.sizes, result.data_type, result.dtype)
        if out.nbytes:
            place = self.graphs.locate(plan, result.storage)
            place.buffer.read_into(out, place.offset)
        return from_bytes(out, result.sizes, result.data_type, result.dtype)

    # -- loading

    def _computed(self, opening: Opening, network: Network) -> dict[str, Array]:
        """What a network without inputs makes, by name: the model's constants that its own operators compute."""
        device = opening.result()
        graphs = CompiledGraphs(device, network, 1)
        run = ModelRun(device, graphs, Account({}), self._options.limits)
        made = run.program(network.program, {}, run.constants(network.constants))
        items = dict(zip(network.program.outputs, made, strict=True))
        arrays = {name: tensor.on_host() for name, tensor in _tensors(items, items).items()}
        device.wait_idle()  # so that their memory is free before the weights come
        return arrays

    def _trace_ahead(self) -> _Ahead | None:
        """Traces a model that leaves no size open, or what of it comes before the host drives the rest. Of any other, tries
        a trace of stand-in sizes, so that a node that cannot run at all is found now; sizes that merely do not fit each
        other, or that a row refuses, prove nothing."""
        region = self.network.whole or next((part for part, _ in self.network.program.parts), None)
        if not isinstance(region, NodeRegion) or region.host_inputs:
            return None
        start = time.perf_counter()
        fixed = fixed_sizes(self.model)
        sizes = stand_in_sizes(self.model) if fixed is None else fixed
        if sizes is None:
            return None
        specs = {name: (self._types[name], sizes[name]) for name in region.inputs}
        try:
            trace = self.network.trace(region, specs, {})
        except LongLoopError:  # which is what the first run finds
            return None
        except ModelError:
            if fixed is None:
                return None
            raise
        except UnsupportedNodeError as error:
            if fixed is None and isinstance(error.__cause__, InvalidArgumentError):
                return None
            raise
        return _Ahead(region, specs, trace, fixed, time.perf_counter() - start)

    def _plan_ahead(self, ahead: _Ahead) -> None:
        """Makes the plan of a trace of fixed sizes; of any other, sees whether its operators have kernels."""
        if ahead.sizes is not None:
            plan = self.graphs.get(ahead.region, ahead.specs, {}, ahead.trace)
            plan.seconds += ahead.seconds
            self._account = Account(ahead.sizes)
            self._account.add(plan)
            return
        self.graphs.compiler.check(ahead.trace)


class Prepared(NamedTuple):
    """A run without Python.

    Attributes:
        run: The ``_native.PreparedRun``.
        inputs: The bytes of each input that it is fed, in its order; inputs without any are left out.
        outputs: The sizes and the bytes of each output, in its order.
    """

    run: Any
    inputs: Mapping[str, int]
    outputs: Mapping[str, tuple[Sizes, int]]


class _Ahead(NamedTuple):
    """A trace made when the model is loaded.

    Attributes:
        region: The model's region.
        specs: The type and sizes of each input on the device.
        trace: The trace.
        sizes: The sizes of the model's inputs if it leaves none open, else None.
        seconds: The time that it took to make.
    """

    region: NodeRegion
    specs: Mapping[str, Spec]
    trace: Trace
    sizes: Mapping[str, Sizes] | None
    seconds: float


def _tensors(items: Mapping[str, Item], names: Iterable[str]) -> dict[str, Tensor]:
    """The items of these names. A ModelError where one is not a tensor."""
    found = {name: items[name] for name in names}
    tensors = {name: item for name, item in found.items() if isinstance(item, Tensor)}
    for name in found.keys() - tensors.keys():
        raise ModelError(f"output {name!r} must be a tensor, as the model declares; this run made a sequence or nothing")
    return tensors


def _on_host(item: Item) -> Any:
    """A value as the caller gets it."""
    if isinstance(item, tuple):
        return [tensor.on_host().copy() for tensor in item]
    if isinstance(item, Opaque):
        return item.value
    return None if item is None else item.on_host().copy()


def _check_apart(results: Mapping[str, DeviceArray]) -> None:
    """No two outputs go to the same memory."""
    ranges = {name: BoundRange(array.buffer, array.offset, packed_bytes(array)) for name, array in results.items()}
    for (name, part), (other, rest) in itertools.combinations(ranges.items(), 2):
        if part.intersects(rest):
            rule = f"the bound array may not share bytes with that of output {name!r}"
            raise InvalidArgumentError(rule, field=f"output {other!r}", value=(rest, part))
