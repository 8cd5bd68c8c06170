"""Compiled graphs of PyTorch's as functions of its tensors."""

from __future__ import annotations

import threading
from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, NamedTuple

import numpy as np
import torch
from torch import fx

from dmlvk.engine.compiled_graphs import CompiledGraph
from dmlvk.engine.copies import Copy, recorded_copies
from dmlvk.engine.device_array import DeviceArray
from dmlvk.engine.graph_cache import CompiledGraphs
from dmlvk.engine.numpy_types import data_type_of
from dmlvk.engine.run import Account, Run
from dmlvk.engine.single_operators import packed
from dmlvk.engine.trace import Spec, TracedTensor
from dmlvk.engine.transfer import Array, empty_on_device, packed_bytes
from dmlvk.graph.step import Storage
from dmlvk.graph.views import Sizes
from dmlvk.runtime.device import ComputeDevice
from dmlvk.runtime.memory import Buffer
from dmlvk.runtime.recorder import BoundRange, Recording
from dmlvk.spec.errors import UnsupportedError
from dmlvk.spec.tensor import packed_strides
from dmlvk.torch.aliases import OutputViews
from dmlvk.torch.facts import TensorFacts
from dmlvk.torch.memory import (
    COPIES,
    Lying,
    array_of,
    buffer_of,
    device_tensor,
    from_host,
    is_on_device,
    lying,
    on_host,
    packed_copy,
)
from dmlvk.torch.network import RANDOM_STATE, Network
from dmlvk.torch.places import InputPlaces, OutputPlaces
from dmlvk.torch.types import stored_as

_GRAPHS: Final = 8
"""Compiled graphs kept for each graph of PyTorch's: so many sets of sizes."""
_KEY_BITS: Final = 62
_STATE_SIZES: Final = (1, 1, 1, 6)
_WORTH_A_SUBMIT: Final = 8
"""So many dispatches of a graph take as long as a submit does, or longer; fewer wait for the next one."""


class _Results(NamedTuple):
    """What a run returns.

    Attributes:
        made: The outputs, whose elements come with the run.
        copies: Brings them to outputs on the device.
        reads: Where those of outputs on the host come from.
    """

    made: list[Any]
    copies: Recording | None
    reads: list[tuple[BoundRange, Array]]


class _Known(NamedTuple):
    """What the last call has found of a tensor among its inputs.

    Attributes:
        place: Its type, offset, sizes and strides.
        lies: How it lies in memory.
        is_on_device: Whether it is there.
        array: Where the graph is bound to it; None where each call copies the tensor.
    """

    place: tuple[Any, ...]
    lies: Lying
    is_on_device: bool
    array: DeviceArray | None

    def is_bound_to(self, tensor: torch.Tensor) -> bool:
        """Whether the graph is bound to a tensor of the device."""
        return self.array is not None and self.array.buffer == buffer_of(tensor) and self.place == _place(tensor)


class _Made(NamedTuple):
    """An output of a graph on the device.

    Attributes:
        value: What the graph makes.
        dtype, sizes, strides: Those of PyTorch's tensor.
        nbytes: The bytes of its elements.
    """

    value: TracedTensor
    dtype: torch.dtype
    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    nbytes: int


class _Call(NamedTuple):
    """A graph that is ready for inputs.

    Attributes:
        graph: The graph, bound to those that it reads where they lie.
        shapes: The sizes of all, by name.
        made: Its outputs on the device; None for others.
    """

    graph: CompiledGraph
    shapes: dict[str, Sizes]
    made: tuple[_Made | None, ...]


def _place(tensor: torch.Tensor) -> tuple[Any, ...]:
    return tensor.dtype, tensor.storage_offset(), tensor.shape, tensor.stride()


