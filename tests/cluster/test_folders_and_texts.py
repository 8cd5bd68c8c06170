"""Folders and language models on a Ray cluster of two logical nodes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper
from onnx_models import make_model
from ray_cluster import run_on_cluster

pytestmark = pytest.mark.full  # starts Ray

FOLDER = """
import sys
from pathlib import Path
import numpy as np
import ray
from dmlvk.cli import main
from ray_cluster import cluster

folder = Path(sys.argv[1])
with cluster() as nodes:
    ray.shutdown()  # the command is a driver of its own
    command = ["run", str(folder / "model.onnx"), "--folder", str(folder / "in"), "--out", str(folder / "out")]
    status = main([*command, "--ray", nodes.address, "--json", str(folder / "told.json")])
assert status == 1, status
for number in range(200):
    with np.load(folder / "out" / f"{number}.npy.npz") as archive:
        np.testing.assert_array_equal(archive["y"], number * np.float32([1, 2, 3, 4]))
assert not (folder / "out" / "broken.npy.npz").exists()
print("right")
"""


def test_a_folder_on_a_cluster(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    for number in range(200):
        np.save(tmp_path / "in" / f"{number}.npy", np.full(4, number, np.float32))
    (tmp_path / "in" / "broken.npy").write_bytes(b"no array")
    node = helper.make_node("Mul", ["x", "w"], ["y"])
    model = make_model(node, {"x": (np.float32, ("N", 4))}, constants={"w": np.float32([1, 2, 3, 4])})
    onnx.save(model, tmp_path / "model.onnx")
    assert run_on_cluster(FOLDER, str(tmp_path)).splitlines()[-1] == "right"
    assert '"broken.npy"' in (tmp_path / "told.json").read_text()
