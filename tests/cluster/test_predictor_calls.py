"""What predictors make of one batch, without a cluster around them: each is given the device of the test."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import ray
from counting_model import model as counting_model
from onnx import helper
from onnx_models import make_model

import dmlvk
import dmlvk.llm.model
from dmlvk.onnx.session import InferenceSession
from dmlvk.ray import LlmPredictor, OnnxPredictor, predictors
from dmlvk.spec.errors import DeviceLostError, InvalidArgumentError, ModelError, NoDeviceError

Predict = Callable[..., OnnxPredictor]


@pytest.fixture
def predictor(tmp_path: Path, device: dmlvk.Device, monkeypatch: pytest.MonkeyPatch) -> Predict:
    """A function from the shape of x to a predictor of y = 2 x and z = -x."""
    monkeypatch.setattr(predictors, "assigned_device", lambda: device)

    def make(shape: tuple[Any, ...], **arguments: Any) -> OnnxPredictor:
        nodes = [helper.make_node("Add", ["x", "x"], ["y"]), helper.make_node("Neg", ["x"], ["z"])]
        onnx.save(make_model(nodes, {"x": (np.float32, shape)}, ("y", "z")), tmp_path / "model.onnx")
        return OnnxPredictor(tmp_path / "model.onnx", **arguments)

    return make


def test_columns_of_inputs_become_those_of_outputs(predictor: Predict) -> None:
    x = np.arange(10, dtype=np.float64).reshape(5, 2)
    made = predictor((4, 2))({"id": np.arange(5), "x": x})
    assert list(made) == ["id", "y", "z"] and made["y"].dtype == np.float32
    np.testing.assert_array_equal(made["id"], np.arange(5))
    np.testing.assert_array_equal(made["y"], 2 * x)
    made = predictor(("N", 2), inputs={"x": "pixels"}, outputs=["z"], max_batch=2)({"pixels": x, "x": x})
    assert list(made) == ["x", "z"]
    np.testing.assert_array_equal(made["z"], -x)
    assert list(predictor(("N", 2))({"data": x})) == ["y", "z"]


def test_rows_of_different_sizes_keep_their_places(predictor: Predict) -> None:
    rows = np.empty(4, object)
    rows[:] = [np.full(width, number, np.float32) for number, width in enumerate((2, 3, 2, 1))]
    made = predictor(("N", "W"), outputs=["y"])({"x": rows})["y"]
    assert [item.tolist() for item in made] == [[0, 0], [2, 2, 2], [4, 4], [6]]
    rows[:] = [np.full(2, number, np.float32) for number in range(4)]
    assert predictor(("N", "W"), outputs=["y"])({"x": rows})["y"].shape == (4, 2)


@pytest.mark.parametrize(
    ("arguments", "batch", "said"),
    [
        ({"outputs": ["q"]}, None, "no output 'q'"),
        ({"inputs": {"q": "x"}}, None, "a column for each of"),
        ({}, {"a": np.ones((1, 2)), "b": np.ones((1, 2))}, "no column 'x'"),
        ({}, {"x": np.ones((1, 2)), "y": np.ones(1)}, "a column 'y' already"),
        ({}, {"x": np.ones((1, 2), complex)}, "input 'x' must be float32"),
        ({}, {"x": np.ones((1, 3))}, "'x'"),
    ],
    ids=str,
)
def test_what_does_not_fit_is_said(predictor: Predict, arguments: dict[str, Any], batch: Any, said: str) -> None:
    with pytest.raises(ModelError, match=said):
        predictor(("N", 2), **arguments)(batch)


class _Ended(BaseException):
    """Stands for the end of the process."""


def test_a_failed_device_ends_the_process_unless_it_has_just_begun_anew(
    predictor: Predict, monkeypatch: pytest.MonkeyPatch
) -> None:
    restarted = [False]

    class Context:
        @property
        def was_current_actor_reconstructed(self) -> bool:
            return restarted[0]

    def ended(status: int) -> None:
        assert status == 1
        raise _Ended

    def lost(*_: object) -> None:
        raise DeviceLostError("the device is lost")

    monkeypatch.setattr(ray, "get_runtime_context", Context)
    monkeypatch.setattr(os, "_exit", ended)
    run, batch = InferenceSession.run, {"x": np.ones((1, 2))}
    made = predictor(("N", 2))
    for restarted[0], works_before, error in (
        (False, False, _Ended),
        (True, False, DeviceLostError),
        (True, True, _Ended),
    ):
        if works_before:
            made(batch)
        monkeypatch.setattr(InferenceSession, "run", lost)
        with pytest.raises(error):
            made(batch)
        monkeypatch.setattr(InferenceSession, "run", run)


def test_prompts_and_conversations_become_answers(device: dmlvk.Device, monkeypatch: pytest.MonkeyPatch) -> None:
    model, _ = counting_model("Hello there", sequences=2)
    monkeypatch.setattr(predictors, "assigned_device", lambda: device)
    monkeypatch.setattr(dmlvk.llm.model, "load", lambda path, device, **_: model)
    prompts = np.array(["He", "Hell", "H"], object)
    made = LlmPredictor("model.gguf", max_new_tokens=4, sequences=2)({"id": np.arange(3), "prompt": prompts})
    assert list(made) == ["id", "prompt", "answer"]
    assert list(made["answer"]) == ["".join(model.generate(prompt, 4)) for prompt in prompts]
    conversations = np.empty(1, object)
    conversations[0] = [{"role": "user", "content": "Hel"}]
    made = LlmPredictor("model.gguf", max_new_tokens=2)({"prompt": conversations})
    assert list(made["answer"]) == ["".join(model.generate("Hel", 2))]
    with pytest.raises(ModelError, match="no column 'prompt'"):
        LlmPredictor("model.gguf")({"text": prompts})


def test_predictions_want_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    dataset: Any = None
    monkeypatch.setattr(ray, "cluster_resources", lambda: {"CPU": 2.0})
    with pytest.raises(NoDeviceError, match="no node of the cluster has announced"):
        predictors.predict(dataset, OnnxPredictor, "model.onnx")
    for arguments in ({"num_devices": 0}, {"num_devices": 2}, {"workers": 0}):
        with pytest.raises(InvalidArgumentError, match="got"):
            predictors.predict(dataset, OnnxPredictor, "model.onnx", **arguments)
