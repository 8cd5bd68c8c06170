"""A model in a session of ours and beside its rivals."""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import numpy as np
import onnx

from dmlvk.directml.device import Device
from dmlvk.onnx import InferenceSession
from dmlvk.runtime.device import choose_device
from dmlvk.spec.errors import DmlvkError
from dmlvk_bench.models.layers import Array, Weights
from dmlvk_bench.models.networks import TARGET_DEVICE, Network
from dmlvk_bench.models.onnxruntime_model import OnnxRuntimeModel, processor_nodes
from dmlvk_bench.rivals import Rival
from dmlvk_bench.rivals.onnxruntime_rival import OnnxRuntimeRival
from dmlvk_bench.rivals.onnxruntime_worker import WEBGPU
from dmlvk_bench.rivals.torch_rival import TorchRival
from dmlvk_bench.timing import QUICK, SINGLE, Pace, settled_samples, spread

FLOAT32_TOLERANCE, FLOAT16_TOLERANCE = 1e-4, 1e-2
"""Largest difference of an output from a rival's, relative to the largest number in it."""
LINES = 12
"""The number of lines of a profile that are printed."""

Feeds = Mapping[str, Array]


@dataclass(frozen=True)
class Candidate:
    """A model to measure.

    Attributes:
        name: The model's name in the results.
        model: The ONNX file.
        feeds: Two sets of inputs. The second shows that a run computes with what it is fed.
        tolerance: Largest difference of an output from a rival's, relative to the largest number in it.
        random_weights: Whether its constants are not those of its file.
        network: The network that PyTorch computes; None for a file.
        weights: The network's weights.
    """

    name: str
    model: onnx.ModelProto
    feeds: tuple[Feeds, Feeds]
    tolerance: float
    random_weights: bool
    network: Network | None = None
    weights: Weights | None = None


class Runner(Protocol):
    """A session of ours or a rival's: it runs a model."""

    def run(self, feeds: Feeds) -> list[Array]:
        """Hands the inputs over, computes and reads the outputs."""


def difference(found: list[Array], wanted: list[Array]) -> float:
    """The largest difference of two lists of outputs, relative to the largest number of each; infinite where one is not
    finite."""
    worst = 0.0
    for mine, theirs in zip(found, wanted, strict=True):
        if mine.shape != theirs.shape or not (np.isfinite(mine).all() and np.isfinite(theirs).all()):
            return np.inf
        if mine.size:
            wide = theirs.astype(np.float64)
            apart = float(np.abs(mine.astype(np.float64) - wide).max())
            worst = max(worst, apart / max(float(np.abs(wide).max()), 1e-30) if apart else 0.0)
    return worst


def measure(candidate: Candidate, choice: str | None, against: Mapping[str, Rival], *, quick: bool) -> dict[str, Any]:
    """A model's row of the results, printed as it grows. What cannot run has an ``error``.

    Args:
        candidate: The model.
        choice: The choice of a device, as ``Device`` takes it.
        against: The rivals, by name.
        quick: Three runs, to see that everything works.
    """
    first = candidate.feeds[0]
    meant = candidate.network if TARGET_DEVICE in choose_device(choice).name else None
    row: dict[str, Any] = {
        "model": candidate.name,
        "random_weights": candidate.random_weights,
        "inputs": {name: [array.dtype.name, *array.shape] for name, array in first.items()},
        "target_ms": meant and meant.target_ms,
        "tolerance": candidate.tolerance,
    }
    print(candidate.name)
    try:
        own, outputs, lines = _ours(candidate, choice, quick=quick)
    except DmlvkError as error:
        print(f"  {error}", flush=True)
        return row | {"error": str(error), "rivals": {}}
    row |= own
    print(f"  dmlvk {_words(row)}, kernels {row['gpu_ms']:.3f} ms in {row['dispatches']} dispatches")
    print("\n".join(f"    {line[:150]}" for line in lines), flush=True)
    row["rivals"] = {}
    for name, make in _rivals(candidate, against).items():
        row["rivals"][name] = _beside(make, candidate, outputs, quick=quick)
        print(f"  {name} {_words(row['rivals'][name])}", flush=True)
        gc.collect()
    runtime = against.get("onnxruntime")
    if isinstance(runtime, OnnxRuntimeRival) and runtime.provider == WEBGPU:
        model = candidate.model.SerializeToString()
        row["webgpu_cpu_nodes"] = _or_error(lambda: processor_nodes(WEBGPU, model, first))
        print(f"  WebGPU leaves to the CPU: {row['webgpu_cpu_nodes']}", flush=True)
    return row