class DeviceGraph:
    """A graph of PyTorch's on a device. May be called from several threads; they take turns.

    Args:
        device: The device.
        module: The graph, of core operators.
        kind: What the graph is for, as reports name it.
        fixed: The places of inputs that the next run most likely has again: parameters and buffers. Those on the device are
            bound where they lie.
        kept_from: The outputs from which on all stay on the device: what a backward graph reads. None if there are none.
        constants: Inputs that are always the same, by name, and are not given.
        binds: Whether inputs on the device are bound where they lie, though the next run may have others.
        repeats: Whether the next run's inputs on the device most likely lie where this one's do, as in a step of training:
            they are bound there, until they have moved some times.
        lent_from: The output from which on all are made where the tensors of a run have them, as those are mostly gone at
            the next run. None if none are.

    Attributes:
        kind: As given.
        account: What the last run came to.
        runs: How often it has run.

    Raises:
        UnsupportedError: it has operators without a converter.
    """

    def __init__(
        self,
        device: ComputeDevice,
        module: fx.GraphModule,
        kind: str,
        kept_from: int | None = None,
        constants: Mapping[str, torch.Tensor] = MappingProxyType({}),
        *,
        binds: bool = False,
        repeats: bool = False,
        lent_from: int | None = None,
        fixed: Collection[int] = (),
    ) -> None:
        self._binds = binds
        self._fixed = frozenset(fixed)
        self._known: dict[int, _Known] = {}
        self._last: _Call | None = None
        self.device = device
        self.kind = kind
        self._views = OutputViews(module) if kind == "inference" else None
        self._outputs = OutputPlaces(device)
        self._inputs = InputPlaces(device)
        self.network = Network(module, constants, lent_from, self._outputs.expect)
        self._written = [index for index, node in enumerate(self.network.inputs) if node in self.network.written]
        self._repeats = repeats or (bool(self._written) and not binds)
        self.account = Account({})
        self.runs = 0
        self._kept_from = len(self.network.outputs) if kept_from is None else kept_from
        self._graphs = CompiledGraphs(device, self.network, _GRAPHS, outside=self._outputs)
        self._lock = threading.Lock()

    def __call__(self, args: list[Any]) -> list[Any]:
        """The outputs for some inputs; empties the list of these, so that none outlives its last use."""
        with self._lock, torch.no_grad():
            given = [*args]
            args.clear()
            return self._run(given)

    def _run(self, given: Sequence[Any]) -> list[Any]:
        args = [*given]
        for index in self._written:
            args[index] = _whole(given[index])
        feeds: dict[str, Array | DeviceArray] = {}
        call = self._repeated(args, feeds) or self._prepared(args, feeds)
        graph = call.graph
        if self.network.uses_random:
            feeds[RANDOM_STATE] = _random_state()
        self.account = Account(call.shapes)
        run = Run(self.device, self._graphs, self.account, data_type_of)
        results = self._results(call, given)  # made first: what fails here has changed nothing
        changing = [args[index] for index in self._written]
        on_host = [tensor for tensor in changing if not is_on_device(tensor)]
        for tensor in changing:
            # of a single operator PyTorch counts itself, and not the statistics that a normalization saves for its gradient
            if is_on_device(tensor) and not tensor.is_inference() and self.kind != "operator":
                torch.autograd.graph.increment_version(tensor)
        COPIES.change(on_host, self.device)
        at_once = graph.dispatches >= _WORTH_A_SUBMIT  # so that the device works while the host goes on
        run.submit(graph, feeds, defer=results.copies is not None or not at_once)
        if results.copies is not None:
            results.copies.submit(defer=not at_once)
        for place, array in results.reads:
            place.buffer.read_into(array, place.offset)
        COPIES.changed(on_host, self.device)
        for index in self._written:
            if args[index] is not given[index]:
                given[index].copy_(args[index])
        self.runs += 1
        return results.made

    def _repeated(self, args: Sequence[Any], feeds: dict[str, Array | DeviceArray]) -> _Call | None:
        """The last call once more, if what the graph is bound to lies where it lay then; notes what is copied."""
        call = self._last
        if call is None:
            return None
        for index, (node, given) in enumerate(zip(self.network.inputs, args, strict=True)):
            known = self._known.get(index)
            if known is None or not isinstance(given, torch.Tensor):
                return None
            if known.is_bound_to(given):
                continue
            is_bound_elsewhere = known.is_on_device and known.array is not None
            if is_bound_elsewhere or is_on_device(given) != known.is_on_device or _place(given) != known.place:
                return None
            array, _ = self._placed(given, known.lies, index in self._written, index in self._fixed)
            if known.array is None:
                feeds[node.name] = array
            elif not isinstance(array, DeviceArray) or array.buffer != known.array.buffer:
                return None
        return call

    def _prepared(self, args: Sequence[Any], feeds: dict[str, Array | DeviceArray]) -> _Call:
        """A call with its graph bound to the inputs; notes those that are copied."""
        self._last = None
        before, self._known = self._known, {}
        feeds.clear()
        network = self.network
        shapes: dict[str, Sizes] = {}
        numbers: dict[str, Array] = {}
        orders: dict[str, tuple[int, ...]] = {}
        specs: dict[str, Spec] = {}
        kept: dict[str, DeviceArray] = {}
        written = {node.name for node in network.written}
        lasting = {*written}
        for index, (node, given) in enumerate(zip(network.inputs, args, strict=True)):
            if not isinstance(given, torch.Tensor):
                numbers[node.name] = np.array(int(given), np.int64)
                continue
            name = node.name
            shapes[name] = tuple(given.shape)
            known = before.get(index)
            array: Array | DeviceArray
            if known is not None and known.array is not None and known.is_bound_to(given):
                array = known.array
            else:
                lies = lying(given)
                array, stays = self._placed(given, lies, name in written, index in self._fixed)
                bound_to = array if stays and isinstance(array, DeviceArray) else None
                known = _Known(_place(given), lies, is_on_device(given), bound_to)
            self._known[index] = known
            orders[name] = known.lies.order
            specs[name] = (stored_as(given.dtype), known.lies.sizes)
            if known.array is not None:
                kept[name] = known.array
            if isinstance(given, torch.nn.Parameter) or index in self._fixed:
                lasting.add(name)
            if node.users:
                feeds[name] = array
        buffers = {kept[name].buffer for name in written}
        for name in [own for own, array in kept.items() if own not in written and array.buffer in buffers]:
            del kept[name]  # a run may change it before it is read: it gets a copy
        if network.uses_random:
            specs[RANDOM_STATE] = (np.dtype(np.uint32), _STATE_SIZES)
        region = network.region(orders, frozenset(kept))
        ranges: dict[Storage, BoundRange] = {}
        bound: set[str] = set()
        for name, array in kept.items():
            place = given = BoundRange(array.buffer, array.offset, _bytes(array))
            if self._repeats and name not in lasting:
                place = self._inputs.of(name, given)
            if place == given:
                bound.add(name)
            ranges[network.storage(name, specs[name][1], specs[name][0])] = place
        self._graphs.bind(ranges)
        graph = self._graphs.get(region, specs, numbers)
        for name in bound:
            feeds.pop(name, None)
        for index, node in enumerate(network.inputs):
            if node.name in feeds and index in self._known:
                self._known[index] = self._known[index]._replace(array=None)
        call = _Call(graph, shapes, self._made(graph))
        self._last = None if numbers or self._binds else call
        return call

    def _placed(
        self, tensor: torch.Tensor, lies: Lying, is_written: bool, is_fixed: bool
    ) -> tuple[Array | DeviceArray, bool]:
        """Where an input is read: an array with its dimensions in the order in which they lie, and whether the graph is
        bound to its memory rather than fed a copy."""
        binds = self._binds or self._repeats or is_fixed
        stays = is_written or isinstance(tensor, torch.nn.Parameter) or (binds and is_on_device(tensor))
        if is_on_device(tensor):
            array = array_of(tensor, apart=stays)
            if array.device is not self.device:
                array.device.require_alive()
                self.device.require_alive()
                raise UnsupportedError(f"a tensor is on {array.device}, and the graph on {self.device}")
            array = array.transpose(*lies.order) if lies.order else array
            if not array.is_packed or not array.is_bindable:
                return packed(array) if array.size else array, False
            return array, stays
        if tensor.device.type != "cpu":
            raise UnsupportedError(f"tensors on {tensor.device} are not supported; there are cpu and dmlvk")
        if stays and lies.is_packed and not tensor.is_inference():
            return COPIES.of(tensor, self.device), True
        return np.ascontiguousarray(on_host(tensor.permute(lies.order))), False

    def _made(self, graph: CompiledGraph) -> tuple[_Made | None, ...]:
        """The outputs of a graph that are on the device."""
        found: list[_Made | None] = []
        for index, node in enumerate(self.network.outputs):
            facts = self.network.facts[node] if isinstance(node, fx.Node) else None
            value = graph.trace.outputs.get(f"output {index}")
            is_there = isinstance(facts, TensorFacts) and not (facts.is_on_host and index < self._kept_from)
            if not is_there or not isinstance(facts, TensorFacts) or value is None or isinstance(value, np.ndarray):
                found.append(None)
                continue
            sizes, strides = [0] * len(facts.order), [0] * len(facts.order)
            for axis, size, step in zip(facts.order, value.sizes, packed_strides(value.sizes), strict=True):
                sizes[axis], strides[axis] = int(size), int(step)
            found.append(_Made(value, facts.dtype, tuple(sizes), tuple(strides), _size_of(sizes, facts.dtype)))
        return tuple(found)

    def _results(self, call: _Call, args: Sequence[Any]) -> _Results:
        """What a run returns, before it runs."""
        network = self.network
        made: list[Any] = []
        copies: list[Copy] = []
        reads: list[tuple[BoundRange, Array]] = []
        by_node = dict(zip(network.inputs, args, strict=True))
        for index, (node, own) in enumerate(zip(network.outputs, call.made, strict=True)):
            if own is not None:
                buffer = self._lent(own.value.storage)
                if buffer is None:
                    buffer = empty_on_device(self.device, own.value.sizes, own.value.data_type).buffer
                    if own.nbytes:
                        place = self._graphs.locate(call.graph, own.value.storage)._replace(nbytes=own.nbytes)
                        copies.append(Copy(place, BoundRange(buffer, 0, own.nbytes)))
                made.append(device_tensor(self.device, buffer, own.dtype, own.sizes, own.strides, buffer.size_in_bytes))
            elif not isinstance(node, fx.Node):
                made.append(node)
            elif node in by_node:
                made.append(by_node[node])
            else:
                facts, value = network.facts[node], call.graph.trace.outputs.get(f"output {index}")
                if value is None or isinstance(value, np.ndarray) or not isinstance(facts, TensorFacts):
                    made.append(network.number(node, by_node))
                    continue
                array = np.empty(value.sizes, stored_as(facts.dtype))
                if array.nbytes:
                    place = self._graphs.locate(call.graph, value.storage)._replace(nbytes=array.nbytes)
                    reads.append((place, array))
                tensor = from_host(array, facts.dtype)
                made.append(tensor.permute([facts.order.index(axis) for axis in range(len(facts.order))]))
        if self._views is not None:
            made = self._views.filled(made, network.number, by_node)
        return _Results(made, recorded_copies(self.device, copies) if copies else None, reads)

    def _lent(self, storage: Storage) -> Buffer | None:
        """The memory that a tensor of the coming run has where the graph makes it; None where it gets a copy."""
        if storage not in self._outputs:
            return None
        before = self._outputs[storage]
        lent = self._outputs.lend(storage)
        if self._outputs[storage] != before:
            self._graphs.bind({storage: self._outputs[storage]})
        return lent


def _whole(tensor: torch.Tensor) -> torch.Tensor:
    """A tensor whose memory a run can change: the tensor itself, or a copy of one with gaps, at a place where no graph can
    be bound, or without a count of changes."""
    if is_on_device(tensor):
        is_whole = lying(tensor).is_packed and array_of(tensor).is_bindable
        return tensor if is_whole else packed_copy(tensor)
    if lying(tensor).is_packed and not tensor.is_inference():
        return tensor
    with torch.inference_mode(False):
        return tensor.clone(memory_format=torch.contiguous_format)


def _bytes(array: DeviceArray) -> int:
    return max(-(-packed_bytes(array) // 4) * 4, 4)


def _size_of(sizes: Sequence[int], dtype: torch.dtype) -> int:
    count = 1
    for size in sizes:
        count *= int(size)
    return count * stored_as(dtype).itemsize


def _random_state() -> Array:
    """A counter of 0, and a key of PyTorch's generator."""
    key = int(torch.randint(2**_KEY_BITS, (), dtype=torch.int64, device="cpu"))
    return np.array([0, 0, 0, 0, key & 0xFFFFFFFF, key >> 32], np.uint32).reshape(_STATE_SIZES)
