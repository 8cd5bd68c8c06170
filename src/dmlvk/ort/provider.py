"""What ONNX Runtime asks of the provider: its devices, and for each session which nodes it takes and what runs them."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Final, Literal, NamedTuple, Protocol

import numpy as np
import onnx

from dmlvk.directml.device import Device, default_device
from dmlvk.engine.device_array import DeviceArray
from dmlvk.engine.transfer import from_bytes
from dmlvk.graph.passes import PASSES
from dmlvk.graph.views import Sizes
from dmlvk.onnx import InferenceSession, SessionOptions
from dmlvk.onnx.model import FOUR_BITS, Array, data_type_of, element_kind, element_type, load_model
from dmlvk.onnx.network import Network
from dmlvk.onnx.weights import SplitModel, with_weights
from dmlvk.ort.contexts import Context, is_kept, read, written
from dmlvk.ort.parts import NAME, SharedGraph
from dmlvk.runtime.device import choose_device, devices
from dmlvk.runtime.memory import Buffer
from dmlvk.runtime.recorder import BoundRange
from dmlvk.spec.enums import TensorDataType
from dmlvk.spec.errors import DmlvkError, InvalidArgumentError, NoDeviceError, UnsupportedError, UnsupportedNodeError
from dmlvk.spec.log import logger

_PREFIX: Final = f"ep.{NAME.lower()}."
"""What ONNX Runtime puts before the provider's options among a session's entries."""
_WITHOUT_CPU: Final = "session.disable_cpu_ep_fallback"
_WITH_CONTEXT: Final = "ep.context_enable"
_INFO: Final = 1
_WITH_COPIES: Final = 23, 1
"""The first version that copies between a plug-in's nodes and others."""
_WITH_INNER_PARTS: Final = 25, 0
"""The first version that gives the parts of inner graphs names of their own."""

Log = Callable[[int, str], None]
"""Takes a severity of ONNX Runtime's and a message for its log."""


class Graph(Protocol):
    """A graph of ONNX Runtime's, which may be used during the call that brings it.

    Attributes:
        proto: A GraphProto: nodes in order, the type of each value as ``value_info``, constants as ``initializer``; large
            ones have a stand-in for their bytes.
        weights: The bytes of those, where ONNX Runtime has them.
        opsets: Domain -> version.
        format_version: Of ONNX's file format.
        model_path: The model's path; "" where it came as bytes.
    """

    @property
    def proto(self) -> bytes: ...

    @property
    def weights(self) -> Mapping[str, memoryview]: ...

    @property
    def opsets(self) -> Mapping[str, int]: ...

    @property
    def format_version(self) -> int: ...

    @property
    def model_path(self) -> str: ...

    def parent(self) -> Graph | None:
        """The node around this graph, as a graph by itself; None of the outermost."""


Bytes = memoryview | tuple[Any, int]
"""Where a tensor of ONNX Runtime's lies: its bytes, or a ``_native.Buffer`` of the part's device and an offset there."""


class Run(Protocol):
    """The inputs and outputs of one run of a part, which may be used during the call that brings it."""

    def input(self, index: int) -> tuple[int, Sizes, Bytes]:
        """ONNX's number of the element type, sizes and bytes."""

    def output(self, index: int, shape: Sizes) -> tuple[int, Bytes]:
        """How many bytes an output of these sizes has, and where they are to be written."""


class Options(NamedTuple):
    """The provider's options, all text to ONNX Runtime.

    Attributes:
        device_uuid: The device to run on, where not the one that the session was given.
        on_unsupported: "cpu" leaves nodes that the device cannot run to ONNX Runtime, "error" refuses the model.
        graph_passes: "all", "none" or names of passes with commas between them: those that may change the graph.
        profile: The start of the names of files in Chrome's trace format, one for each part, with the times of its kernels
            in all runs; they are written when the session is closed.
    """

    device_uuid: str = ""
    on_unsupported: Literal["cpu", "error"] = "cpu"
    graph_passes: str = "all"
    profile: str = ""

    @staticmethod
    def read(entries: Mapping[str, str]) -> Options:
        """The options among a session's entries.

        Raises:
            InvalidArgumentError: an unknown name or value.
        """
        given = {key.removeprefix(_PREFIX): value for key, value in entries.items() if key.startswith(_PREFIX)}
        for key in given:
            if key not in Options._fields:
                raise InvalidArgumentError(
                    f"must be one of {', '.join(Options._fields)}", field="provider option", value=key
                )
        options = Options(**given)  # type: ignore[arg-type]  # checked below
        if options.on_unsupported not in ("cpu", "error"):
            raise InvalidArgumentError('must be "cpu" or "error"', field="on_unsupported", value=options.on_unsupported)
        options.left_out()
        return options

    def left_out(self) -> tuple[str, ...]:
        """The passes that shall not change the graph."""
        if self.graph_passes in ("all", "none"):
            return () if self.graph_passes == "all" else ("all",)
        known = [item.name for item in PASSES]
        wanted = self.graph_passes.split(",")
        for name in wanted:
            if name not in known:
                rule = f'must be "all", "none" or names of {", ".join(known)}'
                raise InvalidArgumentError(rule, field="graph_passes", value=name)
        return tuple(name for name in known if name not in wanted)


