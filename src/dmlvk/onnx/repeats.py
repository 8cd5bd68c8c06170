"""Runs that come again: arrays of the host, of names, types and sizes that a run had before. Their checks and their plan are
known, and their commands recorded, so that native code does all but make the arrays of the results."""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Hashable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from dmlvk.engine.compiled_graphs import CompiledGraph
from dmlvk.engine.graph_cache import CompiledGraphs
from dmlvk.engine.run import Account
from dmlvk.engine.transfer import Array, elements_bytes
from dmlvk.graph.views import Sizes
from dmlvk.onnx.network import Network
from dmlvk.runtime.device import ComputeDevice
from dmlvk.runtime.prepared_run import prepared_run
from dmlvk.runtime.recorder import BoundRange

_MOST_HOST_BYTES: Final = 256
"""The most bytes of an input that the host must know, for which its elements are compared with those before."""
_MOST_OF_A_PLAN: Final = 4
"""The most runs that a plan keeps: those for other outputs, and of inputs that it does not read."""
_ONCE: Final = "once"
"""In place of a run that was done once."""


class _Repeat(NamedTuple):
    """A run as native code repeats it.

    Attributes:
        native: The ``_native.PreparedRun``.
        inputs: The names of the inputs that it is fed.
        outputs: For each output its sizes and type, or the array that it always is.
        account: Its account, which is the same each time.
    """

    native: Any
    inputs: tuple[str, ...]
    outputs: tuple[tuple[Sizes, np.dtype[Any]] | Array, ...]
    account: Account

    def run(self, feeds: Mapping[str, Array]) -> list[Array]:
        """The outputs for these inputs."""
        made = [np.empty(*item) if isinstance(item, tuple) else item.copy() for item in self.outputs]
        filled = [array for array, item in zip(made, self.outputs, strict=True) if isinstance(item, tuple) and array.size]
        self.native.run([feeds[name] for name in self.inputs], filled)
        return made


class Repeats:
    """The runs of a model on a device that may come again. Not for several threads at once, but for ``key``.

    A run is kept with its plan's commands, and goes with them.

    Args:
        device: The device.
        graphs: The plans.
        network: The model.
    """

    def __init__(self, device: ComputeDevice, graphs: CompiledGraphs, network: Network) -> None:
        self._device, self._graphs, self._network = device, graphs, network
        self._inputs = [info.name for info in network.model.inputs]
        self._plans: weakref.WeakValueDictionary[Hashable, CompiledGraph] = weakref.WeakValueDictionary()

    def key(self, names: Sequence[str], feeds: object) -> Hashable | None:
        """What must be equal for a run to be a repetition; None where it cannot be one.

        Args:
            names: The outputs that are wanted.
            feeds: The feeds as the caller gave them.
        """
        if type(feeds) is not dict or len(feeds) != len(self._inputs):
            return None
        host_inputs = self._network.host_inputs
        parts: list[Hashable] = [tuple(names)]
        for name in self._inputs:
            array = feeds.get(name)
            if type(array) is not np.ndarray or not array.flags.c_contiguous or array.dtype.hasobject:
                return None
            parts += (array.dtype, array.shape)
            if name in host_inputs:
                if array.nbytes > _MOST_HOST_BYTES:
                    return None
                parts.append(array.tobytes())
        return tuple(parts)

    def run(self, key: Hashable, feeds: Mapping[str, Array]) -> tuple[list[Array], Account] | None:
        """The outputs and the account of a run; None where it is none that is kept."""
        graph = self._plans.get(key)
        if graph is None or graph.recording is None or not self._graphs.use(graph):
            return None
        repeat = graph.recording.kept.get(key)
        return (repeat.run(feeds), repeat.account) if isinstance(repeat, _Repeat) else None

    def note(
        self, key: Hashable, feeds: Mapping[str, Array], names: Sequence[str], plan: CompiledGraph, account: Account
    ) -> None:
        """Notes that such a run was done. One that comes the second time is kept: of a size that is met once nothing is.

        Args:
            key, feeds, names: What it was called with.
            plan, account: What it had.
        """
        assert plan.recording is not None, "it has run"
        kept = plan.recording.kept
        if key not in kept:
            kept[key] = _ONCE
            for oldest in list(itertools.islice(kept, max(len(kept) - _MOST_OF_A_PLAN, 0))):
                del kept[oldest]
            return
        if kept[key] is _ONCE:
            kept[key] = self._repeat(feeds, names, plan, account)
            self._plans[key] = plan

    def _repeat(
        self, feeds: Mapping[str, Array], names: Sequence[str], plan: CompiledGraph, account: Account
    ) -> _Repeat | None:
        """The run; None where an array's bytes are not those of its tensor."""
        places: dict[str, BoundRange] = {}
        for name, value in plan.trace.inputs.items():
            nbytes = elements_bytes(value.sizes, value.data_type)
            if nbytes != feeds[name].nbytes:
                return None
            if nbytes:
                places[name] = self._graphs.locate(plan, value.storage)._replace(nbytes=nbytes)
        outputs: list[tuple[Sizes, np.dtype[Any]] | Array] = []
        results: list[BoundRange] = []
        for name in names:
            result = plan.trace.outputs[name]
            if isinstance(result, np.ndarray):
                outputs.append(result)
                continue
            nbytes = elements_bytes(result.sizes, result.data_type)
            if nbytes != np.empty(result.sizes, result.dtype).nbytes:
                return None
            outputs.append((result.sizes, result.dtype))
            if nbytes:
                results.append(self._graphs.locate(plan, result.storage)._replace(nbytes=nbytes))
        assert plan.recording is not None, "it has run"
        native = prepared_run(self._device, [*places.values()], [plan.recording] if plan.dispatches else [], results)
        return _Repeat(native, tuple(places), tuple(outputs), account)
