"""Time models through dmlvk's own session, through its provider in ONNX Runtime, and through other providers.

    python tools/measure_provider.py [--rounds N] MODEL...

A model is a file, or the name of one of tests/data/models.json, whose sizes it has then; those that a file leaves open are 1
first and 64 then. The ways take turns, run for run, and a line a model gives the median
of each in microseconds, the provider's overhead over dmlvk's own session, and the ratio to the WebGPU plug-in where
``onnxruntime_ep_webgpu`` is installed. Inputs and outputs are the host's arrays every time; each way's results are held
against ONNX Runtime's CPU before anything is timed.
"""

from __future__ import annotations

import argparse
import importlib.util
import statistics
import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import onnxruntime
from fetch_models import target
from models_page import listed
from run_models import feeds_of

import dmlvk
import dmlvk.ort
from dmlvk.onnx import InferenceSession
from dmlvk.onnx.feeds import stand_in_sizes
from dmlvk.onnx.model import load_model

Array = npt.NDArray[Any]
Way = Callable[[], list[Array]]
OWN, PROVIDER, CPU, WEBGPU = "own session", "provider", "CPU", "WebGPU plug-in"
WARM = 5


def session_on(model: str, name: str | None) -> onnxruntime.InferenceSession:
    """A session of ONNX Runtime's on the first device of a provider; on the processor where there is no name."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    if name is None:
        return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    options.add_provider_for_devices([item for item in onnxruntime.get_ep_devices() if item.ep_name == name][:1], {})
    return onnxruntime.InferenceSession(model, options)


def inputs_of(model: str) -> dict[str, Array]:
    """Seeded inputs."""
    loaded = load_model(model)
    rng = np.random.default_rng(0)
    sizes = stand_in_sizes(loaded)
    assert sizes is not None, "the inputs have ranks"
    return {
        info.name: (rng.random(sizes[info.name]) if info.dtype.kind == "f" else np.ones(sizes[info.name])).astype(info.dtype)
        for info in loaded.inputs
    }


def ways(model: str, feeds: Mapping[str, Array]) -> dict[str, Way]:
    """Each way to run a model."""
    own = InferenceSession(model)
    found: dict[str, Way] = {OWN: lambda: own.run(None, feeds)}
    names: dict[str, str | None] = {PROVIDER: dmlvk.ort.get_ep_name(), CPU: None}
    if importlib.util.find_spec("onnxruntime_ep_webgpu"):
        plugin = importlib.import_module("onnxruntime_ep_webgpu")
        names[WEBGPU] = plugin.get_ep_name()
        if not any(item.ep_name == names[WEBGPU] for item in onnxruntime.get_ep_devices()):
            onnxruntime.register_execution_provider_library(names[WEBGPU], plugin.get_library_path())
    for way, name in names.items():
        session = session_on(model, name)
        found[way] = lambda session=session: session.run(None, dict(feeds))  # type: ignore[misc]
    return found


def measure(model: str, rounds: int) -> str:
    """A line about a model."""
    row = listed().get(model)
    if row is None:
        feeds = inputs_of(model)
    else:
        model = str(target(row))
        feeds = feeds_of(row, load_model(model).inputs)
    found = ways(model, feeds)
    wanted = found[CPU]()
    for way, run in found.items():
        for mine, theirs in zip(run(), wanted, strict=True):
            if theirs.dtype.kind == "f":
                scale = max(float(np.abs(theirs).max(initial=0)), 1e-3)
                off = float(np.abs(mine.astype(np.float64) - theirs).max(initial=0)) / scale
                if not off < 1e-2:
                    return f"{model}: {way} is off by {off:.2g} of the largest magnitude"
    taken: dict[str, list[float]] = {way: [] for way in found}
    for number in range(WARM + rounds):
        for way, run in found.items():
            start = time.perf_counter()
            run()
            if number >= WARM:
                taken[way].append(1e6 * (time.perf_counter() - start))
    medians = {way: statistics.median(times) for way, times in taken.items()}
    parts = [f"{way} {median:.0f}" for way, median in medians.items()]
    parts.append(f"overhead {medians[PROVIDER] - medians[OWN]:+.0f} us")
    if WEBGPU in medians:
        parts.append(f"{medians[WEBGPU] / medians[PROVIDER]:.2f} times as fast as WebGPU")
    return f"{model}: " + ", ".join(parts)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+", metavar="MODEL")
    parser.add_argument("--rounds", type=int, default=100)
    arguments = parser.parse_args()
    dmlvk.ort.register()
    print(dmlvk.default_device().info.name)
    for model in arguments.models:
        print(measure(model, arguments.rounds), flush=True)


if __name__ == "__main__":
    main()
