"""Measures whole models on a device, and rivals beside it in the same process, on the same numbers.

    python -m bench.models [--device CHOICE] [--against torch,webgpu] [--folder FOLDER] [--only WORD] [--json FILE]

ResNet-50 and BERT-base with random weights, and, with a folder of them (``tools/fetch_models.py`` fills ``.cache/models``,
``bench.models.files`` writes files without weights), the ten largest models of ``tests/data/models.json``. A time is that of
a run as its caller sees it, inputs handed over from and outputs read into the host's memory: the median of at least 20 after
a warm-up of 0.7 s. Outputs are compared with each rival's before a time is believed.
"""

from __future__ import annotations

import argparse
import datetime
import gc
import json
import os
import pathlib
import platform
import sys
import tempfile
from collections.abc import Iterator
from typing import Any

import dmlvk
from bench.models.files import feeds_of, load
from bench.models.layers import Weights
from bench.models.measure import FLOAT16_TOLERANCE, FLOAT32_TOLERANCE, Candidate, measure
from bench.models.networks import NETWORKS
from bench.models.onnx_layers import onnx_model
from bench.models.start import starts
from bench.run import built_commit

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
LIST = ROOT / "tests/data/models.json"
LARGEST = 10
SEEDS = (0, 1)


def candidates(folder: pathlib.Path | None, only: str) -> Iterator[Candidate]:
    """The networks, then the files; those whose name contains a word."""
    weights = Weights()
    for network in NETWORKS:
        if only in network.name:
            feeds = (network.feeds(SEEDS[0]), network.feeds(SEEDS[1]))
            tolerance = FLOAT16_TOLERANCE if network.dtype.itemsize == 2 else FLOAT32_TOLERANCE
            yield Candidate(network.name, onnx_model(network, weights), feeds, tolerance, True, network, weights)
    rows = json.loads(LIST.read_text()) if folder is not None else []
    for row in sorted(rows, key=lambda row: -int(row["size"]))[:LARGEST]:
        name = f"{row['package']} {row['file']}"
        if folder is not None and only in name:
            model, random = load(folder / f"{row['package']}-{row['version']}" / row["file"])
            yield Candidate(
                name, model, (feeds_of(row, model, SEEDS[0]), feeds_of(row, model, SEEDS[1])), row["tolerance"], random
            )


def main() -> int:
    """Measures and prints; exit status 1 when a model does not run, or no rival's outputs are like ours."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device")
    parser.add_argument("--against", default="", help="rivals: torch, webgpu")
    parser.add_argument("--folder", type=pathlib.Path, help="where the models of tests/data/models.json are")
    parser.add_argument("--only", default="", help="only models whose name contains this")
    parser.add_argument("--quick", action="store_true", help="two runs each, to see that everything works")
    parser.add_argument("--json", type=pathlib.Path)
    parser.add_argument("--commit", help="what was built, for the results; default: this checkout's HEAD")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as caches:  # every first run is a cold one
        os.environ |= {"DMLVK_CACHE_DIR": caches, "__GL_SHADER_DISK_CACHE_PATH": caches}
        results = _measured(options, {name for name in options.against.split(",") if name})
        gc.collect()  # devices leave their caches there when they go
    return int(any("error" in row or _alone(row) for row in results["models"]))


def _measured(options: argparse.Namespace, against: set[str]) -> dict[str, Any]:
    """The results, which are written after each model: a rival that brings the process down takes no figure with it."""
    info = dmlvk.Device(options.device).info
    results: dict[str, Any] = {
        "device": info.name,
        "driver": info.driver,
        "uuid": info.uuid,
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "commit": options.commit or built_commit(),
        "dmlvk": dmlvk.__version__,
        "python": platform.python_version(),
        **_versions(against),
        "models": [],
    }
    print(f"{info.name}, {info.driver}", flush=True)
    if options.only in NETWORKS[0].name:
        model = onnx_model(NETWORKS[0], Weights()).SerializeToString()
        results["starts"] = starts(model, NETWORKS[0].feeds(SEEDS[0]), options.device)
        for which, parts in zip(("first", "second"), results["starts"], strict=True):
            print(f"{which} start of {NETWORKS[0].name}: " + ", ".join(f"{name} {s:.3f} s" for name, s in parts.items()))
    for candidate in candidates(options.folder, options.only):
        results["models"].append(measure(candidate, options.device, against, quick=options.quick))
        if options.json is not None:
            options.json.write_text(json.dumps(results, indent=1) + "\n")
    return results


def _alone(row: dict[str, Any]) -> bool:
    """Whether rivals ran a model and none has our outputs: one that has them shows that another one is off."""
    agreed = [rival["agrees"] for rival in row["rivals"].values() if "agrees" in rival]
    return bool(agreed) and not any(agreed)


def _versions(against: set[str]) -> dict[str, str]:
    """Of the rivals."""
    found = {}
    if "torch" in against:
        from bench.models import torch_rival

        found["torch"] = torch_rival.VERSION
    if "webgpu" in against:
        from bench.models import webgpu_rival

        found["onnxruntime"] = webgpu_rival.VERSION
    return found


if __name__ == "__main__":
    sys.exit(main())
