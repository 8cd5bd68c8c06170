"""The host's time for a call, until it returns: Python's share of handing over many small dispatches. The device's work is
waited for between two calls, and does not count."""

from __future__ import annotations

import itertools
import math
import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Final

import numpy as np
import onnx
from onnx import helper

import dmlvk
from dmlvk.onnx import InferenceSession, SessionOptions
from dmlvk_bench.results import HostRow
from dmlvk_bench.timing import QUICK, SINGLE, Pace, settled_samples, spread

GRAPH: Final = "a chain of sums by dmlvk.Graph"
SESSION: Final = "a chain of sums by a session"

_DISPATCHES: Final = 300
_ELEMENTS: Final = 64
_WITHOUT: Final = ("all",)
"""The passes: they would make one dispatch of the chain."""


def measure(device: dmlvk.Device, *, quick: bool = False) -> Iterator[HostRow]:
    """The same chain of dependent sums through each door, from arrays on the device to one on the device.

    Args:
        device: The device that the calls run on.
        quick: A few calls of each, to see that everything works.
    """
    pace = QUICK if quick else SINGLE
    graph = dmlvk.Graph(device)
    x = graph.input((_ELEMENTS,))
    total = x
    for _ in range(_DISPATCHES):
        total = total + x
    function = graph.compile(total, without=_WITHOUT)
    session = InferenceSession(_chain(), device, SessionOptions(without_passes=_WITHOUT))
    fed = dmlvk.DeviceArray.from_numpy(np.ones(_ELEMENTS, np.float32), device)

    def call_graph() -> dmlvk.DeviceArray:
        found = function(fed)
        assert isinstance(found, dmlvk.DeviceArray)
        return found

    yield from timed(
        {GRAPH: call_graph, SESSION: lambda: session.run_with_device_arrays(None, {"x": fed})[0]}, _DISPATCHES, pace
    )


def timed(calls: Mapping[str, Callable[[], dmlvk.DeviceArray]], dispatches: int, pace: Pace) -> list[HostRow]:
    """The rows of calls that take turns, so that what else the processor does slows all of them.

    Args:
        calls: The calls, by their rows' names in the results; a result is read, and with that waited for, after the clock
            has stopped.
        dispatches: The number of dispatches of each call.
        pace: How long to warm up and to take samples.
    """

    def round_of_calls() -> list[float]:
        taken = []
        for call in calls.values():
            started = time.perf_counter()
            found = call()
            taken.append(time.perf_counter() - started)
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
