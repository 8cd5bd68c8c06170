"""The scripts of examples/: each runs as a user would run it, on its own input, and prints what its docstring promises."""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
from models import account
from PIL import Image

import dmlvk
import dmlvk.onnx

pytestmark = pytest.mark.network

NUMBER = r"(-?\d+\.?\d*)"

Run = Callable[..., str]


@pytest.fixture
def run_example(device: dmlvk.Device, model_path: Callable[[str], Path], capsys: pytest.CaptureFixture[str]) -> Run:
    """A function that runs an example with options on the device under test, and returns what it prints of its results.

    What it says of where nodes ran must name that device, dispatches, and nothing on the host but what every session leaves
    there.
    """

    def run(name: str, models: tuple[str, ...], *options: str) -> str:
        for model in models:
            model_path(model)  # skips with the reason where one cannot be had
        importlib.import_module(name).main([*options, "--device", device.info.uuid])
        results, _, account = capsys.readouterr().out.partition("\n\n")
        assert re.match(rf"device +{re.escape(device.info.name)}\n", account)
        assert re.search(r"on the GPU +[1-9]\d* nodes \(.*\); [1-9]\d* dispatches a run", account)
        (on_host,) = re.findall(r"on the host +(.*)", account)
        reasons = re.findall(r"(?:\(|; )([a-z][^:(]*):", on_host)
        assert set(reasons) <= {
            "shape arithmetic",
            "constant, folded when the model was loaded",
            "control flow, followed when planning",
        }
        return results

    return run


@pytest.mark.full  # four pictures, of which test_classification_of_a_file has one
def test_classification(run_example: Run) -> None:
    printed = run_example("classification", ("open-nsfw.onnx",))
    found = dict(re.findall(rf"(\w+) +{NUMBER}", printed))
    expected = {"astronaut": 0.0152, "chelsea": 0.0001, "coffee": 0.0128, "rocket": 0.0010}
    assert found.keys() == expected.keys()
    assert all(abs(float(found[name]) - expected[name]) < 2e-4 for name in expected)


def test_classification_of_a_file(run_example: Run, tmp_path: Path) -> None:
    from skimage import data

    Image.fromarray(data.coffee()).save(tmp_path / "cup.png")
    printed = run_example("classification", ("open-nsfw.onnx",), str(tmp_path / "cup.png"))
    assert re.fullmatch(r"cup\.png +0\.012[789]", printed)


def test_detection(run_example: Run) -> None:
    assert re.fullmatch(r"FACE_FEMALE +0\.72[012]  \[173, 82, 102, 98\]", run_example("detection", ("320n.onnx",)))


def test_suppression_keeps_the_surest_of_boxes_that_overlap() -> None:
    suppress = importlib.import_module("detection").suppress
    boxes = np.array([[0, 0, 10, 10], [1, 0, 10, 10], [0, 6, 10, 10], [50, 50, 5, 5]], np.float32)
    assert suppress(boxes, np.array([0.8, 0.9, 0.3, 0.5])) == [1, 3, 2]
    assert suppress(boxes[:0], np.zeros(0)) == []


@pytest.mark.full  # two minutes on a processor
def test_background_removal(run_example: Run, model_path: Callable[[str], Path], tmp_path: Path) -> None:
    from skimage import data

    output = tmp_path / "astronaut.png"
    printed = run_example("background_removal", ("u2netp.onnx",), "--output", str(output))
    assert re.match(r"foreground 55\.[01] % of 512 x 512, written to ", printed)
    picture = Image.open(output)
    assert (picture.mode, picture.size) == ("RGBA", (512, 512))
    assert np.array_equal(np.asarray(picture)[..., :3], data.astronaut())

    example = importlib.import_module("background_removal")
    other = onnxruntime.InferenceSession(str(model_path("u2netp.onnx")), providers=["CPUExecutionProvider"])
    wanted = example.cut_out(
        Image.fromarray(data.astronaut()), example.find_foreground(other, Image.fromarray(data.astronaut()))
    )
    mine, theirs = (np.asarray(image)[..., 3] > 127 for image in (picture, wanted))
    assert (mine & theirs).sum() / (mine | theirs).sum() > 0.999


def test_sentence_similarity(run_example: Run) -> None:
    printed = run_example("sentence_similarity", ("paraphrase-MiniLM-L3-v2.onnx", "tokenizer.json"))
    found = [(float(number), pair) for number, pair in re.findall(rf" +{NUMBER}  (.*)", printed)]
    assert len(found) == 6
    assert [pair for _, pair in found[:2]] == [
        "The cat sat on the mat. / A kitten rests on the rug.",
        "The stock market crashed. / Stock markets fell sharply today.",
    ]
    assert [number for number, _ in found] == pytest.approx([0.669, 0.604, 0.101, 0.074, 0.067, 0.047], abs=2e-3)


def test_tokens_are_the_longest_pieces() -> None:
    example = importlib.import_module("sentence_similarity")
    words = ["[UNK]", "[CLS]", "[SEP]", "kitten", "##ish", "kit", "##ten", "cafe", "!", "is"]
    vocabulary = {word: number for number, word in enumerate(words)}
    assert example.tokenize("Kittenish café!", vocabulary) == [1, 3, 4, 7, 8, 2]
    assert example.tokenize("kits is", vocabulary) == [1, 0, 9, 2]
    assert example.tokenize("", vocabulary) == [1, 2]


def test_speech_activity(run_example: Run) -> None:
    printed = run_example("speech_activity", ("silero_vad_op18_ifless.onnx", "pocketsphinx/004.wav"))
    found = [[float(number) for number in line] for line in re.findall(rf"{NUMBER} to {NUMBER}  {NUMBER}", printed)]
    expected = [[0.32, 0.77, 0.939], [0.93, 1.34, 0.925]]  # "five, five"
    assert np.shape(found) == np.shape(expected)
    assert np.abs(np.subtract(found, expected)).max() < 2e-3


def test_the_state_of_speech_activity_stays_on_the_device(device: dmlvk.Device, model_path: Callable[[str], Path]) -> None:
    session = dmlvk.onnx.InferenceSession(model_path("silero_vad_op18_ifless.onnx"), device)
    states = []

    class Spy:
        def run_with_device_arrays(self, names: Any, feeds: Any) -> Any:
            states.append(feeds["state"])
            return session.run_with_device_arrays(names, feeds)

    assert len(list(importlib.import_module("speech_activity").probabilities(Spy(), np.zeros(2000, np.float32)))) == 4
    assert [isinstance(state, dmlvk.DeviceArray) for state in states] == [False, True, True, True]


def test_speech_stretches() -> None:
    find_speech = importlib.import_module("speech_activity").find_speech
    assert find_speech([]) == find_speech([0.1, 0.4, 0.4]) == []
    assert find_speech([0.9]) == [(0.0, 0.032, 0.9)]
    ((start, end, probability),) = find_speech([0.1, 0.6, 0.4, 0.0, 0.0, 0.0, 0.8])  # a break of 96 ms
    assert (start, end) == (0.032, pytest.approx(0.224))
    assert probability == pytest.approx(1.8 / 6)
    assert len(find_speech([0.6, 0.0, 0.0, 0.0, 0.0, 0.8])) == 2  # one of 128 ms


def test_an_example_that_the_device_did_not_run_says_so() -> None:
    class Idle:
        def report(self) -> Any:
            return type("Report", (), {"gpu_nodes": (), "dispatches": 0, "device": "a device"})

    with pytest.raises(SystemExit, match="nothing ran on a device"):
        account(Idle())
