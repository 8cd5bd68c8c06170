"""The host's time for a call, until it returns: Python's share of handing over many small dispatches. The device's work is
waited for between two calls, and does not count."""

from __future__ import annotations

import itertools
import math
import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import onnx
from onnx import helper

import dmlvk
from dmlvk.onnx import InferenceSession, SessionOptions
from dmlvk_bench.results import HostRow
from dmlvk_bench.timing import QUICK, SINGLE, Pace, settled_samples, spread

GRAPH: Final = "a chain of sums by dmlvk.Graph"
SESSION: Final = "a chain of sums by a session"
GRAPH_OF_NUMPY: Final = "a chain of sums by dmlvk.Graph, from numpy to numpy"
SESSION_OF_NUMPY: Final = "a chain of sums by a session, from numpy to numpy"

Call = Callable[[], dmlvk.DeviceArray | npt.NDArray[Any]]
"""A call whose result is an array."""

_DISPATCHES: Final = 300
_ELEMENTS: Final = 64
_WITHOUT: Final = ("all",)
"""The passes: they would make one dispatch of the chain."""


def measure(device: dmlvk.Device, *, quick: bool = False) -> Iterator[HostRow]:
    """The same chain of dependent sums through each door: from an array on the device to one on the device, by the clock;
    and from numpy to numpy, where a call waits for the device, by the processor's time of the thread that calls.

    Args:
        device: The device that the calls run on.
        quick: A few calls of each, to see that everything works.
    """
    pace = QUICK if quick else SINGLE
    on_device, of_numpy = calls(device)
    yield from timed(on_device, _DISPATCHES, pace)
    yield from timed(of_numpy, _DISPATCHES, pace, time.thread_time)


def calls(device: dmlvk.Device) -> tuple[dict[str, Call], dict[str, Call]]:
    """The calls of the chain by their rows' names: those with arrays on the device, and those with numpy's."""
    graph = dmlvk.Graph(device)
    x = graph.input((_ELEMENTS,))
    total = x
    for _ in range(_DISPATCHES):
        total = total + x
    function = graph.compile(total, without=_WITHOUT)
    session = InferenceSession(_chain(), device, SessionOptions(without_passes=_WITHOUT))
    values = np.ones(_ELEMENTS, np.float32)
    fed = dmlvk.DeviceArray.from_numpy(values, device)

    def call_graph(given: dmlvk.DeviceArray | npt.NDArray[np.float32]) -> dmlvk.DeviceArray:
        found = function(given)
        assert isinstance(found, dmlvk.DeviceArray)
        return found

    on_device: dict[str, Call] = {
        GRAPH: lambda: call_graph(fed),
        SESSION: lambda: session.run_with_device_arrays(None, {"x": fed})[0],
    }
    of_numpy: dict[str, Call] = {
        GRAPH_OF_NUMPY: lambda: call_graph(values).numpy(),
        SESSION_OF_NUMPY: lambda: session.run(None, {"x": values})[0],
    }
    return on_device, of_numpy


def timed(
    calls: Mapping[str, Call], dispatches: int, pace: Pace, clock: Callable[[], float] = time.perf_counter
) -> list[HostRow]:
    """The rows of calls that take turns, so that what else the processor does slows all of them.

    Args:
        calls: The calls, by their rows' names in the results; a result is read, and with that waited for, after the clock
            has stopped.
        dispatches: The number of dispatches of each call.
        pace: How long to warm up and to take samples.
        clock: Gives the time in seconds.
    """

    def round_of_calls() -> list[float]:
        taken = []
        for call in calls.values():
            started = clock()
            found = call()
            taken.append(clock() - started)
            if not isinstance(found, np.ndarray):
                found.numpy()
        return taken

    round_of_calls()  # what is made at the first call
    rounds = settled_samples(round_of_calls, math.fsum, pace)
    return [
        HostRow(name, dispatches, statistics.median(times) * 1e6, spread(times))
        for name, times in zip(calls, map(list, zip(*rounds, strict=True)), strict=True)
    ]


def _chain() -> bytes:
    """The chain as an ONNX file."""
    names = ["x", *(f"sum{index}" for index in range(1, _DISPATCHES)), "y"]
    nodes = [helper.make_node("Add", [before, "x"], [after]) for before, after in itertools.pairwise(names)]
    x, y = (helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [_ELEMENTS]) for name in "xy")
    graph = helper.make_graph(nodes, "chain", [x], [y])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return bytes(model.SerializeToString())
