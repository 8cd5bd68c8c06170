"""A model's files on a node that does not have them."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx
import pytest
import ray
from onnx import helper
from onnx_models import make_model

from dmlvk.ray import shared_model
from dmlvk.ray.shared_model import SharedModel, share
from dmlvk.spec.errors import ModelError, NoSuchFileError


class Server:
    """Stands for the actor that has the files, and counts what it is asked for."""

    def __init__(self, root: str) -> None:
        self.read = shared_model._Server(root).piece
        self.asked: list[tuple[str, int]] = []
        self.piece = SimpleNamespace(remote=self._piece)

    def _piece(self, name: str, start: int) -> bytes:
        self.asked.append((name, start))
        return self.read(name, start)


@pytest.fixture(autouse=True)
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A node's folder; pieces are of 1,000 bytes, and actors are plain objects."""
    monkeypatch.setattr(shared_model, "node_folder", lambda: tmp_path / "node")
    monkeypatch.setattr(shared_model, "_PIECE", 1000)
    monkeypatch.setattr(ray, "get", lambda value: value)
    actor = SimpleNamespace(options=lambda **_: SimpleNamespace(remote=Server))
    monkeypatch.setattr(ray, "remote", lambda _: actor)
    monkeypatch.setattr(ray, "get_runtime_context", lambda: SimpleNamespace(get_node_id=lambda: "0" * 56))
    return tmp_path / "node"


def saved(folder: Path) -> Path:
    folder.mkdir()
    model = make_model(
        helper.make_node("Add", ["x", "w"], ["y"]), {"x": (np.float32, (600,))}, constants={"w": np.ones(600, np.float32)}
    )
    onnx.save(model, folder / "m.onnx", save_as_external_data=True, location="w.bin", size_threshold=0)
    (folder / "other.txt").write_text("no part of the model")
    return folder / "m.onnx"


def elsewhere(model: SharedModel, root: Path) -> SharedModel:
    """The model as a node sees it that has nothing there: the server alone knows where its files are."""
    return SharedModel(root / model.path.relative_to(model._root), root, model._files, model._server)


def test_a_node_that_has_the_files_takes_those(tmp_path: Path) -> None:
    path = saved(tmp_path / "here")
    assert share(path).local() == path


def test_a_node_fetches_what_belongs_to_the_model_once(tmp_path: Path, node: Path) -> None:
    path = saved(tmp_path / "here")
    shared: Any = share(path)
    there = elsewhere(shared, tmp_path / "there")
    fetched = there.local()
    assert fetched.is_relative_to(node) and fetched.read_bytes() == path.read_bytes()
    assert (fetched.parent / "w.bin").read_bytes() == path.with_name("w.bin").read_bytes()
    assert sorted(item.name for item in fetched.parent.iterdir()) == ["m.onnx", "turn", "w.bin"]
    asked = list(shared._server.asked)
    assert [start for name, start in asked if name == "w.bin"] == [0, 1000, 2000]
    assert there.local() == fetched and shared._server.asked == asked


def test_the_parts_of_a_file_and_the_files_of_a_folder_go_together(tmp_path: Path) -> None:
    for name in ("m-00001-of-00002.gguf", "m-00002-of-00002.gguf", "n-00002-of-00002.gguf"):
        (tmp_path / name).write_bytes(b"x")
    assert [file.name for file in share(tmp_path / "m-00001-of-00002.gguf")._files] == [
        "m-00001-of-00002.gguf",
        "m-00002-of-00002.gguf",
    ]
    (tmp_path / "folder" / "below").mkdir(parents=True)
    (tmp_path / "folder" / "below" / "config.json").write_text("{}")
    there = elsewhere(share(tmp_path / "folder"), tmp_path / "nowhere")
    assert (there.local() / "below" / "config.json").read_text() == "{}"


def test_what_is_no_model_is_refused(tmp_path: Path) -> None:
    with pytest.raises(NoSuchFileError, match="there is no file"):
        share(tmp_path / "m.onnx")
    path = saved(tmp_path / "here")
    path.with_name("w.bin").unlink()
    with pytest.raises(ModelError, match=r"tensor 'w' is at 'w\.bin'"):
        share(path)
