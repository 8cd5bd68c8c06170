"""Models whose weights stay in their files."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper

import dmlvk
from dmlvk.onnx import InferenceSession, SessionOptions
from dmlvk.onnx.model import load_model

W = np.arange(4096, dtype=np.float32)


@pytest.mark.parametrize("apart", [False, True])
def test_weights_stay_in_their_file(
    device: dmlvk.Device, make_model: Callable[..., onnx.ModelProto], tmp_path: Path, apart: bool
) -> None:
    node = helper.make_node("Add", ["x", "w"], ["y"])
    model = make_model(node, {"x": (np.float32, (4096,))}, constants={"w": W})
    onnx.save(model, tmp_path / "m.onnx", save_as_external_data=apart, location="w.bin", size_threshold=0)
    loaded = load_model(tmp_path / "m.onnx", maps=True)
    np.testing.assert_array_equal(loaded.initializers["w"], W)
    if sys.platform == "linux":
        mapped = Path("/proc/self/maps").read_text()
        assert str(tmp_path / ("w.bin" if apart else "m.onnx")) in mapped
        address = loaded.initializers["w"].ctypes.data
        ranges = [line.split()[0].split("-") for line in mapped.splitlines() if str(tmp_path) in line]
        assert any(int(first, 16) <= address < int(last, 16) for first, last in ranges), "it is no copy"
    session = InferenceSession(tmp_path / "m.onnx", device, SessionOptions(map_files=True))
    np.testing.assert_array_equal(session.run(None, {"x": W})[0], 2 * W)


def test_an_empty_file_is_no_model(tmp_path: Path) -> None:
    (tmp_path / "m.onnx").touch()
    with pytest.raises(dmlvk.ModelError, match="no graph"):
        load_model(tmp_path / "m.onnx", maps=True)
