"""The cost of sizes that a session has not met: a decoder whose cache grows by one a word, and models that take any width.

Times are the host's, of whole runs, in milliseconds. Pipelines exist before a figure is taken: a session before the one
that is measured has met all sizes.
"""

from __future__ import annotations

import cProfile
import pathlib
import pstats
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Final

import numpy as np
import onnx

from dmlvk.directml.device import Device
from dmlvk.engine.graph_cache import CompiledGraphs
from dmlvk.graph.passes import optimized
from dmlvk.graph.placement import Placement
from dmlvk.kernels.lowering import lower
from dmlvk.onnx import InferenceSession, SessionOptions
from dmlvk.onnx.network import Network
from dmlvk_bench.models.decoder import BLOCKS, HEADS, WIDTH, decoder
from dmlvk_bench.models.files import find_files, load
from dmlvk_bench.models.layers import Array
from dmlvk_bench.results import ShapeRow

_WARM: Final = 4
"""Sizes that come first."""
_NEW: Final = 12
_PROFILED: Final = 4
_PHASES: Final[Mapping[str, Callable[..., object]]] = {
    "trace": Network.trace,
    "passes": optimized,
    "lower": lower,
    "place": Placement.__init__,
    "record": CompiledGraphs.record,
}
"""The phases of a run of new sizes, and the function that is timed for each; the passes are part of the trace."""


def measure_shapes(device: str | None, only: str, folder: pathlib.Path | None) -> Iterator[ShapeRow]:
    """Measures the decoder, and the models of a folder whose one input is an image of any width.

    Args:
        device: The choice of a device, as ``Device`` takes it.
        only: Models whose name contains this.
        folder: A folder with ONNX files at any depth; None for the decoder alone.

    Yields:
        A row, as soon as it is there.
    """
    rng = np.random.default_rng(0)
    if only in "decoder":
        yield _measured("decoder", decoder(), device, partial(_words, rng))
    for path in find_files(folder) if folder is not None else ():
        if only not in path.name:
            continue
        model, _ = load(path)
        sizes = _image_sizes(model)
        if sizes is not None:
            yield _measured(path.name, model, device, partial(_image, rng, model.graph.input[0].name, sizes))


def _words(rng: np.random.Generator, index: int) -> dict[str, Array]:
    """The inputs for one word with a cache of 16 + index words before it."""
    sizes = (1, HEADS, 16 + index, WIDTH // HEADS)
    names = [f"past_{kind}_{block}" for block in range(BLOCKS) for kind in ("key", "value")]
    return {"ids": np.ones((1, 1), np.int64), **{name: rng.standard_normal(sizes, np.float32) for name in names}}


def _image_sizes(model: onnx.ModelProto) -> Sequence[int] | None:
    """The sizes of a model's one input but for its width, if that may be any; 1 for another that may. None where there is no
    such input."""
    constants = {tensor.name for tensor in model.graph.initializer}
    inputs = [info for info in model.graph.input if info.name not in constants]
    sizes = [size.dim_value for size in inputs[0].type.tensor_type.shape.dim] if len(inputs) == 1 else []
    if len(sizes) != 4 or sizes[3] > 0 or sizes[2] <= 0:
        return None
    return [max(size, 1) for size in sizes[:3]]


def _image(rng: np.random.Generator, name: str, sizes: Sequence[int], index: int) -> dict[str, Array]:
    """An image, wider each time."""
    return {name: rng.standard_normal((*sizes, 160 + 8 * index), np.float32)}


def _measured(name: str, model: onnx.ModelProto, device: str | None, feeds: Callable[[int], dict[str, Array]]) -> ShapeRow:
    fed = [feeds(index) for index in range(_WARM + _NEW + _PROFILED)]
    opened = Device(device)
    options = SessionOptions(plan_cache_size=len(fed))
    before = InferenceSession(model, opened, options)
    for item in fed:
        before.run(None, item)
    del before
    session = InferenceSession(model, opened, options)
    for warm in fed[:_WARM]:
        session.run(None, warm)
    measured = fed[_WARM:][:_NEW]
    planning: list[float] = []
    new = [_milliseconds(session, item, planning) for item in measured]
    seen = [_milliseconds(session, item) for item in measured]
    profile = cProfile.Profile()
    for item in fed[-_PROFILED:]:
        profile.runcall(session.run, None, item)
    dispatches = session.report().dispatches
    new_ms, seen_ms, planning_ms = map(statistics.median, (new, seen, planning))
    return ShapeRow(name, dispatches, new_ms, seen_ms, planning_ms, min(planning), _shares(profile))


def _milliseconds(session: InferenceSession, feeds: Mapping[str, Array], planning: list[float] | None = None) -> float:
    """The time of a run; what its sizes took to plan is appended to ``planning``."""
    start = time.perf_counter()
    session.run(None, dict(feeds))
    milliseconds = 1e3 * (time.perf_counter() - start)
    if planning is not None:
        planning.append(1e3 * session.report().planning_seconds)
    return milliseconds


def _shares(profile: cProfile.Profile) -> dict[str, float]:
    stats = pstats.Stats(profile)
    by_code = {(file, line): cumulative for (file, line, _), (*_, cumulative, _) in stats.stats.items()}  # type: ignore[attr-defined]
    total = stats.total_tt  # type: ignore[attr-defined]
    places = {name: function.__code__ for name, function in _PHASES.items()}
    return {name: by_code.get((code.co_filename, code.co_firstlineno), 0.0) / total for name, code in places.items()}
