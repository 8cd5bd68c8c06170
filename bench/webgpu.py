"""ONNX Runtime's WebGPU provider as the rival: every product and convolution of ResNet-50 and BERT-base, each a model of one
node, beside ``dmlvk.onnx.InferenceSession`` on the same GPU and the same numbers.

Weights are constants of the model, so either side may lay them out as it likes before it is timed. Inputs and outputs stay
on the device. What is timed is a run of the session, launch included: as many runs as take a tenth of a second, handed over
one after another, then a wait for the last. The rival's wait is a read of one number that follows the runs in its queue,
since it offers no other.
"""

from __future__ import annotations

import functools
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnxruntime
from onnx import TensorProto, helper, numpy_helper
from onnxruntime.capi import _pybind_state

import dmlvk
from dmlvk.onnx import InferenceSession

Sizes = tuple[int, ...]
Array = np.ndarray[Any, Any]

VERSION: str = onnxruntime.__version__
BATCHES = (1, 32)
SEQUENCES = (128, 384)
TOLERANCE = 1e-5
"""Largest difference of both outputs, relative to the largest output: both sum float32, each in an order of its own."""
OPTIONS = {"enableGraphCapture": "1", "validationMode": "disabled"}
"""The provider's fastest ways: commands recorded once and replayed, as ours are, and nothing checked at a run."""
ROUND_SECONDS = 0.1
ROUNDS = 3


@dataclass(frozen=True)
class OneNode:
    """A model of one node, float32.

    Attributes:
        name: What the results call it.
        op_type: The ONNX operator.
        inputs: Sizes of each input.
        fed: How many of them, from the first, a run is fed; the rest are constants.
        output: Sizes of the output.
        terms: Products that an output is the sum of.
        attributes: The node's.
    """

    name: str
    op_type: str
    inputs: tuple[Sizes, ...]
    fed: int
    output: Sizes
    terms: int
    attributes: Mapping[str, Any] = field(default_factory=dict)

    @property
    def operations(self) -> int:
        """Additions and multiplications."""
        return 2 * self.terms * int(np.prod(self.output))

    def arrays(self) -> list[Array]:
        """Numbers for every input, the same ones at every call, that make outputs of about 1."""
        some = np.random.default_rng(0).standard_normal(2**20, dtype=np.float32)
        found = [np.resize(some[at:], sizes) for at, sizes in enumerate(self.inputs)]
        found[1] *= np.float32(self.terms**-0.5)
        return found

    def model(self, arrays: list[Array]) -> bytes:
        """The ONNX file, with its constants from among these arrays."""
        names = [f"x{at}" for at in range(len(self.inputs))]
        graph = helper.make_graph(
            [helper.make_node(self.op_type, names, ["y"], **self.attributes)],
            self.op_type,
            [_float32(name, sizes) for name, sizes in zip(names, self.inputs, strict=True)][: self.fed],
            [_float32("y", self.output)],
            [numpy_helper.from_array(array, name) for array, name in zip(arrays, names, strict=True)][self.fed :],
        )
        return _file(graph)


def _float32(name: str, sizes: Sizes) -> Any:
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, sizes)


def _file(graph: Any) -> bytes:
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    return bytes(model.SerializeToString())


