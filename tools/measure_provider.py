"""Time the benchmark's models through dmlvk's own session, through its provider in ONNX Runtime, and on its WebGPU plug-in.

    python tools/measure_provider.py [--only WORD]... [--folder FOLDER] [--rounds N] [--json FILE]

The models are those of ``python -m dmlvk bench --suite models``: ResNet-50 and BERT-base with random weights, and every ONNX
file of FOLDER, which may be hollow (see hollow_models.py). A line a model gives the median run of each way in microseconds,
the provider's overhead over dmlvk's own session, and how many times as long the plug-in takes, where
``onnxruntime_ep_webgpu`` is installed and finds a device; then come the geometric mean and the largest overhead. FILE gets
them as JSON. Inputs and outputs are the host's arrays every time. Our two ways take turns, run for run, and who is first
changes; the plug-in runs by itself, so that two queues of a GPU do not wait for each other. Each way's results are held
against ONNX Runtime's CPU before anything is timed. Exit status 1 where a model is wrong or cannot be run on the provider.
"""

from __future__ import annotations

import argparse
import dataclasses
import gc
import importlib
import importlib.util
import json
import math
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import onnxruntime

import dmlvk
import dmlvk.ort
from dmlvk.onnx import InferenceSession
from dmlvk.verify import machine
from dmlvk_bench.models import candidates
from dmlvk_bench.models.layers import Array
from dmlvk_bench.models.measure import Candidate, difference
from dmlvk_bench.models.networks import NETWORKS
from dmlvk_bench.rivals.base import said

Way = Callable[[], list[Array]]
WARM: Final = 5
TOLERANCE: Final = 1e-2
"""Largest difference from ONNX Runtime's CPU, relative to the largest number of an output."""
LONGEST: Final = 6.0
"""Seconds in which a way's rounds must be over; of a slow one there are fewer."""


def plugin() -> str | None:
    """The name of the WebGPU plug-in that is registered; None where it is not installed or finds no device."""
    if importlib.util.find_spec("onnxruntime_ep_webgpu") is None:
        return None
    package: Any = importlib.import_module("onnxruntime_ep_webgpu")
    name = str(package.get_ep_name())
    if not devices_of(name):
        onnxruntime.register_execution_provider_library(name, package.get_library_path())
    return name if devices_of(name) else None


def devices_of(name: str) -> list[Any]:
    """ONNX Runtime's devices of a provider."""
    return [item for item in onnxruntime.get_ep_devices() if item.ep_name == name]


def session_on(model: bytes, name: str | None) -> onnxruntime.InferenceSession:
    """A session of ONNX Runtime's on the first device of a provider; on the processor where there is no name."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    if name is None:
        return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    options.add_provider_for_devices(devices_of(name)[:1], {})
    return onnxruntime.InferenceSession(model, options)


def medians(ways: Sequence[Way], rounds: int) -> list[float]:
    """The median run of each of several ways that take turns, in microseconds."""
    taken: list[list[float]] = [[] for _ in ways]
    end = time.monotonic() + LONGEST * len(ways)
    for number in range(WARM + rounds):
        order = range(len(ways)) if number % 2 else reversed(range(len(ways)))
        for at in order:
            start = time.perf_counter()
            ways[at]()
            if number >= WARM:
                taken[at].append(1e6 * (time.perf_counter() - start))
        if number > WARM and time.monotonic() > end:
            break
    return [statistics.median(times) for times in taken]


def measure(candidate: Candidate, webgpu: str | None, rounds: int) -> dict[str, Any]:
    """A model's row: microseconds of a run by way, and what went wrong."""
    row: dict[str, Any] = {"model": candidate.name}
    model, feeds = candidate.model.SerializeToString(), dict(candidate.feeds[0])
    wanted = session_on(model, None).run(None, feeds)

    def checked(name: str, run: Way) -> Way:
        off = difference(run(), wanted)
        if not off <= TOLERANCE:
            raise ValueError(f"{name} is off by {off:.2g}")
        return run

    try:
        own, ours = InferenceSession(candidate.model), session_on(model, dmlvk.ort.get_ep_name())
        both = [
            checked(name, run)
            for name, run in {"own": lambda: own.run(None, feeds), "provider": lambda: ours.run(None, feeds)}.items()
        ]
        row["own_us"], row["provider_us"] = medians(both, rounds)
        row["overhead_us"] = row["provider_us"] - row["own_us"]
    except Exception as error:  # ONNX Runtime's own classes have no common base
        return row | {"error": said(error)}
    if webgpu is not None:
        try:
            theirs = session_on(model, webgpu)
            (row["webgpu_us"],) = medians([checked("WebGPU", lambda: theirs.run(None, feeds))], rounds)
            row["webgpu_ratio"] = row["webgpu_us"] / row["provider_us"]
        except Exception as error:
            row["webgpu_error"] = said(error)
    return row


def line(row: dict[str, Any]) -> str:
    """What is printed of a row."""
    if "error" in row:
        return f"{row['model']}: {row['error']}"
    words = f"{row['model']}: own {row['own_us']:.0f} us, provider {row['provider_us']:.0f}, {row['overhead_us']:+.0f}"
    if "webgpu_ratio" in row:
        return f"{words}; WebGPU {row['webgpu_us']:.0f}, {row['webgpu_ratio']:.2f} times as long"
    return f"{words}; WebGPU: {row['webgpu_error']}" if "webgpu_error" in row else words


def summary(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The geometric mean of the ratios to the plug-in, of how many models, and the largest overhead."""
    ratios = [row["webgpu_ratio"] for row in rows if "webgpu_ratio" in row]
    overheads = [row["overhead_us"] for row in rows if "overhead_us" in row]
    return {
        "webgpu_geometric_mean": math.exp(statistics.fmean(map(math.log, ratios))) if ratios else None,
        "webgpu_models": len(ratios),
        "largest_overhead_us": max(overheads, default=None),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--only", action="append", metavar="WORD", help="models whose name has a WORD in it; all without one"
    )
    parser.add_argument("--folder", type=Path, help="a folder with ONNX files")
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--json", type=Path, metavar="FILE")
    arguments = parser.parse_args()
    dmlvk.ort.register()
    webgpu = plugin()
    found: dict[str, Any] = {
        "machine": dataclasses.asdict(machine.describe(dmlvk.default_device())),
        "onnxruntime": onnxruntime.__version__,
        "models": [],
    }
    print(
        f"{found['machine']['device']}, ONNX Runtime {found['onnxruntime']}", "without WebGPU" * (webgpu is None), flush=True
    )
    for candidate in candidates(NETWORKS, arguments.folder, arguments.only or [""]):
        row = measure(candidate, webgpu, arguments.rounds)
        found["models"].append(row)
        print(line(row), flush=True)
        found |= summary(found["models"])
        if arguments.json:
            arguments.json.write_text(json.dumps(found, indent=1) + "\n")
        gc.collect()
    if not found["models"]:
        parser.error("no such model")
    if found["webgpu_models"]:
        mean = found["webgpu_geometric_mean"]
        print(f"geometric mean: WebGPU takes {mean:.2f} times as long, of {found['webgpu_models']} models")
    if found["largest_overhead_us"] is not None:
        print(f"largest overhead: {found['largest_overhead_us']:.0f} us")
    return int(any("error" in row for row in found["models"]))


if __name__ == "__main__":
    sys.exit(main())