def _ours(candidate: Candidate, choice: str | None, *, quick: bool) -> tuple[dict[str, Any], list[list[Array]], list[str]]:
    """Our figures, the outputs for both feeds, and the first lines of a profile."""
    first, second = candidate.feeds
    device = Device(choice)  # its own, so that the peak of memory is the model's
    started = time.perf_counter()
    session = InferenceSession(candidate.model, device)
    outputs: list[Any] = [session.run(None, first)]
    first_seconds = time.perf_counter() - started
    outputs.append(session.run(None, second))
    timing = timed(lambda: session.run(None, first), QUICK if quick else SINGLE)
    report = session.report()
    profile = session.profile(first)
    row = {
        "first_s": first_seconds,
        **timing,
        "gpu_ms": (profile.gpu_seconds or 0.0) * 1e3,
        "dispatches": report.dispatches,
        "host_nodes": len(report.host_nodes),
        "weights_bytes": report.weights_bytes,
        "activation_bytes": report.activation_bytes,
        "live_bytes": report.largest_live_bytes,
        "parameters_bytes": device.memory()["parameters"],
        "peak_bytes": report.peak_device_bytes,
    }
    return row, outputs, profile.table().splitlines()[: LINES + 1]


def timed(run: Callable[[], object], pace: Pace) -> dict[str, Any]:
    """The milliseconds that a run takes, their spread and how many runs were timed."""

    def seconds() -> float:
        started = time.perf_counter()
        run()
        return time.perf_counter() - started

    times = settled_samples(seconds, float, pace)
    return {"ms": statistics.median(times) * 1e3, "spread": spread(times), "runs": len(times)}


def _rivals(candidate: Candidate, against: Mapping[str, Rival]) -> dict[str, Callable[[], Runner]]:
    """A function that makes each rival: PyTorch in each of its ways, ONNX Runtime plainly and, on WebGPU, with its commands
    replayed."""
    found: dict[str, Callable[[], Runner]] = {}
    network, weights = candidate.network, candidate.weights
    torch, runtime = against.get("torch"), against.get("onnxruntime")
    if isinstance(torch, TorchRival) and network is not None and weights is not None:
        from dmlvk_bench.models.torch_network import LAYOUTS, TorchNetwork

        images = len(next(iter(candidate.feeds[0].values())).shape) == 4
        for layout in LAYOUTS if images else ("NCHW",):
            for graph in (False, True) if torch.device == "cuda" else (False,):
                name = f"PyTorch {'graph' if graph else 'eager'}" + (f" {layout}" if images else "")
                found[name] = partial(TorchNetwork, network, weights, torch.device, layout, graph)
    if isinstance(runtime, OnnxRuntimeRival):
        model = candidate.model.SerializeToString()
        on_webgpu = runtime.provider == WEBGPU
        plain = "WebGPU" if on_webgpu else f"ONNX Runtime {runtime.provider.removesuffix('ExecutionProvider')}"
        found[plain] = partial(OnnxRuntimeModel, runtime.provider, model, False)
        if on_webgpu:
            found["WebGPU replayed"] = partial(OnnxRuntimeModel, WEBGPU, model, True)
    return found


def _beside(make: Callable[[], Runner], candidate: Candidate, ours: list[list[Array]], *, quick: bool) -> dict[str, Any]:
    """A rival's figures; its error where it cannot run the model."""
    first, second = candidate.feeds

    def figures() -> dict[str, Any]:
        started = time.perf_counter()
        rival = make()
        outputs = [rival.run(first)]
        first_seconds = time.perf_counter() - started
        outputs += [rival.run(second), rival.run(second)]  # what records its commands replays them from the second run on
        off = max(difference(mine, theirs) for mine, theirs in zip((*ours, ours[1]), outputs, strict=True))
        timing = timed(lambda: rival.run(first), QUICK if quick else SINGLE)
        return {"first_s": first_seconds, **timing, "difference": off, "agrees": bool(off <= candidate.tolerance)}

    found = _or_error(figures)
    return {"error": found} if isinstance(found, str) else found


def _or_error(compute: Callable[[], dict[str, Any]]) -> dict[str, Any] | str:
    """A rival's result, or the text of whatever it raises."""
    try:
        return compute()
    except Exception as error:
        return f"{type(error).__name__}: {error}"[:300]


def _words(row: dict[str, Any]) -> str:
    """A row, or a rival's part of it, as it is printed."""
    if "error" in row:
        return str(row["error"])
    off = f", off {row['difference']:.1e}{'' if row['agrees'] else ' DIFFERS'}" if "difference" in row else ""
    return f"{row['ms']:.3f} ms (spread {row['spread']:.1%} of {row['runs']}), first {row['first_s']:.2f} s{off}"
