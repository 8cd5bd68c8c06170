"""``InferenceSession``: a loaded model on a device, with a plan for each set of input shapes that it has met."""

from __future__ import annotations

import copy
import functools
import itertools
import math
import os
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, NamedTuple, overload

import numpy as np
import numpy.typing as npt

from dmlvk.directml.device import Device, default_device
from dmlvk.engine.compiled_graphs import CompiledGraph
from dmlvk.engine.copies import Copies, Copy, recorded_copies
from dmlvk.engine.device_array import DeviceArray
from dmlvk.engine.graph_cache import CompiledGraphs
from dmlvk.engine.profile import StepReport
from dmlvk.engine.progress import FOLDING, PARSING, Count, Progress, silent
from dmlvk.engine.run import Account
from dmlvk.engine.single_operators import packed
from dmlvk.engine.tensors import Item, Opaque, Tensor
from dmlvk.engine.trace import Spec, Trace, TracedTensor
from dmlvk.engine.transfer import (
    empty,
    empty_on_device,
    from_bytes,
    from_device,
    packed_bytes,
    to_bytes,
)
from dmlvk.graph.views import Sizes
from dmlvk.html.elements import element, facts, notebook, shortened, table
from dmlvk.html.words import size
from dmlvk.onnx.control import LongLoopError
from dmlvk.onnx.explain import NodeExplanation, explain_node
from dmlvk.onnx.feeds import Fed, Feed, check_feeds, fixed_sizes, stand_in_sizes
from dmlvk.onnx.iobinding import IOBinding
from dmlvk.onnx.model import Array, Model, ModelMetadata, Source, ValueInfo, data_type_of, load_model
from dmlvk.onnx.model_run import ModelRun, known_data_type
from dmlvk.onnx.network import Network
from dmlvk.onnx.notices import tell_once, tell_without_effect
from dmlvk.onnx.opening import Opening
from dmlvk.onnx.options import RunOptions, SessionOptions, check_run_options
from dmlvk.onnx.ort_value import OrtDevice, OrtValue
from dmlvk.onnx.overrides import overridden
from dmlvk.onnx.program import NodeRegion
from dmlvk.onnx.providers import Providers, asked_device_id, device_of, normalized, tell_of_providers
from dmlvk.onnx.refusals import with_refused_methods
from dmlvk.onnx.report import SessionReport
from dmlvk.onnx.side_by_side import Turns, in_order
from dmlvk.onnx.states import shareable, totals
from dmlvk.onnx.timeline import Timeline
from dmlvk.runtime.device import DeviceChoice
from dmlvk.runtime.measure import copy_bandwidth
from dmlvk.runtime.prepared_run import prepared_run
from dmlvk.runtime.recorder import BoundRange, Recording
from dmlvk.runtime.threads import start_thread
from dmlvk.spec.errors import (
    InvalidArgumentError,
    ModelError,
    StateError,
    UnsupportedError,
    UnsupportedNodeError,
    other_device,
)
from dmlvk.spec.log import logger
from dmlvk.spec.tensor import element_bits, packed_strides

_MOST_NAMES: Final = 50
"""The most inputs and outputs that a notebook shows."""


class _Home(NamedTuple):
    """The device of a session with the plans on it, replaced in one piece."""

    device: Device
    graphs: CompiledGraphs


