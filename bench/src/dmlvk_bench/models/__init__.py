"""Whole models as their caller sees them, beside PyTorch and ONNX Runtime in the same process, on the same numbers.

ResNet-50 and BERT-base with random weights, and, with a folder of them, every ONNX file there. A time is that of a run,
inputs handed over from and outputs read into the host's memory. Outputs are compared with each rival's before a time is
believed.
"""

from __future__ import annotations

import contextlib
import gc
import os
import pathlib
import tempfile
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Any

from dmlvk.directml.device import Device
from dmlvk_bench import rivals
from dmlvk_bench.models.files import describe, find_files, load
from dmlvk_bench.models.layers import Weights
from dmlvk_bench.models.measure import FLOAT16_TOLERANCE, FLOAT32_TOLERANCE, Candidate, measure
from dmlvk_bench.models.networks import NETWORKS, Network
from dmlvk_bench.models.onnx_layers import onnx_model
from dmlvk_bench.models.start import starts

SEEDS = (0, 1)
_CACHES = ("DMLVK_CACHE_DIR", "__GL_SHADER_DISK_CACHE_PATH")
"""The environment's names for the folders of our and of NVIDIA's caches; Mesa's is left as it is."""

Row = dict[str, Any]


def measure_all(
    device_choice: str | None,
    against: Collection[str],
    *,
    quick: bool,
    only: str,
    folder: pathlib.Path | None,
    found: Callable[[Row], object] = lambda row: None,
) -> tuple[list[Row], list[dict[str, float]]]:
    """Measures models and prints what is found. On a CPU's driver it leaves out networks of larger batches than one, and
    quickly those in float16, too, and says so.

    Args:
        device_choice: The choice of a device, as ``Device`` takes it.
        against: Names of rivals. ncnn reads no ONNX, so it runs none of these models.
        quick: Three runs of each, and no starts, to see that everything works.
        only: Models whose name contains this.
        folder: A folder with ONNX files at any depth; the largest is measured first.
        found: Called with each row once it is there: a rival that brings the process down takes no figure with it.

    Returns:
        A row a model, and what ``starts`` gives for the first network, where that is measured.
    """
    device = Device(device_choice)
    available, missing = rivals.find([name for name in against if name != "ncnn"], device, quick=quick)
    if "ncnn" in against:
        missing["ncnn"] = "it reads no ONNX, so it runs none of the models"
    for name, why in missing.items():
        print(f"without {name}: {why}")
    networks = [network for network in NETWORKS if only in network.name]
    chosen = [
        network
        for network in networks
        if not (network.batch > 1 and (quick or device.info.type == "cpu")) and not (network.dtype.itemsize == 2 and quick)
    ]
    if left_out := [network.name for network in networks if network not in chosen]:
        print(f"not measured {'in a quick run' if quick else 'on a CPU'}: {', '.join(left_out)}")
    rows, started = [], []
    with _empty_caches():
        if NETWORKS[0] in chosen and not quick:
            model = onnx_model(NETWORKS[0], Weights()).SerializeToString()
            started = starts(model, NETWORKS[0].feeds(SEEDS[0]), device_choice)
            for which, parts in zip(("first", "second"), started, strict=True):
                words = ", ".join(f"{name} {seconds:.3f} s" for name, seconds in parts.items())
                print(f"{which} start of {NETWORKS[0].name}: {words}", flush=True)
        for candidate in candidates(chosen, folder, [only]):
            rows.append(measure(candidate, device_choice, available, quick=quick))
            found(rows[-1])
    return rows, started


@contextlib.contextmanager
def _empty_caches() -> Iterator[None]:
    """Every first run is a cold one: while this is open, caches are in a folder of their own."""
    before = {name: os.environ.get(name) for name in _CACHES}
    with tempfile.TemporaryDirectory() as folder:
        os.environ |= dict.fromkeys(_CACHES, folder)
        try:
            yield
        finally:
            gc.collect()  # devices leave their caches there when they go
            for name, value in before.items():
                del os.environ[name]
                os.environ |= {} if value is None else {name: value}


def candidates(networks: Iterable[Network], folder: pathlib.Path | None, words: Collection[str]) -> Iterator[Candidate]:
    """The networks, then the files of a folder, whose names contain one of some words."""
    weights = Weights()
    for network in networks:
        if not any(word in network.name for word in words):
            continue
        feeds = (network.feeds(SEEDS[0]), network.feeds(SEEDS[1]))
        tolerance = FLOAT16_TOLERANCE if network.dtype.itemsize == 2 else FLOAT32_TOLERANCE
        yield Candidate(network.name, onnx_model(network, weights), feeds, tolerance, True, network, weights)
    if folder is not None:
        for path in find_files(folder):
            described = describe(path, folder)
            if any(word in described.name for word in words):
                model, random = load(path)
                feeds = (described.arrays(model, SEEDS[0]), described.arrays(model, SEEDS[1]))
                yield Candidate(described.name, model, feeds, described.tolerance, random)
