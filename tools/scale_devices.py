"""How much more work more devices do: pictures through an ONNX model, and prompts through a language model, by Ray.

    python tools/scale_devices.py --devices 1,2,4,8 --onnx resnet50 --text model.gguf --out scaling.json
    python tools/scale_devices.py --devices 1,2 --onnx model.onnx --copies 2    # a processor's driver as if it were two

Each number of devices gets a dataset of its own, in Ray's cluster of this machine, or in the one that ``--address`` names.
Every batch says when it began and ended, and on which device. What counts is the time in which all devices have work: from
the moment when the last of them has done its first batch, which makes pipelines, to the end of the first that has no more. A
device's use is the part of that time in which its process was inside the model; the rest it waited for rows. The status is 1
where a row was lost or doubled, or more devices did less than ``--least`` of as many times one's work.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np


class Call(NamedTuple):
    """A batch that a predictor was given.

    Attributes:
        device: Its device's UUID, and the process that has it.
        start, end: When it began and ended, in seconds.
        rows: Rows.
    """

    device: str
    start: float
    end: float
    rows: int


@dataclass(frozen=True)
class Rate:
    """What some devices did at once.

    Attributes:
        devices: How many there were.
        seconds: The time that counts.
        rows_a_second: Rows of that time.
        use: Of each device the part of that time in which its process was inside the model.
    """

    devices: int
    seconds: float
    rows_a_second: float
    use: dict[str, float]


def rate(calls: Iterable[Call]) -> Rate:
    """What devices did in the time in which all of them had work; a call that lies in it in part counts for that part.

    Raises:
        ValueError: there is no such time: a device had less than two batches, or began when others had ended.
    """
    of: dict[str, list[Call]] = defaultdict(list)
    for call in sorted(calls, key=lambda item: item.start):
        of[call.device].append(call)
    first = max(own[0].end for own in of.values())
    last = min(own[-1].end for own in of.values())
    if last <= first:
        raise ValueError("there is no time in which all devices had work: more rows are needed")
    inside = {
        device: [(max(min(call.end, last) - max(call.start, first), 0.0), call) for call in own]
        for device, own in of.items()
    }
    rows = sum(part / (call.end - call.start) * call.rows for own in inside.values() for part, call in own)
    use = {device: sum(part for part, _ in own) / (last - first) for device, own in inside.items()}
    return Rate(len(of), last - first, rows / (last - first), use)


def calls_of(rows: Sequence[dict[str, Any]]) -> list[Call]:
    """The batches that rows come from."""
    found: dict[tuple[str, float, float], int] = defaultdict(int)
    for row in rows:
        found[row["device"], row["start"], row["end"]] += 1
    return [Call(*key, count) for key, count in found.items()]


def timed(base: type[Any]) -> type[Any]:
    """A predictor that gives rows' ids with when and where they were computed, and nothing else."""

    class Timed(base):  # type: ignore[misc]
        def __call__(self, batch: Any) -> Any:
            from dmlvk.ray import assigned_device

            start = time.time()
            made = super().__call__(batch)
            end, count = time.time(), len(batch["id"])
            who = f"{assigned_device().info.uuid} {os.getpid()}"
            columns = {"device": np.array([who] * count, object), "start": np.full(count, start), "end": np.full(count, end)}
            return {"id": made["id"], **columns}

    return Timed


def pictures(batch: Any, shape: tuple[int, ...]) -> Any:
    """Rows with pictures of random numbers, as bytes."""
    rng = np.random.default_rng(int(batch["id"][0]))
    return {**batch, "x": rng.integers(0, 256, (len(batch["id"]), *shape), dtype=np.uint8)}


def prompts(batch: Any) -> Any:
    """Rows with prompts that begin otherwise each."""
    words = [f"Number {number} of a list of questions: why is the sky blue?" for number in batch["id"]]
    return {**batch, "prompt": np.array(words, object)}


