"""Find objects in a photograph with YOLOv8, every layer of it on the Vulkan device.

    python examples/detection.py [IMAGE] [--device DEVICE] [--model PATH]

The network is NudeNet's YOLOv8n, which finds faces and 16 other parts of people, clothed or not. IMAGE is any picture that
Pillow opens; without one, scikit-image's photograph of Eileen Collins is taken. Prints a line an object: its class, the
network's confidence, and its box in pixels, as left, top, width and height; then where the network's nodes ran:

    FACE_FEMALE              0.721  [173, 82, 102, 98]

YOLO proposes 2,100 boxes, most of them of nothing, and several of each thing. Which of them are kept is decided here, in
numpy: those confident enough, and of those that overlap the most confident one (non-maximum suppression).
"""

from __future__ import annotations

import argparse
import ast
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from models import account, model
from PIL import Image
from skimage import data
from skimage.transform import resize

from dmlvk.onnx import InferenceSession

Array = npt.NDArray[Any]

SIDE = 320  # of the network's image, which is square
CONFIDENCE = 0.25
OVERLAP = 0.45  # two boxes of one thing have more of their union in common


class Detection(NamedTuple):
    """A thing found: what, how surely, and where: {4}, its left, top, width and height in pixels of the photograph."""

    label: str
    confidence: float
    box: Array


def network_input(image: Image.Image) -> tuple[Array, float]:
    """A picture as the network wants it: {1, 3, 320, 320} from 0 to 1, blue first, made square by black beside or below it.

    Returns:
        It, and how many pixels of the picture one of its pixels is.
    """
    square = Image.new("RGB", (max(image.size),) * 2)
    square.paste(image)
    pixels = resize(np.asarray(square), (SIDE, SIDE), order=1, anti_aliasing=False, preserve_range=True)
    pixels = pixels.round().astype(np.float32)[np.newaxis, ..., ::-1] / 255
    return pixels.transpose(0, 3, 1, 2), square.width / SIDE


def overlaps(box: Array, others: Array) -> Array:
    """What a box, {4}, has in common with each of others, {n, 4}, as a share of the union of the two."""
    starts, ends = np.maximum(box[:2], others[:, :2]), np.minimum(box[:2] + box[2:], others[:, :2] + others[:, 2:])
    common = (ends - starts).clip(0).prod(1)
    shares: Array = common / (box[2:].prod() + others[:, 2:].prod(1) - common)
    return shares


def suppress(boxes: Array, confidences: Array) -> list[int]:
    """Indices of the boxes, {n, 4}, that stay: the most confident, then the next that overlaps none of those, and so on."""
    kept: list[int] = []
    for index in np.argsort(-confidences):
        if not kept or overlaps(boxes[index], boxes[kept]).max() <= OVERLAP:
            kept.append(int(index))
    return kept


def detect(session: Any, image: Image.Image) -> list[Detection]:
    """What the network finds in a picture, the surest first."""
    (info,) = session.get_inputs()
    pixels, scale = network_input(image)
    (proposals,) = session.run(None, {info.name: pixels})  # {1, 4 + classes, 2100}
    centres, sizes, scores = np.split(proposals[0].T, (2, 4), axis=1)
    classes, confidences = scores.argmax(1), scores.max(1)
    sure = np.flatnonzero(confidences > CONFIDENCE)
    starts = (centres[sure] - sizes[sure] / 2).clip(0)
    boxes = np.hstack([starts, np.minimum(sizes[sure], np.array(image.size) / scale - starts)]) * scale
    names = ast.literal_eval(session.get_modelmeta().custom_metadata_map["names"])  # {0: "...", 1: ...}
    return [
        Detection(names[int(classes[sure[kept]])], float(confidences[sure[kept]]), boxes[kept])
        for kept in suppress(boxes, confidences[sure])
    ]


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("image", nargs="?", type=Path, metavar="IMAGE")
    parser.add_argument("--device", help="index, UUID or part of the name; python -m dmlvk devices lists them")
    parser.add_argument("--model", type=Path, help="another file than the one that tools/fetch_models.py fetches")
    options = parser.parse_args(arguments)
    image = Image.open(options.image) if options.image else Image.fromarray(data.astronaut())
    session = InferenceSession(options.model or model("320n.onnx"), options.device)
    for label, confidence, box in detect(session, image):
        print(f"{label:24} {confidence:.3f}  {box.astype(int).tolist()}")
    print(account(session))


if __name__ == "__main__":
    main()
