"""Runs one exported file and those beside it, in a process of its own.

``check`` compares what we compute with what PyTorch computed when the file was written; ``measure`` adds times, and those of
PyTorch on the same GPU and of ONNX Runtime's WebGPU provider.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import pathlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np
import onnx

from dmlvk.directml.device import Device
from dmlvk.onnx import InferenceSession
from dmlvk_bench.models.layers import Array
from dmlvk_bench.models.measure import timed
from dmlvk_bench.models.onnxruntime_model import OnnxRuntimeModel
from dmlvk_bench.rivals.base import said
from dmlvk_bench.rivals.onnxruntime_worker import CPU, WEBGPU
from dmlvk_bench.timing import NEXT
from dmlvk_bench.zoo.agreement import HALVES, TOLERANCE, off

SLACK: Final = 2.0
"""How much farther than ONNX Runtime's CPU we may be off: some of these networks multiply a rounding by a thousand."""
UNSTABLE: Final = 5.0
"""Where ONNX Runtime's CPU is off by more than that many tolerances, it says nothing of us."""

Run = Callable[[], Sequence[Array]]


def check(folder: pathlib.Path, device: str | None) -> Iterator[dict[str, Any]]:
    """The row of a file that we run: how far we are off. Where that is too far, how far ONNX Runtime's CPU is with the same
    file; and of a wrong file, how far PyTorch is from its float64."""
    row = _Model(folder, device).checked()
    if "from_onnxruntime" in row and not row["right"]:
        with contextlib.suppress(RuntimeError):  # not every network can compute in float64
            row["float64_difference"] = _TorchNetwork(folder.parent.name).own_difference()
    yield row


def measure(folder: pathlib.Path, device: str | None, rivals: Sequence[str]) -> Iterator[dict[str, Any]]:
    """First the row of a checked file, when all ways to compute it have run once; told on, the row with times.

    Args:
        folder: The file's; the one above it has the architecture's name.
        device: Ours, as ``Device`` takes it.
        rivals: Those beside us, of ``BESIDE``.
    """
    model = _Model(folder, device)
    row = model.checked()
    network = functools.cache(lambda: _TorchNetwork(folder.parent.name))
    makers: dict[str, Callable[[], Run]] = {
        "eager": lambda: network().eager(),
        "graph": lambda: network().graph(),
        "webgpu": lambda: model.in_onnx_runtime(WEBGPU),
    }
    ready = {name: _Beside(makers[name], model.outputs, model.tolerance) for name in rivals}
    yield row
    if "error" not in row:
        row |= model.timed()
    yield row | {"rivals": {name: rival.timed() for name, rival in ready.items()}}


def as_onnx_runtime(row: Mapping[str, Any], tolerance: float = TOLERANCE) -> bool:
    """Whether a row that is off by more than the tolerance is right all the same: ONNX Runtime's CPU made the same of the
    file, or is off nearly as far, but not so far that its result means nothing."""
    theirs = row["onnxruntime_difference"]
    means_something = theirs <= UNSTABLE * tolerance
    return bool(row["from_onnxruntime"] <= tolerance or (means_something and row["difference"] <= SLACK * theirs))


