"""Classify photographs with a ResNet-50, every layer of it on the Vulkan device.

    python examples/classification.py [IMAGE]... [--device DEVICE] [--model PATH]

The network is Yahoo's open_nsfw, by which web sites keep indecent pictures out: it gives a photograph's probability of being
one. IMAGE is any picture that Pillow opens; without one, four photographs that come with scikit-image are classified, of an
astronaut, a cat, a cup of coffee and a rocket. Prints a line a photograph, and where the network's nodes ran:

    astronaut    0.0152
    chelsea      0.0001
    coffee       0.0128
    rocket       0.0010
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from models import account, model
from PIL import Image
from skimage import data

from dmlvk.onnx import InferenceSession

Array = npt.NDArray[Any]

SIDE, ENLARGED = 224, 256  # of the network's image, and of the one whose middle that is
MEAN = np.array([104, 117, 123], np.float32)  # of ImageNet's blue, green and red
PHOTOGRAPHS = ("astronaut", "chelsea", "coffee", "rocket")


def network_input(image: Image.Image) -> Array:
    """The middle of a picture as the network wants it: {224, 224, 3}, blue first, less the mean."""
    image = image.convert("RGB").resize((ENLARGED, ENLARGED), Image.Resampling.BILINEAR)
    margin = (ENLARGED - SIDE) // 2
    return np.asarray(image, np.float32)[margin:-margin, margin:-margin, ::-1] - MEAN


def classify(session: Any, images: Sequence[Image.Image]) -> list[float]:
    """The probability of each picture to be indecent; all in one run, as a batch."""
    (info,) = session.get_inputs()
    (probabilities,) = session.run(None, {info.name: np.stack([network_input(image) for image in images])})
    return [float(indecent) for _, indecent in probabilities]


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("images", nargs="*", type=Path, metavar="IMAGE")
    parser.add_argument("--device", help="index, UUID or part of the name; python -m dmlvk devices lists them")
    parser.add_argument("--model", type=Path, help="another file than the one that tools/fetch_models.py fetches")
    options = parser.parse_args(arguments)
    images: dict[str, Image.Image] = {path.name: Image.open(path) for path in options.images}
    images = images or {name: Image.fromarray(getattr(data, name)()) for name in PHOTOGRAPHS}
    session = InferenceSession(options.model or model("open-nsfw.onnx"), options.device)
    for name, probability in zip(images, classify(session, list(images.values())), strict=True):
        print(f"{name:12} {probability:.4f}")
    print(account(session))


if __name__ == "__main__":
    main()
