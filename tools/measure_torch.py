"""Time networks through PyTorch on CUDA, through PyTorch's own compiler, and through ``torch.compile(backend="dmlvk")``.

    python tools/measure_torch.py --out times.json            # 20 networks, and a training step of two
    python tools/measure_torch.py --small --only "resnet*"    # small sizes; on the processor where there is no CUDA

Weights are random, types float32, PyTorch's settings its own. A process for each network and each way prepares it, all at
once; then the ways of one network take turns while all others wait, with tensors on the device, and once more with tensors
that come from the host and go back there. What a way gives is held against float64 on the processor. A way that is wrong, or
not ready at the deadline, has no time.
"""

from __future__ import annotations

import argparse
import fnmatch
import importlib.metadata
import json
import multiprocessing
import os
import statistics
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

import torch
from torch_architectures import Flat, define_missing, without_chance

SEED: Final = 0
TOLERANCE: Final = 5e-3
"""The largest difference from float64, relative to the largest number: PyTorch convolves in TF32 on CUDA."""
EAGER, INDUCTOR, OWN = "eager", "inductor", "dmlvk"
WAYS: Final = (EAGER, OWN, INDUCTOR)
_SECONDS: Final = 0.06
"""What one way's turn takes."""
_WORDS: Final = 128
_VOCABULARY: Final = 30000

_PICTURES: Final = (
    *("resnet18", "resnet50", "mobilenet_v2", "mobilenet_v3_large", "efficientnet_b0", "densenet121", "squeezenet1_1"),
    *("shufflenet_v2_x1_0", "mnasnet1_0", "regnet_y_400mf", "googlenet", "convnext_tiny", "vit_b_16", "swin_t"),
)
_TEXTS: Final[Mapping[str, Mapping[str, Any]]] = {
    "BertModel": {},
    "DistilBertModel": {},
    "RobertaModel": {},
    "GPT2Model": {},
    "T5EncoderModel": {},
    "Qwen2Model": {
        "hidden_size": 896,
        "num_hidden_layers": 12,
        "num_attention_heads": 14,
        "num_key_value_heads": 2,
        "intermediate_size": 4864,
    },
}
STEPS: Final = ("resnet18 step", "transformer step")


class Problem(NamedTuple):
    """What is run.

    Attributes:
        model: The network, on the processor.
        inputs: Its inputs, there.
        optimiser: Makes the optimiser of a training step; None for inference.
    """

    model: torch.nn.Module
    inputs: dict[str, torch.Tensor]
    optimiser: Callable[[Iterable[torch.nn.Parameter], bool], torch.optim.Optimizer] | None = None


def names() -> tuple[str, ...]:
    """The problems."""
    return (*STEPS, *_PICTURES, *_TEXTS)


def problem(name: str, is_small: bool) -> Problem:
    """A network with random weights, the same ones each time."""
    torch.manual_seed(SEED)
    side = 64 if is_small else 224
    if name in STEPS:
        return _training(name, side, is_small)
    if name in _PICTURES:
        import torchvision

        options: dict[str, Any] = {"init_weights": False, "aux_logits": False} if name == "googlenet" else {}
        options.update({"image_size": side} if name.startswith("vit") else {})
        return Problem(torchvision.models.get_model(name, weights=None, **options), {"x": torch.rand(1, 3, side, side)})
    import transformers

    model_class = getattr(transformers, name)
    counts = {"num_hidden_layers": 2, "n_layer": 2, "n_layers": 2, "num_layers": 2} if is_small else {}
    config = model_class.config_class(**{**_TEXTS[name], **counts, "vocab_size": _VOCABULARY})
    config.use_cache = False
    return Problem(model_class(config), {"input_ids": torch.randint(3, _VOCABULARY, (1, 16 if is_small else _WORDS))})


