"""ONNX Runtime: a problem as a model of one node, by its fastest provider here.

Of the providers of its wheel the first that finds its device takes part: WebGPU, CUDA, ROCm, DirectML, and the CPU, which is
the only one beside a CPU's driver. Inputs and outputs stay on the device. WebGPU records a run's commands once and replays
them, as ours are, and checks nothing at a run. A time is the mean of runs that are handed over one after another before the
last is waited for; a provider that waits by itself is waited for each time. WebGPU has no wait: a read of one number that
follows the runs in its queue is one. A node that the provider would leave to the CPU is a failure. All that happens in a
process of its own, which WebGPU may take down where its driver does not like a shader.
"""

from __future__ import annotations

import importlib
from typing import Any

from dmlvk.directml.device import Device
from dmlvk_bench.problems.model import Problem
from dmlvk_bench.rivals.base import Array, RivalMissingError, difference, has_whole_bytes, present, said
from dmlvk_bench.rivals.onnx_nodes import Node, model_of, node_of, our_outputs
from dmlvk_bench.rivals.process import RivalProcess
from dmlvk_bench.timing import Pace

_NO_KERNEL = "fallback to CPU EP has been explicitly disabled"
"""The words of ONNX Runtime's error where the provider has no kernel for a node."""


class OnnxRuntimeRival:
    """See ``dmlvk_bench.rivals.base.Rival``.

    Attributes:
        provider: ONNX Runtime's name of it.
    """

    name = "onnxruntime"

    def __init__(self, device: Device | None, pace: Pace) -> None:
        self.pace = pace
        self.failures: dict[str, str] = {}
        on_cpu = device is not None and device.info.type == "cpu"
        self.process = RivalProcess("dmlvk_bench.rivals.onnxruntime_worker", on_cpu)
        self.version = self.process.version
        self.provider = str(self.process.ask("provider"))

    def prepare(self, problem: Problem, inputs: list[Array]) -> _Prepared | None:
        """See ``Rival``; what ONNX Runtime raises, such as for a type that the provider lacks, is a failure."""
        node = node_of(problem.desc) if has_whole_bytes(problem) else None
        if node is None:
            return None
        try:
            self.process.ask("load", *model_of(node, inputs, problem.desc))
            times: list[float] = self.process.ask("time", self.pace)
        except (RuntimeError, ValueError) as error:  # a model too large for protobuf is the other one
            lacks = _NO_KERNEL in str(error)
            self.failures[problem.name] = f"{self.provider} has no kernel for this {node.op_type}" if lacks else said(error)
            return None
        return _Prepared(self, problem, node, times)

    def close(self) -> None:
        """Ends the process."""
        self.process.close()


class _Prepared:
    """See ``dmlvk_bench.rivals.base.Prepared``. The rival holds one at a time, and has timed it."""

    def __init__(self, rival: OnnxRuntimeRival, problem: Problem, node: Node, times: list[float]) -> None:
        self._rival, self._problem, self._node, self._times = rival, problem, node, times

    def time(self) -> list[float]:
        return self._times

    def compare(self, ours: list[Array]) -> tuple[float, float]:
        """Compares every output that is defined for every element with ours."""
        tensors = present(self._problem.desc.output_slots())
        theirs = self._rival.process.ask("outputs", self._node.compared)
        pairs = zip(our_outputs(ours, tensors), theirs, strict=False)  # a run of TopK has indices, too
        return 0.0, max(difference(their.reshape(own.shape), own) for own, their in pairs)

    def close(self) -> None:
        self._rival.process.ask("forget")


def open_rival(device: Device | None, pace: Pace) -> OnnxRuntimeRival:
    """ONNX Runtime as a rival.

    Raises:
        RivalMissingError: it is not installed, or does not start.
    """
    try:
        _: Any = importlib.import_module("onnxruntime")
    except ImportError as error:
        how = "pip install onnxruntime, or for a GPU onnxruntime-webgpu, onnxruntime-gpu or onnxruntime-directml"
        raise RivalMissingError(f"ONNX Runtime cannot be imported ({error}); {how}") from None
    try:
        return OnnxRuntimeRival(device, pace)
    except RuntimeError as error:
        raise RivalMissingError(f"ONNX Runtime does not start here: {said(error)}") from None