class _Model:
    """An exported file, its inputs and PyTorch's outputs."""

    def __init__(self, folder: pathlib.Path, device: str | None) -> None:
        self._path = folder / "model.onnx"
        self._device = device
        with np.load(folder / "outputs.npz") as arrays:
            self.outputs = [arrays[name] for name in arrays.files]
        graph = onnx.load(str(self._path), load_external_data=False).graph
        constants = {tensor.name for tensor in graph.initializer}
        # An exporter may leave out inputs that nothing reads.
        with np.load(folder / "inputs.npz") as arrays:
            self.inputs = {item.name: arrays[item.name] for item in graph.input if item.name not in constants}
        is_half = any(tensor.data_type == onnx.TensorProto.FLOAT16 for tensor in graph.initializer)
        self.tolerance = HALVES if is_half else TOLERANCE
        self._nodes = len(graph.node)
        self._session: InferenceSession | None = None

    def checked(self) -> dict[str, Any]:
        """Whether our outputs are right. A file that ONNX Runtime refuses too is ``broken``, neither right nor wrong."""
        row: dict[str, Any] = {"nodes": self._nodes}
        try:
            started = time.perf_counter()
            self._session = InferenceSession(self._path, Device(self._device))
            found = self._session.run(None, self.inputs)
            row["first_s"] = time.perf_counter() - started
        except Exception as error:
            row["error"] = said(error)
        else:
            report = self._session.report()
            row |= {"dispatches": report.dispatches, "host_reads": report.host_reads}
            row["difference"] = off(found, self.outputs)
            if row["difference"] <= self.tolerance:
                return row | {"right": True}
        try:
            theirs = self.in_onnx_runtime(CPU)()
        except Exception as error:
            return row | ({"broken": said(error)} if "error" in row else {"right": False})
        if "error" in row:
            return row | {"right": False}
        row |= {"onnxruntime_difference": off(theirs, self.outputs), "from_onnxruntime": off(found, theirs)}
        return row | {"right": as_onnx_runtime(row, self.tolerance)}

    def timed(self) -> dict[str, Any]:
        """Our times."""
        session = self._session
        assert session is not None, "checked before"
        times = timed(lambda: session.run(None, self.inputs), NEXT)
        return {**times, "gpu_ms": (session.profile(self.inputs).gpu_seconds or 0.0) * 1e3}

    def in_onnx_runtime(self, provider: str) -> Run:
        """A run of the file by one of ONNX Runtime's providers."""
        model = OnnxRuntimeModel(provider, str(self._path), False)
        return lambda: model.run(self.inputs)


class _TorchNetwork:
    """The architecture in PyTorch, with the weights that the exported file has."""

    def __init__(self, name: str) -> None:
        import torch

        from dmlvk_bench.zoo.architectures import architectures

        self._torch: Any = torch
        torch.set_num_threads(1)
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
        (architecture,) = (one for one in architectures() if one.name == name)
        self._network, inputs = architecture.make()
        self._inputs = list(inputs.values())

    def own_difference(self) -> float:
        """How far PyTorch's results are from those in float64: where that is much, roundings decide."""
        torch = self._torch
        with torch.inference_mode():
            single = [output.numpy() for output in self._network(*self._inputs)]
            wide = (tensor.double() if tensor.is_floating_point() else tensor for tensor in self._inputs)
            double = [output.numpy() for output in self._network.double()(*wide)]
        return off(single, [wanted.astype(found.dtype) for found, wanted in zip(single, double, strict=True)])

    def eager(self) -> Run:
        """Runs that call each function; arrays go there and back."""
        torch, network = self._torch, self._network.cuda()

        def run() -> list[Array]:
            with torch.inference_mode():
                return [output.cpu().numpy() for output in network(*(tensor.cuda() for tensor in self._inputs))]

        return run

    def graph(self) -> Run:
        """Runs that are one CUDA graph."""
        torch, network = self._torch, self._network.cuda()
        kept = [tensor.cuda() for tensor in self._inputs]
        with torch.inference_mode():
            stream = torch.cuda.Stream()
            stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(stream):
                for _ in range(3):
                    network(*kept)
            torch.cuda.current_stream().wait_stream(stream)
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                outputs = network(*kept)

        def run() -> list[Array]:
            with torch.inference_mode():
                for tensor, given in zip(kept, self._inputs, strict=True):
                    tensor.copy_(given)
                graph.replay()
                return [output.cpu().numpy() for output in outputs]

        return run


class _Beside:
    """A rival that has run a model once; where it cannot, the error.

    Args:
        make: Makes its run.
        wanted: PyTorch's outputs.
        tolerance: The largest difference of outputs that agree.
    """

    def __init__(self, make: Callable[[], Run], wanted: Sequence[Array], tolerance: float) -> None:
        self._run: Run | None = None
        try:
            run = make()
            apart = off(run(), wanted)
        except Exception as error:
            self._row: dict[str, Any] = {"error": said(error)}
        else:
            self._run, self._row = run, {"difference": apart, "agrees": bool(apart <= tolerance)}
        gc.collect()

    def timed(self) -> dict[str, Any]:
        """Its times."""
        if self._run is None:
            return self._row
        try:
            return {**timed(self._run, NEXT), **self._row}
        except Exception as error:
            return {"error": said(error)}