def _training(name: str, side: int, is_small: bool) -> Problem:
    if name == "resnet18 step":
        import torchvision

        model = torchvision.models.resnet18(weights=None)
        inputs = {"x": torch.rand(2 if is_small else 8, 3, side, side)}
        return Problem(model, inputs, lambda items, _: torch.optim.SGD(items, 0.01, momentum=0.9))
    width, count = (64, 2) if is_small else (256, 4)
    layer = torch.nn.TransformerEncoderLayer(width, width // 32, 4 * width, dropout=0.0, batch_first=True)
    model = torch.nn.TransformerEncoder(layer, count, enable_nested_tensor=False)
    inputs = {"x": torch.randn(2 if is_small else 8, 16 if is_small else _WORDS, width)}
    return Problem(model, inputs, lambda items, on_device: torch.optim.AdamW(items, 1e-4, capturable=on_device))


# -- the ways


class Ready(NamedTuple):
    """A way that has been compiled and run.

    Attributes:
        run: Once, with tensors on the device.
        run_from_host: Once, with tensors of the host, to the host.
        wait: Waits for the device.
        results: Tensors that the runs have given, on the processor: outputs, or the losses of the first two steps.
    """

    run: Callable[[], Any]
    run_from_host: Callable[[], Any]
    wait: Callable[[], None]
    results: list[torch.Tensor]


def _place(way: str) -> str:
    if way == OWN:
        import dmlvk.torch  # noqa: F401  # makes the device

        return "dmlvk"
    return "cuda" if torch.cuda.is_available() else "cpu"


def _waits(place: str) -> Callable[[], None]:
    if place == "cpu":
        return lambda: None
    waits: Callable[[], None] = torch.cuda.synchronize if place == "cuda" else torch.dmlvk.synchronize
    return waits


def _compiled(function: Callable[..., Any], way: str) -> Callable[..., Any]:
    if way == EAGER:
        return function
    made: Callable[..., Any] = torch.compile(function, backend=way)
    return made


def prepared(found: Problem, way: str, place: str, dtype: torch.dtype = torch.float32) -> Ready:
    """Brings a problem to a device, compiles it and runs it."""
    model = Flat(found.model).to(dtype).to(place)
    without_chance(model)
    host = {name: item.to(dtype) if item.is_floating_point() else item for name, item in found.inputs.items()}
    inputs = {name: item.to(place) for name, item in host.items()}
    if found.optimiser is None:
        return _prepared_inference(model.eval(), host, inputs, way, place)
    return _prepared_training(model.train(), found.optimiser, host, inputs, way, place)


def _prepared_inference(
    model: torch.nn.Module, host: Mapping[str, torch.Tensor], inputs: Mapping[str, torch.Tensor], way: str, place: str
) -> Ready:
    call = _compiled(model, way)

    def run() -> Any:
        with torch.no_grad():
            return call(**inputs)

    def run_from_host() -> Any:
        with torch.no_grad():
            return [item.cpu() for item in call(**{name: item.to(place) for name, item in host.items()})]

    results = [item.cpu() for item in run()]
    run_from_host()
    return Ready(run, run_from_host, _waits(place), results)


def _prepared_training(
    model: torch.nn.Module,
    optimiser: Callable[[Iterable[torch.nn.Parameter], bool], torch.optim.Optimizer],
    host: Mapping[str, torch.Tensor],
    inputs: Mapping[str, torch.Tensor],
    way: str,
    place: str,
) -> Ready:
    chosen = optimiser(model.parameters(), way != EAGER)

    def loss(**given: torch.Tensor) -> torch.Tensor:
        return (model(**given)[0] ** 2).mean()

    call, update = _compiled(loss, way), _compiled(chosen.step, way)

    def step(given: Mapping[str, torch.Tensor]) -> torch.Tensor:
        chosen.zero_grad(set_to_none=True)
        made: torch.Tensor = call(**given)
        made.backward()
        update()
        return made.detach()

    results = [step(inputs).cpu() for _ in range(2)]
    return Ready(
        lambda: step(inputs),
        lambda: step({name: item.to(place) for name, item in host.items()}).cpu(),
        _waits(place),
        results,
    )


def timed(ready: Ready, *, is_from_host: bool) -> float:
    """Microseconds of one run, of as many as fit into a turn."""
    run = ready.run_from_host if is_from_host else ready.run
    run()
    ready.wait()
    count, start = 0, time.perf_counter()
    while time.perf_counter() - start < _SECONDS or count < 2:
        for _ in range(2):
            run()
        count += 2
        if count % 8 == 0:
            ready.wait()  # so that the clock sees work done, and not work asked for
    ready.wait()
    return 1e6 * (time.perf_counter() - start) / count


# -- processes


def _work(name: str, way: str, is_small: bool, pipe: Any) -> None:
    torch.set_num_threads(4 if name in STEPS else 1)
    if way == INDUCTOR:
        os.nice(10)  # the others are ready sooner
    try:
        found = problem(name, is_small)
        exact: list[torch.Tensor] = []
        if way == EAGER:
            exact = prepared(problem(name, is_small), EAGER, "cpu", torch.float64).results
        ready = prepared(found, way, _place(way))
        pipe.send(([item.numpy() for item in ready.results], [item.numpy() for item in exact], ""))
    except BaseException as error:
        pipe.send(([], [], f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"))
        return
    while (asked := pipe.recv()) is not None:
        pipe.send(timed(ready, is_from_host=asked))


def _import_before_parting(chosen: Iterable[str]) -> None:
    """Imports once what all processes need."""
    import transformers

    define_missing()

    for name in chosen:
        if name in _TEXTS:
            getattr(transformers, name)


def _difference(found: list[Any], exact: list[Any]) -> float:
    """The largest difference, relative to the largest number."""
    if [item.shape for item in found] != [item.shape for item in exact]:
        return float("inf")
    pairs = zip(found, exact, strict=True)
    return max(float(abs(ours - theirs).max() / max(abs(theirs).max(), 1e-12)) for ours, theirs in pairs)


def measure(
    chosen: Iterable[str], ways: Iterable[str], is_small: bool, deadline: float, rounds: int
) -> list[dict[str, Any]]:
    """Rows, one a problem: of each way its difference from float64, microseconds, and why there are none."""
    context = multiprocessing.get_context("fork")  # PyTorch is imported once; nothing has touched a device here
    end = time.monotonic() + deadline
    workers: dict[tuple[str, str], tuple[Any, Any]] = {}
    for name in chosen:
        for way in ways:
            here, there = context.Pipe()
            worker = context.Process(target=_work, args=(name, way, is_small, there), daemon=False)
            worker.start()
            there.close()
            workers[name, way] = (worker, here)
    ready: dict[tuple[str, str], tuple[list[Any], list[Any], str]] = {}
    for key, (worker, pipe) in workers.items():
        try:
            is_there = pipe.poll(max(end - time.monotonic(), 0.0))
            ready[key] = pipe.recv() if is_there else ([], [], f"not ready after {deadline:.0f} s")
        except EOFError:
            ready[key] = ([], [], "the process ended")
        if ready[key][2]:
            worker.kill()
    rows = [_row(name, tuple(ways), ready, workers, rounds) for name in chosen]
    for worker, _ in workers.values():
        worker.kill()
    return rows


def _row(
    name: str, ways: tuple[str, ...], ready: Mapping[Any, Any], workers: Mapping[Any, Any], rounds: int
) -> dict[str, Any]:
    exact = ready[name, EAGER][1]
    row: dict[str, Any] = {"name": name, "kind": "training" if name in STEPS else "inference"}
    for way in ways:
        results, _, why = ready[name, way]
        off = _difference(results, exact) if not why else 0.0
        row[way] = {"why": why} if why else {"difference": float(f"{off:.2g}")}
        if not why and not off <= TOLERANCE:
            row[way]["why"] = "wrong"
    for is_from_host, field in ((False, "us"), (True, "us from the host")):
        taken: dict[str, list[float]] = {way: [] for way in ways if "why" not in row[way]}
        for _ in range(rounds):
            for way, times in taken.items():
                pipe = workers[name, way][1]
                pipe.send(is_from_host)
                times.append(pipe.recv())
        for way, times in taken.items():
            row[way][field] = float(f"{statistics.median(times):.4g}")
    print(_line(row), flush=True)
    return row


def _line(row: Mapping[str, Any]) -> str:
    parts = [f"{row['name']:20}"]
    for way in WAYS:
        if way in row:
            own = row[way]
            times = f"{own['us']:.0f} us, from the host {own['us from the host']:.0f} us" if "us" in own else own["why"]
            off = f" (off by {own['difference']:.1e})" if "difference" in own else ""
            parts.append(f"{way} {times}{off}")
    return "; ".join(parts)


def ratio(rows: Iterable[Mapping[str, Any]], rival: str, field: str = "us") -> tuple[float, int]:
    """How many times as fast as a rival, by the geometric mean of the problems that both have run, and their number."""
    both = [row for row in rows if all(field in row.get(way, {}) for way in (rival, OWN))]
    found = [row[rival][field] / row[OWN][field] for row in both]
    return (statistics.geometric_mean(found) if found else float("nan")), len(found)


def summary(rows: list[dict[str, Any]]) -> str:
    """The geometric means."""
    lines = []
    for kind in ("inference", "training"):
        chosen = [row for row in rows if row["kind"] == kind]
        for rival in (EAGER, INDUCTOR):
            for field in ("us", "us from the host"):
                times, count = ratio(chosen, rival, field)
                if count:
                    lines.append(f"{kind}, {field}: {times:.2f} times as fast as {rival}, of {count} problems")
    return "\n".join(lines)


def where(commit: str) -> dict[str, str]:
    """Devices, drivers, versions, and the day."""
    import dmlvk

    info = dmlvk.default_device().info
    said = {"device": info.name, "driver": info.driver, "cuda": str(torch.version.cuda)}
    for name in ("torch", "torchvision", "transformers"):
        said[name] = importlib.metadata.version(name)
    return {**said, "dmlvk": dmlvk.__version__, "commit": commit, "date": time.strftime("%Y-%m-%d", time.gmtime())}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, help="where rows go, as JSON")
    parser.add_argument("--only", default="*", help="names, with wildcards")
    parser.add_argument("--ways", default=",".join(WAYS), help="eager is needed: it has what is right")
    parser.add_argument("--small", action="store_true", help="small sizes")
    parser.add_argument("--deadline", type=float, default=90.0, help="seconds until all ways are to be ready")
    parser.add_argument("--commit", default="", help="that of the build, kept with the rows")
    parser.add_argument("--rounds", type=int, default=5, help="turns of each way, whose median counts")
    given = parser.parse_args()
    os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")
    os.environ["PYTORCH_NVML_BASED_CUDA_CHECK"] = "1"  # asking for devices does not begin CUDA, which no fork survives
    chosen = [name for name in names() if fnmatch.fnmatch(name, given.only)]
    _import_before_parting(chosen)
    rows = measure(chosen, given.ways.split(","), given.small, given.deadline, given.rounds)
    print(summary(rows))
    if given.out:
        given.out.write_text(json.dumps({**where(given.commit), "rows": rows}, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
