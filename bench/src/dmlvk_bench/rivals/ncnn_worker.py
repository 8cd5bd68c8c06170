"""ncnn on one device, with the nets of one problem."""

from __future__ import annotations

import importlib
import time
from typing import Any

import numpy as np

from dmlvk_bench.rivals.base import Array
from dmlvk_bench.timing import Pace, settled_samples


class Worker:
    """The worker that ``RivalProcess`` runs.

    Args:
        device: The name of the Vulkan device to compute on; "" for the one that ncnn prefers.

    Attributes:
        version: ncnn's, and where it computes.
    """

    def __init__(self, device: str) -> None:
        ncnn: Any = importlib.import_module("ncnn")
        self._ncnn = ncnn
        names = [ncnn.get_gpu_info(at).device_name() for at in range(ncnn.get_gpu_count())]
        self._gpu = names.index(device) if device in names else ncnn.get_default_gpu_index() if names and not device else -1
        self._threads = ncnn.get_physical_cpu_count()
        where = f"Vulkan, {names[self._gpu]}" if self._gpu >= 0 else f"CPU, {self._threads} threads"
        self.version = f"{ncnn.__version__} on {where}"
        self._nets: list[Any] = []
        self._kept: list[bytes] = []

    def load(self, text: str, weights: Array) -> None:
        """Another net, compiled and run once."""
        kept = weights.tobytes()
        net = self._ncnn.Net()
        net.opt.use_vulkan_compute = self._gpu >= 0
        net.opt.num_threads = self._threads
        for name in dir(net.opt):  # float32 is float32, as it is here
            if name.startswith(("use_fp16_", "use_bf16_")):
                setattr(net.opt, name, False)
        if self._gpu >= 0:
            net.set_vulkan_device(self._gpu)
        if net.load_param_mem(text) != 0:
            raise RuntimeError("ncnn does not read the net")
        net.load_model_mem(kept)
        self._nets.append(net)
        self._kept.append(kept)
        self._run(net)

    def _run(self, net: Any, blob: str = "out") -> Array:
        extractor = net.create_extractor()
        status, found = extractor.extract(blob)
        if status != 0:
            raise RuntimeError(f"ncnn fails with {status}")
        return np.array(found)

    def output(self) -> Array:
        """The output of the first net's first copy."""
        return self._run(self._nets[0], "y0")

    def time(self, copies: int, pace: Pace) -> list[float]:
        """Seconds of a copy: of a run of the second net, with so many copies more, less one of the first."""

        def seconds(net: Any) -> float:
            started = time.perf_counter()
            self._run(net)
            return time.perf_counter() - started

        one, many = self._nets
        return settled_samples(lambda: (seconds(many) - seconds(one)) / copies, lambda found: found, pace)

    def forget(self) -> None:
        """The nets."""
        self._nets.clear()
        self._kept.clear()
