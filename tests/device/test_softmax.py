"""Softmax and its logarithm against the specification's examples, the ONNX reference and PyTorch."""

from __future__ import annotations

import json
import pathlib
from types import ModuleType
from typing import Any

import numpy as np
import onnx.reference
import pytest
from numpy.typing import NDArray
from onnx import helper

import dmlvk
from dmlvk import eager

Array = NDArray[Any]
EXAMPLES = json.loads((pathlib.Path(__file__).parent.parent / "data" / "examples.json").read_text())["examples"]


def random(*sizes: int) -> Array:
    return np.random.default_rng(sizes).standard_normal(sizes).astype(np.float32)


@pytest.mark.parametrize(
    "entry",
    [entry for entry in EXAMPLES if entry["operator"] == "DML_OPERATOR_ACTIVATION_LOG_SOFTMAX1"],
    ids=lambda entry: entry["id"],
)
def test_the_specifications_example(device: dmlvk.Device, entry: dict[str, Any]) -> None:
    def tensor(found: dict[str, Any]) -> Array:
        return np.array(found["data"], np.float32).reshape(found["sizes"])

    found = eager.activation_log_softmax1(
        tensor(entry["inputs"]["InputTensor"]), axes=tuple(entry["params"]["Axes"]), device=device
    )
    expected = tensor(entry["outputs"]["OutputTensor"])
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=max(entry["tolerance"], 1e-6))


@pytest.mark.parametrize("axis", [0, 1, 2, 3])
@pytest.mark.parametrize("op", ["Softmax", "LogSoftmax"])
def test_agrees_with_the_onnx_reference(device: dmlvk.Device, op: str, axis: int) -> None:
    x = random(5, 4, 7, 9)
    node = helper.make_node(op, ["x"], ["y"], axis=axis)
    results: Any = onnx.reference.ReferenceEvaluator(node).run(None, {"x": x})
    expected = results[0]
    function = eager.activation_softmax1 if op == "Softmax" else eager.activation_log_softmax1
    np.testing.assert_allclose(function(x, axes=(axis,), device=device), expected, rtol=2e-6, atol=2e-6)


@pytest.mark.parametrize("size", [1, 2, 31, 1000, 5003])
def test_agrees_with_torch(device: dmlvk.Device, torch: ModuleType, size: int) -> None:
    x = random(3, size) * 20
    wide = torch.from_numpy(x).double()
    softmax = eager.activation_softmax1(x, axes=(1,), device=device)
    np.testing.assert_allclose(softmax, torch.softmax(wide, 1).numpy(), rtol=2e-6, atol=1e-38)
    logarithm = eager.activation_log_softmax1(x, axes=(1,), device=device)
    np.testing.assert_allclose(logarithm, torch.log_softmax(wide, 1).numpy(), rtol=2e-6, atol=1e-14)


def test_infinities_and_nan(device: dmlvk.Device) -> None:
    inf, nan = np.inf, np.nan
    x = np.array([[-inf, 0, 0], [inf, 0, 0], [nan, 0, 0], [-inf] * 3, [3e38, -3e38, 3e38]], np.float32)
    expected = [[0, 0.5, 0.5], [nan] * 3, [nan] * 3, [nan] * 3, [0.5, 0, 0.5]]
    np.testing.assert_array_equal(eager.activation_softmax(x, device=device), np.array(expected, np.float32))
    logarithm = eager.activation_log_softmax(x, device=device)
    half = np.float32(np.log(0.5))
    np.testing.assert_array_equal(logarithm[0], np.array([-inf, half, half], np.float32))
    assert np.isnan(logarithm[1:4]).all()
