"""PyTorch: on CUDA where it has it and we are on a GPU, else on the CPU.

float32 is float32, as it is here: no TF32. cuDNN takes the algorithm that it measures to be the fastest. On CUDA a time is
that between two events on the stream around as many executions as a submission of ours holds; on the CPU it is the host's.
"""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Callable
from typing import Any

import numpy as np

from dmlvk.directml.device import Device
from dmlvk.spec.tensor import TensorDesc
from dmlvk.verify.cases.model import NUMPY_TYPES
from dmlvk_bench.problems.model import Problem
from dmlvk_bench.rivals.base import Array, RivalMissingError, has_whole_bytes, logical, paced, present, said
from dmlvk_bench.timing import Pace, repeats, settled_samples

_PART = 1 << 26
"""Elements that are compared at a time."""


class TorchRival:
    """See ``dmlvk_bench.rivals.base.Rival``."""

    name = "torch"

    def __init__(self, torch: Any, device: Device | None, pace: Pace) -> None:
        self.torch, self.pace = torch, pace
        self.failures: dict[str, str] = {}
        on_cuda = torch.cuda.is_available() and (device is None or device.info.type != "cpu")
        self.device = "cuda" if on_cuda else "cpu"
        self.version = f"{torch.__version__} on {'CUDA' if on_cuda else f'CPU, {torch.get_num_threads()} threads'}"
        torch.backends.cuda.matmul.allow_tf32 = False
        torch.backends.cudnn.allow_tf32 = False
        torch.backends.cudnn.benchmark = True

    def prepare(self, problem: Problem, inputs: list[Array]) -> _Prepared | None:
        """See ``Rival``; what PyTorch raises at the first execution is a failure."""
        if not has_whole_bytes(problem):
            return None
        tensors = present(problem.desc.input_slots())
        try:
            return _Prepared(self, problem, inputs, [self.tensor(*pair) for pair in zip(inputs, tensors, strict=True)])
        except Exception as error:  # out of memory, no kernel for a type, no torchvision
            self.failures[problem.name] = said(error)
        if self.device == "cuda":
            self.torch.cuda.empty_cache()
        return None

    def tensor(self, memory: Array, desc: TensorDesc) -> Any:
        """A tensor of a desc's sizes and strides on the rival's device, from its memory."""
        flat = np.ascontiguousarray(memory).reshape(-1).view(np.uint8)
        kind = NUMPY_TYPES[desc.data_type]
        if kind.kind == "u" and kind.itemsize > 1:
            kind = np.dtype(f"i{kind.itemsize}")  # the same bits: PyTorch has little for unsigned words
        flat = flat[: flat.size // kind.itemsize * kind.itemsize].view(kind)
        moved = self.torch.from_numpy(flat if flat.flags.writeable else flat.copy()).to(self.device)
        return self.torch.as_strided(moved, desc.sizes, desc.effective_strides)

    def time(self, run: Callable[[], object]) -> list[float]:
        """Seconds of each execution."""
        if self.device == "cpu":
            return paced(self.pace, run)
        cuda = self.torch.cuda

        def between_events(count: int) -> float:
            start, stop = (cuda.Event(enable_timing=True) for _ in range(2))
            start.record()
            for _ in range(count):
                run()
            stop.record()
            stop.synchronize()
            return float(start.elapsed_time(stop)) * 1e-3 / count

        between_events(1)
        count = repeats(between_events(1), self.pace)
        return settled_samples(lambda: between_events(count), lambda seconds: seconds, self.pace)


class _Prepared:
    """See ``dmlvk_bench.rivals.base.Prepared``."""

    def __init__(self, rival: TorchRival, problem: Problem, memory: list[Array], inputs: list[Any]) -> None:
        self._rival, self._problem, self._memory, self._inputs = rival, problem, memory, inputs
        self._given = self._prepared(inputs)
        self._expected: Any = None
        self._off = 0.0
        if problem.check is None:
            # Now, because what does not fit into memory is no failure of ours later.
            wide = [tensor.float() if tensor.is_floating_point() else tensor for tensor in inputs]
            self._given = self._prepared(wide)
            self._expected = _comparable(self.run())
            self._given = self._prepared(inputs)
            self._off = self._difference(self.run())
            self._given = self._prepared(inputs)  # the rival may have changed what it was given
        else:
            self.run()

    def _prepared(self, inputs: list[Any]) -> list[Any]:
        """The arguments of the problem's rival for these inputs."""
        prepare = self._problem.prepare
        return inputs if prepare is None else list(prepare(self._rival.torch, *inputs))

    def run(self) -> Any:
        """One execution. What has no inputs finds its device as the default one, which costs microseconds."""
        torch = self._rival.torch
        with torch.device(self._rival.device) if not self._given else contextlib.nullcontext():
            return self._problem.rival(torch, *self._given)

    def time(self) -> list[float]:
        return self._rival.time(self.run)

    def compare(self, ours: list[Array]) -> tuple[float, float]:
        """Compares our first output with the rival's for the same inputs in float32. A problem with a check of its own looks
        at our outputs alone."""
        outputs = present(self._problem.desc.output_slots())
        if self._problem.check is not None:
            tensors = present(self._problem.desc.input_slots())
            given = [logical(*pair) for pair in zip(self._memory, tensors, strict=True)]
            return float(self._problem.check(given, [logical(*pair) for pair in zip(ours, outputs, strict=True)])), 0.0
        return self._difference(self._rival.tensor(ours[0], outputs[0])), self._off

    def _difference(self, found: Any) -> float:
        """The largest difference from what is expected, relative to the largest finite number there; infinite where only one
        of two is NaN, or infinite. Part by part: as a whole it would take several times the tensors' memory."""
        torch = self._rival.torch
        parts = zip(found.reshape(-1).split(_PART), self._expected.reshape(-1).split(_PART), strict=True)
        worst = scale = 0.0
        for part, expected in parts:
            actual = _comparable(part)
            same = (actual == expected) | (actual.isnan() & expected.isnan())
            apart = torch.where(same, 0.0, (actual - expected).abs())
            worst = max(worst, float(torch.where(apart.isnan(), torch.inf, apart).max()))
            scale = max(scale, float(expected.abs().nan_to_num(0.0, 0.0, 0.0).max()))
        return worst / (scale or 1.0)

    def close(self) -> None:
        self._inputs.clear()
        self._given.clear()
        self._expected = None
        if self._rival.device == "cuda":
            self._rival.torch.cuda.empty_cache()


def _comparable(tensor: Any) -> Any:
    """A tensor in float32, or in float64 if it has no floats: whole numbers up to 2**53 are exact there."""
    return tensor.float() if tensor.is_floating_point() else tensor.double()


def open_rival(device: Device | None, pace: Pace) -> TorchRival:
    """PyTorch as a rival.

    Raises:
        RivalMissingError: it is not installed.
    """
    try:
        torch: Any = importlib.import_module("torch")
    except ImportError as error:
        raise RivalMissingError(f"PyTorch cannot be imported ({error}); pip install torch") from None
    return TorchRival(torch, device, pace)
