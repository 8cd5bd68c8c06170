"""``InferenceSession``: what ONNX Runtime's scripts call, over a model on a device, or on several."""

from __future__ import annotations

import functools
import itertools
import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, overload

import numpy.typing as npt

from dmlvk.directml.device import Device, default_device
from dmlvk.engine.copies import Copies
from dmlvk.engine.device_array import DeviceArray
from dmlvk.engine.profile import StepReport
from dmlvk.engine.progress import PARSING, Count, Progress, silent
from dmlvk.graph.views import Sizes
from dmlvk.html.elements import element, facts, notebook, shortened, table
from dmlvk.html.words import size
from dmlvk.onnx.explain import NodeExplanation
from dmlvk.onnx.iobinding import IOBinding
from dmlvk.onnx.loaded_model import LoadedModel, Prepared
from dmlvk.onnx.model import Array, ModelMetadata, Source, ValueInfo, load_model
from dmlvk.onnx.notices import tell_once, tell_without_effect
from dmlvk.onnx.opening import Opening
from dmlvk.onnx.options import RunOptions, SessionOptions, check_run_options
from dmlvk.onnx.ort_value import OrtDevice, OrtValue
from dmlvk.onnx.overrides import overridden
from dmlvk.onnx.providers import Providers, asked_device_id, device_of, normalized, tell_of_providers
from dmlvk.onnx.refusals import with_refused_methods
from dmlvk.onnx.report import SessionReport
from dmlvk.onnx.side_by_side import Turns, in_order
from dmlvk.onnx.timeline import Timeline
from dmlvk.runtime.device import DeviceChoice
from dmlvk.runtime.recorder import BoundRange
from dmlvk.runtime.threads import start_thread
from dmlvk.spec.errors import (
    InvalidArgumentError,
    ModelError,
    other_device,
)

_MOST_NAMES: Final = 50
"""The most inputs and outputs that a notebook shows."""


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
        progress = progress or silent
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
        timeline = Timeline() if self._options.enable_profiling else None
        self._loaded = LoadedModel(loaded, opening, self._options, self._name, progress, timeline)
        tell_of_providers(asked, self._providers, self.device)
        self._others = [LoadedModel(loaded, other, self._options, self._name, progress) for other in others]
        self._turns = Turns(1 + len(others))

    @property
    def device(self) -> Device:
        """The device that it runs on, of several the first."""
        return self._loaded.device

    @property
    def devices(self) -> list[Device]:
        """The devices that it runs on."""
        return [loaded.device for loaded in (self._loaded, *self._others)]

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
        for loaded in (self._loaded, *self._others):
            loaded.recover(device, self._shared if loaded is self._loaded else None)
        if device is not None:
            self._shared = None

    def _repr_html_(self) -> str:
        loaded, device = self._loaded, self.device.info
        model, graphs = loaded.model, loaded.graphs
        values = [("input", info) for info in model.inputs] + [("output", info) for info in model.outputs]
        shapes = (info.shape if info.shape is None else str(info.shape) for _, info in values)
        lines = ((info.name, what, info.type, shape) for (what, info), shape in zip(values, shapes, strict=True))
        constants = (*loaded.network.folded, *loaded.network.computed)
        made = " ".join(filter(None, (model.metadata.producer_name, model.metadata.description)))
        known = facts(
            (
                ("device", f"{device.name} ({device.type})"),
                ("nodes", f"{len(model.nodes) + len(constants):,}, {len(constants):,} of them constants"),
                ("made by", shortened(made)),
                ("plans", f"{len(graphs.cached)} made for the shapes that it has met"),
                (
                    "memory",
                    f"{size(graphs.weights_bytes)} of weights, {size(graphs.arena_bytes)} for all else",
                ),
            )
        )
        names = table(("name", "", "type", "shape"), itertools.islice(lines, _MOST_NAMES))
        return notebook(type(self).__name__, self._name, known, element("div", names, class_="scroll"))

    # -- what the model says

    def get_inputs(self) -> list[ValueInfo]:
        """The inputs that ``run`` must be fed."""
        return list(self._loaded.model.inputs)

    def get_outputs(self) -> list[ValueInfo]:
        """The outputs that ``run`` returns when asked for everything."""
        return list(self._loaded.model.outputs)

    def get_overridable_initializers(self) -> list[ValueInfo]:
        """The inputs that have a default in the model, which ``SessionOptions.add_initializer`` replaces."""
        return list(self._loaded.model.overridable)

    def get_modelmeta(self) -> ModelMetadata:
        """The model's own description, ``custom_metadata_map`` included."""
        return self._loaded.model.metadata

    @property
    def host_inputs(self) -> Collection[str]:
        """The inputs that the host must know, such as shapes."""
        return self._loaded.network.host_inputs

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
        timeline = self._loaded.timeline
        return timeline.start_ns if timeline else 0

    def end_profiling(self) -> str:
        """Writes the times of all runs in Chrome's trace format and stops timing them.

        Returns:
            The file's name; "" where nothing was timed.
        """
        timeline = self._loaded.end_timing()
        return timeline.write(self._options.profile_file_prefix, self.device.info.name) if timeline else ""

    # -- how it runs

    def report(self) -> SessionReport:
        """The report of the last run: where the model's nodes ran, and what they take; see ``profile`` for their times."""
        return self._loaded.report()

    def profile(self, feeds: Mapping[str, Any]) -> SessionReport:
        """Runs the model twice, the second time with timestamps around each kernel, and reports with the times of its
        kernels on the device. A run without a profile costs nothing of it. Where the host drives the device's graphs, their
        times stand one after the other, without what the host did in between.

        Args:
            feeds: The feeds of ``run``, whose errors this raises.
        """
        return self._loaded.profile(feeds)

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
        return self._loaded.explain(node, compiled=compiled)

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
            return self._loaded.run(names, fed)
        with self._turns.free() as number:
            return (self._loaded, *self._others)[number].run(names, fed)

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
        return self._loaded.run_into(feeds, place, timed=timed)

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
        return self._loaded.prepared(feeds)

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
        infos = {info.name: info for info in self._loaded.model.outputs}
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
        results, _ = self._loaded.run_to_device(dict.fromkeys(names), feeds, Copies(self.device), Copies(self.device))
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
        bound.keep(*self._loaded.run_to_device(bound.outputs, bound.inputs, bound.feeding, bound.leaving))

    def _output_names(self, wanted: Sequence[str] | None) -> list[str]:
        known = [info.name for info in self._loaded.model.outputs]
        if wanted is None or (isinstance(wanted, Sequence) and not wanted):
            return known
        if isinstance(wanted, str) or not isinstance(wanted, Iterable):
            raise InvalidArgumentError("must be a list of names, or None for all", field="output_names", value=wanted)
        names = list(wanted)
        for name in names:
            if name not in known:
                raise ModelError(f"the model has no output {name!r}; its outputs are {', '.join(sorted(known))}")
        return names


def _has_device_arrays(feeds: Any) -> bool:
    """Whether any feed is on a device already, where it stays."""
    if not isinstance(feeds, Mapping):
        return False
    contents = (feed.content if isinstance(feed, OrtValue) else feed for feed in feeds.values())
    return any(isinstance(content, DeviceArray) for content in contents)
