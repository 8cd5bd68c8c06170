"""Compiled graphs of PyTorch's as functions of its tensors."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, NamedTuple

import numpy as np
import torch
from torch import fx

from dmlvk.engine.copies import Copy, recorded_copies
from dmlvk.engine.device_array import DeviceArray
from dmlvk.engine.graph_cache import CompiledGraphs
from dmlvk.engine.numpy_types import data_type_of
from dmlvk.engine.run import Account, Run
from dmlvk.engine.single_operators import packed
from dmlvk.engine.trace import Spec
from dmlvk.engine.transfer import Array, empty_on_device, packed_bytes
from dmlvk.runtime.device import ComputeDevice
from dmlvk.runtime.recorder import BoundRange, Recording
from dmlvk.spec.errors import UnsupportedError
from dmlvk.torch.facts import TensorFacts
from dmlvk.torch.memory import COPIES, Held, array_of, device_tensor, from_host, held, is_on_device, lying, on_host
from dmlvk.torch.network import RANDOM_STATE, Network
from dmlvk.torch.types import stored_as

_GRAPHS: Final = 8
"""Compiled graphs kept for each graph of PyTorch's: so many sets of sizes."""
_KEY_BITS: Final = 62


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
    """What has been found of an input on the device that a graph is bound to, for as long as it is the same one.

    Attributes:
        tensor: The tensor.
        held: Its buffer then.
        place: Its offset, sizes and strides then.
        order: The order of its dimensions in memory.
        spec: Its type and its sizes in that order.
        array: Where it is read.
    """

    tensor: weakref.ref[torch.Tensor]
    held: Held
    place: tuple[Any, ...]
    order: tuple[int, ...]
    spec: Spec
    array: DeviceArray

    @staticmethod
    def of(tensor: torch.Tensor, order: tuple[int, ...], spec: Spec, array: DeviceArray) -> _Known:
        return _Known(weakref.ref(tensor), held(tensor), _place(tensor), order, spec, array)

    def is_of(self, tensor: Any) -> bool:
        """Whether it is still true of a tensor: its memory may be another one since, as after ``tensor.data = ...``."""
        if self.tensor() is not tensor or not is_on_device(tensor):
            return False
        return held(tensor) is self.held and _place(tensor) == self.place


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
        fixed: Collection[int] = (),
    ) -> None:
        self._binds = binds
        self._fixed = frozenset(fixed)
        self._known: dict[int, _Known] = {}
        self.device = device
        self.kind = kind
        self.network = Network(module, constants)
        self.account = Account({})
        self.runs = 0
        self._kept_from = len(self.network.outputs) if kept_from is None else kept_from
        self._graphs = CompiledGraphs(device, self.network, _GRAPHS)
        self._lock = threading.Lock()

    def __call__(self, args: list[Any]) -> list[Any]:
        """The outputs for some inputs; empties the list of these, so that none outlives its last use."""
        with self._lock, torch.no_grad():
            given = [*args]
            args.clear()
            return self._run(given)

    def _run(self, args: Sequence[Any]) -> list[Any]:
        network = self.network
        tensors: dict[str, torch.Tensor] = {}
        numbers: dict[str, Array] = {}
        orders: dict[str, tuple[int, ...]] = {}
        specs: dict[str, Spec] = {}
        feeds: dict[str, Array | DeviceArray] = {}
        kept: dict[str, DeviceArray] = {}
        written = {node.name for node in network.written}
        for index, (node, given) in enumerate(zip(network.inputs, args, strict=True)):
            if not isinstance(given, torch.Tensor):
                numbers[node.name] = np.array(int(given), np.int64)
                continue
            name = node.name
            tensors[name] = given
            known = self._known.get(index)
            if known is None or not known.is_of(given):
                order, sizes, is_packed = lying(given)
                array, stays = self._placed(given, order, is_packed, name in written, index in self._fixed)
                spec = (stored_as(given.dtype), sizes)
                if stays and isinstance(array, DeviceArray) and is_on_device(given) and not self._binds:
                    self._known[index] = _Known.of(given, order, spec, array)
            else:
                order, spec, array, stays = known.order, known.spec, known.array, True
            orders[name] = order
            specs[name] = spec
            if stays and isinstance(array, DeviceArray):
                kept[name] = array
            if node.users:
                feeds[name] = array
        buffers = {kept[name].buffer for name in written}
        for name in [own for own, array in kept.items() if own not in written and array.buffer in buffers]:
            del kept[name]  # a run may change it before it is read: it gets a copy
        if network.uses_random:
            feeds[RANDOM_STATE] = _random_state()
            specs[RANDOM_STATE] = (np.dtype(np.uint32), feeds[RANDOM_STATE].shape)
        region = network.region(orders, frozenset(kept))
        ranges = {
            network.storage(name, specs[name][1], specs[name][0]): BoundRange(array.buffer, array.offset, _bytes(array))
            for name, array in kept.items()
        }
        self._graphs.bind(ranges)
        graph = self._graphs.get(region, specs, numbers)
        self.account = Account({name: tuple(tensor.shape) for name, tensor in tensors.items()})
        run = Run(self.device, self._graphs, self.account, data_type_of)
        results = self._results(graph, args)  # made first: what fails here has changed nothing
        changing = [tensors[name] for name in written]
        on_host = [tensor for tensor in changing if not is_on_device(tensor)]
        for tensor in changing:
            if is_on_device(tensor):
                torch.autograd.graph.increment_version(tensor)
        COPIES.change(on_host, self.device)
        run.submit(graph, {name: feeds[name] for name in graph.trace.inputs if name not in kept})
        if results.copies is not None:
            results.copies.submit(defer=True)
        for place, array in results.reads:
            place.buffer.read_into(array, place.offset)
        COPIES.changed(on_host, self.device)
        self.runs += 1
        return results.made

    def _placed(
        self, tensor: torch.Tensor, order: tuple[int, ...], is_packed: bool, is_written: bool, is_fixed: bool
    ) -> tuple[Array | DeviceArray, bool]:
        """Where an input is read: an array with its dimensions in the order in which they lie, and whether the graph is
        bound to its memory rather than fed a copy."""
        stays = is_written or isinstance(tensor, torch.nn.Parameter) or ((self._binds or is_fixed) and is_on_device(tensor))
        if is_on_device(tensor):
            array = array_of(tensor)
            if array.device is not self.device:
                raise UnsupportedError(f"a tensor is on {array.device}, and the graph on {self.device}")
            array = array.transpose(*order) if order else array
            if not array.is_packed or not array.is_bindable:
                if is_written:
                    raise UnsupportedError("a graph that changes a view which starts within 16 bytes, or has gaps")
                return packed(array) if array.size else array, False
            return array, stays
        if tensor.device.type != "cpu":
            raise UnsupportedError(f"tensors on {tensor.device} are not supported; there are cpu and dmlvk")
        if stays and is_packed and not tensor.is_inference():
            return COPIES.of(tensor, self.device), True
        if is_written:
            raise UnsupportedError("a graph that changes a CPU tensor with gaps, or one of torch.inference_mode")
        return np.ascontiguousarray(on_host(tensor.permute(order))), False

    def _results(self, graph: Any, args: Sequence[Any]) -> _Results:
        """What a run returns, before it runs."""
        network = self.network
        made: list[Any] = []
        copies: list[Copy] = []
        reads: list[tuple[BoundRange, Array]] = []
        by_node = dict(zip(network.inputs, args, strict=True))
        for index, node in enumerate(network.outputs):
            if not isinstance(node, fx.Node):
                made.append(node)
                continue
            facts = network.facts[node]
            if node in by_node:
                made.append(by_node[node])
                continue
            result = graph.trace.outputs.get(f"output {index}")
            if result is None or not isinstance(facts, TensorFacts):
                made.append(network.number(node, by_node))
                continue
            sizes = tuple(int(result.sizes[facts.order.index(axis)]) for axis in range(len(facts.order)))
            nbytes = _size_of(result.sizes, facts.dtype)
            place = self._graphs.locate(graph, result.storage)._replace(nbytes=nbytes) if nbytes else None
            if facts.is_on_host and index < self._kept_from:
                array = np.empty(result.sizes, stored_as(facts.dtype))
                if place is not None:
                    reads.append((place, array))
                tensor = from_host(array, facts.dtype)
                made.append(tensor.permute([facts.order.index(axis) for axis in range(len(facts.order))]))
                continue
            target = empty_on_device(self.device, result.sizes, result.data_type)
            if place is not None:
                copies.append(Copy(place, BoundRange(target.buffer, 0, nbytes)))
            strides = [0] * len(sizes)
            for axis, step in zip(facts.order, target.strides, strict=True):
                strides[axis] = step
            made.append(device_tensor(self.device, target.buffer, facts.dtype, sizes, strides, target.buffer.size_in_bytes))
        return _Results(made, recorded_copies(self.device, copies) if copies else None, reads)


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
    return np.array([0, 0, 0, 0, key & 0xFFFFFFFF, key >> 32], np.uint32).reshape(1, 1, 1, 6)