def measured(kind: str, devices: int, arguments: argparse.Namespace) -> Rate:
    """What so many devices do."""
    import ray.data

    from dmlvk.ray import LlmPredictor, OnnxPredictor, predict, share

    count = devices * arguments.batches * arguments.batch_size
    ids = ray.data.range(count, override_num_blocks=devices * arguments.batches)
    common: dict[str, Any] = {"batch_size": arguments.batch_size, "workers": devices, "num_cpus": arguments.num_cpus}
    if kind == "images":
        shape = tuple(arguments.shape)
        data = ids.map_batches(pictures, fn_kwargs={"shape": shape}, batch_size=arguments.batch_size)
        (name,) = arguments.inputs
        made = predict(data, timed(OnnxPredictor), share(arguments.onnx), inputs={name: "x"}, **common)
    else:
        data = ids.map_batches(prompts, batch_size=arguments.batch_size)
        options = {"max_new_tokens": arguments.tokens, "ignore_ends": True, "temperature": 1.0, "seed": 1}
        sequences = {"sequences": arguments.sequences, "capacity": arguments.tokens + 64}
        made = predict(data, timed(LlmPredictor), share(arguments.text), **sequences, **options, **common)
    rows = made.take_all()
    if sorted(row["id"] for row in rows) != list(range(count)):
        raise SystemExit(f"{kind} on {devices} devices: rows were lost or doubled")
    found = rate(calls_of(rows))
    if found.devices != devices:
        raise SystemExit(f"{kind}: {found.devices} of {devices} devices had work: is each announced?")
    return found


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--devices", default="1,2", help="numbers of devices, such as 1,2,4,8")
    parser.add_argument("--onnx", type=Path, help="a model with one input, of pictures; resnet50: one with random weights")
    parser.add_argument("--text", type=Path, help="a language model")
    parser.add_argument("--batches", type=int, default=40, help="batches for each device")
    parser.add_argument("--batch-size", type=int, default=32, help="rows of a batch")
    parser.add_argument("--tokens", type=int, default=128, help="tokens of an answer")
    parser.add_argument("--sequences", type=int, default=16, help="answers that are written at once on a device")
    parser.add_argument("--num-cpus", type=float, default=1, help="processors that Ray counts for a device")
    parser.add_argument("--address", help="a Ray cluster that runs; default: one of this machine")
    parser.add_argument("--copies", type=int, default=1, help="announce each device so often, to try it without many")
    parser.add_argument("--least", type=float, default=0.0, help="the part of as many times one's work that must be reached")
    parser.add_argument("--out", type=Path, help="a JSON file for the results")
    arguments = parser.parse_args(words)
    if arguments.onnx is None and arguments.text is None:
        parser.error("--onnx, --text or both say what to measure")
    import ray
    import ray.data

    import dmlvk.ray

    if arguments.onnx == Path("resnet50"):
        arguments.onnx = _resnet_50(Path(tempfile.mkdtemp()), arguments.batch_size)
    if arguments.onnx is not None:
        arguments.inputs, arguments.shape = _input_of(arguments.onnx)
    if arguments.address:
        ray.init(address=arguments.address)
    else:
        ray.init(resources=dmlvk.ray.resources(copies=arguments.copies), include_dashboard=False)
    ray.data.DataContext.get_current().enable_progress_bars = False
    kinds = [kind for kind, path in (("images", arguments.onnx), ("text", arguments.text)) if path is not None]
    found: dict[str, list[Rate]] = {kind: [] for kind in kinds}
    good = True
    print("| work | devices | rows a second | of one's | each device's use, % |\n| --- | --- | --- | --- | --- |")
    for kind in kinds:
        for devices in map(int, arguments.devices.split(",")):
            own = measured(kind, devices, arguments)
            found[kind].append(own)
            one = found[kind][0].rows_a_second / found[kind][0].devices
            times = own.rows_a_second / one
            good = good and times >= arguments.least * devices
            use = " ".join(f"{100 * part:.0f}" for part in own.use.values())
            print(f"| {kind} | {devices} | {own.rows_a_second:.2f} | {times:.2f} | {use} |", flush=True)
    if arguments.out is not None:
        written = {kind: [asdict(own) for own in rates] for kind, rates in found.items()}
        arguments.out.write_text(json.dumps(written, indent=2) + "\n")
    ray.shutdown()
    return 0 if good else 1


def _resnet_50(folder: Path, batch: int) -> Path:
    """ResNet-50 in float32, for so many pictures at once."""
    import onnx

    from dmlvk_bench.models.layers import Weights
    from dmlvk_bench.models.networks import Network, resnet_50
    from dmlvk_bench.models.onnx_layers import onnx_model

    single = np.dtype(np.float32)
    sizes: dict[str, Any] = {"input": (single, (batch, 3, 224, 224))}
    network = Network("ResNet-50", single, batch, sizes, {"logits": (batch, 1000)}, resnet_50, 1.0)
    path = folder / "resnet50.onnx"
    onnx.save(onnx_model(network, Weights()), path)
    return path


def _input_of(path: Path) -> tuple[list[str], list[int]]:
    """The name of a model's input, and the sizes of one of its items."""
    import onnx

    graph = onnx.load_model(path, load_external_data=False).graph
    constants = {tensor.name for tensor in graph.initializer}
    (only,) = (value for value in graph.input if value.name not in constants)
    return [only.name], [dimension.dim_value for dimension in only.type.tensor_type.shape.dim][1:]


if __name__ == "__main__":
    sys.exit(main())
