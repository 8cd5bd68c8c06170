"""ncnn: a problem as a net of one layer, on the same Vulkan device where ncnn sees it, else on the CPU; in float32.

ncnn's Python API gives no way to keep a blob on the device from run to run, and waits at the end of each. So two nets run,
one of a single copy of the layer, one of many, whose inputs are constants on the device: a time is the difference of theirs,
divided by the copies that the second has more. It is what another such layer adds to a net: its dispatches and their
recording, which ncnn does anew in each run; no transfer, no submission. ncnn runs in a process of its own, because it ends
the process where it fails.
"""

from __future__ import annotations

import importlib.util
import statistics

import numpy as np

from dmlvk.directml.device import Device
from dmlvk_bench.problems.model import Problem
from dmlvk_bench.rivals.base import Array, RivalMissingError, difference, logical, present, said
from dmlvk_bench.rivals.ncnn_layers import layer_of, network, weights_of
from dmlvk_bench.rivals.process import RivalProcess
from dmlvk_bench.timing import Pace

COPIES, FEW_COPIES = 16, 4
"""The number of layers that the second net has more; the second number is for large layers."""
LARGE_BYTES = 2**25
MOST_BYTES = 2**29
"""The most bytes of inputs: a net of larger ones takes longer to load than all that is timed."""


class NcnnRival:
    """See ``dmlvk_bench.rivals.base.Rival``."""

    name = "ncnn"

    def __init__(self, device: Device | None, pace: Pace) -> None:
        self.pace = pace
        self.failures: dict[str, str] = {}
        self.process = RivalProcess("dmlvk_bench.rivals.ncnn_worker", "" if device is None else device.info.name)
        self.version = self.process.version

    def prepare(self, problem: Problem, inputs: list[Array]) -> _Prepared | None:
        """See ``Rival``; a failure is what ncnn says, that it ended its process, or that a layer takes no time that can be
        told from noise."""
        layer = layer_of(problem.desc)
        if layer is None:
            return None
        moved = sum(tensor.total_tensor_size_in_bytes for tensor in present(problem.desc.input_slots()))
        if moved > MOST_BYTES:
            self.failures[problem.name] = f"not tried: its inputs have more than {MOST_BYTES >> 20} MiB"
            return None
        copies = FEW_COPIES if moved > LARGE_BYTES else COPIES
        try:
            self.process.ask("forget")
            for count in (1, 1 + copies):
                self.process.ask("load", network(layer, count), weights_of(layer, inputs, count))
            times: list[float] = self.process.ask("time", copies, self.pace)
        except RuntimeError as error:
            self.failures[problem.name] = said(error)
            return None
        if statistics.median(times) <= 0:
            self.failures[problem.name] = "it takes no time that can be told from noise"
            return None
        return _Prepared(self, problem, times)

    def close(self) -> None:
        """Ends the process."""
        self.process.close()


class _Prepared:
    """See ``dmlvk_bench.rivals.base.Prepared``. The rival holds one at a time, and has timed it."""

    def __init__(self, rival: NcnnRival, problem: Problem, times: list[float]) -> None:
        self._rival, self._problem, self._times = rival, problem, times

    def time(self) -> list[float]:
        return self._times

    def compare(self, ours: list[Array]) -> tuple[float, float]:
        """Compares the only output with ours."""
        own = logical(ours[0], present(self._problem.desc.output_slots())[0])
        theirs = np.asarray(self._rival.process.ask("output"))
        return 0.0, difference(theirs.reshape(own.shape), own)

    def close(self) -> None:
        self._rival.process.ask("forget")


def open_rival(device: Device | None, pace: Pace) -> NcnnRival:
    """ncnn as a rival.

    Raises:
        RivalMissingError: it is not installed, or ended its process when it was asked for its devices.
    """
    if importlib.util.find_spec("ncnn") is None:
        raise RivalMissingError("ncnn is not installed; pip install ncnn")
    try:
        return NcnnRival(device, pace)
    except RuntimeError as error:
        raise RivalMissingError(f"ncnn does not start here: {said(error)}") from None
