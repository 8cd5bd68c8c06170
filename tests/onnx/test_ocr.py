"""``examples/ocr.py`` reads what a photographed page says, whichever way up, and as another runtime reads it."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import ocr
import onnxruntime
import pytest
from PIL import Image, ImageDraw, ImageFont

pytestmark = pytest.mark.network

SCRIPT = Path(ocr.__file__)

PROSE = [
    "Region-based segmentation",
    "Let us first determine markers of the coins and the",
    "background. These markers are pixels that we can label",
    "unambiguously as either object or background. Here,",
    "the markers are found at the two extreme parts of the",
    "histogram of grey values:",
]
"""What is printed on the page, but for a last line of code that is out of focus."""


@pytest.fixture(scope="module")
def page() -> np.ndarray:
    return ocr.load(None)


@pytest.fixture(scope="module")
def paths(model_path: Callable[[str], Path]) -> list[Path]:
    return [model_path(name) for name in (ocr.DETECTION, ocr.DIRECTION, ocr.RECOGNITION)]


@pytest.fixture(scope="module")
def sessions(paths: list[Path], make_session: Callable[..., Any]) -> list[Any]:
    return [make_session(path) for path in paths]


def check_page(lines: list[ocr.Line]) -> None:
    """Asserts that the lines are the page's; of the last one only that it is there."""
    assert [line.text for line in lines[:-1]] == PROSE
    assert "zeros" in lines[-1].text
    assert all(line.confidence > 0.9 for line in lines)


@pytest.mark.full  # two minutes; `make demo` reads the same page
def test_page_as_onnxruntime_reads_it(
    page: np.ndarray, paths: list[Path], sessions: list[Any], count_dispatches: Callable[..., Any]
) -> None:
    with count_dispatches() as count:
        lines = ocr.Reader(*sessions).read(page)
    check_page(lines)
    assert count.dispatches > sum(session.report().dispatches for session in sessions)  # lines come in several batches
    reasons = {node.reason for session in sessions for node in session.report().host_nodes}
    assert reasons <= {"constant, folded when the model was loaded", "shape arithmetic"}

    theirs = [onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"]) for path in paths]
    for mine, line in zip(lines, ocr.Reader(*theirs).read(page), strict=True):
        assert mine.text == line.text
        assert mine.confidence == pytest.approx(line.confidence, abs=1e-5)
        np.testing.assert_allclose(mine.corners, line.corners, atol=1e-6)


@pytest.mark.full
@pytest.mark.parametrize("quarter_turns", [2, 3])
def test_page_the_wrong_way_up(page: np.ndarray, sessions: list[Any], quarter_turns: int) -> None:
    image = np.rot90(page, quarter_turns)
    lines = ocr.Reader(*sessions).read(image)
    check_page(lines)
    x, y = lines[0].corners[0] / (image.shape[1], image.shape[0])
    assert x > 0.9  # the page's upper left corner is at the right now
    assert y > 0.9 if quarter_turns == 2 else y < 0.1


def test_blank_image(sessions: list[Any]) -> None:
    for height, width in ((1, 1), (96, 64), (3, 700)):
        assert ocr.Reader(*sessions).read(np.full((height, width, 3), 255, np.uint8)) == []


def test_columns_and_rows(sessions: list[Any]) -> None:
    """Two words side by side, the second a little higher, and one that runs up."""
    image = Image.new("RGB", (420, 300), "navy")
    font = ImageFont.load_default(30)
    ImageDraw.Draw(image).text((60, 36), "Hello", "yellow", font)
    ImageDraw.Draw(image).text((280, 30), "World", "yellow", font)
    column = Image.new("RGB", (170, 40), "navy")
    ImageDraw.Draw(column).text((5, 2), "upwards", "white", font)
    image.paste(column.rotate(90, expand=True), (180, 100))
    lines = ocr.Reader(*sessions).read(np.asarray(image))
    assert [line.text for line in lines] == ["Hello", "World", "upwards"]
    (x, y), (end_x, end_y), *_ = lines[2].corners
    assert abs(end_x - x) < 5
    assert y - end_y > 100


# -- The steps without a network


def test_network_input_is_blue_first() -> None:
    red = np.zeros((10, 20, 3), np.uint8)
    red[..., 0] = 255
    pixels = ocr.network_input(red, 4, 6)
    assert (pixels.dtype, pixels.shape) == (np.float32, (3, 4, 6))
    np.testing.assert_array_equal(pixels[:, 0, 0], [-1, -1, 1])


def test_smallest_rectangle_of_a_turned_one() -> None:
    across, down = np.meshgrid(np.linspace(0, 40, 41), np.linspace(0, 9, 10))
    for degrees in (-40, -5, 0, 0.5, 20, 44):
        angle = np.deg2rad(degrees)
        turn = np.array([[np.cos(angle), np.sin(angle)], [-np.sin(angle), np.cos(angle)]])
        corners = np.array([[0, 0], [40, 0], [40, 9], [0, 9]]) @ turn
        points = np.stack([across.ravel(), down.ravel()], axis=1) @ turn
        np.testing.assert_allclose(ocr.smallest_rectangle(points), corners, atol=1e-9)


def test_cut_follows_a_slanted_line() -> None:
    ramp = np.arange(100, dtype=np.uint8)[:, np.newaxis] * 2 + np.arange(80, dtype=np.uint8)  # 2 y + x
    image = np.repeat(ramp[:, :, np.newaxis], 3, axis=2)
    along, across = np.array([4.0, 3.0]) / 5, np.array([-3.0, 4.0]) / 5
    start = np.array([20.0, 10.0])
    crop = ocr.cut(image, np.array([start, start + 40 * along, start + 40 * along + 10 * across, start + 10 * across]))
    assert crop.shape == (10, 40, 3)
    y, x = np.indices(crop.shape[:2])
    places = start + (x[..., np.newaxis] + 0.5) * along + (y[..., np.newaxis] + 0.5) * across
    np.testing.assert_allclose(crop[..., 0], places @ [1, 2], atol=0.5 + 1e-6)  # rounded to bytes


def test_decoding_drops_repeats_and_blanks(sessions: list[Any]) -> None:
    reader = ocr.Reader(*sessions)
    a, b = 10, 11
    steps = np.full((7, 6625), 0.0, np.float32)
    for step, (character, probability) in enumerate([(0, 0.9), (a, 0.8), (a, 0.7), (0, 0.9), (a, 0.6), (b, 0.5), (0, 1)]):
        steps[step, character] = probability
    characters = sessions[2].get_modelmeta().custom_metadata_map["character"].split("\n")
    expected = characters[a - 1] * 2 + characters[b - 1]
    text, confidence = reader.decode(steps)
    assert text == expected
    assert confidence == pytest.approx((0.8 + 0.6 + 0.5) / 3)
    assert reader.decode(steps[:1]) == ("", 0.0)


# -- The command


def command(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, str(SCRIPT), *arguments], capture_output=True, text=True)


