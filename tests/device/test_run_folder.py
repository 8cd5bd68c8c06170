"""``python -m dmlvk run MODEL --folder``: all files of a folder, and what is wrong with some."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper
from onnx_models import make_model
from PIL import Image

from dmlvk.cli import main
from dmlvk.onnx.folder import FolderRun
from dmlvk.onnx.session import InferenceSession
from dmlvk.spec.errors import DeviceLostError

W = np.float32([1, 2, 3, 4])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "in" / "below").mkdir(parents=True)
    return tmp_path / "in"


def saved(tmp_path: Path, node: onnx.NodeProto, **inputs: tuple[Any, Sequence[Any]]) -> str:
    path = tmp_path / "model.onnx"
    onnx.save(make_model(node, inputs, constants={"w": W} if "w" in node.input else None), path)
    return str(path)


def scaling(tmp_path: Path, count: int | str = "N") -> str:
    return saved(tmp_path, helper.make_node("Mul", ["x", "w"], ["y"]), x=(np.float32, (count, 4)))


def run(capsys: pytest.CaptureFixture[str], model: str, folder: Path, *options: str) -> tuple[int, dict[str, Any]]:
    capsys.readouterr()
    status = main(["run", model, "--folder", str(folder), "--out", str(folder.parent / "out"), "--json", *options])
    return status, json.loads(capsys.readouterr().out)


def made(folder: Path, name: str) -> np.ndarray:
    with np.load(folder.parent / "out" / f"{name}.npz") as archive:
        return archive["y"]


@pytest.mark.parametrize("count", ["N", 4])
def test_each_file_has_its_results_and_a_second_run_goes_on(
    tmp_path: Path, folder: Path, capsys: pytest.CaptureFixture[str], count: int | str
) -> None:
    for number in range(11):
        np.save(folder / f"{number:02}.npy", np.full(4, number, np.float64))
    np.save(folder / "below" / "rows.npy", np.ones((7, 4), np.float32))
    np.save(folder / "narrow.npy", np.ones(3, np.float32))
    (folder / "broken.npy").write_bytes(b"nothing that is an array")
    (folder / "notes.txt").write_text("of no concern")
    model = scaling(tmp_path, count)
    status, told = run(capsys, model, folder, "--workers", "2", "--batch", "3")
    assert status == 1 and (told["files"], told["had_results"], told["done"], told["left"]) == (14, 0, 12, 0)
    assert sorted(told["failed"]) == ["broken.npy", "narrow.npy"] and "'x'" in told["failed"]["narrow.npy"]
    for number in range(11):
        np.testing.assert_array_equal(made(folder, f"{number:02}.npy"), number * W)
    np.testing.assert_array_equal(made(folder, "below/rows.npy"), np.ones((7, 1)) * W)
    assert not list((tmp_path / "out").rglob("*.part"))
    for name in ("broken.npy", "narrow.npy"):
        np.save(folder / name, np.ones(4, np.float32))
    status, told = run(capsys, model, folder)
    assert status == 0 and (told["had_results"], told["done"], told["failed"]) == (12, 2, {})


def test_what_ctrl_c_leaves_is_done_by_the_next_run(
    tmp_path: Path, folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(6):
        np.save(folder / f"{number}.npy", np.full(4, number, np.float32))
    model = scaling(tmp_path)
    with monkeypatch.context() as patched:
        call = FolderRun.__call__

        def interrupted(self: FolderRun, names: Sequence[str]) -> list[tuple[str, str]]:
            if "3.npy" in names:
                raise KeyboardInterrupt
            return call(self, names)

        patched.setattr(FolderRun, "__call__", interrupted)
        status, told = run(capsys, model, folder, "--batch", "1")
    assert status == 130 and told["done"] == 3 and told["left"] == 3
    (tmp_path / "out" / ".4.npy.npz.part").write_bytes(b"a result that was not finished")
    status, told = run(capsys, model, folder)
    assert status == 0 and told["had_results"] >= 3 and not told["failed"]
    assert [made(folder, f"{number}.npy")[0] for number in range(6)] == list(range(6))


def test_files_are_run_again_where_the_device_was_lost(
    tmp_path: Path, folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    np.save(folder / "a.npy", W)
    calls, forward = [], InferenceSession.run

    def lost_once(self: InferenceSession, *arguments: Any) -> list[Any]:
        calls.append("run")
        if len(calls) == 1:
            raise DeviceLostError("the device is lost")
        return forward(self, *arguments)

    monkeypatch.setattr(InferenceSession, "run", lost_once)
    monkeypatch.setattr(InferenceSession, "recover", lambda self: calls.append("recover"))
    status, told = run(capsys, scaling(tmp_path), folder)
    assert status == 0 and told["done"] == 1 and calls == ["run", "recover", "run"]


def test_several_inputs_come_from_one_archive(tmp_path: Path, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    node = helper.make_node("Add", ["a", "b"], ["y"])
    model = saved(tmp_path, node, a=(np.float32, ("N", 2)), b=(np.float32, ("N", 2)))
    a, b = np.float32([1, 2]), np.float32([[3, 4], [5, 6]])
    np.savez(folder / "item.npz", a=a, b=b[0])
    np.savez(folder / "rows.npz", a=b, b=b)
    np.savez(folder / "mixed.npz", a=a, b=b)
    np.savez(folder / "other.npz", a=a)
    np.save(folder / "single.npy", a)
    status, told = run(capsys, model, folder)
    assert status == 1 and sorted(told["failed"]) == ["mixed.npz", "other.npz", "single.npy"]
    np.testing.assert_array_equal(made(folder, "item.npz"), a + b[0])
    np.testing.assert_array_equal(made(folder, "rows.npz"), b + b)


@pytest.mark.parametrize("shape", [("N", 3, 2, 4), ("N", 2, 4, 3), (3, 2, 4)], ids=str)
def test_pictures_are_scaled_to_the_input(
    tmp_path: Path, folder: Path, capsys: pytest.CaptureFixture[str], shape: tuple[Any, ...]
) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (2, 4, 3), np.uint8)
    Image.fromarray(pixels).save(folder / "same.png")
    Image.new("L", (9, 9), 255).save(folder / "white.png")
    model = saved(tmp_path, helper.make_node("Neg", ["x"], ["y"]), x=(np.float32, shape))
    status, told = run(capsys, model, folder, "--mean", "0.5,0.25,0", "--std", "2")
    assert status == 0, told
    wanted = -(pixels / np.float32(255) - np.float32([0.5, 0.25, 0])) / 2
    white = np.broadcast_to(-(1 - np.float32([0.5, 0.25, 0])) / 2, (2, 4, 3))
    for name, expected in (("same.png", wanted), ("white.png", white)):
        last = shape[-1] == 3
        np.testing.assert_allclose(made(folder, name), expected if last else expected.transpose(2, 0, 1), atol=1e-6)


def test_a_model_without_an_axis_of_items_takes_each_file_as_it_is(
    tmp_path: Path, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    node = helper.make_node("Add", ["a", "b"], ["y"])
    model = saved(tmp_path, node, a=(np.float32, (3, 2)), b=(np.float32, (1, 2)))
    np.savez(folder / "one.npz", a=np.ones((3, 2), np.float32), b=np.ones((1, 2), np.float32))
    status, told = run(capsys, model, folder)
    assert status == 0 and told["done"] == 1
    np.testing.assert_array_equal(made(folder, "one.npz"), np.full((3, 2), 2))