def _convolution(batch: int, channels: int, image: int, outputs: int, kernel: int, stride: int) -> OneNode:
    size = image // stride
    return OneNode(
        f"ResNet-50 conv {kernel}x{kernel} {channels}->{outputs} {image}x{image} stride {stride} batch {batch}",
        "Conv",
        ((batch, channels, image, image), (outputs, channels, kernel, kernel), (outputs,)),
        1,
        (batch, outputs, size, size),
        channels * kernel * kernel,
        {"strides": [stride] * 2, "pads": [kernel // 2] * 4, "kernel_shape": [kernel] * 2},
    )


def _fully_connected(name: str, rows: int, inputs: int, outputs: int) -> OneNode:
    sizes = ((rows, inputs), (outputs, inputs), (outputs,))
    return OneNode(f"{name} {rows}x{inputs}->{outputs}", "Gemm", sizes, 1, (rows, outputs), inputs, {"transB": 1})


def resnet_50(batch: int) -> list[OneNode]:
    """Its convolutions, each shape once, and its last layer."""
    shapes = [(3, 224, 64, 7, 2)]
    channels, image = 64, 56
    for width, stride in ((64, 1), (128, 2), (256, 2), (512, 2)):
        size = image // stride
        shapes += [(channels, image, width, 1, 1), (width, image, width, 3, stride), (width, size, 4 * width, 1, 1)]
        shapes += [(channels, image, 4 * width, 1, stride), (4 * width, size, width, 1, 1), (width, size, width, 3, 1)]
        channels, image = 4 * width, size
    nodes = [_convolution(batch, *shape) for shape in dict.fromkeys(shapes)]
    return [*nodes, _fully_connected("ResNet-50 gemm", batch, 2048, 1000)]


def bert_base(sequence: int) -> list[OneNode]:
    """Its products at batch 1: projections, the feed-forward layers, both of attention, the pooler."""
    found = [
        OneNode(f"BERT matmul {sequence}x{k}->{n}", "MatMul", ((1, sequence, k), (k, n)), 1, (1, sequence, n), k)
        for k, n in ((768, 768), (768, 3072), (3072, 768))
    ]
    for what, left, right in (
        ("queries keys", (sequence, 64), (64, sequence)),
        ("scores values", (sequence, sequence), (sequence, 64)),
    ):
        sizes = ((1, 12, *left), (1, 12, *right))
        name = f"BERT matmul 12x{left[0]}x{left[1]}->{right[1]} {what}"
        found.append(OneNode(name, "MatMul", sizes, 2, (1, 12, left[0], right[1]), left[1]))
    return found


def all_nodes(only: str = "") -> list[OneNode]:
    """Every model, or those whose name contains a word."""
    found = [node for batch in BATCHES for node in resnet_50(batch)]
    found += [node for sequence in SEQUENCES for node in bert_base(sequence)]
    found.append(_fully_connected("BERT pooler", 1, 768, 768))
    return [node for node in found if only in node.name]


class Ours:
    """A model in a session of ours, run once with its inputs, which stay on the device."""

    def __init__(self, device: dmlvk.Device, model: bytes, feeds: Mapping[str, Array]) -> None:
        self.session = InferenceSession(model, device)
        self.output = self.session.run(None, feeds)[0]
        # What a run submits between writing its inputs and reading its outputs; there is no public way to leave both away.
        assert self.session._plans.newest is not None
        commands = self.session._plans.newest.commands
        assert commands is not None
        self.run: Callable[[], None] = commands.submit
        self.wait: Callable[[], object] = commands.wait


class WebGpu:
    """A model in a session of ONNX Runtime's WebGPU provider, with inputs and output on its device."""

    def __init__(self, model: bytes, feeds: Mapping[str, Array]) -> None:
        self._session = _session(model)
        self._bound = self._session.io_binding()
        for name, array in feeds.items():
            self._bound.bind_ortvalue_input(name, _resident(array))
        _bind_output(self._bound, "y")
        self._number = _identity((1,))
        self._fence = self._number.io_binding()
        self._fence.bind_ortvalue_input("x", _resident(np.zeros(1, np.float32)))
        _bind_output(self._fence, "y")
        for _ in range(2):  # the first one records
            self.run()
        self.output = self._bound.copy_outputs_to_cpu()[0]

    def run(self) -> None:
        """Hands a run over; returns before it is done."""
        self._session.run_with_iobinding(self._bound)

    def wait(self) -> None:
        """Waits for all runs."""
        self._number.run_with_iobinding(self._fence)
        self._fence.copy_outputs_to_cpu()


def _session(model: bytes) -> Any:
    session = onnxruntime.InferenceSession(model, providers=[("WebGpuExecutionProvider", OPTIONS)])
    if session.get_providers()[0] != "WebGpuExecutionProvider":
        raise RuntimeError("ONNX Runtime finds no WebGPU adapter here")
    _sessions.append(session)
    return session


_sessions: list[Any] = []
"""Kept to the end: values on the device and bindings do not survive the session that they come from, and do not keep it."""


@functools.cache
def _identity(sizes: Sizes) -> Any:
    """A session that copies a tensor."""
    node = helper.make_node("Identity", ["x"], ["y"])
    return _session(_file(helper.make_graph([node], "identity", [_float32("x", sizes)], [_float32("y", sizes)])))


def _bind_output(bound: Any, name: str) -> None:
    """Leaves an output on the device. ``IOBinding.bind_output`` knows no such device by name."""
    device = _pybind_state.OrtDevice
    bound._iobinding.bind_output(name, device(device.webgpu(), device.default_memory(), 0))


def _resident(array: Array) -> Any:
    """An array as a value on the device: what an identity leaves there, since values cannot be made there directly."""
    session = _identity(array.shape)
    bound = session.io_binding()
    bound.bind_cpu_input("x", array)
    _bind_output(bound, "y")
    session.run_with_iobinding(bound)
    return bound.get_outputs()[0]


def seconds(side: Ours | WebGpu) -> float:
    """Seconds of a run: the median of a few rounds after one that says how many runs a round has."""
    count = 1
    while (elapsed := _round(side, count)) < ROUND_SECONDS / 4:
        count *= 2
    count = max(1, int(count * ROUND_SECONDS / elapsed))
    return statistics.median(_round(side, count) / count for _ in range(ROUNDS))


def _round(side: Ours | WebGpu, count: int) -> float:
    started = time.perf_counter()
    for _ in range(count):
        side.run()
    side.wait()
    return time.perf_counter() - started


def measure(device: dmlvk.Device, node: OneNode) -> dict[str, Any]:
    """A model's row of the results."""
    arrays = node.arrays()
    model = node.model(arrays)
    feeds = {f"x{at}": array for at, array in enumerate(arrays[: node.fed])}
    ours, theirs = Ours(device, model, feeds), WebGpu(model, feeds)
    scale = float(np.abs(theirs.output).max())
    difference = float(np.abs(ours.output - theirs.output).max()) / scale
    our_seconds, their_seconds = seconds(ours), seconds(theirs)
    return {
        "model": node.name,
        "us": our_seconds * 1e6,
        "tflop_per_s": node.operations / our_seconds * 1e-12,
        "rival_us": their_seconds * 1e6,
        "rival_tflop_per_s": node.operations / their_seconds * 1e-12,
        "ratio": their_seconds / our_seconds,
        "difference": difference,
        "agrees": bool(difference <= TOLERANCE),
    }


def measure_all(device: dmlvk.Device, only: str = "") -> list[dict[str, Any]]:
    """Measures and prints every model, or those whose name contains a word."""
    rows = []
    for node in all_nodes(only):
        row = measure(device, node)
        rows.append(row)
        print(
            f"{row['model']:52} {row['us']:9.1f} us {row['tflop_per_s']:6.2f} TFLOP/s, WebGPU {row['rival_us']:9.1f} us "
            f"{row['rival_tflop_per_s']:6.2f} x{row['ratio']:.2f} off {row['difference']:.0e}"
            f"{'' if row['agrees'] else ' DIFFERS'}",
            flush=True,
        )
    behind = [row["model"] for row in rows if row["ratio"] <= 1]
    print(f"ONNX Runtime {VERSION}: ahead on {len(rows) - len(behind)} of {len(rows)} models")
    return rows