class Server:
    """Answers for the provider in this process. The sessions on one GPU share one device."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._opened: dict[str, Device] = {}

    def devices(self) -> list[tuple[bool, int, int, dict[str, str]]]:
        """For each Vulkan device whether it is a GPU, its vendor's and its own number, and what else there is to say."""
        try:
            found = devices()
        except NoDeviceError:  # other providers' devices are to be had nevertheless
            return []
        return [
            (
                info.type in ("discrete", "integrated", "virtual"),
                info.vendor_id,
                info.device_id,
                {
                    "device_uuid": info.uuid,
                    "device_name": info.name,
                    "device_type": info.type,
                    "driver": info.driver,
                    "api_version": ".".join(map(str, info.api_version)),
                    "memory_bytes": str(info.memory_in_bytes),
                },
            )
            for info in found
        ]

    def session(
        self, chosen: Sequence[Mapping[str, str]], entries: Mapping[str, str], log: Log, version: tuple[int, int]
    ) -> ProviderSession:
        """The provider of a session.

        Args:
            chosen: What ``devices`` said of each device that the session was given.
            entries: The session's entries, the provider's options among them.
            log: ONNX Runtime's log.
            version: The number of its interface, and the last one of its version: (24, 4) is 1.24.4's.

        Raises:
            InvalidArgumentError: an option of an unknown name or value.
            NoDeviceError: there is no such device any more.
        """
        options = Options.read(entries)
        uuids = {options.device_uuid} if options.device_uuid else {item.get("device_uuid", "") for item in chosen}
        return ProviderSession(self._device(uuids), options, entries, log, version)

    def allocate(self, uuid: str, nbytes: int) -> Any:
        """The native buffer of new memory of a device.

        Raises:
            OutOfDeviceMemoryError: there is no room.
            NoDeviceError: there is no such device any more.
        """
        try:
            return self._device({uuid}).create_buffer(nbytes).native
        except DmlvkError as error:  # of which ONNX Runtime's allocators say no more than that there is no memory
            logger("ort").warning("%s", error)
            raise

    def _device(self, uuids: Collection[str]) -> Device:
        """The device to run on: of several, which a session has that asks for the provider by its name, the default one, or
        else the best."""
        default = default_device()
        if default.info.uuid in uuids:
            return default
        candidates = [info for info in devices() if info.uuid in uuids]
        uuid = choose_device(candidates=candidates).uuid if len(candidates) > 1 else next(iter(uuids))
        with self._lock:
            if uuid not in self._opened or self._opened[uuid].get_device_removed_reason() is not None:
                self._opened[uuid] = Device(uuid)
            return self._opened[uuid]


