"""Kernels whose places are data stay within their bindings: the validation layer instruments every access of their modules
and reports those outside. A driver need not show them: lavapipe reads 0 there, and SwiftShader crashes."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

_LAYER = {
    "VK_INSTANCE_LAYERS": "VK_LAYER_KHRONOS_validation",
    "VK_LAYER_ENABLES": "VK_VALIDATION_FEATURE_ENABLE_GPU_ASSISTED_EXT",
    "VK_LAYER_DISABLES": "VK_VALIDATION_FEATURE_DISABLE_CORE_CHECKS_EXT",
}


_OTHERS = ("ScatterNd", "GatherElements", "GatherNd1", "OneHot", "NonzeroCoordinates", "MaxUnpooling", "TopK1")


@pytest.mark.parametrize(
    ("operator", "runs"),
    [
        ("ScatterElements", "first dimension, INT32, FLOAT32, packed"),
        *(pytest.param(operator, "FLOAT32, packed", marks=pytest.mark.full) for operator in _OTHERS),
    ],
)
@pytest.mark.slow
def test_every_access_lies_in_its_binding(operator: str, runs: str) -> None:
    if os.environ.get("DMLVK_VALIDATION") != "1":
        pytest.skip("it takes the validation layer to tell")
    command = [sys.executable, "-m", "dmlvk", "verify", operator, "--only", runs]
    environment = {key: value for key, value in os.environ.items() if key != "DMLVK_VALIDATION"} | _LAYER
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "access out of bounds" not in done.stdout, done.stdout[:2000]