@pytest.mark.full
def test_command(paths: list[Path], tmp_path: Path) -> None:
    file = tmp_path / "sign.png"
    sign = Image.new("RGBA", (300, 80))  # transparent
    ImageDraw.Draw(sign).text((20, 20), "Platform 9", "black", ImageFont.load_default(32))
    sign.save(file)
    done = command(str(file), "--json")
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert [line["text"] for line in answer["lines"]] == ["Platform 9"]
    assert answer["plans"] == 3
    assert answer["dispatches"] > 100
    assert set(answer["seconds"]["again"]) == {"detection", "direction", "recognition"}

    plain = command(str(file))
    assert plain.stdout.splitlines()[0].split(maxsplit=1)[1] == "Platform 9"
    assert f"{answer['device']}: {answer['dispatches']} dispatches, 3 plans" in plain.stdout


def test_files_of_other_kinds(tmp_path: Path) -> None:
    grey = np.array([[0, 128, 255]], np.uint8)
    sixteen_bits, turned, transparent = tmp_path / "16.png", tmp_path / "turned.png", tmp_path / "transparent.png"
    Image.fromarray(grey.astype(np.uint16) * 257).save(sixteen_bits)
    np.testing.assert_array_equal(ocr.load(str(sixteen_bits)), np.repeat(grey[..., np.newaxis], 3, axis=2))
    exif = Image.Exif()
    exif[0x0112] = 6  # the top of the scene is on the right of what is stored
    Image.fromarray(grey).save(turned, exif=exif)
    np.testing.assert_array_equal(ocr.load(str(turned))[:, 0, 0], grey[0])
    Image.fromarray(np.array([[[9, 9, 9, 0], [9, 9, 9, 255]]], np.uint8)).save(transparent)
    np.testing.assert_array_equal(ocr.load(str(transparent))[0, :, 0], [255, 9])


@pytest.mark.parametrize(
    "content",
    [
        None,
        b"no image at all",
        *(pytest.param(own, marks=pytest.mark.full) for own in (b"", b"\x89PNG\r\n\x1a\n broken", b"P6 x 1 255\n")),
    ],
)
def test_file_that_is_no_image(tmp_path: Path, content: bytes | None) -> None:
    file = tmp_path / "picture.png"
    if content is not None:
        file.write_bytes(content)
    done = command(str(file))
    assert done.returncode == 1
    assert done.stderr.startswith(f"ocr.py: {file} cannot be read as an image: ")
    assert "Traceback" not in done.stderr