class ProviderSession:
    """The provider of one session of ONNX Runtime's.

    Args:
        device: Where it runs.
        options: Its options.
        entries: The session's entries.
        log: ONNX Runtime's log.
        version: The number of its interface, and the last one of its version.
    """

    def __init__(
        self, device: Device, options: Options, entries: Mapping[str, str], log: Log, version: tuple[int, int]
    ) -> None:
        self._device, self._options, self._entries, self._log = device, options, entries, log
        self._alone, self._keeps = (entries.get(key) == "1" for key in (_WITHOUT_CPU, _WITH_CONTEXT))
        self._has_copies, self._takes_inner = version >= _WITH_COPIES, version >= _WITH_INNER_PARTS
        self._ready: dict[_Key, InferenceSession] = {}
        self._failure: Exception | None = None
        self._parts_run: list[InferenceSession] = []
        self._numbers = itertools.count()

    @property
    def device(self) -> Any:
        """The native device."""
        return self._device.native

    @property
    def device_uuid(self) -> str:
        """Which one that is."""
        return self._device.info.uuid

    def choose(self, given: Graph) -> list[list[int]]:
        """The parts of a graph that the device takes, each the places of its nodes.

        A part's session is made now: it alone knows whether all of its nodes can run, and ``compile`` finds it again. A
        graph inside a node that the device takes as a whole is left as it is.

        ONNX Runtime takes an error here for a provider that wants no node, and goes on. So an error is kept for ``compile``,
        which is asked for once all nodes are taken.
        """
        try:
            around = given.parent()
            if around is not None and self._runs(_shared(around), [0]):
                return []
            graph = _shared(given)
            kept = [at for at, node in enumerate(graph.proto.node) if is_kept(node)]
            graph.refused.update(dict.fromkeys(kept, "it is a part by itself"))
            if around is not None and not self._takes_inner:
                reason = (
                    "it is in an inner graph, whose parts ONNX Runtime names as those of the graph around it before 1.25"
                )
                graph.refused.update(dict.fromkeys(range(len(graph.proto.node)), reason))
            parts, left = self._parts(graph)
            for at in kept:
                del graph.refused[at]
            if (parts or kept) and graph.refused and not self._has_copies:
                raise UnsupportedError(
                    "ONNX Runtime 1.23.0 copies nothing between a plug-in's nodes and others: a model that runs in part "
                    f"needs 1.23.1; {_described(graph, min(graph.refused))}"
                )
            self._tell(graph, [*parts, *([at] for at in kept)], left)
            return [*map(list, parts), *([at] for at in kept)]
        except Exception as error:  # whatever it is, it is the session's
            self._failure = _without_frames(error)
            return [[at] for at in range(len(onnx.GraphProto.FromString(given.proto).node))]

    def compile(self, given: Graph, name: str, inputs: Sequence[str], outputs: Sequence[str]) -> tuple[Part, Context | None]:
        """What runs a part, and what a model says of it where it is to be kept.

        Args:
            given: The part, as a graph.
            name: ONNX Runtime's name for it.
            inputs, outputs: The names of what ONNX Runtime gives to it and takes from it, in its order.

        Raises:
            UnsupportedError: nodes cannot run, and the options say that this is an error.
            And what else was raised when nodes were chosen.
        """
        failure, self._failure = self._failure, None
        if failure is not None:
            try:
                raise failure
            finally:
                del failure  # which is in a frame of its own traceback
        graph = _shared(given)
        first = graph.proto.node[0]
        if is_kept(first):
            kept = read(first, self._entries, given.model_path)
            session = InferenceSession(kept, self._device, self._session_options())
            return self._part(session, inputs, outputs), self._context(onnx.ModelProto.FromString(kept), name, given)
        whole = range(len(graph.proto.node))
        ready = self._ready.pop(_key(graph, whole), None)
        made = set() if ready is None else {info.name for info in ready.get_outputs()}
        if made != set(outputs):
            graph.proto.ClearField("output")
            graph.proto.output.extend(onnx.ValueInfoProto(name=name) for name in outputs)
            graph = SharedGraph(graph.proto, graph.weights, graph.opsets, graph.format_version)
            ready = None
        session = self._opened(graph, whole) if ready is None else ready
        context = self._context(with_weights(*graph.model(whole, graph.names())), name, given) if self._keeps else None
        return self._part(session, inputs, outputs), context

    def _context(self, part: onnx.ModelProto, name: str, given: Graph) -> Context | None:
        return written(part, name, self._entries, given.model_path) if self._keeps else None

    def close(self) -> None:
        """Writes the profiles, if there are to be any; no part runs any more."""
        for session in self._parts_run:
            session.end_profiling()

    def _part(self, session: InferenceSession, inputs: Sequence[str], outputs: Sequence[str]) -> Part:
        self._parts_run.append(session)
        return Part(session, inputs, outputs)

    def _session_options(self) -> SessionOptions:
        made = SessionOptions(without_passes=self._options.left_out())
        if self._options.profile:
            made.enable_profiling = True
            made.profile_file_prefix = f"{self._options.profile}{next(self._numbers)}_"  # two may end in the same second
        return made

    def _parts(self, graph: SharedGraph) -> tuple[list[tuple[int, ...]], Collection[int]]:
        """The parts that the device takes, with their sessions ready, and nodes that are not worth taking."""
        left: set[int] = set()
        while True:
            for at in left:
                graph.refused.setdefault(at, "it is one of few light nodes, not worth the copies")
            parts = graph.parts()
            if not self._alone:
                light = {at for part in parts if not graph.is_worth_it(part) for at in part}
                if light:
                    left |= light
                    continue
            refused = [at for part in parts for at in self._refused(graph, part)]
            if not refused:
                return parts, left

    def _refused(self, graph: SharedGraph, part: Sequence[int]) -> list[int]:
        """The nodes of a part that cannot run after all, whose reasons are noted; without any, the session is ready."""
        key = _key(graph, part)
        if key in self._ready:
            return []
        names = graph.names()
        try:
            self._ready[key] = self._opened(graph, part)
            return []
        except UnsupportedNodeError as error:
            place = graph.place_of(error.node, part, names)
            reason = error.reason
            found = part if place is None else [place]
        except DmlvkError as error:  # of the model, not of a node: whichever cannot run by itself
            reason = str(error)
            found = [at for at in part if len(part) > 1 and not self._runs(graph, [at])] or part
        for at in found:
            graph.refused[at] = reason
        return list(found)

    def _runs(self, graph: SharedGraph, part: Sequence[int]) -> bool:
        """Whether nodes could run, as far as that shows before sizes are known."""
        if not graph.refused.keys().isdisjoint(part):
            return False
        try:
            Network(load_model(graph.model(part, graph.names()))).check_device(self._device.capabilities.features)
        except DmlvkError:
            return False
        return True

    def _opened(self, graph: SharedGraph, part: Sequence[int]) -> InferenceSession:
        light, weights = graph.model(part, graph.names())
        kept = {name: memoryview(bytes(data)) for name, data in weights.items()}
        return InferenceSession(SplitModel(light, kept), self._device, self._session_options())

    def _tell(self, graph: SharedGraph, parts: Sequence[Sequence[int]], left: Collection[int]) -> None:
        """Logs what the device takes, and why it does not take the rest."""
        total, taken = len(graph.proto.node), sum(map(len, parts))
        message = f"{NAME}: {taken} of {total} nodes in {len(parts)} parts on {self._device.info.name}"
        self._log(_INFO, message)
        logger("ort").info(message)
        for at, reason in sorted(graph.refused.items()):
            line = f"{NAME}: {_described(graph, at)} runs elsewhere: {reason}"
            self._log(_INFO, line)
            logger("ort").info(line)
        refused = [at for at in graph.refused if at not in left]
        if refused and self._options.on_unsupported == "error":
            what = f"{_described(graph, refused[0])}: {graph.refused[refused[0]]}"
            raise UnsupportedError(f"{len(refused)} of {total} nodes cannot run on the device; {what}")