@with_refused_methods
class InferenceSession:
    """A model ready to run; after ``onnxruntime.InferenceSession``.

    Every node runs on the device, except shape arithmetic and the folding of constants, for which the host has rules of its
    own (see ``report``), and what ``SessionOptions.on_unsupported`` lets ONNX Runtime do; constants for which it has none,
    the device computes when the session is made. Where control flow or sizes follow from computed values, the host reads
    those and drives loops, branches and sequences around the device's graphs, each of which has plans of its own. Weights
    are uploaded once. A plan is made for each new set of input shapes, at the first run that has them, or when the session
    is made if the model leaves no size open. Runs may come from several threads; they take turns.

    With several ``devices`` there is a copy of the model on each, and of the weights one on the host. Each ``run`` takes a
    copy that no other run has: runs from as many threads, or the batches of ``run_many``, are computed side by side.
    Everything else, such as bindings, reports and arrays that stay on a device, is of the first one.

    Random nodes give new numbers at each run. With a ``seed`` they are the same ones in every session of the model, run for
    run, though not those of another runtime; without, nobody knows them.

    Scripts for ONNX Runtime run as they are: the second and third argument may be its ``sess_options`` and ``providers``,
    and every provider is the Vulkan device, ``CPUExecutionProvider`` included; the logger ``dmlvk.onnx`` says so.

    Args:
        model: Path of an ONNX file, its bytes, or a ModelProto.
        device: A ``Device``, a choice of one (see ``Device``), or None for the process-wide one.
        options: See ``SessionOptions``.
        provider_options: The options of each provider; their ``device_id`` chooses the device, see ``OrtDevice.make``.
        devices: Several devices, instead of one: each as ``device``. One that is chosen twice is opened twice.
        progress: Told how far the loading is, see ``dmlvk.onnx.Progress``; and later how far the making of plans is.
        path_or_bytes, sess_options, providers: ONNX Runtime's names of the first three arguments.
        keywords: What else ONNX Runtime takes by name, such as ``enable_fallback``, without effect.

    Raises:
        ModelError: the file is broken.
        UnsupportedNodeError: a node cannot run; names it, its operator and version and why.
        UnsupportedError: an input or output is of a type that no device tensor can have.
        NoDeviceError: there is no such device.
    """

    @overload
    def __init__(
        self,
        model: Source,
        device: Device | DeviceChoice = None,
        options: SessionOptions | None = None,
        *,
        devices: Sequence[Device | DeviceChoice] | None = None,
        progress: Progress | None = None,
    ) -> None: ...

    @overload
    def __init__(
        self,
        path_or_bytes: Source,
        sess_options: SessionOptions | None = None,
        providers: Providers | None = None,
        provider_options: Sequence[Mapping[Any, Any]] | None = None,
        *,
        progress: Progress | None = None,
        **keywords: Any,
    ) -> None: ...

    def __init__(  # type: ignore[misc]  # the first three arguments have two names each
        self,
        model: Source | None = None,
        device: Device | DeviceChoice | SessionOptions = None,
        options: SessionOptions | Providers | None = None,
        provider_options: Sequence[Mapping[Any, Any]] | None = None,
        *,
        devices: Sequence[Device | DeviceChoice] | None = None,
        progress: Progress | None = None,
        path_or_bytes: Source | None = None,
        sess_options: SessionOptions | None = None,
        providers: Providers | None = None,
        **keywords: Any,
    ) -> None:
        if isinstance(device, SessionOptions):
            device, sess_options = None, device
        if isinstance(options, SessionOptions):
            sess_options = options
        else:
            providers = options if providers is None else providers
        for name in keywords:
            tell_once(f"InferenceSession: its argument {name!r} has no effect")
        source: Any = path_or_bytes if model is None else model
        is_path = isinstance(source, str | os.PathLike)
        self._options = (sess_options or SessionOptions()).checked()
        asked = providers or tuple(self._options.providers.items())
        self._providers = normalized(asked, provider_options)
        number = asked_device_id(self._providers)
        self._shared: Callable[[], Device] | None = None if device is not None else default_device
        if device is None and number:
            device = device_of(number)
            self._shared = functools.partial(device_of, number)
        if devices is not None:
            if device is not None or not devices:
                rule = "must be one device or more, and given without device"
                raise InvalidArgumentError(rule, field="devices", value=devices)
            self._shared = None
        hosts = self._options.on_unsupported == "host"
        self._progress = progress = progress or silent
        opening, *others = [Opening(choice) for choice in ((device,) if devices is None else devices)]
        parsing = Count(progress, PARSING, 1)
        loaded = load_model(
            source,
            float64_as_float32=self._options.float64_as_float32,
            hosts=hosts,
            max_function_nodes=self._options.max_function_nodes,
            maps=self._options.map_files,
        )
        loaded = overridden(loaded, self._options.sizes, self._options.initializers)
        parsing()
        self._name = os.path.basename(source) if is_path else loaded.metadata.graph_name or "a model"
        self._timeline = Timeline() if self._options.enable_profiling else None
        self._begin(loaded, opening)
        tell_of_providers(asked, self._providers, self.device)
        self._others = [self._copied(loaded, other) for other in others]
        self._turns = Turns(1 + len(others))

    def _copied(self, loaded: Model, opening: Opening) -> InferenceSession:
        """A session of the same model on another device. The host has one copy of the weights for both."""
        copied = copy.copy(self)
        copied._shared = copied._timeline = None
        copied._others = []
        copied._begin(loaded, opening)
        return copied

    def _begin(self, loaded: Model, opening: Opening) -> None:
        """Makes a model that has been read ready for a device."""
        folding = Count(self._progress, FOLDING, 1)
        self._network = Network(
            loaded,
            self._options.passes_left_out,
            lambda constants: self._computed(opening, constants),
            hosts=self._options.on_unsupported == "host",
            limits=self._options.limits,
        )
        self._model = self._network.model
        self._types = {info.name: info.dtype for info in self._model.inputs}
        self._states, self._totals = shareable(self._network.model.nodes), totals(self._network.model.nodes)
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
        self._network.check_device(device.capabilities.features)
        return _Home(device, CompiledGraphs(device, self._network, self._options.plan_cache_size, self._progress))

    @property
    def device(self) -> Device:
        """The device that it runs on, of several the first."""
        return self._home.device

    @property
    def devices(self) -> list[Device]:
        """The devices that it runs on."""
        return [session.device for session in (self, *self._others)]

    @property
    def _graphs(self) -> CompiledGraphs:
        return self._home.graphs

    def recover(self, device: Device | DeviceChoice = None) -> None:
        """Moves the session to another device, as after a ``DeviceLostError``. The model is not read again: its weights are
        on the host as well, and are uploaded and repacked there when they are next needed, as plans are made.

        What only the other device had does not come along: arrays on it, bindings with their outputs (see ``io_binding``),
        and the states of random nodes, whose numbers start again.

        Args:
            device: A ``Device``, or a choice of one; None for the same one opened anew where it is lost, and for the new
                process-wide one where the session was on that. A session whose device works stays on it then.

        Raises:
            NoDeviceError: there is no such device.
            UnsupportedNodeError: a node cannot run there; the session stays where it is.
            InvalidArgumentError: a device for a session of several: each of those stays, or is opened anew.
        """
        if device is not None and self._others:
            raise InvalidArgumentError("must be None for a session of several devices", field="device", value=device)
        for session in (self, *self._others):
            session._recover(device)

    def _recover(self, device: Device | DeviceChoice) -> None:
        with self._lock:
            if device is None:
                if self.device.get_device_removed_reason() is None:
                    return
                opened = self.device.reopened() if self._shared is None else self._shared()
            else:
                opened = Opening(device).result()
            self._home = self._home_on(opened)
            self._account = None
            if device is not None:
                self._shared = None

    def _repr_html_(self) -> str:
        model, device = self._model, self.device.info
        values = [("input", info) for info in model.inputs] + [("output", info) for info in model.outputs]
        shapes = (info.shape if info.shape is None else str(info.shape) for _, info in values)
        lines = ((info.name, what, info.type, shape) for (what, info), shape in zip(values, shapes, strict=True))
        constants = (*self._network.folded, *self._network.computed)
        made = " ".join(filter(None, (model.metadata.producer_name, model.metadata.description)))
        known = facts(
            (
                ("device", f"{device.name} ({device.type})"),
                ("nodes", f"{len(model.nodes) + len(constants):,}, {len(constants):,} of them constants"),
                ("made by", shortened(made)),
                ("plans", f"{len(self._graphs.cached)} made for the shapes that it has met"),
                ("memory", f"{size(self._graphs.weights_bytes)} of weights, {size(self._graphs.arena_bytes)} for all else"),
            )
        )
        names = table(("name", "", "type", "shape"), itertools.islice(lines, _MOST_NAMES))
        return notebook(type(self).__name__, self._name, known, element("div", names, class_="scroll"))

    # -- what the model says

    def get_inputs(self) -> list[ValueInfo]:
        """The inputs that ``run`` must be fed."""
        return list(self._model.inputs)

    def get_outputs(self) -> list[ValueInfo]:
        """The outputs that ``run`` returns when asked for everything."""
        return list(self._model.outputs)

    def get_overridable_initializers(self) -> list[ValueInfo]:
        """The inputs that have a default in the model, which ``SessionOptions.add_initializer`` replaces."""
        return list(self._model.overridable)

    def get_modelmeta(self) -> ModelMetadata:
        """The model's own description, ``custom_metadata_map`` included."""
        return self._model.metadata

    @property
    def host_inputs(self) -> Collection[str]:
        """The inputs that the host must know, such as shapes."""
        return self._network.host_inputs

    # -- what ONNX Runtime's scripts ask

    def get_session_options(self) -> SessionOptions:
        """The options that the session was made with; changing them changes nothing."""
        return self._options

    def get_providers(self) -> list[str]:
        """The providers that were asked for, or else those there are: each is the session's device."""
        return list(self._providers)

    def get_provider_options(self) -> dict[str, dict[str, str]]:
        """The options of each provider, as text."""
        return {name: dict(options) for name, options in self._providers.items()}

    def set_providers(
        self, providers: Providers | None = None, provider_options: Sequence[Mapping[Any, Any]] | None = None
    ) -> None:
        """Sets what ``get_providers`` says, and moves the session where a ``device_id`` but 0 asks for another device; see
        ``recover``.

        Raises:
            What a new session raises.
        """
        asked = normalized(providers, provider_options)
        number = asked_device_id(asked)
        if number and (device := device_of(number)) is not self.device:
            self.recover(device)
            self._shared = functools.partial(device_of, number)
        self._providers = asked
        tell_of_providers(providers, asked, self.device)

    def enable_fallback(self) -> None:
        """No effect: there is nothing to fall back to."""
        tell_without_effect("InferenceSession", "enable_fallback")

    def disable_fallback(self) -> None:
        """No effect: there is nothing to fall back to."""
        tell_without_effect("InferenceSession", "disable_fallback")

    def release_captured_graph(self, graph_annotation_id: int = 0) -> None:
        """No effect: no graph is captured."""
        tell_without_effect("InferenceSession", "release_captured_graph")

    def set_ep_dynamic_options(self, options: Mapping[str, str]) -> None:
        """No effect: there are no such options."""
        tell_without_effect("InferenceSession", "set_ep_dynamic_options", *options)

    def get_tuning_results(self) -> list[Any]:
        """None: kernels are chosen by rules."""
        tell_without_effect("InferenceSession", "get_tuning_results")
        return []

    def set_tuning_results(self, results: Sequence[Any], *, error_on_invalid: bool = False) -> None:
        """No effect: kernels are chosen by rules."""
        tell_without_effect("InferenceSession", "set_tuning_results")

    def create_ortvalue_from_shape_and_type(
        self,
        shape: Sequence[int],
        element_type: npt.DTypeLike | int,
        device_type: str,
        device_id: int = 0,
        vendor_id: int = -1,
    ) -> OrtValue:
        """A tensor of zeros for this session: on its device, or with "cpu" on the host.

        Args:
            shape: Its sizes.
            element_type: A numpy type, or ONNX's number of one.
            device_type: See ``OrtDevice.make``.
            device_id, vendor_id: No effect: it is the session's device.
        """
        return OrtValue.zeros_on(self.device, shape, element_type, OrtDevice.make(device_type, device_id, vendor_id))

    def get_profiling_start_time_ns(self) -> int:
        """When profiling began, by ``time.monotonic_ns``; 0 without ``SessionOptions.enable_profiling``."""
        return self._timeline.start_ns if self._timeline else 0

    def end_profiling(self) -> str:
        """Writes the times of all runs in Chrome's trace format and stops timing them.

        Returns:
            The file's name; "" where nothing was timed.
        """
        with self._lock:
            timeline, self._timeline = self._timeline, None
        return timeline.write(self._options.profile_file_prefix, self.device.info.name) if timeline else ""

    # -- how it runs

    def report(self) -> SessionReport:
        """The report of the last run: where the model's nodes ran, and what they take; see ``profile`` for their times."""
        with self._lock:
            return self._reported()

    def profile(self, feeds: Mapping[str, Any]) -> SessionReport:
        """Runs the model twice, the second time with timestamps around each kernel, and reports with the times of its
        kernels on the device. A run without a profile costs nothing of it. Where the host drives the device's graphs, their
        times stand one after the other, without what the host did in between.

        Args:
            feeds: The feeds of ``run``, whose errors this raises.
        """
        arrays = self._checked(feeds)
        with self._lock:
            for timed in (False, True):
                plan = self._planned(arrays, exact=True)
                if plan is None:
                    self._drive(arrays, timed=timed)
                else:
                    self._submit(plan, arrays, timed=timed)
            return self._reported()

    def _reported(self) -> SessionReport:
        account = self._account or Account({})
        memory = self.device.memory()
        return SessionReport(
            device=self.device.info.name,
            model=self._name,
            input_shapes=account.input_shapes,
            gpu_nodes=(*self._network.computed, *account.device_labels),
            host_nodes=(*self._network.folded, *account.host_labels),
            removed_nodes=account.removed_labels,
            host_reads=account.host_reads,
            dispatches=account.dispatches,
            weights_bytes=self._graphs.weights_bytes,
            activation_bytes=self._graphs.arena_bytes,
            largest_live_bytes=account.largest_live_bytes,
            peak_device_bytes=memory["peak"],
            staging_bytes=memory["staging"],
            plans=len(self._graphs.cached),
            planning_seconds=account.planning_seconds,
            steps=account.steps(),
            copy_bandwidth=copy_bandwidth(self.device) if account.timed and account.steps() else None,
        )

    def explain(self, node: str, *, compiled: bool = False) -> NodeExplanation:
        """Explains a node of the last run, or of the plan that was made ahead: where it went and why, the operators
        that it became, and of each the rules that chose its kernels, with yes or no, what it launches, and its bytes and
        arithmetic.

        Args:
            node: Its name, or its first output's where it has none.
            compiled: Whether the driver is asked what it made of the kernels: registers, spills and the like.

        Raises:
            ModelError: the model has no such node, or the run did not come by it.
            UnsupportedError: the driver is asked and does not tell.
            StateError: there was no run, and the model leaves sizes open.
        """
        with self._lock:
            if self._account is None:
                raise StateError("the session has no plan before its first run; call run first")
            report = self._reported()
            placed = {"device": report.gpu_nodes, "host": report.host_nodes, "removed": report.removed_nodes}
            explained = functools.partial(self._graphs.compiler.explained, compiled=compiled)
            return explain_node(node, placed, self._account.runs(), explained)

    # -- running

    @overload
    def run(
        self, output_names: Sequence[str] | None, feeds: Mapping[str, Any], run_options: RunOptions | None = None
    ) -> list[Any]: ...

    @overload
    def run(
        self, output_names: Sequence[str] | None, *, input_feed: Mapping[str, Any], run_options: RunOptions | None = None
    ) -> list[Any]: ...

    def run(
        self,
        output_names: Sequence[str] | None,
        feeds: Mapping[str, Any] | None = None,
        run_options: RunOptions | None = None,
        *,
        input_feed: Mapping[str, Any] | None = None,
    ) -> list[Any]:
        """Runs the model.

        Args:
            output_names: The outputs to return, in this order; None or an empty list for all.
            feeds: An array for each input, of exactly its type; a ``DeviceArray`` or an ``OrtValue`` of the session's device
                is copied there. Lists and tuples of numbers, and a number, become an array of the input's type. A list of
                arrays for a sequence, None for an optional input that is to be empty, an array of ``str`` for text.
            run_options: See ``RunOptions``.
            input_feed: ONNX Runtime's name of ``feeds``.

        Returns:
            A new array for each output, a list of arrays for a sequence, None for an optional output that is empty. Text is
            an array of objects, and what is of another type of ONNX's is what ONNX Runtime makes of it.

        Raises:
            InvalidArgumentError: ``output_names`` are no names, or ``feeds`` no mapping.
            ModelError: names, types, shapes or values that do not fit the model; the session stays usable.
            UnsupportedNodeError: a node cannot run with these shapes, or a loop does not end.
            UnsupportedError: an input with an initializer is fed.
            StateError: a ``DeviceArray`` of another device, or ``run_options.terminate`` is set.
        """
        check_run_options(run_options)
        names = self._output_names(output_names)
        fed = input_feed if feeds is None else feeds
        if not self._others or _has_device_arrays(fed):
            return self._run(names, fed)
        with self._turns.free() as number:
            return (self, *self._others)[number]._run(names, fed)

    def run_many(
        self,
        output_names: Sequence[str] | None,
        batches: Iterable[Mapping[str, Any]],
        run_options: RunOptions | None = None,
    ) -> Iterator[list[Any]]:
        """Runs batches that do not depend on each other, on all devices of the session at once. They are taken as they are
        needed, two for each device ahead of what is returned.

        Args:
            output_names, run_options: The arguments of ``run``.
            batches: The feeds of each run.

        Returns:
            The results of each run, in the order of the batches. Where one fails, its error comes in its place, and ends it.
        """
        names = self._output_names(output_names)
        return in_order(lambda feeds: self.run(names, feeds, run_options), batches, 1 + len(self._others))

    def _run(self, names: Sequence[str], feeds: Any) -> list[Any]:
        arrays = self._checked(feeds)
        with self._lock:
            plan = self._planned(arrays)
            if plan is None:
                items = self._drive(arrays)
                return [_on_host(items[name]) for name in names]
            self._submit(plan, arrays)
            return [self._downloaded(plan, plan.trace.outputs[name]) for name in names]

    def run_into(
        self, feeds: Mapping[str, Any], place: Callable[[str, Sizes], Array | BoundRange], *, timed: bool = False
    ) -> Sequence[StepReport]:
        """Runs the model and leaves its outputs in the caller's memory.

        Args:
            feeds: The feeds of ``run``.
            place: Gives the memory for the bytes of an output, of its name and sizes: a contiguous array of UINT8, or a
                range of the session's device.
            timed: Whether the run has timestamps.

        Returns:
            The operators of a timed run, in order.

        Raises:
            What ``run`` raises.
        """
        arrays = self._checked(feeds)
        with self._lock:
            plan = self._planned(arrays, exact=timed)
            items = self._drive(arrays, timed=timed) if plan is None else {}
            made = _tensors(items, items)
            if plan is not None:
                self._submit(plan, arrays, timed=timed)
            copies = []
            for info in self._model.outputs:
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
                    source = self._graphs.locate(plan, result.storage)._replace(nbytes=target.nbytes)
                if isinstance(target, BoundRange):
                    copies.append(Copy(source, target))
                else:
                    source.buffer.read_into(target, source.offset)
            if copies:
                recorded_copies(self.device, copies).submit(defer=True)
                self.device.flush()
            return self._account.steps() if timed and self._account else ()

    def prepared(self, feeds: Mapping[str, Any]) -> Prepared | None:
        """What native code needs to run the model for feeds of these sizes, again and again, without Python. It takes no
        turns with the session's other calls: its caller sees that none runs meanwhile.

        Args:
            feeds: The feeds of ``run``; only of ``host_inputs`` do the elements matter.

        Returns:
            None of a model that the host drives, and while the session profiles.

        Raises:
            What ``run`` raises before it runs.
        """
        arrays = self._checked(feeds)
        with self._lock:
            plan = None if self._timeline is not None else self._planned(arrays)
            if plan is None:
                return None
            recording = self._graphs.recorded(plan)
            places: dict[str, BoundRange] = {}
            for name, value in plan.trace.inputs.items():
                if nbytes := _bytes_of(value):
                    places[name] = self._graphs.locate(plan, value.storage)._replace(nbytes=nbytes)
            outputs: dict[str, tuple[Sizes, BoundRange | bytes]] = {}
            for info in self._model.outputs:
                result = plan.trace.outputs[info.name]
                if isinstance(result, np.ndarray):
                    known = np.ascontiguousarray(to_bytes(result, data_type_of(result.dtype)))
                    outputs[info.name] = result.shape, known.tobytes()
                elif nbytes := _bytes_of(result):
                    outputs[info.name] = result.sizes, self._graphs.locate(plan, result.storage)._replace(nbytes=nbytes)
                else:
                    outputs[info.name] = result.sizes, b""
            run = prepared_run(
                self.device,
                [*places.values()],
                recording if plan.dispatches else None,
                [item for _, item in outputs.values()],
            )
            # Those of graphs that are gone, or that are recorded anew, would keep their memory.
            current = {id(graph): graph.recording for graph in self._graphs.cached.values()}
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

    def run_async(
        self,
        output_names: Sequence[str] | None,
        input_feed: Mapping[str, Any],
        callback: Callable[[list[Any], Any, str], object],
        user_data: object = None,
        run_options: RunOptions | None = None,
    ) -> None:
        """Runs the model in a thread of its own and returns at once.

        Args:
            output_names, input_feed, run_options: The arguments of ``run``.
            callback: Called in that thread with the outputs, ``user_data`` and "", or where the run fails with an empty
                list, ``user_data`` and the message.
            user_data: Whatever the callback is to be given.
        """

        def work() -> None:
            try:
                outputs, message = self.run(output_names, input_feed, run_options), ""
            except Exception as error:  # whatever it is, it is for the callback
                outputs, message = [], str(error)
            callback(outputs, user_data, message)

        start_thread("dmlvk-run", work)

    def run_with_ort_values(
        self,
        output_names: Sequence[str] | None,
        input_dict_ort_values: Mapping[str, OrtValue],
        run_options: RunOptions | None = None,
    ) -> list[OrtValue]:
        """Runs as ``run`` does, from tensors and into tensors on the host.

        Args:
            output_names, run_options: The arguments of ``run``.
            input_dict_ort_values: A tensor, or a sequence of them, for each input.
        """
        outputs = self.run(output_names, input_dict_ort_values, run_options)
        infos = {info.name: info for info in self._model.outputs}
        names = self._output_names(output_names)
        return [OrtValue(output, infos[name].dtype) for name, output in zip(names, outputs, strict=True)]

    def run_with_device_arrays(self, output_names: Sequence[str] | None, feeds: Mapping[str, Any]) -> list[DeviceArray]:
        """Runs as ``run`` does, but the outputs stay on the device: a new packed array each, which may be fed again. Returns
        without waiting for the device.

        A bool is a UINT8 to operators there, and an output may have no elements. Where the host drives the device's graphs,
        it waits for what it has to read.

        Raises:
            UnsupportedError: an output is a sequence, or optional: ``run`` gives it.
            And what ``run`` raises.
        """
        names = self._output_names(output_names)
        results, _ = self._run_into(dict.fromkeys(names), feeds, Copies(self.device), Copies(self.device))
        return [results[name] for name in names]

    # -- binding

    def io_binding(self) -> IOBinding:
        """An empty binding of inputs and outputs for ``run_with_iobinding``."""
        return IOBinding(self)

    @overload
    def run_with_iobinding(self, binding: IOBinding, run_options: RunOptions | None = None) -> None: ...

    @overload
    def run_with_iobinding(self, *, iobinding: IOBinding, run_options: RunOptions | None = None) -> None: ...

    def run_with_iobinding(
        self,
        binding: IOBinding | None = None,
        run_options: RunOptions | None = None,
        *,
        iobinding: IOBinding | None = None,
    ) -> None:
        """Runs the model with the inputs and outputs of a binding, which has the outputs afterwards. Does not wait for the
        device, unless an output is bound to memory of the host.

        Args:
            binding: The binding.
            run_options: See ``RunOptions``.
            iobinding: ONNX Runtime's name of ``binding``.

        Raises:
            InvalidArgumentError: an output is to go to an array of other sizes or another type, or into the memory of
                another one.
            And what ``run`` raises.
        """
        check_run_options(run_options)
        bound = iobinding if binding is None else binding
        if not isinstance(bound, IOBinding):
            raise InvalidArgumentError("must be an IOBinding", field="binding", value=type(bound))
        if bound.device is not self.device:
            raise other_device("the binding", bound.device, "the session", self.device)
        bound.keep(*self._run_into(bound.outputs, bound.inputs, bound.feeding, bound.leaving))

    # -- one run

    def _run_into(
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
        infos = {info.name: info for info in self._model.outputs}
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
                    source = self._graphs.locate(plan, result.storage)._replace(nbytes=nbytes)
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

    def _output_names(self, wanted: Sequence[str] | None) -> list[str]:
        known = [info.name for info in self._model.outputs]
        if wanted is None or (isinstance(wanted, Sequence) and not wanted):
            return known
        if isinstance(wanted, str) or not isinstance(wanted, Iterable):
            raise InvalidArgumentError("must be a list of names, or None for all", field="output_names", value=wanted)
        names = list(wanted)
        for name in names:
            if name not in known:
                raise ModelError(f"the model has no output {name!r}; its outputs are {', '.join(sorted(known))}")
        return names

    def _checked(self, feeds: Any) -> dict[str, Fed]:
        """The feeds as the device takes them, and those that the host must know as arrays."""
        self.device.require_alive()
        arrays = check_feeds(self._model, feeds)
        for info in self._model.inputs:
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
            if info.name in self._network.host_inputs:
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
        region = self._network.whole
        if region is None:
            return None
        known = {name: array for name, array in sorted(arrays.items()) if name in region.host_inputs}
        shared = self._bound_together(arrays, targets)
        if shared:
            region = self._network.sharing(region, {name: (output, array.shape) for name, (output, array) in shared.items()})
            rows = min(array.shape[2] for _, array in shared.values())
            for name in self._totals & known.keys():
                own = known[name]
                if isinstance(own, np.ndarray) and own.size == 1 and own.item() <= rows:
                    known[name] = np.full_like(own, rows)
            self._graphs.bind(
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
            return self._graphs.get(region, specs, host_feeds, exact=exact or self._timeline is not None)
        except LongLoopError as error:
            self._network.cut(error.loop)
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
    ) -> None:
        """Runs a model that is one region."""
        feeds = {name: array for name, array in arrays.items() if isinstance(array, (np.ndarray, DeviceArray))}
        account = Account({name: array.shape for name, array in feeds.items()}, timed=timed or self._timeline is not None)
        self._started(account).submit(plan, feeds, feeding)
        self._ended(account)

    def _drive(self, arrays: Mapping[str, Fed], *, timed: bool = False) -> dict[str, Item]:
        """Runs a model whose regions the host drives; its outputs by name."""
        tensors = {name: array for name, array in arrays.items() if isinstance(array, (np.ndarray, DeviceArray))}
        account = Account({name: array.shape for name, array in tensors.items()}, timed=timed or self._timeline is not None)
        items = {info.name: self._item(info, arrays[info.name]) for info in self._model.inputs}
        try:
            run = self._started(account)
            made = run.program(self._network.program, items, run.constants(self._network.constants))
        except LongLoopError as error:
            self._network.cut(error.loop)
            return self._drive(arrays, timed=timed)
        self._ended(account)
        return dict(zip((info.name for info in self._model.outputs), made, strict=True))

    def _ended(self, account: Account) -> None:
        self._account = account
        if self._timeline is not None:
            self._timeline.add(account.steps())

    def _started(self, account: Account) -> ModelRun:
        return ModelRun(self.device, self._graphs, account, self._options.limits)

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
            place = self._graphs.locate(plan, result.storage)
            place.buffer.read_into(out, place.offset)
        return from_bytes(out, result.sizes, result.data_type, result.dtype)

    # -- planning

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
        region = self._network.whole or next((part for part, _ in self._network.program.parts), None)
        if not isinstance(region, NodeRegion) or region.host_inputs:
            return None
        start = time.perf_counter()
        fixed = fixed_sizes(self._model)
        sizes = stand_in_sizes(self._model) if fixed is None else fixed
        if sizes is None:
            return None
        specs = {name: (self._types[name], sizes[name]) for name in region.inputs}
        try:
            trace = self._network.trace(region, specs, {})
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
            plan = self._graphs.get(ahead.region, ahead.specs, {}, ahead.trace)
            plan.seconds += ahead.seconds
            self._account = Account(ahead.sizes)
            self._account.add(plan)
            return
        self._graphs.compiler.check(ahead.trace)


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


def _has_device_arrays(feeds: Any) -> bool:
    """Whether any feed is on a device already, where it stays."""
    if not isinstance(feeds, Mapping):
        return False
    contents = (feed.content if isinstance(feed, OrtValue) else feed for feed in feeds.values())
    return any(isinstance(content, DeviceArray) for content in contents)


def _bytes_of(tensor: TracedTensor) -> int:
    """Bytes of the elements of a packed tensor."""
    return -(-math.prod(tensor.sizes) * element_bits(tensor.data_type) // 8)


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
