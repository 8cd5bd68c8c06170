"""Folders and language models on a Ray cluster of two logical nodes."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import pytest
from counting_model import byte_tokens
from language_models import write_model
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


TEXTS = '''
import os, signal, sys
from pathlib import Path
import ray
import ray.data
import dmlvk.ray
from dmlvk import llm
from dmlvk.llm.decoder import Decoder
from dmlvk.spec.errors import DeviceLostError, OutOfDeviceMemoryError
from ray_cluster import cluster

path = Path(sys.argv[1])


class Failing(dmlvk.ray.LlmPredictor):
    """Fails three times in the middle of answers: killed, without its device, and without memory."""

    def __call__(self, batch):
        step = Decoder.step
        due = {10: "killed", 30: "lost", 50: "full"}

        def failing(decoder, *arguments, **options):
            found = step(decoder, *arguments, **options)
            for row, what in due.items():
                if row in batch["id"] and max(decoder.lengths) > 12 and self.first(what):
                    if what == "killed":
                        os.kill(os.getpid(), signal.SIGKILL)
                    raise {"lost": DeviceLostError, "full": OutOfDeviceMemoryError}[what](what)
            return found

        Decoder.step = failing
        try:
            return super().__call__(batch)
        finally:
            Decoder.step = step

    def first(self, what):
        try:
            os.close(os.open(path.with_name(what), os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return False
        return True


prompts = [f"{'abc' * (number % 5)} {number}" for number in range(64)]
options = dict(max_new_tokens=12, temperature=1.0, seed=5)
with cluster():
    ray.data.DataContext.get_current().enable_progress_bars = False
    rows = ray.data.from_items([{"id": number, "prompt": prompt} for number, prompt in enumerate(prompts)])
    made = dmlvk.ray.predict(
        rows, Failing, dmlvk.ray.share(path), batch_size=6, num_cpus=0.5, sequences=3, capacity=64, **options
    ).take_all()
failed = sorted(item.name for item in path.parent.iterdir() if item != path)
assert failed == ["full", "killed", "lost"], failed
assert [row["id"] for row in made] == list(range(64))
model = llm.load(path, capacity=64)
for row in made:
    assert row["answer"] == "".join(model.generate(row["prompt"], **options)), row
print("right")
'''


def test_prompts_on_a_cluster_though_processes_fail(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    tables = {name: rng.standard_normal((258, 64)).astype(np.float32) for name in ("token_embd", "output")}
    path = write_model(tmp_path / "tiny.gguf", "llama", tokenizer=byte_tokens(), **tables)
    assert run_on_cluster(TEXTS, str(path)).splitlines()[-1] == "right"


SCALING = """
import sys
import scale_devices

status = scale_devices.main(
    ["--devices", "1", "--copies", "2", "--num-cpus", "0.5", "--batches", "4", "--batch-size", "4", "--out", sys.argv[3]]
    + ["--onnx", sys.argv[1], "--text", sys.argv[2], "--tokens", "4", "--sequences", "2"]
)
sys.exit(status)
"""


def test_the_table_of_more_devices(tmp_path: Path) -> None:
    """Of one: whether two have work at the same time is a matter of how fast they begin."""
    rng = np.random.default_rng(0)
    tables = {name: rng.standard_normal((258, 64)).astype(np.float32) for name in ("token_embd", "output")}
    text = write_model(tmp_path / "tiny.gguf", "llama", tokenizer=byte_tokens(), **tables)
    model = make_model(helper.make_node("Neg", ["x"], ["y"]), {"x": (np.float32, ("N", 3, 8, 8))})
    onnx.save(model, tmp_path / "model.onnx")
    run_on_cluster(SCALING, str(tmp_path / "model.onnx"), str(text), str(tmp_path / "out.json"))
    found = json.loads((tmp_path / "out.json").read_text())
    for kind in ("images", "text"):
        (item,) = found[kind]
        assert item["devices"] == len(item["use"]) == 1 and item["rows_a_second"] > 0
        assert all(0 < part <= 1 for part in item["use"].values())