def _without_frames(error: Exception) -> Exception:
    """An error that can be kept: the frames that it was raised in lead to those of their callers, and so to the session of
    ONNX Runtime's that is being made, which has what keeps the error. Such a circle through ONNX Runtime would never go."""
    each: BaseException | None = error
    while each is not None:
        each.__traceback__ = None
        each = each.__cause__ or each.__context__
    return error


def _described(graph: SharedGraph, at: int) -> str:
    """A node of a graph, by its name and operator."""
    node = graph.proto.node[at]
    return f"node {graph.names()[at]!r} ({node.domain or 'ai.onnx'}::{node.op_type})"


_Key = tuple[frozenset[bytes], frozenset[bytes], frozenset[tuple[str, int]]]
"""A part: its nodes, its small constants, and where the bytes of the others are. ONNX Runtime leaves them where they are."""


def _key(graph: SharedGraph, part: Collection[int]) -> _Key:
    light, weights = graph.model(part, {at: graph.proto.node[at].name for at in part})
    places = {(name, np.frombuffer(data, np.uint8).ctypes.data) for name, data in weights.items()}
    constants = {item.SerializeToString(deterministic=True) for item in light.graph.initializer}
    nodes = {node.SerializeToString(deterministic=True) for node in light.graph.node}
    return frozenset(nodes), frozenset(constants), frozenset(places)


def _shared(given: Graph) -> SharedGraph:
    return SharedGraph(onnx.GraphProto.FromString(given.proto), given.weights, given.opsets, given.format_version)


