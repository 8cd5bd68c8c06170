"""A model in a session of ONNX Runtime's WebGPU provider."""

from __future__ import annotations

import collections
import json
import pathlib
import tempfile
from collections.abc import Mapping
from typing import Any

import numpy as np
import onnxruntime

from bench.models.layers import Array

VERSION: str = onnxruntime.__version__
PROVIDER = "WebGpuExecutionProvider"


class WebGpuRival:
    """A session of the provider.

    Args:
        model: The ONNX file.
        capture: Whether the provider records its commands once and replays them. It can where it runs every node itself
            and no shape depends on values.
    """

    def __init__(self, model: bytes, capture: bool) -> None:
        self._session = _session(model, onnxruntime.SessionOptions(), capture)

    def run(self, feeds: Mapping[str, Array]) -> list[Array]:
        """Hands the inputs over, computes and reads the outputs."""
        return [np.asarray(output) for output in self._session.run(None, dict(feeds))]


def _session(model: bytes, options: Any, capture: bool) -> Any:
    options.log_severity_level = 4
    choice = {"enableGraphCapture": str(int(capture)), "validationMode": "disabled"}
    session = onnxruntime.InferenceSession(model, options, providers=[(PROVIDER, choice)])
    if session.get_providers()[0] != PROVIDER:
        raise RuntimeError("ONNX Runtime finds no WebGPU adapter here")
    return session


def processor_nodes(model: bytes, feeds: Mapping[str, Array]) -> dict[str, int]:
    """How many nodes of each operator the provider leaves to the CPU in a run."""
    with tempfile.TemporaryDirectory() as folder:
        options = onnxruntime.SessionOptions()
        options.enable_profiling = True
        options.profile_file_prefix = f"{folder}/profile"
        session = _session(model, options, capture=False)
        session.run(None, dict(feeds))
        events = json.loads(pathlib.Path(session.end_profiling()).read_text())
    found = {
        (event["name"], event["args"]["op_name"])
        for event in events
        if event.get("args", {}).get("provider") == "CPUExecutionProvider"
    }
    return dict(collections.Counter(op_type for _, op_type in found))
