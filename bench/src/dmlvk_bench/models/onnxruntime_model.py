"""A model in a session of ONNX Runtime."""

from __future__ import annotations

import collections
import json
import pathlib
import tempfile
from collections.abc import Mapping
from typing import Any

import numpy as np

from dmlvk_bench.models.layers import Array
from dmlvk_bench.rivals.onnxruntime_worker import make_session


class OnnxRuntimeModel:
    """A session of a provider, which leaves to the CPU what it has no kernels for.

    Args:
        provider: ONNX Runtime's name of it.
        model: The ONNX file, or the path of one.
        capture: Whether WebGPU records its commands once and replays them. It can where it runs every node itself and no
            shape depends on values.
    """

    def __init__(self, provider: str, model: bytes | str, capture: bool) -> None:
        self._session = make_session(model, provider, capture=capture, fallback=True)

    def run(self, feeds: Mapping[str, Array]) -> list[Array]:
        """Hands the inputs over, computes and reads the outputs."""
        return [np.asarray(output) for output in self._session.run(None, dict(feeds))]


def processor_nodes(provider: str, model: bytes, feeds: Mapping[str, Array]) -> dict[str, int]:
    """The number of nodes of each operator that the provider leaves to the CPU in a run."""
    with tempfile.TemporaryDirectory() as folder:
        session = make_session(model, provider, capture=False, fallback=True, profile=f"{folder}/profile")
        session.run(None, dict(feeds))
        events: list[Any] = json.loads(pathlib.Path(session.end_profiling()).read_text())
    found = {
        (event["name"], event["args"]["op_name"])
        for event in events
        if event.get("args", {}).get("provider") == "CPUExecutionProvider"
    }
    return dict(collections.Counter(op_type for _, op_type in found))