class Part:
    """A part of a model that a session runs.

    Args:
        session: The session.
        inputs, outputs: The names of what ONNX Runtime gives to it and takes from it, in its order.

    Attributes:
        device: The native device that it runs on.
    """

    def __init__(self, session: InferenceSession, inputs: Sequence[str], outputs: Sequence[str]) -> None:
        self._session = session
        places = {name: index for index, name in enumerate(inputs)}
        self._inputs = {info.name: places[info.name] for info in session.get_inputs()}
        self._outputs = {name: index for index, name in enumerate(outputs)}
        self._types = {info.name: info.dtype for info in session.get_inputs()}
        self.device = session.device.native

    @property
    def host_inputs(self) -> list[int]:
        """The places of the inputs whose elements the host must know, such as shapes."""
        return [self._inputs[name] for name in self._session.host_inputs if name in self._inputs]

    def prepare(self, sizes: Sequence[Sizes], known: Mapping[int, tuple[int, memoryview]]) -> PreparedPart | None:
        """A run for inputs of these sizes, which needs Python no more; None where each run does.

        Args:
            sizes: Those of the inputs, in ONNX Runtime's order.
            known: ONNX's number of the element type and the bytes of each of ``host_inputs``.

        Raises:
            What ``InferenceSession.run`` raises.
        """
        feeds = {
            name: _array(known[at][0], sizes[at], known[at][1])
            if at in known
            else np.broadcast_to(np.zeros((), self._types[name]), sizes[at])
            for name, at in self._inputs.items()
        }
        prepared = self._session.prepared(feeds)
        if prepared is None:
            return None
        return PreparedPart(
            prepared.run,
            [(self._inputs[name], nbytes) for name, nbytes in prepared.inputs.items()],
            [(self._outputs[name], sizes, nbytes) for name, (sizes, nbytes) in prepared.outputs.items()],
        )

    def compute(self, run: Run, timed: bool) -> list[tuple[str, float, float, dict[str, str]]]:
        """Runs it once.

        Args:
            run: The run.
            timed: Whether its kernels are timed.

        Returns:
            Of a timed run each kernel, when it started and ended in seconds, and of what node it was.

        Raises:
            What ``InferenceSession.run`` raises.
        """

        def place(name: str, sizes: Sizes) -> Array | BoundRange:
            nbytes, found = run.output(self._outputs[name], sizes)
            if isinstance(found, memoryview):
                return np.frombuffer(found, np.uint8, nbytes)
            return BoundRange(self._buffer(found[0]), found[1], nbytes)

        feeds = {name: self._fed(name, *run.input(index)) for name, index in self._inputs.items()}
        steps = self._session.run_into(feeds, place, timed=timed)
        return [
            (span.kernel, span.start, span.end, {"node": step.node, "op_type": step.op_type, "operator": step.operator})
            for step in steps
            for span in step.times or ()
        ]

    def _fed(self, name: str, code: int, shape: Sizes, data: Bytes) -> Array | DeviceArray:
        if isinstance(data, memoryview):
            return _array(code, shape, data)
        kind = data_type_of(self._types[name])
        assert kind is not None, "no part is given such a type"
        is_bool = self._types[name] == np.dtype(bool)
        return DeviceArray(self._session.device, self._buffer(data[0]), kind, shape, offset=data[1], is_bool=is_bool)

    def _buffer(self, native: Any) -> Buffer:
        return Buffer(self._session.device, native)


class PreparedPart(NamedTuple):
    """A run of a part without Python.

    Attributes:
        run: The ``_native.PreparedRun``.
        inputs: The place and the bytes of each input that it is fed, in its order.
        outputs: The place, the sizes and the bytes of each output, in its order.
    """

    run: Any
    inputs: list[tuple[int, int]]
    outputs: list[tuple[int, Sizes, int]]


def _array(code: int, shape: Sizes, data: memoryview) -> Array:
    """ONNX Runtime's tensor as numpy has it, in the same memory but for types of 4 bits."""
    kind, (_, dtype) = element_kind(code), element_type(code)
    assert dtype is not None, "no part is given such a type"
    if kind in FOUR_BITS and isinstance(kind, TensorDataType):
        return from_bytes(np.frombuffer(data, np.uint8), shape, kind, dtype)
    return np.frombuffer(data, dtype, count=int(np.prod(shape, dtype=np.int64))).reshape(shape)
