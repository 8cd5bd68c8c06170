"""Small models for the session's tests, and the comparison with onnxruntime's CPU and onnx.reference."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import onnx_models
import pytest

import dmlvk
from dmlvk.onnx import InferenceSession


@pytest.fixture(scope="session")
def make_model() -> Callable[..., onnx.ModelProto]:
    """A function from nodes to a model."""
    return onnx_models.make_model


@pytest.fixture(scope="session")
def reference() -> Callable[..., list[np.ndarray]]:
    """Outputs of a model by another runtime: "onnxruntime" on the CPU, or "onnx", the reference implementation."""
    return onnx_models.reference


@pytest.fixture(scope="session")
def assert_close() -> Callable[..., None]:
    return onnx_models.close


@pytest.fixture(scope="module")
def make_session(device: dmlvk.Device) -> Callable[..., InferenceSession]:
    """A session on the device under test."""

    def make(model: Any, **options: Any) -> InferenceSession:
        source = model.SerializeToString() if isinstance(model, onnx.ModelProto) else model
        return InferenceSession(source, device, **options)

    return make
